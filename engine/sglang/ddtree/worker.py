"""DFLASH's worker with another middle: its draft step up to the drafter's hidden states, then a tree.

Classes are made when they are asked for: SGLang is imported in functions alone.
"""

from __future__ import annotations

import os
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from engine.decoding.device_tree import TreeTensors
from engine.graphs.capture import in_one_pool
from engine.sglang.ddtree import verify as verification
from engine.sglang.ddtree.ahead import Ahead
from engine.sglang.ddtree.drafter_cache import DrafterCache
from engine.sglang.ddtree.options import Options, options_of
from engine.sglang.ddtree.refusals import refuse_target
from engine.sglang.ddtree.step_graphs import Make, StepGraphs
from engine.sglang.ddtree.treed import Treed, treed


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


def in_graphs(worker: Any, tp_group: Any) -> bool:
    """Where the target's forward is in graphs; a gather between ranks stays outside."""
    on = torch.device(worker.device).type == "cuda" and not worker.server_args.disable_cuda_graph
    return on and tp_group.world_size == 1 and worker.model_runner.graph_runner is not None


def tree_and_rows(make: Make, hidden: Tensor, roots: Tensor, seq_lens: Tensor) -> Treed:
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
        ahead: Ahead | None = None  # None where acceptance and the drafter's cache take no graph
        appended: bool = False  # whether the drafter's cache has got this step's rows

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
            self._make: Make
            self._graphs: StepGraphs | None = None
            self._warned_sampling_fallback = True  # DFLASH's kernels for sampling are not used here
            # Both models with their memory and graphs, and the drafter's fused helper, are there by now.
            self._made_with(self.model_runner.model.lm_head)

        def _greedy_sample_from_vocab_parallel_head(
            self, *, hidden_states: Tensor, lm_head: Any, chunk_size: int = 256
        ) -> Tensor:
            raise Drafted(hidden_states, lm_head)

        def _made_with(self, lm_head: Any) -> None:
            """``_make`` and ``_graphs`` for this head, which the graphs hold."""
            if self._made_for is lm_head:
                return
            group, options = get_tp_group(), self.options

            def make(hidden: Tensor, roots: Tensor, seq_lens: Tensor) -> Treed:
                return treed(hidden, roots, seq_lens, lm_head, options, group)

            self._make, self._graphs = make, None
            if in_graphs(self, group):
                self._graphs = StepGraphs(
                    self.model_runner.graph_runner.capture_bs,
                    make,
                    DrafterCache.of(self, options),
                    options,
                    self.draft_model.fc.weight,
                    in_one_pool(),
                )
                self._make = self._graphs.treed
            self._made_for = lm_head

        def _prepare_for_speculative_decoding(self, batch: Any, draft_input: Any) -> None:
            try:
                super()._prepare_for_speculative_decoding(batch, draft_input)
            except Drafted as drafted:
                hidden, lm_head = drafted.hidden, drafted.lm_head
            else:
                return  # extend or idle: nothing is drafted
            options, roots = self.options, draft_input.bonus_tokens.long()
            self._made_with(lm_head)
            made = tree_and_rows(self._make, hidden, roots, batch.seq_lens)
            tree, rows, graphs = made.tree, made.rows, self._graphs
            verify_input = verify_input_class()(
                draft_token=rows.draft_token,
                positions=rows.positions,
                draft_token_num=options.target_width,
                tree=tree,
                options=options,
                retrieve_next_token=tree.retrieve_next_token,
                retrieve_next_sibling=tree.retrieve_next_sibling,
                node_counts=tree.counts,
                ahead=None if graphs is None else graphs.ahead(batch.seq_lens_cpu),
            )
            verify_input.prepare_for_verify(batch, self.page_size, build_custom_mask=False)
            verify_input.custom_mask = rows.custom_mask(int(batch.seq_lens_cpu.sum()))
            batch.forward_mode = ForwardMode.TARGET_VERIFY
            batch.spec_info = verify_input
            batch.return_hidden_states = False

        def _append_target_hidden_to_draft_kv(self, batch: Any, draft_input: Any) -> None:
            if getattr(batch.spec_info, "appended", False):
                # Launched with the acceptance: the rows are there, and no features were handed over.
                draft_input.draft_seq_lens = batch.seq_lens.to(torch.int32)
                draft_input.ctx_lens = torch.zeros_like(draft_input.ctx_lens)
            elif draft_input.target_hidden is None or len(draft_input.target_hidden):
                super()._append_target_hidden_to_draft_kv(batch, draft_input)
            # Without features there is nothing to do: whoever took the last ones has left zeros in ``ctx_lens``.

    return DDTreeWorker
