"""Steps as a clean server would have recorded them, made by the oracle, any number: what the checks are timed on.

Covered: requests that go on from step to step (the prefix grows by the accepted nodes, the root is the bonus before),
end, and make room for new ones; every field that a check of one rank reads. Not covered: faults, padded requests,
text, several ranks.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from engine.checks.synthetic_step import commit_of, inputs_of, links_of, outcome_of, top2_of
from engine.oracle import Oracle
from engine.step import Config, Int64, Reference, Request, Source, TreeRecord, VerifyStep
from engine.trace import TraceHeader, TraceWriter

BLOCK = 8  # the root and seven draft positions
WIDTH = 8  # candidates of a draft position
VOCAB = 32_000
MIDDLE = (
    VOCAB // 2
)  # drafted tokens lie below; predictions that match no node, so roots too, do not
MASK_TOKEN, STOP, FIRST_TOKEN = 1, 2, 16  # of drafted tokens
PADDING_SLOT = 0
GOES_ON = 0.8  # chance that a child of an accepted node is accepted too
SPREAD = 0.1  # a request begins by this share below the mean prefix, and ends above it


@dataclass(frozen=True)
class Shape:
    """What the steps are like."""

    steps: int = 10_000
    batch: int = 4  # live requests
    budget: int = 16  # nodes without the root
    prefix_len: int = 2_000  # committed tokens of a request on average
    layout: str = "full"  # of the mask: "full" or "qlen"
    seed: int = 0

    @property
    def first_len(self) -> int:
        """Committed tokens of a new request."""
        return max(int(self.prefix_len * (1 - SPREAD)), 1)

    @property
    def last_len(self) -> int:
        """A request with more committed tokens than this ends."""
        return int(self.prefix_len * (1 + SPREAD)) + 1

    @property
    def longest(self) -> int:
        """Committed tokens that no request exceeds."""
        return self.last_len + BLOCK

    @property
    def pool_size(self) -> int:
        """KV slots that exist: the padding slot, and enough for every request at its longest with its draft."""
        return 1 + self.batch * (self.longest + self.budget + 1)


def write_synthetic(
    path: Path, shape: Shape, *, progress: Callable[[str, float], None] = lambda label, share: None
) -> None:
    """Write the steps to a new Arrow recording, one at a time. Raises as ``TraceWriter`` does.

    ``progress``: told what is done and which share of it, 0 … 1.
    """
    with TraceWriter(path, TraceHeader(created_by="ddtree bench checks --synthetic")) as out:
        for number, step in enumerate(synthetic_steps(shape)):
            out.write(step)
            progress(f"writing {shape.steps} steps", (number + 1) / shape.steps)


def synthetic_steps(shape: Shape) -> Iterator[VerifyStep]:
    """The steps in order; a function of the shape alone."""
    server = _Server(shape)
    for number in range(shape.steps):
        yield server.step(number)


@dataclass(frozen=True, eq=False)
class _Live:
    """One request between two steps."""

    rid: str
    slots: Int64  # [prefix_len]
    root: int


class _Server:
    """Requests, their KV slots, and a random drafter and target."""

    def __init__(self, shape: Shape):
        self.shape = shape
        self._rng = np.random.default_rng(shape.seed)
        self._free = np.arange(PADDING_SLOT + 1, shape.pool_size, dtype=np.int64)
        self._freed: list[Int64] = []
        self._begun = 0
        lengths = self._rng.integers(shape.first_len, shape.last_len + 1, shape.batch)
        self._live = [self._begin(int(length)) for length in lengths]

    def _begin(self, length: int) -> _Live:
        self._begun += 1
        root = int(self._rng.integers(MIDDLE, VOCAB))
        return _Live(f"r{self._begun - 1}", self._take(length), root)

    def _take(self, count: int) -> Int64:
        """Slots that nobody holds; those given back are sorted in once the others run out, as in SGLang's pool."""
        if len(self._free) < count:
            self._free, self._freed = np.sort(np.concatenate([self._free, *self._freed])), []
        taken, self._free = self._free[:count], self._free[count:]
        return taken

    def step(self, number: int) -> VerifyStep:
        """Draft, verify and commit once."""
        for i, live in enumerate(self._live):
            if len(live.slots) > self.shape.last_len:
                self._freed.append(live.slots)
                self._live[i] = self._begin(self.shape.first_len)
        bare = _bare_step(self.shape, number, self._live, [self._draft(i.root) for i in self._live])
        oracle = Oracle(bare)
        out_cache_loc = self._take(int(oracle.geometry.qo_indptr[-1]))
        predict = self._predict(oracle)
        paths = [oracle.accepted_nodes(request, predict) for request in range(len(self._live))]
        self._commit(oracle, out_cache_loc, predict, paths)
        return replace(
            bare,
            inputs=inputs_of(oracle, out_cache_loc),
            links=links_of(oracle),
            outcome=outcome_of(oracle, predict, paths),
            commit=commit_of(oracle, paths),
            reference=Reference(predict, top2_of(predict)),
        )

    def _draft(self, root: int) -> TreeRecord:
        """The most probable prefixes under random marginals; sometimes fewer than the budget allows."""
        nodes = int(self._rng.integers(self.shape.budget * 3 // 4, self.shape.budget + 1))
        logits = -np.sort(-self._rng.normal(scale=3.0, size=(BLOCK - 1, WIDTH)), axis=1)
        log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        drafted = MIDDLE - FIRST_TOKEN
        starts = self._rng.integers(0, drafted, (BLOCK - 1, 1))
        tokens = FIRST_TOKEN + (starts + drafted // WIDTH * np.arange(WIDTH)) % drafted
        return best_first(log_probs.tolist(), tokens.tolist(), root, nodes)

    def _predict(self, oracle: Oracle) -> Int64:
        """The target's choice of each row: along a random path its next token, elsewhere one that no node has."""
        predict: Int64 = self._rng.integers(MIDDLE, VOCAB, int(oracle.geometry.qo_indptr[-1]))
        for request, tree in enumerate(oracle.trees):
            start, path = oracle.rows(request).start, [0]
            while tree.children[path[-1]] and self._rng.random() < GOES_ON:
                path.append(int(self._rng.choice(tree.children[path[-1]])))
            for parent, child in pairwise(path):
                predict[start + parent] = tree.tokens[child]
        return predict

    def _commit(
        self, oracle: Oracle, out_cache_loc: Int64, predict: Int64, paths: list[list[int]]
    ) -> None:
        """Keep the slots of accepted nodes, free the others, go on from the bonus."""
        for request, (live, path) in enumerate(zip(self._live, paths, strict=True)):
            rows = oracle.rows(request)
            mine, kept = out_cache_loc[rows.start : rows.stop], np.zeros(len(rows), np.bool_)
            kept[path] = True
            self._freed.append(mine[~kept])
            bonus = int(predict[rows.start + path[-1]])
            self._live[request] = _Live(live.rid, np.concatenate([live.slots, mine[path]]), bonus)


def best_first(
    log_probs: list[list[float]], tokens: list[list[int]], root: int, nodes: int
) -> TreeRecord:
    """Root and the ``nodes`` most probable prefixes (fewer where candidates run out), the likeliest first.

    ``log_probs``, ``tokens``: [positions][candidates], the best candidate of each position first.
    """
    numbers: dict[tuple[int, ...], int] = {(): 0}  # node of each prefix, a prefix by its ranks
    parents, drawn, weights = [-1], [root], [0.0]
    waiting: list[tuple[float, tuple[int, ...]]] = [(-log_probs[0][0], (0,))]
    while waiting and len(parents) <= nodes:
        cost, ranks = heapq.heappop(waiting)
        depth, last = len(ranks) - 1, ranks[-1]
        numbers[ranks] = len(parents)
        parents.append(numbers[ranks[:-1]])
        drawn.append(tokens[depth][last])
        weights.append(-cost)
        if last + 1 < len(log_probs[depth]):
            sibling = cost + log_probs[depth][last] - log_probs[depth][last + 1]
            heapq.heappush(waiting, (sibling, (*ranks[:-1], last + 1)))
        if depth + 1 < len(log_probs):
            heapq.heappush(waiting, (cost - log_probs[depth + 1][0], (*ranks, 0)))
    return TreeRecord(np.array(parents, np.int64), np.array(drawn, np.int64), np.array(weights))


def _bare_step(shape: Shape, number: int, live: list[_Live], trees: list[TreeRecord]) -> VerifyStep:
    """Requests and settings: all that the oracle needs."""
    config = Config(
        budget=shape.budget,
        block_size=BLOCK,
        topk=WIDTH,
        temperature=0.0,
        verify_rows="static",
        num_draft_tokens=shape.budget + 1,
        vocab_size=VOCAB,
        eos_token_ids=np.array([STOP], np.int64),
        mask_token_id=MASK_TOKEN,
        max_position=shape.longest + BLOCK,
        page_size=1,
        pool_size=shape.pool_size,
        padding_slot=PADDING_SLOT,
        mask_layout=shape.layout,
        mask_encoding="bytes",
        mask_capacity=shape.batch * (shape.budget + 1) * (shape.longest + shape.budget + 1),
        max_context=shape.longest,
        index_dtype="int64",
        kv_indptr_counts_draft=False,
        kv_indptr_unit="token",
    )
    source = Source(
        engine="synthetic",
        attention_backend="triton",
        deterministic=False,
        graph="replay",
        raw_bs=shape.batch,
        captured_bs=shape.batch,
    )
    requests = tuple(
        Request(each.rid, len(each.slots), tree, each.slots, len(tree.parents))
        for each, tree in zip(live, trees, strict=True)
    )
    return VerifyStep(requests, number, source=source, config=config, logits_dtype="bfloat16")
