"""I20: what was emitted is the accepted tokens and the bonus, up to the first stop, all of them real tokens."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.checks.context import Spec, StepContext, count_differences, first_difference
from engine.checks.finding import Effect, Finding, Where
from engine.checks.paths import implied_nodes, recorded_nodes

HINTS = {
    "past-stop": "Truncate at the first stop token by position, before anything is emitted or counted.",
    "placeholder-token": "A placeholder is no token: it must never be accepted.",
    "token-range": "The id lies outside the vocabulary.",
    "emitted": "Emitted tokens are those of the accepted nodes without the root, then the bonus.",
}


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most."""
    emitted = context.step.outcome.emitted
    assert emitted is not None
    for request in context.readable:
        if request < len(emitted):
            found = [int(token) for token in emitted[request]]
            expected = _expected(context, request)
            diagnosis = _diagnose(context, found, expected)
            if diagnosis is not None:
                yield _finding(spec, context, request, diagnosis, found, expected)


def _expected(context: StepContext, request: int) -> list[int] | None:
    """What follows from the recorded path and bonus; None where they are not known."""
    nodes = recorded_nodes(context, request) or implied_nodes(context, request)
    bonus, tokens = context.step.outcome.bonus_tokens, context.step.requests[request].tree.tokens
    if nodes is None or bonus is None or tokens is None or request >= len(bonus):
        return None
    if not all(0 <= node < len(tokens) for node in nodes):
        return None
    return until_first_stop(context, [*tokens[nodes[1:]].tolist(), int(bonus[request])])


def until_first_stop(context: StepContext, tokens: list[int]) -> list[int]:
    """Tokens up to and with the first end-of-sequence token."""
    stops = context.step.config.eos_token_ids
    for place, token in enumerate(tokens):
        if stops is not None and token in stops:
            return tokens[: place + 1]
    return tokens


def _diagnose(context: StepContext, found: list[int], expected: list[int] | None) -> str | None:
    vocab = context.step.config.vocab_size
    if len(until_first_stop(context, found)) < len(found):
        return "past-stop"
    if -1 in found or (expected is not None and _placeholder(context, found, expected)):
        return "placeholder-token"
    if any(token < 0 or (vocab is not None and token >= vocab) for token in found):
        return "token-range"
    return "emitted" if expected is not None and found != expected else None


def _placeholder(context: StepContext, found: list[int], expected: list[int]) -> bool:
    """The mask token where another one was accepted."""
    mask = context.step.config.mask_token_id
    return mask is not None and found.count(mask) > expected.count(mask)


def _finding(
    spec: Spec,
    context: StepContext,
    request: int,
    diagnosis: str,
    found: list[int],
    expected: list[int] | None,
) -> Finding:
    text = {
        "past-stop": f"emitted {found}, which goes on after its first stop token",
        "placeholder-token": f"emitted {found}, which holds a placeholder",
        "token-range": f"emitted {found}, beyond the {context.step.config.vocab_size} tokens there are",
        "emitted": f"emitted {found}",
    }[diagnosis]
    should = "" if expected is None else f", should be {expected}"
    place = _place(context, found, expected, diagnosis)
    return spec.finding(
        context,
        request,
        diagnosis,
        f"request {context.rid(request)}: {text}{should}",
        hint=HINTS[diagnosis],
        effect=Effect.OUTPUT,
        where=Where(node=place),
        expected=expected if expected is not None else until_first_stop(context, found),
        found=found,
        count=1
        if expected is None
        else max(count_differences(np.array(found, np.int64), np.array(expected)), 1),
    )


def _place(
    context: StepContext, found: list[int], expected: list[int] | None, diagnosis: str
) -> int | None:
    """Node of the first emitted token that differs, if a node carried it."""
    nodes = None
    rows = [recorded_nodes(context, r) for r in context.readable]
    if expected is None or diagnosis != "emitted" or len(rows) != 1:
        return None
    nodes = rows[0]
    at = first_difference(np.array(found, np.int64), np.array(expected))
    return nodes[at + 1] if nodes is not None and at is not None and at + 1 < len(nodes) else None
