"""A step laid out anew for what is kept of it, with its mistakes carried over.

Values that were right become those of the smaller step. Wrong offsets keep the width that explains them, or else their
distance from the right value; mask cells, slots, tokens and outcomes go along with their rows and columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from engine.layout import Geometry, built_mask, indptr
from engine.minimize.selection import Selection
from engine.oracle import Oracle
from engine.step import Int64, LayerCommit, Request, TreeRecord, UInt8, VerifyStep

Counts = Callable[[Geometry, int], Int64]  # what each request counts when laid out with a width


def relayout(step: VerifyStep, chosen: Selection) -> VerifyStep:
    """The smaller step. Raises ``ValueError`` where the record does not say enough to make it."""
    return _Relayout(step, chosen).made()


@dataclass(frozen=True, eq=False)
class _Relayout:
    step: VerifyStep
    chosen: Selection

    @cached_property
    def old(self) -> Oracle:
        return Oracle(self.step)

    @cached_property
    def geometry(self) -> Geometry:
        """Extents of the smaller step."""
        lens = [len(kept.prefix) for kept in self.chosen.requests]
        rows = [self.chosen.q_len or len(kept.nodes) for kept in self.chosen.requests]
        padded = range(self.step.raw_bs, self.step.raw_bs + self.chosen.padded)
        lens += [int(self.old.prefix_lens[i]) for i in padded]
        rows += [self.chosen.q_len or 1] * self.chosen.padded
        return replace(self.old.geometry, prefix_lens=_ints(lens), q_lens=_ints(rows))

    @property
    def numbers(self) -> list[int]:
        """Old numbers of the captured requests that are kept."""
        live = [kept.request for kept in self.chosen.requests]
        return live + list(range(self.step.raw_bs, self.step.raw_bs + self.chosen.padded))

    def old_rows(self, place: int) -> list[int]:
        """Old flat rows of the kept request at a place, as many as it is laid out for."""
        number, count = self.numbers[place], int(self.geometry.q_lens[place])
        rows = self.old.rows(number)
        if place >= len(self.chosen.requests):
            return list(rows)[:count]
        nodes = self.chosen.requests[place].nodes
        padding = list(rows)[self.old.trees[number].num_nodes :]
        taken = [rows.start + node for node in nodes] + padding
        if len(taken) < count:
            raise ValueError(f"request {number}: expected {count} rows, found {len(taken)}")
        return taken[:count]

    @cached_property
    def row_map(self) -> Int64:
        """Old flat row of each new one."""
        return _ints([row for place in range(len(self.numbers)) for row in self.old_rows(place)])

    def nodes(self, place: int) -> dict[int, int]:
        """Old node -> new node."""
        return {old: new for new, old in enumerate(self.chosen.requests[place].nodes)}

    def made(self) -> VerifyStep:
        step, live = self.step, self.chosen.requests
        budget = None if self.chosen.q_len is None else self.chosen.q_len - 1
        return replace(
            step,
            requests=tuple(self._request(place) for place in range(len(live))),
            source=replace(step.source, raw_bs=len(live), captured_bs=len(self.numbers)),
            config=replace(
                step.config,
                budget=step.config.budget if budget is None else budget,
                num_draft_tokens=self._width(step.config.num_draft_tokens),
                mask_capacity=None,
                max_context=None,
            ),
            inputs=self._inputs(),
            links=self._links(),
            outcome=self._outcome(),
            commit=self._commit(),
            reference=replace(
                step.reference,
                target_predict=self._rows(step.reference.target_predict),
                top2=self._rows(step.reference.top2),
            ),
            workbench=replace(
                step.workbench,
                max_logit_diff=self._rows(step.workbench.max_logit_diff),
                drafter_ranks=None,
                draft_width=None,
                draft_tokens=None,
                draft_log_probs=None,
            ),
        )

    def _width(self, width: int | None) -> int | None:
        """``num_draft_tokens`` goes along with the budget where it was right."""
        right = self.old.is_static and width == int(self.old.q_lens.max(initial=0))
        return self.chosen.q_len if right and self.chosen.q_len is not None else width

    def _request(self, place: int) -> Request:
        kept = self.chosen.requests[place]
        request, new = self.step.requests[kept.request], self.nodes(place)
        tree, nodes = request.tree, list(kept.nodes)
        parents = [-1, *(new[int(tree.parents[node])] for node in nodes[1:])]
        lost = len(tree.parents) - len(nodes)
        return replace(
            request,
            prefix_len=len(kept.prefix),
            prefix_slots=None
            if request.prefix_slots is None
            else request.prefix_slots[list(kept.prefix)],
            tree=TreeRecord(
                _ints(parents),
                None if tree.tokens is None else tree.tokens[nodes],
                None if tree.log_weights is None else tree.log_weights[nodes],
            ),
            counted_nodes=None if request.counted_nodes is None else request.counted_nodes - lost,
        )

    def _rows(self, array: Any) -> Any:
        """A per-row array of the kept rows; None stays None."""
        if array is None:
            return None
        if int(self.row_map.max(initial=-1)) >= len(array):
            raise ValueError(
                f"expected more than {int(self.row_map.max())} rows, found {len(array)}"
            )
        return array[self.row_map]

    def _inputs(self) -> Any:
        inputs = self.step.inputs
        old, new = self.old.geometry, self.geometry
        removed = [
            int(self.old.prefix_lens[number] - new.prefix_lens[place])
            for place, number in enumerate(self.numbers)
        ]
        shift = np.repeat(_ints(removed), new.q_lens)
        positions = self._rows(inputs.positions)
        seq_lens = (
            None if inputs.seq_lens is None else inputs.seq_lens[self.numbers] - _ints(removed)
        )
        counts_draft = bool(self.step.config.kv_indptr_counts_draft)
        kv_lens = self._entries(new.prefix_lens + new.q_lens * counts_draft)
        return replace(
            inputs,
            input_ids=self._rows(inputs.input_ids),
            positions=None if positions is None else positions - shift,
            seq_lens=seq_lens,
            out_cache_loc=self._rows(inputs.out_cache_loc),
            qo_indptr=self._offsets(inputs.qo_indptr, old.qo_indptr, new.qo_indptr, (_row_counts,)),
            kv_indptr=self._kv_indptr(inputs.kv_indptr, indptr(kv_lens)),
            kv_indices=self._kv_indices(),
            kv_last_page_len=self._last_pages(inputs.kv_last_page_len),
            max_extend_len=self._extend_len(inputs.max_extend_len),
            mask_indptr=self._offsets(
                inputs.mask_indptr, old.mask_indptr, new.mask_indptr, (_cell_counts, _prefix_cells)
            ),
            byte_indptr=None if inputs.byte_indptr is None else new.byte_indptr,
            custom_mask=self._mask(),
        )

    def _extend_len(self, found: int | None) -> int | None:
        right = found == int(self.old.q_lens.max(initial=0))
        return int(self.geometry.q_lens.max()) if right else found

    def _offsets(
        self, found: Int64 | None, old: Int64, new: Int64, hypotheses: tuple[Counts, ...]
    ) -> Int64 | None:
        """Right offsets become the new ones; wrong ones keep their width, or their distance from the right ones."""
        if found is None or np.array_equal(found, old):
            return None if found is None else new
        for before, after in self._believed():
            for counts, width in product(hypotheses, range(1, int(self.old.q_lens.max()) * 2 + 1)):
                if np.array_equal(found, indptr(counts(before, width))):
                    return indptr(counts(after, width))
        if len(found) != len(old):
            raise ValueError(f"expected {len(old)} offsets, found {len(found)}")
        ends = [0, *(number + 1 for number in self.numbers)]
        return new + (found - old)[ends]

    def _believed(self) -> list[tuple[Geometry, Geometry]]:
        """Old and new extents: the true ones, and those that follow from the recorded ``seq_lens``."""
        pairs, lens = [(self.old.geometry, self.geometry)], self.step.inputs.seq_lens
        if lens is not None and len(lens) == len(self.old.prefix_lens):
            shift = self.geometry.prefix_lens - self.old.prefix_lens[self.numbers]
            new = replace(self.geometry, prefix_lens=lens[self.numbers] + shift)
            pairs.append((replace(self.old.geometry, prefix_lens=lens), new))
        return pairs

    def _entries(self, tokens: Int64) -> Int64:
        """Entries of ``kv_indices`` for so many tokens."""
        config = self.step.config
        page = (config.page_size or 1) if config.kv_indptr_unit == "page" else 1
        return (tokens + page - 1) // page

    def _kv_indptr(self, found: Int64 | None, new: Int64) -> Int64 | None:
        counts = self.old.q_lens if self.step.config.kv_indptr_counts_draft else 0
        right = indptr(self._entries(self.old.prefix_lens + counts))
        return self._offsets(found, right, new, (_kv_counts,))

    def _last_pages(self, found: Int64 | None) -> Int64 | None:
        """Right fills of the last pages become the new ones; wrong ones stay as they are."""
        if found is None or len(found) < len(self.old.prefix_lens):
            return found
        page = self.step.config.page_size or 1
        counts = bool(self.step.config.kv_indptr_counts_draft)
        old = (self.old.prefix_lens + self.old.q_lens * counts - 1) % page + 1
        new = (self.geometry.prefix_lens + self.geometry.q_lens * counts - 1) % page + 1
        kept = found[self.numbers]
        return np.where(kept == old[self.numbers], new, kept).astype(np.int64)

    def _kv_indices(self) -> Int64 | None:
        """Slots of the kept positions and, where they are counted, of the kept rows."""
        found, counts_draft = self.step.inputs.kv_indices, self.step.config.kv_indptr_counts_draft
        if found is None or self.step.config.kv_indptr_unit == "page":
            return None
        starts = indptr(self.old.prefix_lens + self.old.q_lens * bool(counts_draft))
        first_rows, kept_rows = self.old.geometry.qo_indptr, self.geometry.qo_indptr
        out: list[int] = []
        for place, number in enumerate(self.numbers):
            start, prefix_len = int(starts[number]), int(self.old.prefix_lens[number])
            live = place < len(self.chosen.requests)
            kept = self.chosen.requests[place].prefix if live else range(prefix_len)
            wanted = [start + position for position in kept]
            if counts_draft:
                mine = self.row_map[int(kept_rows[place]) : int(kept_rows[place + 1])]
                wanted += [start + prefix_len + int(row - first_rows[number]) for row in mine]
            if wanted and wanted[-1] >= len(found):
                raise ValueError(
                    f"kv_indices: expected more than {wanted[-1]} entries, found {len(found)}"
                )
            out += [int(found[at]) for at in wanted]
        return _ints(out)

    def _mask(self) -> UInt8 | None:
        """Built cells of the kept rows and columns, packed anew."""
        if self.step.inputs.custom_mask is None:
            return None
        parts = []
        for place, number in enumerate(self.numbers):
            cells = np.maximum(built_mask(self.step, self.old.geometry, number).cells, 0)
            prefix_len = int(self.old.prefix_lens[number])
            live = place < len(self.chosen.requests)
            prefix = list(self.chosen.requests[place].prefix) if live else list(range(prefix_len))
            local = [row - self.old.rows(number).start for row in self.old_rows(place)]
            columns = ([] if self.geometry.qlen_only else prefix) + [prefix_len + r for r in local]
            flat = cells[np.ix_(local, columns)].astype(np.uint8).ravel()
            parts.append(np.packbits(flat, bitorder="little") if self.geometry.bits else flat)
        return np.concatenate(parts)

    def _links(self) -> Any:
        links = self.step.links
        if links.retrieve_next_token is None or links.retrieve_next_sibling is None:
            return links
        tokens, siblings = [], []
        for place, kept in enumerate(self.chosen.requests):
            new = self.nodes(place)
            old_tokens = links.retrieve_next_token[kept.request]
            old_siblings = links.retrieve_next_sibling[kept.request]
            both = [
                self._followed(found, old_siblings, kept.nodes, new)
                for found in (old_tokens, old_siblings)
            ]
            covers_padding = len(old_tokens) > self.old.trees[kept.request].num_nodes
            rows = int(self.geometry.q_lens[place]) if covers_padding else 0
            padding = [-1] * max(rows - len(kept.nodes), 0)
            tokens.append(_ints([*both[0], *padding]))
            siblings.append(_ints([*both[1], *padding]))
        return replace(
            links, retrieve_next_token=tuple(tokens), retrieve_next_sibling=tuple(siblings)
        )

    @staticmethod
    def _followed(
        links: Int64, siblings: Int64, nodes: Sequence[int], new: dict[int, int]
    ) -> list[int]:
        """Links of the kept nodes; one to a dropped node goes on to that node's next sibling."""
        out = []
        for node in nodes:
            target, steps = int(links[node]), 0
            while target != -1 and target not in new and steps <= len(siblings):
                target = int(siblings[target]) if 0 <= target < len(siblings) else -1
                steps += 1
            out.append(new.get(target, -1))
        return out

    def _outcome(self) -> Any:
        outcome, live = self.step.outcome, [kept.request for kept in self.chosen.requests]
        accepted = None
        if outcome.accept_index is not None:
            accepted = tuple(self._accepted(place) for place in range(len(live)))
        return replace(
            outcome,
            target_predict=self._rows(outcome.target_predict),
            top2=self._rows(outcome.top2),
            finite_rows=self._rows(outcome.finite_rows),
            accept_index=accepted,
            accept_length=_taken(outcome.accept_length, live),
            bonus_tokens=_taken(outcome.bonus_tokens, live),
            predict_compacted=None,
            emitted=None if outcome.emitted is None else tuple(outcome.emitted[i] for i in live),
        )

    def _accepted(self, place: int) -> Int64:
        assert self.step.outcome.accept_index is not None
        old = self.step.outcome.accept_index[self.chosen.requests[place].request]
        new = {row: at for at, row in enumerate(self.row_map.tolist())}
        return _ints([new.get(int(row), int(row)) if row != -1 else -1 for row in old])

    def _commit(self) -> Any:
        commit = self.step.commit
        live = [(place, kept) for place, kept in enumerate(self.chosen.requests)]
        numbers = [kept.request for _, kept in live]
        gone = _ints([int(self.old.prefix_lens[k.request]) - len(k.prefix) for _, k in live])

        def nodes(lists: Sequence[Int64]) -> tuple[Int64, ...]:
            return tuple(
                _ints([self.nodes(place).get(int(n), -1) for n in lists[kept.request]])
                for place, kept in live
            )

        lengths = _taken(commit.seq_lens, numbers)
        return replace(
            commit,
            seq_lens=None if lengths is None else lengths - gone,
            kv=None
            if commit.kv is None
            else tuple(LayerCommit(layer.layer, nodes(layer.nodes)) for layer in commit.kv),
            recurrent_index=None
            if commit.recurrent_index is None
            else _ints(
                [self.nodes(p).get(int(commit.recurrent_index[k.request]), -1) for p, k in live]
            ),
            hidden_rows=None if commit.hidden_rows is None else nodes(commit.hidden_rows),
        )


def _row_counts(geometry: Geometry, width: int) -> Int64:
    return np.full(geometry.bs, width, np.int64)


def _cell_counts(geometry: Geometry, width: int) -> Int64:
    counts: Int64 = width * (geometry.mask_columns_before_tree + width)
    return counts


def _prefix_cells(geometry: Geometry, width: int) -> Int64:
    """Of rows that hold the prefix alone; the same for every width."""
    return geometry.q_lens * geometry.prefix_lens


def _kv_counts(geometry: Geometry, width: int) -> Int64:
    return geometry.prefix_lens + width


def _taken(array: Int64 | None, places: list[int]) -> Int64 | None:
    return None if array is None else array[places]


def _ints(values: Sequence[int]) -> Int64:
    return np.array(values, np.int64).reshape(-1)
