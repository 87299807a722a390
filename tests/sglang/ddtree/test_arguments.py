"""What becomes of a server's arguments."""

from copy import deepcopy
from typing import Any

import pytest

from engine.sglang.ddtree.arguments import settle
from tests.sglang.ddtree.scheduled import Args


def settled(environ: dict[str, str] | None = None, own: int | None = 8, **given: Any) -> Args:
    args = Args(**given)
    settle(args, environ or {}, "0.5.12", lambda _: own)
    return args


def test_without_a_word_the_budget_is_sixteen_and_the_block_the_drafters_own() -> None:
    args = settled()
    assert args.speculative_num_draft_tokens == 17
    assert args.speculative_dflash_block_size == 8


def test_what_sglang_sets_for_dflash_by_name_is_set() -> None:
    args = settled()
    assert args.disable_overlap_schedule
    assert not args.enable_mixed_chunk
    assert args.speculative_eagle_topk == 1
    assert args.max_running_requests == 48


def test_free_slots_are_asked_for_the_drafters_block_too() -> None:
    args = settled({"DDTREE_BUDGET": "4"})
    steps, topk, rows = (
        args.speculative_num_steps,
        args.speculative_eagle_topk,
        args.speculative_num_draft_tokens,
    )
    assert steps is not None
    assert topk is not None
    assert rows is not None
    assert max(steps * topk, rows) == 8


@pytest.mark.parametrize("given", [{"speculative_num_draft_tokens": 33}, {}])
def test_the_budget_by_flag_or_environment(given: dict[str, int]) -> None:
    environ = {} if given else {"DDTREE_BUDGET": "32"}
    assert settled(environ, **given).speculative_num_draft_tokens == 33


def test_settling_twice_changes_nothing() -> None:
    environ = {"DDTREE_BUDGET": "32", "DDTREE_TOPK": "4"}
    once = settled(environ)
    again = deepcopy(once)
    settle(again, environ, "0.5.12", lambda _: 16)
    assert vars(again) == vars(once)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"speculative_draft_model_path": None}, "--speculative-draft-model-path"),
        ({"pp_size": 2}, "expected pp_size = 1, found 2"),
        ({"page_size": 16}, "single KV slots are remapped"),
        ({"enable_dp_attention": True}, "enable_dp_attention = False"),
        ({"disaggregation_mode": "decode"}, "disaggregation_mode"),
        ({"enable_two_batch_overlap": True}, "enable_two_batch_overlap"),
        ({"enable_deterministic_inference": True}, "seeds"),
        ({"enable_hierarchical_cache": True}, "enable_hierarchical_cache"),
        ({"speculative_accept_threshold_single": 0.9}, "target's distribution"),
        ({"speculative_eagle_topk": 4}, "set DDTREE_TOPK"),
        ({"enable_lora": True}, "adapters"),
        ({"attention_backend": "fa3"}, "expected --attention-backend triton, found fa3"),
        ({"decode_attention_backend": "flashinfer"}, "found flashinfer, triton"),
        ({"speculative_draft_window_size": 4}, "block size"),
    ],
)
def test_refused_arguments(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        settled(**given)


def test_a_flag_and_a_variable_that_differ_are_refused() -> None:
    with pytest.raises(
        ValueError, match="DDTREE_BUDGET=32 needs --speculative-num-draft-tokens 33"
    ):
        settled({"DDTREE_BUDGET": "32"}, speculative_num_draft_tokens=17)


def test_a_drafter_without_a_block_size_is_refused() -> None:
    with pytest.raises(ValueError, match="names no block size"):
        settled(own=None)


def test_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match=r"checked against SGLang 0\.5\.12 alone, found 0\.5\.17"):
        settle(Args(), {}, "0.5.17", lambda _: 8)
