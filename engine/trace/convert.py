"""JSON lines to Arrow and back, step by step, without loss; the header of JSON lines lies in a file
beside them.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine.trace.header import TraceHeader, header_to_text
from engine.trace.json_codec import dumps
from engine.trace.jsonl_file import header_path
from engine.trace.reader import Trace, open_trace
from engine.trace.writer import SUFFIX, TraceWriter


def convert(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> int:
    """Write a recording to ``*.jsonl`` or ``*.ddtree.arrow``; returns the steps written.

    Raises ``TraceFormatError`` for a recording that cannot be read, ``ValueError`` for a target of
    another name and ``FileExistsError`` rather than overwrite; a target that was not finished is
    removed.
    """
    target = Path(target)
    if not target.name.endswith((".jsonl", SUFFIX)):
        raise ValueError(f"target: expected a name *.jsonl or *{SUFFIX}, found {target.name!r}")
    trace = open_trace(source)
    made = [target] if target.name.endswith(SUFFIX) else [target, header_path(target)]
    for path in made:
        if path.exists():
            raise FileExistsError(f"{path} exists already")
    try:
        return write_arrow(trace, target) if len(made) == 1 else write_jsonl(trace, target)
    except BaseException:
        for path in made:
            path.unlink(missing_ok=True)
        raise


def write_arrow(trace: Trace, target: Path) -> int:
    """All steps of a recording as one Arrow file."""
    with TraceWriter(target, trace.header) as out:
        for step in trace:
            out.write(step)
        return out.written


def write_jsonl(trace: Trace, target: Path) -> int:
    """All steps of a recording as JSON lines, its header beside them unless it is empty."""
    with open(target, "x", encoding="utf-8", newline="\n") as out:
        for step in trace:
            out.write(dumps(step) + "\n")
    if trace.header != TraceHeader():
        header_path(target).write_text(header_to_text(trace.header) + "\n", encoding="utf-8")
    return len(trace)
