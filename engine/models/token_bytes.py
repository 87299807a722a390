"""The bytes behind a vocabulary entry, for byte-level vocabularies and for those with byte
fallback.
"""

from __future__ import annotations

import re

WORD_START = "\u2581"  # stands for a space in SentencePiece vocabularies
FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """The character that byte-level vocabularies (GPT-2) write for each byte: itself if printable,
    else 256 on.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + place): byte for place, byte in enumerate(others)}


BYTE_OF = _byte_alphabet()


def piece_bytes(piece: str, byte_level: bool) -> bytes:
    """Bytes of vocabulary entry ``piece``: "Ġthe" is b" the" if byte_level, "<0x0A>" is a newline
    if not.
    """
    if byte_level:
        return b"".join(
            bytes([BYTE_OF[char]]) if char in BYTE_OF else char.encode("utf-8") for char in piece
        )
    fallback = FALLBACK.fullmatch(piece)
    if fallback:
        return bytes([int(fallback[1], 16)])
    return piece.replace(WORD_START, " ").encode("utf-8")
