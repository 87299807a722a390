"""DFLASH's worker with another middle: its draft step up to the drafter's hidden states, then a tree.

Classes are made when they are asked for: SGLang is imported in functions alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import Tensor

from engine.decoding.device_tree import TreeTensors
from engine.sglang.ddtree import verify as verification
from engine.sglang.ddtree.options import Options, options_of
from engine.sglang.ddtree.refusals import refuse_target
from engine.sglang.ddtree.treed import Treed, TreeGraphs, treed


class Drafted(Exception):
    """Ends DFLASH's draft step where it would choose its chain; the draft block's slots are given back by then."""

    def __init__(self, hidden: Tensor, lm_head: Any) -> None:
        super().__init__("drafted")
        self.hidden, self.lm_head = hidden, lm_head


def same_everywhere(options: Options, tp_group: Any) -> Options:
    """``options`` if rank 0 has the same ones; ranks with other trees would wait for each other for ever."""
    first = tp_group.broadcast_object(options, src=0)
    if first != options:
        raise ValueError(
            f"DDTREE: expected the same options on every rank, found {options} beside {first}"
        )
    return options


def tree_and_rows(
    make: Callable[..., Treed], hidden: Tensor, roots: Tensor, seq_lens: Tensor
) -> Treed:
    """A stage of its own, for whoever measures (:mod:`engine.sglang.times`)."""
    return make(hidden, roots, seq_lens)


@cache
def verify_input_class() -> type:
    """A verify input with its tree; attention backends and graphs take it for DFLASH's."""
    from sglang.srt.speculative.dflash_info import DFlashVerifyInput

    @dataclass
    class DDTreeVerifyInput(DFlashVerifyInput):  # type: ignore[misc]
        """Rows of a tree a request."""

        tree: TreeTensors | None = None
        options: Options | None = None
        retrieve_next_token: Tensor | None = None  # int64 [bs, width], for whoever watches
        retrieve_next_sibling: Tensor | None = None
        node_counts: Tensor | None = None  # int64 [bs]; rows from there on are padding

        @property
        def tree_topk(self) -> int | None:
            """Ranks that a depth may use, for whoever watches; ``topk`` is DFLASH's own."""
            return None if self.options is None else self.options.candidates

        def verify(self, *, batch: Any, logits_output: Any, page_size: int) -> Any:
            """What DFLASH's worker calls after the target's forward."""
            return verification.verify(self, batch, logits_output, page_size)

    return DDTreeVerifyInput


@cache
def worker_class() -> type:
    """The worker of the algorithm."""
    from sglang.srt.distributed import get_tp_group
    from sglang.srt.model_executor.forward_batch_info import ForwardMode
    from sglang.srt.speculative.dflash_worker import DFlashWorker

    class DDTreeWorker(DFlashWorker):  # type: ignore[misc]
        """Drafts with DFLASH, verifies trees."""

        def __init__(self, server_args: Any, *args: Any, **kwargs: Any) -> None:
            target = kwargs.get("target_worker")
            refusal = refuse_target((target or args[-1]).model_runner)
            if refusal:
                raise ValueError(refusal)
            options = options_of(server_args, os.environ)
            draft_args = deepcopy(server_args)
            draft_args.speculative_num_draft_tokens = options.draft_width
            super().__init__(draft_args, *args, **kwargs)
            self.server_args = server_args
            self.options = same_everywhere(options, get_tp_group())
            self._made_for: Any = None  # the head that ``_make`` uses
            self._make: Callable[..., Treed]
            self._warned_sampling_fallback = True  # DFLASH's kernels for sampling are not used here

        def _greedy_sample_from_vocab_parallel_head(
            self, *, hidden_states: Tensor, lm_head: Any, chunk_size: int = 256
        ) -> Tensor:
            raise Drafted(hidden_states, lm_head)

        def _maker(self, lm_head: Any, on_gpu: bool) -> Callable[..., Treed]:
            """In a graph where the target's forward is in one; a gather between ranks stays outside."""
            if self._made_for is not lm_head:
                group, options = get_tp_group(), self.options

                def make(hidden: Tensor, roots: Tensor, seq_lens: Tensor) -> Treed:
                    return treed(hidden, roots, seq_lens, lm_head, options, group)

                graphs = (
                    on_gpu and not self.server_args.disable_cuda_graph and group.world_size == 1
                )
                self._made_for, self._make = lm_head, TreeGraphs(make) if graphs else make
            return self._make

        def _prepare_for_speculative_decoding(self, batch: Any, draft_input: Any) -> None:
            try:
                super()._prepare_for_speculative_decoding(batch, draft_input)
            except Drafted as drafted:
                hidden, lm_head = drafted.hidden, drafted.lm_head
            else:
                return  # extend or idle: nothing is drafted
            options, roots = self.options, draft_input.bonus_tokens.long()
            make = self._maker(lm_head, hidden.is_cuda)
            made = tree_and_rows(make, hidden, roots, batch.seq_lens)
            tree, rows = made.tree, made.rows
            verify_input = verify_input_class()(
                draft_token=rows.draft_token,
                positions=rows.positions,
                draft_token_num=options.target_width,
                tree=tree,
                options=options,
                retrieve_next_token=tree.retrieve_next_token,
                retrieve_next_sibling=tree.retrieve_next_sibling,
                node_counts=tree.counts,
            )
            verify_input.prepare_for_verify(batch, self.page_size, build_custom_mask=False)
            verify_input.custom_mask = rows.custom_mask(int(batch.seq_lens_cpu.sum()))
            batch.forward_mode = ForwardMode.TARGET_VERIFY
            batch.spec_info = verify_input
            batch.return_hidden_states = False

    return DDTreeWorker
