"""The server whose turn it is: started where it does not load already, waited for, warmed up, asked, ended.

Those whose turn comes next may load ahead meanwhile. They are not asked, but may slow the one that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from engine.isolate.asking import Question, Together, ask_together
from engine.isolate.experiment import ServerSubject
from engine.isolate.fleet import Fleet, Held
from engine.isolate.launch import Launch, addresses_of
from engine.isolate.recorded import Recorded
from engine.isolate.started import ServerDied
from engine.server.client import Client, ServerError

WARM = 8  # tokens that are not counted
DYING = 1.0  # seconds after a lost answer in which the end of the server is seen

Say = Callable[[str], None]
Tick = Callable[[], None]


class Servers:
    """One that is asked and at most ``subject.ahead`` that load. Logs go to ``folder``.

    ``grace``: seconds between SIGTERM and SIGKILL.
    """

    def __init__(self, subject: ServerSubject, folder: Path, grace: float) -> None:
        self._subject = subject
        self._fleet = Fleet(addresses_of(subject), folder, grace)
        self._turn: Held | None = None
        self._next: list[Launch] = []
        self._refused: dict[Launch, str] = {}  # why a server is not started again

    @property
    def recorded(self) -> Recorded | None:
        """By the tap of the one whose turn it is."""
        return None if self._turn is None else self._turn.recorded

    def start(self, launch: Launch, say: Say, later: Iterable[Launch] = ()) -> None:
        """Have this server run, ready, and the first of those that are needed ``later`` load.

        Raises ``ServerError``, ``ServerDied``, and what ``say`` raises.
        """
        turn = self._turn
        if turn is not None and turn.server.launch == launch and turn.server.alive:
            return
        self._turn = None
        ahead = self._ahead(launch, later)
        self._fleet.keep({launch, *ahead})
        if launch in self._refused:
            raise ServerDied(f"not started again: {self._refused[launch]}")
        held = self._fleet.start(launch)
        self._next = ahead
        self._load_ahead()
        try:
            held.wait(self._subject.patience, say)
        except (ServerError, ServerDied) as error:
            ends = "" if isinstance(error, ServerDied) else held.server.last_lines()
            self._refused[launch] = f"{error}{ends}"
            self._fleet.end(launch)
            raise ServerDied(self._refused[launch]) from None
        self._turn = held

    def warm_up(self, prompts: tuple[str, ...], max_new_tokens: int, tick: Tick) -> None:
        """Ask once what will be asked, so that what is compiled and cached then is so for every later time."""
        assert self._turn is not None
        warm = self._turn.warm
        if prompts not in warm:
            most = min(WARM, max_new_tokens)
            self.ask(Question(prompts, most, 0.0, 0, f"warm.{len(warm)}"), tick)
            warm.add(prompts)

    def ask(self, question: Question, tick: Tick) -> Together:
        """One batch. Raises ``ServerError``, ``ServerDied``, and what ``tick`` raises.

        A server that does not answer in time is in no known state: it is ended.
        """
        assert self._turn is not None
        self._load_ahead()  # an address may have become free
        server, timeout = self._turn.server, self._subject.timeout

        def look() -> None:
            tick()
            server.require_alive("while it answered")

        def client(give_up: Tick) -> Client:
            return Client(server.address, timeout=timeout, tick=give_up)

        try:
            try:
                return ask_together(question, client, look)
            except ServerError as error:
                server.require_alive("while it answered", within=DYING)
                if error.status is None:
                    self.end()
                raise ServerError(f"{error}{server.last_lines()}", error.status) from None
        except ServerDied:
            self.end()
            raise

    def end(self) -> None:
        """End the one whose turn it is; those that load go on."""
        if self._turn is not None:
            self._fleet.end(self._turn.server.launch)
        self._turn = None

    def close(self) -> None:
        """End them all."""
        self._turn, self._next = None, []
        self._fleet.close()

    def _load_ahead(self) -> None:
        waiting = []
        for launch in self._next:
            try:
                self._fleet.start(launch, wait=False)
            except ServerError:  # no address is free: tried again soon
                waiting.append(launch)
            except ServerDied:  # told when its turn comes
                pass
        self._next = waiting

    def _ahead(self, launch: Launch, later: Iterable[Launch]) -> list[Launch]:
        """Those that load while this one has its turn, in order."""
        found: list[Launch] = []
        for other in later if self._subject.ahead else ():
            if other != launch and other not in found and other not in self._refused:
                found.append(other)
                if len(found) == self._subject.ahead:
                    break
        return found
