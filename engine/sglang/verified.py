"""Reads a verification: what it was given before it runs, what it decided after it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from engine.sglang.host import HostCopies, NotCopied
from engine.sglang.laid import Laid, host_lengths, rows_of
from engine.sglang.raw import Ends, RawStep, Tree
from engine.sglang.top2 import top2

LINKS = Tree("links")


def _ignores_stops(request: Any) -> bool:
    return bool(getattr(getattr(request, "sampling_params", None), "ignore_eos", False))


@dataclass(eq=False)
class Verifying:
    """One verification under way, and until it is put together."""

    spec_info: Any
    batch: Any
    logits: torch.Tensor | None  # [rows, vocabulary]; penalties are added to it in place
    count: int  # live requests
    requests: tuple[Any, ...]  # none where the batch does not know them
    rids: tuple[str, ...] | None
    outputs_before: tuple[int, ...]  # tokens that each request had emitted
    facts: dict[str, Any]  # of the RawStep, as far as they are known before
    best: torch.Tensor | None = None  # of :func:`top2`
    moves_no_rows: bool = False  # a commit changes the request table alone: pages of one token
    tree: Tree = LINKS
    more: HostCopies | None = None  # of the tree's builder
    laid: Laid | None = None  # read by then; None: not found yet
    walk: HostCopies | None = None  # its acceptance before stops cut it, where a hook saw that
    copies: HostCopies = field(default_factory=HostCopies)
    # Once it has been decided; it is put together when the server waits anyway.
    number: int = -1
    outputs: list[Any] | None = None  # what each request emits, where verification emits by itself
    lengths: list[int] | None = None  # of these lists; they grow with the next step
    finished: list[bool] | None = None  # of each request
    awaits_commit: bool = False  # lengths and slots are told when the next step begins

    def made(self, batch: Any = None, recorded: bool = False) -> RawStep:
        """``batch``: what is verified next, before it is; it may still tell what this step committed. Where that one is
        ``recorded``, its inputs say it, and nothing is copied for this one.

        Keeps no tensor of the server's beyond its copy. A request whose name nothing tells gets one of its own for
        this step, so that no check takes it for another's continuation.
        """
        laid, copies = self.laid, self.copies
        assert laid is not None
        assert laid.layout is not None
        told: tuple[str, ...] = ()
        if self.awaits_commit and batch is not None and self._stands_in(batch):
            if recorded:
                told = ("committed_lens", "committed_slots")[: 1 + self.moves_no_rows]
            else:
                take_committed(self, batch)
                copies.mark()
        names = next((n for n in (self.rids, laid.rids) if n and len(n) >= self.count), None)
        if names is None:
            names = tuple(f"unnamed-{self.number}-{place}" for place in range(self.count))
        for other in (self.walk, laid.copies, self.more):
            if other is not None:
                copies.join(other)
        return RawStep(
            number=self.number,
            laid=laid.layout,
            rids=names[: self.count],
            tree=self.tree,
            ends=self._ends(),
            packs=copies.packs,
            arriving=copies.fence(),
            next_tells=told,
            **self.facts,
        )

    def _stands_in(self, batch: Any) -> bool:
        """Whether nothing has happened to the requests until ``batch`` is verified, whose first ones they are."""
        now = (getattr(batch, "reqs", None) or ())[: len(self.requests)]
        return (
            self.lengths is not None
            and len(now) == len(self.requests)
            and all(
                each is request and len(each.output_ids) == length
                for each, request, length in zip(now, self.requests, self.lengths, strict=True)
            )
        )

    def _ends(self) -> Ends | None:
        """How the requests stood in plain numbers, and the stops; their lists may have grown since."""
        if self.outputs is None or self.lengths is None or self.finished is None:
            return None
        parts = zip(self.outputs, self.outputs_before, self.lengths, strict=True)
        emitted = tuple(tuple(map(int, tokens[start:end])) for tokens, start, end in parts)
        # Stops are told for the whole batch: with a request that passes over them, nothing can be said of the others'.
        ignored = any(_ignores_stops(request) for request in self.requests)
        own = () if ignored else self.requests
        stops = {int(t) for r in own for t in (getattr(r, "eos_token_ids", None) or ())}
        return Ends(emitted, tuple(map(bool, self.finished)), tuple(sorted(stops)))


def begin(spec_info: Any, batch: Any, logits_output: Any) -> Verifying:
    """Before verification: note links, tokens, places and lengths. Raises :class:`NotCopied`."""
    requests = tuple(getattr(batch, "reqs", None) or ())
    logits = getattr(logits_output, "next_token_logits", None)
    step = Verifying(
        spec_info,
        batch,
        logits,
        len(batch.seq_lens),
        requests,
        tuple(str(request.rid) for request in requests) or None,
        tuple(len(request.output_ids) for request in requests),
        _facts(spec_info, batch, logits),
    )
    _take_inputs(step)
    _take_prefix_slots(step)
    return step


def _facts(spec_info: Any, batch: Any, logits: torch.Tensor | None) -> dict[str, Any]:
    greedy = getattr(getattr(batch, "sampling_info", None), "is_all_greedy", None)
    topk = getattr(spec_info, "tree_topk", None) or getattr(spec_info, "topk", None)
    page = getattr(getattr(batch, "tree_cache", None), "page_size", None)
    return {
        "greedy": greedy if isinstance(greedy, bool) else None,
        "vocab_size": None if logits is None else int(logits.shape[-1]),
        "logits_dtype": None if logits is None else str(logits.dtype).removeprefix("torch."),
        "topk": topk if isinstance(topk, int) and topk > 0 else None,
        "page_size": page if isinstance(page, int) and page > 0 else None,
        "algorithm": type(spec_info).__name__,
    }


def _take_inputs(step: Verifying) -> None:
    spec, batch, take = step.spec_info, step.batch, step.copies.take
    take("draft_token", spec.draft_token)
    take("own_positions", getattr(spec, "positions", None))
    take("own_out_cache_loc", batch.out_cache_loc)
    take("prefix_lens", batch.seq_lens)
    take("next_token", getattr(spec, "retrieve_next_token", None))
    take("next_sibling", getattr(spec, "retrieve_next_sibling", None))
    take("node_counts", getattr(spec, "node_counts", None))


def _take_prefix_slots(step: Verifying) -> None:
    """KV slots of the committed tokens, from the request table itself: [requests, longest prefix]."""
    batch, count = step.batch, step.count
    lengths = host_lengths(getattr(batch, "seq_lens_cpu", None), count)
    table = getattr(getattr(batch, "req_to_token_pool", None), "req_to_token", None)
    if lengths and table is not None:
        step.copies.take_rows("prefix_slots", table, max(lengths), batch.req_pool_indices)


def predict(step: Verifying) -> None:
    """What the target model prefers in each row, once: its two best tokens and their logits."""
    rows = step.count * rows_of(step.spec_info)
    if step.best is None and step.logits is not None and len(step.logits) >= rows:
        step.best = top2(step.logits[:rows])


def take_committed(step: Verifying, batch: Any) -> None:
    """After a verification that commits by itself: new lengths, and the slots that the table names for them.

    ``batch``: whose first requests are the step's. With pages, keys and values are copied between slots, so the table
    says nothing about whose they are.
    """
    count = step.count
    step.copies.take("committed_lens", batch.seq_lens, count)
    table = getattr(getattr(batch, "req_to_token_pool", None), "req_to_token", None)
    lengths = host_lengths(getattr(batch, "seq_lens_cpu", None), count)
    if step.moves_no_rows and table is not None and lengths:
        rows = batch.req_pool_indices
        own = rows if len(rows) == count else rows[:count]
        with suppress(NotCopied):  # larger than is taken: unknown
            step.copies.take_rows("committed_slots", table, max(lengths), own)
