"""A run from prompts to a recording, as events."""

import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from engine.checks.registry import check_trace
from engine.decoding.events import Finished, PlainTokens, StepRecorded, TreeTokens
from engine.decoding.run_settings import RunSettings
from engine.decoding.session import first_difference, run
from engine.faults import FAULTS
from engine.faults.injector import INJECTORS
from engine.trace import open_trace
from tests.decoding.tiny_target import tiny_target

PROMPTS = ("hello there", "one")


def settings(**changes) -> RunSettings:
    return RunSettings(**{"prompts": PROMPTS, "max_new_tokens": 20, "drafter": "oracle", **changes})


def finish(chosen: RunSettings, path: Path | None = None) -> tuple[list, Finished]:
    events = list(run(chosen, tiny_target(), trace_path=path))
    assert isinstance(events[-1], Finished)
    return events, events[-1]


@pytest.mark.parametrize("method", ["ddtree", "chain"])
@pytest.mark.parametrize("mode", ["eager", "replay"])
def test_texts_equal_plain_decoding(method: str, mode: str) -> None:
    _, end = finish(settings(method=method, mode=mode))
    assert end.summary.lossless
    for request in end.summary.requests:
        assert request.tree_text == request.plain_text
        assert len(request.tree_tokens) == 20
        assert sum(request.accept_lengths) >= 19


def test_sampled_texts_equal_plain_sampling() -> None:
    assert finish(settings(temperature=0.9, seed=4))[1].summary.lossless


def test_a_faulty_run_says_where_its_text_leaves_plain_decoding() -> None:
    _, end = finish(settings(fault="verify-width", prompts=PROMPTS[:1]))
    (request,) = end.summary.requests
    at = request.first_difference
    assert at is not None
    assert request.plain_tokens[:at] == request.tree_tokens[:at]
    assert request.plain_tokens[at] != request.tree_tokens[at]


def test_what_is_recorded_is_what_was_said(tmp_path: Path) -> None:
    path = tmp_path / "run.ddtree.arrow"
    events, end = finish(settings(), path)
    trace = open_trace(path)
    assert list(trace) == [event.step for event in events if isinstance(event, StepRecorded)]
    assert not trace.truncated
    assert trace.header.model == "tiny"
    assert [p.text for p in trace.header.prompts] == list(PROMPTS)
    assert [p.plain_tokens for p in trace.header.prompts] == [
        r.plain_tokens for r in end.summary.requests
    ]
    assert end.summary.steps == len(trace)
    assert check_trace(trace).findings == ()


def test_closing_keeps_what_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "run.ddtree.arrow"
    stream = run(settings(), tiny_target(), trace_path=path)
    for event in stream:
        if isinstance(event, StepRecorded) and event.step.step == 1:
            break
    stream.close()
    trace = open_trace(path)
    assert len(trace) == 2
    assert not trace.truncated


def test_text_grows_as_it_is_decoded() -> None:
    events, _ = finish(settings(prompts=PROMPTS[:1]))
    for kind in (PlainTokens, TreeTokens):
        texts = [event.text for event in events if isinstance(event, kind)]
        assert len(texts) > 1
        for shorter, longer in pairwise(texts):
            assert longer.startswith(shorter)


def test_autoregressive_records_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.ddtree.arrow"
    _, end = finish(settings(method="autoregressive"), path)
    assert end.summary.lossless
    assert end.summary.steps == 0
    assert not path.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompts": ()}, "prompts: expected at least one"),
        ({"prompts": ("a", " ")}, "prompts: expected at least one, none of them blank"),
        (
            {"method": "magic"},
            "method: expected one of ddtree, chain, autoregressive, found 'magic'",
        ),
        (
            {"drafter": "x"},
            "drafter: expected one of dflash, oracle, prompt-lookup or a DFlash folder with config.json, found 'x'",
        ),
        ({"drafter": "dflash", "model": "nosuch"}, "model 'nosuch': expected smollm2, a Hugging"),
        (
            {"drafter": "dflash", "model": "org/other"},
            r"drafter dflash: expected a model that one is bundled with \(smollm2\), found org/other\. Either give",
        ),
        ({"max_depth": 0}, "max_depth: expected at least 1, or no cap, found 0"),
        ({"mode": "graph"}, "mode: expected one of eager, replay"),
        ({"backend": "x"}, "backend: expected one of addressed, dense"),
        ({"fault": "x"}, "fault: expected one of verify-width"),
        ({"fault": "stale-mask"}, "fault stale-mask: needs replay mode"),
        ({"max_new_tokens": 0}, "max_new_tokens: expected at least 1, found 0"),
        ({"topk": 0}, "topk: expected at least 1, or no cap, found 0"),
        ({"budget": 0}, "budget: expected at least 1, found 0"),
        ({"block_size": 1}, "block_size: expected at least 2, found 1"),
        ({"accuracy": 2.0}, "accuracy: expected 0 … 1, found 2.0"),
        ({"temperature": -1.0}, "temperature: expected a number >= 0"),
    ],
)
def test_impossible_settings_are_named_at_once(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_new_tokens": 600}, "expected at most 512 positions, found"),
        ({"mode": "replay", "captured_bs": 1}, "captured_bs: expected one of at least 2"),
    ],
)
def test_settings_that_the_model_cannot_serve_are_named(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        finish(settings(**changes))


def test_the_command_repeats_the_settings() -> None:
    chosen = settings(topk=None, mode="replay", fault="stale-mask", reference=False, budget=7)
    words = shlex.split(chosen.command())
    assert words[:6] == ["ddtree", "run", "--prompt", "hello there", "--prompt", "one"]
    assert words[words.index("--topk") + 1] == "0"
    assert words[words.index("--budget") + 1] == "7"
    assert words[words.index("--fault") + 1] == "stale-mask"
    assert "--no-reference" in words
    assert "--seed" not in words


@pytest.mark.parametrize(
    ("left", "right", "at"),
    [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1, 2], [1], 1), ([], [4], 0), ([], [], None)],
)
def test_first_difference(left: list[int], right: list[int], at: int | None) -> None:
    assert first_difference(left, right) == at


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompts": ("\udcff",)}, "prompts: expected UTF-8 text"),
        ({"model": "\udcff"}, "model: expected UTF-8 text"),
        ({"prompts": ("a",) * 1000}, "prompts: expected at most 256"),
        ({"captured_bs": 10**9, "mode": "replay"}, "captured_bs: expected at most 256"),
        ({"captured_bs": 0, "mode": "replay"}, "captured_bs: expected at least 1"),
        ({"captured_bs": 1, "mode": "replay"}, "captured_bs: expected one of at least 2"),
        ({"budget": 5000}, "budget: expected at most 2048"),
        ({"block_size": 10**9}, "block_size: expected at most 2049"),
        ({"method": "autoregressive", "fault": "verify-width"}, "needs a method with verify steps"),
    ],
)
def test_what_no_run_can_do_is_said_before_anything_is_written(
    changes: dict, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.ddtree.arrow"
    with pytest.raises(ValueError, match=words):
        finish(settings(**changes), path)
    assert not path.exists()


def test_a_replay_is_captured_for_as_many_prompts_as_there_are() -> None:
    _, end = finish(settings(prompts=("ab",) * 9, mode="replay", max_new_tokens=4))
    assert end.summary.lossless
    assert len(end.summary.requests) == 9


@pytest.mark.parametrize("fault", [None, *FAULTS])
@pytest.mark.parametrize("mode", ["eager", "replay"])
@pytest.mark.parametrize("drafter", ["oracle", "prompt-lookup"])
@pytest.mark.parametrize("temperature", [0.0, 5.0])
def test_every_fault_runs_to_its_end_on_tiny_batches(
    fault: str | None, mode: str, drafter: str, temperature: float, tmp_path: Path
) -> None:
    if fault is not None and INJECTORS[fault].needs_replay:
        mode = "replay"
    path = tmp_path / "a.ddtree.arrow"
    chosen = settings(
        prompts=("abcabcabc", "0101"),
        max_new_tokens=5,
        fault=fault,
        mode=mode,
        drafter=drafter,
        temperature=temperature,
        accuracy=0.5,
    )
    _, end = finish(chosen, path)
    report = check_trace(open_trace(path))
    assert report.steps == end.summary.steps
    assert bool(report.faults) or end.summary.lossless
