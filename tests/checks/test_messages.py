"""What the findings say, word for word: place, expected, found, and whose variable."""

from __future__ import annotations

import pytest

from engine.step import VerifyStep
from tests.checks import test_acceptance as acceptance
from tests.checks import test_bonus as bonus
from tests.checks import test_capacity as capacity
from tests.checks import test_drafter_context as drafter_context
from tests.checks import test_kv_commit as kv_commit
from tests.checks import test_kv_extents as kv_extents
from tests.checks import test_links as links
from tests.checks import test_live_rows as live_rows
from tests.checks import test_mask_content as mask_content
from tests.checks import test_mask_extents as mask_extents
from tests.checks import test_mask_packing as packing
from tests.checks import test_output as output
from tests.checks import test_padding as padding
from tests.checks import test_positions as positions
from tests.checks import test_recurrent_commit as recurrent_commit
from tests.checks import test_reference as reference
from tests.checks import test_row_extents as row_extents
from tests.checks import test_tree_form as tree_form
from tests.checks import test_tree_size as tree_size
from tests.checks import test_write_slots as write_slots
from tests.checks.build import batch, findings, spoil
from tests.factories import ints


def case(name: str, step: VerifyStep, message: str, hint: str = "") -> object:
    return pytest.param(step, message, hint, id=name)


CASES = [
    case(
        "I1-story",
        row_extents.broken_story(),
        "width 8 (`num_draft_tokens` = block_size) used for 17 rows: rows 1-7 read shifted cells, "
        "rows 8-16 are never written",
        "The attention backend laid out 8 rows a request, the step sent 17 (budget + 1). Set the target backend's "
        "width to 17; the drafter's stays block size.",
    ),
    case(
        "I1-block-size",
        spoil(row_extents.broken_story(), ("config.num_draft_tokens", 17)),
        "width 8 (`block_size`) used for 17 rows: rows 1-7 read shifted cells, "
        "rows 8-16 are never written",
    ),
    case(
        "I1-budget",
        spoil(batch(), ("inputs.max_extend_len", 9)),
        "width 9 (`budget`) used for 10 rows",
    ),
    case(
        "I1-nobody",
        row_extents.width_of(batch(), 4),
        "width 4 (no recorded setting) used for 10 rows: rows 1-5, 10-11 read shifted cells, "
        "rows 12-29 are never written",
    ),
    case(
        "I1-entry",
        row_extents.STATIC["one-entry"][0](batch()),
        "qo_indptr[2] is 19, should be 20",
        "differs: qo_indptr",
    ),
    case(
        "I1-missing-entry",
        row_extents.STATIC["entry-missing"][0](batch()),
        "qo_indptr[3] is absent, should be 30",
    ),
    case(
        "I1-length",
        row_extents.STATIC["input-ids-short"][0](batch()),
        "len(input_ids) is 29, should be 30",
        "differs: len(input_ids)",
    ),
    case(
        "I1-latent",
        row_extents.STATIC["num-draft-tokens-unused"][0](batch()),
        "`num_draft_tokens` is 4, budget + 1 is 10; every array is right so far",
        "Whatever derives its extents from `num_draft_tokens` next will be wrong.",
    ),
    case(
        "I2-zero-token",
        tree_size.CASES["one-token-is-zero"][0],
        "request r1: tree counted as 9 nodes, has 10; node 2 holds token id 0, which is a legal token",
        "Take the size from the builder's parents, never from token values.",
    ),
    case(
        "I2-counted",
        tree_size.CASES["counted-too-many"][0],
        "request r2: tree counted as 10 nodes, has 7",
    ),
    case(
        "I2-over-budget",
        tree_size.CASES["over-budget"][0],
        "request r0: 5 nodes in 4 rows (budget + 1): nodes past the last row are never verified",
    ),
    case(
        "I2-tokens",
        tree_size.CASES["tokens-of-two-nodes"][0],
        "request r1, row 13: input_ids holds token 33, node 3 of the tree is token 4",
    ),
    case(
        "I2-ragged",
        spoil(batch(ragged=True), ("inputs.qo_indptr.1", 7)),
        "request r0: 7 rows for 6 nodes",
    ),
    *(
        case(f"I3-{name}", kv_extents.CASES[name][0], message)
        for name, message in {
            "prefix-alone": "kv length of request r1 is 5 tokens, should be 15 tokens",
            "draft-counted-in-pages": "kv length of request r1 is 8 pages, should be 3 pages",
            "old-length": "seq_lens[1] is 4 tokens, should be 5 tokens",
            "one-slot": "kv_indices[4] is 77, should be 504, the slot of position 2 of request r1",
            "one-page": "kv_indices[2] is 77, should be 201, the page of position 2 of request r1",
            "slots-cut": "kv_indices[8] is absent, should be 508, the slot of position 1 of request r2",
            "first-entry": "kv_indptr[0] is 1, should be 0",
            "entry-missing": "number of entries of kv_indptr is 3, should be 4",
            "padded-extent": "kv length of padded request 4 is 2 tokens, should be 1 tokens",
            "last-page": "kv_last_page_len[1] is 2 tokens, should be 1 tokens",
        }.items()
    ),
    *(
        case(f"I5-{name}", packing.CASES[name][0], message)
        for name, message in {
            "most-significant-first": "request r1: bits are packed most significant first, should be least significant "
            "first; 76 cells are wrong as they are read",
            "one-stream": "request r2: its bits begin at bit 270 of the stream, should begin at byte 34; 30 cells are "
            "wrong as they are read",
            "wide-rows-of-the-last-request": "request r2: rows are 16 cells apart, should be 13; 44 cells are wrong as "
            "they are read",
        }.items()
    ),
    *(
        case(f"I6-{number}", step, message)
        for number, (step, message) in enumerate(
            (
                (capacity.STEP[1][1], "mask_indptr[2] should be 270, which int8 turns into 14"),
                (
                    capacity.STEP[2][1],
                    "mask_capacity is 3000 cells, should be at least 3300 = 30 rows * (100 tokens + 10 draft columns)",
                ),
                (
                    spoil(capacity.FULL, ("config.max_position", 8)),
                    "request r1, row 17: position 8, the rotary table ends at 7",
                ),
            )
        )
    ),
    *(
        case(f"I9-{number}", step, message)
        for number, (step, message) in enumerate(
            (
                (
                    live_rows.not_finite(live_rows.FULL, 11, 16),
                    "request r1, row 11 (node 1) has logits that are not finite (2 rows)",
                ),
                (
                    live_rows.zero_logits(21),
                    "request r2, row 21 (node 1) has two best logits of exactly zero",
                ),
            )
        )
    ),
    case(
        "I11-stale",
        padding.CASES["slots-of-a-live-request"][0],
        "padded row 30: out_cache_loc is 1020, should be 0",
        "The rows were not reset",
    ),
    *(
        case(f"I16-{name}", write_slots.CASES[name][0], message)
        for name, message in {
            "own-prefix": "request r1, row 13: writes to slot 504, which holds position 2 of request r1",
            "twice-in-the-batch": "request r2, row 23: writes to slot 1002, as row 2 does",
            "past-the-pool": "request r1, row 11: writes to slot 65536, the pool has slots 0 … 65535",
            "padding-slot": "request r1, row 11: writes to slot 0, which is the padding slot",
            "read-elsewhere": "request r1, row 11: writes to slot 3000, its key is read at slot 1011",
        }.items()
    ),
    case(
        "I17",
        recurrent_commit.CASES["by-length"][0],
        "request r1: recurrent state of node 3 was kept, should be node 7, the last accepted",
        "The index is accepted length - 1",
    ),
    case(
        "I18",
        drafter_context.CASES["first-n"][0],
        "request r1: hidden states of nodes [0, 1, 2, 3] go to the drafter, should be [0, 1, 4, 7]",
    ),
    *(
        case(f"I20-{name}", output.CASES[name][0], message)
        for name, message in {
            "past-stop": "request r1: emitted [2, 5, 7, 107], which goes on after its first stop token, should be "
            "[2, 5, 7]",
            "bonus-left-out": "request r1: emitted [2, 5, 7], should be [2, 5, 7, 107]",
            "minus-one": "request r1: emitted [2, -1, 7, 107], which holds a placeholder, should be [2, 5, 7, 107]",
        }.items()
    ),
    case(
        "I4-width",
        mask_extents.CASES["width-4"][0],
        "mask_indptr[1] is 24, should be 120: stride 6, should be 12",
        "Offsets equal those of 4 rows a request (`num_draft_tokens`) in every entry.",
    ),
    case(
        "I4-prefix",
        mask_extents.CASES["prefix-only"][0],
        "mask_indptr[1] is 20, should be 120",
        "Offsets equal those of rows that hold the prefix columns alone, without the tree's.",
    ),
    case(
        "I4-short",
        mask_extents.CASES["buffer-cut"][0],
        "custom_mask holds 360 cells, mask_indptr reaches 400: the kernel reads past its end",
    ),
    case(
        "I4-short-bits",
        mask_extents.cut(batch(encoding="bits"), 45),
        "custom_mask holds 45 bytes, mask_indptr reaches 51: the kernel reads past its end",
    ),
    case(
        "I4-end",
        mask_extents.CASES["end-past-the-buffer"][0],
        "mask_indptr[3] is 402, should be 400",
        "The kernel, or its argument check, goes past the end.",
    ),
    case(
        "I4-entry",
        mask_extents.CASES["start-of-the-third"][0],
        "mask_indptr[2] is 271, should be 270",
    ),
    case(
        "I7-orphan",
        tree_form.CASES["orphan"][0],
        "request r1: node 6 has parent 12, it never reaches the root",
        "A walk over its ancestors does not end, or leaves the request's rows.",
    ),
    case(
        "I7-root",
        tree_form.CASES["root-with-parent"][0],
        "request r1: node 0 has parent 0, the root has none (-1)",
    ),
    case(
        "I7-duplicate",
        tree_form.CASES["duplicate"][0],
        "request r1: node 2 repeats token 2 of an earlier child of node 0: the walk can never reach it",
    ),
    case(
        "I7-deep",
        tree_form.CASES["too-deep"][0],
        "request r1: node 4 has depth 3; a block of 3 drafts 2 positions",
    ),
    case(
        "I7-weights",
        tree_form.CASES["weights-rise-twice"][0],
        "request r1: node 3 has log-weight -0.15, node 2 before it -0.2: nodes are not in order of probability",
        "The budget was not spent on the most probable prefixes.",
    ),
    case(
        "I7-late-parent",
        tree_form.CASES["child-before-parent"][0],
        "request r1: node 1 comes before its parent 2",
        "In-place compaction and masks that copy the parent's row need parents first.",
    ),
    case(
        "I8-causal",
        mask_content.CASES["causal"][0],
        "request r1, row 12 (node 2) sees node 1, which is not its ancestor (27 cells in 8 rows)",
        "The mask equals a causal one (every row sees all rows before it) in all cells.",
    ),
    case(
        "I8-broadcast",
        mask_content.CASES["other-request"][0],
        "request r2, row 22 (node 2) does not see node 1 (8 cells in 5 rows)",
        "The tree columns equal those of another request of the batch in all cells.",
    ),
    case(
        "I8-window",
        mask_content.CASES["rows-in-window"][0],
        "request r1, row 12 (node 2) does not see node 0 (8 cells in 8 rows)",
        "The mask equals one whose sliding window counts rows, not positions, in all cells.",
    ),
    case(
        "I8-padding",
        mask_content.CASES["padding"][0],
        "request r2, row 21 (node 1) sees padding row 7 (2 cells in 2 rows)",
        "Every wrong cell is a real node that sees a padding row.",
    ),
    case(
        "I8-sibling",
        mask_content.CASES["sibling"][0],
        "request r1, row 12 (node 2) sees node 1, which is not its ancestor (2 cells in 2 rows)",
        "Every wrong cell is a node that sees another branch of its own tree.",
    ),
    case(
        "I8-prefix",
        mask_content.CASES["prefix-hidden"][0],
        "request r1, row 14 (node 4) does not see prefix position 3 (2 cells in 2 rows)",
        "Every wrong cell hides a committed token.",
    ),
    case(
        "I8-itself",
        mask_content.CASES["itself-hidden"][0],
        "request r0, row 5 (node 5) does not see node 5, which is its own",
        "No known pattern explains all differing cells.",
    ),
    case(
        "I8-far",
        mask_content.CASES["ancestor-beyond-the-window"][0],
        "request r1, row 17 (node 7) sees node 1, which lies outside its sliding window",
    ),
    case(
        "I10-flat",
        positions.CASES["rows-counted"][0],
        "request r1, row 12 (node 2): position 7, should be 6 = prefix 5 + depth 1",
        "Positions count rows: prefix length + row number in every row. Use the depth.",
    ),
    case(
        "I10-offset",
        positions.CASES["old-prefix"][0],
        "request r1, row 10 (node 0): position 3, should be 5 = prefix 5 + depth 0",
        "Every position of the request is off by the same number: the prefix length they were made from is wrong.",
    ),
    case(
        "I10-one",
        positions.CASES["one-row"][0],
        "request r2, row 24 (node 4): position 9, should be 4 = prefix 3 + depth 1",
    ),
    case(
        "I12-sibling",
        links.CASES["siblings-end-early"][0],
        "request r1: retrieve_next_sibling[1] is -1, should be 2; nodes [2, 3, 6, 9] cannot be reached",
        "The walk only follows links: a node that they leave out is never accepted; the text stays right.",
    ),
    case(
        "I12-child",
        links.CASES["no-child"][0],
        "request r1: retrieve_next_token[6] is -1, should be 9; nodes [9] cannot be reached",
    ),
    case(
        "I12-loop",
        links.CASES["sibling-loop"][0],
        "request r1: retrieve_next_sibling[3] is 1, should be -1",
    ),
    case(
        "I13-early",
        acceptance.CASES["stopped-early"][0],
        "request r1: accepted [0, 1, 4], should be [0, 1, 4, 7]; row 14 (node 4) predicts token 7",
        "A further node matched and was not taken: tokens are lost, the text stays right.",
    ),
    case(
        "I13-shifted",
        acceptance.CASES["judged-by-its-own-row"][0],
        "request r1: accepted [0, 2], should be [0, 1, 4, 7]; row 10 (node 0) predicts token 2",
        "Each node was judged by another row than its parent's, in all accepted nodes.",
    ),
    case(
        "I13-child",
        acceptance.CASES["other-branch"][0],
        "request r1: accepted [0, 2, 6], should be [0, 1, 4, 7]; row 10 (node 0) predicts token 2",
        "The walk took a child that its parent's row does not predict.",
    ),
    case(
        "I13-no-path",
        acceptance.CASES["root-left-out"][0],
        "request r1: accepted [1, 4, 7], should be [0, 1, 4, 7]",
        "The accepted rows are no path of the tree from its root.",
    ),
    case(
        "I13-length",
        spoil(batch(), ("outcome.accept_length.1", 3)),
        "request r1: accept_length is 3, accept_index holds 4 nodes (root included)",
        "Whatever reads as many entries as accept_length says reads too few or too many.",
    ),
    case(
        "I14-range",
        bonus.RANGE["row-of-the-next-request"][0],
        "request r1: accept_index[2] is 24, its rows are 10 … 19",
        "Row ids are flat: request start + node, padded with -1 at the end only.",
    ),
    case(
        "I14-bonus",
        bonus.WRONG["any-token"][0],
        "request r1: bonus is token 77, row 17 (node 7, the last accepted) predicts 107",
        "Not the prediction of the last accepted row.",
    ),
    case(
        "I14-accepted-token",
        bonus.WRONG["an-accepted-token"][0],
        "request r1: bonus is token 7, row 17 (node 7, the last accepted) predicts 107",
        "It is an accepted token of the same request: an earlier prediction was read.",
    ),
    case(
        "I14-adjacent",
        bonus.WRONG["rows-as-if-adjacent"][0],
        "request r2: bonus is token 112, row 26 (node 6, the last accepted) predicts 116",
        "target_predict read at row 22, as if accepted rows were adjacent, gives this token.",
    ),
    case(
        "I14-stride",
        bonus.WRONG["rows-at-the-block"][0],
        "request r1: bonus is token 102, row 17 (node 7, the last accepted) predicts 107",
        "target_predict read at stride 9 instead of 10 gives exactly this token.",
    ),
    case(
        "I14-compacted",
        bonus.compacted(("outcome.bonus_tokens.2", 107), ("config.num_draft_tokens", 10)),
        "request r2: bonus is token 107, row 26 (node 6, the last accepted) predicts 116",
        "Not the prediction of the last accepted row.",
    ),
    case(
        "I15-cropped",
        kv_commit.CASES["cropped"][0],
        "request r1, layer 0: position 7 holds the KV of node 2, should hold node 4",
        "The cache was cut to the new length: it holds nodes 0 … n-1, not the accepted ones.",
    ),
    case(
        "I15-twice",
        kv_commit.CASES["gathered-twice"][0],
        "request r1, layer 0: position 6 holds the KV of node 6, should hold node 2",
        "The accepted rows were gathered a second time, from rows that had already moved.",
    ),
    case(
        "I15-layer",
        kv_commit.CASES["one-layer-otherwise-wrong"][0],
        "request r2, layer 0: position 5 holds the KV of no node of this step, should hold node 6",
        "Other layers are right: this one's buffer was not moved.",
    ),
    case(
        "I15-short",
        kv_commit.CASES["one-short-in-all-layers"][0],
        "request r1, layer 0: position 8 holds the KV of nothing, should hold node 7",
        "The committed length is not prefix + accepted nodes.",
    ),
    case(
        "I15-other",
        kv_commit.CASES["layers-wrong-in-two-ways"][0],
        "request r1, layer 0: position 7 holds the KV of node 2, should hold node 4",
        "The positions hold other nodes than the accepted ones.",
    ),
    case(
        "I15-length",
        kv_commit.CASES["committed-length"][0],
        "request r1: 8 tokens committed, should be 9 = prefix 5 + 4 accepted",
    ),
    case(
        "I22-mismatch",
        reference.differs(16),
        "request r1, row 16 (node 6) predicts token 106, plain decoding 3",
    ),
    case(
        "I22-near-tie",
        reference.tie(*reference.TIES["equal"]),
        "request r1, row 16 (node 6) predicts token 106, plain decoding 3",
        "The two best tokens lie within rounding of each other: nobody's fault.",
    ),
]


@pytest.mark.parametrize(("step", "message", "hint"), CASES)
def test_first_finding(step: VerifyStep, message: str, hint: str) -> None:
    finding = findings(step)[0]
    assert finding.message == message
    assert finding.hint.startswith(hint)


def test_bonus_read_from_the_compacted_predictions() -> None:
    (finding,) = [f for f in findings(bonus.WRONG["compacted-by-the-block"][0]) if f.check == "I14"]
    assert (
        finding.hint == "predict_compacted read at stride 3 instead of 5 gives exactly this token."
    )


def test_previous_tree() -> None:
    before = batch(backend="flashinfer")
    after = mask_content.old_block(mask_content.second_step(backend="flashinfer"))
    (finding,) = findings(before, after)
    assert finding.message == (
        "request r1, row 10 (node 0) does not see prefix position 6 (21 cells in 10 rows)"
    )
    assert finding.hint == "The differing cells still hold the mask of the step before."


def test_cells_past_the_end_of_the_buffer() -> None:
    """Row 26 starts at cell 348; its ancestors' columns 7 and 9 lie at 355 and 357."""
    first, second = findings(mask_extents.cut(batch(), 355))
    assert first.message == (
        "custom_mask holds 355 cells, mask_indptr reaches 400: the kernel reads past its end"
    )
    assert second.message == (
        "request r2, row 26 (node 6) has no cell for node 4 in the buffer (2 cells in 1 rows)"
    )
    assert (second.expected, second.found, second.consequence_of) == (1, None, "I4")


def test_reference_names_what_reaches_its_rows() -> None:
    one = findings(reference.differs(12, step=reference.LEAK))[-1]
    two = findings(reference.differs(12, 16, step=reference.LEAK))[-1]
    later = findings(reference.CROPPED, reference.differs(13, step=mask_content.second_step()))[-1]
    assert one.hint == "I8 reaches this row."
    assert two.hint == "I8 reaches these rows."
    assert later.hint == "The request's cache holds wrong keys and values since step 0."


def test_skipped() -> None:
    from engine.checks.registry import check_trace

    step = spoil(batch(), ("outcome.accept_index", None), ("outcome.accept_length", ints(3, 4, 3)))
    skipped = {f.check: f.message for f in check_trace([step]).skipped}
    assert skipped["I14"] == "bonus lacked inputs: needs outcome.accept_index"
