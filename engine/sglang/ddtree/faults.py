"""``DDTREE_FAULT``: one stage broken the way public bugs broke it, under the names of ``engine.faults``.

| name | what is wrong |
| --- | --- |
| ``verify-width`` | the target's attention backend lays out the drafter's block size a request (:mod:`.hooks`) |
| ``first-requests-tree`` | every request gets the tree columns of the first one |
| ``causal-mask`` | every row sees all rows before it, as in a chain |
| ``flattened-positions`` | positions count rows, not depths |
| ``crop-commit`` | the first rows' KV slots are kept, whichever nodes were accepted |
| ``hidden-rows`` | the drafter gets the features one row late: without the root's, the last one's twice |
"""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor


class Fault(StrEnum):
    """What is broken."""

    VERIFY_WIDTH = "verify-width"
    FIRST_REQUESTS_TREE = "first-requests-tree"
    CAUSAL_MASK = "causal-mask"
    FLATTENED_POSITIONS = "flattened-positions"
    CROP_COMMIT = "crop-commit"
    HIDDEN_ROWS = "hidden-rows"

    @classmethod
    def named(cls, name: str | None) -> Fault | None:
        """The fault of that name, None for none."""
        if not (name or "").strip():
            return None
        known = [str(fault) for fault in cls]
        if name not in known:
            raise ValueError(f"DDTREE_FAULT: expected one of {', '.join(known)}; found {name!r}")
        return cls(name)


def broken_visible(fault: Fault | None, visible: Tensor) -> Tensor:
    """Tree columns bool [bs, width, width] as the fault leaves them."""
    if fault is Fault.FIRST_REQUESTS_TREE:
        return visible[:1].expand_as(visible)
    if fault is Fault.CAUSAL_MASK:
        return torch.ones_like(visible).tril()
    return visible


def broken_depths(fault: Fault | None, depths: Tensor) -> Tensor:
    """Distance of each row's position from the root's, int64 [bs, width]."""
    if fault is Fault.FLATTENED_POSITIONS:
        return torch.arange(depths.shape[1], device=depths.device).expand_as(depths)
    return depths


def broken_slots(fault: Fault | None, path: list[int]) -> list[int]:
    """Rows of a request whose KV slots are kept."""
    return list(range(len(path))) if fault is Fault.CROP_COMMIT else path


def broken_features(fault: Fault | None, path: list[int]) -> list[int]:
    """Rows of a request whose hidden states the drafter gets."""
    return [*path[1:], *path[-1:]] if fault is Fault.HIDDEN_ROWS else path
