"""Short clean recordings of the engine, once a shape and process, whose arrays nobody can write to."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from engine.checks.registry import Report
from engine.decoding.settings import EngineConfig, Graph
from engine.decoding.stages import CORRECT
from engine.faults import inject
from engine.models.tiny import random_decoder
from engine.step import VerifyStep
from tests.decoding.runs import PROMPTS, run_engine

MODEL = random_decoder("llama", seed=0, num_layers=3)
STEPS = 2  # the fewest in which one step follows another
NEW_TOKENS = 7
# Budget, top-k and block size. Chain and mixed trees leave padding rows, a bushy tree fills its rows.
SHAPES = {"chain": (8, 1, 6), "bushy": (10, None, 6), "mixed": (8, 2, 3)}
ACCURACY = 0.7  # of the drafter


class Case(NamedTuple):
    """One recording."""

    shape: str
    batch: int
    graph: Graph

    def __str__(self) -> str:
        return f"{self.shape}-{self.batch}-{self.graph}"


EAGER, REPLAY = Graph.EAGER, Graph.REPLAY
CASES = (  # each shape alone and in a batch, eager and replayed; each size eager and replayed
    Case("chain", 1, EAGER),
    Case("chain", 3, REPLAY),
    Case("bushy", 1, EAGER),
    Case("bushy", 3, REPLAY),
    Case("mixed", 1, REPLAY),
    Case("mixed", 3, EAGER),
)


@cache
def recording(case: Case) -> tuple[VerifyStep, ...]:
    """The first steps of a clean run; in a replay some captured request is not live."""
    steps = _run(case)[:STEPS]
    assert all(step.raw_bs == case.batch for step in steps)
    assert all((step.captured_bs > step.raw_bs) == (case.graph is REPLAY) for step in steps)
    for step in steps:
        _freeze(step)
    return tuple(steps)


def faulty_run(fault: str, case: Case) -> list[VerifyStep]:
    """A whole run of the engine with one of its own faults, made so that the fault shows."""
    emitted = recording(case)[0].outcome.emitted
    assert emitted is not None
    if fault == "past-stop":  # the first step goes on behind its first token
        return _run(case, fault, stop=(int(emitted[0][0]),))
    if (
        fault == "gather-twice"
    ):  # a drafter that is often wrong, so that accepted nodes lie far apart
        return _run(case, fault, accuracy=0.3)
    return _run(case, fault)


def _run(
    case: Case,
    fault: str | None = None,
    *,
    stop: tuple[int, ...] = (),
    accuracy: float = ACCURACY,
) -> list[VerifyStep]:
    budget, topk, block_size = SHAPES[case.shape]
    replays = case.graph is REPLAY
    config = EngineConfig(
        budget=budget,
        topk=topk,
        block_size=block_size,
        graph=case.graph,
        captured_bs=(2, 4),
        max_context=60,
        stages=CORRECT if fault is None else inject(fault, replay=replays),
        stop=stop,
    )
    prompts = PROMPTS[: case.batch]
    _, steps = run_engine(MODEL, config, prompts, NEW_TOKENS, fault=fault, accuracy=accuracy)
    return steps


def _freeze(record: Any) -> None:
    """No array of the record can be changed in place."""
    if isinstance(record, np.ndarray):
        record.flags.writeable = False
    elif isinstance(record, tuple):
        for item in record:
            _freeze(item)
    elif is_dataclass(record):
        for field in fields(record):
            _freeze(getattr(record, field.name))


def causes(report: Report) -> set[tuple[str, str | None]]:
    """(check, diagnosis) of every cause."""
    return {(finding.check, finding.diagnosis) for finding in report.causes}
