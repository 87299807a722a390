"""Clean steps with other tokens in leaves that nobody accepted: what they hold changes nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.faults.recorded.edit import (
    need,
    rows_of,
    spare_leaf,
    tokens_of,
    with_inputs,
    with_requests,
    with_tree,
)
from engine.step import Request, VerifyStep

Choose = Callable[[int, set[int]], int]  # a leaf's token, and the tokens that it may not hold


def with_leaf_tokens(step: VerifyStep, choose: Choose) -> VerifyStep:
    """The step whose last leaf that was not accepted holds another token, in each request that has one.

    A leaf may not hold a sibling's token, nor the one that its parent's row predicts.
    """
    ids = need(step.inputs.input_ids, "inputs.input_ids").copy()
    predict = need(step.outcome.target_predict, "outcome.target_predict")

    def edit(number: int, request: Request) -> Request:
        leaf = spare_leaf(step, number)
        if leaf is None:
            return request
        tokens, start = tokens_of(step, number).copy(), rows_of(step, number).start
        parent = int(request.tree.parents[leaf])
        others = [node for node in request.tree.tree.children[parent] if node != leaf]
        taken = {int(tokens[node]) for node in others} | {int(predict[start + parent])}
        tokens[leaf] = ids[start + leaf] = choose(int(tokens[leaf]), taken)
        return with_tree(request, tokens=tokens)

    changed = with_requests(step, edit)
    return with_inputs(changed, input_ids=ids)


def with_token_zero(steps: Sequence[VerifyStep]) -> list[VerifyStep]:
    """Steps in which a leaf of each tree holds token 0, a token like any other, where it may."""
    return [with_leaf_tokens(step, _zero) for step in steps]


def _zero(token: int, taken: set[int]) -> int:
    return token if 0 in taken else 0
