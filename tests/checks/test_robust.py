"""Whatever a reader accepts, the checks return findings that can be written down, and never raise."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.checks.registry import check_trace
from engine.step import VerifyStep
from engine.trace import TraceFormatError, step_from_json, step_to_json
from tests.checks.build import batch, clean_steps, on_ranks, spoil

HUGE = 1 << 48
NUMBERS = [0, -1, 1, 7, 65, 65536, -65536, HUGE, -HUGE, 1 << 62, -(1 << 63)]


def variants(value: Any) -> Iterator[Any]:
    """Other values of the same kind, and none."""
    yield None
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from NUMBERS
    elif isinstance(value, list):
        yield []
        yield value[:1]
        yield value[:-1]
        yield value + value[-1:]
        yield value * 3
        yield value[::-1]
        if all(type(item) is int for item in value):
            for number in NUMBERS:
                yield [number] * len(value)
                yield [number, *value[1:]]
                yield [*value[:-1], number]
            yield [-item for item in value]
    elif isinstance(value, float):
        yield from (0.0, -1.5, 1e300)


def paths(value: Any, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Places of every value that is no single array entry."""
    if prefix:
        yield prefix
    if isinstance(value, dict):
        for key, item in value.items():
            yield from paths(item, (*prefix, key))
    elif isinstance(value, list) and value and isinstance(value[0], dict | list):
        for index, item in enumerate(value[:2]):
            yield from paths(item, (*prefix, index))


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    out = copy.deepcopy(document)
    target = out
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return out


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def accepted(document: Any) -> VerifyStep | None:
    try:
        return step_from_json(document)
    except TraceFormatError:
        return None


def survives(*steps: VerifyStep) -> None:
    """The checks return, and every finding is plain JSON."""
    report = check_trace(steps)
    for finding in (*report.findings, *report.skipped):
        json.dumps(finding.to_json())
        assert finding.message
        assert finding.count >= 0


DOCUMENTS = {
    "static": step_to_json(batch()),
    "bits": step_to_json(batch(encoding="bits", layout="qlen", padded=1, backend="flashinfer")),
    "ragged": step_to_json(batch(ragged=True, window=2, backend="flashinfer")),
    "every-field": step_to_json(batch(padded=1, page=2, counts_draft=True, encoding="bits")),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_field_changed(name: str) -> None:
    document, tried = DOCUMENTS[name], 0
    for path in paths(document):
        for value in variants(at(document, path)):
            step = accepted(changed(document, path, value))
            if step is not None:
                tried += 1
                survives(step)
    assert tried > 200


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(clean_steps(), st.data())
def test_several_fields_changed(step: VerifyStep, data: st.DataObject) -> None:
    document = step_to_json(step)
    for _ in range(data.draw(st.integers(2, 4))):
        places = list(paths(document))
        path = data.draw(st.sampled_from(places))
        value = data.draw(st.sampled_from(list(variants(at(document, path)))))
        document = changed(document, path, value)
    other = accepted(document)
    if other is not None:
        survives(step, other)
        survives(*on_ranks(step, 2)[:1], spoil(other, ("rank", 1), ("world_size", 2)))


def test_no_requests() -> None:
    step = accepted({"format": "ddtree.step", "version": 1, "requests": []})
    assert step is not None
    survives(step)


def test_no_requests_but_arrays() -> None:
    document = DOCUMENTS["static"]
    for group in ("links", "outcome", "commit"):
        document = changed(document, (group,), None)
    for padded in (0, 2):
        captured = changed(document, ("source", "captured_bs"), padded)
        step = accepted(changed(captured, ("requests",), []))
        assert step is not None
        survives(step)


def test_same_id_twice() -> None:
    step = accepted(changed(DOCUMENTS["static"], ("requests", 1, "rid"), "r0"))
    assert step is not None
    survives(step, step)
