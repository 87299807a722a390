"""A progress bar on standard error, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from workbench.cli.text import printable


@contextmanager
def shown() -> Iterator[Callable[[str, float], None]]:
    """Yield ``progress(label, fraction)``; on anything but a terminal each new label is one line.

    Labels may hold foreign texts: they are shown as they are, control characters escaped.
    """
    if not sys.stderr.isatty():
        report = _lines()
        yield lambda label, fraction: report(printable(label), fraction)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda label, fraction: bar.update(
            task, description=escape(printable(label)), completed=fraction
        )


def _lines() -> Callable[[str, float], None]:
    last = ""

    def report(label: str, fraction: float) -> None:
        nonlocal last
        if label != last:
            print(label, file=sys.stderr)
            last = label

    return report
