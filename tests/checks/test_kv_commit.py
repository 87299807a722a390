"""I15: what each layer keeps of the accepted nodes."""

from __future__ import annotations

from typing import Any

import pytest

from engine.checks.registry import check_trace
from engine.step import LayerCommit, VerifyStep
from tests.checks.build import batch, findings, short, spoil
from tests.checks.test_acceptance import accepted, predicts
from tests.factories import ints

RIGHT = [0, 1, 4, 7]  # of the second request, prefix 5


def kv(request: int, *layers: list[int], step: VerifyStep | None = None) -> VerifyStep:
    """The batch with other nodes in its layers 0 and 3."""
    changes = [(f"commit.kv.{n}.nodes.{request}", ints(*nodes)) for n, nodes in enumerate(layers)]
    return spoil(batch() if step is None else step, *changes)


def third_branch() -> VerifyStep:
    """The second request accepts nodes 0, 2, 6, 9."""
    tokens = [*predicts(10, 3), *predicts(12, 5), *predicts(16, 9)]
    return accepted(1, [0, 2, 6, 9], *tokens)


CASES: dict[str, tuple[VerifyStep, list[tuple[Any, ...]]]] = {
    "cropped": (
        kv(1, [0, 1, 2, 3], [0, 1, 2, 3]),
        [
            ("cropped-not-gathered", "r1", 4, 0, RIGHT, [0, 1, 2, 3], 2),
            ("cropped-not-gathered", "r1", 4, 3, RIGHT, [0, 1, 2, 3], 2),
        ],
    ),
    "gathered-twice": (
        kv(1, [0, 6, 6, 9], [0, 6, 6, 9], step=third_branch()),
        [
            ("gathered-twice", "r1", 2, 0, [0, 2, 6, 9], [0, 6, 6, 9], 1),
            ("gathered-twice", "r1", 2, 3, [0, 2, 6, 9], [0, 6, 6, 9], 1),
        ],
    ),
    "gathered-twice-in-one-layer": (
        kv(1, [0, 2, 6, 9], [0, 6, 6, 9], step=third_branch()),
        [("gathered-twice", "r1", 2, 3, [0, 2, 6, 9], [0, 6, 6, 9], 1)],
    ),
    "one-layer-cropped": (
        kv(1, RIGHT, [0, 1, 2, 3]),
        [("layer-not-compacted", "r1", 4, 3, RIGHT, [0, 1, 2, 3], 2)],
    ),
    "one-layer-otherwise-wrong": (
        kv(2, [0, 4, -1], [0, 4, 6]),
        [("layer-not-compacted", "r2", 6, 0, [0, 4, 6], [0, 4, -1], 1)],
    ),
    "one-short-in-all-layers": (
        kv(1, [0, 1, 4], [0, 1, 4]),
        [
            ("length", "r1", 7, 0, RIGHT, [0, 1, 4], 1),
            ("length", "r1", 7, 3, RIGHT, [0, 1, 4], 1),
        ],
    ),
    "one-more-in-all-layers": (
        kv(0, [0, 1, 2, 3], [0, 1, 2, 3]),
        [
            ("length", "r0", None, 0, [0, 1, 2], [0, 1, 2, 3], 1),
            ("length", "r0", None, 3, [0, 1, 2], [0, 1, 2, 3], 1),
        ],
    ),
    "layers-wrong-in-two-ways": (
        kv(1, [0, 1, 2, 3], [0, 1, 4, 9]),
        [
            ("kv-commit", "r1", 4, 0, RIGHT, [0, 1, 2, 3], 2),
            ("kv-commit", "r1", 7, 3, RIGHT, [0, 1, 4, 9], 1),
        ],
    ),
    "committed-length": (
        spoil(batch(), ("commit.seq_lens.1", 8)),
        [("length", "r1", None, None, 9, 8, 1)],
    ),
}


@pytest.mark.parametrize(("step", "expected"), CASES.values(), ids=CASES)
def test_diagnoses(step: VerifyStep, expected: list[tuple[Any, ...]]) -> None:
    found = findings(step)
    assert [f.where.layer for f in found] == [row[3] for row in expected]
    for finding, row in zip(found, expected, strict=True):
        diagnosis, request, node, _, want, have, count = row
        assert finding.consequence_of is None
        assert short(finding) == (
            *("I15", diagnosis, "output", "fault", request),
            *(node, None, None, None, want, have, count),
        )


def test_on_a_chain_cropping_is_gathering() -> None:
    assert findings(kv(0, [0, 1, 2], [0, 1, 2])) == []


def test_the_only_layer_recorded_is_every_layer() -> None:
    step = spoil(batch(), ("commit.kv", (LayerCommit(3, batch().commit.kv[0].nodes),)))
    (finding,) = findings(spoil(step, ("commit.kv.0.nodes.1", ints(0, 1, 2, 3))))
    assert (finding.diagnosis, finding.where.layer) == ("cropped-not-gathered", 3)


def test_a_length_that_follows_the_layers_is_a_consequence() -> None:
    found = findings(spoil(kv(1, [0, 1, 4], [0, 1, 4]), ("commit.seq_lens.1", 8)))
    assert [f.consequence_of for f in found] == [None, None, "I15"]


def test_another_length_is_a_cause_of_its_own() -> None:
    found = findings(spoil(kv(1, [0, 1, 4], [0, 1, 4]), ("commit.seq_lens.1", 7)))
    assert [f.consequence_of for f in found] == [None, None, None]


def test_commit_of_a_wrong_path_is_right_for_that_path() -> None:
    assert [f.check for f in findings(accepted(1, [0, 2, 6]))] == ["I13"]


def test_nothing_to_compare_with_is_skipped() -> None:
    report = check_trace([spoil(batch(), ("outcome.accept_index", None))])
    assert "I15" in [f.check for f in report.skipped]
