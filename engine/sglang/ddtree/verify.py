"""One verification: the target's choices, the accepted paths, stops, and the commit into SGLang's tables.

Handed over afterwards, as DFLASH's worker takes it: bonus tokens, committed lengths, the features of the committed rows
in path order, and accepted drafts a request. The host waits for the device once, in :func:`told`; where graphs serve
(:mod:`.ahead`), the drafter's cache is written meanwhile, and no features are handed over.

The tap watches :func:`verify` and :func:`walk` (``engine.sglang.table``).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engine.decoding.device_tree import TreeTensors
from engine.sglang.ddtree.accept import Accepted, accept
from engine.sglang.ddtree.ahead import Ahead
from engine.sglang.ddtree.arriving import Arriving, Lists
from engine.sglang.ddtree.choose import choose
from engine.sglang.ddtree.commit import Commit, commit_rows, emit
from engine.sglang.ddtree.options import Options

Verified = tuple[Tensor, Tensor, Tensor, list[int]]


def verify(verify_input: Any, batch: Any, logits_output: Any, page_size: int) -> Verified:
    """Bonus tokens int64 [bs], committed rows int32 [bs], features [sum, F], accepted drafts of each request.

    ``logits_output.next_token_logits`` [bs * width, V], ``hidden_states`` [bs * width, F].
    """
    if batch.forward_mode.is_idle():
        nothing = torch.empty(0, dtype=torch.int64, device=batch.device)
        return nothing, nothing.to(torch.int32), nothing, []
    if page_size != 1:
        raise RuntimeError(f"DDTREE: expected pages of one token, found {page_size}")
    hidden = logits_output.hidden_states
    if hidden is None:
        raise RuntimeError("DDTREE: the target's forward captured no hidden states")
    options: Options = verify_input.options
    width, count = options.target_width, batch.batch_size()
    predict = choose(logits_output.next_token_logits, batch.sampling_info, width)
    tree, ahead = verify_input.tree, verify_input.ahead
    arriving = Arriving(walk(tree, predict.view(count, width), options.steps, ahead, batch).packed)
    if ahead is not None:
        append_ahead(ahead, hidden)
    paths, said = told(arriving)
    think_end_id = getattr(batch.model_config, "think_end_id", None)
    lengths = [emit(r, own, think_end_id) for r, own in zip(batch.reqs, said, strict=True)]
    commit = commit_rows(paths, lengths, width, options.fault)
    bonus = [int(request.output_ids[-1]) for request in batch.reqs]
    logits_output.hidden_states = None  # nobody else is to read rows that are no prompt
    if ahead is None:
        features = commit.features
    else:
        verify_input.appended, features = True, []
    return commit_to_tables(batch, hidden, commit, bonus, features)


def walk(
    trees: TreeTensors, predict: Tensor, steps: int, ahead: Ahead | None, batch: Any
) -> Accepted:
    """Accepted paths for ``predict`` int64 [bs, width], in a graph where there are any; ``ahead``: of these trees."""
    if ahead is None:
        return accept(trees, predict, steps)
    return ahead.accept(predict, batch.seq_lens, batch.out_cache_loc)


def append_ahead(ahead: Ahead, hidden: Tensor) -> None:
    """Launch the drafter's cache for all accepted rows: a stage of its own, for whoever measures."""
    ahead.append(hidden)


def told(arriving: Arriving) -> tuple[Lists, Lists]:
    """The host's wait, a stage of its own."""
    return arriving.lists()


def commit_to_tables(
    batch: Any, hidden: Tensor, commit: Commit, bonus: list[int], features: list[int]
) -> Verified:
    """Give back what was rejected, name the kept slots in path order, move the lengths on.

    ``features``: rows of ``hidden`` that are handed over.
    """
    from sglang.srt.speculative.spec_utils import assign_req_to_token_pool_func

    before = batch.seq_lens_cpu.tolist()
    ends = [start + length for start, length in zip(before, commit.lengths, strict=True)]
    after, lens, bonus_tokens, rows, handed = _to_device(  # the first is aligned, for kernels
        [ends, commit.lengths, bonus, commit.kept + commit.freed, features], hidden.device
    )
    slots = batch.out_cache_loc.index_select(0, rows)
    batch.token_to_kv_pool_allocator.free(slots[len(commit.kept) :])
    batch.out_cache_loc = slots[: len(commit.kept)]
    drafts = [length - 1 for length in commit.lengths]
    for request, length in zip(batch.reqs, commit.lengths, strict=True):
        request.kv_committed_len += length
        request.kv_allocated_len = request.kv_committed_len
        request.spec_verify_ct += 1
        request.spec_num_correct_drafts += length - 1
        request.update_spec_correct_drafts_histogram(length - 1)
    after = after.to(batch.seq_lens.dtype)
    assign_req_to_token_pool_func(
        batch.req_pool_indices,
        batch.req_to_token_pool.req_to_token,
        batch.seq_lens,
        after,
        batch.out_cache_loc,
        len(commit.lengths),
    )
    batch.seq_lens = after
    batch.seq_lens_cpu.add_(torch.tensor(commit.lengths, dtype=batch.seq_lens_cpu.dtype))
    batch.seq_lens_sum += sum(commit.lengths)
    features_out = hidden.index_select(0, handed) if features else hidden[:0]
    return bonus_tokens, lens.to(torch.int32), features_out, drafts


def _to_device(lists: list[list[int]], device: torch.device) -> tuple[Tensor, ...]:
    """int64 tensors of lists, in one copy that the host does not wait for."""
    numbers = [x for part in lists for x in part]
    flat = torch.tensor(numbers, dtype=torch.int64, pin_memory=device.type == "cuda")
    return torch.split(flat.to(device, non_blocking=True), [len(part) for part in lists])
