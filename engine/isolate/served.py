"""Cells on a server that is started here: with the cell's arguments, after a plain one that is asked first.

Cells that differ in batch, prompt, temperature and seed share one server. Each cell is asked twice; its speed, like
plain decoding's, is that of the faster time.

Not covered: whether a sampled text is drawn from the right distribution. A server's draws are its own, so a text at a
temperature is compared, but neither right nor wrong.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from engine.isolate.asking import Question, faster
from engine.isolate.cell import Cell
from engine.isolate.experiment import ServerSubject
from engine.isolate.launch import Launch, check_placeholders, launch_of, plain_launch
from engine.isolate.matrix import Matrix
from engine.isolate.measured import Measured
from engine.isolate.plain import Key, PlainBatch, compare, key_of, keys_of, plain_batch
from engine.isolate.plain_book import PLAIN_FILE, PlainBook
from engine.isolate.servers import Servers, Tick
from engine.isolate.started import GRACE, ServerDied
from engine.isolate.subject import Report
from engine.server.client import ServerError
from engine.trace.header import PromptRecord

TIMES = 2  # that each cell is asked


class ServedMeasure:
    """Measures cells one after another. Raises ``ValueError`` for an experiment that cannot be run.

    ``traces``: logs, what the tap writes, and a recording a cell; plain answers lie beside it.
    """

    def __init__(
        self, matrix: Matrix, subject: ServerSubject, traces: Path, *, grace: float = GRACE
    ) -> None:
        self.servers = Servers(subject, traces, grace)
        check_placeholders(matrix, subject)
        self.matrix, self.subject, self.traces = matrix, subject, traces
        self._book = PlainBook(traces.parent / PLAIN_FILE)
        self._plain_problem: str | None = None
        self._expected: dict[Cell, Launch] = {}  # what is measured later, in order

    def expect(self, cells: Sequence[Cell]) -> None:
        """Cells that will be measured, in order: their servers load ahead, as many at a time as the subject says."""
        self._expected = {cell: launch_of(self.subject, cell, self.traces) for cell in cells}

    def measure(self, cell: Cell, report: Report) -> Measured:
        """One cell."""
        started = time.perf_counter()
        try:
            self.ask_plain(report)
            found = self._measured(cell, report)
        except (ServerError, ServerDied) as error:
            found = Measured(cell, error=str(error))
        except BaseException:
            self.close()
            raise
        return replace(found, seconds=time.perf_counter() - started)

    def ask_plain(self, report: Report) -> None:
        """Ask the plain server whatever no line tells yet, and end it. Raises ``ServerError`` and ``ServerDied``."""
        missing = keys_of(self.matrix, self._book)
        if not missing:
            return
        if self._plain_problem is not None:
            raise ServerError(self._plain_problem)
        try:
            self._start(plain_launch(self.subject, self.matrix, self.traces), report)
            for number, key in enumerate(missing):
                words = f"plain decoding, batch {number + 1} of {len(missing)}"
                self._book.add(self._plain(number, key, partial(report, words, 0.0)))
        except BaseException as error:
            if isinstance(error, ServerError | ServerDied):
                self._plain_problem = str(error)
            self.close()
            raise
        self.servers.end()

    def close(self) -> None:
        """End every server that runs."""
        self.servers.close()

    def _start(self, launch: Launch, report: Report) -> None:
        self.servers.start(launch, lambda words: report(words, 0.0), self._expected.values())

    def _plain(self, number: int, key: Key, tick: Tick) -> PlainBatch:
        prompts, temperature, seed = key
        most = self.matrix.max_new_tokens
        self.servers.warm_up(prompts, most, tick)
        question = Question(prompts, most, temperature, seed, f"plain.{number}.0", margins=True)
        first = self.servers.ask(question, tick)
        again = replace(question, rid=f"plain.{number}.1", margins=False)
        return plain_batch(key, first, self.servers.ask(again, tick))

    def _measured(self, cell: Cell, report: Report) -> Measured:
        plain = self._book.get(key_of(self.matrix, cell))
        assert plain is not None
        self._expected.pop(cell, None)
        self._start(launch_of(self.subject, cell, self.traces), report)
        prompts, most = plain.prompts, self.matrix.max_new_tokens
        self.servers.warm_up(prompts, most, partial(report, "warming up", 0.5))
        question = Question(prompts, most, cell.temperature, cell.seed, f"{cell.key}.0")
        first = self.servers.ask(question, partial(report, "first time", 0.6))
        question = replace(question, rid=f"{cell.key}.1")
        second = self.servers.ask(question, partial(report, "again", 0.8))
        requests = compare(plain, first, second, self.subject.tie)
        done = Measured(
            cell,
            requests,
            tokens_per_s=faster(first, second),
            plain_tokens_per_s=plain.tokens_per_s,
        )
        return self._checked(done, partial(report, "checking what the tap wrote", 0.9))

    def _checked(self, done: Measured, tick: Tick) -> Measured:
        if self.servers.recorded is None:
            return done
        key, prompts = done.cell.key, prompts_of(done)
        kept = self.servers.recorded.of(key, self.traces, tick, prompts)
        if kept.checked is None:
            return replace(done, sentence=kept.why_not)
        return kept.checked.beside(done, kept.trace)


def prompts_of(measured: Measured) -> tuple[PromptRecord, ...]:
    """Each request of both times beside plain decoding, under the id that it was asked with."""
    return tuple(
        PromptRecord(
            f"{measured.cell.key}.{asked}.{number}",
            request.prompt,
            plain_tokens=request.plain_tokens,
            plain_text=request.plain_text,
        )
        for asked in range(TIMES)
        for number, request in enumerate(measured.requests)
    )
