"""Faults of the state after a step: lengths, moved keys and values, recurrent states, hidden states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from engine.faults.recorded.edit import accepted, after, every, ints, need, rows_of, with_commit
from engine.faults.recorded.injector import Apply, RecordedInjector
from engine.faults.recorded.states import with_recurrent_state
from engine.step import LayerCommit, VerifyStep


def _advanced_by(lengths: Callable[[list[list[int]]], list[int]]) -> Apply:
    """``seq_lens`` advanced by a length a request; the function gets the accepted paths."""

    def edit(step: VerifyStep) -> VerifyStep:
        prefix_lens = ints([request.prefix_len for request in step.requests])
        return with_commit(step, seq_lens=prefix_lens + ints(lengths(accepted(step))))

    return every(edit)


def _longest(paths: list[list[int]]) -> list[int]:
    return [max(map(len, paths))] * len(paths)


def _layers(step: VerifyStep) -> tuple[LayerCommit, ...]:
    layers = need(step.commit.kv, "commit.kv")
    if len(layers) < 2:
        raise ValueError(f"commit.kv: expected at least 2 layers, found {len(layers)}")
    return layers


def _without_root(step: VerifyStep) -> VerifyStep:
    """The moved rows begin behind the root; the last position keeps what lay there."""
    moved = tuple(ints([*path[1:], len(path) - 1]) for path in accepted(step))
    return with_commit(
        step, kv=tuple(replace(layer, nodes=moved) for layer in need(step.commit.kv, "commit.kv"))
    )


def _one_storage(step: VerifyStep) -> VerifyStep:
    """Layers that share their storage with the first one, at other offsets, are taken for moved already."""
    first, *others = _layers(step)
    cropped = tuple(ints(range(len(path))) for path in accepted(step))
    return with_commit(step, kv=(first, *(replace(layer, nodes=cropped) for layer in others)))


def _recurrent(state: Callable[[int, Sequence[int]], int]) -> Apply:
    """Another node's recurrent state; the function gets the tree's size and the accepted path."""

    def edit(step: VerifyStep) -> VerifyStep:
        sizes = [request.tree.tree.num_nodes for request in step.requests]
        kept = [state(size, path) for size, path in zip(sizes, accepted(step), strict=True)]
        return with_commit(step, recurrent_index=ints(kept))

    return after(with_recurrent_state, every(edit))


def _flat_hidden_rows(step: VerifyStep) -> VerifyStep:
    """Rows of the batch where nodes of the request are expected."""
    flat = [
        ints([rows_of(step, number).start + node for node in path])
        for number, path in enumerate(accepted(step))
    ]
    return with_commit(step, hidden_rows=tuple(flat))


INJECTORS = (
    RecordedInjector(
        "length-with-bonus",
        "The committed length counts the bonus token, which is not in the cache yet.",
        _advanced_by(lambda paths: [len(path) + 1 for path in paths]),
    ),
    RecordedInjector(
        "uniform-advance",
        "The committed lengths of a batch all grow by the longest accepted path.",
        _advanced_by(_longest),
    ),
    RecordedInjector(
        "commit-without-root",
        "The moved KV rows begin behind the root, whose own row is lost.",
        every(_without_root),
    ),
    RecordedInjector(
        "one-storage-layers",
        "Layers that share one storage with the first are skipped when the accepted rows are moved.",
        every(_one_storage),
    ),
    RecordedInjector(
        "state-by-length",
        "The recurrent state of the row numbered by the accepted length is kept.",
        _recurrent(lambda size, path: len(path) - 1),
    ),
    RecordedInjector(
        "state-of-last-row",
        "The recurrent state is updated in place by all rows, so the last node's is kept.",
        _recurrent(lambda size, path: size - 1),
    ),
    RecordedInjector(
        "state-not-promoted",
        "The recurrent state stays the root's, because nothing commits the accepted one.",
        _recurrent(lambda size, path: 0),
    ),
    RecordedInjector(
        "flat-hidden-rows",
        "The drafter is handed rows of the batch where it expects nodes of the request.",
        every(_flat_hidden_rows),
    ),
)
