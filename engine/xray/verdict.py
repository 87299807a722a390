"""Which of the four masks agree, request by request, and the sentence that follows.

intended ≠ built: the builder; built ≠ addressed: the metadata; addressed ≠ measured: the kernel. The first pair that
disagrees is named; the others are counted. Nothing is asked of padding rows, except that the kernel does with them what
the formula says. Prefix columns that the kernel does not read, and cells that the recorded buffer lacks, count as what
they should be.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from engine.layout import UNREAD, VISIBLE, Cells, MaskKind, MaskView, built_mask
from engine.oracle import Oracle
from engine.step import VerifyStep
from engine.xray.measure import Measurement
from engine.xray.seen import OUTSIDE

MOST_FOREIGN = 64  # listed a request; all are counted


class Fault(StrEnum):
    """Whose mistake the first differing pair is."""

    NONE = "clean"
    BUILDER = "builder"
    METADATA = "metadata"
    KERNEL = "kernel"


PAIRS = (
    (MaskKind.INTENDED, MaskKind.BUILT, Fault.BUILDER),
    (MaskKind.BUILT, MaskKind.ADDRESSED, Fault.METADATA),
    (MaskKind.ADDRESSED, MaskKind.MEASURED, Fault.KERNEL),
)


@dataclass(frozen=True)
class Pair:
    """Two neighbouring masks of one request."""

    left: MaskKind
    right: MaskKind
    cells: tuple[tuple[int, int], ...]  # local row and column of each differing cell
    foreign: int  # keys beyond the request's own columns that only the right side attends to, or only the left

    @property
    def agrees(self) -> bool:
        """Whether nothing differs."""
        return not self.cells and not self.foreign

    @property
    def name(self) -> str:
        """``built ≠ addressed``."""
        return f"{self.left} {'=' if self.agrees else '≠'} {self.right}"


@dataclass(frozen=True)
class Foreign:
    """A key that is no column of the request whose row attends to it."""

    row: int
    key: str  # in words
    times: int  # OUTSIDE: depends on a mask cell outside the recorded buffer


@dataclass(frozen=True, eq=False)
class Judged:
    """One request."""

    rid: str
    masks: dict[MaskKind, MaskView]
    num_nodes: int
    pairs: tuple[Pair, ...]
    fault: Fault
    unwritten: tuple[int, ...]  # local rows that the kernel did not write
    empty: tuple[int, ...]  # local rows that are written and attend to nothing
    contested: tuple[int, ...]  # local rows that several programs write
    outside: tuple[int, ...]  # local rows that read mask cells outside the recorded buffer
    foreign: tuple[Foreign, ...]  # measured, the first MOST_FOREIGN
    foreign_count: int
    repeated: tuple[tuple[int, int, int], ...]  # measured: row, column, times

    @property
    def first(self) -> Pair | None:
        """The first pair that disagrees; None where all agree."""
        return next((pair for pair in self.pairs if not pair.agrees), None)


def judge(step: VerifyStep, measurement: Measurement) -> list[Judged]:
    """Every live request."""
    oracle = Oracle(step)
    return [_judge(step, oracle, measurement, i) for i in range(step.raw_bs)]


def _judge(step: VerifyStep, oracle: Oracle, measured: Measurement, request: int) -> Judged:
    keys, prefix_len = measured.keys, int(oracle.prefix_lens[request])
    masks = {
        MaskKind.INTENDED: oracle.intended(request),
        MaskKind.BUILT: built_mask(step, oracle.geometry, request),
        MaskKind.ADDRESSED: measured.formula.mask(MaskKind.ADDRESSED, keys, request, prefix_len),
        MaskKind.MEASURED: measured.seen.mask(MaskKind.MEASURED, keys, request, prefix_len),
    }
    nodes = oracle.num_verified(request)
    rows = keys.columns[request][prefix_len:]
    pairs = tuple(
        _pair(left, right, masks, measured, request, nodes, oracle.reads_prefix())
        for left, right, _ in PAIRS
    )
    foreign = measured.seen.foreign(keys, request, prefix_len)
    rids = tuple(r.rid for r in step.requests)
    listed = tuple(
        Foreign(int(row), keys.name(int(key), rids), int(measured.seen.times[rows[row], key]))
        for row, key in foreign[:MOST_FOREIGN]
    )
    fault = next(
        (fault for pair, (*_, fault) in zip(pairs, PAIRS, strict=True) if not pair.agrees),
        Fault.NONE,
    )
    return Judged(
        step.requests[request].rid,
        masks,
        nodes,
        pairs,
        fault,
        _rows(~measured.seen.written[rows]),
        _rows(measured.seen.written[rows] & ~measured.seen.times[rows].any(axis=1)),
        _rows(measured.seen.contested[rows]),
        _rows((measured.seen.times[rows] == OUTSIDE).any(axis=1)),
        listed,
        len(foreign),
        tuple(map(tuple, measured.seen.repeated(keys, request, prefix_len).tolist())),
    )


def _rows(flags: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(np.flatnonzero(flags).tolist())


def _pair(
    left: MaskKind,
    right: MaskKind,
    masks: dict[MaskKind, MaskView],
    measured: Measurement,
    request: int,
    nodes: int,
    reads_prefix: bool,
) -> Pair:
    prefix_len = masks[left].prefix_len
    columns = measured.keys.columns[request]
    if right is MaskKind.MEASURED:
        rows = columns[prefix_len:]
        differs = _times_differ(measured, rows, columns)
    else:
        rows = columns[prefix_len:][:nodes]
        intended = masks[MaskKind.INTENDED].cells[:nodes]
        wanted, found = (
            _known(masks[kind].cells[:nodes], intended, prefix_len if not reads_prefix else 0)
            if kind is MaskKind.BUILT
            else masks[kind].cells[:nodes]
            for kind in (left, right)
        )
        differs = (wanted != found) & ((wanted == VISIBLE) | (found == VISIBLE))
    cells = tuple((int(r), int(c)) for r, c in np.argwhere(differs))
    return Pair(left, right, cells, _foreign(right, measured, request, rows))


def _known(built: Cells, intended: Cells, unread: int) -> Cells:
    """The built mask; cells that the buffer lacks, and the first ``unread`` columns, are what they should be."""
    cells = np.where(built == UNREAD, intended, built)
    cells[:, :unread] = intended[:, :unread]
    return cells


def _times_differ(
    measured: Measurement, rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Where kernel and formula differ in how often a row attends to a column; contested rows are left out."""
    seen, wanted = measured.seen, measured.formula
    differs: NDArray[np.bool_] = (
        seen.times[np.ix_(rows, columns)] != wanted.times[np.ix_(rows, columns)]
    )
    differs[seen.written[rows] != wanted.written[rows]] = True
    differs[seen.contested[rows]] = False
    return differs


def _foreign(right: MaskKind, measured: Measurement, request: int, rows: NDArray[np.int64]) -> int:
    """Keys beyond the request's columns in which the two sides differ."""
    if right is MaskKind.BUILT:
        return 0
    theirs = ~measured.keys.own(request)
    wanted = measured.formula.times[rows][:, theirs]
    if right is MaskKind.ADDRESSED:
        return int((wanted != 0).sum())
    settled = ~measured.seen.contested[rows]
    differs = (measured.seen.times[rows][:, theirs] != wanted) & settled[:, None]
    return int(differs.sum())
