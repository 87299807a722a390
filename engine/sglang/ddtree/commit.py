"""What is committed, decided on the host: emitted tokens up to a stop, and which rows keep their KV slots.

Of a request that says ``n`` tokens, the first ``n`` rows of its path are committed: the root, whose KV was written
this step, and ``n - 1`` accepted nodes. The last token said has no KV yet; it is the root of the next tree. With pages
of one token a slot may belong to any position: accepted rows stay where they lie, only ``req_to_token`` is rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.sglang.ddtree.faults import Fault, broken_features, broken_slots


@dataclass(frozen=True)
class Commit:
    """Flat rows of a batch: row ``request * width + node``."""

    kept: list[int]  # whose KV slots stay, in path order, request after request
    freed: list[int]  # whose slots are given back
    features: list[int]  # whose hidden states the drafter gets, in path order
    lengths: list[int]  # committed rows of each request


def emit(request: Any, said: Sequence[int], think_end_id: int | None = None) -> int:
    """Append ``said`` to a request until it is finished; the number of appended tokens, at least 1."""
    for count, token in enumerate(said, start=1):
        request.output_ids.append(token)
        if think_end_id is not None and getattr(request, "require_reasoning", False):
            request.update_reasoning_tokens(token, think_end_id)
        request.check_finished()
        if request.finished():
            return count
    return len(said)


def commit_rows(
    paths: Sequence[Sequence[int]], lengths: Sequence[int], width: int, fault: Fault | None = None
) -> Commit:
    """Rows of requests that commit the first ``lengths[i]`` nodes of ``paths[i]``; ``width`` rows a request."""
    kept: list[int] = []
    features: list[int] = []
    for request, (path, length) in enumerate(zip(paths, lengths, strict=True)):
        own, first = list(path[:length]), request * width
        if len(own) != length or not 0 <= min(own, default=0) <= max(own, default=0) < width:
            raise ValueError(
                f"request {request}: expected {length} nodes in 0 … {width - 1}, found the path {list(path)}"
            )
        kept += [first + node for node in broken_slots(fault, own)]
        features += [first + node for node in broken_features(fault, own)]
    stays = set(kept)
    freed = [row for row in range(width * len(paths)) if row not in stays]
    return Commit(kept, freed, features, list(lengths))
