"""Steps as newer versions run them: one metadata call for replay, sampling apart from the move of KV rows, DFLASH."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.checks.trace_checker import TraceChecker
from engine.sglang import laid
from engine.sglang.attach import attach
from engine.sglang.control import Control
from engine.sglang.tap import Tap
from tests.sglang import overlap_double as double
from tests.sglang import server_double, worked
from tests.sglang.recorded import lists, steps, stop
from tests.sglang.serving import Server, forward_batch, padded_buffers

Serve = Callable[..., Server]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    taps: list[Tap] = []

    def started(**settings: str) -> Server:
        taps.append(attach(tmp_path, hook_on, settings))
        return Server(tmp_path, taps[-1])

    with server_double.installed(double.PLACES) as hook_on:
        yield started
    stop(taps)


def module(name: str) -> Any:
    from importlib import import_module

    return import_module(f"sglang.srt.{name}")


def logits() -> Any:
    return SimpleNamespace(next_token_logits=worked.logits_for(worked.PREDICTIONS))


def lay(batch: Any, spec: Any, captured: int, on_host: bool = True) -> None:
    """A replay, as the runner prepares it."""
    backend = double.TritonAttnBackend(batch.req_to_token_pool.req_to_token, 4)
    runner = double.DecodeCudaGraphRunner()
    runner.buffers = padded_buffers(batch, spec, captured)

    def prepare(given: Any) -> None:
        view = SimpleNamespace(**{**vars(given), "batch_size": captured})
        view.seq_lens, view.req_pool_indices = (
            runner.buffers.seq_lens,
            runner.buffers.req_pool_indices,
        )
        view.seq_lens_cpu = runner.buffers.seq_lens.clone() if on_host else None
        backend.init_forward_metadata_out_graph(view)

    runner.prepare = prepare
    runner.load_batch(forward_batch(spec, batch))


def run(batch: Any, spec: Any) -> Any:
    lay(batch, spec, captured=2)
    return module("speculative.eagle_utils").eagle_sample(spec, batch, logits())


def test_a_sampled_step(serve: Serve) -> None:
    server = serve()
    _, lengths, index = run(worked.batch(), worked.verify_input())
    assert (lengths.tolist(), index.tolist()) == ([3], [[0, 2, 3, -1]])
    (step,) = steps(server, 1)
    assert (step.source.graph, step.source.raw_bs, step.source.captured_bs) == ("replay", 1, 2)
    assert step.inputs.qo_indptr.tolist() == [0, 4, 8]
    assert step.inputs.mask_indptr.tolist() == [0, 24, 44]
    assert step.inputs.custom_mask[:24].tolist() == worked.mask_of(worked.MASK).int().tolist()
    assert lists(step.outcome.accept_index) == [[0, 2, 3, -1]]
    assert step.outcome.accept_length.tolist() == [3]
    assert step.outcome.bonus_tokens.tolist() == [44]
    assert step.requests[0].rid == "r0"
    assert step.outcome.emitted is None
    assert not [f for f in TraceChecker().feed(step) if f.is_cause]


def test_a_batch_that_knows_no_requests_gets_the_forward_batchs_names(serve: Serve) -> None:
    server = serve()
    batch, spec = worked.batch(), worked.verify_input()
    lay(batch, spec, captured=2)
    batch.reqs = None
    module("speculative.eagle_utils").eagle_sample(spec, batch, logits())
    assert steps(server, 1)[0].requests[0].rid == "r0"


@pytest.mark.parametrize("broken", [None, 1])
def test_fingerprints_say_whose_rows_were_moved(serve: Serve, broken: int | None) -> None:
    server = serve()
    server.tap.control = Control(fingerprints=True)
    (server.folder / "control.json").write_text('{"fingerprints": true}')
    batch, pool = worked.batch(), double.Pool()
    pool.broken_layer = broken
    _, lengths, index = run(batch, worked.verify_input())
    allocator = SimpleNamespace(get_kvcache=lambda: pool)
    move = module("speculative.spec_utils").move_accept_tokens_to_target_kvcache
    assert move(batch, index, lengths - 1, allocator) == "moved"
    (step,) = steps(server, 1)
    first, second = step.commit.kv
    assert lists(first.nodes) == [[0, 2, 3]]
    assert lists(second.nodes) == ([[0, 2, 3]] if broken is None else [[0, 1, 2]])
    found = [f.diagnosis for f in TraceChecker().feed(step) if f.is_cause]
    assert found == ([] if broken is None else ["layer-not-compacted"])


def test_a_chain_of_dflash(serve: Serve) -> None:
    server = serve()
    worker = double.DFlashWorkerV2()
    batch = worked.batch()
    batch.forward_mode = server_double.Mode("decode")

    def target_forward(spec: Any) -> None:
        batch.forward_mode = server_double.Mode("verify")
        lay(batch, spec, captured=1)

    worker.lay = target_forward
    worker.logits = SimpleNamespace(next_token_logits=worked.logits_for([9, 12, 44, 1]))
    assert worker.forward_batch_generation(batch).accept_lens.tolist() == [3]
    (step,) = steps(server, 1)
    assert step.requests[0].tree.parents.tolist() == [-1, 0, 1, 2]
    assert step.requests[0].tree.tokens.tolist() == [5, 9, 12, 30]
    assert lists(step.outcome.accept_index) == [[0, 1, 2, -1]]
    assert step.outcome.bonus_tokens.tolist() == [44]
    assert step.inputs.custom_mask is None
    assert not [f for f in TraceChecker().feed(step) if f.is_cause]


class Tree(server_double.EagleVerifyInput):
    """Of an algorithm that SGLang does not know."""

    def judge(self, batch: Any, logits_output: Any) -> Any:
        return double.eagle_sample(self, batch, logits_output)


def test_an_algorithm_from_outside_is_watched_where_it_is_named(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tree, "judge", Tree.judge)  # put back what the hook replaces
    server = serve(DDTREE_TRACE_HOOKS=f"{__name__}.Tree.judge")
    batch, spec = worked.batch(), worked.verify_input(Tree)
    lay(batch, spec, captured=2)
    assert spec.judge(batch, logits())[1].tolist() == [3]
    (step,) = steps(server, 1)
    assert step.requests[0].tree.parents.tolist() == [-1, 0, 0, 2]
    assert lists(step.outcome.accept_index) == [[0, 2, 3, -1]]


def test_lengths_that_only_the_device_knows(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays are cut by the writer; one that did not fit is left out rather than shown short."""
    server = serve()
    batches = [worked.batch(), worked.batch()]
    for batch, room in zip(batches, (1 << 20, 30), strict=True):
        monkeypatch.setattr(laid, "BLIND_BYTES", room)
        batch.seq_lens_cpu, spec = None, worked.verify_input()
        lay(batch, spec, captured=2, on_host=False)
        module("speculative.eagle_utils").eagle_sample(spec, batch, logits())
    whole, short = steps(server, 2)
    assert whole.inputs.kv_indices.tolist() == [7, 8, 0]
    assert len(whole.inputs.custom_mask) == 44
    assert short.inputs.kv_indices.tolist() == [7, 8, 0]
    assert short.inputs.custom_mask is None
    assert not [f for step in (whole, short) for f in TraceChecker().feed(step) if f.is_cause]
