"""What became of a row, or of a cell of an experiment: one colour and one shape each, in both themes,
nowhere else.

Colours follow Okabe and Ito's set, so that they stay apart for colour-blind readers; the shape says
the same again. Red belongs to faults alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.isolate.outcome import Outcome as CellOutcome


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
    word: str = ""  # of a cell, short

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


# A cell that is right has the colour of an accepted row, one that is wrong that of a fault.
CELL_MARKS: dict[CellOutcome, Mark] = {
    CellOutcome.CLEAN: Mark(
        *("✓", "circle", "#0072B2", "#56B4E9", "every text is plain decoding's, token by token"),
        word="clean",
    ),
    CellOutcome.NEAR_TIE: Mark(
        *("≈", "asterisk", "#008F6B", "#2BC4A0", "a text differs where rounding decides"),
        word="near-tie",
    ),
    CellOutcome.SAMPLED: Mark(
        *("~", "circle-open", "#6B7785", "#8B96A3", "a sampled text, neither right nor wrong"),
        word="sampled",
    ),
    CellOutcome.NONDETERMINISTIC: Mark(
        *("?", "y-up", "#8A3FC1", "#C792EA", "plain decoding differs from itself there"),
        word="varies",
    ),
    CellOutcome.SLOW: Mark(
        *("↓", "triangle-down", "#B36B00", "#F0B429", "right, but accepts or writes too little"),
        word="slow",
    ),
    CellOutcome.WRONG: Mark(
        *("✖", "x", "#C81E28", "#FF6B63", "a text is not plain decoding's"), word="wrong"
    ),
    CellOutcome.FAILED: Mark(
        *("!", "circle-cross-open", "#1F2933", "#E6E9ED", "it could not be measured"),
        word="failed",
    ),
}
NOT_MEASURED = Mark("·", "square-open", "#A3ADB8", "#5A6675", "not measured yet", word="")


def cell_mark(outcome: CellOutcome | None) -> Mark:
    """The one look of a cell; None: it was not measured."""
    return NOT_MEASURED if outcome is None else CELL_MARKS[outcome]
