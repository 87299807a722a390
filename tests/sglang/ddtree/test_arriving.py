"""Accepted paths on the host: as they were when the copy was started."""

from __future__ import annotations

import pytest
import torch

from engine.sglang.ddtree.arriving import Arriving
from tests.pretend_device import PretendDevice, There

PACKED = [[0, 2, -1, 9, 4, -1, 2], [0, -1, -1, 7, -1, -1, 1]]
DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    ),
]


@pytest.mark.parametrize("device", DEVICES)
def test_lists(device: str) -> None:
    paths, said = Arriving(torch.tensor(PACKED, device=device)).lists()
    assert paths == [[0, 2], [0]]
    assert said == [[9, 4], [7]]


def test_the_copy_is_started_at_once() -> None:
    with PretendDevice(lenient=True) as device:
        packed = There(torch.tensor(PACKED))
        arriving = Arriving(packed)
        packed.zero_()
        assert arriving.lists()[0] == [[0, 2], [0]]
        assert sum(device.copies.values()) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_what_is_launched_afterwards_is_not_waited_for() -> None:
    packed = torch.tensor(PACKED, device="cuda")
    torch.cuda.synchronize()
    arriving = Arriving(packed)
    torch.cuda._sleep(1_000_000_000)  # type: ignore[no-untyped-call]
    packed.zero_()
    later = torch.cuda.Event()  # type: ignore[no-untyped-call]
    later.record()
    assert arriving.lists()[0] == [[0, 2], [0]]
    assert not later.query()
