"""A check that is called silent at a glance is silent: on clean steps, and with anything in them changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from engine.checks import fast_clean
from engine.checks.context import StepContext
from engine.checks.glance.plain_step import plain_step
from engine.checks.glance.plain_tree import links_of, plain_tree
from engine.checks.glance.silent import CONDITIONS, silent_checks
from engine.checks.registry import CHECKS
from engine.checks.synthetic import Shape, synthetic_steps
from engine.oracle import Oracle
from engine.step import VerifyStep
from engine.trace import step_to_json
from tests.checks.build import batch, clean_steps, spoil
from tests.checks.test_robust import accepted, at, changed, paths, variants
from tests.factories import trees as random_trees


@st.composite
def two_unpadded_steps(draw: st.DrawFn) -> tuple[VerifyStep, VerifyStep]:
    """A clean step and the one after it, as they are covered; every layout and encoding."""
    fixed: dict[str, Any] = {"padded": 0}
    if draw(st.booleans()):
        fixed |= {"page": None, "counts_draft": draw(st.booleans()), "window": None}
    first = draw(clean_steps(**fixed))
    return first, draw(clean_steps(number=1, before=first, **fixed))


def holds_back_nothing(previous: VerifyStep | None, step: VerifyStep) -> set[str]:
    """Every check that is called silent says nothing when it is asked; returns which are."""
    silent = silent_checks(StepContext(step, previous))
    for spec in CHECKS:
        if spec.id in silent and spec.can_run(step):
            fast_clean.ENABLED = False
            try:
                found = list(spec.run(spec, StepContext(step, previous)))
            finally:
                fast_clean.ENABLED = True
            assert found == []
    return silent


def leaves(value: Any, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Places of every number and word."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        yield prefix
    for key, item in items:
        yield from leaves(item, (*prefix, key))


def other_values(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value, None]
    if isinstance(value, int):
        return [value + 1, value - 1, 0, 1, -1, 2, None]
    if isinstance(value, float):
        return [value + 1.0, value - 1.0, 0.0, None]
    return [None]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(two_unpadded_steps(), st.data())
def test_one_entry_changed(steps: tuple[VerifyStep, VerifyStep], data: st.DataObject) -> None:
    documents = [step_to_json(step) for step in steps]
    number = data.draw(st.sampled_from([0, 1, 1, 1]))
    group = data.draw(st.sampled_from([k for k in documents[number] if k != "format"]))
    path = data.draw(st.sampled_from(list(leaves(documents[number][group], (group,)))))
    value = data.draw(st.sampled_from(other_values(at(documents[number], path))))
    documents[number] = changed(documents[number], path, value)
    first, second = map(accepted, documents)
    assume(first is not None and second is not None)
    holds_back_nothing(first, second)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(two_unpadded_steps(), st.data())
def test_fields_changed(steps: tuple[VerifyStep, VerifyStep], data: st.DataObject) -> None:
    documents = [step_to_json(step) for step in steps]
    for _ in range(data.draw(st.integers(1, 3))):
        number = data.draw(st.integers(0, 1))
        path = data.draw(st.sampled_from(list(paths(documents[number]))))
        value = data.draw(st.sampled_from(list(variants(at(documents[number], path)))))
        documents[number] = changed(documents[number], path, value)
    first, second = map(accepted, documents)
    assume(first is not None and second is not None)
    holds_back_nothing(first, second)


@pytest.mark.parametrize("layout", ["full", "qlen"])
@pytest.mark.parametrize("encoding", ["bytes", "bits"])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("window", [None, 2])
def test_each_bit_of_the_mask(layout: str, encoding: str, ragged: bool, window: int | None) -> None:
    step = batch(
        layout=layout, encoding=encoding, ragged=ragged, window=window, backend="flashinfer"
    )
    for place, value in enumerate(step.inputs.custom_mask.tolist()):
        for bit in range(8 if encoding == "bits" else 2):
            holds_back_nothing(None, spoil(step, (f"inputs.custom_mask.{place}", value ^ 1 << bit)))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(two_unpadded_steps())
def test_clean_steps(steps: tuple[VerifyStep, VerifyStep]) -> None:
    """Only entries of whole pages are left to the check itself."""
    silent = holds_back_nothing(*steps)
    unsure = set(CONDITIONS) - silent
    assert unsure <= ({"I3"} if steps[1].config.kv_indptr_unit == "page" else set())


@pytest.mark.parametrize("layout", ["full", "qlen"])
def test_synthetic_steps(layout: str) -> None:
    previous = None
    for step in synthetic_steps(Shape(steps=30, prefix_len=30, layout=layout)):
        assert holds_back_nothing(previous, step) == set(CONDITIONS)
        previous = step


@pytest.mark.parametrize("change", ["padded", "no budget", "late parent", "cycle", "no root"])
def test_not_covered(change: str) -> None:
    step = batch(padded=1) if change == "padded" else batch()
    spoiled = {
        "padded": (),
        "no budget": (("config.budget", None),),
        "late parent": (("requests.1.tree.parents.1", 2), ("requests.1.tree.parents.2", 0)),
        "cycle": (("requests.1.tree.parents.1", 1),),
        "no root": (("requests.1.tree.parents.0", 0),),
    }[change]
    context = StepContext(spoil(step, *spoiled))
    assert plain_step(context) is None
    assert silent_checks(context) == set()


@given(random_trees(max_nodes=12))
def test_plain_trees(tree: Any) -> None:
    """Derived in another way than the oracle's, and the same."""
    step = batch(ragged=True)
    step = spoil(step, ("requests.0.tree.parents", tree.parents), ("requests.0.tree.tokens", None))
    oracle, plain = Oracle(step), plain_tree(step.requests[0].tree)
    assert plain is not None
    assert plain.depths == tree.depths.tolist()
    block = b"".join(row.to_bytes(tree.num_nodes, "little") for row in plain.rows)
    assert block == oracle.tree_block(0).tobytes()
    for mine, theirs in zip(links_of(plain.parents), oracle.links(0), strict=True):
        assert np.array_equal(mine, theirs)
