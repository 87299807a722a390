"""Small tools for changing copies of recorded steps: what every injector needs, and no fault itself.

Extents are read from the recorded arrays, as an engine would have them at hand; ``engine.oracle`` is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from engine.faults.recorded.injector import Apply
from engine.layout import Geometry
from engine.step import Int64, Request, VerifyStep

Edit = Callable[[VerifyStep], VerifyStep]
T = TypeVar("T")


def every(edit: Edit) -> Apply:
    """The same change in every step."""

    def apply(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
        return [edit(step) for step in steps]

    return apply


def last(edit: Edit) -> Apply:
    """A change of the last step alone, for faults after which the recorded steps could not go on as they do."""

    def apply(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
        return [*steps[:-1], *(edit(step) for step in steps[-1:])]

    return apply


def after(relayout: Apply, fault: Apply) -> Apply:
    """The fault in steps that were first laid out in another way."""

    def apply(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
        return fault(relayout(steps))

    return apply


def need(value: T | None, path: str) -> T:
    """The value of a field. Raises ``ValueError`` with its dotted path where it was not recorded."""
    if value is None:
        raise ValueError(f"{path}: expected a recorded value, found null")
    return value


PLAIN = {
    "mask_layout": "full",
    "mask_encoding": "bytes",
    "sliding_window": None,
    "kv_indptr_unit": "token",
    "kv_indptr_counts_draft": False,
}  # what the engine records; null means the same


def need_plain(steps: Sequence[VerifyStep], *names: str) -> None:
    """Raise ``ValueError`` unless these settings of every step are the engine's own."""
    for step in steps:
        for name in names:
            found, plain = getattr(step.config, name), PLAIN[name]
            if found not in (None, plain):
                expected = "none" if plain is None else plain
                raise ValueError(f"config.{name}: expected {expected}, found {found}")


def need_padding(steps: Sequence[VerifyStep]) -> None:
    """Raise ``ValueError`` unless some step was padded to a captured batch."""
    if all(step.captured_bs == step.raw_bs for step in steps):
        raise ValueError(
            "source.captured_bs: expected a step with padded requests (a replay), found none"
        )


def with_inputs(step: VerifyStep, **changes: Any) -> VerifyStep:
    """The step with other arrays for the attention kernel."""
    return replace(step, inputs=replace(step.inputs, **changes))


def with_config(step: VerifyStep, **changes: Any) -> VerifyStep:
    """The step with other settings."""
    return replace(step, config=replace(step.config, **changes))


def with_outcome(step: VerifyStep, **changes: Any) -> VerifyStep:
    """The step with another conclusion."""
    return replace(step, outcome=replace(step.outcome, **changes))


def with_commit(step: VerifyStep, **changes: Any) -> VerifyStep:
    """The step with another state after it."""
    return replace(step, commit=replace(step.commit, **changes))


def on_backend(step: VerifyStep, name: str) -> VerifyStep:
    """The step of another attention backend."""
    return replace(step, source=replace(step.source, attention_backend=name))


def with_requests(step: VerifyStep, edit: Callable[[int, Request], Request]) -> VerifyStep:
    """The step with each live request changed; ``edit`` gets its number and its record."""
    changed = tuple(edit(number, request) for number, request in enumerate(step.requests))
    return replace(step, requests=changed)


def with_tree(request: Request, **changes: Any) -> Request:
    """The request with another record of its tree."""
    return replace(request, tree=replace(request.tree, **changes))


def extents(step: VerifyStep) -> Geometry:
    """Rows and prefix of each captured request, from ``qo_indptr`` and ``seq_lens`` as recorded."""
    starts = need(step.inputs.qo_indptr, "inputs.qo_indptr")
    return Geometry(
        need(step.inputs.seq_lens, "inputs.seq_lens"),
        np.diff(starts).astype(np.int64),
        qlen_only=step.config.mask_layout == "qlen",
        bits=step.config.mask_encoding == "bits",
    )


def rows_of(step: VerifyStep, request: int) -> slice:
    """Flat rows of a captured request, padding rows included."""
    starts = need(step.inputs.qo_indptr, "inputs.qo_indptr")
    return slice(int(starts[request]), int(starts[request + 1]))


def accepted(step: VerifyStep) -> list[list[int]]:
    """Accepted nodes of each live request, root first."""
    index = need(step.outcome.accept_index, "outcome.accept_index")
    starts = [rows_of(step, request).start for request in range(step.raw_bs)]
    return [
        [int(row) - start for row in rows if row != -1]
        for start, rows in zip(starts, index, strict=True)
    ]


def tokens_of(step: VerifyStep, request: int) -> Int64:
    """Tokens of a live request's tree, int64 [num_nodes]."""
    return need(step.requests[request].tree.tokens, f"requests[{request}].tree.tokens")


def spare_leaf(step: VerifyStep, request: int) -> int | None:
    """The last leaf of a tree that was not accepted, None if all were.

    What is wrong there changes no later step.
    """
    tree, path = step.requests[request].tree.tree, accepted(step)[request]
    leaves = (node for node in range(tree.num_nodes - 1, 0, -1) if not tree.children[node])
    return next((node for node in leaves if node not in path), None)


def ints(values: Sequence[int]) -> Int64:
    """int64 [n]."""
    return np.array(values, np.int64).reshape(-1)
