"""What the hooks record, against the step format's worked example written out by hand."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from engine.checks.trace_checker import TraceChecker
from engine.sglang.attach import attach
from engine.sglang.handlers import HANDLERS
from engine.step import VerifyStep
from engine.trace import open_trace
from tests.sglang import server_double as double
from tests.sglang import worked
from tests.sglang.recorded import PATIENCE, lists, steps
from tests.sglang.serving import Server, eagle_tree, forward_batch, verify


def assert_is_worked_example(step: VerifyStep) -> None:
    request, inputs, outcome = step.requests[0], step.inputs, step.outcome
    assert (request.rid, request.prefix_len) == ("r0", 2)
    assert request.prefix_slots.tolist() == [7, 8]
    assert request.tree.parents.tolist() == [-1, 0, 0, 2]
    assert request.tree.tokens.tolist() == [5, 9, 12, 30]
    assert inputs.input_ids[:4].tolist() == [5, 9, 12, 30]
    assert inputs.positions[:4].tolist() == [2, 3, 3, 4]
    assert inputs.kv_indices[:2].tolist() == [7, 8]
    assert inputs.custom_mask[:24].tolist() == worked.mask_of(worked.MASK).int().tolist()
    assert inputs.out_cache_loc[:4].tolist() == [20, 21, 22, 23]
    assert lists(step.links.retrieve_next_token) == [[1, -1, 3, -1]]
    assert lists(step.links.retrieve_next_sibling) == [[-1, 2, -1, -1]]
    assert outcome.target_predict.tolist() == [12, 4, 30, 44]
    assert outcome.top2[0].tolist() == [[12, 2], [13, 1]]
    assert outcome.finite_rows.tolist() == [True] * 4
    assert lists(outcome.accept_index) == [[0, 2, 3, -1]]
    assert outcome.accept_length.tolist() == [3]
    assert outcome.bonus_tokens.tolist() == [44]
    assert lists(outcome.emitted) == [[12, 30, 44]]
    assert step.commit.seq_lens.tolist() == [5]
    assert lists(step.commit.kv[0].nodes) == [[0, 2, 3]]
    assert (step.config.budget, step.config.num_draft_tokens, step.config.vocab_size) == (3, 4, 50)
    assert step.config.eos_token_ids.tolist() == [2]
    assert step.logits_dtype == "float32"


def test_an_eager_step_of_eagle(serve: Callable[[], Server]) -> None:
    server = serve()
    eagle_tree()
    assert server.run_eager(worked.verify_input(), worked.batch()) == "verified"
    (step,) = steps(server, 1)
    assert_is_worked_example(step)
    assert step.source.graph == "eager"
    assert (step.source.raw_bs, step.source.captured_bs) == (1, 1)
    assert step.inputs.qo_indptr.tolist() == [0, 4]
    assert step.inputs.mask_indptr.tolist() == [0, 24]
    assert step.inputs.max_extend_len == 4
    assert not TraceChecker().feed(step)


def test_a_replay_is_read_from_the_buffers_with_its_padding(serve: Callable[[], Server]) -> None:
    server = serve()
    eagle_tree()
    server.run_replay(worked.verify_input(), worked.batch(), captured=2)
    (step,) = steps(server, 1)
    assert_is_worked_example(step)
    assert (step.source.graph, step.source.raw_bs, step.source.captured_bs) == ("replay", 1, 2)
    assert step.inputs.qo_indptr.tolist() == [0, 4, 8]
    assert step.inputs.kv_indptr.tolist() == [0, 2, 3]
    assert step.inputs.mask_indptr.tolist() == [0, 24, 44]
    assert step.inputs.seq_lens.tolist() == [2, 1]
    assert step.inputs.positions.tolist() == [2, 3, 3, 4, 0, 0, 0, 0]
    assert step.inputs.out_cache_loc.tolist() == [20, 21, 22, 23, 0, 0, 0, 0]
    assert step.config.mask_capacity == 1024
    assert not [f for f in TraceChecker().feed(step) if f.is_cause]


def test_a_step_of_ngram_takes_the_tree_from_its_mask(serve: Callable[[], Server]) -> None:
    server = serve()
    worker = double.NGRAMWorker()
    worker.drafts = (np.array([5, 9, 12, 30]), worked.TREE_MASK)
    worker._prepare_draft_tokens(None)
    spec = worked.verify_input(double.NgramVerifyInput)
    assert server.run_eager(spec, worked.batch()) == (1, 2, 3)
    (step,) = steps(server, 1)
    assert_is_worked_example(step)


def test_without_a_builder_the_tree_comes_from_the_links(serve: Callable[[], Server]) -> None:
    server = serve()
    server.run_eager(worked.verify_input(), worked.batch())
    assert_is_worked_example(steps(server, 1)[0])


def test_a_request_that_ends_leaves_the_walk_whole(serve: Callable[[], Server]) -> None:
    server = serve()
    server.run_eager(worked.verify_input(), worked.batch(limit=1))
    (step,) = steps(server, 1)
    assert lists(step.outcome.accept_index) == [[0, 2, 3, -1]]
    assert step.outcome.emitted is None
    assert step.commit.seq_lens is None
    assert not TraceChecker().feed(step)


@pytest.mark.parametrize("ignores", [True, False])
def test_a_request_that_goes_on_past_a_stop(serve: Callable[[], Server], ignores: bool) -> None:
    """It was asked to, so no stop is told: its tokens are all that it accepted."""
    server = serve()
    batch = worked.batch()
    (request,) = batch.reqs
    request.eos_token_ids, request.sampling_params.ignore_eos = {30}, ignores
    server.run_eager(worked.verify_input(), batch)
    (step,) = steps(server, 1)
    assert lists(step.outcome.emitted) == [[12, 30, 44] if ignores else [12, 30]]
    stops = step.config.eos_token_ids
    assert (stops is None) if ignores else (stops.tolist() == [30])
    assert not [f for f in TraceChecker().feed(step) if f.is_cause]


def test_the_story_a_backend_narrower_than_the_rows(serve: Callable[[], Server]) -> None:
    server = serve()
    server.run_eager(worked.verify_input(), worked.batch(), width=3)
    found = TraceChecker().feed(steps(server, 1)[0])
    assert found[0].check == "I1"
    assert found[0].diagnosis == "width-mismatch"


def test_health_says_what_is_in_place_and_what_is_missing(serve: Callable[[], Server]) -> None:
    server = serve()
    server.run_eager(worked.verify_input(), worked.batch())
    steps(server, 1)
    found = server.health()
    assert found["hooks"]
    assert all(found["hooks"].values())
    assert "verification of DFLASH" in found["missing"]
    assert found["state"] == "recording"
    server.tap.stop()
    took = server.health()["hook_us_a_step"]
    assert set(took) >= {"eager", "verify"}
    assert all(before >= 0 and after >= 0 for before, after in took.values())
    assert sum(took["verify"]) > took["eager"][0]
    header = open_trace(server.folder).header
    assert header.model == "/models/tiny"
    notes = json.loads(header.notes)
    assert notes["server_args"]["api_key"] == "(left out)"
    assert {len(each["sha256"]) for each in notes["watched"]} == {64}


@pytest.mark.parametrize("name", [name for name in HANDLERS if name != "start"])
def test_a_fault_in_a_hook_never_reaches_the_server(
    serve: Callable[[], Server], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("broken on purpose")

    from engine.sglang.tap import Handler

    monkeypatch.setitem(HANDLERS, name, Handler(broken, broken))
    server = serve()
    eagle_tree()
    worker = double.NGRAMWorker()
    worker.drafts = (np.array([5, 9, 12, 30]), worked.TREE_MASK)
    assert worker._prepare_draft_tokens(None) is worker.drafts
    assert server.run_eager(worked.verify_input(), worked.batch()) == "verified"
    batch = worked.batch()
    spec = worked.verify_input(double.NgramVerifyInput)
    assert server.run_replay(spec, batch, captured=2) == (1, 2, 3)
    assert batch.reqs[0].output_ids == [12, 30, 44]


def test_an_error_of_the_server_passes_through(serve: Callable[[], Server]) -> None:
    server = serve()
    spec = worked.verify_input()
    del spec.retrieve_next_token
    with pytest.raises(AttributeError, match="retrieve_next_token"):
        server.run_eager(spec, worked.batch())


def test_a_version_without_the_scheduler_says_that_it_does_not_start(tmp_path: Path) -> None:
    attach(tmp_path, lambda path, hook: None, {}, find=lambda path: None)
    (found,) = (json.loads(p.read_text()) for p in tmp_path.glob("health.process*.json"))
    assert found["state"] == "not started: functions are missing in this version"
    assert {"start", "eager", "replay"} <= set(found["missing"])


def test_a_setting_that_is_wrong_is_said_and_stops_nothing(tmp_path: Path) -> None:
    with double.installed() as hook_on:
        tap = attach(tmp_path, hook_on, {"DDTREE_TRACE_FORMAT": "parquet"})
        server = Server(tmp_path, tap)
        assert server.run_eager(worked.verify_input(), worked.batch()) == "verified"
    assert not tap.wanted
    (found,) = (json.loads(p.read_text()) for p in tmp_path.glob("health.process*.json"))
    assert "'parquet' is not a valid Format" in found["state"]


def test_another_attention_backend_is_named_as_the_likely_reason(
    serve: Callable[[], Server],
) -> None:
    server = serve()
    verify(worked.verify_input(), worked.batch())
    assert server.tap.counts.unmatched == 1
    assert "another attention backend?" in server.tap.counts.last_error


def test_rows_that_a_grammar_masked_are_finite_and_nan_is_not(serve: Callable[[], Server]) -> None:
    server = serve()
    spec, batch = worked.verify_input(), worked.batch()
    backend = double.TritonAttnBackend(batch.req_to_token_pool.req_to_token, 4)
    backend.init_forward_metadata(forward_batch(spec, batch))
    logits = worked.logits_for(worked.PREDICTIONS)
    logits[1, 20:], logits[3, 0] = -torch.inf, torch.nan
    spec.verify(batch, SimpleNamespace(next_token_logits=logits), None, 1)
    assert steps(server, 1)[0].outcome.finite_rows.tolist() == [True, True, True, False]


def test_nothing_is_touched_while_nothing_is_recorded_but_steps_are_counted(
    serve: Callable[[], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    (server.folder / "control.json").write_text('{"record": false}')
    end = time.monotonic() + PATIENCE
    while server.tap.control.record:
        assert time.monotonic() < end
        time.sleep(0.02)
    for name in ("lay_eager", "lay_replay"):
        monkeypatch.setattr(f"engine.sglang.handlers.{name}", None)
    assert server.run_eager(worked.verify_input(), worked.batch()) == "verified"
    server.run_replay(worked.verify_input(), worked.batch(), captured=2)
    assert (server.tap.counts.seen, server.tap.counts.errors) == (2, 0)
    assert not len(server.tap.ring)


def test_a_ragged_layout_is_counted_and_left_out(serve: Callable[[], Server]) -> None:
    server = serve()
    spec = worked.verify_input()
    spec.ragged_verify_layout = object()
    assert server.run_eager(spec, worked.batch()) == "verified"
    assert server.tap.counts.not_taken > 0
    assert "found a ragged layout" in server.tap.counts.last_error
