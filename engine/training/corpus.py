"""Corpus: prompts and answers as one flat list of tokens, kept in parts on disk, and cut into training batches."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.step import Int64

NGRAM = 8
ALIGNED = 64  # batches are a multiple of this long: few shapes, and products of aligned sizes
BUCKET = 64  # batches among which sequences are sorted by length, so that little is padded


@dataclass(frozen=True, eq=False)
class Corpus:
    """Sequences of tokens, each a prompt and its answer."""

    tokens: NDArray[np.int32]  # [all]
    offsets: Int64  # [sequences + 1], where each begins
    prompt_lens: Int64  # [sequences]

    def __len__(self) -> int:
        return len(self.prompt_lens)

    @property
    def answer_tokens(self) -> int:
        """Tokens of all answers."""
        return len(self.tokens) - int(self.prompt_lens.sum())

    @classmethod
    def of(cls, pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> Corpus:
        """From prompts and answers."""
        pairs = list(pairs)
        lengths = np.array([len(prompt) + len(answer) for prompt, answer in pairs], np.int64)
        flat = [token for prompt, answer in pairs for token in (*prompt, *answer)]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        prompts = np.array([len(prompt) for prompt, _ in pairs], np.int64)
        return cls(np.array(flat, np.int32), offsets, prompts)

    def sequence(self, index: int) -> NDArray[np.int32]:
        """Prompt and answer of one sequence, int32 [tokens]."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def split(self, held_out: int) -> tuple[Corpus, Corpus]:
        """The corpus without its last ``held_out`` sequences, and those."""
        return self.part(0, len(self) - held_out), self.part(len(self) - held_out, len(self))

    def part(self, start: int, end: int) -> Corpus:
        """Sequences ``start`` … ``end - 1``."""
        low, high = self.offsets[start], self.offsets[end]
        offsets = self.offsets[start : end + 1] - low
        return Corpus(self.tokens[low:high], offsets, self.prompt_lens[start:end])

    def save(self, path: Path) -> None:
        """One part, compressed; whole or not at all."""
        partial = path.with_name(path.name + ".partial")
        with open(partial, "wb") as file:
            np.savez_compressed(
                file, tokens=self.tokens, offsets=self.offsets, prompt_lens=self.prompt_lens
            )
        partial.replace(path)

    @classmethod
    def load(cls, paths: Sequence[Path]) -> Corpus:
        """Parts one after another. Raises ``ValueError`` for a file that is no part, or for no file."""
        if not paths:
            raise ValueError("corpus: expected at least one part (*.npz), found none")
        parts = [cls._part(path) for path in paths]
        lengths = np.concatenate([np.diff(part.offsets) for part in parts])
        return cls(
            np.concatenate([part.tokens for part in parts]),
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            np.concatenate([part.prompt_lens for part in parts]),
        )

    @classmethod
    def _part(cls, path: Path) -> Corpus:
        try:
            with np.load(path, allow_pickle=False) as file:
                part = cls(file["tokens"], file["offsets"], file["prompt_lens"])
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path}: expected a part of a corpus, found: {error}") from error
        if len(part.offsets) != len(part) + 1 or int(part.offsets[-1]) != len(part.tokens):
            raise ValueError(
                f"{path}: expected {len(part) + 1} offsets up to {len(part.tokens)} tokens, found "
                f"{len(part.offsets)} up to {int(part.offsets[-1])}"
            )
        return part


def repeated_share(answer: Sequence[int]) -> float:
    """Share of the answer's 8-grams that stood in it before; 0 for a shorter answer."""
    if len(answer) < NGRAM:
        return 0.0
    grams = np.lib.stride_tricks.sliding_window_view(np.array(answer, np.int32), NGRAM)
    different = np.unique(np.ascontiguousarray(grams).view(f"V{4 * NGRAM}")[:, 0])
    return 1.0 - len(different) / len(grams)


@dataclass(frozen=True, eq=False)
class Batch:
    """Sequences of like length with the blocks that are predicted in them."""

    tokens: Tensor  # int64 [batch, length], padded with 0 on the right
    anchors: Tensor  # int64 [batch, anchors]: place of the block's first token, which is given
    labels: Tensor  # int64 [batch, anchors, block_size - 1]: the tokens after it, -1 past the end

    def to(self, device: torch.device) -> Batch:
        """The same on a device."""
        moved = (t.to(device, non_blocking=True) for t in (self.tokens, self.anchors, self.labels))
        return Batch(*moved)


def batches(
    corpus: Corpus, *, size: int, anchors: int, block_size: int, seed: int, pin: bool = False
) -> Iterator[Batch]:
    """One pass over the corpus in random order; the last sequences that fill no batch are left out."""
    chance = np.random.default_rng(seed)
    usable = np.flatnonzero(np.diff(corpus.offsets) - corpus.prompt_lens >= 2)
    order = chance.permutation(usable)
    lengths = np.diff(corpus.offsets)[order]
    groups = []
    for start in range(0, len(order), BUCKET * size):
        bucket = order[start : start + BUCKET * size]
        bucket = bucket[np.argsort(lengths[start : start + BUCKET * size], kind="stable")]
        groups += [bucket[i : i + size] for i in range(0, len(bucket) - size + 1, size)]
    chance.shuffle(groups)
    for group in groups:
        made = make_batch(corpus, group.tolist(), anchors, block_size, chance)
        yield Batch(made.tokens.pin_memory(), made.anchors, made.labels) if pin else made


def make_batch(
    corpus: Corpus,
    members: Sequence[int],
    anchors: int,
    block_size: int,
    chance: np.random.Generator,
) -> Batch:
    """Random anchors in each answer, from its first token to its last but one; all of them where there are fewer."""
    rows = [corpus.sequence(index) for index in members]
    starts = corpus.prompt_lens[list(members)]
    lengths = np.array([len(row) for row in rows])
    width = -(-int(lengths.max()) // ALIGNED) * ALIGNED
    tokens = np.zeros((len(rows), width + block_size), np.int64)
    for line, row in zip(tokens, rows, strict=True):
        line[: len(row)] = row
    span = lengths - 1 - starts
    drawn = np.sort(chance.random((len(rows), anchors)), axis=1)
    places = starts[:, None] + (drawn * span[:, None]).astype(np.int64)
    few = span <= anchors
    spread = starts[:, None] + np.arange(anchors) % span[:, None]
    places = np.where(few[:, None], spread, places)
    ahead = places[:, :, None] + np.arange(1, block_size)
    labels = np.take_along_axis(tokens[:, None, :], ahead, axis=2)
    labels[ahead >= lengths[:, None, None]] = -1
    return Batch(
        torch.from_numpy(tokens[:, :width].copy()),
        torch.from_numpy(places),
        torch.from_numpy(labels),
    )
