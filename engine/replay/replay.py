"""A recording through our own engine: every node of every step again, with plain attention over its root path.

Covered: one rank, steps in order of time, temperature 0. Not covered: samples, which differ by design, and what made a
row differ (the checks say that).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from engine.checks.context import StepContext
from engine.models.decoder import Decoder
from engine.models.device import to_host
from engine.replay.choices import Choices
from engine.replay.lineage import Lineage
from engine.replay.rows import RequestRows, compare_rows
from engine.step import UNKNOWN_TOKEN, Reference, VerifyStep
from engine.trace.header import PromptRecord
from engine.trace.reader import Trace


@dataclass(frozen=True, eq=False)
class ReplayedStep:
    """One step: as recorded but for ``reference``, which holds plain decoding's choices, and the comparison."""

    step: VerifyStep
    requests: tuple[RequestRows, ...]


def replay(
    trace: Trace, rank: int, model: Decoder, prompts: Sequence[PromptRecord] = ()
) -> Iterator[ReplayedStep]:
    """Replay a rank's steps in order. ``prompts``: those that the recording lacks.

    Raises ``ValueError`` for sampled steps, ``TraceFormatError`` as reading does.
    """
    replayed = _Replay(Lineage((*trace.header.prompts, *prompts)), Choices(model))
    for position in range(len(trace)):
        if trace.key(position)[1] == rank:
            yield replayed.step(trace.step(position))


class _Replay:
    def __init__(self, lineage: Lineage, choices: Choices) -> None:
        self._lineage, self._choices = lineage, choices

    def step(self, step: VerifyStep) -> ReplayedStep:
        """Replay the next step."""
        if step.config.temperature:
            raise ValueError(
                f"step {step.step}: expected temperature 0, found {step.config.temperature:g}: samples differ by design"
            )
        context = StepContext(step)
        found: list[RequestRows] = []
        logits: dict[int, Tensor] = {}
        for request, record in enumerate(step.requests):
            try:
                rows, logits[request] = self._request(context, request)
            except ValueError as error:
                rows = RequestRows(step.step, step.rank, record.rid, problem=str(error))
                self._lineage.add(context, request)
                self._choices.commit(record.rid, ())
            found.append(rows)
        return ReplayedStep(_with_reference(context, logits), tuple(found))

    def _request(self, context: StepContext, request: int) -> tuple[RequestRows, Tensor]:
        rid = context.step.requests[request].rid
        tokens = self._lineage.before(context, request)
        if context.step.requests[request].tree.tokens is None:
            raise ValueError(f"{rid}: expected the tree's tokens, found none")
        logits = to_host(self._choices.verify(rid, tokens, context.oracle.trees[request])).float()
        rows = compare_rows(context, request, logits)
        self._choices.commit(rid, self._lineage.add(context, request))
        return rows, logits


def _with_reference(context: StepContext, logits: dict[int, Tensor]) -> VerifyStep:
    """The step with plain decoding's choices where they are known; unknown on every other row."""
    predict = context.step.outcome.target_predict
    if not logits or predict is None:
        return replace(context.step, reference=Reference())
    choices = np.full(len(predict), UNKNOWN_TOKEN, np.int64)
    top2 = np.full((len(predict), 2, 2), np.nan)
    for request, found in logits.items():
        rows, best = context.oracle.real_rows(request), found.topk(2, dim=-1)
        choices[rows.start : rows.stop] = found.argmax(dim=-1).numpy()
        pairs = torch.stack([best.indices.double(), best.values.double()], dim=-1)
        top2[rows.start : rows.stop] = pairs.numpy()
    return replace(context.step, reference=Reference(choices, top2))
