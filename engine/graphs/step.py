"""One whole step of a captured batch on the device: draft, build, lay out, verify, walk; then commit.

Two parts, since a recording looks at the KV memory between them. Each is a function of persistent buffers with fixed
shapes and without a wait, so each is captured once as a CUDA graph and replayed; on a host, or where graphs are off,
the same functions run as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.attention.tree_verify import tree_verify_attention
from engine.decoding.device_tree import TreeTensors
from engine.graphs.drafting import DraftStep
from engine.graphs.forward import Stack
from engine.graphs.layout import BatchState, Layout
from engine.graphs.rows import Memory
from engine.graphs.walk import Walked, compact_on_device, walk_on_device
from engine.models.decoder import Decoder

WARM_UPS = 2  # runs before a capture: kernels are compiled, workspaces allocated


class DeviceStep:
    """One captured batch size: its buffers, and the two parts of its step."""

    def __init__(
        self,
        target: Decoder,
        stack: Stack,
        drafter: DraftStep | None,
        pools: tuple[Tensor, Tensor],
        req_to_token: Tensor,
        captured: int,
        budget: int,
        width: int,
    ) -> None:
        """``drafter`` None: plain decoding, one row a request. ``pools`` [layers, slots, kv_heads, head_dim] each."""
        self.target, self.stack, self.drafter, self.pools = target, stack, drafter, pools
        self.budget, self.width = budget, width
        device = target.device
        self.state = BatchState.empty(captured, device)
        self.layout = Layout(captured, budget + 1, req_to_token)
        self.walked = Walked.empty(captured, 1 if drafter is None else drafter.length + 1, device)
        self.said = torch.zeros(
            captured, self.walked.path.shape[1] + 1, dtype=torch.int64, device=device
        )
        self.tree = None if drafter is not None else _roots_alone(self.state)
        # What a verify leaves behind, in place from step to step.
        self.logits: Tensor | None = None
        self.predict: Tensor | None = None
        self.features: Tensor | None = None
        self.candidates: tuple[Tensor, Tensor] | None = None
        self._graphs: dict[str, torch.cuda.CUDAGraph] = {}

    def verify(self) -> None:
        """Draft, build, lay out, run the target over all rows, walk."""
        self.layout.prefixes(self.state)
        tree = self.tree
        if self.drafter is not None:
            logits = self.drafter.draft(self.state, self.layout)
            tree, *candidates = self.drafter.grow(logits, self.state.roots, self.budget, self.width)
            self.candidates = candidates[0], candidates[1]
        assert tree is not None
        self.tree = tree
        self.layout.rows(self.state, tree)
        self.logits, self.features = self.forward()
        self.predict = self.logits.argmax(dim=-1)
        self.walk()

    def walk(self) -> None:
        """What the rows' choices accept, and what of it the host reads."""
        assert self.tree is not None
        assert self.predict is not None
        walk_on_device(self.tree, self.predict, self.layout, self.state, self.walked)
        torch.cat((self.walked.accept_length[:, None], self.walked.emitted), 1, out=self.said)

    def commit(self) -> None:
        """Move accepted memory up, tell the drafter, step on."""
        if self.drafter is not None:
            assert self.features is not None
            compact_on_device(*self.pools, self.layout, self.walked)
            self.drafter.remember_walked(self.features, self.walked)
        self.state.seq_lens.add_(self.walked.accept_length)
        self.state.roots.copy_(self.walked.bonus)

    def run(self, part: str) -> None:
        """``verify`` or ``commit``: the captured graph if there is one, else the function."""
        if part in self._graphs:
            self._graphs[part].replay()
        else:
            self.part(part)()

    def part(self, part: str) -> Callable[[], None]:
        """The function of a part."""
        return {"verify": self.verify, "commit": self.commit}[part]

    def capture(self) -> None:
        """Capture both parts. Every request must be padded: a warm-up runs over the buffers as they are."""
        pool = None
        for part in ("verify", "commit"):
            run = self.part(part)
            stream = torch.cuda.Stream(self.target.device)  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream(self.target.device))
            with torch.cuda.stream(stream):
                for _ in range(WARM_UPS):
                    run()
            torch.cuda.current_stream(self.target.device).wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                run()
            pool = graph.pool()
            self._graphs[part] = graph

    def forward(self) -> tuple[Tensor, Tensor | None]:
        """Logits [rows, V] of the model's type, and features [rows, layers * hidden_size] for the drafter."""
        layout, target = self.layout, self.target
        memories = [
            Memory(k[None], v[None], layout.out_cache_loc) for k, v in zip(*self.pools, strict=True)
        ]

        def attention(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out = q.new_empty(q.shape)
            tree_verify_attention(
                q,
                k,
                v,
                out,
                self.pools[0][layer],
                self.pools[1][layer],
                layout.qo_indptr,
                layout.kv_indptr,
                layout.kv_indices,
                layout.custom_mask,
                True,
                layout.mask_indptr,
                layout.q_len,
            )
            return out

        wanted = () if self.drafter is None else self.drafter.model.config.target_layer_ids
        hidden = F.embedding(layout.input_ids, target.embedding)
        normed, kept = self.stack.run(hidden, layout.positions, attention, memories, wanted)
        features = torch.cat([kept[layer] for layer in wanted], dim=1) if wanted else None
        return F.linear(normed, target.head.dense()), features


def _roots_alone(state: BatchState) -> TreeTensors:
    """Trees of one node each, which follow the roots."""
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
