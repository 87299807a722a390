"""The verdict of an experiment: the sentence, the pairs of cells that prove it, and what would tell more."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from engine.isolate.cell import Cell, phrase
from engine.isolate.outcome import Outcome
from engine.isolate.verdict import Kind, Pair, Verdict
from workbench.header import draw_line
from workbench.lab_control import go_on, pick
from workbench.lab_words import cell_words, pair_words
from workbench.labs import Judged, Lab
from workbench.outcome import cell_mark
from workbench.tokens import for_markdown
from workbench.verdict import Headline, Level, plural

LEVELS = {
    Kind.NOTHING: Level.EMPTY,
    Kind.CLEAN: Level.CLEAN,
    Kind.NEAR_TIE: Level.CLEAN,
    Kind.SAMPLED: Level.EMPTY,
    Kind.WRONG: Level.FAULT,
    Kind.FAILED: Level.FAULT,
}  # all others warn
SHOWN = 3  # pairs of a factor


def draw_verdict(lab: Lab, judged: Judged) -> None:
    """The sentence: what it comes to in bold, the rest below it."""
    draw_line(headline_of(judged.verdict, len(judged.results), len(lab.store.left)))


def headline_of(verdict: Verdict, measured: int, left: int) -> Headline:
    """``left``: cells without a result; while there are some, the verdict is of those that have one."""
    head, _, rest = verdict.sentence.partition("; ")
    parts = [rest[:1].upper() + rest[1:]] if rest else []
    if left and measured:
        parts.append(f"So far: {plural(left, 'cell')} of {measured + left} not measured.")
    level = LEVELS.get(verdict.kind, Level.LATENT)
    if left and level is Level.CLEAN:  # what is not measured may be wrong
        level = Level.EMPTY
    return Headline(level, head, " ".join(parts))


def draw_proof(lab: Lab, judged: Judged) -> None:
    """Beside the grid: what decides, what does not, what is missing."""
    verdict = judged.verdict
    if verdict.proof:
        st.markdown("**What proves it** · two cells that differ in one thing")
        _draw_pairs(verdict.proof, judged, "proof")
    elif verdict.factors:
        st.markdown("**What proves it**")
        st.caption("No two measured cells differ in one thing alone and in their outcome.")
    if verdict.without_effect:
        st.markdown("**Without effect** · both sides are alike")
        _draw_pairs(verdict.without_effect, judged, "no effect")
    if verdict.cause:
        st.markdown(f"**What the checks say** · {for_markdown(verdict.cause)}")
    if verdict.missing:
        _draw_missing(lab, verdict.missing)
    if not (verdict.proof or verdict.factors or verdict.without_effect or verdict.missing):
        st.caption(
            f"{_why_no_pairs(verdict.kind)}. A pair: two cells that differ in one thing alone."
        )


def _why_no_pairs(kind: Kind) -> str:
    if kind is Kind.NOTHING:
        return "The pairs of cells that prove something stand here once some are measured"
    blamed = LEVELS.get(kind, Level.LATENT) in (Level.FAULT, Level.LATENT)
    if blamed and kind is not Kind.NONDETERMINISTIC:
        return "Nothing that is varied makes the difference, so no pair proves anything"
    return "No cell is to be blamed, so no pair is shown"


def _draw_pairs(pairs: Sequence[Pair], judged: Judged, name: str) -> None:
    by_factor: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_factor.setdefault(pair.factor, []).append(pair)
    for factor, own in by_factor.items():
        with st.container(gap="xsmall", key=f"pairs {name} {factor}"):
            for number, pair in enumerate(own[:SHOWN]):
                _draw_pair(pair, judged, f"{name} {factor} {number}")
        if len(own) > SHOWN:
            more = plural(len(own) - SHOWN, "more pair")
            with st.expander(f"{more} of this kind", key=f"more {name} {factor}"):
                for number, pair in enumerate(own[SHOWN : SHOWN + 40], SHOWN):
                    _draw_pair(pair, judged, f"{name} {factor} {number}")


def _draw_pair(pair: Pair, judged: Judged, key: str) -> None:
    """Both cells as buttons, and what they share."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"pair {key}"):
        for side, cell in (("broken", pair.broken), ("other", pair.other)):
            outcome = judged.outcomes.get(cell)
            st.button(
                f"{coloured(cell, judged)} {phrase(pair.factor, cell.value(pair.factor))}",
                key=f"{key} {side}",
                help=f"{outcome or 'not measured'}: show this cell",
                on_click=pick,
                args=(cell,),
            )
        st.caption(for_markdown(pair_words(pair)))


def coloured(cell: Cell, judged: Judged) -> str:
    """The glyph of a cell's outcome as Markdown, a fault's in red."""
    return glyph_of(judged.outcomes.get(cell))


def glyph_of(outcome: Outcome | None) -> str:
    """The same of an outcome."""
    look = cell_mark(outcome)
    return f":red[{look.glyph}]" if look.word == "wrong" else look.glyph


def _draw_missing(lab: Lab, cells: Sequence[Cell]) -> None:
    st.markdown("**Not measured, and would tell more**")
    for cell in cells:
        st.caption(for_markdown(cell_words(cell)))
    if lab.running or not lab.own:
        return
    st.button(
        f"Measure {'these' if len(cells) > 1 else 'this'} too",
        key="lab measure missing",
        on_click=go_on,
        args=(lab, tuple(cells)),
        help="added to this experiment, whose grid grows; nothing is measured again",
    )
