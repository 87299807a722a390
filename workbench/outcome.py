"""What became of a row: one colour and one shape each, in both themes, nowhere else.

Colours follow Okabe and Ito's set, so that they stay apart for colour-blind readers; the shape says
the same again. Red belongs to faults alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What verification made of a row."""

    ROOT = "root"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    BONUS = "bonus"
    PADDING = "padding"
    FAULT = "fault"
    UNKNOWN = "unknown"  # acceptance was not recorded


@dataclass(frozen=True)
class Mark:
    """How an outcome is drawn."""

    glyph: str  # in text
    symbol: str  # Plotly's name of the same shape
    light: str
    dark: str
    meaning: str

    def colour(self, *, dark: bool) -> str:
        """Hex colour in one theme."""
        return self.dark if dark else self.light


MARKS: dict[Outcome, Mark] = {
    Outcome.ROOT: Mark("◆", "diamond", "#1F2933", "#E6E9ED", "bonus token of the step before"),
    Outcome.ACCEPTED: Mark("●", "circle", "#0072B2", "#56B4E9", "the target chose this token"),
    Outcome.REJECTED: Mark("○", "circle-open", "#6B7785", "#8B96A3", "the target chose another"),
    Outcome.BONUS: Mark("★", "star", "#B36B00", "#F0B429", "the target's own next token"),
    Outcome.PADDING: Mark("▫", "square-open", "#A3ADB8", "#5A6675", "row without a node"),
    Outcome.FAULT: Mark("✖", "x", "#C81E28", "#FF6B63", "differs from what it should be"),
    Outcome.UNKNOWN: Mark("◌", "circle-open-dot", "#6B7785", "#8B96A3", "acceptance not recorded"),
}


def mark(outcome: Outcome) -> Mark:
    """The one look of an outcome."""
    return MARKS[outcome]
