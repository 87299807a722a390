"""The sizes of a DDTREE server, and what they refuse."""

import pytest

from engine.sglang.ddtree.faults import Fault
from engine.sglang.ddtree.options import Options, options_of
from tests.sglang.ddtree.scheduled import Args


def test_the_target_verifies_the_budget_and_the_root_and_the_drafter_keeps_its_block() -> None:
    options = Options(budget=16, block_size=8)
    assert (options.target_width, options.draft_width, options.attention_width) == (17, 8, 17)
    assert (options.max_depth, options.steps, options.candidates) == (7, 8, 16)


def test_a_budget_smaller_than_the_block_shortens_the_longest_path() -> None:
    assert Options(budget=4, block_size=8).steps == 5


def test_the_fault_leaves_the_attention_backend_at_the_block_size() -> None:
    options = Options(16, 8, fault=Fault.VERIFY_WIDTH)
    assert (options.target_width, options.attention_width) == (17, 8)


def test_topk_bounds_the_candidates() -> None:
    assert Options(64, 16, topk=4).candidates == 4
    assert Options(3, 4, topk=9).candidates == 3


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"budget": 0, "block_size": 8}, "budget of 1 or more"),
        ({"budget": 16, "block_size": 1}, "block of 2 or more"),
        ({"budget": 16, "block_size": 8, "topk": 0}, "DDTREE_TOPK: expected 1 … 256, found 0"),
        ({"budget": 16, "block_size": 8, "topk": 300}, "found 300"),
        ({"budget": 7, "block_size": 16}, "use a budget of at least 11"),
        ({"budget": 256, "block_size": 60}, "at most 21 draft positions with 256 ranks"),
        ({"budget": 5, "block_size": 8, "fault": Fault.VERIFY_WIDTH}, "past its output"),
    ],
)
def test_refused_sizes(values: dict[str, int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Options(**values)  # type: ignore[arg-type]


def test_the_environment_is_read() -> None:
    args = Args(speculative_num_draft_tokens=33, speculative_dflash_block_size=16)
    asked = {"DDTREE_TOPK": "4", "DDTREE_SPINE": "1", "DDTREE_FAULT": "crop-commit"}
    assert options_of(args, asked) == Options(32, 16, 4, True, Fault.CROP_COMMIT)
    assert options_of(args, {"DDTREE_TOPK": " ", "DDTREE_FAULT": ""}) == Options(32, 16)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"DDTREE_TOPK": "four"}, "DDTREE_TOPK: expected a whole number, found 'four'"),
        ({"DDTREE_SPINE": "maybe"}, "DDTREE_SPINE: expected 0 or 1, found 'maybe'"),
        ({"DDTREE_FAULT": "width"}, "DDTREE_FAULT: expected one of verify-width, .* found 'width'"),
    ],
)
def test_refused_environment(asked: dict[str, str], sentence: str) -> None:
    args = Args(speculative_num_draft_tokens=33, speculative_dflash_block_size=16)
    with pytest.raises(ValueError, match=sentence):
        options_of(args, asked)
