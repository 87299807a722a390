"""What is being looked at in this run: recording, step, request and node, from the URL."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import streamlit as st

from engine.checks.context import StepContext
from engine.trace.errors import TraceFormatError
from workbench import traces, urlstate
from workbench.loaded import Loaded
from workbench.loading import ReadingStopped, load
from workbench.selection import Selection, asked, resolve
from workbench.stepview import StepView, view_of
from workbench.theme import Palette, palette
from workbench.traces import Entry

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Current:
    """The selected recording and what was found of it. ``loaded`` None: ``problem`` says why."""

    entry: Entry | None
    loaded: Loaded | None
    selection: Selection | None  # None: no recording, or one without steps
    palette: Palette
    problem: str = ""
    stopped: bool = False  # the user would not wait for it

    @property
    def context(self) -> StepContext | None:
        """The selected step."""
        if self.loaded is None or self.selection is None:
            return None
        return self.loaded.context(self.selection.step, self.selection.rank)

    @property
    def view(self) -> StepView | None:
        """The selected request; None where the step has none."""
        context = self.context
        if context is None or self.selection is None or self.selection.rid is None:
            return None
        assert self.loaded is not None
        place = (self.selection.step, self.selection.rank)
        found = self.loaded.findings_by_step.get(place, ())
        return view_of(context, self.selection.request, found)


def current() -> Current:
    """Resolve the URL. Never raises for a recording that cannot be read."""
    colours = palette(st.context.theme.type)
    known = traces.entries()
    key = urlstate.get("trace") or traces.default_key(known)
    if key is None:
        return Current(None, None, None, colours)
    entry = traces.find(key, known)
    try:
        loaded = load(entry.path)
    except ReadingStopped:
        return Current(entry, None, None, colours, f"{key[:200]}: reading it was stopped", True)
    except FileNotFoundError:
        return Current(entry, None, None, colours, f"there is no recording {key[:200]!r}")
    except (TraceFormatError, OSError, ValueError) as error:
        return Current(entry, None, None, colours, f"{key[:200]} cannot be read: {reason(error)}")
    except Exception as error:  # of a check: its trace is for the log, not for the page
        LOG.exception("checking %s", entry.path)
        why = f"checking it failed ({type(error).__name__}: {str(error)[:200]}); the server's log says where"
        return Current(entry, None, None, colours, f"{key[:200]}: {why}")
    selection = resolve(loaded, asked()) if len(loaded.keys) else None
    return Current(entry, loaded, selection, colours)


def reason(error: Exception) -> str:
    """What is wrong, without the path, which was named already."""
    if isinstance(error, TraceFormatError) and str(error).startswith(f"{error.file}:"):
        place, text = ("line ", 1) if error.line is not None else ("", 2)
        return place + str(error)[len(error.file) + text :]
    return (isinstance(error, OSError) and error.strerror) or str(error)[:200]
