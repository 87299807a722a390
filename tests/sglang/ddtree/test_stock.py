"""Whole steps of the worker on SGLang 0.5.12's own DFLASH worker, Triton backend, allocator and table kernel.

The target's answers depend on everything a row attends to, so text equal to plain decoding's means that every mask,
position, slot and table entry was right; see :mod:`tests.sglang.ddtree.world`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from engine.sglang.ddtree import plugin, worker
from engine.sglang.ddtree.arguments import settle
from engine.sglang.ddtree.options import Options
from tests.sglang.ddtree.scheduled import Args, Req
from tests.sglang.ddtree.stock import stock
from tests.sglang.ddtree.truth import plain, spread
from tests.sglang.ddtree.world import World
from tests.sglang_wheels import sglang_folder

PROMPTS = [[1, 2, 3, 4], [5, 6, 7], [9] * 9, [11]]


@pytest.fixture
def sglang(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("BUDGET", "TOPK", "SPINE", "FAULT"):
        monkeypatch.delenv(f"DDTREE_{name}", raising=False)
    worker.worker_class.cache_clear()
    worker.verify_input_class.cache_clear()
    with stock(sglang_folder()):
        plugin.register()
        yield
    worker.worker_class.cache_clear()
    worker.verify_input_class.cache_clear()


def started(
    monkeypatch: pytest.MonkeyPatch,
    graph: bool = False,
    block: int = 8,
    seed: int = 0,
    **environ: str,
) -> World:
    """A server with these ``DDTREE_`` settings."""
    for name, value in environ.items():
        monkeypatch.setenv(f"DDTREE_{name.upper()}", value)
    args, world = Args(), World(block, seed)
    import os

    settle(args, os.environ, "0.5.12", lambda _: block)
    if environ.get("fault") == "verify-width":
        _hooked(monkeypatch)
    world.start(args, graph)
    return world


def _hooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault's hook through SGLang's own registry, as in a scheduler."""
    import sys

    import sglang.srt.managers.scheduler as scheduler
    import sglang.srt.server_args as server_args
    from sglang.srt.plugins.hook_registry import HookRegistry

    scheduler.validate_dflash_request = lambda req: None
    server_args.get_global_server_args = Args
    assert plugin.SCHEDULER in sys.modules
    HookRegistry.reset()
    plugin._hook_on()
    HookRegistry.apply_hooks()


def requests(lengths: tuple[int, ...] = (30, 12, 40, 1)) -> list[Req]:
    return [Req(list(p), n) for p, n in zip(PROMPTS, lengths, strict=True)]


def drawn_at(temperature: float, count: int) -> SimpleNamespace:
    """SamplingBatchInfo of requests that are sampled."""
    return SimpleNamespace(
        temperatures=torch.full((count, 1), temperature),
        top_ks=torch.full((count,), 1 << 30),
        top_ps=torch.ones(count),
        min_ps=torch.zeros(count),
        is_all_greedy=False,
        need_top_k_sampling=False,
        need_top_p_sampling=False,
        need_min_p_sampling=False,
        logit_bias=None,
    )


def outcomes(tokens: list[int], count: int) -> dict[tuple[int, ...], float]:
    """Probability of every continuation."""
    if not count:
        return {(): 1.0}
    return {
        (token, *rest): chance * further
        for token, chance in spread(list(enumerate(tokens))).items()
        for rest, further in outcomes([*tokens, token], count - 1).items()
    }


def same(reqs: list[Req]) -> bool:
    """Whether every request got plain decoding's text."""
    return all(r.output_ids == plain(r.origin_input_ids, r.limit, r.stop) for r in reqs)


@pytest.mark.usefixtures("sglang")
class TestServed:
    @pytest.mark.parametrize("graph", [False, True])
    @pytest.mark.parametrize(
        ("block", "environ"),
        [
            (8, {"budget": "16"}),
            (8, {"budget": "7"}),
            (8, {"budget": "7", "topk": "1"}),
            (8, {"budget": "33", "topk": "4", "spine": "1"}),
            (4, {"budget": "1"}),
            (16, {"budget": "16", "topk": "1"}),
        ],
    )
    def test_text_is_plain_decodings(
        self, monkeypatch: pytest.MonkeyPatch, graph: bool, block: int, environ: dict[str, str]
    ) -> None:
        world = started(monkeypatch, graph, block, **environ)
        reqs = requests()
        world.run(reqs)
        assert same(reqs)
        assert world.clean

    @pytest.mark.parametrize("seed", range(6))
    def test_servers_and_requests_at_random(
        self, monkeypatch: pytest.MonkeyPatch, seed: int
    ) -> None:
        rng = np.random.default_rng(seed)
        block = int(rng.integers(2, 12))
        budget, topk = int(rng.integers(max(1, block - 5), 40)), int(rng.integers(1, 8))
        environ = {"budget": str(budget), "topk": str(topk), "spine": str(rng.integers(0, 2))}
        world = started(monkeypatch, bool(rng.integers(0, 2)), block, seed, **environ)
        waiting = [
            Req(rng.integers(0, 23, rng.integers(1, 9)).tolist(), int(rng.integers(1, 30)), 7)
            for _ in range(6)
        ]
        reqs = list(waiting)
        world.prefill([waiting.pop()])
        while world.batch is not None or waiting:
            if waiting and (world.batch is None or rng.random() < 0.4):
                world.prefill([waiting.pop()])
            if world.batch is not None:
                world.step()
        for req in reqs:
            wanted = plain(req.origin_input_ids, req.limit, req.stop)
            assert req.output_ids == wanted
        assert world.clean

    def test_a_tree_accepts_more_than_its_chain(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def accepted(topk: str) -> int:
            reqs = [Req([3, 1, 4], 60)]
            started(monkeypatch, budget="24", topk=topk).run(reqs)
            assert sum(n + 1 for n in reqs[0].histogram) == 59
            return len(reqs[0].histogram)

        assert accepted("4") < accepted("1")

    def test_widths_of_both_backends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = started(monkeypatch, budget="20")
        assert world.target.model_runner.attn_backend.num_draft_tokens == 21
        assert world.drafter.model_runner.attn_backend.num_draft_tokens == 8
        assert world.worker.block_size == 8
        assert world.worker.server_args.speculative_num_draft_tokens == 21

    def test_requests_come_and_go(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world, reqs = started(monkeypatch, budget="16"), requests((25, 9, 17, 1))
        world.prefill(reqs[:2])
        for _ in range(3):
            world.step()
        world.prefill(reqs[2:])
        while world.batch is not None:
            world.step()
        assert same(reqs)
        assert world.clean

    def test_a_cached_answer_serves_as_another_requests_prefix(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The radix cache's promise: slots of a finished request are right in both caches, at any length."""
        world, first = started(monkeypatch, budget="16"), Req(list(PROMPTS[0]), 20)
        monkeypatch.setattr(world.allocator, "free", lambda slots: None)  # nothing is evicted
        world.run([first])
        slots = world.table.req_to_token[0, : first.kv_committed_len].long().clone()
        whole = [*first.origin_input_ids, *first.output_ids]
        followers = [Req([*whole[:n], 3, 1], 10) for n in (len(slots), 9, 5)]
        for follower, n in zip(followers, (len(slots), 9, 5), strict=True):
            follower.prefix_slots = slots[:n]
        world.run(followers)
        assert same(followers)
        assert not world.wrong_slots
        assert not world.wrong_contexts

    def test_a_stop_token_inside_a_path_ends_the_request(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        said = plain(PROMPTS[0], 40)
        for stop in sorted(set(said))[::4]:
            req = Req(list(PROMPTS[0]), 40, stop)
            world = started(monkeypatch, budget="16", seed=stop)
            world.run([req])
            assert req.output_ids == plain(PROMPTS[0], 40, stop)
            assert req.finished_reason == "stop"
            assert world.clean

    @pytest.mark.parametrize("limit", range(1, 9))
    def test_a_length_inside_a_path_ends_the_request(
        self, monkeypatch: pytest.MonkeyPatch, limit: int
    ) -> None:
        reqs = [Req(list(PROMPTS[0]), limit), Req(list(PROMPTS[1]), 20)]
        world = started(monkeypatch, budget="16")
        world.run(reqs)
        assert same(reqs)
        assert world.clean

    def test_an_aborted_request_leaves_no_slot_behind(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world, reqs = started(monkeypatch, budget="16"), requests((30, 30, 30, 30))
        world.prefill(reqs)
        world.step()
        reqs[1].to_finish = True
        while world.batch is not None:
            world.step()
        assert reqs[1].finished_reason == "abort"
        assert same([req for req in reqs if req is not reqs[1]])
        assert world.clean

    def test_sampled_requests_keep_both_caches_right(self, monkeypatch: pytest.MonkeyPatch) -> None:
        torch.manual_seed(5)
        world, reqs = started(monkeypatch, budget="16"), requests((20, 20, 20, 20))
        world.prefill(reqs)
        while world.batch is not None:
            count = len(world.batch.reqs)
            world.batch.sampling_info = drawn_at(3.0, count)
            world.step()
        assert not same(reqs)
        assert world.clean

    def test_samples_are_the_targets_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The two tokens after the first against their exact distribution, nine outcomes."""
        torch.manual_seed(6)
        world = started(monkeypatch, budget="16", topk="4")
        world.target.sampled = True
        seen: Counter[tuple[int, ...]] = Counter()
        rows, accepted = 50, 0
        for _ in range(rows):
            reqs = [Req([1, 2], 3) for _ in range(6)]
            world.prefill(reqs)
            while world.batch is not None:
                world.batch.sampling_info = drawn_at(1.0, len(world.batch.reqs))
                world.step()
            seen.update(tuple(req.output_ids[1:]) for req in reqs)
            accepted += sum(sum(req.histogram) for req in reqs)
        assert world.clean
        assert accepted > rows  # trees matter here
        exact = outcomes([1, 2, *reqs[0].output_ids[:1]], 2)
        assert {*seen} <= {*exact}
        counts = [seen[outcome] for outcome in exact]
        assert chisquare(counts, [p * sum(counts) for p in exact.values()]).pvalue > 1e-3

    def test_what_the_scheduler_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world, reqs = started(monkeypatch, budget="16"), requests((30, 30, 30, 30))
        world.prefill(reqs)
        before = [len(req.output_ids) for req in reqs]
        result = world.step()
        gained = [len(req.output_ids) - n for req, n in zip(reqs, before, strict=True)]
        assert result.num_correct_drafts_per_req_cpu == [n - 1 for n in gained]
        assert result.num_correct_drafts == sum(gained) - 4
        assert result.next_token_ids.tolist() == [req.output_ids[-1] for req in reqs]
        assert world.batch is not None
        assert world.batch.seq_lens.tolist() == [req.kv_committed_len for req in reqs]
        assert world.batch.seq_lens_cpu.tolist() == world.batch.seq_lens.tolist()
        assert world.batch.seq_lens_sum == sum(world.batch.seq_lens.tolist())


@pytest.mark.usefixtures("sglang")
class TestBroken:
    """Each fault is seen, so what passes above would not pass with it."""

    @pytest.mark.parametrize("graph", [False, True])
    @pytest.mark.parametrize(
        "fault",
        [
            "verify-width",
            "first-requests-tree",
            "causal-mask",
            "flattened-positions",
            "crop-commit",
        ],
    )
    def test_another_text(self, monkeypatch: pytest.MonkeyPatch, fault: str, graph: bool) -> None:
        reqs = requests((30, 30, 30, 30))
        world = started(monkeypatch, graph, budget="16", fault=fault)
        world.run(reqs)
        assert not same(reqs)

    def test_features_one_row_late_show_in_the_drafters_cache_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reqs = requests()
        world = started(monkeypatch, budget="16", fault="hidden-rows")
        world.run(reqs)
        assert same(reqs)
        assert world.wrong_contexts
        assert not world.wrong_slots

    @pytest.mark.parametrize("graph", [False, True])
    def test_the_wrong_width_is_invisible_where_both_widths_are_equal(
        self, monkeypatch: pytest.MonkeyPatch, graph: bool
    ) -> None:
        reqs = requests()
        world = started(monkeypatch, graph, budget="7", fault="verify-width")
        world.run(reqs)
        assert same(reqs)

    def test_the_wrong_width_lies_in_the_targets_backend_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = started(monkeypatch, budget="16", fault="verify-width")
        assert world.target.model_runner.attn_backend.num_draft_tokens == 8
        assert world.worker.server_args.speculative_num_draft_tokens == 17
        assert world.drafter.model_runner.attn_backend.num_draft_tokens == 8


def test_ranks_with_other_options_are_refused() -> None:
    own, first = Options(16, 8), Options(16, 8, topk=4)
    group = SimpleNamespace(broadcast_object=lambda told, src: first)
    with pytest.raises(ValueError, match="expected the same options on every rank"):
        worker.same_everywhere(own, group)


@pytest.mark.usefixtures("sglang")
class TestRefused:
    def test_a_target_with_a_sliding_window(self, monkeypatch: pytest.MonkeyPatch) -> None:
        args, world = Args(), World(8)
        settle(args, {}, "0.5.12", lambda _: 8)
        runner = world.runner

        def windowed(own: Args, draft: bool) -> Any:
            made = runner(own, draft)
            made.sliding_window_size = 64
            return made

        monkeypatch.setattr(world, "runner", windowed)
        with pytest.raises(ValueError, match="sliding window"):
            world.start(args)

    def test_pages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = started(monkeypatch, budget="16")
        world.worker.page_size = 16
        from engine.sglang.ddtree.verify import verify

        idle = SimpleNamespace(is_idle=lambda: False)
        with pytest.raises(RuntimeError, match="pages of one token, found 16"):
            verify(None, SimpleNamespace(forward_mode=idle), None, 16)
