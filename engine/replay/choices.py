"""Plain decoding's choice at every node of a recorded tree, request by request, with a bounded number of caches.

A request that was not seen for a while is taken in again from its tokens: which requests are kept never shows in what
is chosen.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import Tensor

from engine.decoding.reference import ReferenceModel
from engine.models.decoder import Decoder
from engine.tree import DraftTree

KEPT = 16  # requests with keys and values


class Choices:
    """Logits of the nodes of trees; ``verify`` and ``commit`` in turn, as the recorded engine did."""

    def __init__(self, model: Decoder) -> None:
        self._model, self._reference = model, ReferenceModel(model)
        self._held: OrderedDict[str, int] = OrderedDict()  # request -> tokens in its cache

    def verify(self, rid: str, tokens: Sequence[int], tree: DraftTree) -> Tensor:
        """Logits [num_nodes, V] after ``tokens`` and each node's root path.

        Raises ``ValueError`` for a tree or tokens that this model cannot take.
        """
        self._check(rid, tokens, tree)
        if self._held.get(rid) != len(tokens):
            self._forget(rid)
            self._reference.start(rid, tokens)
        self._held[rid] = len(tokens)
        self._held.move_to_end(rid)
        while len(self._held) > KEPT:
            self._forget(next(iter(self._held)))
        own = DraftTree(tree.parents, tree.tokens.copy())  # a recording's arrays are read-only
        return self._reference.verify(rid, own, len(tokens))

    def commit(self, rid: str, nodes: Sequence[int]) -> None:
        """Keep the rows of the accepted nodes of the last tree; none: the cache is made anew when it is needed."""
        if not nodes:
            self._forget(rid)
            return
        self._reference.commit(rid, nodes)
        self._held[rid] += len(nodes)

    def _forget(self, rid: str) -> None:
        if self._held.pop(rid, None) is not None:
            self._reference.finish(rid)

    def _check(self, rid: str, tokens: Sequence[int], tree: DraftTree) -> None:
        config = self._model.config
        if not all(tree.paths):
            raise ValueError(f"{rid}: expected a tree, found a node that never reaches the root")
        largest = max(*tokens, *tree.tokens.tolist())
        if min(*tokens, *tree.tokens.tolist()) < 0 or largest >= config.vocab_size:
            raise ValueError(
                f"{rid}: expected tokens 0 … {config.vocab_size - 1} of the target, found others"
            )
        need = len(tokens) + tree.height + 1
        if need > config.max_position:
            raise ValueError(
                f"{rid}: expected at most {config.max_position} positions, found {need}"
            )
