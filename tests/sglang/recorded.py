"""What a tap has recorded, once it is there."""

from __future__ import annotations

import io
import time
from contextlib import suppress
from itertools import pairwise
from typing import Any

from engine.sglang.parcel import Parcel
from engine.sglang.raw import RawStep
from engine.sglang.tap import Tap
from engine.sglang.wire import receive
from engine.step import VerifyStep
from engine.trace import TraceFormatError, open_trace
from tests.sglang.serving import Server

PATIENCE = 10.0


def steps(server: Server, count: int) -> list[VerifyStep]:
    """The recording, once so many steps are in it."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = []
        with suppress(TraceFormatError, FileNotFoundError):  # not there yet
            found = list(open_trace(server.folder))
        if len(found) >= count:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{count} steps were not written: {server.tap}")


def unpacked(parcels: list[Parcel]) -> list[RawStep]:
    """As the writer's process has them, each told what it committed by the next."""
    found = [receive(io.BytesIO(b"".join(parcel.message))) for parcel in parcels]
    for step, following in pairwise(found):
        step.told_by(following)
    return found


def stop(taps: list[Tap]) -> None:
    """End what was started."""
    for tap in taps:
        if tap.stop is not None:
            tap.stop()


def lists(arrays: Any) -> list[list[int]]:
    return [array.tolist() for array in arrays]
