"""The table of injectors and how one is applied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.decoding.stages import CORRECT, Stages
from engine.faults import acceptance, commit, mask, offsets, position, rows, width


@dataclass(frozen=True)
class Injector:
    """A fault by name. ``apply`` makes the broken stages anew for every run, so no state leaks between runs."""

    name: str
    description: str  # one sentence
    apply: Callable[[Stages], Stages]
    needs_replay: bool = False


_ALL = (
    Injector(
        "verify-width",
        "The attention backend lays out block_size rows a request although budget + 1 rows were sent.",
        width.verify_width,
    ),
    Injector(
        "size-from-tokens",
        "The tree's size is counted as its tokens that are not 0, although 0 is a token.",
        rows.size_from_tokens,
    ),
    Injector(
        "kv-counts-draft",
        "kv_indptr counts the draft rows although this backend adds them itself.",
        offsets.kv_counts_draft,
        needs_replay=True,  # an eager mask ends where these offsets reach past
    ),
    Injector(
        "seq-lens-behind",
        "seq_lens lag one token behind what was committed, and every offset follows them.",
        offsets.seq_lens_behind,
    ),
    Injector(
        "stale-kv-indices",
        "The last committed token of each request is looked up in the slot of its first one.",
        offsets.stale_kv_indices,
    ),
    Injector(
        "prefix-only-offsets",
        "mask_indptr counts the prefix columns alone, so later requests read earlier cells.",
        offsets.prefix_only_offsets,
    ),
    Injector(
        "stale-mask",
        "A graph replay does not refresh the mask buffer: it keeps the tree of the first step.",
        mask.stale_mask,
        needs_replay=True,
    ),
    Injector(
        "causal-mask",
        "Every row sees all rows before it, as if the tree were a chain.",
        mask.causal_mask,
    ),
    Injector(
        "first-requests-tree",
        "Every request of a batch gets the tree columns of the first one.",
        mask.first_requests_tree,
    ),
    Injector(
        "padding-leak",
        "Real nodes attend to the padding rows behind them.",
        mask.padding_leak,
    ),
    Injector(
        "sibling-leak",
        "A node attends to its earlier siblings, as if the tree were a chain among them.",
        mask.sibling_leak,
    ),
    Injector(
        "hidden-ancestor",
        "A node does not attend to its parent.",
        mask.hidden_ancestor,
    ),
    Injector(
        "flattened-positions",
        "Rotary positions count rows instead of depths, so siblings stand at different positions.",
        position.flattened_positions,
    ),
    Injector(
        "lagging-positions",
        "Rotary positions begin one place early, because an accepted token was not counted.",
        position.lagging_positions,
    ),
    Injector(
        "stale-padding",
        "Rows of padded requests keep the positions of a live one.",
        rows.stale_padding,
        needs_replay=True,
    ),
    Injector(
        "lost-sibling",
        "retrieve_next_sibling ends after the first child of each node.",
        acceptance.lost_sibling,
    ),
    Injector(
        "lost-child",
        "retrieve_next_token is lost below the root's children.",
        acceptance.lost_child,
    ),
    Injector(
        "shifted-logits",
        "A child is judged by its own row instead of its parent's.",
        acceptance.shifted_logits,
    ),
    Injector(
        "unverified-first",
        "The root's first child is committed without asking the target.",
        acceptance.unverified_first,
    ),
    Injector(
        "short-walk",
        "The acceptance walk stops before its last node.",
        acceptance.short_walk,
    ),
    Injector(
        "bonus-stride",
        "The bonus is read at the row numbered by the accepted length instead of the last accepted row.",
        acceptance.bonus_stride,
    ),
    Injector(
        "crop-commit",
        "The KV cache is cropped to the accepted length instead of gathering the accepted nodes.",
        commit.crop_commit,
    ),
    Injector(
        "gather-twice",
        "The accepted KV rows are gathered a second time, from rows that have already moved.",
        commit.gather_twice,
    ),
    Injector(
        "skip-last-layer",
        "The last layer's KV buffer is not moved with the others.",
        commit.skip_last_layer,
    ),
    Injector(
        "slot-collision",
        "The last row of each request writes its KV to the slot of its root.",
        rows.slot_collision,
    ),
    Injector(
        "slot-in-prefix",
        "The last row of each request writes its KV over its first committed token.",
        rows.slot_in_prefix,
    ),
    Injector(
        "hidden-rows",
        "The drafter gets the accepted hidden states one row late.",
        commit.hidden_rows_without_root,
    ),
    Injector(
        "past-stop",
        "Tokens after an end-of-sequence token are emitted.",
        acceptance.past_stop,
    ),
    Injector(
        "dropped-token",
        "The first of several accepted tokens is not emitted.",
        acceptance.dropped_token,
    ),
)
INJECTORS = {injector.name: injector for injector in _ALL}
FAULTS: tuple[str, ...] = tuple(INJECTORS)


def _named(name: str) -> Injector:
    if name not in INJECTORS:
        raise ValueError(f"fault: expected one of {', '.join(FAULTS)}, found {name!r}")
    return INJECTORS[name]


def describe(name: str) -> str:
    """What a fault does, in one sentence. Raises ``ValueError`` for an unknown name."""
    return _named(name).description


def inject(name: str | None, *, replay: bool) -> Stages:
    """Stages of a run with the named fault (None: the correct ones).

    Raises ``ValueError`` for an unknown name, or for one that needs replay mode in an eager run.
    """
    if name is None:
        return CORRECT
    injector = _named(name)
    if injector.needs_replay and not replay:
        raise ValueError(
            f"fault {name}: needs replay mode, found eager; its buffer exists only there"
        )
    return injector.apply(CORRECT)
