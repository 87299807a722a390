"""Recordings: Arrow files, JSON lines and snapshots of verify steps."""

from engine.trace.errors import TraceFormatError as TraceFormatError
from engine.trace.header import PromptRecord as PromptRecord
from engine.trace.header import TraceHeader as TraceHeader
from engine.trace.json_codec import dumps as dumps
from engine.trace.json_codec import loads as loads
from engine.trace.json_codec import step_from_json as step_from_json
from engine.trace.json_codec import step_to_json as step_to_json
from engine.trace.reader import Trace as Trace
from engine.trace.reader import open_trace as open_trace
from engine.trace.writer import TraceWriter as TraceWriter
