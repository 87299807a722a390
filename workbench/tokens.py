"""Token texts as they may be shown: whitespace made visible, control characters named, markup
disarmed.

Token text comes from models and strangers. Plotly reads some HTML in labels and hover texts and
``%{…}`` in templates; Streamlit reads Markdown. Everything shown passes through one of the three
functions below.
"""

from __future__ import annotations

import html
import re
import unicodedata

VISIBLE = {" ": "␠", "\n": "↵", "\t": "⇥", "\r": "␍", "\u00a0": "⍽", "Ġ": "Ġ"}
HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
MARKDOWN = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|~$:^=&@/])")


def visible(text: str) -> str:
    """The same text with every character that has no shape of its own replaced."""
    return "".join(map(_visible, text))


def legible(text: str) -> str:
    """Every character visible, but spaces as they are: a sentence or a name, not a token."""
    return " ".join(map(visible, text.split(" ")))


def as_lines(text: str) -> str:
    """A text in which lines and tabs stay as they are, and every other character is visible."""
    return "\n".join("\t".join(map(legible, line.split("\t"))) for line in text.split("\n"))


def _visible(character: str) -> str:
    if character in VISIBLE:
        return VISIBLE[character]
    if unicodedata.category(character) in HIDDEN_CATEGORIES:
        return f"‹{ord(character):X}›"
    return character


def shorten(text: str, length: int) -> str:
    """At most ``length`` characters, an ellipsis last where something was cut."""
    return text if len(text) <= length else text[: length - 1] + "…"


def for_plotly(text: str) -> str:
    """Text for labels and hover texts. Entities survive Plotly's small HTML parser as characters."""
    escaped = html.escape(text, quote=True)
    return escaped.replace("{", "&#123;").replace("}", "&#125;").replace("$", "&#36;")


def for_markdown(text: str) -> str:
    """Text inside Streamlit Markdown, every special character escaped, those without a shape named."""
    return MARKDOWN.sub(r"\\\1", legible(text.replace("\n", " ")))


def as_code(text: str) -> str:
    """Text as an inline code span of Markdown; backticks inside cannot end it."""
    inner = legible(text).replace("`", "ˋ")
    return f"`{inner}`" if inner.strip() else f"`{visible(inner) or '∅'}`"


def message(text: str) -> str:
    """A finding's message as Markdown: code spans stay, everything between them is escaped."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return for_markdown(text)
    return "".join(as_code(part) if k % 2 else for_markdown(part) for k, part in enumerate(parts))
