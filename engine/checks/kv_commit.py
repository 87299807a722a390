"""I15: each newly committed position holds the KV of its accepted node, in every layer, and lengths follow."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.checks.context import Spec, StepContext, count_differences, first_difference
from engine.checks.finding import Effect, Finding, Where
from engine.checks.paths import kept_nodes, kept_paths, outside

HINTS = {
    "cropped-not-gathered": "The cache was cut to the new length: it holds nodes 0 … n-1, not the accepted ones.",
    "gathered-twice": "The accepted rows were gathered a second time, from rows that had already moved.",
    "layer-not-compacted": "Other layers are right: this one's buffer was not moved.",
    "length": "The committed length is not prefix + accepted nodes.",
    "kv-commit": "The positions hold other nodes than the accepted ones.",
}


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a layer and request at most, and one a request about lengths."""
    for request in context.readable:
        nodes = kept_nodes(context, request)
        if nodes is not None:
            wrong = list(_layers(spec, context, request, nodes))
            yield from wrong
            yield from _length(spec, context, request, nodes, wrong)


def _layers(spec: Spec, context: StepContext, request: int, nodes: list[int]) -> Iterable[Finding]:
    right = kept_paths(context, request)
    layers = {layer.layer: layer.nodes[request].tolist() for layer in context.step.commit.kv or ()}
    wrong = {layer: found for layer, found in layers.items() if found not in right}
    for layer, found in wrong.items():
        diagnosis = _diagnose(found, nodes, wrong, partly=len(wrong) < len(layers))
        at = first_difference(np.array(found, np.int64), np.array(nodes))
        assert at is not None
        position = context.step.requests[request].prefix_len + at
        yield spec.finding(
            context,
            request,
            diagnosis,
            f"request {context.rid(request)}, layer {layer}: position {position} holds "
            f"the KV of {_node(found, at)}, should hold {_node(nodes, at)}",
            hint=HINTS[diagnosis],
            effect=Effect.OUTPUT,
            where=Where(node=nodes[at] if at < len(nodes) else None, layer=layer),
            expected=nodes,
            found=found,
            count=count_differences(np.array(found, np.int64), np.array(nodes)),
            consequence_of=_explained_by(context, request, nodes, found),
        )


def _explained_by(
    context: StepContext, request: int, nodes: list[int], found: list[int]
) -> str | None:
    """The earlier check whose wrong value gives exactly these nodes."""
    outcome = context.step.outcome
    if outcome.accept_index is not None and outside(context, request) is not None:
        start = context.oracle.rows(request).start
        followed = [int(row) - start for row in outcome.accept_index[request] if row != -1]
        return "I14" if found == followed else None
    length = None if outcome.accept_length is None else int(outcome.accept_length[request])
    return "I13" if length is not None and found == nodes[: max(length, 0)] else None


def _node(nodes: list[int], at: int) -> str:
    if at >= len(nodes):
        return "nothing"
    return f"node {nodes[at]}" if nodes[at] >= 0 else "no node of this step"


def _diagnose(
    found: list[int], nodes: list[int], wrong: dict[int, list[int]], *, partly: bool
) -> str:
    """In the order of the table; ``wrong``: what each wrong layer holds."""
    cropped = list(range(len(nodes)))
    if not partly and all(held == cropped for held in wrong.values()):
        return "cropped-not-gathered"
    if found == [nodes[n] if n < len(nodes) else n for n in nodes]:
        return "gathered-twice"
    if partly:
        return "layer-not-compacted"
    common = min(len(found), len(nodes))
    return "length" if found[:common] == nodes[:common] else "kv-commit"


def _length(
    spec: Spec, context: StepContext, request: int, nodes: list[int], wrong: list[Finding]
) -> Iterable[Finding]:
    lengths, prefix_len = context.step.commit.seq_lens, context.step.requests[request].prefix_len
    if lengths is None:
        return
    found = int(lengths[request])
    if found in {prefix_len + len(path) for path in kept_paths(context, request)}:
        return
    follows = [prefix_len + len(finding.found) == found for finding in wrong]
    accepted = context.step.outcome.accept_length
    by_length = accepted is not None and prefix_len + int(accepted[request]) == found
    yield spec.finding(
        context,
        request,
        "length",
        f"request {context.rid(request)}: {found} tokens committed, should be "
        f"{prefix_len + len(nodes)} = prefix {prefix_len} + {len(nodes)} accepted",
        hint=HINTS["length"],
        effect=Effect.OUTPUT,
        expected=prefix_len + len(nodes),
        found=found,
        count=1,
        consequence_of="I13" if by_length else "I15" if any(follows) else None,
    )
