"""A server that was started here: waited for, looked after, ended with everything that it started."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from engine.isolate.guarded import Guarded
from engine.isolate.launch import Launch, port_of
from engine.server.client import Address, Client, ServerError
from engine.server.ready import PROBE, wait_ready

GRACE = 10.0  # seconds between SIGTERM and SIGKILL
LAST_LINES, LAST_BYTES = 6, 2000  # of a log, in a message
CONNECT = 2.0  # seconds
LOOK = 0.1  # seconds from one question whether it is ready to the next

Say = Callable[[str], None]  # raising gives the wait up


class ServerDied(OSError):
    """The server has ended by itself, or cannot be started; the text holds the end of its log."""


class StartedServer:
    """One server, until :meth:`end` or the end of this process."""

    def __init__(
        self, launch: Launch, address: Address, log: Path, *, grace: float = GRACE
    ) -> None:
        """Raises ``ServerError`` where the port is taken, ``ServerDied`` where there is no such command."""
        _require_free(address)
        self.launch, self.address, self.log = launch, address, log
        for folder in (log.parent, launch.traces):
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        self._start = log.stat().st_size if log.exists() else 0
        port = port_of(address)
        command, environment = launch.command(port), os.environ | dict(launch.environment(port))
        self._began = time.monotonic()
        self._guarded = Guarded(command, environment, log, grace)
        if self._guarded.pid is None:
            self.end()
            raise ServerDied(f"{command[0]}: {self._guarded.problem}")

    @property
    def pid(self) -> int | None:
        """Of the command, and of the session that everything it starts belongs to."""
        return self._guarded.pid

    def wait(self, patience: float, say: Say) -> None:
        """Until it is ready. Raises ``ServerDied``, ``ServerError`` after ``patience`` seconds, what ``say`` raises.

        Patience counts from the start. One that has used it up unseen may still answer one question in its time.
        """

        def tick() -> None:
            say(f"{self.launch.name}: loading for {time.monotonic() - self._began:.0f} s")
            self.require_alive("while it loaded")

        tick()
        client, nap = Client(self.address, tick=tick), self._guarded.listen
        least = time.monotonic() - self._began + min(patience, PROBE)
        wait_ready(
            client,
            max(patience, least),
            lambda *_: tick(),
            sleep=lambda seconds: nap(min(seconds, LOOK)),
            since=self._began,
        )
        self.require_alive("while it loaded")  # somebody else may have answered

    @property
    def alive(self) -> bool:
        """Whether anything of it still runs."""
        self._guarded.listen(0.0)
        return not self._guarded.over

    def require_alive(self, when: str, within: float = 0.0) -> None:
        """Raises ``ServerDied``. ``within``: seconds that its end may take to be seen."""
        self._guarded.listen(within)
        if self._guarded.over:
            said = f"{self._guarded.problem} {when}"
            raise ServerDied(f"{self.launch.name}: {said}{self.last_lines()}")

    def last_lines(self) -> str:
        """End of what it has written since it was started."""
        with open(self.log, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self._start, size - LAST_BYTES))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()[-LAST_LINES:]
        said = "\n".join(lines)
        return f"; {self.log.name} ends:\n{said}" if said else f"; {self.log.name} is empty"

    def release(self) -> None:
        """Have it ended, without waiting for that."""
        self._guarded.release()

    def end(self) -> None:
        """Everything that it started is over when this returns; a second call does nothing."""
        self._guarded.end()


def _require_free(address: Address) -> None:
    """Raises ``ServerError`` where somebody listens."""
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((address.host, port), CONNECT).close()
    except OSError:
        return
    raise ServerError(f"{address}: expected a free port, found a server that listens there already")
