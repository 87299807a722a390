"""Two tensor-parallel ranks, each with half of the vocabulary: the same trees, the same text, one gather a step."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from engine.sglang.ddtree.arguments import settle
from tests.sglang.ddtree import test_stock
from tests.sglang.ddtree.scheduled import Args
from tests.sglang.ddtree.test_stock import requests, same, started
from tests.sglang.ddtree.truth import VOCAB
from tests.sglang.ddtree.world import World

sglang = test_stock.sglang
RANKS = 2


class Group:
    """Ranks as threads, of which one runs at a time: the interpreter of kernels is not made for more."""

    world_size = RANKS

    def __init__(self) -> None:
        self.turn, self.meet = threading.Lock(), threading.Barrier(RANKS, timeout=120)
        self.told: dict[int, Any] = {}
        self.rank = threading.local()
        self.gathers = 0

    def exchanged(self, own: Any) -> list[Any]:
        self.told[self.rank.number] = own
        self.turn.release()
        self.meet.wait()
        all_of_them = [self.told[rank] for rank in range(RANKS)]
        self.meet.wait()
        self.turn.acquire()
        return all_of_them

    def broadcast_object(self, told: Any, src: int) -> Any:
        return self.exchanged(told)[src]

    def all_gather_into_tensor(self, out: torch.Tensor, own: torch.Tensor) -> None:
        out.copy_(torch.cat(self.exchanged(own)))
        self.gathers += self.rank.number == 0


def served(group: Group, rank: int) -> tuple[bool, bool, list[list[int]], int]:
    """Serve the same requests on one rank: text, caches, accepted drafts and decode steps."""
    group.rank.number = rank
    with group.turn:
        args, world = Args(), World(8)
        settle(args, os.environ, "0.5.12", lambda _: 8)
        world.start(args)
        head = world.target.model_runner.model.lm_head
        size = VOCAB // RANKS
        head.weight = head.weight[rank * size : (rank + 1) * size]
        head.shard_indices.num_org_elements = head.shard_indices.num_org_elements_padded = size
        head.shard_indices.org_vocab_start_index = rank * size
        reqs = requests((14, 9, 11, 1))
        steps = world.run(reqs)
        return same(reqs), world.clean, [req.histogram for req in reqs], steps


@pytest.mark.usefixtures("sglang")
def test_two_ranks_say_the_same_and_accept_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDTREE_BUDGET", "16")
    group = Group()
    monkeypatch.setattr(World, "tp_group", group)
    with ThreadPoolExecutor(RANKS) as pool:
        first, second = pool.map(lambda rank: served(group, rank), range(RANKS))
    assert first == second
    text, clean, histograms, steps = first
    assert text
    assert clean
    assert group.gathers == steps
    monkeypatch.undo()
    alone = requests((14, 9, 11, 1))
    started(monkeypatch, budget="16").run(alone)
    assert [req.histogram for req in alone] == histograms  # the same trees from one head
