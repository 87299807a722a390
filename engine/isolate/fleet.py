"""Servers that are alive at the same time, each on an address of its own until it has ended."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from engine.isolate.launch import Launch
from engine.isolate.recorded import Recorded
from engine.isolate.started import Say, StartedServer
from engine.server.client import Address, ServerError


@dataclass(eq=False)
class Held:
    """One of them."""

    server: StartedServer
    recorded: Recorded | None  # by its tap, since its start
    warm: set[tuple[str, ...]] = field(default_factory=set)  # batches that it has answered
    ready: bool = False  # it was, when it was waited for

    def wait(self, patience: float, say: Say) -> None:
        """See :meth:`StartedServer.wait`."""
        self.server.wait(patience, say)
        self.ready = True

    @property
    def spent(self) -> bool:
        """It was ready, and has ended since: another takes its place."""
        return self.ready and not self.server.alive


class Fleet:
    """At most one an address, those that are about to end included; nobody waits for these but for their address.

    Logs go to ``folder``; ``grace``: seconds between SIGTERM and SIGKILL.
    """

    def __init__(self, addresses: Sequence[Address], folder: Path, grace: float) -> None:
        self._addresses, self._folder, self._grace = addresses, folder, grace
        self._held: dict[Launch, Held] = {}
        self._ending: list[StartedServer] = []

    def start(self, launch: Launch, *, wait: bool = True) -> Held:
        """The one that was started, else a new one, which loads. ``wait``: for an address that is about to be free.

        Raises ``ServerError`` where every address is taken, and ``ServerDied``.
        """
        if launch not in self._held:
            self._reap([server for server in self._ending if not server.alive])
            recorded = None if launch.traces is None else Recorded(launch.traces)
            try:
                server = self._started(launch)
            except ServerError:
                if not (wait and self._ending):
                    raise
                self._reap(list(self._ending))
                server = self._started(launch)
            self._held[launch] = Held(server, recorded)
        return self._held[launch]

    def keep(self, launches: Collection[Launch]) -> None:
        """Have every other one end, and those that are spent."""
        self._release(
            [one for one, held in self._held.items() if one not in launches or held.spent]
        )

    def end(self, launch: Launch) -> None:
        """Have one end."""
        self._release([launch])

    def close(self) -> None:
        """End them all; none is left when this returns."""
        self._release(list(self._held))
        self._reap(list(self._ending))

    def _free(self) -> list[Address]:
        servers = [*(held.server for held in self._held.values()), *self._ending]
        used = {server.address for server in servers}
        return [address for address in self._addresses if address not in used]

    def _started(self, launch: Launch) -> StartedServer:
        """On the first address that is free."""
        log = self._folder / f"{launch.name}.log"
        free = self._free()
        if not free:
            raise ServerError("expected a free address, found servers on all of them")
        *others, last = free
        for address in others:
            with suppress(ServerError):
                return StartedServer(launch, address, log, grace=self._grace)
        return StartedServer(launch, last, log, grace=self._grace)

    def _release(self, launches: Iterable[Launch]) -> None:
        for launch in list(launches):
            server = self._held.pop(launch).server
            self._ending.append(server)
            server.release()
        if len(self._addresses) == 1:  # nothing could be done meanwhile
            self._reap(list(self._ending))

    def _reap(self, servers: list[StartedServer]) -> None:
        """Wait until these have ended."""
        for server in servers:
            server.end()
            self._ending.remove(server)
