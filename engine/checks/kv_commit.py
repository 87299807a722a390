"""I15: each newly committed position holds the KV of its accepted node, in every layer, and lengths follow."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.checks.acceptance import recorded_nodes
from engine.checks.context import Spec, StepContext
from engine.checks.finding import Effect, Finding, Where
from engine.step import LayerCommit

HINTS = {
    "cropped-not-gathered": "The cache was cut to the new length: it holds nodes 0 … n-1, not the accepted ones.",
    "gathered-twice": "The accepted rows were gathered a second time, from rows that had already moved.",
    "layer-not-compacted": "Other layers are right: this one's buffer was not moved.",
    "length": "The committed length is not prefix + accepted nodes.",
    "kv-commit": "",
}


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a layer and request at most, and one a request about lengths."""
    for request in context.readable:
        nodes = recorded_nodes(context, request)
        if nodes is not None:
            yield from _layers(spec, context, request, nodes)
            yield from _length(spec, context, request, nodes)


def _layers(spec: Spec, context: StepContext, request: int, nodes: list[int]) -> Iterable[Finding]:
    layers = [l for l in context.step.commit.kv or () if request < len(l.nodes)]
    wrong = [l for l in layers if not _same(l, request, nodes)]
    for layer in wrong:
        found = layer.nodes[request].tolist()
        diagnosis = _diagnose(found, nodes, partly=len(wrong) < len(layers))
        at = next((i for i, (a, b) in enumerate(zip(found, nodes, strict=False)) if a != b), None)
        at = min(len(found), len(nodes)) if at is None else at
        position = context.step.requests[request].prefix_len + at
        yield spec.finding(
            context,
            request,
            diagnosis,
            f"request {context.step.requests[request].rid}, layer {layer.layer}: position {position} holds "
            f"the KV of {_node(found, at)}, should hold {_node(nodes, at)}",
            hint=HINTS[diagnosis],
            effect=Effect.OUTPUT,
            where=Where(node=nodes[at] if at < len(nodes) else None, layer=layer.layer),
            expected=nodes,
            found=found,
            count=sum(a != b for a, b in zip(found, nodes, strict=False))
            + abs(len(found) - len(nodes)),
        )


def _node(nodes: list[int], at: int) -> str:
    if at >= len(nodes):
        return "nothing"
    return f"node {nodes[at]}" if nodes[at] >= 0 else "no node of this step"


def _same(layer: LayerCommit, request: int, nodes: list[int]) -> bool:
    return np.array_equal(layer.nodes[request], np.array(nodes))


def _diagnose(found: list[int], nodes: list[int], *, partly: bool) -> str:
    if found == list(range(len(nodes))):
        return "layer-not-compacted" if partly else "cropped-not-gathered"
    twice = [nodes[n] if n < len(nodes) else n for n in nodes]
    if found == twice:
        return "gathered-twice"
    if len(found) != len(nodes) and found[: len(nodes)] == nodes[: len(found)]:
        return "length"
    return "layer-not-compacted" if partly else "kv-commit"


def _length(spec: Spec, context: StepContext, request: int, nodes: list[int]) -> Iterable[Finding]:
    lengths, prefix_len = context.step.commit.seq_lens, context.step.requests[request].prefix_len
    if (
        lengths is None
        or request >= len(lengths)
        or int(lengths[request]) == prefix_len + len(nodes)
    ):
        return
    yield spec.finding(
        context,
        request,
        "length",
        f"request {context.step.requests[request].rid}: {int(lengths[request])} tokens committed, should be "
        f"{prefix_len + len(nodes)} = prefix {prefix_len} + {len(nodes)} accepted",
        hint=HINTS["length"],
        effect=Effect.OUTPUT,
        expected=prefix_len + len(nodes),
        found=int(lengths[request]),
        count=1,
    )
