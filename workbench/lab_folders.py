"""Which experiments there are: the user's own and imported ones, beside the recordings, and the folder of any path."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from engine.isolate.experiment import Experiment, LocalSubject
from engine.isolate.measured import Measured
from engine.isolate.store import WHAT, Store
from workbench.traces import bundled_folder, safe_name, traces_folder

IMPORTED, BUNDLED = "imported", "fixtures"


@dataclass(frozen=True)
class LabEntry:
    """One experiment by the name that stands for it in the URL."""

    key: str
    folder: Path
    changed: float  # seconds since 1970
    imported: bool = False


def labs_folder() -> Path:
    """Where experiments are kept."""
    return traces_folder() / "labs"


def entries() -> list[LabEntry]:
    """Every experiment that can be picked: the newest first, then those that came along."""
    own = _listed(labs_folder(), "")
    imported = _listed(labs_folder() / IMPORTED, f"{IMPORTED}/")
    newest = sorted((*own, *imported), key=lambda entry: entry.changed, reverse=True)
    return [*newest, *_listed(bundled_labs(), f"{BUNDLED}/")]


def bundled_labs() -> Path:
    """Where experiments that came along lie."""
    return bundled_folder().parent / "labs"


def _listed(folder: Path, prefix: str) -> list[LabEntry]:
    found = []
    try:
        for child in folder.iterdir():
            if (child / WHAT).is_file():
                key, changed = f"{prefix}{child.name}", child.stat().st_mtime
                found.append(LabEntry(key, child, changed, bool(prefix)))
    except OSError:  # not there, not a folder, or not ours to read
        return []
    return found


def folder_of(key: str) -> Path:
    """The folder of a name; any other text is a path."""
    known = {entry.key: entry.folder for entry in entries()}
    return known.get(key) or Path(os.path.expanduser(key))


def key_of(folder: Path) -> str:
    """The name of a folder: short for those that are kept here."""
    places = (
        (labs_folder(), ""),
        (labs_folder() / IMPORTED, f"{IMPORTED}/"),
        (bundled_labs(), f"{BUNDLED}/"),
    )
    for base, prefix in places:
        if folder.parent == base:
            return f"{prefix}{folder.name}"
    return str(folder)


def is_own(folder: Path) -> bool:
    """Whether it was begun here: what a stranger's experiment would start is shown first, and never started by name."""
    return folder.parent == labs_folder()


def new_folder(experiment: Experiment) -> Path:
    """A folder for a new experiment, named by time and subject; it is not made yet."""
    subject = experiment.subject
    if isinstance(subject, LocalSubject):
        parts = [Path(subject.model).name, *([subject.fault] if subject.fault else [])]
    else:
        parts = ["server"]
    when = datetime.now().strftime("%m%d-%H%M%S")
    return labs_folder() / safe_name("-".join([when, *parts, secrets.token_hex(2)]))


def recording_of(store: Store, measured: Measured) -> Path | None:
    """A cell's recording where there is one; a name that leads elsewhere is none."""
    name = measured.trace
    if not name or Path(name).name != name or name in (".", ".."):
        return None
    path = store.traces / name
    return path if path.exists() and not path.is_symlink() else None
