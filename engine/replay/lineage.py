"""What each request of one rank had committed before a step: its prompt, then every step's accepted path.

Steps are told in order of time. A request whose tokens are not all known is refused in one sentence, and stays refused:
a text with a hole in it has no plain decoding.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.checks.context import StepContext
from engine.checks.paths import recorded_nodes
from engine.trace.header import PromptRecord


class Lineage:
    """Committed tokens by request id."""

    def __init__(self, prompts: Iterable[PromptRecord]) -> None:
        self._tokens = {prompt.rid: list(prompt.tokens) for prompt in prompts if prompt.tokens}
        self._lost: dict[str, str] = {}

    def before(self, context: StepContext, request: int) -> list[int]:
        """Tokens before the step, ``prefix_len`` of them. Raises ``ValueError`` where they are not known."""
        record = context.step.requests[request]
        rid = record.rid
        if rid in self._lost:
            raise ValueError(self._lost[rid])
        if rid not in self._tokens:
            raise ValueError(f"prompts: expected the token ids of {rid}'s prompt, found none")
        tokens = self._tokens[rid]
        if len(tokens) != record.prefix_len:
            raise ValueError(
                f"{rid}: expected {record.prefix_len} committed tokens before step {context.step.step}, "
                f"found {len(tokens)} in the prompt and the steps before"
            )
        return tokens

    def add(self, context: StepContext, request: int) -> list[int]:
        """Take in what the step committed; returns its nodes, none where that is not known."""
        record, nodes = context.step.requests[request], recorded_nodes(context, request)
        known, tokens = self._tokens.get(record.rid), record.tree.tokens
        if known is None:
            return []
        if nodes is None or tokens is None or any(node >= len(tokens) for node in nodes):
            self._lost[record.rid] = (
                f"step {context.step.step}, {record.rid}: expected accept_index within the tree and the tree's "
                "tokens, found none"
            )
            return []
        known += [int(tokens[node]) for node in nodes]
        return nodes
