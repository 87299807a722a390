"""One whole step of a captured batch on the device: draft, build, lay out, verify, walk; then commit.

Two parts, since a recording looks at the KV memory between them. Both are functions of persistent buffers with fixed
shapes and without a wait, so they are captured as CUDA graphs, together or apart, and replayed; on a host, or where
graphs are off, the same functions run as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.attention.chain import depth_on
from engine.attention.tree_verify import tree_verify_attention
from engine.decoding.device_tree import TreeTensors
from engine.graphs.capture import captured
from engine.graphs.choices import choices
from engine.graphs.drafting import DraftStep
from engine.graphs.forward import Stack, layer_memories
from engine.graphs.layout import PADDED_SEQ_LEN, BatchState, Layout
from engine.graphs.linear import is_few
from engine.graphs.walk import Walked, compact_on_device, walk_on_device
from engine.models.decoder import Decoder
from engine.models.kv_pool import KVPool

Part = Literal["verify", "commit", "whole"]


@dataclass(frozen=True, eq=False)
class Verified:
    """What the first part of a step leaves beside the layout and the walk, on the device."""

    tree: TreeTensors
    candidates: tuple[Tensor, Tensor] | None  # log-probabilities and tokens [captured, L, width]
    logits: Tensor  # [rows, V], of the model's type
    predict: Tensor  # int64 [rows]
    features: Tensor | None  # [rows, layers * hidden_size], for the drafter


@dataclass(frozen=True, eq=False)
class _Captured:
    graph: torch.cuda.CUDAGraph
    verified: Verified  # that a replay fills


class DeviceStep:
    """One captured batch size: its buffers, and the two parts of its step."""

    def __init__(
        self,
        target: Decoder,
        stack: Stack,
        drafter: DraftStep | None,
        pool: KVPool,
        req_to_token: Tensor,
        size: int,
        budget: int,
        width: int,
        *,
        kept: int = 0,
        graphs: bool,
    ) -> None:
        """``drafter`` None: plain decoding, one row a request. ``kept``: candidates of each draft position at least."""
        self.target, self.stack, self.drafter, self.pool = target, stack, drafter, pool
        self.budget, self.width, self.kept, self.graphs = budget, width, kept, graphs
        device = target.device
        self.state = BatchState.empty(size, device)
        self.layout = Layout(size, budget + 1, req_to_token)
        self._roots = _roots_alone(self.state)  # written once: every plain step has the same
        self.walked = Walked.empty(size, 1 if drafter is None else drafter.length + 1, device)
        # What the host reads of a step: the accepted length, then the tokens.
        said = size, self.walked.path.shape[1] + 1
        self.said = torch.zeros(said, dtype=torch.int64, device=device)
        self._verified: Verified | None = None
        self._captured: dict[Part, _Captured] = {}
        self._graph_pool: Any = None  # of the graphs' memory

    @property
    def verified(self) -> Verified:
        """What the last verify left. Raises ``RuntimeError`` before the first."""
        if self._verified is None:
            raise RuntimeError("step: nothing was verified yet")
        return self._verified

    def verify(self) -> None:
        """Draft, build, lay out, run the target over all rows, walk."""
        self.layout.prefixes(self.state)
        tree, candidates = self.build()
        self.layout.rows(self.state, tree)
        logits, features = self.forward()
        self._verified = Verified(tree, candidates, logits, choices(logits), features)
        self.walk()

    def build(self) -> tuple[TreeTensors, tuple[Tensor, Tensor] | None]:
        """Trees, and the candidates that they grew from; roots alone without a drafter."""
        if self.drafter is None:
            return self._roots, None
        logits = self.drafter.draft(self.state, self.layout)
        return self.drafter.grow(logits, self.state.roots, self.budget, self.width, self.kept)

    def walk(self) -> None:
        """What the rows' choices accept, and what of it the host reads."""
        found = self.verified
        walk_on_device(found.tree, found.predict, self.layout, self.state, self.walked)
        torch.cat((self.walked.accept_length[:, None], self.walked.emitted), 1, out=self.said)

    def commit(self) -> None:
        """Move accepted memory up, tell the drafter, step on."""
        if self.drafter is not None and self.verified.features is not None:
            compact_on_device(self.pool.keys, self.pool.values, self.layout, self.walked)
            self.drafter.remember_walked(self.verified.features, self.walked)
        self.state.seq_lens.add_(self.walked.accept_length)
        self.state.roots.copy_(self.walked.bonus)

    def whole(self) -> None:
        """Both parts."""
        self.verify()
        self.commit()

    def run(self, part: Part) -> None:
        """One part or the whole step: replayed where it was captured, else as it is."""
        if part in self._captured:
            found = self._captured[part]
            found.graph.replay()
            self._verified = found.verified
        else:
            self._function(part)()

    def capture(self, *parts: Part) -> bool:
        """Capture what was not captured yet, where graphs are on. True: the state was overwritten with padding."""
        missing = [part for part in parts if self.graphs and part not in self._captured]
        if missing:
            self.state.seq_lens.fill_(PADDED_SEQ_LEN)
            for buffer in (self.state.roots, self.state.request_rows, self.state.raw_bs):
                buffer.zero_()
        for part in missing:
            self._captured[part] = self._capture(part)
        return bool(missing)

    def _function(self, part: Part) -> Callable[[], None]:
        functions: dict[Part, Callable[[], None]] = {
            "verify": self.verify,
            "commit": self.commit,
            "whole": self.whole,
        }
        return functions[part]

    def _capture(self, part: Part) -> _Captured:
        before = self._verified

        def put_back() -> None:
            if part == "commit":
                self._verified = before  # that of the captured verify

        graph = captured(
            self._function(part),
            self.target.device,
            pool=self._graph_pool,
            between=put_back,
        )
        self._graph_pool = graph.pool()
        return _Captured(graph, self.verified)

    def forward(self) -> tuple[Tensor, Tensor | None]:
        """Logits [rows, V] of the model's type, and features [rows, layers * hidden_size] for the drafter."""
        layout, target = self.layout, self.target
        memories = layer_memories(self.pool, layout.out_cache_loc)

        def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out = q.new_empty(q.shape)
            follows = depth_on(q.device) if is_few(q) else 0
            tree_verify_attention(
                q,
                k,
                v,
                out,
                self.pool.k[layer],
                self.pool.v[layer],
                layout.qo_indptr,
                layout.kv_indptr,
                layout.kv_indices,
                layout.custom_mask,
                True,
                layout.mask_indptr,
                layout.q_len,
                follows=follows,
            )
            return out

        wanted = () if self.drafter is None else self.drafter.model.config.target_layer_ids
        hidden = F.embedding(layout.input_ids, target.embedding)
        normed, kept = self.stack.run(hidden, layout.positions, attention, memories, wanted)
        features = torch.cat([kept[layer] for layer in wanted], dim=1) if wanted else None
        return F.linear(normed, target.head.dense()), features


def _roots_alone(state: BatchState) -> TreeTensors:
    """Trees of one node each, whose tokens are the roots of the state, a view."""
    captured, device = len(state.roots), state.roots.device

    def full(value: int, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.full((captured, *shape), value, dtype=dtype, device=device)

    return TreeTensors(
        parents=full(-1, 1),
        tokens=state.roots[:, None],
        depths=full(0, 1),
        ranks=full(0, 1),
        log_weights=full(0, 1, dtype=torch.float64),
        retrieve_next_token=full(-1, 1),
        retrieve_next_sibling=full(-1, 1),
        visible=full(1, 1, 1, dtype=torch.int8),
        counts=full(1),
    )
