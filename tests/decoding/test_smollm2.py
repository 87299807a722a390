"""SmolLM2 itself: the story, and losslessness over budgets, top-k, batch sizes and launch modes."""

from functools import cache

import pytest

from engine.checks.registry import check_trace
from engine.decoding.events import Finished, StepRecorded
from engine.decoding.run_settings import RunSettings
from engine.decoding.session import run
from engine.models.catalog import Target, load_target

pytestmark = pytest.mark.model
OCEAN = "Write a short poem about the ocean."
QUICKSORT = "Write a Python quicksort with comments."
PROMPTS = (OCEAN, QUICKSORT, "What is 17 + 25? Explain step by step.")


@cache
def target() -> Target:
    return load_target("smollm2")


def finish(**changes):
    chosen = RunSettings(**{"max_new_tokens": 20, **changes})
    events = list(run(chosen, target()))
    assert isinstance(events[-1], Finished)
    steps = [event.step for event in events if isinstance(event, StepRecorded)]
    return events[-1].summary, check_trace(steps)


@pytest.mark.parametrize(
    ("budget", "topk", "batch", "mode", "drafter"),
    [
        (1, None, 3, "replay", "dflash"),
        (7, 1, 3, "eager", "dflash"),
        (16, 4, 3, "replay", "dflash"),
        (64, None, 1, "eager", "dflash"),
        (64, 4, 1, "replay", "prompt-lookup"),
        (16, 1, 1, "eager", "oracle"),
    ],
)
def test_text_equals_plain_decoding(budget, topk, batch, mode, drafter) -> None:
    summary, report = finish(
        prompts=PROMPTS[:batch], budget=budget, topk=topk, mode=mode, drafter=drafter, accuracy=0.8
    )
    assert [r.first_difference for r in summary.requests] == [None] * batch
    assert report.findings == ()


@pytest.mark.parametrize(("budget", "topk", "same"), [(7, 1, True), (16, 1, False), (16, 4, False)])
def test_the_story(budget: int, topk: int, same: bool) -> None:
    summary, report = finish(
        prompts=(QUICKSORT,), budget=budget, topk=topk, fault="verify-width", max_new_tokens=32,
        accuracy=1.0, reference=False, drafter="oracle",
    )  # fmt: skip
    assert summary.lossless == same
    first = report.findings[0] if report.findings else None
    assert (first is None) == same
    if first is not None:
        assert (first.check, first.diagnosis) == ("I1", "width-mismatch")
        for part in ("8", "17", "num_draft_tokens"):
            assert part in first.message


def test_acceptance_with_a_perfect_drafter_is_the_block_and_falls_with_the_fault() -> None:
    right, _ = finish(
        prompts=(QUICKSORT,), topk=1, drafter="oracle", accuracy=1.0, max_new_tokens=33,
        reference=False,
    )  # fmt: skip
    wrong, _ = finish(
        prompts=(QUICKSORT,), topk=1, drafter="oracle", accuracy=1.0, max_new_tokens=33,
        reference=False, fault="verify-width",
    )  # fmt: skip
    assert set(right.requests[0].accept_lengths) == {8}
    lengths = wrong.requests[0].accept_lengths
    assert sum(lengths) / len(lengths) < 6
