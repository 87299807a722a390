"""Steps that wait: for their acceptance, to be put together, and for the next one to tell what they committed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from engine.checks.trace_checker import TraceChecker
from engine.sglang import host
from engine.sglang.control import Control
from engine.sglang.handlers import HANDLERS
from tests.sglang import server_double as double
from tests.sglang import worked
from tests.sglang.recorded import lists, steps
from tests.sglang.serving import Server, eagle_tree, forward_batch, verify
from tests.sglang.worked import ints

HOST_GATHERING = host.gathering


class Silent(double.NgramVerifyInput):
    """Its acceptance is seen by no hook."""

    def _fill_requests(self, batch: Any, logits_output: Any) -> None:
        double.commit(batch, self.accept_indices, self.predict)


def test_inputs_wait_for_the_acceptance_and_without_one_the_step_is_left_out(
    serve: Callable[[], Server],
) -> None:
    """On a device one launch copies both; what no acceptance follows may have changed meanwhile."""
    server = serve()
    late = host.gathering is not HOST_GATHERING
    for kind in (double.NgramVerifyInput, Silent, Silent, double.NgramVerifyInput):
        server.run_eager(worked.verify_input(kind), worked.batch())
    found = steps(server, 3 if late else 4)
    assert [step.step for step in found] == ([0, 2, 3] if late else [0, 1, 2, 3])
    for step in found:
        assert step.requests[0].tree.tokens.tolist() == [5, 9, 12, 30]
        assert step.outcome.top2[0].tolist() == [[12, 2], [13, 1]]
    counts = server.tap.counts
    assert (counts.seen, counts.not_taken, counts.errors) == (4, int(late), 0)
    told = "Silent: expected the acceptance, found none" if late else None
    assert counts.last_error == told


def test_what_a_step_committed_is_read_when_the_next_one_comes(
    serve: Callable[[], Server],
) -> None:
    server = serve()
    server.pauses = True
    batch = worked.batch()
    for _ in range(2):
        server.run_eager(worked.verify_input(), batch)
        batch.out_cache_loc = ints(24, 25, 26, 27)
    first, last = steps(server, 2)
    assert first.commit.seq_lens.tolist() == [5]
    assert lists(first.commit.kv[0].nodes) == [[0, 2, 3]]
    assert last.outcome.accept_length.tolist() == [3]
    assert (last.commit.seq_lens, last.commit.kv) == (None, None)  # nobody came after it


def test_the_commit_of_a_request_that_ends_is_read_at_once(serve: Callable[[], Server]) -> None:
    server = serve()
    server.pauses = True
    server.run_eager(worked.verify_input(), worked.batch(limit=3))
    (step,) = steps(server, 1)
    assert lists(step.commit.kv[0].nodes) == [[0, 2, 3]]


@pytest.mark.parametrize("what", ["another request", "a token more", "fewer", "begun anew"])
def test_a_commit_that_others_may_have_changed_is_unknown(
    serve: Callable[[], Server], what: str
) -> None:
    """Ended from outside, run out of memory and started again: its row of the table may be another's."""
    server = serve()
    server.pauses = True
    batch = worked.batch()
    server.run_eager(worked.verify_input(), batch)
    if what == "another request":
        batch.reqs = [double.Req("r1")]
        batch.reqs[0].output_ids = [12, 30, 44]
    elif what == "a token more":
        batch.reqs[0].output_ids.append(1)
    elif what == "begun anew":  # run out of memory, from embeddings: nothing of it is kept
        batch.reqs[0].output_ids = []
    else:
        batch.reqs = []
    server.tap.make(batch)
    (step,) = steps(server, 1)
    assert (step.commit.seq_lens, step.commit.kv) == (None, None)
    assert lists(step.outcome.emitted) == [[12, 30, 44]]


def laid_out(spec: Any, batch: Any) -> None:
    backend = double.TritonAttnBackend(batch.req_to_token_pool.req_to_token, 4)
    backend.init_forward_metadata(forward_batch(spec, batch))


def test_a_step_that_waits_to_be_put_together_keeps_no_logits(
    serve: Callable[[], Server],
) -> None:
    server, spec, batch = serve(), worked.verify_input(), worked.batch()
    laid_out(spec, batch)
    logits = SimpleNamespace(next_token_logits=worked.logits_for(worked.PREDICTIONS))
    kept = weakref.ref(logits.next_token_logits)
    with server.tap.making:  # the feeder takes none meanwhile
        spec.verify(batch, logits, None, 1)
        del logits
        gc.collect()
        assert len(server.tap.unmade) == 1
        assert kept() is None


def test_what_was_seen_of_a_step_that_is_not_recorded_is_no_other_steps(
    serve: Callable[[], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recording is switched off between a step's tree and its verification, and on between those of another."""
    server, other = serve(), worked.verify_input()
    monkeypatch.setattr("engine.sglang.feeder.read_control", lambda folder: server.tap.control)
    eagle_tree()
    laid_out(other, worked.batch())
    server.tap.control = Control(record=False)
    verify(other, worked.batch())
    assert not server.tap.pending
    server.tap.control = Control()
    spec = worked.verify_input()
    spec.draft_token = ints(5, 12, 9, 30)  # below the root, the root again, then the second one
    spec.retrieve_next_token = ints(1, 3, -1, -1)[None]
    spec.custom_mask = worked.mask_of("111000 111100 111010 111101")
    server.run_eager(spec, worked.batch())
    (step,) = steps(server, 1)
    assert step.requests[0].tree.parents.tolist() == [-1, 0, 0, 1]
    assert not [f for f in TraceChecker().feed(step) if f.is_cause]


def test_a_commit_that_is_too_large_is_unknown_and_costs_no_step(
    serve: Callable[[], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    take_rows = host.HostCopies.take_rows

    def bounded(self: host.HostCopies, name: str, *more: Any) -> None:
        if name == "committed_slots":
            raise host.NotCopied(f"{name}: expected at most 8 bytes, found 16")
        take_rows(self, name, *more)

    monkeypatch.setattr(host.HostCopies, "take_rows", bounded)
    server, batch = serve(), worked.batch()
    server.pauses = True
    for _ in range(2):
        server.run_eager(worked.verify_input(), batch)
        batch.out_cache_loc = ints(24, 25, 26, 27)
        server.tap.control = Control(first=1)
    (first,) = steps(server, 1)
    assert (first.step, server.tap.counts.seen, server.tap.counts.errors) == (0, 2, 0)
    assert (first.commit.seq_lens.tolist(), first.commit.kv) == ([5], None)


COPIED = {False: {"committed_lens", "committed_slots"}, True: set()}


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("pages", [1, 4])
def test_what_was_committed_is_copied_only_where_the_next_step_does_not_tell_it(
    serve: Callable[[], Server], monkeypatch: pytest.MonkeyPatch, recorded: bool, pages: int
) -> None:
    copied, note = set[str](), host.HostCopies._note

    def noted(self: host.HostCopies, name: str, *more: Any) -> None:
        copied.add(name)
        note(self, name, *more)

    monkeypatch.setattr(host.HostCopies, "_note", noted)
    server, batch = serve(), worked.batch()
    server.pauses = True
    for _ in range(2):
        spec = worked.verify_input()
        laid_out(spec, batch)
        logits = SimpleNamespace(next_token_logits=worked.logits_for(worked.PREDICTIONS))
        spec.verify(batch, logits, None, pages)
        batch.out_cache_loc = ints(24, 25, 26, 27)
        if not recorded:
            server.tap.control = Control(first=1)
    first = steps(server, 1 + recorded)[0]
    wanted = COPIED[recorded] if pages == 1 else COPIED[recorded] - {"committed_slots"}
    assert {name for name in copied if name.startswith("committed")} == wanted
    assert first.commit.seq_lens.tolist() == [5]
    kv = None if first.commit.kv is None else lists(first.commit.kv[0].nodes)
    assert kv == ([[0, 2, 3]] if pages == 1 else None)


def test_where_the_next_step_is_lost_the_commit_is_unknown(serve: Callable[[], Server]) -> None:
    """It is waited for, until a later one comes or the server's reports say that none does."""
    server, batch = serve(), worked.batch()
    server.pauses = True
    ring = server.tap.ring
    put = ring.put
    ring.put = lambda parcel: parcel.number != 1 and put(parcel)  # type: ignore[method-assign]
    for _ in range(3):
        server.run_eager(worked.verify_input(), batch)
        batch.out_cache_loc = ints(24, 25, 26, 27)
    found = steps(server, 2)
    assert [step.step for step in found] == [0, 2]
    assert [step.commit.seq_lens for step in found] == [None, None]
    assert server.tap.counts.errors == 0


def test_nothing_is_launched_or_recorded_into_a_capture(
    serve: Callable[[], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, batch = serve(), worked.batch()
    server.pauses = True
    with server.tap.making:
        server.run_eager(worked.verify_input(), batch)
        (lying,) = server.tap.unmade
    made: list[Any] = []
    monkeypatch.setattr(type(lying), "made", lambda self, batch=None: made.append(batch))
    monkeypatch.setattr("engine.sglang.handlers.capturing", lambda tensor: True)
    batch.out_cache_loc = ints(24, 25, 26, 27)
    server.run_eager(worked.verify_input(), batch)
    assert batch not in made


def test_a_held_step_comes_after_those_that_are_not_put_together(
    serve: Callable[[], Server],
) -> None:
    """The feeder may be at one of them when fingerprints are switched on."""
    server, batch = serve(), worked.batch()
    server.pauses = True
    with server.tap.making:
        server.run_eager(worked.verify_input(), batch)
        (first,) = server.tap.unmade
        second = SimpleNamespace(**vars(first))
        server.tap.finish(second, hold=True)  # type: ignore[arg-type]
        assert server.tap.held is None
        assert list(server.tap.unmade) == [first, second]
        server.tap.unmade.pop()


def test_a_chain_whose_acceptance_no_hook_sees_is_copied_with_its_step(
    serve: Callable[[], Server],
) -> None:
    """It emits by itself, and the next step tells what it committed: nothing else starts its copies."""
    server, batch = serve(), worked.batch()
    server.pauses = True
    names = ("self", "batch", "logits_output", "page_size")
    hook = server.tap.around(HANDLERS["dflash_verify"], names)

    def verified(spec: Any, batch: Any, logits: Any, page_size: int) -> Any:
        batch.reqs[0].output_ids += [12, 30, 44]
        batch.seq_lens, batch.seq_lens_cpu = batch.seq_lens + 3, batch.seq_lens_cpu + 3
        return None, ints(3)

    for _ in range(2):
        spec = worked.verify_input()
        laid_out(spec, batch)
        logits = SimpleNamespace(next_token_logits=worked.logits_for(worked.PREDICTIONS))
        hook(verified, spec, batch, logits, 1)
    first = steps(server, 2)[0]
    assert first.outcome.accept_length.tolist() == [3]
    assert first.outcome.top2[0].tolist() == [[12, 2], [13, 1]]
    assert first.requests[0].tree.tokens.tolist() == [5, 9, 12, 30]
    assert first.commit.seq_lens.tolist() == [5]
    assert server.tap.counts.errors == 0
