"""Launch: the words and variables that a server is started with, filled in for one cell, and for a port at its start.

A placeholder is a name in braces: ``{budget}``, ``{width}`` (budget + 1), ``{topk}`` (the budget where there is no
cap: a tree of so many nodes has no use for more), ``{port}`` to listen on, ``{traces}`` (a folder for the tap), and
``{eager}``, a word by itself that becomes ``eager_words`` without graphs and vanishes with them.
Other braces, such as those of JSON, stay as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from engine.isolate.cell import Cell, Factor
from engine.isolate.experiment import ServerSubject
from engine.isolate.matrix import Matrix
from engine.server.client import Address, address_of

EAGER = "{eager}"
PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
OF_CELL = {Factor.BUDGET: ("budget", "width"), Factor.TOPK: ("topk",), Factor.GRAPHS: ("eager",)}
OF_ALL = ("port", "traces")
PLAIN = "plain"
LAST_PORT = 65535


@dataclass(frozen=True)
class Launch:
    """One server, on whatever port. Cells of one launch share it."""

    name: str  # of its log and its folder for the tap
    words: tuple[str, ...]  # not filled in yet
    variables: tuple[tuple[str, str], ...]  # not filled in yet
    values: tuple[tuple[str, str], ...]  # of every placeholder but {port} and {eager}
    eager_words: tuple[str, ...]  # what {eager} becomes
    traces: Path | None  # the tap's folder; None: it does not record

    def command(self, port: int) -> tuple[str, ...]:
        """Words of the command line on this port."""
        words: list[str] = []
        for word in self.words:
            words += self.eager_words if word == EAGER else (self._filled(word, port),)
        return tuple(words)

    def environment(self, port: int) -> tuple[tuple[str, str], ...]:
        """Variables on this port."""
        return tuple((name, self._filled(value, port)) for name, value in self.variables)

    def _filled(self, text: str, port: int) -> str:
        values = {**dict(self.values), "port": str(port)}
        return PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def launch_of(subject: ServerSubject, cell: Cell, folder: Path) -> Launch:
    """The server of a cell; recordings of the tap go below ``folder``."""
    topk = "all" if cell.topk is None else cell.topk
    name = f"b{cell.budget}-k{topk}-{'graphs' if cell.graphs else 'eager'}"
    values = {
        "budget": str(cell.budget),
        "width": str(cell.q_len),
        "topk": str(cell.topk or cell.budget),
    }
    return _launch(subject, subject.command, name, values, not cell.graphs, folder)


def plain_launch(subject: ServerSubject, matrix: Matrix, folder: Path) -> Launch:
    """The server without speculation: with graphs, unless no cell has them."""
    return _launch(subject, subject.plain_command, PLAIN, {}, True not in matrix.graphs, folder)


def port_of(address: Address) -> int:
    """What ``{port}`` becomes."""
    return address.port or 80


def addresses_of(subject: ServerSubject) -> tuple[Address, ...]:
    """Where servers listen: one that is asked, and one for each that loads ahead. Raises ``ValueError``."""
    first = address_of(subject.url)
    port, ahead = port_of(first), subject.ahead
    if ahead and port + ahead > LAST_PORT:
        why = f"since {ahead} servers that load ahead have the ports that follow"
        raise ValueError(f"url: expected a port up to {LAST_PORT - ahead}, {why}, found {port}")
    return (first, *(replace(first, port=port + number) for number in range(1, ahead + 1)))


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


def _launch(
    subject: ServerSubject,
    words: tuple[str, ...],
    name: str,
    values: dict[str, str],
    eager: bool,
    folder: Path,
) -> Launch:
    traces = (folder / name).absolute()
    values = values | {"traces": str(traces)}
    variables = tuple(
        (key, value)
        for key, value in subject.environment
        if {*values, "port"} >= placeholders((value,))
    )
    taps = "traces" in placeholders((*words, *(value for _, value in subject.environment)))
    return Launch(
        name,
        words,
        variables,
        tuple(values.items()),
        subject.eager_words if eager else (),
        traces if taps else None,
    )
