"""Copies from a device, with stand-ins for tensors, stream and events: what is called, and what is not."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.sglang import host, snapshot
from engine.sglang.host import HostCopies, NotCopied, capturing
from engine.sglang.launch import Launch
from engine.sglang.packed import Packed
from engine.sglang.snapshot import Gathering, Noted, by_kernel, by_torch, values_of


class OnDevice:
    """A tensor that says it lies on a GPU; reading it on the host, slicing it or copying it is an error."""

    is_cuda, shape, dtype = True, (3,), torch.int64
    made = 0

    def __init__(self) -> None:
        OnDevice.made += 1
        self.address = 1000 * OnDevice.made

    def data_ptr(self) -> int:
        return self.address

    def element_size(self) -> int:
        return 8

    def is_contiguous(self) -> bool:
        return True

    def stride(self, dim: int) -> int:
        return (3, 1)[dim]

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} costs the server time")


class Table(OnDevice):
    shape, dtype = (7, 3), torch.int32

    def element_size(self) -> int:
        return 4


class Event:
    made: list[Event] = []  # noqa: RUF012

    def __init__(self, blocking: bool):
        self.calls = [f"blocking={blocking}"]
        Event.made.append(self)

    def record(self, stream: str) -> None:
        self.calls.append(stream)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Grids and headers of the kernel's launches."""
    found: list[Any] = []
    empty = torch.empty

    def pinned(size: int, dtype: torch.dtype, pin_memory: bool) -> torch.Tensor:
        assert pin_memory
        return empty(size, dtype=dtype)

    def launch(grid: Any, given: tuple[torch.Tensor], warps: int, **constants: int) -> None:
        entries, (block,) = constants["ENTRIES"], given
        starts = block[: 4 * entries].view(torch.int32).tolist()
        words = block[4 * entries : snapshot.HEADER].view(torch.int64).reshape(entries, -1)
        count = sum(start < 2**31 - 1 for start in starts)
        found.append((grid, starts[:count], words[:count].tolist()))

    monkeypatch.setattr(snapshot.torch, "empty", pinned)
    monkeypatch.setattr(snapshot, "_gather", launch)
    monkeypatch.setattr(host.torch.cuda, "Event", Event)
    monkeypatch.setattr(host, "current_stream", lambda: 5)
    monkeypatch.setitem(host._streams, 5, "stream 5")
    monkeypatch.setitem(host._streams, 6, "stream 6")
    Event.made = []
    return found


def test_a_group_is_one_launch_and_nobody_waits(launches: list[Any]) -> None:
    copies, a, b, table, rows = HostCopies(), OnDevice(), OnDevice(), Table(), OnDevice()
    copies.take("a", a)  # type: ignore[arg-type]
    copies.take("b", b, 2)  # type: ignore[arg-type]
    copies.take_rows("c", table, 2, rows)  # type: ignore[arg-type]
    assert not launches  # nothing before the mark
    copies.mark()
    copies.mark()  # nothing since: no further copy
    ((grid, starts, words),) = launches
    assert (grid, starts) == ((3,), [0, 1, 2])
    assert words == [
        [a.address, 24, 0, 0, 0, 1, 4],
        [b.address, 16, 24, 0, 0, 1, 4],
        [table.address, 8, 40, 12, rows.address, 3, 4],
    ]
    (pack,) = copies.packs
    assert pack.entries == (("a", "int64", (3,)), ("b", "int64", (2,)), ("c", "int32", (3, 2)))
    assert not Event.made  # one at the end of the step is enough
    (copy,) = copies.fence()
    assert [event.calls for event in Event.made] == [["blocking=True", "stream 5"]]
    kept = [noted for noted, _ in copy.kept]
    assert [each.source for each in kept[0].values()] == [a, b, table]  # until it has arrived


def test_long_arrays_and_empty_ones_share_the_programs(launches: list[Any]) -> None:
    copies, long, odd = HostCopies(), OnDevice(), OnDevice()
    long.shape, odd.dtype, odd.address = (2000,), torch.uint8, 4 * odd.address + 2  # type: ignore[assignment]
    odd.element_size = lambda: 1  # type: ignore[method-assign]
    for name, source, length in (("a", long, 2000), ("none", long, 0), ("odd", odd, 3)):
        copies.take(name, source, length)  # type: ignore[arg-type]
    copies.mark()
    ((grid, starts, words),) = launches
    assert (grid, starts) == ((5,), [0, 4, 4])
    assert [row[1:3] + row[6:] for row in words] == [[16000, 0, 4], [0, 16000, 4], [3, 16000, 1]]


def test_a_step_that_is_given_up_frees_nothing_that_a_copy_uses(launches: list[Any]) -> None:
    source = OnDevice()
    before = sys.getrefcount(source)
    for _ in range(2):
        copies = HostCopies()
        copies.take("a", source)  # type: ignore[arg-type]
        copies.mark()
    del copies
    assert sys.getrefcount(source) > before
    for _ in range(host._latest.maxlen or 0):
        copies = HostCopies()
        copies.take("a", OnDevice())  # type: ignore[arg-type]
        copies.mark()
    assert sys.getrefcount(source) == before


def test_copies_of_an_earlier_hook_are_waited_for_too(
    launches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = HostCopies(), HostCopies()
    for name, copies in (("a", first), ("b", second)):
        copies.take(name, OnDevice())  # type: ignore[arg-type]
        copies.mark()
    first.take("c", OnDevice())  # type: ignore[arg-type]
    second.join(first)
    assert len(second.packs) == 2
    second.mark()
    monkeypatch.setattr(host, "current_stream", lambda: 6)
    second.take("d", OnDevice())  # type: ignore[arg-type]
    second.mark()
    assert [len(copy.kept) for copy in second.fence()] == [3, 1]
    assert [event.calls[1] for event in Event.made] == ["stream 5", "stream 6"]


def found_in(copies: HostCopies) -> dict[str, Any]:
    for copy in copies.fence():
        copy.event.synchronize()
    return {name: array.tolist() for pack in copies.packs for name, array in pack.arrays().items()}


def test_on_the_host_it_is_a_copy_at_once() -> None:
    copies, source = HostCopies(), torch.tensor([1, 2])
    copies.take("a", source)
    copies.take("b", torch.tensor([[True, False]]))
    copies.take("c", torch.tensor(5, dtype=torch.int32))
    copies.take("d", None)
    source += 1
    copies.mark()
    assert found_in(copies) == {"a": [1, 2], "b": [[True, False]], "c": 5}
    assert not copies.fence()


DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    ),
]


@pytest.mark.parametrize("device", DEVICES)
def test_arrays_as_they_stood_at_the_mark(device: str) -> None:
    copies = HostCopies()
    source = torch.arange(12, device=device).reshape(3, 4)
    table = torch.arange(20, dtype=torch.int32, device=device).reshape(4, 5)
    copies.take("first", source, 2)
    copies.take("strided", source[:, 1:3])
    copies.take("bool", source[0] > 1, 3)
    copies.take("float", source[1].float())
    copies.take("scalar", torch.tensor(7, device=device))
    copies.take("empty", source[:0])
    copies.take("cpu", torch.tensor([7]))
    copies.take_rows("rows", table, 3, torch.tensor([3, 1], device=device))
    copies.take_rows("narrow", table, 9, torch.tensor([2], dtype=torch.int32, device=device))
    copies.take("long", torch.arange(5000, dtype=torch.int16, device=device))
    copies.mark()
    source.zero_()  # later in the stream
    table.zero_()
    assert found_in(copies) == {
        "first": [[0, 1, 2, 3], [4, 5, 6, 7]],
        "strided": [[1, 2], [5, 6], [9, 10]],
        "bool": [False, False, True],
        "float": [4.0, 5.0, 6.0, 7.0],
        "scalar": 7,
        "empty": [],
        "cpu": [7],
        "rows": [[15, 16, 17], [5, 6, 7]],
        "narrow": [[10, 11, 12, 13, 14]],
        "long": list(range(5000)),
    }


@given(st.data())
def test_the_kernel_gathers_what_its_twin_does(data: st.DataObject) -> None:
    """On a GPU, or on the interpreter with the host's own addresses."""
    triton = pytest.importorskip("triton")
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("no CUDA device, and TRITON_INTERPRET is not 1")
    from engine.sglang.snapshot_kernel import gather_arrays

    on = "cuda" if torch.cuda.is_available() else "cpu"
    noted: dict[str, Noted] = {}
    for number in range(data.draw(st.integers(1, 4))):
        dtype = data.draw(st.sampled_from([torch.bool, torch.int16, torch.int32, torch.int64]))
        rows, columns = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 9))
        table = torch.randint(0, 2, (rows, columns)).to(on, dtype)
        if data.draw(st.booleans()):
            picked = [data.draw(st.integers(0, rows - 1)) for _ in range(3)]
            width = data.draw(st.integers(1, columns))
            own, shape = torch.tensor(picked, device=on), (3, width)
        else:
            own, shape = None, (data.draw(st.integers(0, rows)), columns)
        length = shape[0] * shape[1] * table.element_size()
        noted[f"{number}"] = Noted(table, shape, own, length)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot, "_gather", Launch(lambda: triton.jit(gather_arrays)))
        patch.setattr(snapshot, "CHUNK", 16)
        if on == "cpu":
            empty = torch.empty
            patch.setattr(
                snapshot.torch, "empty", lambda n, dtype, pin_memory: empty(n, dtype=dtype)
            )
        pack, plain = by_kernel(noted), by_torch(noted)
        if on == "cuda":
            torch.cuda.synchronize()
    expected = {name: values_of(each).tolist() for name, each in noted.items()}
    for made in (pack, plain):
        assert {name: array.tolist() for name, array in made.arrays().items()} == expected


def test_a_kernel_that_cannot_run_is_told_and_torch_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def broken(*given: Any, **constants: int) -> None:
        tried.append("kernel")
        raise ValueError("Pointer argument cannot be accessed from Triton")

    empty = torch.empty
    monkeypatch.setattr(snapshot, "_gather", broken)
    monkeypatch.setattr(snapshot.torch, "empty", lambda n, dtype, pin_memory: empty(n, dtype=dtype))
    gathering, source = Gathering(), torch.arange(5, dtype=torch.int32)
    for _ in range(2):
        pack = gathering({"a": Noted(source, (3,), None, 12), "b": Noted(source, (5,), None, 20)})
        assert [array.tolist() for array in pack.arrays().values()] == [[0, 1, 2], [0, 1, 2, 3, 4]]
    assert tried == ["kernel"]
    assert "cannot be accessed from Triton" in (gathering.problem or "")


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
