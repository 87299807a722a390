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
    """At most one an address. Logs go to ``folder``; ``grace``: seconds between SIGTERM and SIGKILL."""

    def __init__(self, addresses: Sequence[Address], folder: Path, grace: float) -> None:
        self._addresses, self._folder, self._grace = addresses, folder, grace
        self._held: dict[Launch, Held] = {}

    def start(self, launch: Launch) -> Held:
        """The one that was started, else a new one, which loads.

        Raises ``ServerError`` where every address is taken by somebody else, and ``ServerDied``.
        """
        if launch not in self._held:
            recorded = None if launch.traces is None else Recorded(launch.traces)
            self._held[launch] = Held(self._started(launch), recorded)
        return self._held[launch]

    def keep(self, launches: Collection[Launch]) -> None:
        """End every other one, and those that are spent."""
        self._end([one for one, held in self._held.items() if one not in launches or held.spent])

    def end(self, launch: Launch) -> None:
        """End one."""
        self._end([launch])

    def close(self) -> None:
        """End them all."""
        self._end(list(self._held))

    def _started(self, launch: Launch) -> StartedServer:
        """On the first address that is free."""
        log = self._folder / f"{launch.name}.log"
        used = {held.server.address for held in self._held.values()}
        *others, last = [address for address in self._addresses if address not in used]
        for address in others:
            with suppress(ServerError):
                return StartedServer(launch, address, log, grace=self._grace)
        return StartedServer(launch, last, log, grace=self._grace)

    def _end(self, launches: Iterable[Launch]) -> None:
        """All are told before one is waited for."""
        ending = list(launches)
        for launch in ending:
            self._held[launch].server.release()
        for launch in ending:
            self._held[launch].server.end()
            del self._held[launch]
