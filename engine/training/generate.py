"""Many answers of a target at once: a pool of rows that each take the next prompt when their answer ends.

Prompts are fed token by token through the same step that generates, so a step is one fixed shape, which a CUDA graph
replays; the host looks at the pool every few steps only. Covered: greedy, and sampling at a temperature with top-k and
top-p. Not covered: prefill in one pass, prefix sharing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.attention.decode_rows import decode_rows
from engine.models.decoder import Decoder

POLL = 16  # steps between two looks of the host


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen; greedy at temperature 0."""

    temperature: float = 0.0
    top_k: int = 64
    top_p: float = 1.0

    def choose(self, logits: Tensor) -> Tensor:
        """One token a row, int64 [rows], of ``logits`` [rows, V]; never waits for the device."""
        if self.temperature == 0.0:
            return logits.argmax(dim=-1)
        best, ids = logits.topk(min(self.top_k, logits.shape[-1]), dim=-1)
        probs = (best.float() / self.temperature).softmax(dim=-1)
        before = probs.cumsum(dim=-1) - probs
        kept = probs.masked_fill(before >= self.top_p, 0.0)
        noise = torch.empty_like(kept).exponential_()
        return ids.gather(1, (kept / noise).argmax(dim=-1, keepdim=True))[:, 0]


@dataclass(frozen=True)
class Answer:
    """What followed one prompt; a stop token is the last, if it came."""

    prompt: int  # index into the prompts
    tokens: list[int]


class RowPool:
    """Rows on the device: caches, tokens so far, and one generating step for all of them."""

    def __init__(
        self, model: Decoder, rows: int, capacity: int, stop: Sequence[int], sampling: Sampling
    ) -> None:
        config, device = model.config, model.device
        shape = (config.num_layers, rows, capacity, config.num_kv_heads, config.head_dim)
        self.model, self.sampling, self.capacity = model, sampling, capacity
        self.keys = torch.zeros(shape, dtype=model.dtype, device=device)
        self.values = torch.zeros(shape, dtype=model.dtype, device=device)
        self.row = torch.arange(rows, device=device)
        self.text = torch.zeros(rows, capacity + 1, dtype=torch.int64, device=device)
        self.position = torch.zeros(rows, dtype=torch.int64, device=device)
        self.prompt_len = torch.ones(rows, dtype=torch.int64, device=device)
        self.limit = torch.ones(rows, dtype=torch.int64, device=device)  # tokens with the answer
        self.done = torch.ones(rows, dtype=torch.bool, device=device)
        self.stop = torch.tensor(list(stop), dtype=torch.int64, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None

    def fill(self, rows: Sequence[int], prompts: Sequence[Sequence[int]], answer: int) -> None:
        """Start prompts in rows; each may add ``answer`` tokens."""
        width = max(len(prompt) for prompt in prompts)
        table = torch.zeros(len(prompts), width, dtype=torch.int64)
        for line, prompt in zip(table, prompts, strict=True):
            line[: len(prompt)] = torch.tensor(prompt)
        where = torch.tensor(rows, device=self.row.device)
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.row.device)
        self.text[where, :width] = table.to(self.row.device)
        self.prompt_len[where] = lengths
        self.limit[where] = (lengths + answer).clamp(max=self.capacity)
        self.position[where] = 0
        self.done[where] = False

    def step(self) -> None:
        """One token in every row. Rows that are done stand still."""
        if self.row.is_cuda:
            self._replay()
        else:
            self._step()

    def _replay(self) -> None:
        if self._graph is None:
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                state = [t.clone() for t in (self.text, self.position, self.done)]
                self._step()  # compiles what is compiled once
                for kept, old in zip((self.text, self.position, self.done), state, strict=True):
                    kept.copy_(old)
            torch.cuda.current_stream().wait_stream(side)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._step()
        self._graph.replay()

    def _step(self) -> None:
        position, row = self.position, self.row
        lengths = position + 1

        def attention(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            self.keys[layer].index_put_((row, position), key)
            self.values[layer].index_put_((row, position), value)
            return decode_rows(query, self.keys[layer], self.values[layer], lengths)

        token = self.text[row, position]
        logits = self.model(token, position, attention, check=False).logits
        chosen = self.sampling.choose(logits)
        given = lengths < self.prompt_len
        following = torch.where(given | self.done, self.text[row, lengths], chosen)
        self.text.index_put_((row, lengths), following)
        ended = (following[:, None] == self.stop).any(dim=1) | (lengths + 1 >= self.limit)
        self.done |= ended & ~given
        self.position += (~self.done).long()

    def answers(self, rows: Sequence[int]) -> list[list[int]]:
        """What rows that are done have generated."""
        where = torch.tensor(rows, device=self.row.device)
        text = self.text[where].cpu()
        starts = self.prompt_len[where].tolist()
        ends = (self.position[where] + 2).tolist()
        return [
            line[start:end].tolist() for line, start, end in zip(text, starts, ends, strict=True)
        ]


@torch.inference_mode()
def generate(
    model: Decoder,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    stop: Sequence[int],
    rows: int = 2048,
    sampling: Sampling | None = None,
    until: Callable[[], bool] = lambda: False,
) -> Iterator[Answer]:
    """Answers in the order in which they end. ``until`` is asked now and then, and true stops early.

    Raises ``ValueError`` for an empty prompt, or one that leaves no room in the model's positions.
    """
    longest = max((len(prompt) for prompt in prompts), default=0)
    capacity = longest + max_new_tokens
    if longest + 1 > model.config.max_position:
        raise ValueError(
            f"prompts: expected fewer than {model.config.max_position} tokens, found {longest}"
        )
    if not all(prompts):
        raise ValueError(
            f"prompt {[bool(p) for p in prompts].index(False)}: expected tokens, found none"
        )
    capacity = min(capacity, model.config.max_position)
    rows = min(rows, max(len(prompts), 1))
    pool = RowPool(model, rows, capacity, stop, sampling or Sampling())
    taken: dict[int, int] = {}  # row -> prompt
    free, following = list(range(rows)), 0
    while (following < len(prompts) or taken) and not until():
        new = free[: len(prompts) - following]
        if new:
            pool.fill(new, prompts[following : following + len(new)], max_new_tokens)
            taken |= {row: following + i for i, row in enumerate(new)}
            following, free = following + len(new), free[len(new) :]
        for _ in range(POLL):
            pool.step()
        done = pool.done.tolist()
        ended = [row for row in taken if done[row]]
        if ended:
            for row, tokens in zip(ended, pool.answers(ended), strict=True):
                yield Answer(taken.pop(row), tokens)
            free += ended
