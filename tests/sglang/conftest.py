"""Servers of the double with the tap on them, whose tensors count as the host's or as a device's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.sglang.attach import attach
from engine.sglang.tap import Tap
from tests.sglang import server_double as double
from tests.sglang.late import as_on_a_device
from tests.sglang.recorded import stop
from tests.sglang.serving import Server


@pytest.fixture(params=["on the host", "as on a device"])
def serve(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Server]]:
    if request.param == "as on a device":
        as_on_a_device(monkeypatch)
    taps: list[Tap] = []

    def started() -> Server:
        taps.append(attach(tmp_path, hook_on, {}))
        return Server(tmp_path, taps[-1])

    with double.installed() as hook_on:
        yield started
    stop(taps)
