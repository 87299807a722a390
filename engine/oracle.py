"""The reference for every array of a verify step, from the trees and the prefix lengths alone.

Slow and plain on purpose: loops over root paths, never the builders' incremental rules, and never the captured mask,
links or positions. Extents of padded requests (captured, not live) follow from the ``seq_lens`` that were recorded for
them; nothing else about them is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from engine.layout import HIDDEN, VISIBLE, Cells, Geometry, MaskKind, MaskView
from engine.lazy import lazy
from engine.step import Int64, VerifyStep
from engine.tree import DraftTree

PREFIX_SKIPPING = (
    "triton",
    "addressed",
    "device",
)  # attention backends that take prefix columns for visible without reading
PADDED_SEQ_LEN = 1  # what SGLang fills in where nothing was recorded


@dataclass(frozen=True, eq=False)
class Oracle:
    """What the arrays of one step should be."""

    step: VerifyStep

    @lazy
    def trees(self) -> tuple[DraftTree, ...]:
        """Tree of each live request."""
        return tuple(request.tree.tree for request in self.step.requests)

    @lazy
    def is_static(self) -> bool:
        """Whether every request has budget + 1 rows; otherwise one row a node."""
        config = self.step.config
        return config.budget is not None and config.verify_rows != "ragged"

    @lazy
    def q_lens(self) -> Int64:
        """Rows of each captured request, int64 [captured_bs]."""
        live = [self._rows_of(tree) for tree in self.trees]
        padded = [self._padded_rows()] * (self.step.captured_bs - len(live))
        return np.array(live + padded, np.int64)

    def _rows_of(self, tree: DraftTree) -> int:
        budget = self.step.config.budget
        return tree.num_nodes if not self.is_static or budget is None else budget + 1

    def _padded_rows(self) -> int:
        budget = self.step.config.budget
        return 1 if not self.is_static or budget is None else budget + 1

    @lazy
    def prefix_lens(self) -> Int64:
        """Committed tokens of each captured request, int64 [captured_bs]."""
        live = [request.prefix_len for request in self.step.requests]
        recorded = self.step.inputs.seq_lens
        padded = [
            PADDED_SEQ_LEN if recorded is None or i >= len(recorded) else max(int(recorded[i]), 0)
            for i in range(len(live), self.step.captured_bs)
        ]
        return np.array(live + padded, np.int64)

    @lazy
    def geometry(self) -> Geometry:
        """True extents of the captured batch."""
        config = self.step.config
        return Geometry(
            self.prefix_lens,
            self.q_lens,
            qlen_only=config.mask_layout == "qlen",
            bits=config.mask_encoding == "bits",
        )

    def rows(self, request: int) -> range:
        """Flat rows of a request, padding rows included."""
        return self._all_rows[request]

    @lazy
    def _all_rows(self) -> tuple[range, ...]:
        return tuple(range(start, end) for start, end in pairwise(self.geometry.qo_indptr.tolist()))

    def num_verified(self, request: int) -> int:
        """Nodes that have a row: all, unless the tree is larger than what a static step was laid out for."""
        return len(self._real_rows[request])

    def real_rows(self, request: int) -> range:
        """Flat rows of a live request's nodes."""
        return self._real_rows[request]

    @lazy
    def _real_rows(self) -> tuple[range, ...]:
        return tuple(
            rows[: tree.num_nodes] for rows, tree in zip(self._all_rows, self.trees, strict=False)
        )

    def positions(self, request: int) -> Int64:
        """Position of each node: prefix length + depth, int64 [num_nodes]."""
        return self._positions[request]

    @lazy
    def _positions(self) -> tuple[Int64, ...]:
        requests = zip(self.step.requests, self.trees, strict=True)
        return tuple(request.prefix_len + tree.depths for request, tree in requests)

    def first_visible_prefix_column(self, request: int, node: int) -> int:
        """First prefix column that a node sees: those before it are outside its sliding window."""
        window = self.step.config.sliding_window
        if window is None:
            return 0
        position = int(self.positions(request)[node])
        return min(max(position - window + 1, 0), int(self.prefix_lens[request]))

    def tree_block(self, request: int) -> Cells:
        """Tree columns of the intended mask, int8 [q_len, q_len]; padding rows see themselves, which nobody asks.

        A node sees the nodes on its root path, as far as their positions lie within the sliding window.
        """
        count, q_len = self.num_verified(request), int(self.q_lens[request])
        window, seen = self.step.config.sliding_window, self.trees[request].paths[:count]
        if window is not None:
            seen = tuple(path[-window:] for path in seen)
        block = bytearray(q_len * q_len)
        for node, path in enumerate(seen):
            for other in path:
                if other < count:
                    block[node * q_len + other] = VISIBLE
        for row in range(count, q_len):
            block[row * q_len + row] = VISIBLE
        return np.frombuffer(block, np.int8).reshape(q_len, q_len)

    def intended(self, request: int) -> MaskView:
        """The intended mask. Padding rows see the prefix and themselves, which nobody asks of them."""
        prefix_len, q_len = int(self.prefix_lens[request]), int(self.q_lens[request])
        cells = np.full((q_len, prefix_len + q_len), VISIBLE, np.int8)
        windowed = self.step.config.sliding_window is not None
        for node in range(self.num_verified(request) if windowed else 0):
            cells[node, : self.first_visible_prefix_column(request, node)] = HIDDEN
        cells[:, prefix_len:] = self.tree_block(request)
        return MaskView(
            MaskKind.INTENDED, prefix_len, cells, lambda: self._bytes(request, cells.shape)
        )

    def _bytes(self, request: int, shape: tuple[int, ...]) -> Int64:
        """Offset into ``custom_mask`` of each cell, -1 for prefix columns that the layout leaves out."""
        geometry = self.geometry
        skipped = int(self.prefix_lens[request] - geometry.mask_columns_before_tree[request])
        rows, columns = np.indices(shape)
        cell = rows * int(geometry.strides[request]) + columns - skipped
        if geometry.bits:
            places = int(geometry.byte_indptr[request]) + cell // 8
        else:
            places = int(geometry.mask_indptr[request]) + cell
        return np.where(columns < skipped, -1, places).astype(np.int64)

    def links(self, request: int) -> tuple[Int64, Int64]:
        """``(retrieve_next_token, retrieve_next_sibling)`` of the real nodes: first child, next sibling, or -1."""
        count = self.num_verified(request)
        next_token, next_sibling = [-1] * count, [-1] * count
        for node, everyone in enumerate(self.trees[request].children[:count]):
            below = [child for child in everyone if child < count] if everyone else []
            if below:
                next_token[node] = below[0]
            for left, right in pairwise(below):
                next_sibling[left] = right
        return np.array(next_token, np.int64), np.array(next_sibling, np.int64)

    def accepted_nodes(self, request: int, target_predict: Int64) -> list[int]:
        """Longest path from the root whose every node is what its parent's row predicts.

        ``target_predict``: per flat row, [rows]. Of two siblings with the same token the first is taken.
        """
        rows = self.real_rows(request)
        return walk_tree(self.trees[request], target_predict[rows.start : rows.stop])

    def reads_prefix(self) -> bool:
        """Whether the recorded attention backend reads prefix columns of the mask.

        SGLang's Triton verify kernel and this engine's twin of it do not, unless deterministic kernels are on; every
        other backend does.
        """
        source = self.step.source
        backend = (source.attention_backend or "").lower()
        return bool(source.deterministic) or backend not in PREFIX_SKIPPING


def walk_tree(tree: DraftTree, predict: Int64) -> list[int]:
    """Nodes accepted from the root on; ``predict`` by node, nodes without an entry are never reached."""
    path, tokens, wanted = [0], tree.tokens.tolist(), predict.tolist()
    while path[-1] < len(wanted) and len(path) <= tree.num_nodes:
        below = [child for child in tree.children[path[-1]] if child < len(wanted)]
        found = [child for child in below if tokens[child] == wanted[path[-1]]]
        if not found:
            break
        path.append(found[0])
    return path
