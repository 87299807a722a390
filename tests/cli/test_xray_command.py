"""``ddtree xray``: what it prints, and its exit status."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from workbench.cli import app

FAULTY = "fixtures/traces/story-16-4-verify-width.ddtree.arrow"
CLEAN = "fixtures/example.jsonl"


def invoke(*arguments: str):
    return CliRunner().invoke(app, ["xray", *arguments])


def test_a_wrong_width_is_the_metadatas_fault() -> None:
    done = invoke(FAULTY, "--step", "0", "--kernel", "addressed")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "story-16-4-verify-width.ddtree.arrow: step 0, rank 0: addressed formula in torch on cpu; "
        "it does not read prefix columns of the mask",
        "",
        "  r0: 17 rows (17 nodes) behind 38 prefix columns",
        "    intended = built",
        "    built ≠ addressed: 424 cells, first at row 1, column 40",
        "    addressed = measured",
        "    rows never written: 8-16",
        "    metadata at fault: the buffer is right, but read with this metadata it is another mask; "
        "424 cells in rows 1-16, first row 1, column 40 (node 2): visible, expected hidden; "
        "rows 8-16 are never written",
    ]


def test_a_clean_step_as_json() -> None:
    done = invoke(CLEAN, "--step", "0", "--json", "--request", "r0")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["kernel"] == "engine's Triton kernel"
    assert [request["fault"] for request in report["requests"]] == ["clean"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((FAULTY, "--step", "99"), "expected steps 0 … 23 (rank 0), found no step 99 there"),
        ((FAULTY, "--step", "0", "--rank", "3"), "expected ranks [0] (rank 3), found no step 0"),
        ((FAULTY, "--step", "0", "--request", "x"), "step 0 has r0, expected one of them, found x"),
        ((FAULTY, "--step", "0", "--kernel", "sglang", "--sglang-path", "."), "found neither"),
        (("nowhere.jsonl", "--step", "0"), "nowhere.jsonl: No such file or directory"),
    ],
)
def test_bad_input_is_one_line(arguments, words) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_is_one_sentence() -> None:
    done = invoke(FAULTY, "--step", "0", "--device", "cuda")
    assert done.exit_code == 2
    assert done.stderr.startswith("device cuda: expected a GPU that torch can use, found none")
