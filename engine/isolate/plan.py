"""What an experiment will run, and how long that takes: from cells that were measured, else from one that is tried."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from engine.isolate.cell import Cell
from engine.isolate.experiment import Experiment, ServerSubject
from engine.isolate.local import RUNS
from engine.isolate.measured import Measured


@dataclass(frozen=True)
class Plan:
    """What is left of an experiment."""

    cells: int  # in the matrix
    left: int  # not measured yet
    runs: int  # each decodes the prompts of a cell
    tokens: int  # at most, plain decoding's included
    server_starts: int  # 0 for the local engine
    seconds: float | None  # None: nothing that it could be told from
    basis: str  # what the seconds rest on, or why there are none
    ahead: int = 0  # of the starts, those that may go on at a time while another server is asked

    def __str__(self) -> str:
        starts = f", {self.server_starts} server starts" if self.server_starts else ""
        starts += f" (up to {self.ahead} ahead)" if self.ahead else ""
        left = "" if self.left == self.cells else f"{self.left} left of "
        time = f"about {duration(self.seconds)} ({self.basis})" if self.seconds else self.basis
        return f"{left}{self.cells} cells{starts}, {self.runs} runs, at most {self.tokens} tokens; {time}"


def plan_of(
    experiment: Experiment,
    results: Mapping[Cell, Measured],
    tried: tuple[Cell, float] | None = None,
) -> Plan:
    """``tried``: a cell and the seconds that it will take, for want of measured ones."""
    matrix = experiment.matrix
    left = [cell for cell in matrix if cell not in results]
    requests = sum(cell.batch for cell in left)
    seconds, basis = _time(experiment, results, requests, tried)
    starts = _starts(experiment, left, results)
    return Plan(
        cells=len(matrix),
        left=len(left),
        runs=RUNS * len(left),
        tokens=2 * RUNS * requests * matrix.max_new_tokens,
        server_starts=starts,
        seconds=seconds if left else None,
        basis=basis if left else "nothing is left",
        ahead=_ahead(experiment, starts),
    )


def hardest(cells: Collection[Cell]) -> Cell:
    """The cell to try: of the widest step and the fewest requests."""
    return max(cells, key=lambda cell: (cell.budget, -cell.batch, cell.graphs))


def duration(seconds: float) -> str:
    """``40 s``, ``3 min``, ``2 h 5 min``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _time(
    experiment: Experiment,
    results: Mapping[Cell, Measured],
    requests: int,
    tried: tuple[Cell, float] | None,
) -> tuple[float | None, str]:
    done = sum(cell.batch for cell in results)
    if done:
        spent = sum(result.seconds for result in results.values())
        return spent / done * requests, f"as the {len(results)} measured so far"
    if tried is not None:
        cell, seconds = tried
        return seconds / cell.batch * requests, f"from a few tokens of {cell.key}"
    if isinstance(experiment.subject, ServerSubject):
        patience = duration(experiment.subject.patience)
        return None, f"how long is known after the first cell; a start is waited for {patience}"
    return None, "how long is known after the first cell"


def _starts(
    experiment: Experiment, left: Collection[Cell], results: Mapping[Cell, Measured]
) -> int:
    """A server for each setting that it is started with, and once the plain one."""
    if not isinstance(experiment.subject, ServerSubject) or not left:
        return 0
    return len({(cell.budget, cell.topk, cell.graphs) for cell in left}) + (not results)


def _ahead(experiment: Experiment, starts: int) -> int:
    """The first server is waited for by itself."""
    subject = experiment.subject
    return min(subject.ahead, max(0, starts - 1)) if isinstance(subject, ServerSubject) else 0
