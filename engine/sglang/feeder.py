"""Feeder: a thread of the server that hands steps to the writer's process, and what is wanted to the hooks.

It wakes some twenty times a second and passes on all that has come in one system call: each time that it runs, the
server's own thread cannot.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.sglang.control import ControlError, read_control
from engine.sglang.host import gathering
from engine.sglang.parcel import Parcel
from engine.sglang.recorder import Recorder, Report, health_file, write_health
from engine.sglang.sink import Sink
from engine.sglang.tap import Tap
from engine.sglang.wire import send
from engine.sglang.writer import Opening

PAUSE = 0.04  # seconds between two looks
LYING = 1.0  # seconds after which a step is taken that the server has not put together: slow ones come before that
PERIOD = 1.0  # seconds between two reports
MOST = 128  # steps that are sent together
PIPE_BYTES = 1 << 20
LOST = "stopped: the writer's process has ended"


class Feeder:
    """Call :meth:`start` once; the thread is a daemon and ends with the process."""

    def __init__(self, tap: Tap, opening: Opening) -> None:
        self._tap, self._opening = tap, opening
        self._problem: str | None = None  # of the control file
        self._due = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ddtree-tap", daemon=True)
        self._writer: subprocess.Popen[bytes] | None = None
        self._seen: Any = None  # the oldest step that was not put together at the last look
        self._since = 0.0  # when it was first seen
        self._lost: str | None = None  # why nothing is written any more

    def start(self) -> None:
        """Read the control file, start the writer and begin. Raises ``OSError``."""
        self._writer = start_writer()
        self._send(self._opening)
        self._report()  # before any step: the first may be wanted only if it fails
        self._thread.start()
        atexit.register(self.stop)  # a thread inside native code must not outlive the interpreter

    def stop(self, timeout: float = 10.0) -> None:
        """Pass on what is waiting and end the writer once it has written it; a second call does nothing."""
        atexit.unregister(self.stop)
        self._ending.set()
        self._thread.join(timeout)
        if self._writer is not None:
            with suppress(subprocess.TimeoutExpired):
                self._writer.wait(timeout)

    def _run(self) -> None:
        while not self._ending.wait(PAUSE):
            self._look()
        self._due = 0.0
        self._look()
        self._send(None)
        self._close()

    def _look(self) -> None:
        """Pass on everything that waits, so many at a time. Whatever fails is told; the thread goes on."""
        try:
            self._pass_on()
            self._left()
            self._report()
        except Exception as error:  # of these steps: the next may be sound
            self._tap.counts.last_error = f"{type(error).__name__}: {error}"[:500]

    def _left(self) -> None:
        """The last step before a pause: the server puts a step together with the next one, and there is none.

        Sent when the server may put steps together again: the writer may keep us waiting.
        """
        waiting, steps, now = self._tap.unmade, list[Parcel](), time.monotonic()
        with self._tap.making:
            oldest, ending = next(iter(tuple(waiting)), None), self._ending.is_set()
            if oldest is not self._seen:
                self._seen, self._since = oldest, now
            lying = oldest is not None and now - self._since >= LYING
            while waiting and (ending or lying):
                steps += self._packed(waiting.popleft())
                lying, self._seen = False, None
            earlier = self._tap.ring.take(len(self._tap.ring)) if steps else []
        if steps:
            self._send_arrived([*earlier, *steps])

    def _packed(self, unmade: Any) -> list[Parcel]:
        """A list of one, or of none if that fails, which is told."""
        try:
            return [Parcel.of(unmade.made())]
        except Exception as error:
            self._tap.counts.last_error = f"{type(error).__name__}: {error}"[:500]
            return []

    def _pass_on(self) -> None:
        while steps := self._tap.ring.take(MOST):
            self._send_arrived(steps)

    def _send_arrived(self, steps: list[Parcel]) -> None:
        arrived = [step for step in steps if self._arrived(step)]
        if arrived:
            self._send(*arrived)

    def _arrived(self, step: Parcel) -> bool:
        try:
            step.wait()
        except Exception as error:  # of the device, which the server meets too
            self._tap.ring.dropped += 1
            self._tap.counts.last_error = f"{type(error).__name__}: {error}"[:500]
            return False
        return True

    def _send(self, *messages: Any) -> None:
        if self._lost is not None or self._writer is None or self._writer.stdin is None:
            return
        try:
            send(self._writer.stdin.fileno(), *messages)
        except OSError as error:
            self._lost = f"{LOST} ({type(error).__name__}, exit status {self._writer.poll()})"
            self._close()

    def _close(self) -> None:
        if self._writer is not None and self._writer.stdin is not None:
            with suppress(OSError):
                self._writer.stdin.close()

    def _report(self) -> None:
        """Once a second: what is wanted, and how things stand."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + PERIOD
        self._read_control()
        counts, ring = self._tap.counts, self._tap.ring
        report = Report(
            self._tap.control,
            self._problem,
            dropped=ring.dropped,
            gathering=gathering.problem,
            paces=self._tap.pace.take(),
            spent={name: (own.before, own.after) for name, own in self._tap.spent.items()},
            **asdict(counts),
        )
        self._send(report)
        if self._lost is not None:
            self._say_lost(report)

    def _read_control(self) -> None:
        try:
            self._tap.control, self._problem = read_control(self._opening.folder), None
        except ControlError as problem:
            self._problem = str(problem)

    def _say_lost(self, report: Report) -> None:
        """The health file in the writer's place. Steps are no longer recorded."""
        opening = self._opening
        recorder = Recorder(
            Sink(opening.place, opening.name, opening.header, opening.form),
            opening.origin,
            opening.folder,
            opening.facts,
        )
        recorder.report, recorder.counts.state = report, str(self._lost)
        write_health(opening.folder / health_file(opening.origin), recorder.health())


def start_writer() -> subprocess.Popen[bytes]:
    """A process of its own session, so that what ends the server's does not cut a step in two. Raises ``OSError``."""
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), *sys.path)))
    environment = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
    environment.update(OMP_NUM_THREADS="1")
    writer = subprocess.Popen(
        [sys.executable, "-m", "engine.sglang.writer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    with suppress(OSError, AttributeError):
        assert writer.stdin is not None
        fcntl.fcntl(writer.stdin.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return writer
