"""Messages through a pipe: any size, blocks untouched, an end within a message."""

from __future__ import annotations

import io
import os
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.sglang import wire
from engine.sglang.parcel import Parcel
from engine.sglang.raw import RawStep
from engine.sglang.wire import receive, send
from tests.sglang.raw_steps import worked_raw


def through_a_pipe(messages: list[Any]) -> list[Any]:
    reader, writer = os.pipe()
    sender = threading.Thread(
        target=lambda: [send(writer, m) for m in messages] and os.close(writer)
    )
    sender.start()
    with os.fdopen(reader, "rb") as stream:
        found = [receive(stream) for _ in messages]
        sender.join()
        with pytest.raises(EOFError):
            receive(stream)
    return found


@given(st.lists(st.lists(st.integers(0, 40_000), max_size=5), min_size=1, max_size=3))
def test_whatever_is_sent_arrives(sizes: list[list[int]]) -> None:
    rng = np.random.default_rng(0)
    messages = [[rng.integers(0, 256, n).astype(np.uint8) for n in each] for each in sizes]
    for found, sent in zip(through_a_pipe(messages), messages, strict=True):
        assert [a.tolist() for a in found] == [a.tolist() for a in sent]


def test_more_blocks_than_one_call_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "AT_ONCE", 3)
    blocks = [np.full(n, n % 256, np.uint8) for n in (5, 0, 70_000, 1, 1, 200_000, 3)]
    (found,) = through_a_pipe([blocks])
    assert [a.tolist() for a in found] == [a.tolist() for a in blocks]


def test_a_step_arrives_as_it_was(tmp_path: object) -> None:
    plain, made = through_a_pipe([worked_raw(3), Parcel.of(worked_raw(3))])
    for found in (plain, made):
        same_as_worked(found)


def same_as_worked(found: RawStep) -> None:
    assert (found.number, found.rids, found.laid) == (3, ("r3",), worked_raw(3).laid)
    assert found.array("draft_token").tolist() == [5, 9, 12, 30]
    assert found.array("custom_mask").dtype == np.bool_


def test_every_cut_of_a_message_is_an_end() -> None:
    reader, writer = os.pipe()
    send(writer, [np.arange(9, dtype=np.uint8), "name"])
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        whole = stream.read()
    assert receive(io.BytesIO(whole))[1] == "name"
    for length in range(len(whole)):
        with pytest.raises(EOFError):
            receive(io.BytesIO(whole[:length]))


def test_nobody_reads() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        send(writer, "nobody")
    os.close(writer)
