"""Trees and rows in graphs: the same as without, whatever came before, for captured batch sizes and smaller ones."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.decoding.device_tree import TreeTensors
from engine.sglang.ddtree.options import Options
from engine.sglang.ddtree.padded import Padded
from engine.sglang.ddtree.treed import Treed, TreeGraph, treed
from tests.sglang.ddtree.recording import Recording
from tests.sglang.ddtree.recording import parts as parts_of

OPTIONS = Options(block_size=4, budget=6, topk=3)
HIDDEN, VOCAB = 8, 30
ALONE = SimpleNamespace(world_size=1)


def exact(*shape: int, seed: torch.Generator) -> torch.Tensor:
    """Normal numbers of few digits: a product of matrices has no rounding that depends on its number of rows."""
    return (torch.randn(*shape, generator=seed) * 64).round() / 64


def head(device: str = "cpu", dtype: torch.dtype = torch.float32) -> Any:
    weight = exact(VOCAB, HIDDEN, seed=torch.Generator().manual_seed(1))
    shard = SimpleNamespace(
        num_org_elements=VOCAB,
        num_org_elements_padded=VOCAB,
        num_added_elements=0,
        org_vocab_start_index=0,
        added_vocab_start_index=VOCAB,
    )
    return SimpleNamespace(weight=weight.to(device, dtype), shard_indices=shard)


def inputs(seed: int, batch: int, device: str = "cpu") -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    hidden = exact(batch * OPTIONS.max_depth, HIDDEN, seed=generator)
    roots = torch.randint(VOCAB, (batch,), generator=generator)
    lens = torch.randint(1, 40, (batch,), generator=generator).int()
    return hidden.to(device), roots.to(device), lens.to(device)


def maker(device: str = "cpu") -> Callable[..., Treed]:
    own = head(device)
    return lambda *given: treed(*given, own, OPTIONS, ALONE)


def parts(made: Treed) -> list[torch.Tensor]:
    return [part.clone() for part in parts_of(made)]


def same(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def padded(size: int, device: str = "cpu") -> Padded:
    """Inputs of graphs for at most ``size`` requests."""
    numbers = torch.zeros(size, dtype=torch.int64, device=device)
    hidden = torch.zeros(size * OPTIONS.max_depth, HIDDEN, device=device)
    return Padded(size, hidden, numbers, numbers.clone())


def check(graph: TreeGraph, make: Callable[..., Treed], counts: list[int], device: str) -> None:
    for seed, count in enumerate(counts):
        given = inputs(seed, count, device)
        kept = [each.clone() for each in given]
        expected = make(*kept)
        found = graph(*given)
        assert same(parts(found), parts(expected))
        assert all(torch.equal(a, b) for a, b in zip(given, kept, strict=True))
        total = int(given[2].sum())
        assert torch.equal(found.rows.custom_mask(total), expected.rows.custom_mask(total))
        alone = make(*(torch.zeros_like(each[: len(each) // count]) for each in given)).tree
        for name, part in vars(graph.whole.tree).items():  # nothing of a larger batch is left
            assert all(torch.equal(part[i], getattr(alone, name)[0]) for i in range(count, 4))


def test_replays_follow_their_inputs() -> None:
    make = maker()
    recording = Recording()
    graph = TreeGraph(make, padded(5), 4, recording.capture)
    check(graph, make, [2, 4, 1, 3, 4, 2], "cpu")
    assert (recording.captures, recording.replays) == (1, 7)


def test_before_the_first_call_there_are_trees_already() -> None:
    graph = TreeGraph(maker(), padded(2), 2, Recording().capture)
    nothing = (torch.zeros_like(each) for each in inputs(0, 2))
    assert same(parts(graph.whole), parts(maker()(*nothing)))


def test_the_result_holds_until_the_next_call() -> None:
    small, large = (TreeGraph(maker(), padded(2), size, Recording().capture) for size in (1, 2))
    first = large(*inputs(1, 2))
    before = parts(first)
    small(*inputs(2, 1))
    assert same(parts(first), before)
    large(*inputs(3, 2))
    assert not same(parts(first), before)


def test_views_are_made_once() -> None:
    graph = TreeGraph(maker(), padded(4), 4, Recording().capture)
    first = graph(*inputs(1, 3))
    graph(*inputs(2, 2))
    assert graph(*inputs(3, 3)) is first


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_in_cuda_graphs() -> None:
    make = maker("cuda")
    graph = TreeGraph(make, padded(5, "cuda"), 4)
    check(graph, make, [2, 4, 1, 3, 4, 2], "cuda")
    made = graph(*inputs(9, 2, "cuda"))
    assert isinstance(made.tree, TreeTensors)
    assert made.rows.custom_mask(60).is_cuda
