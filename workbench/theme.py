"""Palette: the colours that are not outcomes, for both themes."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.outcome import Outcome, mark

MONO = (
    "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Visible Space', monospace"
)


@dataclass(frozen=True)
class Palette:
    """Colours of one theme. ``extra`` and ``missing`` are two colours and never the ends of one
    scale.
    """

    dark: bool
    background: str
    ink: str
    muted: str
    grid: str
    visible: str  # a mask cell that is attended to
    hidden: str
    folded: str  # the prefix, all visible
    unread: str  # no program reads or writes it
    extra: str  # attends but must not
    missing: str  # must attend but does not
    selected: str

    def outcome(self, outcome: Outcome) -> str:
        """Colour of an outcome."""
        return mark(outcome).colour(dark=self.dark)

    @property
    def fault(self) -> str:
        """The only red."""
        return self.outcome(Outcome.FAULT)


LIGHT = Palette(
    dark=False,
    background="#FFFFFF",
    ink="#1F2933",
    muted="#616E7C",
    grid="#E4E7EB",
    visible="#3E4C59",
    hidden="#F4F6F8",
    folded="#CBD2D9",
    unread="#7F95A8",
    extra="#8A3FC1",
    missing="#008F6B",
    selected="#B36B00",
)
DARK = Palette(
    dark=True,
    background="#11161C",
    ink="#E6E9ED",
    muted="#9AA5B1",
    grid="#2A333D",
    visible="#C3CCD6",
    hidden="#1A2129",
    folded="#4A5663",
    unread="#5C7690",
    extra="#C792EA",
    missing="#2BC4A0",
    selected="#F0B429",
)


def palette(theme: str | None) -> Palette:
    """Palette by theme name; anything but ``"dark"`` is light."""
    return DARK if theme == "dark" else LIGHT
