"""Acceptance and the drafter's cache ahead of the host: whole steps on a double of graphs, and random trees."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.decoding.device_tree import TreeTensors
from engine.graphs.capture import Capture, in_one_pool
from engine.sglang.ddtree import ahead as ahead_module
from engine.sglang.ddtree import worker
from engine.sglang.ddtree.accept import accept
from engine.sglang.ddtree.ahead import Ahead
from engine.sglang.ddtree.padded import First, Padded
from engine.tree import DraftTree, make_tree
from tests.factories import VOCAB, trees
from tests.sglang.ddtree import test_stock
from tests.sglang.ddtree.recording import Recording
from tests.sglang.ddtree.scheduled import Req
from tests.sglang.ddtree.tensors import tensors
from tests.sglang.ddtree.test_stock import PROMPTS, drawn_at, requests, same, started
from tests.sglang.ddtree.truth import plain
from tests.sglang.ddtree.world import World

sglang = test_stock.sglang
IN_GRAPHS = worker.in_graphs
FEATURES, SLOTS, POSITIONS = 3, 300, 500


class Cache:
    """Keeps in each slot what was written there: features and a position, [slots, FEATURES + 1]."""

    def __init__(self, device: str = "cpu") -> None:
        self.kept = torch.full((SLOTS, FEATURES + 1), -1.0, device=device)
        self.parts: tuple[Any, ...] = (None, object())

    def reaches(self, last: int) -> bool:
        return last < POSITIONS

    def write(self, features: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor) -> None:
        self.kept[slots] = torch.cat([features, positions[:, None].float()], dim=1)


def step(
    batch: list[DraftTree], budget: int, seed: int, device: str
) -> tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Trees, choices, prefixes, slots and hidden states, in buffers of their own."""
    rng = np.random.default_rng(seed)
    predict = rng.integers(0, VOCAB, (len(batch), budget + 1))
    for i, tree in enumerate(batch):  # mostly what some child proposes, so that walks go somewhere
        for node, parent in enumerate(tree.parents):
            if node and rng.random() < 0.8:
                predict[i, parent] = tree.tokens[node]
    generator = torch.Generator().manual_seed(seed)
    rows = len(batch) * (budget + 1)
    made = (
        torch.from_numpy(predict),
        torch.randint(1, 90, (len(batch),), generator=generator),
        torch.randperm(SLOTS - 1, generator=generator)[:rows] + 1,
        torch.randn(rows, FEATURES, generator=generator),
    )
    return tensors(batch, budget), *(each.to(device) for each in made)


def on(device: str, made: Any) -> Any:
    return type(made)(*(part.to(device) for part in vars(made).values()))


def graphs(cache: Cache, trees: TreeTensors, steps: int, capture: Capture, device: str) -> Ahead:
    """Graphs over these trees, with inputs for a request more."""
    most, width = len(trees.tokens) + 1, trees.tokens.shape[1]
    numbers = torch.zeros(0, dtype=torch.int64, device=device)
    chosen = Padded(
        most,
        numbers.new_zeros(most, width),
        numbers.new_zeros(most),
        numbers.new_zeros(most * width),
    )
    features = Padded(most, torch.zeros(most * steps, FEATURES, device=device))
    return Ahead(cache, trees, chosen, features, capture)  # type: ignore[arg-type]


def check(
    batch: list[DraftTree], turns: list[tuple[int, int]], device: str, capture: Capture
) -> None:
    """Steps of ``(seed, padding requests)`` over the same buffers against the eager walk and a loop over its paths."""
    budget, size = max(tree.num_nodes for tree in batch), len(batch)
    steps = max(max(tree.depths) for tree in batch) + 1
    own, cache = on(device, tensors(batch, budget)), Cache(device)
    ahead = graphs(cache, own, steps, capture, device)
    assert torch.equal(cache.kept[1:], Cache(device).kept[1:])  # captures write to slot 0 alone
    for seed, padding in turns:
        count = max(size - padding, 1)
        made, predict, lens, slots, hidden = step(batch[:count], budget, seed, device)
        for old, new in zip(vars(own).values(), vars(made).values(), strict=True):
            old[:count].copy_(new)
        wanted = accept(First(own, size)(count), predict, steps)
        before = cache.kept.clone()
        found = ahead.accept(predict, lens, slots)
        for name in vars(wanted):
            assert torch.equal(getattr(found, name), getattr(wanted, name)), name
        ahead.append(hidden)
        for i, path in enumerate(wanted.path.tolist()):
            for index, node in enumerate(path[: wanted.accept_length[i]]):
                row = i * (budget + 1) + node
                before[slots[row], :FEATURES] = hidden[row]
                before[slots[row], FEATURES] = float(lens[i] + index)
        assert torch.equal(cache.kept[1:], before[1:])  # all else went to slot 0


BATCHES = st.lists(trees(), min_size=1, max_size=4)
TURNS = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 3)), max_size=3)


@settings(deadline=None)
@given(BATCHES, TURNS)
def test_random_trees(batch: list[DraftTree], turns: list[tuple[int, int]]) -> None:
    recording = Recording()
    check(batch, turns, "cpu", recording.capture)
    assert recording.captures == 2
    assert recording.replays == 1 + 2 * len(turns)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@settings(deadline=None, max_examples=10)
@given(BATCHES, TURNS)
def test_random_trees_in_cuda_graphs(batch: list[DraftTree], turns: list[tuple[int, int]]) -> None:
    check(batch, turns, "cuda", in_one_pool())


def test_a_part_that_was_replaced_is_captured_anew() -> None:
    cache, recording = Cache(), Recording()
    made, *given, hidden = step([make_tree([-1, 0], [1, 2])], 1, 0, "cpu")
    ahead = graphs(cache, made, 2, recording.capture, "cpu")
    for captures, parts in ((2, cache.parts), (2, cache.parts), (3, (None, object()))):
        cache.parts = parts
        ahead.accept(*given)
        ahead.append(hidden)
        assert recording.captures == captures


@pytest.fixture
def launched(sglang: None, monkeypatch: pytest.MonkeyPatch) -> Recording:
    """Servers take the double for their graphs."""
    recording = Recording()
    monkeypatch.setattr(worker, "in_one_pool", lambda: recording.capture)
    monkeypatch.setattr(worker, "in_graphs", lambda own, group: True)
    return recording


@pytest.fixture
def appends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each launch."""
    found: list[int] = []
    append = ahead_module.Ahead.append

    def counted(own: Ahead, hidden: torch.Tensor) -> None:
        found.append(len(hidden))
        append(own, hidden)

    monkeypatch.setattr(ahead_module.Ahead, "append", counted)
    return found


class TestServed:
    @pytest.mark.parametrize("graph", [False, True])
    @pytest.mark.parametrize(
        ("block", "environ"),
        [
            (8, {"budget": "16"}),
            (8, {"budget": "33", "topk": "4", "spine": "1"}),
            (4, {"budget": "1"}),
            (16, {"budget": "16", "topk": "1"}),
        ],
    )
    def test_text_is_plain_decodings(
        self,
        launched: Recording,
        monkeypatch: pytest.MonkeyPatch,
        appends: list[int],
        graph: bool,
        block: int,
        environ: dict[str, str],
    ) -> None:
        reqs = requests()
        world = started(monkeypatch, graph, block, **environ)
        captures, replays = launched.captures, launched.replays
        assert captures == 3 * len(World.captured)
        steps = world.run(reqs)
        assert same(reqs)
        assert world.clean
        assert len(appends) == steps
        assert launched.replays == replays + 3 * steps
        assert launched.captures == captures

    @pytest.mark.parametrize("captured", [(2,), (1, 3), (4,), (6, 2), (1, 2, 3, 4, 5, 6)])
    def test_whatever_sizes_are_captured(
        self,
        launched: Recording,
        monkeypatch: pytest.MonkeyPatch,
        appends: list[int],
        captured: tuple[int, ...],
    ) -> None:
        """Four requests, then fewer: padded, exact, or more than were captured, which is served without graphs."""
        monkeypatch.setattr(World, "captured", captured)
        world, reqs = started(monkeypatch, budget="16"), requests((30, 12, 40, 6))
        world.prefill(reqs)
        steps = []
        while world.batch is not None:
            steps.append(len(world.batch.reqs))
            world.step()
        assert same(reqs)
        assert world.clean
        assert {4, 1} <= {*steps}
        assert [17 * count for count in steps if count <= max(captured)] == appends
        assert launched.captures == 3 * len(captured)

    def test_captures_write_to_the_padding_slot_alone(
        self, launched: Recording, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = started(monkeypatch, budget="16").draft_pool
        assert launched.captures
        for rows in (pool.k, pool.v):
            assert bool((rows[0] == 0).all())
            assert bool((rows[1:] == -1).all())

    def test_the_same_requests_accept_the_same_without_graphs(
        self, launched: Recording, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def served() -> list[Any]:
            reqs = requests()
            started(monkeypatch, budget="16").run(reqs)
            return [(r.output_ids, r.histogram, r.kv_committed_len) for r in reqs]

        found = served()
        monkeypatch.undo()
        assert launched.captures
        assert found == served()

    def test_the_state_after_a_step(
        self, launched: Recording, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world, reqs = started(monkeypatch, budget="16"), requests((30, 30, 30, 30))
        world.prefill(reqs)
        world.step()
        batch = world.batch
        assert batch is not None
        draft, lens = batch.spec_info, [req.kv_committed_len for req in reqs]
        assert draft.draft_seq_lens.tolist() == batch.seq_lens.tolist() == lens
        assert draft.draft_seq_lens.dtype is draft.ctx_lens.dtype is torch.int32
        assert draft.ctx_lens.tolist() == [0] * 4
        assert draft.target_hidden.shape == (0, 2)
        assert draft.bonus_tokens.tolist() == [req.output_ids[-1] for req in reqs]

    def test_dflashs_own_way_is_asked_where_there_are_features(
        self, launched: Recording, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """For prompts alone; and then every request's lengths are what its cache has."""
        from sglang.srt.speculative.dflash_worker import DFlashWorker

        asked: list[int] = []
        append = DFlashWorker._append_target_hidden_to_draft_kv

        def counted(own: Any, batch: Any, draft: Any) -> None:
            asked.append(len(draft.target_hidden))
            append(own, batch, draft)

        monkeypatch.setattr(DFlashWorker, "_append_target_hidden_to_draft_kv", counted)
        world, reqs = started(monkeypatch, budget="16"), requests((12, 12, 12, 12))
        world.prefill(reqs[:2])
        while world.batch is not None:
            draft = world.batch.spec_info
            assert not draft.ctx_lens.any()
            assert draft.draft_seq_lens.tolist() == world.batch.seq_lens.tolist()
            if len(asked) == 1:
                world.prefill(reqs[2:])
            world.step()
        assert asked == [len(PROMPTS[0]) + len(PROMPTS[1]), len(PROMPTS[2]) + len(PROMPTS[3])]

    def test_requests_come_and_go(
        self, launched: Recording, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world, reqs = started(monkeypatch, budget="16"), requests((25, 9, 17, 1))
        world.prefill(reqs[:2])
        for _ in range(3):
            world.step()
        world.prefill(reqs[2:])
        while world.batch is not None:
            world.step()
        assert same(reqs)
        assert world.clean

    def test_a_stop_inside_a_path(
        self, launched: Recording, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        said = plain(PROMPTS[0], 40)
        for stop in sorted(set(said))[::4]:
            reqs = [Req(list(PROMPTS[0]), 40, stop), Req(list(PROMPTS[1]), 20)]
            world = started(monkeypatch, budget="16", seed=stop)
            world.run(reqs)
            assert same(reqs)
            assert world.clean

    @pytest.mark.parametrize("limit", range(1, 9))
    def test_a_length_inside_a_path(
        self, launched: Recording, monkeypatch: pytest.MonkeyPatch, limit: int
    ) -> None:
        reqs = [Req(list(PROMPTS[0]), limit), Req(list(PROMPTS[1]), 20)]
        world = started(monkeypatch, budget="16")
        world.run(reqs)
        assert same(reqs)
        assert world.clean

    def test_sampled_requests_keep_both_caches_right(
        self, launched: Recording, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        torch.manual_seed(5)
        world, reqs = started(monkeypatch, budget="16"), requests((20, 20, 20, 20))
        world.prefill(reqs)
        while world.batch is not None:
            world.batch.sampling_info = drawn_at(3.0, len(world.batch.reqs))
            world.step()
        assert not same(reqs)
        assert world.clean


class TestDflashsOwnWay:
    """Where the drafter's cache does not fit a graph, nothing of it is launched ahead."""

    @pytest.mark.parametrize("fault", ["crop-commit", "hidden-rows"])
    def test_faults_in_what_is_kept(
        self,
        launched: Recording,
        monkeypatch: pytest.MonkeyPatch,
        appends: list[int],
        fault: str,
    ) -> None:
        world, reqs = started(monkeypatch, budget="16", fault=fault), requests()
        world.run(reqs)
        assert not appends
        assert world.wrong_contexts or not same(reqs)

    @pytest.mark.parametrize(
        "change",
        [
            lambda world: setattr(world.worker, "use_compact_draft_cache", True),
            lambda world: setattr(
                world.drafter.model_runner, "token_to_kv_pool", SimpleNamespace(other=True)
            ),
        ],
    )
    def test_caches_of_another_kind(
        self,
        launched: Recording,
        monkeypatch: pytest.MonkeyPatch,
        change: Callable[[World], None],
    ) -> None:
        world = started(monkeypatch, budget="16")
        change(world)
        made, before = world.worker, launched.captures
        made._made_for = None
        made._made_with(world.target.model_runner.model.lm_head)
        assert launched.captures == before + len(World.captured)  # trees alone
        assert made._graphs.ahead(torch.tensor([3])) is None

    def test_a_rotary_table_that_is_too_short(
        self, launched: Recording, monkeypatch: pytest.MonkeyPatch, appends: list[int]
    ) -> None:
        """Until its end the graph, then DFLASH's own way, which makes it longer or refuses."""
        world, reqs = started(monkeypatch, budget="16"), [Req([1, 2, 3, 4], 40)]
        attention = world.drafter.model_runner.model.layers[0].self_attn
        attention.rotary_emb.cos_sin_cache = torch.zeros(24, 1)
        steps = world.run(reqs)
        assert same(reqs)
        assert world.clean
        assert 0 < len(appends) < steps

    def test_no_graphs(
        self,
        launched: Recording,
        monkeypatch: pytest.MonkeyPatch,
        appends: list[int],
    ) -> None:
        monkeypatch.setattr(worker, "in_graphs", IN_GRAPHS)  # the CPU has none
        world, reqs = started(monkeypatch, budget="16"), requests()
        world.run(reqs)
        assert same(reqs)
        assert not appends
        assert not launched.captures
