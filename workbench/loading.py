"""Reading and checking a recording in a thread of its own, its progress shown to whoever waits.

A session that is interrupted loses no work, and two sessions never check the same recording twice. A reading that
nobody waits for any more ends by itself.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from engine.trace.reader import open_trace
from workbench.loaded import Loaded
from workbench.tokens import for_markdown

KEPT = 6  # recordings
QUIET = 0.4  # seconds before anything is said
POLL = 0.2  # seconds
BAR = 480  # pixels
PATIENCE = 10.0  # seconds without anybody waiting
STOPPED = "reading stopped"  # in the session: what its user would not wait for

# Where progress is shown: one place of the page that is there in every run, so that nothing below it moves.
PLACE: ContextVar[DeltaGenerator | None] = ContextVar("place of progress", default=None)

# What this run of the script has loaded, so that a file that changes meanwhile shows one content on the whole page.
SEEN: ContextVar[dict[Path, Reading] | None] = ContextVar("recordings of this run", default=None)

Stamp = tuple[object, ...]  # of each file: name, inode, times of change, size
Key = tuple[str, Stamp]


class ReadingStopped(ValueError):
    """The user would not wait."""

    def __init__(self) -> None:
        super().__init__("reading it was stopped")


class _Abandoned(Exception):
    """Nobody waits for this recording."""


class Reading:
    """One recording on its way. Written by its thread alone; read by any session."""

    def __init__(self, path: Path):
        self.path = path
        self.done, self.total = 0, 0  # steps; total 0: not opened yet
        self.error: Exception | None = None
        self._loaded: Loaded | None = None
        self._over = threading.Event()
        self._wanted = time.monotonic()

    def work(self) -> None:
        """Body of the thread: never raises, the error is kept for who waits."""
        try:
            self._loaded = Loaded(open_trace(self.path), self._progress)
        except Exception as error:
            self.error = error
        self._over.set()

    def _progress(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        if time.monotonic() - self._wanted > PATIENCE:
            raise _Abandoned

    def wait(self, seconds: float) -> bool:
        """Whether it is over by then."""
        self._wanted = time.monotonic()
        return self._over.wait(seconds)

    def result(self) -> Loaded:
        """What was read. Raises what went wrong."""
        if self.error is not None:
            raise self.error
        assert self._loaded is not None
        return self._loaded

    @property
    def label(self) -> str:
        """What is going on, in words."""
        if not self.total:
            return f"Opening {self.path.name} …"
        return f"Checking {self.path.name}: {self.done:,} of {self.total:,} steps …"


class Shelf:
    """Recordings by path and stamp, the ones last used kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readings: OrderedDict[Key, Reading] = OrderedDict()

    def get(self, path: Path, stamp: Stamp) -> Reading:
        """The reading of a file, begun unless it is there; a failed one is tried again."""
        key = (str(path), stamp)
        with self._lock:
            reading = self._readings.get(key)
            if reading is None or reading.error is not None:
                reading = self._readings[key] = Reading(path)
                threading.Thread(target=reading.work, name=f"read {path.name}", daemon=True).start()
            self._readings.move_to_end(key)
            while len(self._readings) > KEPT:
                self._readings.popitem(last=False)
            return reading


@st.cache_resource
def _shelf() -> Shelf:
    return Shelf()


def load(path: Path) -> Loaded:
    """Open and check a recording; again only if the file changed. Raises as ``open_trace`` does, and
    ``ReadingStopped``.
    """
    if st.session_state.get(STOPPED) == str(path):
        raise ReadingStopped
    seen = SEEN.get()
    if seen is not None and path in seen:
        return seen[path].result()
    while True:
        reading = _shelf().get(path, _stamp(path))
        if not reading.wait(QUIET):
            _show(reading)
        if not isinstance(reading.error, _Abandoned):  # given up just before it was wanted again
            break
    if seen is not None:
        seen[path] = reading
    return reading.result()


@contextmanager
def one_run(place: DeltaGenerator) -> Iterator[None]:
    """A run of the script: each recording is read once, however it ends. ``place``: where progress is shown."""
    PLACE.set(place)
    SEEN.set({})
    try:
        yield
    finally:
        SEEN.set(None)


def _stamp(path: Path) -> Stamp:
    if not path.is_dir():
        return _of_file(path.name, path.stat())
    return tuple(sorted(_of_file(child.name, child.lstat()) for child in path.iterdir()))


def _of_file(name: str, stat: os.stat_result) -> Stamp:
    return name, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size


def _show(reading: Reading) -> None:
    """One sentence with a bar, and the way out, until it is over."""
    place = PLACE.get() or st.empty()
    with place.container(horizontal=True):
        with st.container(width=BAR):
            bar = st.progress(0.0, for_markdown(reading.label))
        st.button(
            "Stop",
            key=f"stop reading {reading.path}",
            on_click=_stop,
            args=(str(reading.path),),
            help="choose another recording instead",
        )
    while not reading.wait(POLL):
        bar.progress(reading.done / max(reading.total, 1), for_markdown(reading.label))
    place.empty()


def _stop(path: str) -> None:
    st.session_state[STOPPED] = path


def read_on() -> None:
    """Take back a stop."""
    st.session_state.pop(STOPPED, None)
