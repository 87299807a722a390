"""``ddtree replay``: clean runs, an injected fault, recordings without prompts, and what it writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from engine.checks.registry import check_trace
from engine.decoding.run_settings import RunSettings
from engine.decoding.session import run
from engine.replay import choices
from engine.step import Reference
from engine.trace import TraceHeader, TraceWriter, open_trace
from tests.decoding.tiny_target import tiny_target
from workbench.cli import app

TARGET = tiny_target()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("replay")
    for name, fault in (("clean", None), ("width", "verify-width"), ("crop", "crop-commit")):
        settings = RunSettings(
            ("Hello there", "General Kenobi"),
            model="tiny",
            drafter="oracle",
            accuracy=0.6,
            budget=9,
            block_size=4,
            max_new_tokens=12,
            fault=fault,
        )
        list(run(settings, TARGET, trace_path=made / f"{name}.ddtree.arrow"))
    return made


@pytest.fixture(autouse=True)
def no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.cli.device.load", lambda *_: TARGET)


def replayed(*words: str):
    return CliRunner().invoke(app, ["replay", *words, "--target", "tiny"])


def rewritten(source: Path, target: Path, change, header: TraceHeader | None = None) -> Path:
    trace = open_trace(source)
    with TraceWriter(target, header or trace.header) as out:
        for step in trace:
            out.write(change(step))
    return target


def test_a_clean_run_is_plain_decoding_on_every_row(folder: Path) -> None:
    done = replayed(str(folder / "clean.ddtree.arrow"))
    assert done.exit_code == 0, done.output
    rows = sum(
        len(r.tree.parents) for s in open_trace(folder / "clean.ddtree.arrow") for r in s.requests
    )
    assert f"{rows} rows: {rows} equal, 0 near-ties, 0 differ" in done.stdout


@pytest.mark.parametrize("kept", [16, 1])
def test_the_choices_are_the_runs_own_reference(
    folder: Path, tmp_path: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one cache for two requests too: each is then taken in anew at every step."""
    monkeypatch.setattr(choices, "KEPT", kept)
    bare = rewritten(
        folder / "crop.ddtree.arrow",
        tmp_path / "bare.ddtree.arrow",
        lambda step: replace(step, reference=Reference()),
    )
    done = replayed(str(bare), "--out", str(tmp_path / "out.ddtree.arrow"), "--json")
    assert done.exit_code == 1, done.output
    found, wanted = (
        open_trace(tmp_path / "out.ddtree.arrow"),
        open_trace(folder / "crop.ddtree.arrow"),
    )
    for mine, theirs in zip(found, wanted, strict=True):
        assert np.array_equal(mine.reference.target_predict, theirs.reference.target_predict)
        assert np.allclose(mine.reference.top2, theirs.reference.top2, atol=1e-4, equal_nan=True)
    assert found.header.created_by == "ddtree replay"
    causes = {f.check for f in check_trace(found).findings}
    assert "I22" in causes
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == sum(len(step.requests) for step in found)
    assert sum(line["differ"] for line in lines) > 0


def test_rows_that_were_never_written_differ_with_both_tokens_and_margins(folder: Path) -> None:
    done = replayed(str(folder / "width.ddtree.arrow"), "--json")
    assert done.exit_code == 1
    first = json.loads(done.stdout.splitlines()[0])
    assert first["rows"] == first["equal"] + first["differ"] == 10
    wrong = first["differences"][0]
    step = open_trace(folder / "width.ddtree.arrow").step(0)
    assert wrong["recorded"] == step.outcome.target_predict[wrong["row"]]
    assert wrong["plain"] == step.reference.target_predict[wrong["row"]]
    assert wrong["plain_margin"] > 0
    text = replayed(str(folder / "width.ddtree.arrow")).stdout
    assert f"; first at step 0, request {first['request']}" in text
    assert f"row {wrong['row']} (node {wrong['node']}): recorded {wrong['recorded']}" in text


def test_a_choice_within_rounding_is_a_near_tie(folder: Path, tmp_path: Path) -> None:
    """The recorded target chose its second best, a hair below."""

    def swapped(step):
        top2 = step.outcome.top2.copy()
        top2[0, 1, 1] = top2[0, 0, 1]
        predict = step.outcome.target_predict.copy()
        predict[0] = int(top2[0, 1, 0])
        outcome = replace(step.outcome, top2=top2, target_predict=predict)
        return replace(step, outcome=outcome, logits_dtype="bfloat16") if not step.step else step

    path = rewritten(folder / "clean.ddtree.arrow", tmp_path / "tie.ddtree.arrow", swapped)
    weight, row = (
        TARGET.model.head.weight,
        open_trace(path).step(0).outcome.top2[0, :, 0].astype(int),
    )
    kept = weight.clone()
    try:
        with torch.no_grad():
            weight[row[1]] = weight[row[0]] * 0.999
        found = json.loads(replayed(str(path), "--json").stdout.splitlines()[0])
    finally:
        weight.copy_(kept)
    assert found["differences"][0]["near_tie"], found
    assert json.loads(replayed(str(path), "--json").stdout.splitlines()[0])["differ"] == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: replace(s, config=replace(s.config, temperature=0.5)), "expected temperature 0"),
        (lambda s: replace(s, outcome=replace(s.outcome, target_predict=None)), "target_predict"),
        (lambda s: replace(s, outcome=replace(s.outcome, accept_index=None)), "accept_index"),
        (lambda s: replace(s, step=s.step + 1), None),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_line(
    folder: Path, tmp_path: Path, change, says: str | None
) -> None:
    path = rewritten(folder / "clean.ddtree.arrow", tmp_path / "x.ddtree.arrow", change)
    done = replayed(str(path))
    assert done.exit_code == (0 if says is None else 2), done.output
    assert done.stderr.count("plain decoding of the recorded trees\n") <= 1
    if says is not None:
        assert says in done.stderr


def test_without_prompts_it_says_so(folder: Path, tmp_path: Path) -> None:
    path = rewritten(
        folder / "clean.ddtree.arrow", tmp_path / "x.ddtree.arrow", lambda s: s, TraceHeader("me")
    )
    done = replayed(str(path))
    assert done.exit_code == 2
    assert "expected the token ids of r0's prompt, found none" in done.stderr
    assert replayed("fixtures/example.jsonl", "--rank", "3").exit_code == 2
    prompts = open_trace(folder / "clean.ddtree.arrow").header.prompts
    given = tmp_path / "prompts.json"
    given.write_text(json.dumps({prompt.rid: prompt.tokens for prompt in prompts}))
    assert replayed(str(path), "--prompts", str(given)).exit_code == 0


@pytest.mark.parametrize("text", ["", "[1]", '{"r0": []}', '{"r0": [1, "x"]}', '{"r0": [-1]}'])
def test_prompts_that_are_none_are_one_line(folder: Path, tmp_path: Path, text: str) -> None:
    given = tmp_path / "prompts.json"
    given.write_text(text)
    done = replayed(str(folder / "clean.ddtree.arrow"), "--prompts", str(given))
    assert done.exit_code == 2
    assert done.stderr.startswith(str(given))
    assert done.stderr.count("\n") == 1
