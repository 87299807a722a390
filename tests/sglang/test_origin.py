"""What a recording says about the server: its place among ranks, its settings, and no secret."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from engine.sglang.origin import LEFT_OUT, origin_of, server_arguments, watched
from tests.sglang import server_double


def test_secrets_and_free_text_are_left_out() -> None:
    arguments = SimpleNamespace(
        api_key="sk-1",
        admin_api_key=None,
        model_path="/models/k2",
        tokenizer_path="https://me:pw@host/x",
        speculative_algorithm="EAGLE",
        speculative_num_draft_tokens=17,
        attention_backend="triton",
        kv_cache_dtype="auto",
        json_model_override_args='{"token": "t"}',
        ssl_keyfile_password="pw",
        hf_token_count=3,
        host="10.0.0.1",
        tp_size=8,
        disable_cuda_graph=False,
        lora_paths=["a=b"],
    )
    assert server_arguments(arguments) == {
        "admin_api_key": None,
        "api_key": LEFT_OUT,
        "attention_backend": "triton",
        "disable_cuda_graph": False,
        "hf_token_count": LEFT_OUT,
        "host": LEFT_OUT,
        "json_model_override_args": LEFT_OUT,
        "kv_cache_dtype": "auto",
        "model_path": "/models/k2",
        "speculative_algorithm": "EAGLE",
        "speculative_num_draft_tokens": 17,
        "ssl_keyfile_password": LEFT_OUT,
        "tokenizer_path": LEFT_OUT,
        "tp_size": 8,
    }


@pytest.mark.parametrize("in_state", [False, True])
def test_places_of_ranks(in_state: bool) -> None:
    places = {"tp_rank": 3, "tp_size": 8, "dp_rank": 1, "pp_rank": 0}
    arguments = SimpleNamespace(model_path="m", tp_size=8, dp_size=2, pp_size=1)
    own = {"ps": SimpleNamespace(**places)} if in_state else places
    origin, sizes = origin_of(SimpleNamespace(server_args=arguments, **own))
    assert (origin.rank, origin.world_size, origin.group) == (3, 8, "dp1")
    assert (sizes["dp_size"], sizes["pp_size"]) == (2, 1)


def test_ranks_that_attend_to_batches_of_their_own_are_not_compared() -> None:
    arguments = SimpleNamespace(tp_size=4, dp_size=4, pp_size=1, enable_dp_attention=True)
    places = {"tp_rank": 2, "attn_tp_rank": 0, "attn_tp_size": 1, "attn_dp_rank": 2}
    origin, _ = origin_of(SimpleNamespace(server_args=arguments, **places))
    assert (origin.rank, origin.world_size, origin.group) == (0, 1, "dp2")


def test_a_watched_function_is_told_by_file_lines_and_hash() -> None:
    found = watched("x", server_double.commit)
    assert found.file.endswith("server_double.py")
    assert found.last_line > found.first_line > 1
    assert found.sha256 != watched("x", server_double.verify_tree_greedy_func).sha256
