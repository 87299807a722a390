"""Copies from a device, with stand-ins for tensors, stream and events: what is called, and what is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from engine.sglang import host
from engine.sglang.host import Aside, HostCopies, NotCopied, Slab, capturing
from engine.sglang.packed import Packed


class OnDevice:
    """A tensor that says it lies on a GPU; reading it on the host is an error."""

    is_cuda, shape, dtype = True, (3,), torch.int64

    def numel(self) -> int:
        return 3

    def element_size(self) -> int:
        return 8

    def reshape(self, *shape: int) -> OnDevice:
        return self

    def view(self, dtype: torch.dtype) -> OnDevice:
        assert dtype == torch.uint8
        return self

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} would wait for the device")


class Block(OnDevice):
    shape = (48,)


class Pinned:
    def __init__(self, calls: list[Any]):
        self.calls = calls

    def copy_(self, source: Any, non_blocking: bool = False) -> None:
        self.calls.append(("copy", type(source).__name__, non_blocking))

    def numpy(self) -> Any:
        return np.arange(6).view(np.uint8)


class Event:
    made: list[Event] = []  # noqa: RUF012

    def __init__(self, blocking: bool):
        self.calls = [f"blocking={blocking}"]
        Event.made.append(self)

    def record(self) -> None:
        self.calls.append("record")

    def synchronize(self) -> None:
        self.calls.append("synchronize")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []

    def empty(shape: Any, dtype: Any, pin_memory: bool) -> Pinned:
        calls.append(("empty", tuple(shape), dtype, pin_memory))
        return Pinned(calls)

    def cat(parts: list[Any]) -> Block:
        calls.append(("cat", len(parts)))
        return Block()

    monkeypatch.setattr(host.torch, "empty", empty)
    monkeypatch.setattr(host.torch, "cat", cat)
    monkeypatch.setattr(host.torch.cuda, "Event", Event)
    Event.made = []
    return calls


def test_a_group_is_one_copy_into_pinned_memory_and_nobody_waits(device: list[Any]) -> None:
    copies, source = HostCopies(), OnDevice()
    copies.take("a", source)  # type: ignore[arg-type]
    copies.take("b", source)  # type: ignore[arg-type]
    assert not device  # nothing is launched before the mark
    copies.mark()
    copies.mark()  # nothing since: no further copy
    assert device == [("cat", 2), ("empty", (48,), torch.uint8, True), ("copy", "Block", True)]
    assert [event.calls for event in Event.made] == [["blocking=True", "record"]]
    assert copies.arriving[0].sources[:2] == [source, source]  # kept until they have arrived
    (pack,) = copies.packs
    assert {name: array.tolist() for name, array in pack.arrays().items()} == {
        "a": [0, 1, 2],
        "b": [3, 4, 5],
    }


def test_copies_of_an_earlier_hook_are_waited_for_too(device: list[Any]) -> None:
    first, second = HostCopies(), HostCopies()
    for name, copies in (("a", first), ("b", second)):
        copies.take(name, OnDevice())  # type: ignore[arg-type]
        copies.mark()
    first.take("c", OnDevice())  # type: ignore[arg-type]
    second.join(first)
    assert len(second.arriving) == len(second.packs) == 2
    second.mark()
    assert [copy.event for copy in second.arriving] == [Event.made[1], Event.made[0], Event.made[2]]


def test_on_the_host_it_is_a_copy_at_once() -> None:
    copies, source = HostCopies(), torch.tensor([1, 2])
    copies.take("a", source)
    copies.take("b", torch.tensor([[True, False]]))
    copies.take("c", torch.tensor(5, dtype=torch.int32))
    copies.take("d", None)
    source += 1
    copies.mark()
    (pack,) = copies.packs
    found = {name: array.tolist() for name, array in pack.arrays().items()}
    assert found == {"a": [1, 2], "b": [[True, False]], "c": 5}
    assert not copies.arriving


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_device_tensor_as_it_stood_at_the_mark() -> None:
    copies = HostCopies()
    source = torch.arange(12, device="cuda").reshape(3, 4)
    copies.take("strided", source[:, 1:3])
    copies.take("bool", source[0] > 1)
    copies.take("float", source[1].float())
    copies.take("cpu", torch.tensor([7]))
    copies.mark()
    source.zero_()  # later in the stream
    for copy in copies.arriving:
        copy.event.synchronize()
    found = {n: a.tolist() for pack in copies.packs for n, a in pack.arrays().items()}
    assert found == {
        "strided": [[1, 2], [5, 6], [9, 10]],
        "bool": [False, False, True, True],
        "float": [4.0, 5.0, 6.0, 7.0],
        "cpu": [7],
    }


DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    ),
]


@pytest.mark.parametrize("device", DEVICES)
def test_a_slab_is_sent_as_it_stands(device: str) -> None:
    entries = (("lens", torch.int64, (2,)), ("slots", torch.int32, (2, 3)))
    slab = Slab(entries, torch.zeros(1, device=device))
    lens, slots = slab.views
    lens.copy_(torch.tensor([5, 6]))
    table = torch.arange(12, dtype=torch.int32, device=device).reshape(4, 3)
    torch.index_select(table, 0, torch.tensor([3, 1], device=device), out=slots)
    copies = HostCopies()
    slab.send(copies)
    for copy in copies.arriving:
        copy.event.synchronize()
    found = {n: a.tolist() for pack in copies.packs for n, a in pack.arrays().items()}
    assert found == {"lens": [5, 6], "slots": [[9, 10, 11], [3, 4, 5]]}


@pytest.mark.parametrize("device", DEVICES)
def test_copies_aside_see_what_came_before_and_not_what_comes_after(device: str) -> None:
    aside = Aside()
    for number in range(20):
        source = torch.zeros(1 << 16, dtype=torch.int64, device=device)
        source += number
        copies = HostCopies()
        copies.take("before", source)

        def more(copies: HostCopies = copies, source: torch.Tensor = source) -> None:
            copies.take("made", source + 1)

        aside.mark(copies, source, more)
        aside.done()
        source.fill_(-1)
        for copy in copies.arriving:
            copy.event.synchronize()
        found = {n: a for pack in copies.packs for n, a in pack.arrays().items()}
        assert set(found["before"].tolist()) == {number}
        assert set(found["made"].tolist()) == {number + 1}


def test_a_block_that_is_too_short_is_told_by_name() -> None:
    pack = Packed((("a", "int64", (1,)), ("mask", "uint8", (2, 3))), np.zeros(12, np.uint8))
    with pytest.raises(ValueError, match="mask: expected 6 bytes from 8 on, found 4"):
        pack.arrays()


def test_a_large_array_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "MAX_ARRAY_BYTES", 8)
    with pytest.raises(NotCopied, match="mask: expected at most 8 bytes, found 16"):
        HostCopies().take("mask", torch.tensor([1, 2]))


def test_numbers_that_numpy_does_not_know_are_left_out_by_name() -> None:
    with pytest.raises(NotCopied, match=r"scales: expected numbers .* found torch\.bfloat16"):
        HostCopies().take("scales", torch.zeros(2, dtype=torch.bfloat16))


def test_capture_is_asked_of_tensors_on_a_device_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.torch.cuda, "is_current_stream_capturing", lambda: True)
    assert not capturing(torch.tensor([1]))
    assert not capturing(None)
    assert capturing(OnDevice())  # type: ignore[arg-type]
