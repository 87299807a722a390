"""What is said of cells, pairs and results: pure words, without markup."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import fields

from engine.isolate.cell import Cell, Factor, phrase
from engine.isolate.experiment import Experiment
from engine.isolate.measured import Compared, Measured
from engine.isolate.outcome import Outcome
from engine.isolate.plan import duration
from engine.isolate.verdict import Pair
from workbench.outcome import cell_mark
from workbench.tokens import shorten
from workbench.verdict import plural


def outcome_words(outcome: Outcome | None) -> str:
    """``✖ wrong``, ``▫ not measured``."""
    return f"{cell_mark(outcome).glyph} {'not measured' if outcome is None else outcome}"


def cell_words(cell: Cell, without: Collection[Factor] = ()) -> str:
    """``budget 16, top-k 4, graphs on, batch 1`` …, less what is said elsewhere."""
    quiet = {*without, *(f for f in (Factor.TEMPERATURE, Factor.SEED) if not cell.value(f))}
    return ", ".join(phrase(f, cell.value(f)) for f in Factor if f not in quiet)


def facts(measured: Measured) -> list[str]:
    """Acceptance, speed, time and findings of one cell, each with its unit."""
    said = []
    if measured.accept_length is not None:
        said.append(f"{measured.accept_length:.2f} tokens a step")
    if measured.tokens_per_s is not None:
        plain = measured.plain_tokens_per_s
        beside = "" if plain is None else f" (plain decoding {plain:.1f})"
        said.append(f"{measured.tokens_per_s:.1f} tokens/s{beside}")
    if measured.seconds:
        said.append(f"measured in {duration(measured.seconds)}")
    said.append(findings_words(measured))
    return said


def findings_words(measured: Measured) -> str:
    """``3 findings of 2 checks``; that nothing was checked is said too."""
    if measured.findings is None:
        return "not checked"
    total = sum(measured.findings.values())
    if not total:
        return "nothing found by the checks"
    return f"{plural(total, 'finding')} of {plural(len(measured.findings), 'check')}"


def hover_lines(cell: Cell, outcome: Outcome | None, measured: Measured | None) -> list[str]:
    """What a cell of the grid says."""
    lines = [str(cell), f"{outcome_words(outcome)}: {cell_mark(outcome).meaning}"]
    if measured is None:
        return lines
    lines += facts(measured)
    if (at := first_difference(measured)) is not None:
        lines.append(f"first difference at token {at}")
    for text in (measured.error, measured.sentence):
        lines += [shorten(text, 110)] if text else []
    return lines


def first_difference(measured: Measured) -> int | None:
    """The earliest token of any request that is not plain decoding's."""
    known = [r.first_difference for r in measured.requests if r.first_difference is not None]
    return min(known, default=None)


def request_words(request: Compared) -> list[str]:
    """How a request stands beside plain decoding."""
    at = request.first_difference
    if at is None:
        said = ["plain decoding's text, token by token"]
    else:
        said = [f"leaves plain decoding's text at token {at}"]
        if request.margin is not None:
            said.append(f"plain decoding prefers its own token there by {request.margin:.3g}")
        if request.near_tie is not None:
            said.append("a near-tie" if request.near_tie else "no near-tie")
    if request.plain_parts is not None:
        said.append(f"plain decoding differs from itself at token {request.plain_parts}")
    if request.repeats is not None:
        said.append("both runs alike" if request.repeats else "the second run gave another text")
    if request.accept_length is not None:
        said.append(f"{request.accept_length:.2f} tokens a step")
    return said


def pair_words(pair: Pair) -> str:
    """What both cells of a pair share, and the prompt that was decoded in both."""
    apart = {*pair.broken.differs_in(pair.other), pair.factor}
    words = cell_words(pair.broken, (*apart, Factor.PROMPT))
    moved = pair.broken.value(pair.factor) == pair.other.value(pair.factor)
    place = "at another place in the batch" if moved else ""
    return ", ".join(filter(None, (words, phrase(Factor.PROMPT, pair.prompt), place)))


def subject_lines(experiment: Experiment) -> list[str]:
    """``name: value`` of each field of what is tried, and the prompts."""
    subject, lines = experiment.subject, []
    for field in fields(subject):
        value = getattr(subject, field.name)
        if value in (None, ()):
            continue
        if field.name == "environment":
            value = shlex.join(f"{name}={content}" for name, content in value)
        lines.append(f"{field.name}: {shlex.join(value) if isinstance(value, tuple) else value}")
    lines += [f"prompt {k}: {text}" for k, text in enumerate(experiment.matrix.prompts)]
    return [*lines, f"new tokens: {experiment.matrix.max_new_tokens}"]
