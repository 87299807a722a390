"""Compile the tap's kernels for a GPU that need not be there; prints the parameters that the driver must be given.

Run: TRITON_INTERPRET=0 python -m tests.sglang.compile_for_gpu
"""

from __future__ import annotations

import re

import triton

from engine.sglang.snapshot import CHUNK, ENTRIES
from engine.sglang.snapshot_kernel import gather_arrays
from engine.sglang.top2 import BLOCK
from engine.sglang.top2_kernel import top2_rows
from tests.graphs.compile_for_gpu import compile_case

CASES = (
    (gather_arrays, {"ENTRIES": ENTRIES, "CHUNK": CHUNK}, {"block": "*u8"}),
    (top2_rows, {"BLOCK": BLOCK}, {"logits": "*bf16", "found": "*i32"}),
    (top2_rows, {"BLOCK": BLOCK}, {"logits": "*fp32", "found": "*i32"}),
)

if __name__ == "__main__":
    for kernel, constants, types in CASES:
        compiled = compile_case(triton.jit(kernel), constants, types)
        entry = compiled.asm["ptx"].split(".entry", 1)[1].split(")", 1)[0]
        sizes = re.findall(r"\.param \.(?:b|u|s)(32|64)", entry)
        print(f"{kernel.__name__}: {' '.join(sizes)}")
