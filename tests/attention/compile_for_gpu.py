"""Compile the kernels of tree-verify attention for a GPU that need not be there; prints shared memory of each.

Run: TRITON_INTERPRET=0 python -m tests.attention.compile_for_gpu
"""

from __future__ import annotations

from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource

from engine.attention import tree_verify_kernel as kernels
from engine.attention.tree_verify_hopper_kernel import over_parts_hopper
from tests.attention.chained import reads_before_wait

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
    "scale": "fp32",
    "prefix_scale": "fp32",
    "tree_scale": "fp32",
    "v_scale": "fp32",
}
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
    "FOLLOWS": 0,
    "SPLITS_POW2": 16,
    "GROUPS": 1,
    "STAGES": 6,
}
MERGED = {"ROWS": 2}
EVERYTHING = {"CAP": 3.0, "XAI": 20, "WINDOW": 12, "SKIP_PREFIX": False, "HAS_SINKS": True}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "everything": ("bf16", EVERYTHING),
    "no mask": ("bf16", {"HAS_MASK": False, "CAUSAL": False}),
    "in a chain": ("bf16", {"FOLLOWS": 1}),
    "deep in a chain": ("bf16", {"FOLLOWS": 2, "CHAINED": 2}),
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
    if not kernel.is_gluon():
        source = ASTSource(kernel, signature, constexprs=places)
        return triton.compile(source, target=HOPPER, options={"num_warps": 4, "num_stages": 2})
    # Asynchronous copies need to know what a launch finds out: where rows begin on multiples of 16 bytes.
    lie = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(kernel.arg_names)
        if name in SIXTEEN or name.endswith("stride")
    }
    source = GluonASTSource(kernel, signature, constexprs=places, attrs=lie)
    return triton.compile(source, target=HOPPER, options={"num_warps": 4})


if __name__ == "__main__":
    for name, (dtype, changes) in CASES.items():
        for kernel, more in ((kernels.over_parts, {}), (kernels.merge, MERGED)):
            compiled = compile_case(kernel, dtype, changes | more)
            print(f"{name}: {kernel.__name__}, {compiled.metadata.shared} bytes of shared memory")
            if changes.get("FOLLOWS"):
                reads_before_wait(compiled.asm["ptx"])
    for groups, dim, dtype in ((1, 128, "bf16"), (2, 128, "bf16"), (2, 64, "fp16")):
        sizes = {"GROUPS": groups, "DIM": dim, "STAGES": 7 - groups, "HAS_MASK": groups == 1}
        sizes |= {"FOLLOWS": groups if dim == 128 else 0}
        compiled = compile_case(over_parts_hopper, dtype, sizes)
        print(f"{groups} warpgroups: {compiled.metadata.shared} bytes of shared memory")
