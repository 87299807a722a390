"""Chains of kernels: each is launched while the one before it still runs (Hopper's programmatic dependent launch).

What a launch takes, and the way of weights from memory to the L2 cache, then pass beside the end of the kernel before.
Three rules keep a chain right. Every program of a kernel in it waits for the kernel before, one with nothing to do as
well: so its end says that all before it have ended. Before the wait it writes nothing, and reads only what was written
before the chain began. The kernel that a chain begins with is launched as any other.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

# When a kernel lets the next one start. 0: at its end, and there are no chains; 1: once it need not wait itself, so
# that two run side by side; 2: at once. A plain step of SmolLM2 takes 788, 578 and 834 µs on an H200.
DEPTH = 1


@cache
def can_chain(device: torch.device) -> bool:
    """Whether a kernel can be launched while the one before it runs: Hopper and later."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def depth_on(device: torch.device) -> int:
    """``DEPTH`` where there are chains, else 0."""
    return DEPTH if can_chain(device) else 0


def launch_options(depth: int) -> dict[str, Any]:
    """Of a kernel that is in a chain, behind another."""
    return {"launch_pdl": True} if depth else {}
