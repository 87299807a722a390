"""The reference for every array of a verify step, from the trees and the prefix lengths alone.

Slow and plain on purpose: loops over root paths, never the builders' incremental rules, and never the captured mask,
links or positions. Extents of padded requests (captured, not live) follow from the ``seq_lens`` that were recorded for
them; nothing else about them is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from engine.layout import HIDDEN, VISIBLE, Geometry, MaskKind, MaskView
from engine.step import Int64, VerifyStep
from engine.tree import DraftTree

PREFIX_SKIPPING = (
    "triton",
    "addressed",
)  # attention backends that take prefix columns for visible without reading
PADDED_SEQ_LEN = 1  # what SGLang fills in where nothing was recorded


@dataclass(frozen=True, eq=False)
class Oracle:
    """What the arrays of one step should be."""

    step: VerifyStep

    @cached_property
    def trees(self) -> tuple[DraftTree, ...]:
        """Tree of each live request."""
        return tuple(request.tree.tree for request in self.step.requests)

    @cached_property
    def is_static(self) -> bool:
        """Whether every request has budget + 1 rows; otherwise one row a node."""
        config = self.step.config
        return config.budget is not None and config.verify_rows != "ragged"

    @cached_property
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

    @cached_property
    def prefix_lens(self) -> Int64:
        """Committed tokens of each captured request, int64 [captured_bs]."""
        live = [request.prefix_len for request in self.step.requests]
        recorded = self.step.inputs.seq_lens
        padded = [
            PADDED_SEQ_LEN if recorded is None or i >= len(recorded) else max(int(recorded[i]), 0)
            for i in range(len(live), self.step.captured_bs)
        ]
        return np.array(live + padded, np.int64)

    @cached_property
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
        start = int(self.geometry.qo_indptr[request])
        return range(start, start + int(self.q_lens[request]))

    def num_verified(self, request: int) -> int:
        """Nodes that have a row: all, unless the tree is larger than what a static step was laid out for."""
        return min(self.trees[request].num_nodes, int(self.q_lens[request]))

    def real_rows(self, request: int) -> range:
        """Flat rows of a live request's nodes."""
        start = int(self.geometry.qo_indptr[request])
        return range(start, start + self.num_verified(request))

    def positions(self, request: int) -> Int64:
        """Position of each node: prefix length + depth, int64 [num_nodes]."""
        positions: Int64 = int(self.prefix_lens[request]) + self.trees[request].depths
        return positions

    def sees(self, request: int, node: int, other: int) -> bool:
        """Whether ``node`` may attend to ``other``: an ancestor or itself, within the sliding window."""
        path = self.trees[request].paths[node]
        window = self.step.config.sliding_window
        return other in path and (window is None or len(path) - 1 - path.index(other) < window)

    def first_visible_prefix_column(self, request: int, node: int) -> int:
        """First prefix column that a node sees: those before it are outside its sliding window."""
        window = self.step.config.sliding_window
        if window is None:
            return 0
        position = int(self.positions(request)[node])
        return min(max(position - window + 1, 0), int(self.prefix_lens[request]))

    def intended(self, request: int) -> MaskView:
        """The intended mask. Padding rows see the prefix and themselves, which nobody asks of them."""
        prefix_len, q_len = int(self.prefix_lens[request]), int(self.q_lens[request])
        num_nodes = self.trees[request].num_nodes
        cells = np.full((q_len, prefix_len + q_len), HIDDEN, np.int8)
        for row in range(q_len):
            start = self.first_visible_prefix_column(request, row) if row < num_nodes else 0
            cells[row, start:prefix_len] = VISIBLE
            seen = self._tree_columns(request, row) if row < num_nodes else [row]
            cells[row, [prefix_len + column for column in seen]] = VISIBLE
        places = self._bytes(request, cells.shape)
        return MaskView(MaskKind.INTENDED, prefix_len, cells, places)

    def _tree_columns(self, request: int, node: int) -> list[int]:
        return [
            other
            for other in self.trees[request].paths[node]
            if other < self.q_lens[request] and self.sees(request, node, other)
        ]

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
        next_token = np.full(count, -1, np.int64)
        next_sibling = np.full(count, -1, np.int64)
        for node, everyone in enumerate(self.trees[request].children[:count]):
            below = [child for child in everyone if child < count]
            if below:
                next_token[node] = below[0]
            for left, right in pairwise(below):
                next_sibling[left] = right
        return next_token, next_sibling

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
    path = [0]
    while path[-1] < len(predict) and len(path) <= tree.num_nodes:
        wanted = int(predict[path[-1]])
        below = (child for child in tree.children[path[-1]] if child < len(predict))
        child = next((child for child in below if tree.tokens[child] == wanted), None)
        if child is None:
            break
        path.append(child)
    return path
