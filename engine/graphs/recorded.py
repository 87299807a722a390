"""Steps on the device, as the recorder takes them: what the kernels were given and concluded, copied to the host.

Between the two parts of a step the memory of the draft rows is looked at, as the eager engine does, so that a recording
says whose keys and values each committed position holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.decoding.best_first import BuiltTree, Candidates
from engine.decoding.commit import Committed, nodes_held, rows_held, watched_layers
from engine.decoding.engine import RequestState, StepResult
from engine.decoding.metadata import AttentionMetadata, Links, VerifyInputs, VerifyRequest
from engine.decoding.settings import EngineConfig
from engine.graphs.engine import GraphEngine
from engine.graphs.step import DeviceStep
from engine.models.decoder import Decoder
from engine.models.device import HOST, to_host
from engine.models.dflash import DFlash
from engine.tree import DraftTree


class RecordedEngine:
    """:class:`GraphEngine` with a drafter, whose steps come as :class:`StepResult`."""

    def __init__(
        self, target: Decoder, drafter: DFlash, config: EngineConfig, *, graphs: bool | None = None
    ) -> None:
        self.engine = GraphEngine(target, drafter, config, graphs=graphs)

    @property
    def running(self) -> list[RequestState]:
        """Requests that are not finished."""
        return self.engine.running

    def add(self, rid: str, prompt: Sequence[int], max_new_tokens: int) -> RequestState:
        """See :meth:`GraphEngine.add`."""
        return self.engine.add(rid, prompt, max_new_tokens)

    @torch.inference_mode()
    def step(self) -> StepResult:
        """One step of every running request, copied: nothing in it changes with the next."""
        states = list(self.engine.running)
        lens = [state.prefix_len for state in states]
        step = self.engine.verify()
        built = [_built(step, i) for i in range(len(states))]
        requests = [
            VerifyRequest(s.rid, b.tree, s.prefix_len, s.req_pool_idx)
            for s, b in zip(states, built, strict=True)
        ]
        table = self.engine.table.req_to_token
        slots = [
            table[s.req_pool_idx, :length].long() for s, length in zip(states, lens, strict=True)
        ]
        inputs, found = _inputs(step), step.verified
        predict, logits = to_host(found.predict), _wide(found.logits)
        links = Links(
            to_host(found.tree.retrieve_next_token)[: len(states)],
            to_host(found.tree.retrieve_next_sibling)[: len(states)],
        )
        paths = [[n for n in path if n >= 0] for path in to_host(step.walked.path).tolist()]
        paths = paths[: len(states)]
        bonus = to_host(step.walked.bonus)[: len(states)].tolist()
        emitted, committed = self._commit(step, paths)
        return StepResult(
            requests,
            slots,
            built,
            inputs,
            links,
            logits,
            predict,
            paths,
            bonus,
            emitted,
            committed,
            len(step.layout.custom_mask),
        )

    def _commit(
        self, step: DeviceStep, paths: list[list[int]]
    ) -> tuple[list[list[int]], dict[int, list[list[int]]]]:
        """Tokens that each request emits, and whose memory its new positions hold in the watched layers."""
        pool, q_len = self.engine.pool, step.layout.q_len
        layers = watched_layers(pool)
        places = step.layout.out_cache_loc.view(-1, q_len)[: len(paths)].clone()
        before = [[rows_held(pool, layer, own) for layer in layers] for own in places]
        emitted = list(self.engine.commit(step).values())
        commits = []
        for path, own, rows in zip(paths, places, before, strict=True):
            after = [rows_held(pool, layer, own[: len(path)]) for layer in layers]
            same = [(new[:, None] == old).all(-1) for old, new in zip(rows, after, strict=True)]
            commits.append(Committed(path, torch.stack(same)))
        return emitted, nodes_held(layers, commits)


def _built(step: DeviceStep, request: int) -> BuiltTree:
    """One request's tree and candidates on the host, real nodes only."""
    tree, candidates = step.verified.tree, step.verified.candidates
    assert candidates is not None
    count = int(tree.counts[request])
    parents, tokens, ranks, weights = (
        to_host(part[request, :count]).numpy().copy()
        for part in (tree.parents, tree.tokens, tree.ranks, tree.log_weights)
    )
    log_probs, ids = (to_host(part[request]).numpy().copy() for part in candidates)
    return BuiltTree(DraftTree(parents, tokens, weights), ranks, Candidates(log_probs, ids))


def _inputs(step: DeviceStep) -> VerifyInputs:
    """The buffers as the forward read them, copied to the host."""
    layout = step.layout
    keys, cells = int(layout.kv_indptr[-1]), int(layout.mask_indptr[-1])
    attention = AttentionMetadata(
        _copy(layout.qo_indptr),
        _copy(layout.kv_indptr),
        _copy(layout.kv_indices[:keys]),
        _copy(layout.mask_indptr),
        _copy(layout.custom_mask[:cells]),
        layout.q_len,
    )
    return VerifyInputs(
        _copy(layout.input_ids),
        _copy(layout.positions),
        _copy(step.state.seq_lens),
        _copy(layout.out_cache_loc),
        attention,
    )


def _copy(tensor: Tensor) -> Tensor:
    return tensor.to(HOST, copy=True)


def _wide(logits: Tensor) -> Tensor:
    """Logits as the eager engine has them."""
    return logits.float() if logits.dtype.itemsize < 4 else logits.clone()
