"""Reads a verification: what it was given before it runs, what it decided after it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from engine.sglang.host import HostCopies
from engine.sglang.laid import host_lengths, rows_of


@dataclass
class Verifying:
    """One verification under way."""

    spec_info: Any
    batch: Any
    logits: torch.Tensor | None  # [rows, vocabulary]; penalties are added to it in place
    count: int  # live requests
    rids: tuple[str, ...] | None  # None where the batch does not know its requests
    outputs_before: tuple[int, ...]  # tokens that each request had emitted
    greedy: bool | None
    copies: HostCopies = field(default_factory=HostCopies)


@dataclass(frozen=True)
class Ends:
    """How the requests stand after a verification that emits by itself, in lists the host has anyway."""

    emitted: tuple[tuple[int, ...], ...]
    finished: tuple[bool, ...]
    stops: tuple[int, ...]  # end-of-sequence tokens


def begin(spec_info: Any, batch: Any, logits_output: Any) -> Verifying:
    """Before verification: links, tokens, places and lengths. Raises :class:`NotCopied`."""
    requests = list(getattr(batch, "reqs", None) or ())
    logits = getattr(logits_output, "next_token_logits", None)
    greedy = getattr(getattr(batch, "sampling_info", None), "is_all_greedy", None)
    step = Verifying(
        spec_info,
        batch,
        logits,
        len(batch.seq_lens),
        tuple(str(request.rid) for request in requests) or None,
        tuple(len(request.output_ids) for request in requests),
        greedy if isinstance(greedy, bool) else None,
    )
    _take_inputs(step)
    _take_prefix_slots(step)
    step.copies.mark()
    return step


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
        rows = table[:, : max(lengths)].index_select(0, batch.req_pool_indices)
        step.copies.take("prefix_slots", rows)


def take_predictions(step: Verifying) -> None:
    """What the target model prefers in each row: its two best tokens, and whether the row is finite."""
    rows = step.count * rows_of(step.spec_info)
    if step.logits is None or len(step.logits) < rows:
        return
    logits = step.logits[:rows]
    step.copies.take("argmax", logits.argmax(dim=-1))
    values, indices = logits.topk(2, dim=-1)
    step.copies.take("top2_values", values.float())
    step.copies.take("top2_ids", indices)
    # NaN and +inf are largest; -inf alone is what grammars leave behind
    step.copies.take("finite", torch.isfinite(values[:, 0]))


def take_committed(step: Verifying, page_size: int | None) -> None:
    """After a verification that commits by itself: new lengths, and the slots that the table names for them.

    With pages, keys and values are copied between slots, so the table says nothing about whose they are.
    """
    batch, count = step.batch, step.count
    step.copies.take("committed_lens", batch.seq_lens[:count])
    table = getattr(getattr(batch, "req_to_token_pool", None), "req_to_token", None)
    lengths = host_lengths(getattr(batch, "seq_lens_cpu", None), count)
    if page_size == 1 and table is not None and lengths:
        rows = table[:, : max(lengths)].index_select(0, batch.req_pool_indices)
        step.copies.take("committed_slots", rows)


def ends(step: Verifying) -> Ends:
    """What each request emitted, from its own list."""
    requests = list(step.batch.reqs)
    pairs = zip(requests, step.outputs_before, strict=True)
    stops = {int(t) for r in requests for t in (getattr(r, "eos_token_ids", None) or ())}
    return Ends(
        tuple(tuple(int(t) for t in request.output_ids[before:]) for request, before in pairs),
        tuple(bool(request.finished()) for request in requests),
        tuple(sorted(stops)),
    )
