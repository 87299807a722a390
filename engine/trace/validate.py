"""What a record must satisfy before anything is computed from it, whichever file it came from.

Covered: ranges, listed words, lengths that the format itself ties together, and the sizes that
follow from a record's claims (rows, cells, slots). Not covered: anything that a check reports:
wrong offsets, a tree with a cycle, arrays of ``inputs`` that are too short.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

import numpy as np

from engine.step import Kind, Request, VerifyStep
from engine.trace import limits
from engine.trace.errors import FieldProblem, describe
from engine.trace.fields import Declared, declared, once_a_type

ANY = limits.MAX_OFFSET
Rule = Callable[[Any], None]  # raises FieldProblem

RANGES: dict[str, tuple[int, int]] = {
    "step": (0, ANY),
    "rank": (0, limits.MAX_RANKS - 1),
    "world_size": (1, limits.MAX_RANKS),
    "raw_bs": (0, limits.MAX_REQUESTS),
    "captured_bs": (0, limits.MAX_REQUESTS),
    "budget": (0, limits.MAX_BUDGET),
    "block_size": (0, ANY),
    "topk": (0, ANY),
    "num_draft_tokens": (-ANY, ANY),
    "vocab_size": (1, ANY),
    "mask_token_id": (-ANY, ANY),
    "max_position": (0, ANY),
    "page_size": (1, ANY),
    "pool_size": (0, ANY),
    "padding_slot": (-ANY, ANY),
    "mask_capacity": (0, ANY),
    "max_context": (0, ANY),
    "sliding_window": (1, ANY),
    "prefix_len": (0, limits.MAX_PREFIX_LEN),
    "counted_nodes": (-ANY, ANY),
    "max_extend_len": (-ANY, ANY),
    "row_width": (-ANY, ANY),
    "layer": (0, limits.MAX_LAYERS - 1),
}
CHOICES: dict[str, tuple[str, ...]] = {
    "graph": ("eager", "replay"),
    "verify_rows": ("static", "ragged"),
    "mask_layout": ("full", "qlen"),
    "mask_encoding": ("bytes", "bits"),
    "kv_indptr_unit": ("token", "page"),
    "index_dtype": ("int32", "int64", "uint32"),
    "logits_dtype": ("bfloat16", "float16", "float32", "float64"),
}
LENGTHS: dict[str, int] = {
    "requests": limits.MAX_REQUESTS,
    "kv": limits.MAX_LAYERS,
    "custom_mask": limits.MAX_STEP_CELLS,
    "prefix_slots": limits.MAX_PREFIX_LEN,
    "kv_indices": limits.MAX_SLOTS,
    "parents": limits.MAX_NODES,
}
OFFSETS: dict[str, int] = {
    "qo_indptr": limits.MAX_ROWS,  # its differences are widths that rows are laid out with
    "kv_indptr": limits.MAX_OFFSET,
    "mask_indptr": limits.MAX_OFFSET,
    "byte_indptr": limits.MAX_OFFSET,
    "seq_lens": limits.MAX_OFFSET,
    "kv_last_page_len": limits.MAX_OFFSET,
}
PER_LIVE_REQUEST = {
    "links": ("retrieve_next_token", "retrieve_next_sibling"),
    "outcome": ("accept_index", "accept_length", "bonus_tokens", "emitted"),
    "commit": ("seq_lens", "recurrent_index", "hidden_rows"),
}


def validate_step(step: VerifyStep, known: Container[str] = ()) -> None:
    """Raise ``FieldProblem`` for the first value that the format does not allow.

    ``known``: fields whose very values were found valid before.
    """
    _record(step, known)
    for index, request in enumerate(step.requests):
        try:
            _request(request)
        except FieldProblem as problem:
            raise problem.inside(f"requests[{index}]") from None
    _live_requests(step)
    _claimed_sizes(step)


@once_a_type
def _rules(record: type[Any]) -> tuple[tuple[str, int, Rule | None], ...]:
    """``(field, entries at most, rule)`` of a record's fields that have a bound or a rule."""
    free = (Kind.BOOL, Kind.FLOAT)
    return tuple(
        (field.name, _most(field), _rule(field))
        for field in declared(record)
        if field.kind not in free
    )


def _most(field: Declared) -> int:
    """Entries that a list may have; 0 for what is none."""
    single = (Kind.GROUP, Kind.INT, Kind.STR)
    return 0 if field.kind in single else LENGTHS.get(field.name, limits.MAX_ROWS)


def _rule(field: Declared) -> Rule | None:
    """What else a value must satisfy."""
    if field.kind is Kind.GROUP:
        return _record
    if field.kind is Kind.INT:
        return _range(*RANGES.get(field.name, (-ANY, ANY)))
    if field.kind is Kind.STR:
        return _string(CHOICES.get(field.name))
    if field.kind is Kind.GROUPS:
        return _records
    if field.kind is Kind.RAGGED_INTS:
        return _ragged
    return _bounded(OFFSETS[field.name]) if field.name in OFFSETS else None


def _record(record: Any, known: Container[str] = ()) -> None:
    name = ""
    try:
        for name, most, rule in _rules(type(record)):
            value = getattr(record, name)
            if value is None or name in known:
                continue
            if most and len(value) > most:
                raise FieldProblem(f"at most {most} entries", str(len(value)))
            if rule is not None:
                rule(value)
    except FieldProblem as problem:
        raise problem.inside(name) from None


def _records(items: tuple[Any, ...]) -> None:
    for index, item in enumerate(items):
        try:
            _record(item)
        except FieldProblem as problem:
            raise problem.inside(f"[{index}]") from None


def _range(low: int, high: int) -> Rule:
    def rule(value: int) -> None:
        if not low <= value <= high:
            raise FieldProblem(f"an integer in {low} … {high}", describe(value))

    return rule


def _string(choices: tuple[str, ...] | None) -> Rule:
    def rule(value: str) -> None:
        if len(value) > limits.MAX_TEXT:
            raise FieldProblem(f"at most {limits.MAX_TEXT} characters", str(len(value)))
        if choices is not None and value not in choices:
            raise FieldProblem(f"one of {', '.join(choices)}", describe(value))

    return rule


def _ragged(lists: tuple[Any, ...]) -> None:
    """Their entries together."""
    count, most = sum(map(len, lists)), limits.MAX_ROWS
    if count > most:
        raise FieldProblem(f"at most {most} entries", str(count))


def _bounded(bound: int) -> Rule:
    def rule(value: Any) -> None:
        numbers = value.tolist()  # of requests, so few
        if numbers and (max(numbers) > bound or min(numbers) < -bound):
            index = int(np.argmax((value > bound) | (value < -bound)))
            found = str(value[index])
            raise FieldProblem(f"an integer in {-bound} … {bound}", found, f"[{index}]")

    return rule


def _request(request: Request) -> None:
    tree = request.tree
    if not len(tree.parents):
        raise FieldProblem("at least the root", "an empty list", "tree.parents")
    for name in ("tokens", "log_weights"):
        _as_many(getattr(tree, name), len(tree.parents), "tree.parents", "tree", name)
    _as_many(request.prefix_slots, request.prefix_len, "prefix_len", "", "prefix_slots")


def _as_many(value: Any, length: int, other: str, group: str, name: str) -> None:
    if value is not None and len(value) != length:
        field = f"{group}.{name}" if group else name
        raise FieldProblem(f"{length} entries (as {other})", str(len(value)), field)


def _live_requests(step: VerifyStep) -> None:
    for group, members in PER_LIVE_REQUEST.items():
        record = getattr(step, group)
        for name in members:
            _as_many(getattr(record, name), step.raw_bs, "requests", group, name)
    for index, layer in enumerate(step.commit.kv or ()):
        if len(layer.nodes) != step.raw_bs:
            _as_many(layer.nodes, step.raw_bs, "requests", f"commit.kv[{index}]", "nodes")


def _claimed_sizes(step: VerifyStep) -> None:
    """Rows, slots and cells that follow from prefix lengths, trees and budget."""
    laid_out = 1 if step.config.verify_rows == "ragged" else (step.config.budget or 0) + 1
    rows = slots = cells = 0
    for index, request in enumerate(step.requests):
        width = max(laid_out, len(request.tree.parents))
        claimed = width * (request.prefix_len + width)
        if claimed > limits.MAX_REQUEST_CELLS:
            raise _too_large("cells", limits.MAX_REQUEST_CELLS, claimed, f"requests[{index}]")
        rows, slots, cells = rows + width, slots + request.prefix_len, cells + claimed
    for length in _padded_lens(step):
        rows, slots = rows + laid_out, slots + length
        cells += laid_out * (length + laid_out)
    for name, claimed, most in (
        ("rows", rows, limits.MAX_ROWS),
        ("slots", slots, limits.MAX_SLOTS),
        ("cells", cells, limits.MAX_STEP_CELLS),
    ):
        if claimed > most:
            raise _too_large(name, most, claimed, "requests")


def _too_large(name: str, most: int, claimed: int, field: str) -> FieldProblem:
    return FieldProblem(f"a step of at most {most} {name}", f"a claim of {claimed}", field)


def _padded_lens(step: VerifyStep) -> list[int]:
    """Prefix lengths of padded requests as recorded; 1 where not recorded."""
    count = step.captured_bs - step.raw_bs
    recorded = step.inputs.seq_lens
    lens = [] if recorded is None else recorded[step.raw_bs : step.captured_bs].tolist()
    for index, length in enumerate(lens):
        if not 0 <= length <= limits.MAX_PREFIX_LEN:
            place = f"inputs.seq_lens[{step.raw_bs + index}]"
            raise FieldProblem(f"a length in 0 … {limits.MAX_PREFIX_LEN}", str(length), place)
    return lens + [1] * (count - len(lens))
