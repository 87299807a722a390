"""A request's text beside plain decoding's, the first difference marked.

A result keeps token ids and whole texts, not the text of each token, so that the place is found in the characters:
``⟦`` opens where they part and ``⟧`` closes after the word.
"""

from __future__ import annotations

import re
from itertools import takewhile

from engine.isolate.measured import Compared
from workbench.tokens import as_lines, visible

LONGEST = 20_000  # characters of a text that are shown
WORD = re.compile(r"\s*\S*")
ENDS = "⟦the text ends⟧"


def marked(request: Compared) -> tuple[str, str]:
    """The tree's text and plain decoding's."""
    tree, plain = request.text, request.plain_text
    if request.first_difference is None:
        return _shown(tree), _shown(plain)
    pairs = zip(tree, plain, strict=False)
    at = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    if at == len(tree) == len(plain):  # other tokens, the same letters
        return _shown(tree), _shown(plain)
    return _marked_at(tree, at), _marked_at(plain, at)


def _marked_at(text: str, at: int) -> str:
    if at >= len(text):
        return _shown(text) + ENDS
    found = WORD.match(text, at)
    end = max(at + 1, found.end() if found else at + 1)
    return f"{_shown(text[:at])}⟦{visible(text[at:end])}⟧{_shown(text[end:])}"


def _shown(text: str) -> str:
    rest = len(text) - LONGEST
    return as_lines(text[:LONGEST]) + (f" … {rest} characters more" if rest > 0 else "")
