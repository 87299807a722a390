"""Launch: the words and variables that a server is started with, filled in for one cell.

A placeholder is a name in braces: ``{budget}``, ``{width}`` (budget + 1), ``{topk}`` (the budget where there is no
cap: a tree of so many nodes has no use for more), ``{port}`` of the address, ``{traces}`` (a folder for the tap), and
``{eager}``, a word by itself that becomes ``eager_words`` without graphs and vanishes with them.
Other braces, such as those of JSON, stay as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from engine.isolate.cell import Cell, Factor
from engine.isolate.experiment import ServerSubject
from engine.isolate.matrix import Matrix
from engine.server.client import address_of

EAGER = "{eager}"
PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
OF_CELL = {Factor.BUDGET: ("budget", "width"), Factor.TOPK: ("topk",), Factor.GRAPHS: ("eager",)}
OF_ALL = ("port", "traces")
PLAIN = "plain"


@dataclass(frozen=True)
class Launch:
    """One server. Cells of one launch share it."""

    name: str  # of its log and its folder for the tap
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    traces: Path | None  # the tap's folder; None: it does not record


def launch_of(subject: ServerSubject, cell: Cell, folder: Path) -> Launch:
    """The server of a cell; recordings of the tap go below ``folder``."""
    topk = "all" if cell.topk is None else cell.topk
    name = f"b{cell.budget}-k{topk}-{'graphs' if cell.graphs else 'eager'}"
    values = {
        "budget": str(cell.budget),
        "width": str(cell.q_len),
        "topk": str(cell.topk or cell.budget),
    }
    return _filled(subject, subject.command, name, values, not cell.graphs, folder)


def plain_launch(subject: ServerSubject, matrix: Matrix, folder: Path) -> Launch:
    """The server without speculation: with graphs, unless no cell has them."""
    return _filled(subject, subject.plain_command, PLAIN, {}, True not in matrix.graphs, folder)


def check_placeholders(matrix: Matrix, subject: ServerSubject) -> None:
    """Raises ``ValueError`` for a name that is not known, and for a factor that varies but reaches no server."""
    of_cell = [name for names in OF_CELL.values() for name in names]
    for name, value in subject.environment:
        _check(f"environment {name}", value, [n for n in (*of_cell, *OF_ALL) if n != "eager"])
    for number, word in enumerate(subject.command, 1):
        _check(f"command, word {number}", word, [*of_cell, *OF_ALL])
    for number, word in enumerate(subject.plain_command, 1):
        _check(f"plain_command, word {number}", word, ["eager", *OF_ALL])
    used = placeholders((*subject.command, *(value for _, value in subject.environment)))
    for factor, names in OF_CELL.items():
        values = {cell.value(factor) for cell in matrix}
        if len(values) > 1 and not used & set(names):
            wanted = " or ".join(f"{{{name}}}" for name in names)
            said = f"since {len(values)} values of {factor} are tried, found neither there nor in the environment"
            raise ValueError(f"command: expected {wanted}, {said}")


def placeholders(words: tuple[str, ...]) -> set[str]:
    """Names in braces."""
    return {name for word in words for name in PLACEHOLDER.findall(word)}


def _check(place: str, word: str, known: list[str]) -> None:
    for name in PLACEHOLDER.findall(word):
        if name not in known:
            names = ", ".join(f"{{{name}}}" for name in known)
            raise ValueError(f"{place}: expected one of {names}, found {{{name}}}")
        if name == "eager" and word != EAGER:
            raise ValueError(f"{place}: expected {EAGER} as a word by itself, found {word!r}")


def _filled(
    subject: ServerSubject,
    words: tuple[str, ...],
    name: str,
    values: dict[str, str],
    eager: bool,
    folder: Path,
) -> Launch:
    traces = (folder / name).absolute()
    values = values | {"port": str(address_of(subject.url).port or 80), "traces": str(traces)}

    def fill(text: str) -> str:
        return PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)

    command: list[str] = []
    for word in words:
        command += (subject.eager_words if eager else ()) if word == EAGER else (fill(word),)
    environment = tuple(
        (key, fill(value))
        for key, value in subject.environment
        if values.keys() >= placeholders((value,))
    )
    taps = "traces" in placeholders((*words, *(value for _, value in subject.environment)))
    return Launch(name, tuple(command), environment, traces if taps else None)
