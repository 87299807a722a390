"""``ddtree run`` in a process of its own, on a tiny model in a folder."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.trace import open_trace
from tests.signals import hears_interrupts
from tests.tiny_folder import tiny_folder

MAIN = "from workbench.cli import main; main()"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny Llama in a Hugging Face folder."""
    return str(tiny_folder(tmp_path_factory.mktemp("tiny")))


def ddtree(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MAIN, *words], capture_output=True, text=True, cwd=cwd, timeout=120
    )


def test_a_clean_run_records_and_exits_0(model: str, tmp_path: Path) -> None:
    done = ddtree(
        "run", "--prompt", "hello", "--prompt", "world!", "--model", model, "--drafter", "oracle",
        "--max-new-tokens", "20", "--mode", "replay", "--out", "a.ddtree.arrow", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "r0: 20 tokens, the same as plain decoding" in done.stdout
    assert "nothing wrong" in done.stdout
    trace = open_trace(tmp_path / "a.ddtree.arrow")
    assert [p.text for p in trace.header.prompts] == ["hello", "world!"]


def test_a_faulty_run_exits_1_and_names_the_cause(model: str, tmp_path: Path) -> None:
    done = ddtree(
        "run", "--prompt", "hello", "--model", model, "--drafter", "oracle", "--fault", "verify-width",
        "--max-new-tokens", "20", "--out", "b.ddtree.arrow", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "differs from plain decoding at token" in done.stdout
    assert "`num_draft_tokens`" in done.stdout
    again = ddtree("check", "b.ddtree.arrow", cwd=tmp_path)
    assert again.returncode == 1
    assert "width-mismatch" in again.stdout


def test_a_recording_is_never_overwritten(model: str, tmp_path: Path) -> None:
    (tmp_path / "c.ddtree.arrow").write_text("mine")
    done = ddtree(
        "run",
        "--prompt",
        "x",
        "--model",
        model,
        "--drafter",
        "oracle",
        "--out",
        "c.ddtree.arrow",
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert "exists already" in done.stderr
    assert (tmp_path / "c.ddtree.arrow").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--fault", "nonsense"), "fault: expected one of verify-width"),
        (("--fault", "stale-mask"), "needs replay mode"),
        (("--budget", "0"), "budget: expected at least 1, found 0"),
        (("--block-size", "1"), "block_size: expected at least 2, found 1"),
        (("--topk", "-1"), "topk: expected at least 1, or no cap, found -1"),
        (("--model", "no/such/model/here"), "expected smollm2"),
        (("--max-new-tokens", "100000"), "positions"),
    ],
)
def test_wrong_calls_get_one_line_and_status_2(words, message, model: str, tmp_path: Path) -> None:
    base = ("--drafter", "oracle", *(() if "--model" in words else ("--model", model)))
    done = ddtree("run", "--prompt", "x", *base, *words, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.arrow"))


def test_stopping_keeps_what_was_recorded(model: str, tmp_path: Path) -> None:
    path = tmp_path / "d.ddtree.arrow"
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "run", "--prompt", "hello", "--model", model,
         "--drafter", "oracle", "--budget", "1",
         "--topk", "1", "--block-size", "2", "--max-new-tokens", "450", "--out", str(path)],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=hears_interrupts,
    )  # fmt: skip
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and (not path.exists() or path.stat().st_size < 40_000):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "steps recorded in" in errors
    trace = open_trace(path)
    assert len(trace) > 0
    assert not trace.truncated


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--prompt", b"\xff\xfe"], "prompts: expected UTF-8 text"),
        (["--prompt", "a", "--out", "absent/a.ddtree.arrow"], "a folder that can be written"),
        (
            ["--prompt", "a", "--drafter", "oracle", "--model", "~nobody-at-all/x"],
            "found none of these",
        ),
        (["--prompt", "a", "--captured-bs", "9" * 12, "--mode", "replay"], "at most 256"),
    ],
)
def test_a_call_that_cannot_work_ends_with_one_sentence(words, said, tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAIN, "run", *words]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 2
    assert said in done.stderr.decode(errors="replace")
    assert done.stderr.count(b"\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_damaged_cache_entry_says_what_to_remove(tmp_path: Path, monkeypatch) -> None:
    from engine.models.builtin import SMOLLM2
    from engine.models.catalog import load_target

    monkeypatch.setenv("DDTREE_CACHE", str(tmp_path))
    folder = tmp_path / "models" / SMOLLM2.entry
    folder.mkdir(parents=True)
    with pytest.raises(ValueError, match=r"remove .* and it is made anew"):
        load_target("smollm2")


@pytest.mark.parametrize(
    "words", [("run", "--prompt", "a"), ("bench", "decoding"), ("bench", "acceptance")]
)
def test_a_missing_gpu_is_said_in_one_line(words: tuple[str, ...], tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("a CUDA device is there")
    done = ddtree(*words, "--device", "cuda", cwd=tmp_path)
    assert done.returncode == 2
    assert "device cuda: expected a GPU that torch can use, found none" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_bfloat16_is_recorded_as_such(model: str, tmp_path: Path) -> None:
    done = ddtree(
        "run", "--prompt", "hello", "--model", model, "--drafter", "oracle", "--dtype", "bfloat16",
        "--max-new-tokens", "8", "--out", "a.ddtree.arrow", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr  # a tiny random model parts at near-ties
    trace = open_trace(tmp_path / "a.ddtree.arrow")
    assert next(iter(trace)).logits_dtype == "bfloat16"
    assert "--dtype bfloat16" in trace.header.command


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_benchmark_names_place_and_dtype_and_compares_texts(
    model: str, dtype: str, tmp_path: Path
) -> None:
    import json

    done = ddtree(
        "bench", "decoding", "--model", model, "--drafter", "oracle", "--new-tokens", "6",
        "--rounds", "1", "--dtype", dtype, "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["dtype"] == dtype
    assert figures["device"].startswith("CPU")
    texts = [row["text"] for row in figures["methods"].values()]
    assert len(texts) == 8
    assert all(text == "same" or (dtype == "bfloat16" and "parts" in text) for text in texts)
