"""Accepted rows in fixed shapes: the same as a list of rows says, and padding where there are none."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.sglang.ddtree.accept import Accepted
from engine.sglang.ddtree.append import appended
from engine.sglang.ddtree.commit import commit_rows

WIDTH, STEPS = 7, 4


def paths() -> st.SearchStrategy[list[int]]:
    below = st.lists(st.integers(1, WIDTH - 1), max_size=STEPS - 1, unique=True)
    return below.map(lambda nodes: [0, *sorted(nodes)])


def accepted(own: list[list[int]]) -> Accepted:
    padded = torch.tensor([[*path, *[-1] * (STEPS - len(path))] for path in own])
    length = torch.tensor([len(path) for path in own])
    return Accepted(padded, padded, length, torch.cat([padded, padded, length[:, None]], dim=1))


def test_literal() -> None:
    """Two requests of three rows behind prefixes of 5 and 9 tokens."""
    found = appended(
        accepted([[0, 2], [0]]), torch.tensor([5, 9], dtype=torch.int32), torch.arange(40, 54)
    )
    assert found.rows.tolist() == [0, 2, 0, 0, 7, 0, 0, 0]
    assert found.positions.tolist() == [5, 6, 0, 0, 9, 0, 0, 0]
    assert found.slots.tolist() == [40, 42, 0, 0, 47, 0, 0, 0]
    assert {found.rows.dtype, found.positions.dtype, found.slots.dtype} == {torch.int64}


@given(st.lists(paths(), min_size=1, max_size=5), st.integers(0, 2**16))
def test_rows_are_the_committed_ones(own: list[list[int]], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    lens = torch.randint(1, 90, (len(own),), generator=generator)
    slots = torch.randperm(200, generator=generator)[: len(own) * WIDTH] + 1
    found = appended(accepted(own), lens, slots)
    commit = commit_rows(own, [len(path) for path in own], WIDTH)
    real = torch.tensor([i < len(path) for path in own for i in range(STEPS)])
    assert found.rows[real].tolist() == commit.features
    assert found.slots[real].tolist() == slots[commit.kept].tolist()
    wanted = [n + i for n, path in zip(lens.tolist(), own, strict=True) for i in range(len(path))]
    assert found.positions[real].tolist() == wanted
    for part in vars(found).values():
        assert not part[~real].any()
