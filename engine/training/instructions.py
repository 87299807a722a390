"""Seed instructions: short requests as people send them to an assistant, made by filling templates.

Each template crosses its word lists and is then said in several ways, so a few hundred words give tens of thousands of
different requests. Which of them are drawn depends on the seed alone.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Collection
from itertools import product
from pathlib import Path
from string import Formatter

SOURCE = Path(__file__).with_name("instructions.toml")


def seed_instructions(count: int, *, seed: int, without: Collection[str] = ()) -> list[str]:
    """``count`` different requests (fewer where the templates run out), every template with an equal share at first.

    The bare templates come before those that are said in other ways.

    ``without``: requests that must not be among them, whatever their case and punctuation.
    """
    source = tomllib.loads(SOURCE.read_text(encoding="utf-8"))
    chance = random.Random(seed)
    barred = {plain(text) for text in without}
    piles = []
    for template in source["templates"]:
        bare = [text for text in _filled(template, source["words"]) if plain(text) not in barred]
        pile: list[str] = []
        for frame in source["frames"]:
            chance.shuffle(bare)
            pile = [_said(frame, text) for text in bare] + pile  # taken from the end
        piles.append(pile)
    drawn: dict[str, None] = {}
    while piles and len(drawn) < count:
        piles = [pile for pile in piles if pile]
        for pile in piles:
            drawn[pile.pop()] = None
    texts = list(drawn)[:count]
    chance.shuffle(texts)
    return texts


def plain(text: str) -> str:
    """Letters, digits and single spaces alone, in lower case: what two spellings of one request share."""
    return " ".join("".join(c if c.isalnum() else " " for c in text.lower()).split())


def _said(frame: str, text: str) -> str:
    return frame.format(text, lower=text[0].lower() + text[1:])


def _filled(template: str, words: dict[str, list[str]]) -> list[str]:
    """A template with every combination of its word lists; a list named twice is taken once."""
    names = list(dict.fromkeys(name for _, name, _, _ in Formatter().parse(template) if name))
    choices = product(*(words[name] for name in names))
    return [template.format(**dict(zip(names, choice, strict=True))) for choice in choices]
