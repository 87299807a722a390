"""TraceHeader: what a recording says about itself, stored as JSON in the file's metadata."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from engine.trace.errors import FieldProblem, TraceFormatError, describe
from engine.trace.json_codec import field_name, parse_json
from engine.trace.json_values import DECODE
from engine.trace.limits import MAX_HEADER_BYTES

FORMAT = "ddtree.trace"
VERSION = 1


@dataclass(frozen=True)
class PromptRecord:
    """One prompt and what plain decoding wrote from it, token ids; None where it was not
    recorded.
    """

    rid: str
    text: str | None = None
    tokens: tuple[int, ...] = ()
    plain_tokens: tuple[int, ...] | None = None
    plain_text: str | None = None


@dataclass(frozen=True)
class TraceHeader:
    """Origin of a recording. ``created`` is ISO 8601; ``fault`` names what was injected, None:
    nothing.
    """

    created_by: str = ""
    command: str = ""
    created: str = ""
    model: str | None = None
    drafter: str | None = None
    fault: str | None = None
    prompts: tuple[PromptRecord, ...] = ()
    notes: str = ""

    def without_texts(self) -> TraceHeader:
        """The same without what a user typed or a model wrote; token ids stay.

        Command and notes go too: they may hold a prompt.
        """
        bare = tuple(replace(prompt, text=None, plain_text=None) for prompt in self.prompts)
        return replace(self, prompts=bare, command="", notes="")


def header_to_text(header: TraceHeader) -> str:
    """One line of JSON."""
    return json.dumps({"format": FORMAT, "version": VERSION, **asdict(header)}, ensure_ascii=False)


def header_from_text(text: str, file: str) -> TraceHeader:
    """The header from its JSON. Raises ``TraceFormatError``."""
    try:
        return header_from_json(parse_json(text, MAX_HEADER_BYTES))
    except FieldProblem as problem:
        raise problem.inside("header").at(file, None) from None


def header_from_json(obj: Any) -> TraceHeader:
    """The header from plain JSON values. Raises ``FieldProblem``."""
    fields = _fields(obj, {"format", "version", *TraceHeader.__dataclass_fields__})
    if fields.pop("format", None) != FORMAT or fields.pop("version", None) != VERSION:
        raise FieldProblem(f"{FORMAT} version {VERSION}", "something else", "format")
    prompts = fields.pop("prompts", [])
    if type(prompts) is not list:
        raise FieldProblem("a list of objects", describe(prompts), "prompts")
    texts = {name: _optional_text(name, value) for name, value in fields.items()}
    known = {name: value for name, value in texts.items() if value is not None}
    return TraceHeader(**known, prompts=tuple(map(_prompt, range(len(prompts)), prompts)))


def _fields(obj: Any, known: set[str]) -> dict[str, Any]:
    if type(obj) is not dict:
        raise FieldProblem("an object", describe(obj))
    for key in obj:
        if key not in known:
            names = ", ".join(sorted(known))
            raise FieldProblem(f"a known field ({names})", describe(key), field_name(key))
    return dict(obj)


def _optional_text(name: str, value: Any) -> str | None:
    return None if value is None else str(_named(name, "STR", value))


def _prompt(index: int, obj: Any) -> PromptRecord:
    try:
        fields = _fields(obj, set(PromptRecord.__dataclass_fields__))
        tokens = {name: fields.pop(name, None) for name in ("tokens", "plain_tokens")}
        texts = {name: _optional_text(name, value) for name, value in fields.items()}
        if texts.get("rid") is None:
            raise FieldProblem("a string", "no such field", "rid")
        return PromptRecord(
            rid=str(texts.pop("rid")),
            **texts,
            tokens=_tokens("tokens", tokens["tokens"]) or (),
            plain_tokens=_tokens("plain_tokens", tokens["plain_tokens"]),
        )
    except FieldProblem as problem:
        raise problem.inside(f"prompts[{index}]") from None


def _tokens(name: str, value: Any) -> tuple[int, ...] | None:
    return None if value is None else tuple(_named(name, "INTS", value).tolist())


def _named(name: str, kind: str, value: Any) -> Any:
    from engine.step import Kind

    try:
        return DECODE[Kind[kind]](value)
    except FieldProblem as problem:
        raise problem.inside(name) from None


__all__ = [
    "PromptRecord",
    "TraceFormatError",
    "TraceHeader",
    "header_from_json",
    "header_from_text",
    "header_to_text",
]
