"""Findings as lanes of a strip: one a cause, or one a rank; neighbouring steps share a mark where there are many.

A mark's number is the place of a finding in a list that is returned beside the lanes: the one that a click goes to, the
first of its steps, a cause before a consequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.checks.finding import Finding, Verdict
from workbench.causes import CauseGroup
from workbench.figures.lane_strip import Lane, LaneMark
from workbench.tokens import shorten, visible
from workbench.verdict import plural

MOST_LANES = 24
MOST_MARKS = 3000  # of a figure
MOST_BINS, FEWEST_BINS = 300, 100  # of a lane

Lanes = tuple[list[Lane], list[Finding]]


def cause_lanes(groups: Sequence[CauseGroup], steps: tuple[int, int], *, ranks: int = 1) -> Lanes:
    """A lane a cause, all ranks together; at most :data:`MOST_LANES`. ``ranks``: how many there are."""
    shown = [(g.diagnosis, g.verdict, g.findings, g.consequences) for g in groups[:MOST_LANES]]
    return _lanes(shown, steps, name_ranks=ranks > 1)


def rank_lanes(group: CauseGroup, steps: tuple[int, int], ranks: Sequence[int]) -> Lanes:
    """A lane a rank; one without a name where there is one rank, or too many to draw."""
    if not 1 < len(ranks) <= MOST_LANES:
        whole = [("", group.verdict, group.findings, group.consequences)]
        return _lanes(whole, steps, name_ranks=len(ranks) > 1)
    own: dict[int | None, tuple[list[Finding], list[Finding]]] = {r: ([], []) for r in ranks}
    for place, findings in enumerate((group.findings, group.consequences)):
        for finding in findings:
            own.setdefault(finding.rank, ([], []))[place].append(finding)
    shown = [(f"rank {rank}", group.verdict, *own[rank]) for rank in ranks]
    return _lanes(shown, steps, name_ranks=False)


def bin_width(steps: tuple[int, int], lanes: int) -> int:
    """Steps that share a mark."""
    bins = min(MOST_BINS, max(FEWEST_BINS, MOST_MARKS // max(lanes, 1)))
    return max(1, -(-(steps[1] - steps[0] + 1) // bins))


def _lanes(
    shown: Sequence[tuple[str, Verdict, Iterable[Finding], Iterable[Finding]]],
    steps: tuple[int, int],
    *,
    name_ranks: bool,
) -> Lanes:
    width, targets, lanes = bin_width(steps, len(shown)), [], []
    for label, verdict, findings, consequences in shown:
        bins: dict[int, tuple[list[Finding], list[Finding]]] = {}
        for place, members in enumerate((findings, consequences)):
            for finding in members:
                if finding.step is not None:
                    number = (finding.step - steps[0]) // width
                    bins.setdefault(number, ([], []))[place].append(finding)
        marks = []
        for number, (own, followers) in sorted(bins.items()):
            start = steps[0] + number * width
            stop = min(start + width, steps[1] + 1)
            target = min(own or followers, key=lambda f: (f.step or 0, f.rank or 0))
            hover = _hover(label, start, stop, own, followers, target, name_ranks=name_ranks)
            marks.append(LaneMark(start, stop, len(own), len(followers), len(targets), hover))
            targets.append(target)
        lanes.append(Lane(label, verdict is Verdict.FAULT, tuple(marks)))
    return lanes, targets


def _hover(
    label: str,
    start: int,
    stop: int,
    own: Sequence[Finding],
    followers: Sequence[Finding],
    target: Finding,
    *,
    name_ranks: bool,
) -> tuple[str, ...]:
    where = f"step {start}" if stop - start == 1 else f"steps {start}-{stop - 1}"
    counts = [plural(len(own), "finding")] if own else []
    counts += [plural(len(followers), "consequence")] if followers else []
    lines = [" · ".join(filter(None, (label, where))), ", ".join(counts)]
    if name_ranks:
        lines.append(f"on {_numbers('rank', (f.rank for f in (*own, *followers)))}")
    lines.append(shorten(visible(target.message.replace("`", "")), 110))
    place = [f"step {target.step}", f"rank {target.rank}" if target.rank else ""]
    place.append(f"request {shorten(visible(target.request), 40)}" if target.request else "")
    lines.append(f"a click goes to {', '.join(filter(None, place))}")
    return tuple(lines)


def _numbers(noun: str, values: Iterable[int | None]) -> str:
    """``rank 3`` or ``ranks 0-3, 6``."""
    found = sorted({value for value in values if value is not None})
    runs: list[list[int]] = []
    for value in found:
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"{noun}{'s' * (len(found) > 1)} {text}"
