"""The guard's other end: starts it, and takes in what it says of the command."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from engine.isolate import guard

FIRST_WORD = 30.0  # seconds until the guard must have said something
MARGIN = 5.0  # seconds beyond those that it gives the command to end


class Guarded:
    """A command under a guard. ``pid``: of the command and of its session; ``over``: its session is empty."""

    def __init__(
        self, command: Sequence[str], environment: dict[str, str], log: Path, grace: float
    ) -> None:
        self.pid: int | None = None
        self.status: int | None = None  # of the command once it has ended; negative: by a signal
        self.error: str | None = None  # why it could not be started
        self.over = False
        self._grace, self._rest = grace, b""
        words = [sys.executable, "-I", guard.__file__, str(grace), str(log), *command]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=0
        )
        try:
            self.listen(FIRST_WORD, until_started=True)
        except BaseException:
            self.end()
            raise

    def listen(self, seconds: float, *, until_started: bool = False) -> None:
        """Take in what the guard says, until it is gone or for so many seconds."""
        pipe, deadline = self._process.stdout, time.monotonic() + seconds
        assert pipe is not None
        with selectors.DefaultSelector() as ready:
            if not self.over:
                ready.register(pipe, selectors.EVENT_READ)
            while not (self.over or (until_started and self.pid is not None)):
                if not ready.select(max(0.0, deadline - time.monotonic())):
                    return
                data = os.read(pipe.fileno(), 4096)
                self.over = not data
                self._take(data)

    def release(self) -> None:
        """Have it ended, without waiting for that. A second call does nothing."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def end(self) -> None:
        """Have it ended; its session is empty when this returns. A second call does nothing."""
        assert self._process.stdout is not None
        self.release()
        if not self._process.stdout.closed:
            self.listen(self._grace + guard.AFTER_KILL + MARGIN)
            if self.pid is not None and self.status is None:  # somebody has killed the guard
                guard.end_session(self.pid, 0.0)
            self.over = True
            self._process.stdout.close()
            self._process.wait()

    @property
    def problem(self) -> str:
        """How it came to its end."""
        if self.error is not None:
            return f"cannot be started: {self.error}"
        if self.status is None:
            return "its guard has ended"
        return (
            f"ended by signal {-self.status}"
            if self.status < 0
            else f"ended with status {self.status}"
        )

    def _take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            word, _, rest = line.decode("utf-8", "replace").partition(" ")
            if word == "error":
                self.error = rest
            elif word == "pid":
                self.pid = int(rest)
            elif word == "status":
                self.status = int(rest)
