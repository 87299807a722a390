"""What DDTREE would serve wrongly, each with a sentence for whoever asked; SGLang's objects by attribute alone."""

from __future__ import annotations

from typing import Any

GRAMMARS = ("json_schema", "regex", "ebnf", "structural_tag")
PENALTIES = {  # neutral value
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
    "min_new_tokens": 0,
}
OUTPUTS = {
    "return_logprob": "log-probabilities",
    "return_hidden_states": "hidden states",
    "return_routed_experts": "routed experts",
}


def refuse_request(request: Any) -> str | None:
    """Why a request cannot be served, None if it can.

    A row deeper in the tree stands for another history than its request's: what depends on the tokens before (grammars,
    penalties, processors) would have to be kept for every node. What is returned a token is not collected along a path.
    """
    settings = request.sampling_params
    for name, what in OUTPUTS.items():
        if getattr(request, name, False):
            return f"DDTREE speculative decoding does not return {what} ({name})."
    for name in GRAMMARS:
        if getattr(settings, name, None) is not None:
            return f"DDTREE speculative decoding does not keep a grammar for every node ({name})."
    for name, neutral in PENALTIES.items():
        if getattr(settings, name, neutral) != neutral:
            return f"DDTREE speculative decoding does not count tokens for every node ({name})."
    if getattr(request, "custom_logit_processor", None):
        return "DDTREE speculative decoding does not run a custom logit processor for every node."
    return None


def refuse_target(runner: Any) -> str | None:
    """Why a target cannot be verified with a tree, None if it can; ``runner``: its ModelRunner."""
    backend = runner.attn_backend
    if type(backend).__name__ != "TritonAttnBackend":
        return (
            f"DDTREE needs the Triton attention backend for its mask, found {type(backend).__name__}; "
            "use --attention-backend triton (models with recurrent layers have another backend and cannot be verified)."
        )
    if hasattr(backend, "update_mamba_state_after_mtp_verify"):
        return "DDTREE cannot commit the recurrent state of a path through a tree."
    if (runner.sliding_window_size or 0) > 0:
        return (
            f"DDTREE cannot verify a target with a sliding window ({runner.sliding_window_size}): "
            "the kernel counts rows where the window counts positions."
        )
    if runner.model_config.is_encoder_decoder:
        return "DDTREE does not verify encoder-decoder models."
    if runner.model_is_mrope:
        return "DDTREE was not checked with multimodal rotary positions."
    if int(runner.server_args.page_size) != 1:
        return f"DDTREE remaps single KV slots; use --page-size 1, found {runner.server_args.page_size}."
    return None
