"""Groups that most steps repeat from the step before: while their bytes stay the same, they are not read again.

What is kept was decoded and validated. It is given back for a batch in which the arrays and buffers of these groups
have the same lengths, lie equally far from each other, and hold the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.step import VerifyStep
from engine.trace.arrow_plan import Plan
from engine.trace.ipc import BatchLayout

REPEATED = ("source", "config")  # columns that follow each other
Shape = tuple[str | None, bytes, bytes, bytes]


@dataclass(frozen=True, eq=False)
class _Kept:
    """The groups of one step, and all that they follow from."""

    shape: Shape
    content: bytes
    records: dict[str, Any]


class Repeats:
    """The repeated groups of one file's steps; safe to share between threads."""

    def __init__(self, plan: Plan) -> None:
        names = [column.name for column in plan.columns]
        first = names.index(REPEATED[0]) if REPEATED[0] in names else 0
        after = first + len(REPEATED)
        self._possible = tuple(names[first:after]) == REPEATED
        starts = [(column.node, column.buffer) for column in plan.columns]
        starts.append((plan.nodes, plan.buffers))
        (node, buffer), (last_node, last_buffer) = starts[first], starts[min(after, len(names))]
        self._nodes, self.buffers = slice(node, last_node), slice(buffer, last_buffer)
        self._kept: _Kept | None = None

    def find(self, layout: BatchLayout, body: memoryview) -> dict[str, Any]:
        """The groups by name, if the batch repeats them; else nothing."""
        kept = self._kept
        if kept is None:
            return {}
        first, shape = self._shape(layout)
        if first < 0 or first % 8 or shape != kept.shape:
            return {}
        same = body[first : first + len(kept.content)].tobytes() == kept.content
        return kept.records if same else {}

    def keep(self, layout: BatchLayout, body: memoryview, step: VerifyStep) -> None:
        """Remember the groups of a valid step, if their buffers lie together."""
        if not self._possible:
            return
        first, shape = self._shape(layout)
        places = layout.offsets[self.buffers] - first
        if first < 0 or first % 8 or int(places.min()) < 0:
            return
        end = int((places + layout.lengths[self.buffers]).max())
        content = body[first : first + end].tobytes()
        records = {name: getattr(step, name) for name in REPEATED}
        self._kept = _Kept(shape, content, records)

    def _shape(self, layout: BatchLayout) -> tuple[int, Shape]:
        """Where the first buffer lies; how all are stored, places from there on, their lengths, those of the arrays."""
        places = layout.offsets[self.buffers]
        first = int(places[0])
        lengths = layout.lengths[self.buffers].tobytes()
        nodes = layout.node_lengths[self._nodes].tobytes()
        return first, (layout.codec, (places - first).tobytes(), lengths, nodes)
