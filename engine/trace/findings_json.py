"""Findings to JSON and back; the way back distrusts every value."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, TypeVar

from engine.checks.finding import Effect, Finding, Verdict, Where
from engine.step import Kind
from engine.trace.errors import FieldProblem, describe
from engine.trace.json_codec import parse_json
from engine.trace.json_values import DECODE

FORMAT = "ddtree.findings"
VERSION = 1
LIMIT = 64 << 20  # characters
MAX_FINDINGS = 1 << 16
MAX_CELLS = 64  # of one finding, as the checker's contract says
Choice = TypeVar("Choice", bound=StrEnum)

TEXTS = ("check", "name", "message")
OPTIONAL_TEXTS = ("request", "diagnosis", "hint", "consequence_of")
PLACES = ("node", "row", "column", "layer", "byte")


def finding_to_line(finding: Finding) -> str:
    """One finding as one line of strict JSON, in the field order of the checker's contract."""
    return json.dumps(_plain(finding.to_json()), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """The same without NaN and infinities, which JSON lacks, and without NumPy's numbers."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def findings_to_text(findings: Sequence[Finding]) -> str:
    """A document of findings, one a line."""
    lines = ",\n".join(map(finding_to_line, findings))
    return f'{{"format": "{FORMAT}", "version": {VERSION}, "findings": [\n{lines}\n]}}\n'


def findings_from_text(text: str) -> tuple[Finding, ...]:
    """Findings from their document. Raises ``FieldProblem``."""
    obj = parse_json(text, LIMIT)
    if type(obj) is not dict or obj.get("format") != FORMAT or obj.get("version") != VERSION:
        raise FieldProblem(f"{FORMAT} version {VERSION}", describe(obj))
    items = obj.get("findings")
    if type(items) is not list or len(items) > MAX_FINDINGS:
        raise FieldProblem(f"a list of at most {MAX_FINDINGS}", describe(items), "findings")
    return tuple(_finding(index, item) for index, item in enumerate(items))


def _finding(index: int, obj: Any) -> Finding:
    try:
        fields = _object(obj)
        texts = {name: _get(fields, name, Kind.STR, required=True) for name in TEXTS}
        optional = {name: _get(fields, name, Kind.STR) for name in OPTIONAL_TEXTS}
        return Finding(
            **texts,
            **{**optional, "hint": optional["hint"] or ""},
            verdict=_choice(Verdict, fields, "verdict"),
            effect=_choice(Effect, fields, "effect"),
            step=_get(fields, "step", Kind.INT),
            rank=_get(fields, "rank", Kind.INT),
            count=_get(fields, "count", Kind.INT) or 0,
            expected=fields.get("expected"),
            found=fields.get("found"),
            where=_where(fields.get("where")),
        )
    except FieldProblem as problem:
        raise problem.inside(f"findings[{index}]") from None


def _where(obj: Any) -> Where:
    if obj is None:
        return Where()
    try:
        fields = _object(obj)
        cells = fields.get("cells")
        return Where(
            **{name: _get(fields, name, Kind.INT) for name in PLACES},
            cells=None if cells is None else _cells(cells),
        )
    except FieldProblem as problem:
        raise problem.inside("where") from None


def _cells(value: Any) -> tuple[tuple[int, int], ...]:
    if type(value) is not list or len(value) > MAX_CELLS:
        raise FieldProblem(f"a list of at most {MAX_CELLS} cells", describe(value), "cells")
    pairs = DECODE[Kind.RAGGED_INTS](value)
    if any(len(pair) != 2 for pair in pairs):
        raise FieldProblem("pairs [row, column]", "another length", "cells")
    return tuple((int(row), int(column)) for row, column in pairs)


def _object(obj: Any) -> dict[str, Any]:
    if type(obj) is not dict:
        raise FieldProblem("an object", describe(obj))
    return obj


def _get(fields: dict[str, Any], name: str, kind: Kind, *, required: bool = False) -> Any:
    value = fields.get(name)
    if value is None and not required:
        return None
    try:
        return DECODE[kind](value)
    except FieldProblem as problem:
        raise problem.inside(name) from None


def _choice(enum: type[Choice], fields: dict[str, Any], name: str) -> Choice:
    value = fields.get(name)
    for choice in enum:
        if value == choice.value:
            return choice
    raise FieldProblem(f"one of {', '.join(enum)}", describe(value), name)
