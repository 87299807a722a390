"""A function of persistent buffers as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

WARM_UPS = 2  # runs before a capture: kernels are compiled, workspaces allocated


def captured(
    run: Callable[[], None],
    device: torch.device,
    *,
    pool: Any = None,
    between: Callable[[], None] = lambda: None,
) -> torch.cuda.CUDAGraph:
    """Run it twice, then capture it.

    ``pool``: of another graph's memory, to be shared; ``between``: called after the warm-ups, before the capture.
    """
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
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
