"""Signals of processes that tests start."""

from __future__ import annotations

import signal


def hears_interrupts() -> None:
    """In the child: a shell that runs the tests in the background has its children ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
