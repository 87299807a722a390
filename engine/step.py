"""VerifyStep: the record of one verify step of one rank, and the vocabulary of everything that reads it.

The groups and names are those of the step format (``ddtree.step`` version 1); the names inside are SGLang's. Each
field declares its :class:`Kind` once; the JSON codec, the Arrow schema and the equality below all follow from that
declaration. ``None`` means unknown, except where the field's comment says that it means "there is none".

Covered: facts as they were handed to the attention kernel and came back from it. Not covered: what they should
have been (``engine.oracle``) and where they differ (``engine.checks``).
"""

from __future__ import annotations

from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.tree import DraftTree

FORMAT = "ddtree.step"
VERSION = 1
UNKNOWN_TOKEN = np.iinfo(np.int64).min  # a row whose reference choice is not known; null in JSON

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
UInt8 = NDArray[np.uint8]


class Kind(Enum):
    """How a field is stored; the value is its name in error messages."""

    INT = "an integer"
    FLOAT = "a number"
    STR = "a string"
    BOOL = "true or false"
    INTS = "a list of integers"  # int64 [n]
    OPTIONAL_INTS = "a list of integers or null"  # int64 [n], UNKNOWN_TOKEN for null
    FLOATS = "a list of numbers"  # float64 [n], NaN for null
    BYTES = "a list of integers 0 … 255"  # uint8 [n]
    BOOLS = "a list of true or false"  # bool [n]
    RAGGED_INTS = "a list of lists of integers"  # tuple of int64 [n_i]
    TOP2 = "a list of two [id, logit] pairs a row"  # float64 [rows, 2, 2]: [..., 0] ids, [..., 1] logits; NaN for null
    STR_MAP = "an object of strings"  # dict[int, str]
    GROUP = "an object"  # a nested dataclass
    GROUPS = "a list of objects"  # a tuple of nested dataclasses


def _f(kind: Kind, default: Any = None, item: type | None = None) -> Any:
    return field(default=default, metadata={"kind": kind, "item": item})


def _required(kind: Kind, item: type | None = None) -> Any:
    return field(metadata={"kind": kind, "item": item})


@dataclass(frozen=True, eq=False)
class Source:
    """Who ran the step."""

    engine: str | None = _f(Kind.STR)
    engine_version: str | None = _f(Kind.STR)
    attention_backend: str | None = _f(Kind.STR)
    model: str | None = _f(Kind.STR)
    deterministic: bool | None = _f(
        Kind.BOOL
    )  # SGLang's deterministic kernels read prefix columns too
    graph: str | None = _f(Kind.STR)  # "eager" or "replay"
    raw_bs: int | None = _f(Kind.INT)  # live requests
    captured_bs: int | None = _f(Kind.INT)  # requests that the graph was captured for


@dataclass(frozen=True, eq=False)
class Config:
    """Settings that the step was laid out with."""

    budget: int | None = _f(Kind.INT)  # nodes without the root
    block_size: int | None = _f(Kind.INT)
    topk: int | None = _f(Kind.INT)
    temperature: float | None = _f(Kind.FLOAT)
    verify_rows: str | None = _f(
        Kind.STR
    )  # "static": budget + 1 rows a request; "ragged": one row a node
    num_draft_tokens: int | None = _f(Kind.INT)  # the width that the attention backend believes in
    vocab_size: int | None = _f(Kind.INT)
    eos_token_ids: Int64 | None = _f(Kind.INTS)
    mask_token_id: int | None = _f(Kind.INT)  # None: there is none
    max_position: int | None = _f(Kind.INT)
    page_size: int | None = _f(Kind.INT)
    pool_size: int | None = _f(Kind.INT)  # slots that exist
    padding_slot: int | None = _f(Kind.INT)
    mask_layout: str | None = _f(Kind.STR)  # "full" or "qlen"
    mask_encoding: str | None = _f(Kind.STR)  # "bytes" or "bits"
    mask_capacity: int | None = _f(Kind.INT)  # cells of the persistent buffer; None: there is none
    max_context: int | None = _f(Kind.INT)  # tokens that the buffer must serve
    index_dtype: str | None = _f(Kind.STR)
    kv_indptr_counts_draft: bool | None = _f(Kind.BOOL)
    kv_indptr_unit: str | None = _f(Kind.STR)  # "token" or "page"
    sliding_window: int | None = _f(Kind.INT)  # None: there is none


@dataclass(frozen=True, eq=False)
class TreeRecord:
    """The tree as its builder made it: real nodes only."""

    parents: Int64 = _required(Kind.INTS)
    tokens: Int64 | None = _f(Kind.INTS)
    log_weights: Float64 | None = _f(Kind.FLOATS)

    @property
    def tree(self) -> DraftTree:
        """The same as a :class:`DraftTree`; unknown tokens are -1."""
        tokens = np.full(len(self.parents), -1, np.int64) if self.tokens is None else self.tokens
        return DraftTree(self.parents, tokens, self.log_weights)


@dataclass(frozen=True, eq=False)
class Request:
    """One live request of the batch."""

    rid: str = _required(Kind.STR)
    prefix_len: int = _required(Kind.INT)  # committed tokens in the KV cache, root excluded
    tree: TreeRecord = _required(Kind.GROUP, TreeRecord)
    prefix_slots: Int64 | None = _f(Kind.INTS)  # [prefix_len]
    counted_nodes: int | None = _f(Kind.INT)  # what the engine's verify code took the tree size for


@dataclass(frozen=True, eq=False)
class Inputs:
    """What was handed to the attention kernel; arrays cover the captured batch."""

    input_ids: Int64 | None = _f(Kind.INTS)  # [rows]
    positions: Int64 | None = _f(Kind.INTS)  # [rows]
    seq_lens: Int64 | None = _f(Kind.INTS)  # [captured_bs], prefix lengths
    qo_indptr: Int64 | None = _f(Kind.INTS)  # [captured_bs + 1]
    kv_indptr: Int64 | None = _f(Kind.INTS)  # [captured_bs + 1]
    kv_indices: Int64 | None = _f(Kind.INTS)  # [kv_indptr[-1]]
    kv_last_page_len: Int64 | None = _f(Kind.INTS)  # [captured_bs], pages only
    max_extend_len: int | None = _f(Kind.INT)
    mask_indptr: Int64 | None = _f(Kind.INTS)  # [captured_bs + 1], cells
    byte_indptr: Int64 | None = _f(Kind.INTS)  # [captured_bs + 1], bytes; None: there is none
    custom_mask: UInt8 | None = _f(Kind.BYTES)  # cells (0/1), or bytes of packed bits
    out_cache_loc: Int64 | None = _f(Kind.INTS)  # [rows]


@dataclass(frozen=True, eq=False)
class Links:
    """The tree as the acceptance walk reads it; node numbers, -1 for none; one list a live request."""

    retrieve_next_token: tuple[Int64, ...] | None = _f(Kind.RAGGED_INTS)
    retrieve_next_sibling: tuple[Int64, ...] | None = _f(Kind.RAGGED_INTS)


@dataclass(frozen=True, eq=False)
class PredictCompacted:
    """Predictions gathered to accepted nodes: ``values[i * row_width + k]`` is request i's k-th."""

    row_width: int = _required(Kind.INT)
    values: Int64 = _required(Kind.INTS)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What verification concluded. Per-row arrays cover the captured batch, the others the live requests."""

    target_predict: Int64 | None = _f(Kind.INTS)  # [rows]
    top2: Float64 | None = _f(Kind.TOP2)  # [rows, 2, 2]
    finite_rows: NDArray[np.bool_] | None = _f(Kind.BOOLS)  # [rows]
    accept_index: tuple[Int64, ...] | None = _f(
        Kind.RAGGED_INTS
    )  # flat row ids, root first, -1 padded
    accept_length: Int64 | None = _f(Kind.INTS)  # [bs], root included
    bonus_tokens: Int64 | None = _f(Kind.INTS)  # [bs]
    predict_compacted: PredictCompacted | None = _f(
        Kind.GROUP, item=PredictCompacted
    )  # None: there is none
    emitted: tuple[Int64, ...] | None = _f(Kind.RAGGED_INTS)


@dataclass(frozen=True, eq=False)
class LayerCommit:
    """Whose KV each newly committed position of one layer holds; node numbers a request."""

    layer: int = _required(Kind.INT)
    nodes: tuple[Int64, ...] = _required(Kind.RAGGED_INTS)


@dataclass(frozen=True, eq=False)
class Commit:
    """State after the step."""

    seq_lens: Int64 | None = _f(Kind.INTS)  # [bs]
    kv: tuple[LayerCommit, ...] | None = _f(Kind.GROUPS, item=LayerCommit)
    recurrent_index: Int64 | None = _f(Kind.INTS)  # [bs]; None: there is none
    hidden_rows: tuple[Int64, ...] | None = _f(Kind.RAGGED_INTS)


@dataclass(frozen=True, eq=False)
class Reference:
    """Plain decoding's choice per row, where known."""

    target_predict: Int64 | None = _f(Kind.OPTIONAL_INTS)  # [rows]
    top2: Float64 | None = _f(Kind.TOP2)  # [rows, 2, 2]


@dataclass(frozen=True, eq=False)
class Extras:
    """What this workbench records beyond the step format (JSON key ``workbench``)."""

    token_texts: dict[int, str] | None = _f(Kind.STR_MAP)
    max_logit_diff: Float64 | None = _f(
        Kind.FLOATS
    )  # [rows], engine against reference; NaN where a row is not finite
    drafter_ranks: tuple[Int64, ...] | None = _f(
        Kind.RAGGED_INTS
    )  # rank of each node's token at its depth; 0 best
    # The drafter's best tokens at each draft position, flat [bs * L * draft_width], most probable first.
    draft_width: int | None = _f(Kind.INT)
    draft_tokens: Int64 | None = _f(Kind.INTS)
    draft_log_probs: Float64 | None = _f(Kind.FLOATS)
    fault: str | None = _f(Kind.STR)  # injected on purpose, None: there is none


@dataclass(frozen=True, eq=False)
class VerifyStep:
    """One verify step of one rank."""

    requests: tuple[Request, ...] = _required(Kind.GROUPS, Request)
    step: int = _f(Kind.INT, 0)
    rank: int = _f(Kind.INT, 0)
    world_size: int = _f(Kind.INT, 1)
    source: Source = _f(Kind.GROUP, Source(), Source)
    config: Config = _f(Kind.GROUP, Config(), Config)
    inputs: Inputs = _f(Kind.GROUP, Inputs(), Inputs)
    links: Links = _f(Kind.GROUP, Links(), Links)
    outcome: Outcome = _f(Kind.GROUP, Outcome(), Outcome)
    commit: Commit = _f(Kind.GROUP, Commit(), Commit)
    reference: Reference = _f(Kind.GROUP, Reference(), Reference)
    logits_dtype: str | None = _f(Kind.STR)
    workbench: Extras = _f(Kind.GROUP, Extras(), Extras)

    @property
    def raw_bs(self) -> int:
        """Live requests."""
        return len(self.requests)

    @property
    def captured_bs(self) -> int:
        """Requests that the arrays of ``inputs`` cover: at least ``raw_bs``."""
        return max(self.raw_bs, self.source.captured_bs or 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VerifyStep) and same_record(self, other)


def kind_of(declared: Field[Any]) -> Kind:
    """The :class:`Kind` that a field of a record declares."""
    kind: Kind = declared.metadata["kind"]
    return kind


def is_required(declared: Field[Any]) -> bool:
    """Whether the record cannot be made without this field."""
    return declared.default is MISSING


def same_record(left: Any, right: Any) -> bool:
    """Deep equality of records, arrays by dtype, shape and value; NaN equals NaN."""
    if type(left) is not type(right):
        return False
    if is_dataclass(left):
        return all(same_record(getattr(left, f.name), getattr(right, f.name)) for f in fields(left))
    if isinstance(left, np.ndarray):
        return (
            left.dtype == right.dtype
            and left.shape == right.shape
            and np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
        )
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same_record, left, right))
    return bool(left == right)
