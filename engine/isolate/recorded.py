"""What the tap wrote of one cell: its steps, told by their request ids, in a recording of their own, and checked.

A server goes on recording while cells come and go; nothing is read twice.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from engine.checks.registry import TraceChecker
from engine.isolate.checked import Checked
from engine.step import VerifyStep
from engine.trace.errors import TraceFormatError
from engine.trace.header import PromptRecord, TraceHeader
from engine.trace.reader import StepFile, open_file
from engine.trace.writer import SUFFIX, TraceWriter

SUFFIXES = (SUFFIX, ".jsonl")
QUIET, LONGEST, LOOK = 0.4, 10.0, 0.1  # seconds

Tick = Callable[[], None]  # raising ends it


@dataclass(frozen=True)
class Kept:
    """The steps of a cell. ``why_not``: where there are none to judge."""

    checked: Checked | None = None
    trace: str | None = None
    why_not: str | None = None


@dataclass
class _Group:
    header: TraceHeader
    steps: list[VerifyStep] = field(default_factory=list)


class Recorded:
    """What comes into one folder from now on, as far as it was read. A tap that starts again writes new files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}  # steps
        self._old = frozenset(recordings_below(folder))

    def of(self, rid: str, place: Path, tick: Tick, prompts: tuple[PromptRecord, ...] = ()) -> Kept:
        """What the checks say of the steps whose requests' ids begin with ``rid``, and the name in ``place`` of the
        recording that holds them, with ``prompts`` and what plain decoding wrote. Raises what ``tick`` does.
        """
        self._settle(tick)
        problems: list[str] = []
        groups = self._new(rid, problems)
        if problems:
            return Kept(why_not=problems[0])
        if not groups:
            return Kept(why_not=f"the tap wrote no step of this cell below {self._folder}")
        for group in groups:
            group.header = replace(group.header, prompts=prompts)
        kept = [_keep(group, free_place(place, rid), tick) for group in groups]
        faulty = [one for one in kept if one[0].findings]
        return Kept(_together([checked for checked, _ in kept]), (faulty or kept)[0][1])

    def _settle(self, tick: Tick) -> None:
        """Wait until nothing has been written for a moment: the tap writes a little later than the server answers."""
        began = changed = time.monotonic()
        sizes = self._sizes()
        while time.monotonic() - changed < QUIET and time.monotonic() - began < LONGEST:
            tick()
            time.sleep(LOOK)
            if (now := self._sizes()) != sizes:
                sizes, changed = now, time.monotonic()

    def _sizes(self) -> dict[Path, int]:
        return {path: _size(path) for path in self._files()}

    def _files(self) -> list[Path]:
        return [path for path in recordings_below(self._folder) if path not in self._old]

    def _new(self, rid: str, problems: list[str]) -> list[_Group]:
        """Of each folder: ranks of one group write side by side."""
        groups: dict[Path, _Group] = {}
        for path in self._files():
            try:
                file = open_file(path)
            except (TraceFormatError, OSError) as problem:
                if _size(path):
                    problems.append(str(problem))
                continue
            if steps := self._of_file(path, file, rid, problems):
                groups.setdefault(path.parent, _Group(file.header)).steps.extend(steps)
        return list(groups.values())

    def _of_file(
        self, path: Path, file: StepFile, rid: str, problems: list[str]
    ) -> list[VerifyStep]:
        steps = []
        for number in range(self._read.get(path, 0), len(file)):
            try:
                step = file.step(number)
            except (TraceFormatError, OSError) as problem:
                problems.append(str(problem))
                continue
            if any(request.rid.startswith(rid + ".") for request in step.requests):
                steps.append(step)
        self._read[path] = len(file)
        return steps


def recordings_below(folder: Path) -> list[Path]:
    """In order of their names."""
    return sorted(path for path in folder.rglob("*") if path.name.endswith(SUFFIXES))


def _size(path: Path) -> int:
    """Bytes; 0 where the tap has just removed it to make room."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _keep(group: _Group, path: Path, tick: Tick) -> tuple[Checked, str]:
    """Write and check the steps of one group of ranks, in order of time."""
    checker = TraceChecker()
    with TraceWriter(path, group.header) as out:
        for step in sorted(group.steps, key=lambda s: (s.step, s.rank)):
            tick()
            out.write(step)
            checker.feed(step)
    return Checked.of(checker.report()), path.name


def _together(groups: list[Checked]) -> Checked:
    def total(name: str) -> dict[str, int]:
        return dict(sum((Counter(getattr(group, name)) for group in groups), Counter()))

    sentence = next((group.sentence for group in groups if group.sentence), None)
    return Checked(total("findings"), total("diagnoses"), total("effects"), sentence)


def free_place(folder: Path, name: str) -> Path:
    """Recordings are never overwritten: what is measured again gets a new name."""
    folder.mkdir(parents=True, exist_ok=True)
    names = (folder / f"{name}{f'.{n}' if n else ''}{SUFFIX}" for n in count())
    return next(path for path in names if not path.exists())
