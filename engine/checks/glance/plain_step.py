"""What the arrays of a step should be, as plain lists, each made when it is first asked for.

Covered: no padded requests, rows that follow from the settings, and trees that are covered (``plain_tree``) and fit
their rows.
"""

from __future__ import annotations

from itertools import accumulate, repeat
from typing import Any

from engine.checks.context import StepContext
from engine.checks.glance.plain_tree import PlainTree, plain_tree
from engine.layout import VISIBLE
from engine.lazy import lazy


class PlainStep:
    """One step. Lists are by live request unless they say otherwise; ``indptr`` lists have one entry more."""

    def __init__(self, context: StepContext, trees: list[PlainTree], q_lens: list[int]) -> None:
        step = context.step
        self.context, self.config, self.requests = context, step.config, step.requests
        self.inputs, self.outcome, self.commit = step.inputs, step.outcome, step.commit
        self.trees, self.q_lens = trees, q_lens
        self.sizes = [len(tree.parents) for tree in trees]
        self.prefix_lens = [request.prefix_len for request in step.requests]
        self.qo_indptr = list(accumulate(q_lens, initial=0))

    @lazy
    def columns_before_tree(self) -> list[int]:
        """Prefix columns that the mask buffer holds."""
        return [0] * len(self.trees) if self.config.mask_layout == "qlen" else self.prefix_lens

    @lazy
    def cells(self) -> list[int]:
        """Mask cells of each request, padding rows included."""
        pairs = zip(self.q_lens, self.columns_before_tree, strict=True)
        return [rows * (before + rows) for rows, before in pairs]

    @lazy
    def mask_indptr(self) -> list[int]:
        """First cell of each request."""
        return list(accumulate(self.cells, initial=0))

    @lazy
    def byte_indptr(self) -> list[int]:
        """First byte of each request when cells are packed bits."""
        return list(accumulate([(cells + 7) // 8 for cells in self.cells], initial=0))

    @property
    def bits(self) -> bool:
        """Whether the mask is packed bits."""
        return self.config.mask_encoding == "bits"

    @lazy
    def mask_is_intended(self) -> bool:
        """Whether the buffer holds the intended cells, each as a 0 or a 1, in every row of a node."""
        buffer = self.inputs.custom_mask
        if buffer is None:
            return False
        if self.bits or self.config.sliding_window is not None:
            return all(map(self.context.surely_intended, range(len(self.trees))))
        data = buffer.tobytes()
        for request, tree in enumerate(self.trees):
            width, before = self.q_lens[request], self.columns_before_tree[request]
            first, stride, size = self.mask_indptr[request], before + width, self.sizes[request]
            end = first + size * stride
            if len(data) < end:
                return False
            block = buffer[first:end].reshape(size, stride)[:, before:].tobytes()
            if block != b"".join([row.to_bytes(width, "little") for row in tree.rows]):
                return False
            prefix = bytes([VISIBLE]) * before
            if not all(map(data.startswith, repeat(prefix), range(first, end, stride))):
                return False
        return True

    @lazy
    def positions(self) -> list[int] | None:
        """Positions of all rows as recorded."""
        return listed(self.inputs.positions)

    @lazy
    def target_predict(self) -> list[int] | None:
        """Predictions of all rows as recorded."""
        return listed(self.outcome.target_predict)

    @lazy
    def children(self) -> list[dict[tuple[int, int], int]] | None:
        """Node of each ``(parent, token)``; None where tokens are not known, or two siblings share one."""
        out = []
        for tree, size in zip(self.trees, self.sizes, strict=True):
            if tree.tokens is None:
                return None
            out.append(
                dict(zip(zip(tree.parents, tree.tokens, strict=False), range(size), strict=False))
            )
            if len(out[-1]) != size:
                return None
        return out

    @lazy
    def paths(self) -> list[list[int]] | None:
        """Accepted nodes as recorded, where those are what the predictions accept for every request; else None."""
        accepted, predict, children = self.outcome.accept_index, self.target_predict, self.children
        if accepted is None or predict is None or children is None:
            return None
        if len(accepted) < len(self.trees) or len(predict) < self.qo_indptr[-1]:
            return None
        paths = []
        for start, child_of, recorded in zip(self.qo_indptr, children, accepted, strict=False):
            path: list[int] = []
            node: int | None = 0
            while node is not None:
                path.append(node)
                node = child_of.get((node, predict[start + node]))
            rows: list[int] = recorded.tolist()
            if rows != [start + n for n in path] + [-1] * (len(rows) - len(path)):
                return None
            paths.append(path)
        return paths


def plain_step(context: StepContext) -> PlainStep | None:
    """The step; None for one that is not covered."""
    step, budget = context.step, context.step.config.budget
    ragged = step.config.verify_rows == "ragged"
    if not step.requests or step.captured_bs != step.raw_bs or (budget is None and not ragged):
        return None
    trees, q_lens = [], []
    for request in step.requests:
        tree = plain_tree(request.tree)
        if tree is None:
            return None
        rows = len(tree.parents) if ragged or budget is None else budget + 1
        if len(tree.parents) > rows:
            return None
        trees.append(tree)
        q_lens.append(rows)
    return PlainStep(context, trees, q_lens)


def listed(array: Any) -> list[Any] | None:
    """An array as a list; None where there is none."""
    return None if array is None else array.tolist()


def is_unless_absent(array: Any, expected: list[int]) -> bool:
    """Whether an array was not recorded, or holds exactly these numbers."""
    return array is None or array.tolist() == expected
