"""The last line: whatever goes wrong while a page is drawn is one sentence on it, and its traceback is in the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from engine.trace.errors import TraceFormatError
from workbench.tokens import for_markdown, shorten

LOG = logging.getLogger(__name__)
NAMED = 200  # letters of an error


@contextmanager
def guarded() -> Iterator[None]:
    """Around everything that draws; what was drawn before the error stays."""
    try:
        yield
    except TraceFormatError as error:
        draw_changed(error)
    except Exception as error:
        draw_failed(error)


def draw_changed(error: TraceFormatError) -> None:
    """A step that was there could not be read again: the file was changed meanwhile."""
    st.warning(f"The recording changed while it was shown: {for_markdown(str(error))}")
    st.button("Read it again", key="read again")


def draw_failed(error: Exception) -> None:
    """A fault of the workbench itself."""
    LOG.error("drawing a page", exc_info=error)
    what = shorten(": ".join(filter(None, (type(error).__name__, str(error)))), NAMED)
    st.error(
        f"The rest of this page could not be drawn ({for_markdown(what)}); the server's log says where. "
        "Other pages, steps and recordings work on."
    )
