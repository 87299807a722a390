"""Looks of a text that garbled answers had. A hint where to look, never a verdict: a wrong mask writes fluent text too,
and a right one writes ``-----``.

Covered: runs of one symbol, words without spaces between them, words that are hardly words, words said again and again.
Not covered: meaning, and whatever lies in code.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+", re.DOTALL)
RUN = re.compile(r"([^\w\s])\1{4,}")
RULES = set("-=_*#~.+|")  # symbols that lines are drawn with
GLUED = re.compile(r"(?<![a-z])[a-z]{2,}(?:[A-Z][a-z]+|[.!?][A-Z][a-z]+|[!?;,][A-Za-z]+)")
WORD = re.compile(r"[^\W\d_]+")
VOWELLESS = re.compile(r"[bcdfghjklmnpqrstvwxz]{5,}", re.IGNORECASE)
LONGEST_WORD = 28
AGAIN = re.compile(r"\b(\w+(?:\W+\w+){0,3}?)(?:\W+\1\b){3,}", re.IGNORECASE)
EXCERPT = 40  # characters
MAX_TEXT = 20_000  # characters that are looked at


@dataclass(frozen=True)
class Signal:
    """``place``: character of the text at which the first one lies."""

    kind: str
    count: int
    place: int
    excerpt: str


def signals_of(text: str) -> tuple[Signal, ...]:
    """Signals of one text, each kind once with its first place."""
    plain = CODE.sub(lambda match: " " * len(match[0]), text[:MAX_TEXT])
    found = {
        "one symbol again and again": [m.start() for m in RUN.finditer(plain) if _is_run(plain, m)],
        "no space where one belongs": [m.start() for m in GLUED.finditer(plain)],
        "hardly a word": [m.start() for m in WORD.finditer(plain) if _is_odd(m[0])],
        "the same words again and again": [m.start() for m in AGAIN.finditer(plain[:4000])],
        "characters that cannot be shown": [m.start() for m in re.finditer("\ufffd", plain)],
    }
    return tuple(
        Signal(kind, len(places), places[0], text[places[0] : places[0] + EXCERPT])
        for kind, places in found.items()
        if places
    )


def _is_run(text: str, match: re.Match[str]) -> bool:
    """A line of dashes is drawn on purpose; a run inside a sentence is not."""
    start, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
    line = text[start : len(text) if end < 0 else end]
    return match[1] not in RULES or any(character.isalpha() for character in line)


def _is_odd(word: str) -> bool:
    if word.isascii():
        return len(word) > LONGEST_WORD or (not word.isupper() and bool(VOWELLESS.search(word)))
    scripts = {unicodedata.name(c, "?").partition(" ")[0] for c in word}
    return "LATIN" in scripts and bool(scripts & {"CYRILLIC", "GREEK", "CJK", "HANGUL", "ARABIC"})
