"""The progress callback that long operations of this package report to."""

from __future__ import annotations

from collections.abc import Callable

ProgressFn = Callable[[str, float], None]  # label, fraction done 0 … 1


def report(progress: ProgressFn | None, label: str, fraction: float) -> None:
    """Call ``progress`` if there is one, with the fraction kept inside 0 … 1."""
    if progress is not None:
        progress(label, min(max(fraction, 0.0), 1.0))
