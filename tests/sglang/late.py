"""Tensors of the host that are copied as those of a device are: noted by one hook, read when a later one starts it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.sglang import host
from engine.sglang.snapshot import Noted, on_host


class Event:
    def query(self) -> bool:
        """It has arrived."""
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""


def as_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tensor counts as one of a device; a copy holds what it reads at its mark."""
    note = host.HostCopies._note

    def noted(
        self: Any, name: str, source: torch.Tensor, shape: Any, rows: torch.Tensor | None
    ) -> None:
        apart = SimpleNamespace(packs=[], noted={})
        note(apart, name, source, shape, rows)  # type: ignore[arg-type]
        length = source.element_size() * math.prod(shape)
        self.noted[name] = Noted(source, shape, rows, length)

    monkeypatch.setattr(host.HostCopies, "_note", noted)
    monkeypatch.setattr(host, "gathering", on_host)
    monkeypatch.setattr(host, "current_stream", lambda: 5)
    monkeypatch.setattr(host, "recorded", lambda number: Event())
