"""The text so far against plain decoding, token by token: looks prove nothing, ids do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from workbench.loaded import Loaded
from workbench.outcome import Outcome, mark
from workbench.selection import Selection
from workbench.tokens import as_code, visible

CONTEXT_TOKENS = 40  # shown before the first difference


@dataclass(frozen=True)
class TextComparison:
    """Tokens written so far and plain decoding's, and the first index at which they differ."""

    ours: tuple[int, ...]
    plain: tuple[int, ...]
    first_difference: int | None


def compare(ours: Sequence[int], plain: Sequence[int]) -> TextComparison:
    """Compare as far as both go; a text that is merely shorter so far does not differ."""
    pairs = enumerate(zip(ours, plain, strict=False))
    first = next((i for i, (mine, theirs) in pairs if mine != theirs), None)
    return TextComparison(tuple(ours), tuple(plain), first)


def written(loaded: Loaded, selection: Selection) -> list[int]:
    """Token ids of the selected request up to the selected step: its first root, then what was
    emitted.
    """
    tokens: list[int] = []
    for step in loaded.steps_of(selection.rank):
        if step > selection.step:
            break
        emitted = loaded.emitted(step, selection.rank)
        own = next((e for e in emitted if e.rid == selection.rid), None)
        if own is None or own.tokens is None:
            continue
        if not tokens and own.root is not None:
            tokens.append(own.root)
        tokens += own.tokens
    return tokens


def draw_text(loaded: Loaded, selection: Selection) -> None:
    """Nothing where the recording holds no plain decoding of this request."""
    prompt = next((p for p in loaded.header.prompts if p.rid == selection.rid), None)
    if prompt is None or not prompt.plain_tokens:
        st.caption("Text: the recording holds no plain decoding of this request to compare with.")
        return
    result = compare(written(loaded, selection), prompt.plain_tokens)
    texts = loaded.texts
    st.markdown(f"**Text up to this step** · {summary(result, texts)}")
    left, right = st.columns(2)
    with left:
        st.caption("DDTree")
        st.code(excerpt(result.ours, result, texts), language=None, wrap_lines=True)
    with right:
        st.caption("plain decoding")
        st.code(plain_excerpt(result, texts, prompt.plain_text), language=None, wrap_lines=True)


def summary(result: TextComparison, texts: Mapping[int, str]) -> str:
    """One sentence, as Markdown."""
    at = result.first_difference
    if at is None:
        return f"all {min(len(result.ours), len(result.plain))} tokens are plain decoding's"
    cross = mark(Outcome.FAULT).glyph
    mine, theirs = result.ours[at], result.plain[at]
    return (
        f":red[{cross}] token {at} is {_named(mine, texts)}, plain decoding writes {_named(theirs, texts)}; "
        f"the {at} tokens before it agree"
    )


def _named(token: int, texts: Mapping[int, str]) -> str:
    text = texts.get(token)
    return as_code(f"#{token}") if text is None else f"{as_code(visible(text))} (id {token})"


def excerpt(tokens: Sequence[int], result: TextComparison, texts: Mapping[int, str]) -> str:
    """Text around the first difference, the differing token in ⟦ ⟧."""
    at = result.first_difference
    start = 0 if at is None else max(0, at - CONTEXT_TOKENS)
    pieces = ["… "] if start else []
    for index in range(start, len(tokens)):
        piece = texts.get(tokens[index], f" #{tokens[index]}")
        pieces.append(f"⟦{visible(piece)}⟧" if index == at else piece)
    return "".join(pieces) or "(nothing yet)"


def plain_excerpt(result: TextComparison, texts: Mapping[int, str], plain_text: str | None) -> str:
    """Plain decoding's text as the recording holds it, the differing token in ⟦ ⟧; without it, as
    far as our own text goes, token by token.
    """
    at = result.first_difference
    before = "".join(texts.get(token, "") for token in result.plain[:at])
    token = None if at is None else texts.get(result.plain[at])
    if plain_text is None or token is None or not plain_text.startswith(before + token):
        return excerpt(result.plain[: len(result.ours)], result, texts)
    return f"{before}⟦{visible(token)}⟧{plain_text[len(before + token) :]}"
