"""Time on a GPU: calls captured in a CUDA graph and replayed, so that neither Python nor a launch counts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch

Call = Callable[[], object]


def replayed(calls: Sequence[Call], *, repeats: int = 12, rounds: int = 25) -> float:
    """Microseconds of one call, median over ``rounds`` replays of ``repeats`` calls that go through ``calls`` in turn.

    The calls run in one stream, so each sees caches as the ones before it left them: several calls on inputs of their
    own, larger than the caches together, measure it cold.
    """
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(repeats):
            calls[number % len(calls)]()
    graph.replay()
    torch.cuda.synchronize()
    spent: list[float] = []
    for _ in range(rounds):
        start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        spent.append(start.elapsed_time(end) * 1e3 / repeats)
    return statistics.median(spent)


def waited(call: Call, *, rounds: int = 9) -> float:
    """Microseconds on the clock until a call is done on the device, median; once before it counts."""
    spent = []
    for number in range(rounds + 1):
        torch.cuda.synchronize()
        started = time.perf_counter()
        call()
        torch.cuda.synchronize()
        if number:
            spent.append((time.perf_counter() - started) * 1e6)
    return statistics.median(spent)


def copy_rate() -> float:
    """Bytes a second of an addition over 2 GiB, read and written."""
    source = torch.empty(1 << 29, dtype=torch.float32, device="cuda")
    target = torch.empty_like(source)
    spent = replayed([lambda: torch.add(source, 1.0, out=target)], repeats=4)
    return 8 * source.numel() / spent * 1e6


def matrix_rate() -> float:
    """Operations a second of a bfloat16 product of two 8192 x 8192 matrices."""
    size = 8192
    left = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(left)
    spent = replayed([lambda: torch.mm(left, left, out=out)], repeats=4)
    return 2 * size**3 / spent * 1e6
