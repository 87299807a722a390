"""``ddtree explain``: what a finding means, how to confirm it, how others fixed it, and where it was reported."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.failures import one_line_errors

if TYPE_CHECKING:
    from engine.explain import Explanation, Report

FALLBACK = (100, 24)  # columns and lines where the output is no terminal
NARROWEST = 40
INDENT = "  "
NAME_WIDTH = 32  # of a key in a list
NONE = "none in the catalogue"


class Format(StrEnum):
    """How explanations are printed."""

    TEXT = "text"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(explain)


def explain(
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY",
            help="A check (I8 or mask-content), a diagnosis (bit-order) or a class (C4).",
        ),
    ] = None,
    format: Annotated[Format, typer.Option(help="text, or one JSON object a line.")] = Format.TEXT,
) -> None:
    """Explain checks, diagnoses and classes of faults; without a key, list them all.

    Exit status 0; 2: a key is unknown (near matches are named).
    """
    from engine.explain import explain as look_up

    with one_line_errors():
        found = [look_up(key) for key in keys or ()]
    width = max(NARROWEST, shutil.get_terminal_size(FALLBACK).columns)
    if format is Format.JSON:
        lines = map(_to_line, found) if keys else _listed_as_json()
    else:
        lines = _texts(found, width) if keys else _listed(width)
    for line in lines:
        print(line)
    sys.stdout.flush()


def _to_line(explanation: Explanation) -> str:
    return json.dumps(explanation.to_json(), ensure_ascii=False)


def _texts(found: list[Explanation], width: int) -> Iterator[str]:
    for number, explanation in enumerate(found):
        yield from ["", "─" * width, ""] if number else []
        yield from text_lines(explanation, width)


def text_lines(explanation: Explanation, width: int) -> Iterator[str]:
    """One explanation, wrapped; links stay whole so that a terminal can open them."""
    yield from textwrap.wrap(f"{_head(explanation)}: {explanation.title}", width)
    if explanation.kind != "check":
        yield from _wrapped(f"found by {', '.join(_check_names(explanation))}", width, INDENT)
    for heading, text in explanation.parts:
        yield from ["", heading, *_wrapped(text, width, INDENT)]
    if explanation.diagnoses:
        heading = "Diagnoses, most specific first; the last is the general form"
        yield from ["", *_wrapped(heading, width, "")]
        yield from (line for key in explanation.diagnoses for line in _row(key, width))
    count = len(explanation.reports)
    legend = f"{count} (cause confirmed, claimed, or found in review)" if count else NONE
    yield from ["", *_wrapped(f"Public reports: {legend}", width, "")]
    for report in explanation.reports:
        yield from _report_lines(report, width)


def _head(explanation: Explanation) -> str:
    same = explanation.key == explanation.name
    return explanation.key if same else f"{explanation.key} {explanation.name}"


def _check_names(explanation: Explanation) -> list[str]:
    from engine.explain import explain as look_up

    return [_head(look_up(check)) for check in explanation.checks]


def _report_lines(report: Report, width: int) -> Iterator[str]:
    deeper = INDENT + " " * 5
    about = f"[{report.id}] {report.title} ({report.fault_class}, {report.grade.word})"
    yield from _wrapped(about, width, INDENT, deeper)
    yield from _wrapped(f"fix: {report.fix}", width, deeper)
    yield from (deeper + link for link in report.links or (report.source,))


def _wrapped(text: str, width: int, first: str, later: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=first if later is None else later,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _row(key: str, width: int) -> list[str]:
    """A diagnosis and its title; one named as its check is that check's general form."""
    from engine.explain import explain as look_up

    found = look_up(key)
    title = found.title if found.key == key else "None of the above explains every difference"
    return _named(INDENT + key, title, width)


def _named(name: str, title: str, width: int) -> list[str]:
    return _wrapped(name.ljust(NAME_WIDTH) + title, width, "", " " * NAME_WIDTH)


def _listed(width: int) -> Iterator[str]:
    """All keys: each check with its diagnoses, then the classes."""
    from engine.explain import explain as look_up
    from engine.explain import keys as all_keys

    entries = [look_up(key) for key in all_keys()]
    for check in (entry for entry in entries if entry.kind == "check"):
        yield from _named(_head(check), check.title, width)
        yield from (line for key in check.diagnoses for line in _row(key, width))
    yield from ["", "Classes of causes"]
    for entry in (entry for entry in entries if entry.kind == "class"):
        yield from _named(_head(entry), entry.title, width)


def _listed_as_json() -> Iterator[str]:
    from engine.explain import explain as look_up
    from engine.explain import keys as all_keys

    for key in all_keys():
        entry = look_up(key)
        names = {"key": key, "kind": entry.kind.value, "name": entry.name}
        line = names | {"title": entry.title, "checks": list(entry.checks)}
        yield json.dumps(line, ensure_ascii=False)
