"""What the checks are expected to say of each injector on recorded steps, and where it changes nothing.

Also the contract's diagnoses, and the engine's own injectors that reach those which need no recorded step.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.faults.recorded.edit import accepted, extents
from engine.faults.recorded.kv_extents import PAGE_SIZE
from tests.faults.recordings import REPLAY, Case, recording

EXPECTED: dict[str, tuple[str, str]] = {
    "unpadded-slots": ("I1", "rows-unaccounted"),
    "tree-past-rows": ("I2", "over-budget"),
    "tokens-in-level-order": ("I2", "tokens-differ"),
    "zero-not-counted": ("I2", "tree-size-from-tokens"),
    "size-from-rows": ("I2", "tree-size"),
    "kv-without-draft": ("I3", "kv-without-draft"),
    "slots-for-pages": ("I3", "kv-indices"),
    "last-page-dropped": ("I3", "kv-extent"),
    "last-page-of-prefix": ("I3", "kv-extent"),
    "offsets-of-block": ("I4", "width-mismatch"),
    "live-mask-only": ("I4", "mask-shorter-than-indptr"),
    "draft-columns-twice": ("I4", "mask-extent"),
    "full-offsets": ("I4", "mask-extent"),
    "most-significant-first": ("I5", "bit-order"),
    "one-bit-stream": ("I5", "request-not-byte-aligned"),
    "rows-of-whole-bytes": ("I5", "row-stride"),
    "rows-of-buffer-width": ("I5", "row-stride"),
    "byte-offsets-in-bits": ("I5", "byte-extent"),
    "byte-offsets-rounded-down": ("I5", "byte-extent"),
    "bits-taken-for-bytes": ("I5", "packing"),
    "bytes-taken-for-bits": ("I5", "packing"),
    "int32-offsets": ("I6", "offset-overflow"),
    "int8-offsets": ("I6", "offset-overflow"),
    "buffer-without-draft-columns": ("I6", "buffer-without-draft-columns"),
    "short-rope-table": ("I6", "rope-table"),
    "buffer-of-live-batch": ("I6", "capacity"),
    "lost-parent": ("I7", "cycle-or-orphan"),
    "repeated-candidate": ("I7", "duplicate-sibling"),
    "block-without-root": ("I7", "too-deep"),
    "heap-keys": ("I7", "weights-not-sorted"),
    "leaves-first": ("I7", "tree-form"),
    "window-by-index": ("I8", "window-by-index"),
    "window-of-deepest-row": ("I8", "prefix-hidden"),
    "unwritten-mask-rows": ("I8", "mask-cell"),
    "non-finite-row": ("I9", "non-finite-logits"),
    "unwritten-logits": ("I9", "live-rows"),
    "positions-of-parents": ("I10", "position"),
    "uninitialised-padding": ("I11", "padding"),
    "cousin-links": ("I12", "links"),
    "leaf-to-root": ("I13", "acceptance"),
    "length-without-root": ("I13", "acceptance"),
    "local-accept-index": ("I14", "accept-index-range"),
    "runner-up-bonus": ("I14", "bonus"),
    "one-storage-layers": ("I15", "layer-not-compacted"),
    "length-with-bonus": ("I15", "length"),
    "uniform-advance": ("I15", "length"),
    "commit-without-root": ("I15", "kv-commit"),
    "slots-of-other-pool": ("I16", "slot-range"),
    "slots-of-block": ("I16", "write-slots"),
    "draft-keys-shifted": ("I16", "write-slots"),
    "state-by-length": ("I17", "commit-by-length"),
    "state-of-last-row": ("I17", "recurrent-commit"),
    "state-not-promoted": ("I17", "recurrent-commit"),
    "anchor-of-accepted": ("I18", "drafter-anchor"),
    "flat-hidden-rows": ("I18", "drafter-context"),
    "rank-tokens": ("I19", "rank-divergence"),
    "rank-predict": ("I19", "rank-divergence"),
    "rank-accepted": ("I19", "rank-divergence"),
    "rank-bonus": ("I19", "rank-divergence"),
    "rank-length": ("I19", "rank-divergence"),
    "bonus-placeholder": ("I20", "placeholder-token"),
    "shard-offset-twice": ("I20", "token-range"),
    "flushed-buffer": ("I20", "output"),
    "flipped-row": ("I22", "unexplained-mismatch"),
    "rounding-flip": ("I22", "near-tie"),
}


def _is_chain(case: Case) -> bool:
    return case.shape == "chain"


def _is_alone(case: Case) -> bool:
    return case.batch == 1


def _fills_its_rows(case: Case) -> bool:
    return case.shape == "bushy"


def _fits_the_block(case: Case) -> bool:
    """Every node lies in one of the first block_size rows."""
    steps = recording(case)
    return all(len(r.tree.parents) <= s.config.block_size for s in steps for r in s.requests)


def _has_whole_pages(case: Case) -> bool:
    """No request ends with a part of a page."""
    ends = [extents(step).prefix_lens + extents(step).q_lens for step in recording(case)]
    return all((end % PAGE_SIZE == 0).all() for end in ends)


def _accepts_first_rows(case: Case) -> bool:
    """Whatever was accepted, its node numbers are its depths."""
    return all(path == list(range(len(path))) for s in recording(case) for path in accepted(s))


# Where the mistaken formula gives what the right one gives.
HARMLESS: dict[str, Callable[[Case], bool]] = {
    "tokens-in-level-order": _is_chain,  # one node a level
    "repeated-candidate": _is_chain,  # no node has a sibling
    "window-by-index": _is_chain,  # rows are depths
    "cousin-links": _is_chain,  # no level has two nodes
    "one-storage-layers": _accepts_first_rows,  # cropping is gathering
    "state-by-length": _accepts_first_rows,
    "last-page-dropped": _has_whole_pages,
    "size-from-rows": _fills_its_rows,  # as many nodes as rows
    "unwritten-mask-rows": _fits_the_block,  # the other rows are padding
    "slots-of-block": _fits_the_block,
    "local-accept-index": _is_alone,  # the batch begins with the request's own rows
    "flat-hidden-rows": _is_alone,
    "uniform-advance": _is_alone,  # the longest path is its own
    "one-bit-stream": _is_alone,  # the first request begins a byte
}
# Faults of what only a padded replay has; in an eager run the injector says so.
REPLAYS_ONLY = {
    "unpadded-slots": "expected a step with padded requests (a replay), found none",
    "live-mask-only": "expected a step with padded requests (a replay), found none",
    "buffer-of-live-batch": "expected a step with padded requests (a replay), found none",
    "uninitialised-padding": "expected a step with padded requests (a replay), found none",
    "buffer-without-draft-columns": "expected the cells of a persistent mask (a replay), found none",
}
# One stream of bits is shorter than requests that each begin a byte: behind a live request that is right, the buffer
# ends before a padded request's bytes, of which nothing else is asked.
SHORTER = {("one-bit-stream", REPLAY): ("I4", "mask-shorter-than-indptr")}


# Steps that no file can hold: 2**31 cells are past the limits of a step, and the format names no int8.
NOT_WRITABLE = {
    "int32-offsets": "requests[0].prefix_len",
    "int8-offsets": "config.index_dtype",
}

# What the engine's own injectors show, in this one run each: the diagnoses that no recorded step is needed for.
ENGINE = {
    "verify-width": ("I1", "width-mismatch"),
    "kv-counts-draft": ("I3", "kv-counts-draft-twice"),
    "seq-lens-behind": ("I3", "seq-lens"),
    "prefix-only-offsets": ("I4", "prefix-only-width"),
    "causal-mask": ("I8", "causal-mask"),
    "first-requests-tree": ("I8", "request-broadcast"),
    "stale-mask": ("I8", "previous-tree-not-cleared"),
    "padding-leak": ("I8", "padding-leak"),
    "sibling-leak": ("I8", "sibling-leak"),
    "flattened-positions": ("I10", "flattened-positions"),
    "lagging-positions": ("I10", "constant-offset"),
    "stale-padding": ("I11", "stale-padding"),
    "lost-sibling": ("I12", "lost-sibling"),
    "lost-child": ("I12", "lost-child"),
    "short-walk": ("I13", "path-not-maximal"),
    "shifted-logits": ("I13", "shifted-logits"),
    "unverified-first": ("I13", "wrong-child"),
    "bonus-stride": ("I14", "bonus-stride"),
    "crop-commit": ("I15", "cropped-not-gathered"),
    "gather-twice": ("I15", "gathered-twice"),
    "slot-in-prefix": ("I16", "slot-in-prefix"),
    "slot-collision": ("I16", "slot-collision"),
    "hidden-rows": ("I18", "hidden-rows"),
    "past-stop": ("I20", "past-stop"),
    "dropped-token": ("I20", "emitted"),
}
# A row that sees nothing differs from the intended mask, so I8 names the cause first.
ONLY_A_CONSEQUENCE = {("I9", "empty-row")}
NO_FAULT = {("I22", "near-tie")}
