"""What the Triton kernels of a chain do at their start; see :mod:`engine.attention.chain`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def join_chain(DEPTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Wait for the kernel before, and let the next one start, in the order that ``DEPTH`` says. 0: neither."""
    if DEPTH == 2:
        tl.extra.cuda.gdc_launch_dependents()
    if DEPTH > 0:
        tl.extra.cuda.gdc_wait()
    if DEPTH == 1:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit  # type: ignore[untyped-decorator]
def ask_for_rows(matrix, row, WIDTH: tl.constexpr, LINES: tl.constexpr):  # type: ignore[no-untyped-def]
    """Have rows of ``matrix`` [.., WIDTH], 16 bits, brought to the L2 cache: at most ``LINES`` lines of 128 bytes each.

    Nothing is read, so it is no matter who writes them.
    """
    number = tl.minimum(tl.arange(0, LINES) * 64, WIDTH - 1)
    at = matrix + row.to(tl.int64)[:, None] * WIDTH + number[None, :]
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; // $0",
        "=r,l",
        [at.to(tl.int64)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
