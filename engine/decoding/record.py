"""From a step of the engine to its VerifyStep: facts are copied, never corrected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

import engine
from engine.decoding.engine import StepResult
from engine.decoding.settings import EngineConfig
from engine.models.decoder import Decoder
from engine.models.kv_pool import PADDING_SLOT
from engine.step import (
    UNKNOWN_TOKEN,
    Commit,
    Config,
    Extras,
    Float64,
    Inputs,
    Int64,
    LayerCommit,
    Links,
    Outcome,
    Reference,
    Request,
    Source,
    TreeRecord,
    VerifyStep,
)

NAMED = 8  # ranks of each draft position whose texts are recorded


@dataclass(frozen=True, eq=False)
class Recorder:
    """Makes the records of one run."""

    model: Decoder
    config: EngineConfig
    model_name: str
    fault: str | None = None
    token_text: Callable[[int], str] | None = None

    def record(
        self, number: int, result: StepResult, reference: Sequence[Tensor] | None = None
    ) -> VerifyStep:
        """One step. ``reference``: logits [num_nodes, V] of each live request from the reference model."""
        theirs = None if reference is None else self._spread(reference, result)
        return VerifyStep(
            requests=tuple(self._request(result, i) for i in range(len(result.requests))),
            step=number,
            source=self._source(result),
            config=self._config(result),
            inputs=self._inputs(result),
            links=Links(
                tuple(_ints(row) for row in result.links.retrieve_next_token),
                tuple(_ints(row) for row in result.links.retrieve_next_sibling),
            ),
            outcome=self._outcome(result),
            commit=self._commit(result),
            reference=Reference() if theirs is None else _reference(theirs),
            logits_dtype=str(self.model.dtype).removeprefix("torch."),
            workbench=self._extras(result, theirs),
        )

    def _request(self, result: StepResult, i: int) -> Request:
        request = result.requests[i]
        tree = request.tree
        return Request(
            rid=request.rid,
            prefix_len=request.prefix_len,
            tree=TreeRecord(tree.parents, tree.tokens, tree.log_weights),
            prefix_slots=_ints(result.prefix_slots[i]),
            counted_nodes=self.config.stages.counted_nodes(tree),
        )

    def _source(self, result: StepResult) -> Source:
        return Source(
            engine="ddtree",
            engine_version=engine.__version__,
            attention_backend=str(self.config.backend),
            model=self.model_name,
            deterministic=False,
            graph=str(self.config.graph),
            raw_bs=len(result.requests),
            captured_bs=len(result.inputs.seq_lens),
        )

    def _config(self, result: StepResult) -> Config:
        config, model = self.config, self.model.config
        return Config(
            budget=config.budget,
            block_size=config.block_size,
            topk=config.topk,
            temperature=config.sampler.temperature,
            verify_rows="static",
            num_draft_tokens=result.inputs.attention.max_extend_len,
            vocab_size=model.vocab_size,
            eos_token_ids=np.array(config.stop, np.int64),
            max_position=model.max_position,
            page_size=1,
            pool_size=(config.max_requests * (config.max_context + config.q_len)) + 1,
            padding_slot=PADDING_SLOT,
            mask_layout="full",
            mask_encoding="bytes",
            mask_capacity=result.mask_capacity,
            max_context=config.max_context,
            index_dtype="int64",
            kv_indptr_counts_draft=False,
            kv_indptr_unit="token",
        )

    def _inputs(self, result: StepResult) -> Inputs:
        inputs, attention = result.inputs, result.inputs.attention
        return Inputs(
            input_ids=_ints(inputs.input_ids),
            positions=_ints(inputs.positions),
            seq_lens=_ints(inputs.seq_lens),
            qo_indptr=_ints(attention.qo_indptr),
            kv_indptr=_ints(attention.kv_indptr),
            kv_indices=_ints(attention.kv_indices),
            max_extend_len=attention.max_extend_len,
            mask_indptr=_ints(attention.mask_indptr),
            custom_mask=self._mask(result),
            out_cache_loc=_ints(inputs.out_cache_loc),
        )

    def _mask(self, result: StepResult) -> np.ndarray:
        """The part of the buffer that either the true or the recorded extents reach."""
        buffer, attention = result.inputs.attention.custom_mask, result.inputs.attention
        q_len = self.config.q_len
        true_end = int((q_len * (result.inputs.seq_lens + q_len)).sum())
        end = max(true_end, int(attention.mask_indptr[-1]))
        return buffer[:end].cpu().numpy().astype(np.uint8, copy=True)

    def _outcome(self, result: StepResult) -> Outcome:
        q_len = self.config.q_len
        flat = [np.array([i * q_len + n for n in path]) for i, path in enumerate(result.accepted)]
        width = max(self.config.block_size, *map(len, flat))
        return Outcome(
            target_predict=_ints(result.target_predict),
            top2=_top2(result.logits),
            finite_rows=result.logits.isfinite().all(dim=-1).cpu().numpy(),
            accept_index=tuple(
                np.pad(rows, (0, width - len(rows)), constant_values=-1).astype(np.int64)
                for rows in flat
            ),
            accept_length=np.array([len(path) for path in result.accepted], np.int64),
            bonus_tokens=np.array(result.bonus, np.int64),
            emitted=tuple(np.array(tokens, np.int64) for tokens in result.emitted),
        )

    def _commit(self, result: StepResult) -> Commit:
        lengths = [
            r.prefix_len + len(path)
            for r, path in zip(result.requests, result.accepted, strict=True)
        ]
        layers = [
            LayerCommit(layer, tuple(np.array(nodes, np.int64) for nodes in held))
            for layer, held in result.committed_kv.items()
        ]
        return Commit(
            seq_lens=np.array(lengths, np.int64),
            kv=tuple(layers),
            hidden_rows=tuple(
                np.array(self.config.stages.hidden_rows(path), np.int64) for path in result.accepted
            ),
        )

    def _spread(self, reference: Sequence[Tensor], result: StepResult) -> Tensor:
        """Reference logits by flat row [rows, V]; NaN where there is no node."""
        rows = torch.full_like(result.logits, float("nan"))
        for i, logits in enumerate(reference):
            start = i * self.config.q_len
            rows[start : start + len(logits)] = logits
        return rows

    def _extras(self, result: StepResult, theirs: Tensor | None) -> Extras:
        diff = None
        if theirs is not None:
            diff = (result.logits - theirs).abs().amax(dim=-1).double().cpu().numpy()
        return Extras(
            token_texts=self._texts(result, theirs),
            max_logit_diff=diff,
            drafter_ranks=tuple(b.ranks for b in result.built),
            draft_width=result.built[0].candidates.tokens.shape[1],
            draft_tokens=np.concatenate([b.candidates.tokens.ravel() for b in result.built]),
            draft_log_probs=_known(
                np.concatenate([b.candidates.log_probs.ravel() for b in result.built])
            ),
            fault=self.fault,
        )

    def _texts(self, result: StepResult, theirs: Tensor | None) -> dict[int, str] | None:
        if self.token_text is None:
            return None
        ids = {int(t) for r in result.requests for t in r.tree.tokens}
        ids |= {int(t) for b in result.built for t in b.candidates.tokens[:, :NAMED].flat}
        ids |= set(result.target_predict.tolist())
        for logits in (result.logits,) if theirs is None else (result.logits, theirs):
            ids |= set(logits.nan_to_num(-torch.inf).topk(2, dim=-1).indices.flatten().tolist())
        return {token: self.token_text(token) for token in sorted(ids)}


def _ints(tensor: Tensor) -> Int64:
    return tensor.cpu().numpy().astype(np.int64, copy=True)


def _known(log_probs: Float64) -> Float64:
    """NaN (null in the record) for what can never be drafted."""
    return np.where(np.isfinite(log_probs), log_probs, np.nan)


def _top2(logits: Tensor) -> Float64:
    """Two best ids and logits of each row, [rows, 2, 2]; a row that is not finite is NaN (unknown)."""
    best = logits.nan_to_num(-torch.inf).topk(2, dim=-1)
    pairs = torch.stack([best.indices.double(), best.values.double()], dim=-1)
    pairs[~logits.isfinite().all(dim=-1)] = torch.nan
    return pairs.cpu().numpy()


def _reference(theirs: Tensor) -> Reference:
    known = theirs.isfinite().all(dim=-1).cpu().numpy()
    choice = theirs.nan_to_num(-torch.inf).argmax(dim=-1).cpu().numpy()

    return Reference(
        target_predict=np.where(known, choice, UNKNOWN_TOKEN).astype(np.int64), top2=_top2(theirs)
    )
