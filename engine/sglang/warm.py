"""Compiles the tap's kernels while the server starts: at the first recorded step it would wait for seconds."""

from __future__ import annotations

from typing import Any

import torch

from engine.sglang.host import HostCopies
from engine.sglang.top2 import top2


def warm(scheduler: Any, device: str = "cuda") -> None:
    """Run each kernel once with arguments of the kind to come. Raises what a kernel raises."""
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        return
    cells = torch.zeros(4, dtype=torch.int32, device=device)
    copies = HostCopies()
    copies.take("cells", cells)
    copies.mark()
    config = getattr(scheduler, "model_config", None)
    vocab, dtype = getattr(config, "vocab_size", None), getattr(config, "dtype", None)
    if isinstance(vocab, int) and vocab > 1:
        for kind in {torch.float32, dtype if isinstance(dtype, torch.dtype) else torch.float32}:
            top2(torch.zeros(2, vocab, dtype=kind, device=device))
    for copy in copies.fence():
        copy.event.synchronize()
