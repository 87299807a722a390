"""The experiments that came along: their recordings say what their results say."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.checks.registry import check_trace
from engine.isolate.judge import judge
from engine.isolate.store import Store
from engine.isolate.verdict import Kind
from engine.trace import open_trace

LABS = Path(__file__).resolve().parents[2] / "fixtures" / "labs"
FOLDERS = [path for path in LABS.iterdir() if path.is_dir()]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_results_and_recordings_agree(folder: Path) -> None:
    store = Store.open(folder)
    assert store.left == []
    recorded = {path.name for path in store.traces.iterdir()}
    assert recorded == {m.trace for m in store.results.values()} - {None}
    for measured in store.results.values():
        if measured.trace is not None:
            report = check_trace(open_trace(store.traces / measured.trace))
            assert {cause.diagnosis for cause in report.causes} == set(measured.diagnoses)
            found = sum((measured.findings or {}).values())
            if folder.name.startswith("story"):
                assert found == len(report.causes)
            else:  # the first steps of a recording
                assert found >= len(report.causes)


def test_the_verdict_on_a_server_and_on_the_mended_one() -> None:
    store = Store.open(LABS / "sglang-verify-width")
    verdict = judge(store.experiment, store.results.values())
    assert (verdict.condition, [str(f) for f in verdict.factors]) == (
        "q_len ≠ block size 8",
        ["budget"],
    )
    assert verdict.cause == "width-mismatch in 8 of 8 cells and in no other"
    assert {pair.broken.budget for pair in verdict.proof} == {16}
    assert {pair.broken.graphs for pair in verdict.proof} == {False, True}
    store = Store.open(LABS / "sglang-mended")
    verdict = judge(store.experiment, store.results.values())
    assert verdict.kind is Kind.SLOW
    assert verdict.sentence == (
        "Lossless but slow in 9 of 16 cells, and nothing that is varied tells in which."
    )
    found = [r for measured in store.results.values() for r in measured.requests]
    margins = [r.margin for r in found if r.first_difference is not None]
    assert sorted(margins) == [0.0] * 10 + [0.25] * 2
    assert len(found) == 32


def test_the_storys_verdict() -> None:
    store = Store.open(LABS / "story-verify-width")
    verdict = judge(store.experiment, store.results.values())
    assert (verdict.condition, [str(f) for f in verdict.factors]) == (
        "q_len ≠ block size 8",
        ["budget"],
    )
    assert verdict.missing == ()
    assert verdict.cause == "width-mismatch in 4 of 8 cells and in no other"
    assert {pair.broken.budget for pair in verdict.proof} == {4, 16}
