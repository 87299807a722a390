"""Leak mass: how much attention a step spends where it must not, and what that does to the logits.

The step is run again with its target: the committed tokens are read in afresh, so the cache is clean and only this
step's own mask and metadata are judged. Each row attends to the keys that the address formula names; the share of its
attention outside the intended mask is the leak, by layer and head. Then it is run with the intended mask.

Not covered: what a slot of nobody holds (zeros are taken), what an earlier step left wrong in the cache, sliding
windows. A row that nobody writes has no attention; its output is taken for zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.layout import QUERY_TILE, VISIBLE
from engine.models.decoder import Decoder
from engine.oracle import Oracle
from engine.step import VerifyStep
from engine.xray.bounds import bounded, require
from engine.xray.errors import XRayError
from engine.xray.formula import formula
from engine.xray.keys import NOBODY, Keys, keys_of


class Place(IntEnum):
    """Where attention leaks to."""

    PADDING = 0
    NOT_AN_ANCESTOR = 1
    OTHER_REQUEST = 2
    STALE_SLOT = 3  # nobody's, or beyond what was recorded
    REPEATED = 4  # a key of its own that it attends to again: what is beyond once


NAMES = ("padding", "not an ancestor", "another request", "stale slot", "a key again")


@dataclass(frozen=True, eq=False)
class Leak:
    """Of one step; rows are the batch's."""

    mass: NDArray[np.float64]  # [layers, heads, rows, places], shares of a row's attention
    logit_change: NDArray[np.float64]  # [rows], largest change of any logit under the intended mask
    real: NDArray[np.bool_]  # [rows], rows of nodes
    written: NDArray[np.bool_]  # [rows]
    choices_kept: int  # written rows of nodes whose best token is the recorded choice
    request: NDArray[np.int64]  # [rows], whose row it is
    row: NDArray[np.int64]  # [rows], its number in that request

    @property
    def total(self) -> NDArray[np.float64]:
        """All places together, [layers, heads, rows]."""
        total: NDArray[np.float64] = self.mass.sum(axis=-1)
        return total

    @property
    def leaks(self) -> bool:
        """Whether any row of a node attends to anything that it must not."""
        return bool((self.total[:, :, self.real] > 0).any())


def leak_of(step: VerifyStep, history: list[list[int]], model: Decoder) -> Leak:
    """``history``: the committed tokens of each live request.

    Raises :class:`XRayError` for a step that lacks inputs, or tokens that the target does not have.
    """
    oracle = Oracle(step)
    require(step, oracle)
    _require_rows(step, oracle)
    keys = keys_of(step, oracle)
    seen = formula(bounded(step, oracle, keys), keys, QUERY_TILE)
    times = np.maximum(seen.times, 0)
    wanted = _intended(step, oracle, keys)
    places = _places(step, oracle, keys, wanted)
    memory = _Memory(step, keys, history, model)
    as_run = _Run(memory, times, places)
    intended = _Run(memory, wanted.astype(np.int16), places)
    logits, clean = as_run.logits(step), intended.logits(step)
    real = np.zeros(keys.rows, np.bool_)
    for i in range(step.raw_bs):
        real[list(oracle.real_rows(i))] = True
    predicted = step.outcome.target_predict
    best = logits.argmax(dim=1).cpu().numpy()
    kept = (
        0 if predicted is None else int((best == predicted[: keys.rows])[real & seen.written].sum())
    )
    change = (logits - clean).abs().amax(dim=1).double().cpu().numpy()
    change[~(real & seen.written)] = 0.0
    mass = torch.stack(as_run.mass).double().cpu().numpy()
    own = keys.request[: keys.rows]
    starts = oracle.geometry.qo_indptr[own]
    return Leak(mass, change, real, seen.written, kept, own, np.arange(keys.rows) - starts)


def _require_rows(step: VerifyStep, oracle: Oracle) -> None:
    rows = int(oracle.geometry.qo_indptr[-1])
    for name in ("input_ids", "positions"):
        found = getattr(step.inputs, name)
        if found is None or len(found) != rows:
            count = "none" if found is None else str(len(found))
            raise XRayError(f"{name}: expected {rows} rows, found {count}")
    if step.config.sliding_window is not None:
        raise XRayError("sliding_window: expected none (the decoder has no windows), found one")


def _intended(step: VerifyStep, oracle: Oracle, keys: Keys) -> NDArray[np.bool_]:
    """What each row must attend to, bool [rows, keys]; padded requests attend to themselves."""
    wanted = np.zeros((keys.rows, keys.count), np.bool_)
    wanted[np.arange(keys.rows), np.arange(keys.rows)] = True
    for i in range(step.raw_bs):
        view = oracle.intended(i)
        rows = keys.columns[i][view.prefix_len :]
        wanted[np.ix_(rows, keys.columns[i])] = view.cells == VISIBLE
    return wanted


def _places(
    step: VerifyStep, oracle: Oracle, keys: Keys, wanted: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """:class:`Place` of each key that a row must not attend to, -1 for the others, int64 [rows, keys]."""
    places = np.full(wanted.shape, int(Place.OTHER_REQUEST))
    places[:, keys.request == NOBODY] = Place.STALE_SLOT
    for i in range(step.raw_bs):
        rows = keys.columns[i][int(oracle.prefix_lens[i]) :]
        places[np.ix_(rows, keys.columns[i])] = Place.NOT_AN_ANCESTOR
        padding = rows[oracle.num_verified(i) :]
        places[np.ix_(rows, padding)] = Place.PADDING
    places[wanted] = -1
    return places.astype(np.int64)


class _Memory:
    """Keys and values of every committed token by key number, read in afresh."""

    def __init__(
        self, step: VerifyStep, keys: Keys, history: list[list[int]], model: Decoder
    ) -> None:
        config = model.config
        shape = (keys.count, config.num_kv_heads, config.head_dim)
        self.model, self.rows = model, keys.rows
        self.k = [model.embedding.new_zeros(shape) for _ in range(config.num_layers)]
        self.v = [torch.zeros_like(k) for k in self.k]
        assert step.inputs.input_ids is not None
        rows = step.inputs.input_ids.tolist()
        for i, tokens in enumerate(history):
            largest = max((*tokens, *rows), default=0)
            if largest >= config.vocab_size or min((*tokens, *rows), default=0) < 0:
                raise XRayError(
                    f"tokens of {step.requests[i].rid}: expected ids 0 … {config.vocab_size - 1}, "
                    f"found {largest}; is it the recorded target?"
                )
            self._read(tokens, torch.from_numpy(keys.columns[i][: len(tokens)]))

    @torch.inference_mode()
    def _read(self, tokens: list[int], places: Tensor) -> None:
        if not tokens:
            return
        rows, device = len(tokens), self.model.device
        mask = torch.ones(rows, rows, dtype=torch.int16, device=device).tril()

        def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            self.k[layer][places.to(device)], self.v[layer][places.to(device)] = k, v
            return attend_shares(q, k, v, mask)[0]

        ids = torch.tensor(tokens, device=device)
        last = torch.tensor([rows - 1], device=device)
        self.model(ids, torch.arange(rows, device=device), attention, logits_rows=last)


class _Run:
    """One forward pass over the step's rows with given visibility."""

    def __init__(
        self, memory: _Memory, times: NDArray[np.int16], places: NDArray[np.int64]
    ) -> None:
        device = memory.model.device
        self.memory, self.times = memory, torch.from_numpy(times).to(device)
        again = np.where(places < 0, 1 - 1 / np.maximum(times, 1), 0.0)
        parts = [places == place for place in Place if place is not Place.REPEATED]
        self.parts = [
            torch.from_numpy(part.astype(np.float32)).to(device) for part in (*parts, again)
        ]
        self.mass: list[Tensor] = []  # by layer, [heads, rows, places]

    @torch.inference_mode()
    def logits(self, step: VerifyStep) -> Tensor:
        """[rows, vocab_size]; the masses of every layer are kept."""
        device = self.memory.model.device
        ids = torch.tensor(step.inputs.input_ids, device=device)
        positions = torch.tensor(step.inputs.positions, device=device)
        logits: Tensor = self.memory.model(ids, positions, self._attention).logits
        return logits

    def _attention(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = self.memory.k[layer].clone(), self.memory.v[layer].clone()
        keys[: self.memory.rows], values[: self.memory.rows] = k, v
        out, shares = attend_shares(q, keys, values, self.times)
        self.mass.append(torch.stack([(shares * part).sum(dim=-1) for part in self.parts], dim=-1))
        return out


def attend_shares(q: Tensor, k: Tensor, v: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
    """Attention with its shares: output like ``q`` [rows, heads, dim], shares float32 [heads, rows, keys].

    ``k``, ``v`` [keys, kv_heads, dim]; ``times`` [rows, keys], how often a row attends to a key. A row that attends to
    nothing has no shares and zeros as output.
    """
    group = q.shape[1] // k.shape[1]
    keys, values = (x.repeat_interleave(group, dim=1).float() for x in (k, v))
    scores = torch.einsum("rhd,khd->hrk", q.float(), keys) * q.shape[-1] ** -0.5
    weights = scores + times.float().log()
    shares = torch.softmax(weights, dim=-1).nan_to_num(0.0)
    out = torch.einsum("hrk,khd->rhd", shares, values)
    return out.to(q.dtype), shares
