"""I20: what was emitted is the accepted tokens and the bonus, up to the first stop, all of them real tokens."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.checks.context import Spec, StepContext, count_differences, first_difference
from engine.checks.finding import Effect, Finding, Where
from engine.checks.paths import followed_paths, kept_nodes

PLACEHOLDER = -1
HINTS = {
    "past-stop": "Truncate at the first stop token by position, before anything is emitted or counted.",
    "placeholder-token": "A placeholder is no token: it must never be accepted.",
    "token-range": "The id lies outside the vocabulary.",
    "emitted": "Emitted tokens are those of the accepted nodes without the root, then the bonus.",
    "output": "Several things are wrong with these tokens.",
}


def run(spec: Spec, context: StepContext) -> Iterable[Finding]:
    """One finding a request at most."""
    emitted = context.step.outcome.emitted
    assert emitted is not None
    for request in context.readable:
        if request < len(emitted):
            found = emitted[request].tolist()
            nodes = kept_nodes(context, request)
            expected = None if nodes is None else _emitted_for(context, request, nodes)
            diagnosis = _diagnose(context, found, expected)
            if diagnosis is not None:
                yield _finding(spec, context, request, diagnosis, found, nodes, expected)


def _emitted_for(context: StepContext, request: int, nodes: list[int]) -> list[int] | None:
    """What follows from a path and the recorded bonus; None where the tokens are not known."""
    bonus, tokens = context.step.outcome.bonus_tokens, context.step.requests[request].tree.tokens
    if bonus is None or tokens is None or request >= len(bonus):
        return None
    if not all(0 <= node < len(tokens) for node in nodes):
        return None
    path = [int(tokens[node]) for node in nodes[1:]]
    return until_first_stop(context, [*path, int(bonus[request])])


def until_first_stop(context: StepContext, tokens: list[int]) -> list[int]:
    """Tokens up to and with the first end-of-sequence token."""
    stops = context.stops
    for place, token in enumerate(tokens if stops else ()):
        if token in stops:
            return tokens[: place + 1]
    return tokens


def _diagnose(context: StepContext, found: list[int], expected: list[int] | None) -> str | None:
    """The first name that explains every token that is wrong; None where all are right."""
    vocab = context.step.config.vocab_size
    if found == expected and found and min(found) >= 0 and (vocab is None or max(found) < vocab):
        return None
    odd = {
        "placeholder-token": _placeholders(context, found, expected),
        "token-range": _out_of_range(context, found),
    }
    shown = until_first_stop(context, found)
    right = shown if expected is None else expected
    odd_shown = any(place < len(shown) for places in odd.values() for place in places)
    if len(shown) < len(found) and shown == right and not odd_shown:
        return "past-stop"
    same = len(found) == len(right)
    wrong = {i for i, pair in enumerate(zip(found, right, strict=False)) if pair[0] != pair[1]}
    wrong |= set().union(*odd.values())
    if not wrong and same:
        return None
    for name, places in odd.items():
        if same and wrong <= places:
            return name
    return "output" if expected is None else "emitted"


def _placeholders(context: StepContext, found: list[int], expected: list[int] | None) -> set[int]:
    """Places of -1, and of the mask token where another token was accepted."""
    mask = context.step.config.mask_token_id
    places = {i for i, token in enumerate(found) if token == PLACEHOLDER}
    if expected is None or mask is None:
        return places
    pairs = enumerate(zip(found, expected, strict=False))
    return places | {i for i, (have, want) in pairs if have == mask != want}


def _out_of_range(context: StepContext, found: list[int]) -> set[int]:
    vocab = context.step.config.vocab_size
    return {
        i for i, token in enumerate(found) if token < 0 or (vocab is not None and token >= vocab)
    }


def _finding(
    spec: Spec,
    context: StepContext,
    request: int,
    diagnosis: str,
    found: list[int],
    nodes: list[int] | None,
    expected: list[int] | None,
) -> Finding:
    why = {
        "past-stop": ", which goes on after its first stop token",
        "placeholder-token": ", which holds a placeholder",
        "token-range": f", beyond the {context.step.config.vocab_size} tokens there are",
        "emitted": "",
        "output": ", which cannot be",
    }[diagnosis]
    should = until_first_stop(context, found) if expected is None else expected
    node = _node(found, nodes, expected)
    count = count_differences(np.array(found, np.int64), np.array(should, np.int64))
    return spec.finding(
        context,
        request,
        diagnosis,
        f"request {context.rid(request)}: emitted {found}{why}"
        + ("" if should == found else f", should be {should}"),
        hint=HINTS[diagnosis],
        effect=Effect.OUTPUT,
        where=Where(
            node=node, row=None if node is None else context.oracle.rows(request).start + node
        ),
        expected=should if should != found else "tokens of the vocabulary",
        found=found,
        count=count or len(_out_of_range(context, found)),
        consequence_of=_cause(context, request, found, nodes),
    )


def _node(found: list[int], nodes: list[int] | None, expected: list[int] | None) -> int | None:
    """Node of the first emitted token that differs, if a node carries it."""
    if nodes is None or expected is None:
        return None
    at = first_difference(np.array(found, np.int64), np.array(expected, np.int64))
    return nodes[at + 1] if at is not None and at + 1 < len(nodes) else None


def _cause(
    context: StepContext, request: int, found: list[int], nodes: list[int] | None
) -> str | None:
    """The check whose wrong record of the acceptance gives exactly these tokens."""
    for check, path in followed_paths(context, request, nodes or []):
        if found == _emitted_for(context, request, path):
            return check
    return None
