"""StepView: one request of one step, as the figures and panes read it.

Facts are looked up in the record, the oracle and the findings; nothing is judged here. Nodes are
numbered as rows of the request: ``0 … num_nodes-1`` are the tree's, ``num_nodes … q_len-1``
padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from engine.checks.context import StepContext
from engine.checks.finding import Finding
from engine.layout import MaskKind, MaskView
from engine.oracle import Oracle
from engine.step import UNKNOWN_TOKEN, Request, VerifyStep
from engine.tree import DraftTree
from workbench.outcome import Outcome
from workbench.tokens import shorten, visible

CONTENT = ("I8",)  # checks about what the cells of the buffer hold
ADDRESSING = ("I1", "I4", "I5")  # checks about where cells are read, not about what they hold


@dataclass(frozen=True, eq=False)
class StepView:
    """One live request of a step with the findings about it."""

    context: StepContext
    request: int  # number in the batch
    findings: tuple[Finding, ...] = ()  # of this step: this request's and the whole step's
    show_text: bool = True

    @property
    def step(self) -> VerifyStep:
        """The record."""
        return self.context.step

    @property
    def oracle(self) -> Oracle:
        """The reference."""
        return self.context.oracle

    @property
    def record(self) -> Request:
        """The request as recorded."""
        return self.step.requests[self.request]

    @property
    def tree(self) -> DraftTree:
        """Its draft tree."""
        return self.oracle.trees[self.request]

    @property
    def num_nodes(self) -> int:
        """Real nodes with the root."""
        return self.tree.num_nodes

    @property
    def q_len(self) -> int:
        """Rows that the request was laid out for."""
        return int(self.oracle.q_lens[self.request])

    @property
    def prefix_len(self) -> int:
        """Committed tokens."""
        return int(self.oracle.prefix_lens[self.request])

    @property
    def first_row(self) -> int:
        """Flat row of node 0."""
        return int(self.oracle.geometry.qo_indptr[self.request])

    @property
    def well_formed(self) -> bool:
        """Whether every node reaches the root; masks exist only then."""
        return self.context.well_formed[self.request]

    def text_of(self, token: int | None) -> str:
        """Text of a token id with visible whitespace; ``#id`` where the recording holds none."""
        if token is None or token in (-1, UNKNOWN_TOKEN):
            return "?"
        texts = self.step.workbench.token_texts or {}
        text = texts.get(int(token)) if self.show_text else None
        return f"#{int(token)}" if text is None else visible(text) or "∅"

    def label(self, node: int, length: int = 12) -> str:
        """Token text of a row, short; padding rows say so."""
        if node >= self.num_nodes:
            return "padding"
        return shorten(self.text_of(int(self.tree.tokens[node])), length)

    def name(self, node: int) -> str:
        """``node 9 "Tides"`` or ``row 14 (padding)``."""
        if node >= self.num_nodes:
            return f"row {node} (padding)"
        return f'node {node} "{self.label(node, 24)}"'

    @cached_property
    def accepted(self) -> tuple[int, ...] | None:
        """Accepted nodes, root first, as recorded; None where acceptance was not."""
        recorded = self.step.outcome.accept_index
        if recorded is None or self.request >= len(recorded):
            return None
        rows = [int(row) - self.first_row for row in recorded[self.request] if row >= 0]
        return tuple(node for node in rows if 0 <= node < self.num_nodes)

    @cached_property
    def reference_accepted(self) -> tuple[int, ...] | None:
        """Nodes that plain decoding's choices accept; None where they were not recorded."""
        predict = self.step.reference.target_predict
        if predict is None or not self.well_formed:
            return None
        if len(predict) < self.first_row + self.num_nodes:
            return None
        return tuple(self.oracle.accepted_nodes(self.request, predict))

    @property
    def bonus(self) -> int | None:
        """Bonus token as recorded."""
        return _entry(self.step.outcome.bonus_tokens, self.request)

    @property
    def reference_bonus(self) -> int | None:
        """Plain decoding's choice after its own accepted path."""
        path = self.reference_accepted
        return None if path is None else self.reference_choice(path[-1])

    @property
    def accept_length(self) -> int | None:
        """Accepted length as recorded, root included."""
        return _entry(self.step.outcome.accept_length, self.request)

    def outcome(self, node: int) -> Outcome:
        """What became of a row."""
        if node >= self.num_nodes:
            return Outcome.PADDING
        if node == 0:
            return Outcome.ROOT
        if self.accepted is None:
            return Outcome.UNKNOWN
        return Outcome.ACCEPTED if node in self.accepted else Outcome.REJECTED

    def choice(self, node: int) -> int | None:
        """The target's choice at a row, as recorded."""
        return _entry(self.step.outcome.target_predict, self.first_row + node)

    def reference_choice(self, node: int) -> int | None:
        """Plain decoding's choice at a row; None where not known."""
        value = _entry(self.step.reference.target_predict, self.first_row + node)
        return None if value == UNKNOWN_TOKEN else value

    def margin(self, node: int) -> float | None:
        """Logit of the best token less that of the second."""
        top2, row = self.step.outcome.top2, self.first_row + node
        if top2 is None or row >= len(top2) or np.isnan(top2[row]).any():
            return None
        return float(top2[row, 0, 1] - top2[row, 1, 1])

    def log_weight(self, node: int) -> float | None:
        """Log-probability of the whole path to a node."""
        weights = self.tree.log_weights
        return None if weights is None or node >= len(weights) else float(weights[node])

    def drafter_rank(self, node: int) -> int | None:
        """Rank of a node's token at its depth in the drafter's distribution, 0 best."""
        ranks = self.step.workbench.drafter_ranks
        if ranks is None or self.request >= len(ranks):
            return None
        return _entry(ranks[self.request], node)

    def logit_diff(self, node: int) -> float | None:
        """Largest difference of a row's logits from the dense reference."""
        diff, row = self.step.workbench.max_logit_diff, self.first_row + node
        return None if diff is None or row >= len(diff) else float(diff[row])

    def mask(self, kind: MaskKind) -> MaskView | None:
        """One of the masks; None where its inputs were not recorded or the tree is malformed."""
        if not self.well_formed:
            return None
        if kind is MaskKind.INTENDED:
            return self.context.intended[self.request]
        if kind is MaskKind.BUILT and self.step.inputs.custom_mask is not None:
            return self.context.built[self.request]
        if kind is MaskKind.ADDRESSED and self.context.can_address():
            return self.context.addressed[self.request]
        return None

    def findings_at(self, node: int) -> tuple[Finding, ...]:
        """Findings that name this row."""
        row = self.first_row + node
        return tuple(
            f
            for f in self.findings
            if row in _rows_of(f, self.first_row)
            or (f.check in ADDRESSING and f.where.row is not None and node in self.misread_rows)
            or (f.check in CONTENT and f.where.row is not None and node in self.misbuilt_rows)
        )

    @cached_property
    def misread_rows(self) -> frozenset[int]:
        """Nodes whose row is read from the wrong cells: a finding about extents lists its first
        cells only.
        """
        if not self.well_formed or not self.context.can_address():
            return frozenset()
        difference = self.context.difference(self.context.addressed[self.request], self.request)
        return frozenset(int(row) for row in difference.cells[:, 0])

    @cached_property
    def misbuilt_rows(self) -> frozenset[int]:
        """Nodes whose row of the buffer is not the intended one."""
        if not self.well_formed or self.step.inputs.custom_mask is None:
            return frozenset()
        difference = self.context.difference(self.context.built[self.request], self.request)
        return frozenset(int(row) for row in difference.cells[:, 0])


def _rows_of(finding: Finding, first_row: int) -> set[int]:
    rows = {row for row, _ in finding.where.cells or ()}
    if finding.where.row is not None:
        rows.add(finding.where.row)
    elif finding.where.node is not None and finding.request is not None:
        rows.add(first_row + finding.where.node)
    return rows


def _entry(array: np.ndarray | None, index: int) -> int | None:
    return None if array is None or index >= len(array) else int(array[index])


def view_of(
    context: StepContext, request: int, findings: Sequence[Finding], *, show_text: bool = True
) -> StepView:
    """The view of one request with those of the findings that are about it."""
    rid, step = context.step.requests[request].rid, context.step
    about = tuple(
        f
        for f in findings
        if (f.step, f.rank) == (step.step, step.rank) and f.request in (None, rid)
    )
    return StepView(context, request, about, show_text)
