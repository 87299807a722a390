"""What a rank says about itself once a second. Every field may be absent or wrong: none is believed beyond its type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.trace.errors import FieldProblem
from engine.trace.json_codec import parse_json

MAX_BYTES = 64 << 10
MAX_NAMES, MAX_TEXT = 64, 400  # hooks that are listed; characters of one text

# Names under which a fact may stand.
HOOKS = ("hooks", "hooks_in_place", "in_place", "installed")
MISSING = ("missing", "missing_targets", "missing_hooks", "targets_missing")
SEEN = ("seen", "steps_seen")
WRITTEN = ("written", "steps_written")
DROPPED = ("dropped", "steps_dropped")
ERROR = ("last_error", "error")


@dataclass(frozen=True)
class Health:
    """None: not told."""

    hooks: tuple[str, ...] | None = None
    missing: tuple[str, ...] | None = None  # that this version of the server lacks; others may do
    lost: tuple[str, ...] = ()  # hooks that were in place and are not any more
    seen: int | None = None  # steps
    written: int | None = None
    dropped: int | None = None
    last_error: str | None = None
    stopped: str | None = None  # why it does not record, in its own words
    problem: str | None = None  # why the file could not be read


def health_from_bytes(data: bytes) -> Health:
    """Facts of one health file; never raises."""
    if len(data) > MAX_BYTES:
        return Health(problem=f"expected at most {MAX_BYTES} bytes, found more")
    try:
        told = parse_json(data.decode("utf-8"), MAX_BYTES)
    except FieldProblem as problem:
        return Health(problem=f"expected {problem.expected}, found {problem.found}")
    except ValueError as error:
        return Health(problem=f"expected JSON, found {str(error)[:80]}")
    if not isinstance(told, dict):
        return Health(problem="expected an object, found another value")
    inner = told.get("steps")
    facts = {**(inner if isinstance(inner, dict) else {}), **told}
    hooks = _first(facts, HOOKS)
    state = _text(facts.get("state"))
    return Health(
        hooks=_names(hooks),
        missing=_names(_first(facts, MISSING)),
        lost=_lost(hooks),
        stopped=None if state == "recording" else state,
        seen=_count(_first(facts, SEEN)),
        written=_count(_first(facts, WRITTEN)),
        dropped=_count(_first(facts, DROPPED)),
        last_error=_text(_first(facts, ERROR)),
    )


def _first(facts: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((facts[name] for name in names if facts.get(name) is not None), None)


def _names(value: Any) -> tuple[str, ...] | None:
    """A list of texts, or the keys of an object whose values are not false."""
    if isinstance(value, dict):
        value = [name for name, there in value.items() if there]
    if not isinstance(value, list):
        return None
    return tuple(str(name)[:MAX_TEXT] for name in value[:MAX_NAMES])


def _lost(hooks: Any) -> tuple[str, ...]:
    """Hooks that are told not to be in place."""
    if not isinstance(hooks, dict):
        return ()
    return _names([name for name, there in hooks.items() if there is False]) or ()


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 62 else None


def _text(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)[:MAX_TEXT]
