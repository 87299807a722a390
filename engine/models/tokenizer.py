"""Tokenizer: the few things this project asks of a Hugging Face tokenizer, from local files
only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.models.token_bytes import piece_bytes


class Tokenizer:
    """Text to ids and back. Ids are plain ints; unknown ones never raise."""

    def __init__(self, folder: Path) -> None:
        """Read the tokenizer files of ``folder``. Raises ValueError naming it if there are none to
        read.
        """
        from transformers import AutoTokenizer  # slow to import

        try:
            self._inner: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        except (OSError, ValueError) as error:
            raise ValueError(f"{folder}: expected tokenizer files, found: {error}") from error
        self._added: dict[int, str] = {
            number: str(token) for number, token in self._inner.added_tokens_decoder.items()
        }
        self._byte_level = "ByteLevel" in repr(self._inner.backend_tokenizer.decoder)

    @property
    def vocab_size(self) -> int:
        """Ids with a text, added tokens included; a model's vocabulary may be padded beyond it."""
        return len(self._inner)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of ``text``; with ``special``, framed by the tokens that this tokenizer adds by
        itself (bos).
        """
        return [int(i) for i in self._inner.encode(text, add_special_tokens=special)]

    def encode_chat(self, prompt: str) -> list[int]:
        """Ids of a conversation with one user message, up to where the assistant's answer starts.

        A tokenizer without a chat template gives the plain prompt, framed as the tokenizer does by
        itself.
        """
        if not self._inner.chat_template:
            return self.encode(prompt, special=True)
        text = self._inner.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
        return self.encode(text)

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        """Text of a sequence; special tokens are shown unless skipped. Unknown ids give nothing."""
        known = [i for i in ids if 0 <= i < self.vocab_size]
        return str(
            self._inner.decode(
                known, skip_special_tokens=skip_special, clean_up_tokenization_spaces=False
            )
        )

    def token_text(self, token: int) -> str:
        r"""Text of one token. Bytes that are no whole character appear escaped: ``\xf0\x9f``; no
        token: ``<id N>``.
        """
        if token in self._added:
            return self._added[token]
        piece = self._inner.convert_ids_to_tokens(token) if 0 <= token < self.vocab_size else None
        if piece is None:
            return f"<id {token}>"
        return piece_bytes(piece, self._byte_level).decode("utf-8", errors="backslashreplace")
