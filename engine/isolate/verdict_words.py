"""The sentence of a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.isolate.cell import Cell, Factor
from engine.isolate.hangs_on import Explained
from engine.isolate.outcome import Outcome
from engine.isolate.predicates import ALWAYS
from engine.isolate.verdict import Kind, Pair, Verdict

OF_EVERY_CELL = {  # where to look when nothing that is varied tells
    Kind.FAILED: "the errors of the cells",
    Kind.SLOW: "what a step costs and accepts beside a step of plain decoding",
}
NAMES = {Factor.TOPK: "top-k"}
WORDS = {
    Kind.WRONG: "Wrong",
    Kind.FAILED: "Fails",
    Kind.SLOW: "Lossless but slow",
    Kind.LATENT: "No text is wrong, yet the checks find a fault",
}


@dataclass(frozen=True)
class Counts:
    """Cells of a verdict."""

    broken: int
    measured: int
    failed: int = 0  # of the broken ones, where others are wrong
    besides: int = 0  # failed, and not spoken of


def cells(count: int) -> str:
    """``1 cell``, ``2 cells``."""
    return f"{count} cell{'s' * (count != 1)}"


def nobody(found: Mapping[Cell, Outcome]) -> Verdict:
    """The verdict where nothing is broken."""
    count, all_of_them = Counter(found.values()), cells(len(found))
    if not found:
        return Verdict(Kind.NOTHING, "Nothing was measured yet.")
    if unjudged := count[Outcome.NONDETERMINISTIC]:
        return Verdict(
            Kind.NONDETERMINISTIC,
            f"Not to be judged in {unjudged} of {all_of_them}: plain decoding differs from itself, so a text that "
            f"differs from it proves nothing. Nothing is blamed on the trees.",
        )
    if sampled := count[Outcome.SAMPLED]:
        return Verdict(
            Kind.SAMPLED,
            f"Nothing wrong was seen, but {sampled} of {all_of_them} cannot be judged: a server draws other random "
            f"numbers with speculation, so a sampled text need not be plain decoding's. Try them at temperature 0.",
        )
    if close := count[Outcome.NEAR_TIE]:
        return Verdict(
            Kind.NEAR_TIE,
            f"Lossless but for rounding: in {close} of {all_of_them} the text leaves plain decoding's where two "
            f"tokens lie too close for the number format. Nothing is wrong.",
        )
    return Verdict(
        Kind.CLEAN, f"Clean: {all_of_them}, every text is plain decoding's, token by token."
    )


def blame(
    kind: Kind,
    why: Explained,
    count: Counts,
    proof: Sequence[Pair],
    same: Sequence[Pair],
    cause: str | None,
) -> str:
    """What is broken, where alone, what does not matter, where to look, and what proves it."""
    best = why.best
    everywhere = best is ALWAYS
    where = "whatever is varied" if everywhere else f"only where {best.text}"
    if everywhere and count.broken == count.measured:
        where = f"in every cell, {where}"
    parts = [f"{_what(kind, count)} {where} ({_many(count)})"]
    if same:
        names = _listed([NAMES.get(pair.factor, str(pair.factor)) for pair in same])
        parts.append(f"{names} {_plural(len(same), 'does', 'do')} not matter")
    elsewhere = OF_EVERY_CELL.get(kind) if everywhere else None
    parts.append(f"look at {elsewhere or best.path}")
    if not everywhere:
        parts.append(_proved(len(proof)))
    if quiet := len(why.quiet):
        texts = f"{quiet} {_plural(quiet, 'text is', 'texts are')}"
        parts.append(f"{texts} {'not slow' if kind is Kind.SLOW else 'right'} all the same")
    return _ended(parts, count, cause)


def unexplained(kind: Kind, why: Explained, count: Counts, cause: str | None) -> str:
    """Broken now here, now there."""
    parts = [f"{_what(kind, count)} in {_many(count)}, and nothing that is varied tells in which"]
    if why.best is not ALWAYS:
        parts.append(f"all of them have {why.best.text}, but so have {len(why.quiet)} right texts")
    return _ended(parts, count, cause)


def _ended(parts: Sequence[str], count: Counts, cause: str | None) -> str:
    besides = [f"{cells(count.besides)} failed besides"] if count.besides else []
    return "; ".join([*parts, *besides, *([f"the checks say {cause}"] if cause else [])]) + "."


def _what(kind: Kind, count: Counts) -> str:
    return f"{WORDS[kind]} or failed" if count.failed else WORDS[kind]


def _many(count: Counts) -> str:
    failed = f", {count.failed} of them failed" if count.failed else ""
    return f"{count.broken} of {cells(count.measured)}{failed}"


def _proved(pairs: int) -> str:
    if not pairs:
        return "no two cells that differ in one thing alone prove it yet"
    return f"{pairs} {_plural(pairs, 'pair proves', 'pairs prove')} it, alike in all but one thing"


def _plural(count: int, one: str, many: str) -> str:
    return one if count == 1 else many


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
