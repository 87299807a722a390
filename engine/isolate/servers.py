"""The one server that runs: started when another is needed, warmed up, asked, ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.isolate.asking import Question, Together, ask_together
from engine.isolate.experiment import ServerSubject
from engine.isolate.launch import Launch
from engine.isolate.recorded import Recorded
from engine.isolate.started import ServerDied, StartedServer
from engine.server.client import Client, ServerError, address_of

WARM = 8  # tokens that are not counted
DYING = 1.0  # seconds after a lost answer in which the end of the server is seen

Say = Callable[[str], None]
Tick = Callable[[], None]


class Servers:
    """At most one at a time. Logs go to ``folder``; ``grace``: seconds between SIGTERM and SIGKILL."""

    def __init__(self, subject: ServerSubject, folder: Path, grace: float) -> None:
        self.starts = 0
        self.recorded: Recorded | None = None  # by the tap of the one that runs
        self._subject, self._folder, self._grace = subject, folder, grace
        self._address = address_of(subject.url)
        self._running: StartedServer | None = None
        self._warm: set[tuple[str, ...]] = set()  # batches that it has answered
        self._refused: dict[Launch, str] = {}  # why a server is not started again

    def start(self, launch: Launch, say: Say) -> None:
        """Have this server run, ready. Raises ``ServerError``, ``ServerDied``, and what ``say`` raises."""
        running = self._running
        if running is not None and running.launch == launch and running.alive:
            return
        self.close()
        if launch in self._refused:
            raise ServerDied(f"not started again: {self._refused[launch]}")
        recorded = None if launch.traces is None else Recorded(launch.traces)
        log = self._folder / f"{launch.name}.log"
        self._running = StartedServer(launch, self._address, log, grace=self._grace)
        self.starts += 1
        try:
            self._running.wait(self._subject.patience, say)
        except (ServerError, ServerDied) as error:
            ends = "" if isinstance(error, ServerDied) else self._running.last_lines()
            self._refused[launch] = f"{error}{ends}"
            self.close()
            raise ServerDied(self._refused[launch]) from None
        self.recorded = recorded

    def warm_up(self, prompts: tuple[str, ...], max_new_tokens: int, tick: Tick) -> None:
        """Ask once what will be asked, so that what is compiled and cached then is so for every later time."""
        if prompts not in self._warm:
            most = min(WARM, max_new_tokens)
            self.ask(Question(prompts, most, 0.0, 0, f"warm.{len(self._warm)}"), tick)
            self._warm.add(prompts)

    def ask(self, question: Question, tick: Tick) -> Together:
        """One batch. Raises ``ServerError``, ``ServerDied``, and what ``tick`` raises.

        A server that does not answer in time is in no known state: it is ended.
        """
        server, timeout = self._running, self._subject.timeout
        assert server is not None

        def look() -> None:
            tick()
            server.require_alive("while it answered")

        def client(give_up: Tick) -> Client:
            return Client(self._address, timeout=timeout, tick=give_up)

        try:
            try:
                return ask_together(question, client, look)
            except ServerError as error:
                server.require_alive("while it answered", within=DYING)
                if error.status is None:
                    self.close()
                raise ServerError(f"{error}{server.last_lines()}", error.status) from None
        except ServerDied:
            self.close()
            raise

    def close(self) -> None:
        """End the one that runs."""
        if self._running is not None:
            self._running.end()
        self._running = self.recorded = None
        self._warm.clear()
