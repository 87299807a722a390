"""``ddtree isolate``: what it prints, its exit status, and the folder that it leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import engine.isolate.local as local
from tests.isolate.tiny_lab import load
from tests.tiny_folder import tiny_folder
from workbench.cli import app

LAB = str(Path(__file__).parents[2] / "fixtures/labs/story-verify-width")

SMALL = ["--model", "tiny", "--drafter", "oracle", "--accuracy", "0.7", "--max-new-tokens", "12"]
FEW = ["--graphs", "off", "--batch", "1", "--prompt", "Hello there"]


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(local, "load_target", load)
    monkeypatch.chdir(tmp_path)


def isolate(*words: str):
    return CliRunner().invoke(app, ["isolate", *words])


def test_the_story(tmp_path: Path) -> None:
    done = isolate(*SMALL, *FEW, "--fault", "verify-width", "--out", "lab")
    assert done.exit_code == 1, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith(
        "Wrong only where q_len ≠ block size 8 (2 of 4 cells); top-k does not"
    )
    assert "the checks say width-mismatch in 2 of 2 cells and in no other." in lines[0]
    assert "  budget 7, top-k 1       ✓" in lines
    assert "  budget 16, top-k 4      ✖" in lines
    assert "  budget 16 wrong, budget 7 clean (top-k 1, graphs off, batch 1, prompt 0)" in lines
    assert lines[-1] == "results in lab"
    assert "lab: 4 cells, 8 runs, at most 192 tokens" in done.stderr
    assert "4 of 4, about" in done.stderr
    assert {p.name for p in (tmp_path / "lab").iterdir()} == {
        "experiment.json",
        "results.jsonl",
        "traces",
    }
    assert len(list((tmp_path / "lab" / "traces").iterdir())) == 4


def test_clean_and_as_json(tmp_path: Path) -> None:
    done = isolate(*SMALL, *FEW, "--no-checks", "--json", "--out", "lab")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["kind"] == "clean"
    assert (said["factors"], said["proof"], said["missing"]) == ([], [], [])
    assert said["folder"] == "lab"
    assert list((tmp_path / "lab" / "traces").iterdir()) == []


def test_the_last_words_of_a_server_stand_on_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "plain: ended with status 1 while it loaded; plain.log ends:\nNo module named sglang"
    monkeypatch.setattr("workbench.isolate_words.lines_of", lambda *given: [said])
    assert said.replace("\n", " ") in isolate("--resume", LAB).stdout.splitlines()


def test_stopped_then_resumed_then_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_run, ran = local._run, 0

    def run(*words):
        nonlocal ran
        ran += 1
        if ran == 4:
            raise KeyboardInterrupt
        return true_run(*words)

    monkeypatch.setattr(local, "_run", run)
    stopped = isolate(*SMALL, *FEW, "--no-checks", "--out", "lab")
    assert stopped.exit_code == 130
    assert "stopped; go on with: ddtree isolate --resume lab" in stopped.stderr
    assert "· not measured" in stopped.stdout
    resumed = isolate("--resume", "lab")
    assert resumed.exit_code == 0, resumed.output
    assert "3 left of 4 cells" in resumed.stderr
    assert resumed.stdout.startswith("Clean: 4 cells")
    repeated = isolate("--repeat", "lab", "--out", "again")
    assert repeated.exit_code == 0
    first, second = ((tmp_path / d / "experiment.json").read_text() for d in ("lab", "again"))
    assert first == second


def test_the_same_on_ray(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    model = str(tiny_folder(tmp_path / "model"))
    words = ["--model", model, "--drafter", "prompt-lookup", "--max-new-tokens", "8", *FEW]
    here = isolate(*words, "--fault", "verify-width", "--out", "here")
    there = isolate(*words, "--fault", "verify-width", "--out", "there", "--ray", "local")
    assert there.exit_code == here.exit_code, there.output
    assert there.stdout.replace("there", "here") == here.stdout
    names = [sorted(p.name for p in (tmp_path / d / "traces").iterdir()) for d in ("here", "there")]
    assert names[0] == names[1]
    assert len(names[0]) == 4


def test_failed_cells_are_measured_again_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_run = local._run

    def run(settings, *words):
        if settings.budget == 16:
            raise RuntimeError("no room")
        return true_run(settings, *words)

    monkeypatch.setattr(local, "_run", run)
    first = isolate(*SMALL, *FEW, "--no-checks", "--out", "lab")
    assert first.exit_code == 1
    assert first.stdout.startswith("Fails only where q_len ≠ block size 8 (2 of 4 cells)")
    assert "  b16-k1-eager-n1-p0, b16-k4-eager-n1-p0: RuntimeError: no room" in first.stdout
    monkeypatch.setattr(local, "_run", true_run)
    assert isolate("--resume", "lab").stdout == first.stdout
    again = isolate("--resume", "lab", "--retry-failed")
    assert again.exit_code == 0, again.output
    assert "2 left of 4 cells" in again.stderr
    assert again.stdout.startswith("Clean: 4 cells")
    assert isolate("--resume", "lab").stdout == again.stdout


def test_a_plan_writes_nothing(tmp_path: Path) -> None:
    done = isolate(*SMALL, "--plan")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("32 cells, 64 runs, at most 2304 tokens; about ")
    assert "from a few tokens of b16-k1-graphs-n1-p0" in done.stdout
    served = isolate("--server", "serve {budget}", "--plain-server", "serve", "--plan")
    assert served.stdout.startswith("32 cells, 9 server starts, 64 runs")
    ports = ("--server", "serve {port}", "--plain-server", "serve {port}", "--url", "http://a:1")
    assert "9 server starts (up to 2 ahead)," in isolate(*ports, "--ahead", "2", "--plan").stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--budget", "0"], "budget: expected at least 1, found 0"),
        (["--fault", "x\x1b[2J"], "fault: expected one of verify-width"),
        (["--server", "a"], "--server: expected --plain-server too"),
        (["--server", "a 'b", "--plain-server", "c"], "--server: No closing quotation"),
        (
            ["--server", "a", "--plain-server", "b", "--env", "x"],
            "--env: expected NAME=VALUE, found",
        ),
        (
            ["--server", "a {port}", "--plain-server", "b", "--ahead", "1"],
            "plain_command: expected {port}, since servers that load ahead have ports of their own",
        ),
        (["--resume", "nowhere"], "nowhere: expected the folder of an experiment"),
        (["--resume", "a", "--repeat", "b"], "--resume and --repeat: expected one of them"),
        (["--retry-failed"], "--retry-failed: expected --resume with it"),
        (
            ["--resume", LAB, "--tie", "0.1"],
            "tie: expected an experiment on a server, found one on",
        ),
        (["--repeat", LAB, "--tie", "0.1"], "--tie: expected --resume, or a new experiment"),
        (["--resume", LAB, "--tie", "nan"], "--tie: expected 0 or more, found nan"),
        (["--prompt", " "], "prompts: expected at least one, none of them blank"),
        (["--temperature", "nan"], "temperature: expected 0 … 100, found nan"),
    ],
)
def test_wrong_calls(words: list[str], said: str, tmp_path: Path) -> None:
    done = isolate(*words)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert "\x1b" not in done.output
    assert list(tmp_path.iterdir()) == []
