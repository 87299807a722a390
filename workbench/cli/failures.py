"""How a command ends when an input cannot be read: one line on standard error, exit status 2."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from workbench.cli.text import printable

UNREADABLE = 2


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn what is wrong with an input or a call into one line and status 2."""
    try:
        yield
    except (ValueError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        complain(error)
        raise typer.Exit(UNREADABLE) from None


def complain(error: Exception, more: str = "") -> None:
    """Say on one line of standard error what is wrong."""
    print(reason(error) + more, file=sys.stderr)


def reason(error: Exception) -> str:
    """One line, with the file first where the system names one; control characters are escaped."""
    if isinstance(error, OSError) and error.filename is not None:
        return printable(f"{error.filename}: {error.strerror}")
    return printable(" ".join(str(error).split("\n")))
