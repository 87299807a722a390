"""Compile the kernels of steps on the device for a GPU that need not be there; prints what each takes.

Run: TRITON_INTERPRET=0 python -m tests.graphs.compile_for_gpu
"""

from __future__ import annotations

from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from engine.decoding import device_tree_kernel as tree
from engine.graphs import (
    candidates_kernel,
    choices_kernel,
    heads_kernel,
    layout_kernel,
    linear_kernel,
    rows_kernel,
    walk_kernel,
)
from tests.attention.chained import reads_before_wait

HOPPER = GPUTarget("cuda", 90, 32)
SIXTEEN = (
    *("logits", "hidden", "weight", "out", "gate_up", "fused", "table", "q_norm", "k_norm"),
    *("k_pool", "v_pool", "x", "bias", "residual", "gain", "gained"),
)
INTEGERS = (
    *(
        "maxima",
        "scratch",
        "tokens",
        "keys",
        "positions",
        "slots",
        "seq_lens",
        "request_rows",
        "mask_indptr",
    ),
    *(
        "kv_indices",
        "depths",
        "raw_bs",
        "input_ids",
        "out_cache_loc",
        "parents",
        "counts",
        "predict",
        "path",
    ),
    *(
        "accept_length",
        "bonus",
        "emitted",
        "commit_rows",
        "commit_slots",
        "commit_positions",
        "words",
    ),
    *("candidates", "roots", "ranks", "next_token", "next_sibling"),
)
TYPES = (
    dict.fromkeys(SIXTEEN, "*bf16")
    | dict.fromkeys(INTEGERS, "*i64")
    | {"before": "*fp32", "squares": "*fp32"}
    | {"tops": "*fp32", "sums": "*fp64", "log_probs": "*fp64", "weights": "*fp64", "visible": "*i8"}
    | {"custom_mask": "*u8", "req_to_token": "*i32", "kv_indptr": "*i32", "eps": "fp32"}
)
HEADS = {"KV_HEADS": 3, "DIM": 64, "STORES": True, "CHAINED": 0}
FEW = {"WIDTH": 576, "COLUMNS": 16, "STEP": 64, "PRECISION": "ieee", "LINES": 16, "CHAINED": 0}
UNSCALED = {"BEFORE": 36, "BLOCKS": 64, "EPS": 1e-5}
NOT_UNSCALED = {"before": None, "BEFORE": 0, "BLOCKS": 1, "EPS": 0.0}
WITHOUT = {"gain": None, "gained": None, "squares": None, "HANDS_ON": False}
PLAIN = WITHOUT | NOT_UNSCALED
TAKES = WITHOUT | UNSCALED
HANDS_ON = NOT_UNSCALED | {"HANDS_ON": True}
NO_MORE = {"HAS_BIAS": False, "bias": None, "residual": None}
JOINED = (
    HEADS
    | UNSCALED
    | {name: FEW[name] for name in ("WIDTH", "STEP", "PRECISION", "LINES")}
    | {"HEADS": 9, "PAIRS": 8}
)
# Kernel, its constants, arguments that are None, types that differ.
CASES: tuple[tuple[Any, dict[str, Any], dict[str, str]], ...] = (
    (candidates_kernel.group_maxima, {"CHUNK_GROUPS": 64, "GROUP": 64}, {}),
    (
        candidates_kernel.best_of_groups,
        {"GROUPS": 4096, "CHUNKS": 64, "GROUP": 64, "BEST": 64, "TOKEN_BITS": 18},
        {},
    ),
    (choices_kernel.chunk_maxima, {"CHUNK": 4096}, {}),
    (choices_kernel.best_chunks, {"CHUNKS": 16}, {"out": "*i64"}),
    (layout_kernel.lay_out_prefixes, {"Q_LEN": 65, "REQUESTS": 8, "BLOCK": 1024}, {}),
    (layout_kernel.lay_out_rows, {"Q_LEN": 65, "BLOCK": 1024}, {}),
    (
        linear_kernel.few_rows,
        FEW
        | {
            "ROWS": 16,
            "HAS_BIAS": False,
            "GATED": True,
            "ADDS": False,
            "bias": None,
            "residual": None,
        }
        | TAKES,
        {},
    ),
    (
        linear_kernel.few_rows,
        FEW | PLAIN | {"ROWS": 64, "HAS_BIAS": True, "GATED": False, "ADDS": True},
        {},
    ),
    (
        linear_kernel.few_rows,
        FEW
        | HANDS_ON
        | {"ROWS": 16, "HAS_BIAS": False, "GATED": False, "ADDS": True, "bias": None},
        {},
    ),
    (heads_kernel.few_rows_heads, JOINED | {"HAS_BIAS": True, "ROWS": 64}, {}),
    (
        heads_kernel.few_rows_heads,
        JOINED | NOT_UNSCALED | {"HAS_BIAS": False, "bias": None, "ROWS": 16},
        {},
    ),
    (
        heads_kernel.few_rows_heads,
        JOINED | {"HAS_BIAS": False, "bias": None, "ROWS": 16, "CHAINED": 1},
        {},
    ),
    *(
        (
            linear_kernel.few_rows,
            FEW | TAKES | NO_MORE | {"GATED": True, "ADDS": False, "ROWS": rows, "CHAINED": depth},
            {},
        )
        for rows, depth in ((16, 1), (64, 2))
    ),
    (rows_kernel.place_heads, HEADS | {"HEADS": 9, "HAS_NORM": True, "CHAINED": 2}, {}),
    (rows_kernel.norm_rows, {"BLOCK": 1024}, {}),
    (rows_kernel.gate_rows, {"BLOCK": 512}, {}),
    (rows_kernel.place_heads, HEADS | {"HEADS": 9, "HAS_NORM": True}, {}),
    (
        rows_kernel.place_heads,
        HEADS | {"HEADS": 0, "HAS_NORM": False, "q_norm": None, "k_norm": None},
        {},
    ),
    (tree.search_trees, {"ENTRIES": 64, "BITS": 7, "WORDS": 2}, {}),
    (tree.link_trees, {"ROWS": 16, "COLUMNS": 64}, {}),
    (walk_kernel.walk_trees, {"NODES": 128, "COLUMNS": 32, "STEPS": 16}, {}),
    (walk_kernel.compact_pools, {"STEPS": 16, "BLOCK": 256}, {}),
)


def compile_case(kernel: Any, constants: dict[str, Any], types: dict[str, str]) -> Any:
    """The compiled kernel; pointers are aligned as torch's are."""
    kinds, signature, places, aligned = TYPES | types, {}, {}, {}
    for number, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name], places[(number,)] = "constexpr", constants[name]
            continue
        signature[name] = kinds.get(name, "i32")
        if signature[name].startswith("*"):
            aligned[(number,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constexprs=places, attrs=aligned)
    return triton.compile(source, target=HOPPER, options={"num_warps": 4})


if __name__ == "__main__":
    for kernel, constants, types in CASES:
        compiled = compile_case(kernel, constants, types)
        print(f"{kernel.__name__}: {compiled.metadata.shared} bytes of shared memory")
        if constants.get("CHAINED"):
            early = reads_before_wait(compiled.asm["ptx"])
            print(f"{kernel.__name__}: {early} reads before it waits")
