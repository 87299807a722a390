"""What the tap recorded of a real server under CUDA graphs: offsets from SGLang's own rule, padding, no finding."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path

import pytest

from engine.checks.registry import check_trace
from engine.step import VerifyStep
from engine.trace import open_trace

RECORDING = Path(__file__).parents[2] / "fixtures/traces/sglang-ngram-16.ddtree.arrow"
ROWS = 16


@pytest.fixture(scope="module")
def steps() -> list[VerifyStep]:
    return list(open_trace(RECORDING))


def test_batches_and_graphs(steps: list[VerifyStep]) -> None:
    shapes = [(s.source.graph, s.source.raw_bs, s.source.captured_bs) for s in steps]
    assert shapes == [("replay", 1, 1)] * 3 + [("replay", 3, 4)] * 9
    assert [s.step for s in steps] == list(range(22, 34))


def test_offsets_are_those_of_the_padded_batch(steps: list[VerifyStep]) -> None:
    """A padded request has one token of prefix in SGLang 0.5.12, and its rows write to slot 0."""
    for step in steps:
        inputs, captured = step.inputs, step.source.captured_bs
        lens = [r.prefix_len for r in step.requests] + [1] * (captured - len(step.requests))
        assert inputs.seq_lens.tolist() == lens
        assert inputs.qo_indptr.tolist() == list(range(0, ROWS * captured + 1, ROWS))
        assert inputs.kv_indptr.tolist() == [0, *accumulate(lens)]
        cells = [ROWS * (length + ROWS) for length in lens]
        assert inputs.mask_indptr.tolist() == [0, *accumulate(cells)]
        assert len(inputs.custom_mask) == sum(cells)
        assert len(inputs.out_cache_loc) == len(inputs.positions) == ROWS * captured
        padding = inputs.out_cache_loc[ROWS * len(step.requests) :]
        assert not padding.any()


def test_each_step_continues_the_one_before(steps: list[VerifyStep]) -> None:
    lengths: dict[str, int] = {}
    for step in steps:
        for request, kept in zip(step.requests, step.outcome.accept_length.tolist(), strict=True):
            assert lengths.get(request.rid, request.prefix_len) == request.prefix_len
            lengths[request.rid] = request.prefix_len + kept


def test_nothing_is_found(steps: list[VerifyStep]) -> None:
    report = check_trace(steps)
    assert not report.findings, report.findings[:3]
    assert {"row-extents", "mask-content", "positions", "links", "acceptance", "kv-commit"} <= {
        *report.checks
    }


def test_it_says_which_code_ran() -> None:
    notes = json.loads(open_trace(RECORDING).header.notes)
    assert notes["versions"]["sglang"] == "0.5.12"
    assert notes["server_args"]["speculative_algorithm"] == "NGRAM"
    assert all(notes["hooks"].values())
    assert len(notes["hooks"]) == 15
    assert not notes["missing"]
    assert {len(each["sha256"]) for each in notes["watched"]} == {64}
