"""Compile the kernels of verify steps for a GPU that need not be there; prints registers and shared memory of each.

Run: TRITON_INTERPRET=0 python -m tests.attention.compile_for_gpu
"""

from __future__ import annotations

from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from engine.attention import tree_verify_kernel as kernels
from engine.decoding.device_tree_kernel import link_trees, search_trees

HOPPER = GPUTarget("cuda", 90, 32)
SIXTEEN = {"q_extend", "k_extend", "v_extend", "out", "k_buffer", "v_buffer", "sinks"}
TYPES = {
    "qo_indptr": "*i64",
    "kv_indptr": "*i32",
    "kv_indices": "*i64",
    "cells": "*u8",
    "mask_indptr": "*i64",
    "window_kv_offsets": "*i32",
    "sums": "*fp32",
    "states": "*fp32",
    "prefix_scale": "fp32",
    "tree_scale": "fp32",
    "v_scale": "fp32",
    "log_probs": "*fp64",
    "weights": "*fp64",
    "visible": "*i8",
} | dict.fromkeys(
    [
        "candidates",
        "roots",
        "parents",
        "tokens",
        "depths",
        "ranks",
        "next_token",
        "next_sibling",
        "counts",
    ],
    "*i64",
)
PLAIN: dict[str, Any] = {
    "KV_HEADS": 3,
    "GROUP": 3,
    "DIM": 64,
    "ROWS": 64,
    "TILES": 1,
    "KEYS": 64,
    "TREE_KEYS": 32,
    "QUERY_TILE": 128,
    "CAP": 0.0,
    "XAI": -1,
    "WINDOW": -1,
    "HAS_MASK": True,
    "SKIP_PREFIX": True,
    "CAUSAL": True,
    "HAS_SINKS": False,
    "PRECISION": "ieee",
    "CHAINED": True,
    "SPLITS_POW2": 16,
    "NODES": 128,
    "BITS": 7,
}
EVERYTHING = {"CAP": 3.0, "XAI": 20, "WINDOW": 12, "SKIP_PREFIX": False, "HAS_SINKS": True}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "everything": ("bf16", EVERYTHING),
    "no mask": ("bf16", {"HAS_MASK": False, "CAUSAL": False}),
    "float32": ("fp32", EVERYTHING | {"ROWS": 16, "KEYS": 32}),
}


def compile_case(kernel: Any, dtype: str, changes: dict[str, Any]) -> Any:
    """The compiled kernel."""
    known = {name: value for name, value in (PLAIN | changes).items() if name in kernel.arg_names}
    if not known.get("HAS_SINKS", True):
        known["sinks"] = None
    kinds = dict.fromkeys(SIXTEEN, f"*{dtype}") | TYPES
    signature = {
        name: "constexpr" if name in known else kinds.get(name, "i32") for name in kernel.arg_names
    }
    places = {(kernel.arg_names.index(name),): value for name, value in known.items()}
    source = ASTSource(kernel, signature, constexprs=places)
    return triton.compile(source, target=HOPPER, options={"num_warps": 4, "num_stages": 2})


if __name__ == "__main__":
    for name, (dtype, changes) in CASES.items():
        for kernel in (kernels.over_parts, kernels.merge):
            compiled = compile_case(kernel, dtype, changes)
            print(f"{name}: {kernel.__name__}, {compiled.metadata.shared} bytes of shared memory")
    compiled = compile_case(grow_trees, "bf16", {})
    print(f"grow_trees, {compiled.metadata.shared} bytes of shared memory")
