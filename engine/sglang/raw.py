"""RawStep: one verify step on its way from the hooks to the writer's thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.sglang.host import HostCopies
from engine.sglang.laid import Laid
from engine.sglang.verified import Ends, Verifying


@dataclass(frozen=True)
class TreeSource:
    """The tree as its builder handed it out.

    ``eagle``: ``parent_list`` [requests, n] and ``selected`` [requests, rows - 1] in ``copies``; ``ngram``: ``mask``
    uint8 [requests * rows * rows] on the host; ``chain``: each row continues the one before; ``links``: nothing better
    than the links themselves is known.
    """

    kind: str
    topk: int | None = None
    mask: NDArray[Any] | None = None
    copies: HostCopies = field(default_factory=HostCopies)


@dataclass(frozen=True)
class RawStep:
    """Everything of one step; arrays may be read after :meth:`wait`."""

    number: int
    laid: Laid
    rids: tuple[str, ...]
    greedy: bool | None
    vocab_size: int | None
    logits_dtype: str | None
    topk: int | None
    page_size: int | None
    algorithm: str
    copies: HostCopies
    tree: TreeSource
    ends: Ends | None

    def wait(self) -> None:
        """Block until every array has arrived."""
        for copies in (self.laid.copies, self.copies, self.tree.copies):
            copies.wait()

    @property
    def bytes(self) -> int:
        """Of all arrays."""
        return self.laid.copies.bytes + self.copies.bytes + self.tree.copies.bytes

    def array(self, name: str) -> NDArray[Any] | None:
        """An array of verification, else of the layout; None where it was not taken."""
        for copies in (self.copies, self.laid.copies, self.tree.copies):
            if name in copies.arrays:
                found: NDArray[Any] = copies.arrays[name].numpy()
                return found
        return None

    def ints(self, name: str) -> NDArray[np.int64] | None:
        """The same as int64."""
        found = self.array(name)
        return None if found is None else found.astype(np.int64)


def raw_step(
    number: int, laid: Laid, step: Verifying, tree: TreeSource, ended: Ends | None
) -> RawStep:
    """Put together; keeps no tensor of the server's. A request whose name nothing tells gets one of its own for this
    step, so that no check takes it for another's continuation.
    """
    unnamed = tuple(f"unnamed-{number}-{place}" for place in range(step.count))
    named = next((n for n in (step.rids, laid.rids) if n and len(n) >= step.count), unnamed)
    laid.spec_info, spec, logits = None, step.spec_info, step.logits
    topk = getattr(spec, "topk", None)
    page = getattr(getattr(step.batch, "tree_cache", None), "page_size", None)
    return RawStep(
        number=number,
        laid=laid,
        rids=named[: step.count],
        greedy=step.greedy,
        vocab_size=None if logits is None else int(logits.shape[-1]),
        logits_dtype=None if logits is None else str(logits.dtype).removeprefix("torch."),
        topk=topk if isinstance(topk, int) and topk > 0 else None,
        page_size=page if isinstance(page, int) and page > 0 else None,
        algorithm=type(spec).__name__,
        copies=step.copies,
        tree=tree,
        ends=ended,
    )
