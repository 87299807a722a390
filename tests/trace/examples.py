"""The example of the step format, and copies of it with one thing changed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from engine.step import VerifyStep
from engine.trace import step_from_json

EXAMPLE: dict[str, Any] = {
    "format": "ddtree.step",
    "version": 1,
    "step": 0,
    "rank": 0,
    "world_size": 1,
    "source": {
        "engine": "sglang",
        "engine_version": "0.5.12",
        "attention_backend": "triton",
        "model": "…",
        "deterministic": False,
        "graph": "eager",
        "raw_bs": 1,
        "captured_bs": 1,
    },
    "config": {
        "budget": 3,
        "block_size": 4,
        "topk": 2,
        "temperature": 0.0,
        "verify_rows": "static",
        "num_draft_tokens": 4,
        "vocab_size": 50,
        "eos_token_ids": [2],
        "mask_token_id": None,
        "max_position": 64,
        "page_size": 1,
        "pool_size": None,
        "padding_slot": 0,
        "mask_layout": "full",
        "mask_encoding": "bytes",
        "mask_capacity": None,
        "max_context": None,
        "index_dtype": "int64",
        "kv_indptr_counts_draft": False,
        "kv_indptr_unit": "token",
        "sliding_window": None,
    },
    "requests": [
        {
            "rid": "r0",
            "prefix_len": 2,
            "prefix_slots": [7, 8],
            "tree": {
                "parents": [-1, 0, 0, 2],
                "tokens": [5, 9, 12, 30],
                "log_weights": [0.0, -0.4, -1.2, -1.5],
            },
            "counted_nodes": None,
        }
    ],
    "inputs": {
        "input_ids": [5, 9, 12, 30],
        "positions": [2, 3, 3, 4],
        "seq_lens": [2],
        "qo_indptr": [0, 4],
        "kv_indptr": [0, 2],
        "kv_indices": [7, 8],
        "kv_last_page_len": None,
        "max_extend_len": 4,
        "mask_indptr": [0, 24],
        "byte_indptr": None,
        "custom_mask": [1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0, 1, 0, 1, 1, 1, 0, 1, 1],
        "out_cache_loc": [20, 21, 22, 23],
    },
    "links": {
        "retrieve_next_token": [[1, -1, 3, -1]],
        "retrieve_next_sibling": [[-1, 2, -1, -1]],
    },
    "outcome": {
        "target_predict": [12, 4, 30, 44],
        "top2": None,
        "finite_rows": None,
        "accept_index": [[0, 2, 3, -1]],
        "accept_length": [3],
        "bonus_tokens": [44],
        "predict_compacted": None,
        "emitted": [[12, 30, 44]],
    },
    "commit": {
        "seq_lens": [5],
        "kv": [{"layer": 0, "nodes": [[0, 2, 3]]}],
        "recurrent_index": None,
        "hidden_rows": [[0, 2, 3]],
    },
    "reference": {"target_predict": None, "top2": None},
    "logits_dtype": "bfloat16",
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The example with the value at ``a.b.0.c`` replaced."""
    return edited(lambda obj: _set(obj, path.split("."), value))


def edited(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """A copy of the example after a change in place."""
    obj = copy.deepcopy(EXAMPLE)
    change(obj)
    return obj


def _set(obj: Any, path: list[str], value: Any) -> None:
    for part in path[:-1]:
        obj = obj[int(part) if part.isdecimal() else part]
    obj[int(path[-1]) if path[-1].isdecimal() else path[-1]] = value


def line(obj: Any = None) -> str:
    """One JSON line, the example's by default."""
    return json.dumps(EXAMPLE if obj is None else obj)


def example_step(number: int = 0, rank: int = 0, **paths: Any) -> VerifyStep:
    """The example as a step; ``inputs__positions=[…]`` replaces a field.

    Each step has a request of its own: one example does not go on from another.
    """
    obj = edited(lambda o: o.update(step=number, rank=rank))
    obj["requests"][0]["rid"] = f"r{number}"
    for path, value in paths.items():
        _set(obj, path.split("__"), value)
    return step_from_json(obj)
