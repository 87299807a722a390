"""What a snapshot's manifest lists, as words for the page and the command line. Nothing is imported that takes time."""

from __future__ import annotations

from collections.abc import Iterable


def listed(parts: Iterable[str]) -> str:
    """Parts with commas between them; a remark in parentheses belongs to what stands before it.

    Example: ``prompts, notes (token ids are included)`` for ``["prompts", "notes", "(token ids are included)"]``.
    """
    text = ""
    for part in parts:
        text += part if not text else f" {part}" if part.startswith("(") else f", {part}"
    return text
