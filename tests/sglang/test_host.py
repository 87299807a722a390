"""Copies from a device, with stand-ins for the tensor, its stream and its events: what is called, and what is not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.sglang import host
from engine.sglang.host import HostCopies, NotCopied, capturing


class OnDevice:
    """A tensor that says it lies on a GPU; reading it on the host is an error."""

    is_cuda, shape, dtype = True, (3,), torch.int64

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def numel(self) -> int:
        return 3

    def element_size(self) -> int:
        return 8

    def detach(self) -> OnDevice:
        return self

    def record_stream(self, stream: Any) -> None:
        self.calls.append(("stream", stream))

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} would wait for the device")


class Target:
    def __init__(self, calls: list[Any]):
        self.calls = calls

    def copy_(self, source: Any, non_blocking: bool = False) -> None:
        self.calls.append(("copy", source, non_blocking))


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

    def empty(shape: Any, dtype: Any, pin_memory: bool) -> Target:
        calls.append(("empty", tuple(shape), pin_memory))
        return Target(calls)

    monkeypatch.setattr(host.torch, "empty", empty)
    monkeypatch.setattr(host.torch.cuda, "Event", Event)
    monkeypatch.setattr(host.torch.cuda, "current_stream", lambda: "stream 7")
    Event.made = []
    return calls


def test_a_copy_is_asynchronous_into_pinned_memory_and_nobody_waits(device: list[Any]) -> None:
    copies, source = HostCopies(), OnDevice()
    copies.take("a", source)  # type: ignore[arg-type]
    copies.take("b", source)  # type: ignore[arg-type]
    copies.mark()
    copies.mark()  # nothing since: no further event
    assert device[:2] == [("empty", (3,), True), ("copy", source, True)]
    assert source.calls == [("stream", "stream 7")] * 2
    assert [event.calls for event in Event.made] == [["blocking=True", "record"]]
    copies.wait()
    assert Event.made[0].calls[-1] == "synchronize"


def test_copies_of_an_earlier_hook_are_waited_for_too(device: list[Any]) -> None:
    first, second = HostCopies(), HostCopies()
    for copies in (first, second):
        copies.take("a", OnDevice())  # type: ignore[arg-type]
        copies.mark()
    second.join(first)
    second.wait()
    assert [event.calls[-1] for event in Event.made] == ["synchronize"] * 2


def test_on_the_host_it_is_a_copy_at_once() -> None:
    copies, source = HostCopies(), torch.tensor([1, 2])
    copies.take("a", source)
    source += 1
    copies.mark()
    assert copies.arrays["a"].tolist() == [1, 2]
    assert not copies.ready


def test_a_large_array_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "MAX_ARRAY_BYTES", 8)
    with pytest.raises(NotCopied, match="mask: expected at most 8 bytes, found 16"):
        HostCopies().take("mask", torch.tensor([1, 2]))


def test_capture_is_asked_of_tensors_on_a_device_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.torch.cuda, "is_current_stream_capturing", lambda: True)
    assert not capturing(torch.tensor([1]))
    assert not capturing(None)
    assert capturing(OnDevice())  # type: ignore[arg-type]
