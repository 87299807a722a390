"""Requests and targets that are refused, and the sentences they get."""

from types import SimpleNamespace
from typing import Any

import pytest

from engine.sglang.ddtree.refusals import refuse_request, refuse_target


def request(**settings: Any) -> SimpleNamespace:
    return SimpleNamespace(sampling_params=SimpleNamespace(**settings))


def test_a_plain_request_is_served() -> None:
    served = {
        "temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.1, "logit_bias": {"3": 1.0},
        "frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0,
        "min_new_tokens": 0, "json_schema": None, "stop_strs": ["x"], "n": 2,
    }  # fmt: skip
    assert refuse_request(request(**served)) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("json_schema", "{}"), ("regex", "a+"), ("ebnf", "root ::= x"), ("structural_tag", "{}"),
        ("frequency_penalty", 0.1), ("presence_penalty", -0.1), ("repetition_penalty", 1.1),
        ("min_new_tokens", 4),
    ],
)  # fmt: skip
def test_refused_settings(name: str, value: Any) -> None:
    assert f"({name})" in (refuse_request(request(**{name: value})) or "")


@pytest.mark.parametrize(
    "name", ["return_logprob", "return_hidden_states", "return_routed_experts"]
)
def test_refused_outputs(name: str) -> None:
    asked = request()
    setattr(asked, name, True)
    assert f"({name})" in (refuse_request(asked) or "")


def test_a_custom_processor_is_refused() -> None:
    asked = request()
    asked.custom_logit_processor = "code"
    assert "custom logit processor" in (refuse_request(asked) or "")


class TritonAttnBackend:
    """By name alone."""


class HybridLinearAttnBackend:
    """A model with recurrent layers."""


def runner(**given: Any) -> SimpleNamespace:
    values = {
        "attn_backend": TritonAttnBackend(),
        "sliding_window_size": None,
        "model_config": SimpleNamespace(is_encoder_decoder=False),
        "model_is_mrope": False,
        "server_args": SimpleNamespace(page_size=1),
    }
    return SimpleNamespace(**{**values, **given})


def test_a_plain_target_is_verified() -> None:
    assert refuse_target(runner()) is None
    assert refuse_target(runner(sliding_window_size=-1)) is None


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"attn_backend": HybridLinearAttnBackend()}, "HybridLinearAttnBackend"),
        ({"sliding_window_size": 4096}, "sliding window \\(4096\\)"),
        ({"model_config": SimpleNamespace(is_encoder_decoder=True)}, "encoder-decoder"),
        ({"model_is_mrope": True}, "rotary"),
        ({"server_args": SimpleNamespace(page_size=16)}, "--page-size 1, found 16"),
    ],
)
def test_refused_targets(given: dict[str, Any], word: str) -> None:
    import re

    assert re.search(word, refuse_target(runner(**given)) or "")


def test_a_triton_backend_that_commits_recurrent_state_is_refused() -> None:
    backend = TritonAttnBackend()
    backend.update_mamba_state_after_mtp_verify = None  # type: ignore[attr-defined]
    assert "recurrent" in (refuse_target(runner(attn_backend=backend)) or "")
