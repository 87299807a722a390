"""What the target says behind what it sees, with its sizes."""

from __future__ import annotations

import zlib

VOCAB, CONTEXT, SLOTS, REQUESTS = 24, 160, 700, 6
MASK_TOKEN = VOCAB - 1
Pairs = list[tuple[int, int]]  # (position, token)


def truth(seen: Pairs) -> int:
    """The target's choice behind what it sees; never the mask token."""
    return zlib.crc32(repr(sorted(seen)).encode()) % (VOCAB - 1)


SPREAD = ((0, 0.5), (1, 0.3), (5, 0.2))  # tokens after the true one, and how probable they are


def spread(seen: Pairs) -> dict[int, float]:
    """The target's distribution behind what it sees, where it is sampled."""
    first = truth(seen)
    return {(first + step) % (VOCAB - 1): chance for step, chance in SPREAD}


def plain(prompt: list[int], count: int, stop: int | None = None) -> list[int]:
    """What the target says token by token."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + count:
        tokens.append(truth(list(enumerate(tokens))))
        if tokens[-1] == stop:
            break
    return tokens[len(prompt) :]
