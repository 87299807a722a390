"""The frame that a chat template puts around a user's message, so that a target can write the message itself."""

from __future__ import annotations

from dataclasses import dataclass

from engine.models.tokenizer import Tokenizer

PROBE = "Which way is the wind?"  # any text without a space at either end


@dataclass(frozen=True)
class ChatFrame:
    """Token ids before and after a user's message; the answer follows ``tail``."""

    head: tuple[int, ...]
    tail: tuple[int, ...]

    @property
    def end_of_message(self) -> int:
        """The token that ends a message."""
        return self.tail[0]

    def around(self, message: list[int]) -> list[int]:
        """A whole prompt."""
        return [*self.head, *message, *self.tail]


def chat_frame(tokenizer: Tokenizer) -> ChatFrame:
    """Found by encoding a probe. Raises ``ValueError`` for a tokenizer without a chat template."""
    whole, inner = tokenizer.encode_chat(PROBE), tokenizer.encode(PROBE)
    for start in range(len(whole) - len(inner) + 1):
        if whole[start : start + len(inner)] == inner:
            frame = ChatFrame(tuple(whole[:start]), tuple(whole[start + len(inner) :]))
            if frame.tail:
                return frame
    raise ValueError(
        "tokenizer: expected a chat template with a mark after the user's message, found none: "
        "give the prompts as text"
    )
