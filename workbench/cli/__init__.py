"""The ``ddtree`` command. One module a command; each registers itself and imports what is heavy
only when it runs.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import typer

# Modules of this package with a function register(app).
COMMANDS = (
    "run",
    "check",
    "explain",
    "snapshot",
    "convert",
    "fetch",
    "bench",
    "minimize",
    "xray",
    "leak",
    "replay",
    "isolate",
    "live",
    "server",
    "train_drafter",
)
INTERRUPTED = 130
PIPE_CLOSED = 141
UNWRITABLE = 2
DEFECT = (
    70  # of this program; a plain traceback would end with 1, which means a fault in the recording
)

app = typer.Typer(
    name="ddtree",
    help="See what each step of tree speculative decoding handed to its attention kernel.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

for name in COMMANDS:
    import_module(f"{__name__}.{name}").register(app)


def main() -> None:
    """Entry of the console script; the exit status is the command's, 2 for a wrong call, 130 after
    Ctrl-C.
    """
    if sys.stdout is None:  # closed by the caller: nobody reads what would be printed
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # as long as the process lives
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a locale without … or ✖ must not end the command
            stream.reconfigure(errors="backslashreplace")
    try:
        status = app(prog_name="ddtree", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        status = PIPE_CLOSED
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            status = _defect()
        else:
            _discard_output()
            print(f"ddtree: standard output: {error.strerror}", file=sys.stderr)
            status = UNWRITABLE
    except Exception as error:
        status = _usage_error(error) if hasattr(error, "exit_code") else _defect()
    sys.exit(status if isinstance(status, int) else 0)


def _discard_output() -> None:
    """What is left unwritten goes nowhere; the interpreter would complain once more while it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage_error(error: Any) -> int:
    error.show()
    return int(error.exit_code)


def _defect() -> int:
    traceback.print_exc()
    return DEFECT
