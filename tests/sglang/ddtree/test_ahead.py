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

from engine.graphs.capture import Capture, in_one_pool
from engine.sglang.ddtree import ahead as ahead_module
from engine.sglang.ddtree import worker
from engine.sglang.ddtree.accept import accept
from engine.sglang.ddtree.ahead import Ahead
from engine.sglang.ddtree.treed import TreeGraphs
from engine.tree import DraftTree, make_tree
from tests.factories import VOCAB, trees
from tests.sglang.ddtree import test_stock
from tests.sglang.ddtree.recording import Recording
from tests.sglang.ddtree.scheduled import Req
from tests.sglang.ddtree.tensors import tensors
from tests.sglang.ddtree.test_stock import PROMPTS, drawn_at, requests, same, started
from tests.sglang.ddtree.test_treed import OPTIONS, inputs, maker
from tests.sglang.ddtree.truth import plain
from tests.sglang.ddtree.world import World

sglang = test_stock.sglang
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


def check(batch: list[DraftTree], seeds: list[int], device: str, capture: Capture) -> None:
    """Steps of one batch size over the same tree buffers against the eager walk and a loop over its paths."""
    budget = max(tree.num_nodes for tree in batch)
    steps = max(max(tree.depths) for tree in batch) + 1
    own, cache = on(device, tensors(batch, budget)), Cache(device)
    ahead = Ahead(cache, steps, capture)  # type: ignore[arg-type]
    for seed in seeds:
        made, predict, lens, slots, hidden = step(batch, budget, seed, device)
        for old, new in zip(vars(own).values(), vars(made).values(), strict=True):
            old.copy_(new)
        wanted = accept(own, predict, steps)
        before = cache.kept.clone()
        found = ahead.accept(own, predict, lens, slots)
        for name in vars(wanted):
            assert torch.equal(getattr(found, name), getattr(wanted, name)), name
        ahead.append(own, hidden)
        for i, path in enumerate(wanted.path.tolist()):
            for index, node in enumerate(path[: wanted.accept_length[i]]):
                row = i * (budget + 1) + node
                before[slots[row], :FEATURES] = hidden[row]
                before[slots[row], FEATURES] = float(lens[i] + index)
        assert torch.equal(cache.kept[1:], before[1:])  # all else went to slot 0


@settings(deadline=None)
@given(st.lists(trees(), min_size=1, max_size=4), st.lists(st.integers(0, 2**16), max_size=3))
def test_random_trees(batch: list[DraftTree], seeds: list[int]) -> None:
    recording = Recording()
    check(batch, seeds, "cpu", recording.capture)
    assert recording.captures == (2 if seeds else 0)
    assert recording.replays == 2 * len(seeds)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@settings(deadline=None, max_examples=10)
@given(st.lists(trees(), min_size=1, max_size=4), st.lists(st.integers(0, 2**16), max_size=3))
def test_random_trees_in_cuda_graphs(batch: list[DraftTree], seeds: list[int]) -> None:
    check(batch, seeds, "cuda", in_one_pool())


DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    ),
]


@pytest.mark.parametrize("device", DEVICES)
def test_batch_sizes_take_turns(device: str) -> None:
    """Their features share memory, which grows; each keeps its own results."""
    capture = Recording().capture if device == "cpu" else in_one_pool()
    cache, rng = Cache(device), np.random.default_rng(0)
    ahead = Ahead(cache, 4, capture)  # type: ignore[arg-type]
    known = {}
    for seed, count in enumerate((2, 1, 3, 2, 1, 5, 3)):
        batch = [make_tree([-1, 0, 1, 0], [1, 5, rng.integers(9), 6])] * count
        made, predict, lens, slots, hidden = step(batch, 3, seed, device)
        own = known.setdefault(count, on(device, made))
        for old, new in zip(vars(own).values(), vars(made).values(), strict=True):
            old.copy_(new.to(device))
        found = ahead.accept(own, predict, lens, slots)
        assert torch.equal(found.packed, accept(own, predict, 4).packed)
        ahead.append(own, hidden)
        for i, length in enumerate(found.accept_length.tolist()):
            rows = found.path[i, :length] + 4 * i
            assert torch.equal(cache.kept[slots[rows], :FEATURES], hidden[rows])
            assert cache.kept[slots[rows], FEATURES].tolist() == [
                float(lens[i] + index) for index in range(length)
            ]


@pytest.mark.parametrize("device", DEVICES)
def test_behind_the_trees_graphs_in_one_pool(device: str) -> None:
    """Batch sizes in turn, each step from the drafter's hidden states to its cache."""
    capture = Recording().capture if device == "cpu" else in_one_pool()
    make, cache = maker(device), Cache(device)
    graphs = TreeGraphs(make, capture)
    ahead = Ahead(cache, OPTIONS.steps, capture)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(4)
    width = OPTIONS.target_width
    for seed, count in enumerate((2, 1, 3, 2, 1, 3, 4, 1)):
        given = inputs(seed, count, device)
        rows = count * width
        hidden = torch.randn(rows, FEATURES, generator=generator).to(device)
        slots = (torch.randperm(SLOTS - 1, generator=generator)[:rows] + 1).to(device)
        plain_tree = make(*given).tree
        predict = plain_tree.tokens.roll(-1, dims=1)  # some of them are what a child proposes
        wanted = accept(plain_tree, predict, OPTIONS.steps)
        made = graphs(*given)
        found = ahead.accept(made.tree, predict, given[2], slots)
        ahead.append(made.tree, hidden)
        assert torch.equal(found.packed, wanted.packed)
        assert torch.equal(made.tree.tokens, plain_tree.tokens)
        for i, length in enumerate(wanted.accept_length.tolist()):
            own = wanted.path[i, :length] + width * i
            assert torch.equal(cache.kept[slots[own], :FEATURES], hidden[own])


def test_a_part_that_was_replaced_is_captured_anew() -> None:
    cache, recording = Cache(), Recording()
    ahead = Ahead(cache, 2, recording.capture)  # type: ignore[arg-type]
    made, *given, hidden = step([make_tree([-1, 0], [1, 2])], 1, 0, "cpu")
    for captures, parts in ((2, cache.parts), (2, cache.parts), (3, (None, object()))):
        cache.parts = parts
        ahead.accept(made, *given)
        ahead.append(made, hidden)
        assert recording.captures == captures


def test_the_drafter_knows_every_position_of_a_step() -> None:
    ahead = Ahead(Cache(), 8, Recording().capture)  # type: ignore[arg-type]
    assert ahead.reaches(torch.tensor([3, POSITIONS - 8]))
    assert not ahead.reaches(torch.tensor([POSITIONS - 7, 3]))


@pytest.fixture
def launched(sglang: None, monkeypatch: pytest.MonkeyPatch) -> Recording:
    """Servers take the double for their graphs."""
    recording, start = Recording(), World.start

    def doubled(own: World, *args: Any, **kwargs: Any) -> Any:
        made = start(own, *args, **kwargs)
        made._in_graphs = lambda hidden: True
        return made

    monkeypatch.setattr(worker, "in_one_pool", lambda: recording.capture)
    monkeypatch.setattr(World, "start", doubled)
    return recording


@pytest.fixture
def appends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each launch."""
    found: list[int] = []
    append = ahead_module.Ahead.append

    def counted(own: Ahead, made: Any, hidden: torch.Tensor) -> None:
        found.append(len(hidden))
        append(own, made, hidden)

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
        steps = world.run(reqs)
        assert same(reqs)
        assert world.clean
        assert len(appends) == steps
        assert launched.replays == 3 * steps

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
        made = world.worker
        made._made_with(world.target.model_runner.model.lm_head, torch.zeros(1))
        assert made._ahead is None
        assert type(made._make).__name__ == "TreeGraphs"

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
        world, reqs = started(monkeypatch, budget="16"), requests()
        del world.worker._in_graphs  # the CPU has none
        world.run(reqs)
        assert same(reqs)
        assert not appends
        assert not launched.captures
