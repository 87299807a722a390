"""Prompts from a file of their own, for recordings that lack them: ``{"request id": [token ids]}``."""

from __future__ import annotations

from pathlib import Path

from engine.trace.errors import FieldProblem, TraceFormatError, describe
from engine.trace.header import PromptRecord
from engine.trace.json_codec import parse_json
from engine.trace.limits import MAX_HEADER_BYTES


def read_prompts(path: Path) -> tuple[PromptRecord, ...]:
    """Raises ``TraceFormatError`` for another content, ``OSError`` for what cannot be opened."""
    with open(path, "rb") as file:
        data = file.read(MAX_HEADER_BYTES + 1)
    try:
        found = parse_json(data.decode("utf-8"), MAX_HEADER_BYTES)
    except UnicodeDecodeError:
        raise TraceFormatError("expected UTF-8, found other bytes", str(path)) from None
    except FieldProblem as problem:
        raise problem.at(str(path), None) from None
    if type(found) is not dict:
        expected = f"expected an object of lists by request id, found {describe(found)}"
        raise TraceFormatError(expected, str(path))
    return tuple(_prompt(path, rid, ids) for rid, ids in found.items())


def _prompt(path: Path, rid: str, ids: object) -> PromptRecord:
    usable = type(ids) is list and all(type(token) is int and 0 <= token < 1 << 31 for token in ids)
    if not usable or type(ids) is not list or not ids:
        message = f"{describe(rid)}: expected a list of token ids, found {describe(ids)}"
        raise TraceFormatError(message, str(path))
    return PromptRecord(rid, tokens=tuple(ids))
