"""I22: the target's choices against plain decoding's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.step import UNKNOWN_TOKEN, VerifyStep
from tests.checks.build import batch, causes, clean, findings, short, spoil
from tests.checks.test_mask_content import cells, second_step
from tests.factories import ints

EXPECT = "reference.target_predict"


def differs(*rows: int, step: VerifyStep | None = None) -> VerifyStep:
    """Plain decoding chooses token 3 in these rows."""
    return spoil(batch() if step is None else step, *[(f"{EXPECT}.{row}", 3) for row in rows])


def top2(row: int, *pairs: tuple[int, float]) -> np.ndarray:
    table = np.full((30, 2, 2), np.nan)
    table[row] = pairs
    return table


def tie(mine: Any, theirs: Any, dtype: str | None = "float32") -> VerifyStep:
    """Row 16: verification chooses 106, plain decoding 3."""
    return spoil(
        differs(16),
        ("outcome.top2", top2(16, *mine)),
        ("reference.top2", top2(16, *theirs)),
        ("logits_dtype", dtype),
    )


def test_mismatch() -> None:
    (finding,) = findings(differs(16, 18))
    assert short(finding) == (
        *("I22", "unexplained-mismatch", "output", "fault", "r1"),
        *(6, 16, None, None, 3, 106, 2),
    )


def test_two_requests() -> None:
    assert [f.request for f in causes(differs(3, 24))] == ["r0", "r2"]


def test_padding_rows_and_unknown_choices_say_nothing() -> None:
    assert findings(differs(8, 28)) == []
    assert findings(spoil(batch(), (f"{EXPECT}.16", UNKNOWN_TOKEN))) == []


def test_samples_differ_by_design() -> None:
    assert findings(spoil(differs(16), ("config.temperature", 0.8))) == []


ULP = 2.0**-23  # of float32 at 1.0; bfloat16 2**-7
TIES = {
    "equal": ([(106, 1.0), (3, 1.0)], [(3, 1.0), (106, 1.0)], "float32"),
    "four-ulp": ([(106, 1 + 4 * ULP), (3, 1.0)], [(3, 1.0), (106, 1.0)], "float32"),
    "bfloat16": ([(106, 1.0), (3, 0.98)], [(3, 1.0), (106, 0.97)], "bfloat16"),
    "larger-logit-decides": ([(106, 8.0), (3, 7.999998)], [(3, 8.0), (106, 8.0)], "float32"),
    "both-zero": ([(106, 0.0), (3, 0.0)], [(3, 0.0), (106, 0.0)], "float32"),
}
FAULTS = {
    "five-ulp": ([(106, 1 + 5 * ULP), (3, 1.0)], [(3, 1.0), (106, 1.0)], "float32"),
    "five-ulp-of-plain-decoding": ([(106, 1), (3, 1)], [(3, 1 + 5 * ULP), (106, 1)], "float32"),
    "other-second-token": ([(106, 1.0), (4, 1.0)], [(3, 1.0), (106, 1.0)], "float32"),
    "choice-not-among-them": ([(8, 1.0), (3, 1.0)], [(3, 1.0), (8, 1.0)], "float32"),
    "unknown-dtype": ([(106, 1.0), (3, 1.0)], [(3, 1.0), (106, 1.0)], None),
    "infinite": ([(106, np.inf), (3, np.inf)], [(3, np.inf), (106, np.inf)], "float32"),
}


@pytest.mark.parametrize(("mine", "theirs", "dtype"), TIES.values(), ids=TIES)
def test_near_tie(mine: Any, theirs: Any, dtype: str) -> None:
    (finding,) = findings(tie(mine, theirs, dtype))
    assert short(finding) == (
        *("I22", "near-tie", "none", "near-tie", "r1"),
        *(6, 16, None, None, 3, 106, 1),
    )


@pytest.mark.parametrize(("mine", "theirs", "dtype"), FAULTS.values(), ids=FAULTS)
def test_no_tie(mine: Any, theirs: Any, dtype: str) -> None:
    (finding,) = findings(tie(mine, theirs, dtype))
    assert (finding.verdict, finding.diagnosis) == ("fault", "unexplained-mismatch")


def test_without_top2_a_difference_is_a_fault() -> None:
    step = spoil(tie(*TIES["equal"]), ("reference.top2", None))
    assert findings(step)[0].verdict == "fault"


def test_a_mismatch_beside_a_tie_is_counted_alone() -> None:
    (finding,) = findings(spoil(tie(*TIES["equal"]), (f"{EXPECT}.18", 3)))
    assert (finding.verdict, finding.where.row, finding.count) == ("fault", 18, 1)


LEAK = cells(
    batch(), 1, (2, 6, 1)
)  # node 2 sees node 1: rows 12, 16 (node 6) and 19 (node 9) are wrong


@pytest.mark.parametrize(
    ("rows", "cause"),
    [((12,), "I8"), ((16,), "I8"), ((12, 19), "I8"), ((13,), None), ((12, 13), None)],
)
def test_a_wrong_mask_row_explains_itself_and_what_sees_it(
    rows: tuple[int, ...], cause: str | None
) -> None:
    assert findings(differs(*rows, step=LEAK))[-1].consequence_of == cause


def test_another_request_is_not_explained() -> None:
    assert findings(differs(24, step=LEAK))[-1].consequence_of is None


def test_two_faults_explain_their_rows_together() -> None:
    step = spoil(LEAK, ("inputs.positions.13", 50))
    assert findings(differs(12, 13, step=step))[-1].consequence_of == "I8"


def test_wrong_tokens_positions_and_rows_explain() -> None:
    assert findings(differs(14, step=spoil(batch(), ("inputs.input_ids.14", 40))))[
        -1
    ].consequence_of == ("I2")
    assert findings(differs(14, step=spoil(batch(), ("inputs.positions.14", 40))))[
        -1
    ].consequence_of == ("I10")
    short_rows = spoil(batch(), ("inputs.qo_indptr.3", 25))
    assert findings(differs(26, step=short_rows))[-1].consequence_of == "I1"


CROPPED = spoil(
    batch(),
    ("commit.kv.0.nodes.1", ints(0, 1, 2, 3)),
    ("commit.kv.1.nodes.1", ints(0, 1, 2, 3)),
)


def test_a_damaged_cache_explains_later_steps_of_that_request() -> None:
    after = differs(3, 13, step=second_step())
    found = {f.request: f.consequence_of for f in findings(CROPPED, after) if f.check == "I22"}
    assert found == {"r0": None, "r1": "I15"}


def test_damage_lasts_and_stays_with_its_rank() -> None:
    later = spoil(differs(13, step=second_step()), ("step", 7))
    assert findings(CROPPED, later)[-1].consequence_of == "I15"
    assert findings(CROPPED, spoil(later, ("rank", 1)))[-1].consequence_of is None


def test_a_wrong_row_damages_only_if_it_was_accepted() -> None:
    after = differs(13, step=second_step())
    assert findings(LEAK, after)[-1].consequence_of is None  # accepted rows: 10, 11, 14, 17
    kept = cells(batch(), 1, (4, 7, 1))
    assert findings(kept, after)[-1].consequence_of == "I8"


def test_a_latent_cell_damages_nothing() -> None:
    hidden = cells(batch(), 1, (4, 3, 0))
    assert findings(hidden, differs(13, step=second_step()))[-1].consequence_of is None


def test_a_tree_that_is_none_explains() -> None:
    step = spoil(differs(12), ("requests.1.tree.parents.6", 12))
    assert findings(step)[-1].consequence_of == "I7"


def test_short_arrays_are_compared_as_far_as_they_go() -> None:
    step = clean([second_step().requests[0].tree.tree], [4], [[0]], budget=5)
    assert findings(spoil(step, (EXPECT, ints(90, 91)))) == []
