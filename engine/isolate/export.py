"""An experiment as one zip: the verdict in words, what was tried, what came of it, and the recordings of some cells.

Values of environment variables are left out; prompts, texts and command lines go in, since they are what is judged.
Reading trusts nothing: names, sizes and every field are checked, and the folder appears whole or not at all.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from engine.isolate.cell import Cell
from engine.isolate.codec import EXPERIMENT, MEASURED
from engine.isolate.experiment import Experiment, ServerSubject
from engine.isolate.store import RESULTS, TRACES, WHAT, Store
from engine.trace import archive, limits
from engine.trace.archive import Contents

README = "README.txt"
SUFFIX = ".isolate.zip"
MOST_TRACES = 64
TRACE = re.compile(rf"{TRACES}/[\w-][\w.-]{{0,110}}", re.ASCII)
LEFT_OUT = "…"  # in place of a value of the environment
HOW = "The Isolate page of the DDTree workbench opens this file; recordings lie in traces/."


def _known(name: str) -> bool:
    return name in (README, WHAT, RESULTS) or TRACE.fullmatch(name) is not None


CONTENTS = Contents(
    *("an experiment", f"{README}, {WHAT}, {RESULTS} and {TRACES}/…", _known, (WHAT,)),
    most_bytes=2 * limits.MAX_MEMBER_BYTES,
)


def pack_lab(store: Store, words: str, recorded: Iterable[Cell] = ()) -> bytes:
    """The zip. ``words``: what came of it, for people. ``recorded``: cells whose recordings go in, where they have one.

    Raises ``ValueError`` for more than could be read back.
    """
    experiment, results = without_secrets(store.experiment), store.results.copy()
    traces = _traces(store, recorded)
    if len(traces) > MOST_TRACES:
        raise ValueError(f"recordings: expected at most {MOST_TRACES}, found {len(traces)}")
    members = {
        README: f"{words.rstrip()}\n\n{HOW}\n".encode(),
        WHAT: f"{EXPERIMENT.dumps(experiment)}\n".encode(),
        RESULTS: "".join(f"{MEASURED.dumps(m)}\n" for m in results.values()).encode(),
    }
    size = sum(map(len, members.values())) + _bytes(store, traces)
    if size > limits.MAX_SNAPSHOT_BYTES:
        raise ValueError(
            f"experiment: expected at most {limits.MAX_SNAPSHOT_BYTES} bytes, found {size}; choose fewer recordings"
        )
    for name in traces:
        members[name] = (store.folder / name).read_bytes()
    return archive.pack(members)


def size_of(store: Store, recorded: Iterable[Cell]) -> tuple[int, int]:
    """Recordings that :func:`pack_lab` would take, and about how many bytes it would hand on, unpacked."""
    traces = _traces(store, recorded)
    results = store.folder / RESULTS
    return len(traces), _bytes(store, traces) + (results.stat().st_size if results.exists() else 0)


def _traces(store: Store, recorded: Iterable[Cell]) -> list[str]:
    """Names of recordings as members; a name that leads elsewhere, or cannot be read back, is none."""
    results = store.results.copy()
    names = {f"{TRACES}/{results[cell].trace}" for cell in recorded if cell in results}
    paths = {name: store.folder / name for name in names if TRACE.fullmatch(name)}
    return sorted(n for n, path in paths.items() if path.is_file() and not path.is_symlink())


def _bytes(store: Store, names: Iterable[str]) -> int:
    return sum((store.folder / name).stat().st_size for name in names)


def unpack_lab(path: Path, folder: Path) -> Store:
    """Check an archive and lay it out as a new folder. Raises ``ValueError`` or ``OSError``; then there is none."""
    members = archive.unpack(path, CONTENTS)
    if folder.exists():
        raise ValueError(f"{folder}: expected a new folder, found one")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        made = Path(place, "lab")
        (made / TRACES).mkdir(parents=True)
        for name in (WHAT, RESULTS):
            if name in members:
                (made / name).write_bytes(members[name])
        try:
            results = Store.open(made).results
        except ValueError as error:  # names the file that was sent, not where it was looked at
            raise ValueError(str(error).replace(f"{made}/", f"{path}: ")) from None
        for name in {f"{TRACES}/{m.trace}" for m in results.values() if m.trace} & members.keys():
            if TRACE.fullmatch(name):
                (made / name).write_bytes(members[name])
        os.rename(made, folder)
    return Store.open(folder)


def without_secrets(experiment: Experiment) -> Experiment:
    """The same without the values of environment variables."""
    subject = experiment.subject
    if not isinstance(subject, ServerSubject):
        return experiment
    names = tuple((name, LEFT_OUT) for name, _ in subject.environment)
    return replace(experiment, subject=replace(subject, environment=names))
