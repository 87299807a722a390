"""A function of persistent buffers as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")
Capture = Callable[[Callable[[], object], torch.device], Any]  # :func:`captured`, or its double

WARM_UPS = 2  # runs before a capture: kernels are compiled, workspaces allocated


@cache
def _beside(device: torch.device) -> Any:
    """One stream for all warm-ups: libraries keep a workspace for every stream that they have seen."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def captured(
    run: Callable[[], object],
    device: torch.device,
    *,
    pool: Any = None,
    between: Callable[[], None] = lambda: None,
) -> torch.cuda.CUDAGraph:
    """Run it twice, then capture it.

    ``pool``: of another graph's memory, to be shared; ``between``: called after the warm-ups, before the capture.
    """
    stream = _beside(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            run()
    torch.cuda.current_stream(device).wait_stream(stream)
    between()
    graph = torch.cuda.CUDAGraph()
    # Of this thread alone: others may wait for events meanwhile.
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        run()
    return graph


def with_result(
    run: Callable[[], Result], device: torch.device, capture: Capture = captured
) -> tuple[Any, Result]:
    """The graph of ``run``, and the result that each replay fills anew; it must be kept as long as the graph."""
    results: list[Result] = []

    def kept() -> Result:
        results.append(run())
        return results[-1]

    graph = capture(kept, device)
    return graph, results[-1]


def in_one_pool() -> Capture:
    """:func:`captured` for graphs that share memory: for such as run one after the other, on one stream.

    A graph never touches the results of those captured before it. It may overwrite the results of those captured after
    it, which lie where it once worked: they hold until an earlier graph runs again.
    """
    pools: list[Any] = []

    def capture(run: Callable[[], object], device: torch.device) -> Any:
        if not pools:
            pools.append(torch.cuda.graph_pool_handle())
        return captured(run, device, pool=pools[0])

    return capture
