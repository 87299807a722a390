"""Trees and rows in graphs: the same as without, whatever came before; captured once a shape."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.decoding.device_tree import TreeTensors
from engine.sglang.ddtree.options import Options
from engine.sglang.ddtree.treed import Treed, TreeGraphs, treed
from tests.sglang.ddtree.recording import Recording
from tests.sglang.ddtree.recording import parts as parts_of

OPTIONS = Options(block_size=4, budget=6, topk=3)
HIDDEN, VOCAB = 8, 30
ALONE = SimpleNamespace(world_size=1)


def head(device: str = "cpu", dtype: torch.dtype = torch.float32) -> Any:
    weight = torch.randn(VOCAB, HIDDEN, generator=torch.Generator().manual_seed(1))
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
    hidden = torch.randn(batch * OPTIONS.max_depth, HIDDEN, generator=generator)
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


def test_replays_follow_their_inputs() -> None:
    make = maker()
    recording = Recording()
    graphs = TreeGraphs(make, recording.capture)
    for seed, batch in ((1, 2), (2, 2), (3, 1), (4, 2), (5, 1)):
        given = inputs(seed, batch)
        kept = [each.clone() for each in given]
        assert same(parts(graphs(*given)), parts(make(*kept)))
        assert all(torch.equal(a, b) for a, b in zip(given, kept, strict=True))
    assert (recording.captures, recording.replays) == (2, 5)


def test_the_result_holds_until_the_next_call_of_its_shape() -> None:
    make = maker()
    graphs = TreeGraphs(make, Recording().capture)
    first = graphs(*inputs(1, 2))
    before = parts(first)
    graphs(*inputs(2, 1))
    assert same(parts(first), before)
    graphs(*inputs(3, 2))
    assert not same(parts(first), before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_in_cuda_graphs() -> None:
    make = maker("cuda")
    graphs = TreeGraphs(make)
    for seed, batch in ((1, 2), (2, 2), (3, 1), (4, 2), (5, 1)):
        given = inputs(seed, batch, "cuda")
        expected = parts(make(*given))
        assert same(parts(graphs(*given)), expected)
    made = graphs(*inputs(9, 2, "cuda"))
    assert isinstance(made.tree, TreeTensors)
    assert made.rows.custom_mask(60).is_cuda
