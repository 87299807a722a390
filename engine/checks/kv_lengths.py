"""KV lengths of a step: as recorded, and as they should be in the recorded unit and convention."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.checks.context import StepContext
from engine.checks.paths import kept_paths
from engine.step import Int64


@dataclass(frozen=True, eq=False)
class KvLengths:
    """Reads ``kv_indptr`` and its companions. Lengths are in entries: tokens or pages."""

    context: StepContext

    @property
    def page(self) -> int:
        """Tokens that one entry of ``kv_indices`` stands for."""
        config = self.context.step.config
        return max(config.page_size or 1, 1) if config.kv_indptr_unit == "page" else 1

    @property
    def unit(self) -> str:
        """The unit in words, with a leading space."""
        return " pages" if self.page > 1 else " tokens"

    def entries(self, tokens: int) -> int:
        """Entries that hold so many tokens."""
        return -(-tokens // self.page)

    def counted(self, request: int) -> int | None:
        """Recorded length."""
        indptr = self.context.step.inputs.kv_indptr
        if indptr is None or request + 1 >= len(indptr):
            return None
        return int(indptr[request + 1]) - int(indptr[request])

    def start(self, request: int) -> int | None:
        """Recorded first entry."""
        indptr = self.context.step.inputs.kv_indptr
        return None if indptr is None or request >= len(indptr) else int(indptr[request])

    def seq_len(self, request: int) -> int | None:
        """Recorded prefix length."""
        recorded = self.context.step.inputs.seq_lens
        return None if recorded is None or request >= len(recorded) else int(recorded[request])

    def tokens(self, request: int, prefix_len: int) -> list[int]:
        """Tokens that may be counted for a prefix: one number, or none where the rows are not known."""
        counts, known = self.context.step.config.kv_indptr_counts_draft, self.context.rows_known
        with_draft = [prefix_len + int(self.context.oracle.q_lens[request])] if known else []
        if counts is None:
            return [prefix_len, *with_draft] if known else []
        return with_draft if counts else [prefix_len]

    def of(self, request: int, prefix_len: int) -> list[int]:
        """Lengths that are right for a prefix."""
        return [self.entries(tokens) for tokens in self.tokens(request, prefix_len)]

    def right(self, request: int) -> list[int]:
        """Lengths that are right; none where nothing tells."""
        return self.of(request, int(self.context.oracle.prefix_lens[request]))

    def miscount(self, request: int) -> str:
        """Name of a wrong length."""
        counts, found = self.context.step.config.kv_indptr_counts_draft, self.counted(request)
        prefix_len = int(self.context.oracle.prefix_lens[request])
        draft = int(self.context.oracle.q_lens[request]) if self.context.rows_known else 0
        once_more = prefix_len + draft * (2 if counts else 1)
        if counts and found == self.entries(prefix_len):
            return "kv-without-draft"
        return (
            "kv-counts-draft-twice" if draft and found == self.entries(once_more) else "kv-extent"
        )

    def explained_by(self, request: int) -> str | None:
        """What gives exactly the recorded length: wrong row extents, or an earlier request's end."""
        rows, found = self.context.step.inputs.qo_indptr, self.counted(request)
        prefix_len = int(self.context.oracle.prefix_lens[request])
        if self.context.step.config.kv_indptr_counts_draft and rows is not None:
            draft = int(np.diff(rows)[request]) if request + 1 < len(rows) else -1
            if self.context.has("I1", request) and found == self.entries(prefix_len + draft):
                return "I1"
        true, indptr = self.true_start(request), self.context.step.inputs.kv_indptr
        if true is None or indptr is None or indptr[request] == true:
            return None
        return "I3" if int(indptr[request + 1]) == true + self.right(request)[0] else None

    def true_start(self, request: int) -> int | None:
        """First entry where every earlier length is right, None where one of them is not known."""
        before = [self.right(other) for other in range(request)]
        return sum(right[0] for right in before) if all(before) else None

    def prefix_entries(self, request: int) -> Int64 | None:
        """What ``kv_indices`` should hold for the committed tokens, if their slots were recorded."""
        slots = self.context.step.requests[request].prefix_slots
        if slots is None or self.page == 1:
            return slots
        pages: Int64 = slots[:: self.page] // self.page
        return pages

    def last_page(self, request: int) -> int | None:
        """Recorded tokens in the last page, pages only."""
        recorded = self.context.step.inputs.kv_last_page_len
        paged = self.context.step.config.kv_indptr_unit == "page"
        if not paged or recorded is None or request >= len(recorded):
            return None
        return int(recorded[request])

    def right_last_page(self, request: int) -> list[int]:
        """Tokens in the last page that are right."""
        prefix_len = int(self.context.oracle.prefix_lens[request])
        counts = self.tokens(request, prefix_len)
        return [(tokens - 1) % self.page + 1 for tokens in counts if tokens > 0]


def committed_before(context: StepContext, request: int) -> list[int] | None:
    """Lengths that the step before may have left for the same request: as it says, or as its outcome implies.

    A record of the length that is wrong while this step goes on rightly is that step's fault alone.
    """
    before, number = context.earlier, context.number_before(request)
    if before is None or number is None:
        return None
    recorded = before.step.commit.seq_lens
    if recorded is None or number >= len(recorded):
        return None
    lengths = [int(recorded[number])]
    if before.well_formed[number] and before.rows_known:
        prefix_len = before.step.requests[number].prefix_len
        lengths += [prefix_len + len(path) for path in kept_paths(before, number)]
    return lengths
