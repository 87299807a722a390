"""What a request had committed before a step, from the recording alone: its prompt, then each step's accepted path."""

from __future__ import annotations

from engine.checks.context import StepContext
from engine.step import VerifyStep
from engine.trace.reader import Trace
from engine.xray.errors import XRayError


def committed_tokens(trace: Trace, number: int, rank: int) -> list[list[int]]:
    """Tokens of each live request of the step in the order of their positions, as many as its prefix length.

    Raises :class:`XRayError` where prompts, trees or accepted paths were not recorded, or do not add up.
    """
    step = trace.step(trace.index(number, rank))
    prompts = {prompt.rid: list(prompt.tokens) for prompt in trace.header.prompts}
    tokens = {request.rid: prompts.get(request.rid, []) for request in step.requests}
    for rid, known in tokens.items():
        if not known:
            raise XRayError(f"prompts: expected the token ids of {rid}'s prompt, found none")
    for position in range(len(trace)):
        at, of = trace.key(position)
        if of == rank and at < number:
            _add_paths(trace.step(position), tokens)
    for request in step.requests:
        found = len(tokens[request.rid])
        if found != request.prefix_len:
            raise XRayError(
                f"{request.rid}: expected {request.prefix_len} committed tokens before step {number}, "
                f"found {found} in the prompt and the steps before"
            )
    return [tokens[request.rid] for request in step.requests]


def _add_paths(step: VerifyStep, tokens: dict[str, list[int]]) -> None:
    """Append what a step committed (in place)."""
    oracle, paths = StepContext(step).oracle, step.outcome.accept_index
    for i, request in enumerate(step.requests):
        if request.rid not in tokens:
            continue
        if paths is None or i >= len(paths) or request.tree.tokens is None:
            raise XRayError(
                f"step {step.step}, {request.rid}: expected accept_index and the tree's tokens, found none"
            )
        first = oracle.real_rows(i).start
        nodes = [int(row) - first for row in paths[i] if row >= 0]
        tokens[request.rid] += [int(request.tree.tokens[node]) for node in nodes]
