"""Recordings: Arrow files, JSON lines and snapshots of verify steps.

What reads and writes Arrow files is imported when it is first asked for: JSON lines need numpy alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engine.trace.errors import TraceFormatError as TraceFormatError
from engine.trace.header import PromptRecord as PromptRecord
from engine.trace.header import TraceHeader as TraceHeader
from engine.trace.json_codec import dumps as dumps
from engine.trace.json_codec import loads as loads
from engine.trace.json_codec import step_from_json as step_from_json
from engine.trace.json_codec import step_to_json as step_to_json

if TYPE_CHECKING:
    from engine.trace.reader import Trace as Trace
    from engine.trace.reader import open_trace as open_trace
    from engine.trace.writer import TraceWriter as TraceWriter

LATER = {"Trace": "reader", "open_trace": "reader", "TraceWriter": "writer"}


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{LATER[name]}"), name)
    globals()[name] = found
    return found
