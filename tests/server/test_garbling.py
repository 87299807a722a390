"""Looks of garbled texts, and texts that only look like them."""

from __future__ import annotations

import time

import pytest

from engine.server.garbling import signals_of


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("The.r!!!!!!", "one symbol again and again"),
        ("Here is a poemownersWrite", "no space where one belongs"),
        ("It is blue,and wide", "no space where one belongs"),
        ("a wavxqzrtl of it", "hardly a word"),
        ("an oceanжук here", "hardly a word"),
        ("the sea the sea the sea the sea the sea", "the same words again and again"),
        ("so \ufffd\ufffd it", "characters that cannot be shown"),
    ],
)
def test_what_garbled_texts_had(text: str, kind: str) -> None:
    (signal,) = signals_of(text)
    assert signal.kind == kind
    assert signal.excerpt == text[signal.place : signal.place + 40]


@pytest.mark.parametrize(
    "text",
    [
        "The ocean's waves, e.g. those of 3.5 m, break.\n\n-----\n\nThen they rest.",
        "```python\ndef quickSort(arrLeft): return arrLeft!=arrRight;x\n```",
        "Call `quickSort.Run!!!!!!` from https://example.org/aB.Cd",
        "HTTPS and NASA, no no no.",
        "Море широкое. 海は広い。",
        "",
    ],
)
def test_what_only_looks_like_it(text: str) -> None:
    assert signals_of(text) == ()


@pytest.mark.parametrize(
    "text", ["a" * 200_000, "a b " * 50_000, "`" * 200_000, "ab," * 60_000, "! " * 99_999]
)
def test_long_texts_take_no_long_time(text: str) -> None:
    started = time.perf_counter()
    signals_of(text)
    assert time.perf_counter() - started < 2
