"""What is kept of a step: requests, their nodes, their prefix positions, and how many rows each is laid out for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from engine.oracle import Oracle
from engine.step import VerifyStep


@dataclass(frozen=True)
class Kept:
    """What is kept of one request."""

    request: int  # its number in the original step
    nodes: tuple[int, ...]  # ascending, the root first
    prefix: tuple[int, ...]  # positions, ascending


@dataclass(frozen=True)
class Selection:
    """What is kept of one step."""

    requests: tuple[Kept, ...]
    q_len: int | None  # rows a request when static; None: one a node
    padded: int  # captured requests that are not live

    @property
    def size(self) -> tuple[int, int, int, int]:
        """Requests, nodes, rows and prefix tokens: smaller is simpler."""
        nodes = sum(len(kept.nodes) for kept in self.requests)
        rows = nodes if self.q_len is None else len(self.requests) * self.q_len
        prefix = sum(len(kept.prefix) for kept in self.requests)
        return len(self.requests) + self.padded, nodes, rows, prefix


def everything(step: VerifyStep) -> Selection:
    """The whole step."""
    oracle = Oracle(step)
    budget = step.config.budget
    kept = tuple(
        Kept(i, tuple(range(tree.num_nodes)), tuple(range(int(oracle.prefix_lens[i]))))
        for i, tree in enumerate(oracle.trees)
    )
    static = oracle.is_static and budget is not None
    return Selection(
        kept, budget + 1 if static and budget is not None else None, step.captured_bs - step.raw_bs
    )


def smaller(step: VerifyStep, chosen: Selection) -> Iterator[Selection]:
    """Selections with one thing less, the boldest first."""
    for i in range(len(chosen.requests)):
        if len(chosen.requests) > 1:
            yield replace(chosen, requests=chosen.requests[:i] + chosen.requests[i + 1 :])
    if chosen.padded:
        yield replace(chosen, padded=0)
    for i, kept in enumerate(chosen.requests):
        for prefix in _shorter(kept.prefix):
            yield _exchange(chosen, i, replace(kept, prefix=prefix))
    for i, kept in enumerate(chosen.requests):
        for nodes in _fewer_nodes(step, kept):
            fitting = _within_rows(step, _exchange(chosen, i, replace(kept, nodes=nodes)))
            if fitting is not None:
                yield fitting
    yield from _fewer_rows(chosen)


def _within_rows(step: VerifyStep, chosen: Selection) -> Selection | None:
    """No more rows a request than its kept nodes and its padding rows fill; None if the others need more."""
    if chosen.q_len is None:
        return chosen
    oracle = Oracle(step)
    filled = [
        len(kept.nodes) + int(oracle.q_lens[kept.request]) - oracle.trees[kept.request].num_nodes
        for kept in chosen.requests
    ]
    q_len = min(chosen.q_len, *filled)
    needed = max(len(kept.nodes) for kept in chosen.requests)
    return replace(chosen, q_len=q_len) if q_len >= needed else None


def _exchange(chosen: Selection, place: int, kept: Kept) -> Selection:
    requests = (*chosen.requests[:place], kept, *chosen.requests[place + 1 :])
    return replace(chosen, requests=requests)


def _shorter(prefix: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The last part of a prefix: one token, a half, or one less."""
    for length in dict.fromkeys((1, len(prefix) // 2, len(prefix) - 1)):
        if 1 <= length < len(prefix):
            yield prefix[-length:]


def _fewer_nodes(step: VerifyStep, kept: Kept) -> Iterator[tuple[int, ...]]:
    """Without one subtree that holds no accepted node, the largest subtrees first."""
    tree = step.requests[kept.request].tree.tree
    accepted = _accepted(step, kept.request)
    options = []
    for node in kept.nodes[1:]:
        subtree = {n for n in kept.nodes if node in tree.paths[n]}
        if subtree and not subtree & accepted:
            options.append(tuple(n for n in kept.nodes if n not in subtree))
    yield from sorted(options, key=len)


def _accepted(step: VerifyStep, request: int) -> set[int]:
    """Nodes that the step's outcome speaks of."""
    rows = Oracle(step).rows(request)
    index = step.outcome.accept_index
    flat = set() if index is None else {int(row) - rows.start for row in index[request]}
    for layer in step.commit.kv or ():
        flat |= {int(node) for node in layer.nodes[request]}
    return flat


def _fewer_rows(chosen: Selection) -> Iterator[Selection]:
    if chosen.q_len is None:
        return
    least = max(len(kept.nodes) for kept in chosen.requests)
    for q_len in dict.fromkeys((least, (least + chosen.q_len) // 2, chosen.q_len - 1)):
        if least <= q_len < chosen.q_len:
            yield replace(chosen, q_len=q_len)
