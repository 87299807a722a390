"""Who is who: every key that a row of the step can attend to, by number, and whose column it is.

A key is the content of one draft row or of one committed token. Rows ``0 … rows-1`` of the batch are the keys of the
same number; then come the committed tokens of each request, slots that belong to nobody, and two canaries: what lies
beyond the rows and beyond ``kv_indices``. A slot holds what was written there last: the draft rows' keys are stored at
``out_cache_loc`` before the attention runs, so a slot that a committed token and a draft row share holds the row.

Where ``prefix_slots`` was not recorded, the prefix is named by ``kv_indices`` at its true place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.layout import indptr
from engine.oracle import Oracle
from engine.step import Int64, VerifyStep

NOBODY = -1


@dataclass(frozen=True, eq=False)
class Keys:
    """All keys of a step."""

    request: Int64  # [keys], whose it is, NOBODY for a slot of nobody and the canaries
    column: Int64  # [keys], its column in that request's mask, -1 where it has none
    slot: Int64  # [keys], where a committed token or a slot of nobody lies, -1 otherwise
    rows: int  # draft rows of the batch
    slots: Int64  # [slots], every slot that the step names, ascending
    holder: Int64  # [slots], the key that each holds
    columns: tuple[Int64, ...]  # per request, the key of each column, [prefix_len + q_len]

    @property
    def count(self) -> int:
        """Keys, the canaries included."""
        return len(self.request)

    @property
    def beyond_rows(self) -> int:
        """The canary of rows that the batch does not have."""
        return self.count - 2

    @property
    def beyond_indices(self) -> int:
        """The canary of entries that ``kv_indices`` does not have."""
        return self.count - 1

    def held_by(self, slots: Int64) -> Int64:
        """The key that each slot holds; every slot must be one that the step names."""
        return self.holder[np.searchsorted(self.slots, slots)]

    def own(self, request: int) -> np.ndarray:
        """Keys that are columns of the request, bool [keys]."""
        mine = np.zeros(self.count, np.bool_)
        mine[self.columns[request]] = True
        return mine

    def name(self, key: int, rids: tuple[str, ...]) -> str:
        """The key in words: ``row 3 of r1``, ``prefix 7 of r0``, ``slot 311 of nobody``."""
        if key == self.beyond_rows:
            return "a row beyond the batch"
        if key == self.beyond_indices:
            return "an entry beyond kv_indices"
        owner = int(self.request[key])
        if owner == NOBODY:
            return f"slot {int(self.slot[key])}, which is nobody's prefix"
        rid = rids[owner] if owner < len(rids) else f"padded request {owner}"
        if key < self.rows:
            return f"row {key - int(self.columns[owner][self._prefix_len(owner)])} of {rid}"
        return f"prefix {int(self.column[key])} of {rid}"

    def _prefix_len(self, request: int) -> int:
        return int((self.columns[request] >= self.rows).sum())


def keys_of(step: VerifyStep, oracle: Oracle) -> Keys:
    """The keys of a step whose ``kv_indices`` was recorded."""
    geometry, rows = oracle.geometry, int(oracle.geometry.qo_indptr[-1])
    inputs = step.inputs
    assert inputs.kv_indices is not None
    owners, columns = [np.repeat(np.arange(geometry.bs), geometry.q_lens)], []
    starts = geometry.qo_indptr[:-1]
    columns.append(np.arange(rows) - np.repeat(starts - geometry.prefix_lens, geometry.q_lens))
    places = [np.full(rows, -1, np.int64)]
    prefix, first_key = [], rows
    firsts = indptr(geometry.prefix_lens)
    for i in range(geometry.bs):
        slots = _prefix_slots(step, i, int(firsts[i]), int(geometry.prefix_lens[i]))
        prefix.append(slots)
        owners.append(np.full(len(slots), i, np.int64))
        columns.append(np.arange(len(slots), dtype=np.int64))
        places.append(slots)
    written = np.empty(0, np.int64) if inputs.out_cache_loc is None else inputs.out_cache_loc[:rows]
    named = np.unique(np.concatenate([*prefix, inputs.kv_indices, written]))
    holder = np.full(len(named), NOBODY, np.int64)
    own_columns = []
    for i, slots in enumerate(prefix):
        at = np.searchsorted(named, slots)
        free = holder[at] == NOBODY
        mine = np.arange(first_key, first_key + len(slots))
        holder[at[free]] = mine[free]
        first_key += len(slots)
        # A slot that two requests share holds one key; it is a column of both.
        keys = holder[at]
        own_columns.append((keys, np.arange(int(starts[i]), int(starts[i] + geometry.q_lens[i]))))
    holder[np.searchsorted(named, written)] = np.arange(len(written))
    nobody = named[holder == NOBODY]
    holder[holder == NOBODY] = first_key + np.arange(len(nobody))
    return Keys(
        request=np.concatenate([*owners, np.full(len(nobody) + 2, NOBODY)]).astype(np.int64),
        column=np.concatenate([*columns, np.full(len(nobody) + 2, -1)]).astype(np.int64),
        slot=np.concatenate([*places, nobody, [-1, -1]]).astype(np.int64),
        rows=rows,
        slots=named,
        holder=holder,
        columns=tuple(np.concatenate(pair).astype(np.int64) for pair in own_columns),
    )


def _prefix_slots(step: VerifyStep, request: int, first: int, count: int) -> Int64:
    """Slots of a request's committed tokens."""
    recorded = None if request >= step.raw_bs else step.requests[request].prefix_slots
    if recorded is None:
        assert step.inputs.kv_indices is not None
        recorded = step.inputs.kv_indices[first : first + count]
    if len(recorded) < count:  # whose slot is not known is a key that nobody can attend to
        unknown = np.full(count - len(recorded), np.iinfo(np.int64).min)
        recorded = np.concatenate([recorded, unknown])
    return recorded[:count]
