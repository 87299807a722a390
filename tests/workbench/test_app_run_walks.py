"""Drafter against target on the Run page. Run: pytest tests/workbench/test_app_run_walks.py."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from app_driver import figures, open_app, params, words
from streamlit.testing.v1 import AppTest
from tiny_runs import finished, settings, tiny

from engine.decoding.run_settings import RunSettings
from engine.models.dflash_tiny import random_dflash
from engine.models.dflash_weights import save_dflash
from engine.models.tiny import random_decoder
from engine.step import VerifyStep
from workbench import run_form, runs
from workbench.runs import Job, RunStore, State

PAIR = ("Hello there", "Other words of it")


@pytest.fixture(scope="module")
def dflash(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random drafter of the tiny model."""
    folder = tmp_path_factory.mktemp("drafter")
    save_dflash(random_dflash(random_decoder("llama", seed=1), seed=1, block_size=4), folder)
    return str(folder)


def shown(store: RunStore, job: Job, **query: object) -> AppTest:
    assert job.state in (State.FINISHED, State.STOPPED), job.error
    at = open_app("run", trace="clean", run=job.id, **query)
    assert not at.exception
    return at


def figure_with(at: AppTest, name: str) -> dict | None:
    """The figure that holds a trace of this name."""
    found = [f for f in figures(at) if any(part.get("name") == name for part in f["data"])]
    assert len(found) <= 1
    return found[0] if found else None


def selected_step(at: AppTest) -> float | None:
    """The step that the map's box surrounds."""
    boxes = figure_with(at, "ranks")["layout"].get("shapes", [])
    return (boxes[0]["x0"] + boxes[0]["x1"]) / 2 if boxes else None


@pytest.mark.parametrize("prompts", [("Hello there",), PAIR], ids=["one", "pair"])
@pytest.mark.parametrize(
    ("method", "drafter"), [("chain", "oracle"), ("ddtree", "oracle"), ("ddtree", "DFLASH")]
)
def test_the_map_and_the_last_step_show(
    store: RunStore, dflash: str, method: str, drafter: str, prompts: tuple[str, ...]
) -> None:
    name = dflash if drafter == "DFLASH" else drafter
    job = finished(store.start(settings(prompts=prompts, method=method, drafter=name)))
    at = shown(store, job)
    mine = [walk for walk in job.walks if walk.rid == "r0"]
    assert {walk.rid for walk in job.walks} == {f"r{i}" for i in range(len(prompts))}
    assert selected_step(at) == mine[-1].step
    assert figure_with(at, "marginals") is not None
    assert figure_with(at, "tree") is not None  # the curve of budgets
    assert "The target chose the drafter's best token at" in words(at)
    requests = [box for box in at.selectbox if box.key == "widget run_request"]
    assert [box.options for box in requests] == ([["r0", "r1"]] if len(prompts) > 1 else [])


def test_the_slider_and_the_url_select_a_step(store: RunStore) -> None:
    job = finished(store.start(settings(max_new_tokens=24, drafter="oracle", accuracy=0.5)))
    at = shown(store, job, run_step=1)
    assert selected_step(at) == 1
    at.select_slider(key="widget run_step").set_value(2).run()
    assert not at.exception
    assert params(at)["run_step"] == "2"
    assert selected_step(at) == 2
    far = shown(store, job, run_step="999999")
    assert selected_step(far) == job.walks[-1].step


def test_another_request_shows_its_own_walks(store: RunStore) -> None:
    job = finished(store.start(settings(prompts=PAIR, accuracy=0.5, max_new_tokens=24)))
    at = shown(store, job)
    at.selectbox(key="widget run_request").set_value("r1").run()
    assert not at.exception
    assert params(at)["run_request"] == "r1"
    theirs = [walk for walk in job.walks if walk.rid == "r1"]
    stops = next(p for p in figure_with(at, "ranks")["data"] if p["name"] == "stops")
    assert stops["x"] == [walk.step for walk in theirs if walk.stopped is not None]
    assert selected_step(at) == theirs[-1].step


def test_what_is_picked_here_opens_in_the_inspector(store: RunStore) -> None:
    job = finished(store.start(settings(prompts=PAIR, accuracy=0.5, max_new_tokens=24)))
    at = shown(store, job, run_step=1, run_request="r1")
    at.button(key="open result").click().run()
    found = params(at)
    assert (found["trace"], found["step"], found["request"]) == (job.key, "1", "r1")


def test_a_new_run_forgets_what_was_picked(store: RunStore) -> None:
    job = finished(store.start(settings()))
    at = shown(store, job, run_step=1, run_request="r0")
    at.text_input[0].set_value("tiny")
    at.selectbox(key="drafter").set_value("oracle")
    at.number_input(key="new tokens").set_value(4)
    at.button(key="start run").click().run()
    assert params(at)["run"] != job.id
    assert not {"run_step", "run_request"} & set(params(at))
    finished(store.get(params(at)["run"]))


def test_prompt_lookup_shows_its_walks_or_says_in_one_sentence_why_not(store: RunStore) -> None:
    job = finished(store.start(settings(drafter="prompt-lookup", max_new_tokens=24)))
    assert all(rank is None or rank < 64 for walk in job.walks for rank in walk.ranks)
    at = shown(store, job)
    assert figure_with(at, "ranks") is not None
    for step in (walk.step for walk in job.walks if not walk.candidates):
        quiet = shown(store, job, run_step=step)
        assert "The drafter offered no candidate at this step" in words(quiet)
        assert figure_with(quiet, "marginals") is None
        break


def test_a_drafter_that_never_offers_anything_is_said(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.drafters.prompt_lookup._common_suffix", lambda history, end: 0)
    job = finished(store.start(settings(drafter="prompt-lookup")))
    at = shown(store, job)
    assert "The drafter prompt\\-lookup offered no candidate in 11 steps" in words(at)
    assert figure_with(at, "ranks") is None
    assert figure_with(at, "marginals") is None


def test_a_drafter_that_records_no_candidates_is_said(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(step: VerifyStep) -> list:
        return []

    monkeypatch.setattr(runs, "walks_of", none)
    at = shown(store, finished(store.start(settings())))
    assert "The drafter oracle recorded no candidates" in words(at)
    assert figure_with(at, "ranks") is None


def test_plain_decoding_alone_has_no_map(store: RunStore) -> None:
    job = finished(store.start(settings(method="autoregressive")))
    at = shown(store, job)
    assert "No verify step was recorded" in words(at)
    assert figure_with(at, "ranks") is None


def test_a_run_in_progress_shows_the_map_as_it_grows(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = finished(store.start(settings()))
    job.state = State.RUNNING
    at = open_app("run", trace="clean", run=job.id)
    assert not at.exception
    assert selected_step(at) is None
    assert figure_with(at, "marginals") is None


def test_the_form_offers_the_devices_of_this_machine(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert run_form.devices() == ["cpu"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert run_form.devices() == ["cpu", "cuda:0", "cuda:1"]


def test_a_model_is_loaded_once_a_dtype(traces: Path) -> None:
    loaded = []

    def load(spec: str, *, dtype, device, progress):
        loaded.append((spec, str(device), dtype))
        return tiny(spec, dtype=dtype, device=device, progress=progress)

    store = RunStore(load)
    for dtype in ("float32", "bfloat16", "float32"):
        job = finished(store.start(settings(dtype=dtype)))
        assert job.state is State.FINISHED, job.error
    assert loaded == [("tiny", "cpu", torch.float32), ("tiny", "cpu", torch.bfloat16)]


def test_the_form_hands_on_the_dtype(store: RunStore) -> None:
    at = open_app("run", trace="clean")
    at.text_input[0].set_value("tiny")
    at.selectbox(key="drafter").set_value("oracle")
    at.selectbox(key="dtype").set_value("bfloat16")
    at.number_input(key="new tokens").set_value(4)
    at.button(key="start run").click().run()
    job = finished(store.get(params(at)["run"]))
    chosen: RunSettings = job.settings
    assert (chosen.device, chosen.dtype) == ("cpu", "bfloat16")
    assert "--dtype bfloat16" in chosen.command()
