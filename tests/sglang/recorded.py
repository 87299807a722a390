"""What a tap has recorded, once it is there."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from engine.sglang.tap import Tap
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


def stop(taps: list[Tap]) -> None:
    """End what was started."""
    for tap in taps:
        if tap.stop is not None:
            tap.stop()


def lists(arrays: Any) -> list[list[int]]:
    return [array.tolist() for array in arrays]
