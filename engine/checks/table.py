"""The checks in their order, each with the recorded fields that it works on."""

from __future__ import annotations

from engine.checks import (
    acceptance,
    bonus,
    capacity,
    drafter_context,
    kv_commit,
    kv_extents,
    links,
    live_rows,
    mask_content,
    mask_extents,
    mask_packing,
    output,
    padding,
    positions,
    ranks,
    recurrent_commit,
    reference,
    row_extents,
    tree_form,
    tree_size,
    write_slots,
)
from engine.checks.context import Spec

CHECKS: tuple[Spec, ...] = (
    Spec(
        "I1",
        "row-extents",
        (
            ("inputs.qo_indptr",),
            ("inputs.max_extend_len",),
            ("inputs.input_ids",),
            ("inputs.positions",),
            ("inputs.out_cache_loc",),
        ),
        row_extents.run,
        needs_rows=False,
    ),
    Spec(
        "I2",
        "tree-size",
        (
            ("inputs.input_ids", "requests.tree.tokens"),
            ("requests.counted_nodes",),
            ("config.budget",),
            ("inputs.qo_indptr",),
        ),
        tree_size.run,
        needs_rows=False,
    ),
    Spec(
        "I3",
        "kv-extents",
        (
            ("inputs.kv_indptr",),
            ("inputs.seq_lens",),
            ("inputs.kv_indices", "inputs.kv_indptr", "requests.prefix_slots"),
            ("inputs.kv_last_page_len",),
        ),
        kv_extents.run,
        needs_rows=False,
    ),
    Spec(
        "I4", "mask-extents", (("inputs.mask_indptr",), ("inputs.custom_mask",)), mask_extents.run
    ),
    Spec(
        "I5", "mask-packing", (("inputs.custom_mask",), ("inputs.byte_indptr",)), mask_packing.run
    ),
    Spec(
        "I6",
        "capacity",
        (
            ("config.mask_capacity",),
            ("config.max_position",),
            ("config.index_dtype",),
            ("inputs.mask_indptr",),
        ),
        capacity.run,
    ),
    Spec("I7", "tree-form", (("requests.tree",),), tree_form.run, needs_rows=False),
    Spec("I8", "mask-content", (("inputs.custom_mask",),), mask_content.run),
    Spec(
        "I9",
        "live-rows",
        (("inputs.custom_mask",), ("outcome.finite_rows",), ("outcome.top2",)),
        live_rows.run,
    ),
    Spec("I10", "positions", (("inputs.positions",),), positions.run),
    Spec(
        "I11",
        "padding",
        (("inputs.positions",), ("inputs.out_cache_loc", "config.padding_slot")),
        padding.run,
    ),
    Spec(
        "I12",
        "links",
        (("links.retrieve_next_token",), ("links.retrieve_next_sibling",)),
        links.run,
        needs_rows=False,
    ),
    Spec(
        "I13",
        "acceptance",
        (
            ("outcome.target_predict", "outcome.accept_index", "requests.tree.tokens"),
            ("outcome.accept_index", "outcome.accept_length"),
        ),
        acceptance.run,
    ),
    Spec("I14", "bonus", (("outcome.accept_index",),), bonus.run),
    Spec(
        "I15",
        "kv-commit",
        (("outcome.accept_index", "commit.kv"), ("outcome.accept_index", "commit.seq_lens")),
        kv_commit.run,
    ),
    Spec("I16", "write-slots", (("inputs.out_cache_loc",),), write_slots.run),
    Spec(
        "I17",
        "recurrent-commit",
        (
            ("outcome.accept_index", "commit.recurrent_index"),
            ("outcome.target_predict", "requests.tree.tokens", "commit.recurrent_index"),
        ),
        recurrent_commit.run,
    ),
    Spec(
        "I18",
        "drafter-context",
        (
            ("outcome.accept_index", "commit.hidden_rows"),
            ("outcome.target_predict", "requests.tree.tokens", "commit.hidden_rows"),
            ("outcome.bonus_tokens", "requests.tree.tokens"),
        ),
        drafter_context.run,
    ),
    Spec(
        ranks.ID,
        ranks.NAME,
        ((),),
        ranks.one_rank_alone,
        needs_rows=False,
        needs_ranks=True,
    ),
    Spec("I20", "output", (("outcome.emitted",),), output.run),
    Spec(
        "I22", "reference", (("reference.target_predict", "outcome.target_predict"),), reference.run
    ),
)
