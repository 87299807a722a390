"""One verification: the target's choices, the accepted paths, stops, and the commit into SGLang's tables.

Handed over afterwards, as DFLASH's worker takes it: bonus tokens, committed lengths, the features of the committed rows
in path order, and accepted drafts a request. The host waits for the device once, in ``_to_host``.

The tap watches :func:`verify` and the walk in :mod:`.accept` (``engine.sglang.table``).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engine.sglang.ddtree.accept import Accepted, accept
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
    options: Options = verify_input.options
    width, count = options.target_width, batch.batch_size()
    predict = choose(logits_output.next_token_logits, batch.sampling_info, width)
    accepted = accept(verify_input.tree, predict.view(count, width), options.steps)
    paths, said = _to_host(accepted)
    think_end_id = getattr(batch.model_config, "think_end_id", None)
    lengths = [emit(r, own, think_end_id) for r, own in zip(batch.reqs, said, strict=True)]
    commit = commit_rows(paths, lengths, width, options.fault)
    bonus = [int(request.output_ids[-1]) for request in batch.reqs]
    return _commit(batch, logits_output, commit, bonus)


def _to_host(accepted: Accepted) -> tuple[list[list[int]], list[list[int]]]:
    """Paths and what the target says along them, in one copy."""
    packed = torch.cat([accepted.path, accepted.said, accepted.accept_length[:, None]], dim=1)
    steps = accepted.path.shape[1]
    rows = packed.cpu().tolist()
    paths = [row[: row[-1]] for row in rows]
    return paths, [row[steps : steps + row[-1]] for row in rows]


def _commit(batch: Any, logits_output: Any, commit: Commit, bonus: list[int]) -> Verified:
    """Give back what was rejected, name the kept slots in path order, move the lengths on."""
    from sglang.srt.speculative.spec_utils import assign_req_to_token_pool_func

    hidden = logits_output.hidden_states
    if hidden is None:
        raise RuntimeError("DDTREE: the target's forward captured no hidden states")
    kept, freed, features, lens, bonus_tokens = _to_device(
        [commit.kept, commit.freed, commit.features, commit.lengths, bonus], hidden.device
    )
    batch.token_to_kv_pool_allocator.free(batch.out_cache_loc.index_select(0, freed))
    batch.out_cache_loc = batch.out_cache_loc.index_select(0, kept)
    drafts = [length - 1 for length in commit.lengths]
    for request, length in zip(batch.reqs, commit.lengths, strict=True):
        request.kv_committed_len += length
        request.kv_allocated_len = request.kv_committed_len
        request.spec_verify_ct += 1
        request.spec_num_correct_drafts += length - 1
        request.update_spec_correct_drafts_histogram(length - 1)
    assign_req_to_token_pool_func(
        batch.req_pool_indices,
        batch.req_to_token_pool.req_to_token,
        batch.seq_lens,
        batch.seq_lens + lens.to(batch.seq_lens.dtype),
        batch.out_cache_loc,
        len(commit.lengths),
    )
    batch.seq_lens.add_(lens.to(batch.seq_lens.dtype))
    batch.seq_lens_cpu.add_(torch.tensor(commit.lengths, dtype=batch.seq_lens_cpu.dtype))
    batch.seq_lens_sum += sum(commit.lengths)
    logits_output.hidden_states = None  # nobody else is to read rows that are no prompt
    return bonus_tokens, lens.to(torch.int32), hidden.index_select(0, features), drafts


def _to_device(lists: list[list[int]], device: torch.device) -> tuple[Tensor, ...]:
    """int64 tensors of lists, in one copy."""
    flat = torch.tensor([x for part in lists for x in part], dtype=torch.int64).to(device)
    return torch.split(flat, [len(part) for part in lists])
