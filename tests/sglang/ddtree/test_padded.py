"""Views of a batch in larger buffers: its own part, made once, and zeros behind it."""

from __future__ import annotations

import torch

from engine.decoding.device_tree import TreeTensors
from engine.sglang.ddtree.padded import First, Padded
from engine.tree import make_tree
from tests.sglang.ddtree.tensors import tensors


def test_the_first_requests_of_whatever_holds_tensors() -> None:
    trees = tensors([make_tree([-1, 0], [i, 9]) for i in range(3)], 2)
    flat = torch.arange(12)
    first = First((trees, flat), 3)
    own, numbers = first(2)
    assert isinstance(own, TreeTensors)
    for name, part in vars(trees).items():
        assert torch.equal(getattr(own, name), part[:2])
    assert numbers.tolist() == list(range(8))
    flat[0] = 7
    trees.tokens[1, 0] = 5
    assert (int(numbers[0]), int(own.tokens[1, 0])) == (7, 5)
    assert first(2)[0] is own


def test_behind_the_batch_all_is_zero() -> None:
    rows, numbers = torch.zeros(4 * 2, 3), torch.zeros(4, dtype=torch.int64)
    padded = Padded(4, rows, numbers)
    for count in (1, 4, 2, 3, 1, 1, 4):
        own = padded.only(count)
        assert [len(each) for each in own] == [2 * count, count]
        for each in own:
            each.fill_(count)
        assert rows[:, 0].tolist() == [count] * 2 * count + [0] * 2 * (4 - count)
        assert numbers.tolist() == [count] * count + [0] * (4 - count)
        assert padded.only(count) is own
