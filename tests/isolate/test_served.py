"""Cells on a server that is really started, as a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine.isolate.asking import Said, Together, faster
from engine.isolate.experiment import Experiment, ServerSubject
from engine.isolate.judge import judge
from engine.isolate.lab import Done, run_lab
from engine.isolate.matrix import Matrix
from engine.isolate.measured import Measured
from engine.isolate.outcome import Outcome
from engine.isolate.served import ServedMeasure
from engine.isolate.store import Store
from engine.isolate.subject import Measure
from engine.isolate.verdict import Kind
from engine.server.trial import Answer
from tests.isolate import serving
from tests.isolate.serving import (
    alive,
    diary,
    matrix,
    measure,
    outcome,
    processes,
    quiet,
    starts,
    subject,
)


def all_of(folder: Path, tried: Matrix, on: ServerSubject) -> list[Measured]:
    served = measure(folder, tried, on)
    try:
        return [served.measure(cell, quiet) for cell in tried]
    finally:
        served.close()
        assert alive(folder) == []


def test_a_fault_of_some_budgets_is_told_from_plain_decoding(tmp_path: Path) -> None:
    tried = matrix(budgets=(7, 16), batches=(1, 2), graphs=(False, True))
    told = replace(subject(tmp_path, faulty=True), block_size=8)
    results = all_of(tmp_path, tried, told)
    assert [result.error for result in results] == [None] * 8
    verdict = judge(Experiment(tried, told), results)
    assert (verdict.kind, verdict.condition) == (Kind.WRONG, "q_len ≠ block size 8")
    assert [str(factor) for factor in verdict.factors] == ["budget"]
    right, wrong = results[:4], results[4:]
    assert {outcome(result) for result in right} == {Outcome.CLEAN}
    assert {outcome(result) for result in wrong} == {Outcome.WRONG}
    for result in wrong:
        assert [one.prompt for one in result.requests] == ["first", "second"][: result.cell.batch]
        for one in result.requests:
            assert one.first_difference == 3
            assert one.margin == pytest.approx(4.0)
            assert (one.near_tie, one.repeats, one.plain_parts) == (False, True, None)
            assert one.accept_length == 4.0
            assert one.plain_tokens is not None
            assert one.tokens == (*one.plain_tokens[:3], 7, 7, 7, 7, 7)
    # Plain once; then a server for each pair of budget and graphs, for both batches.
    assert starts(tmp_path) == ["plain", "7", "7", "16", "16"]
    begun = [line for line in diary(tmp_path) if "start" in line]
    assert [line["graphs"] for line in begun] == [True, False, True, False, True]
    assert [line["topk"] for line in begun] == [0, 1, 1, 1, 1]


def test_cells_that_differ_in_batch_prompt_temperature_or_seed_share_a_server(
    tmp_path: Path,
) -> None:
    tried = matrix(batches=(1, 2), used_prompts=(0, 1), temperatures=(0.0, 0.7), seeds=(0, 1))
    results = all_of(tmp_path, tried, subject(tmp_path))
    assert starts(tmp_path) == ["plain", "7"]
    for result in results:
        assert result.error is None
        sampled = result.cell.temperature > 0
        assert {one.sampled for one in result.requests} == {sampled}
        assert outcome(result) is (Outcome.SAMPLED if sampled else Outcome.CLEAN)
    asked = [line for line in diary(tmp_path) if line.get("rid", "").startswith("b7-k1-graphs-n1")]
    seeds = {line["sampling_seed"] for line in asked if line["temperature"]}
    assert seeds == {0, 1}
    assert all("sampling_seed" not in line for line in asked if not line["temperature"])
    # Each batch of plain decoding once for both seeds where nothing is drawn, twice each.
    plain = [line["rid"] for line in diary(tmp_path) if line.get("rid", "").startswith("plain")]
    assert len(plain) == 2 * (1 + 2) * 2 * (1 + 2)


def test_what_is_asked_first_is_not_counted(tmp_path: Path) -> None:
    all_of(tmp_path, matrix(), subject(tmp_path))
    asked = [line["rid"] for line in diary(tmp_path) if line["name"] == "7" and "rid" in line]
    assert asked == ["warm.0.0", "b7-k1-graphs-n1-p0.0.0", "b7-k1-graphs-n1-p0.1.0"]


def test_prompts_of_a_batch_are_asked_together(tmp_path: Path) -> None:
    """The server answers none before three are there."""
    (result,) = all_of(tmp_path, matrix(batches=(3,)), subject(tmp_path, together=3))
    assert result.error is None
    assert len(result.requests) == 3


def test_speed_is_that_of_the_whole_batch_where_it_took_long_enough(tmp_path: Path) -> None:
    """Two requests of 8 tokens each, answered at the same time."""
    (result,) = all_of(tmp_path, matrix(batches=(2,)), subject(tmp_path, pace=0.2, only="7"))
    assert 16 / 2.0 < (result.tokens_per_s or 0) <= 16 / 0.2
    said = Said(Answer("a", 0.1, 4, (1, 2, 3, 4), None, None), (1, 2, 3, 4), ())
    quick, long = Together((said,), 0.01), Together((said, said), 0.1)
    assert (quick.tokens_per_s, long.tokens_per_s) == (None, 80.0)
    assert faster(long, Together((said,), 0.1)) == 80.0
    assert faster(long, quick) is None


def test_a_difference_where_plain_decoding_hardly_decides_is_a_near_tie(tmp_path: Path) -> None:
    tried = matrix(budgets=(16,))
    (result,) = all_of(tmp_path, tried, subject(tmp_path, faulty=True, margin=0.25))
    assert result.requests[0].margin == pytest.approx(0.25)
    assert outcome(result) is Outcome.NEAR_TIE


@pytest.mark.parametrize("who", ["plain", "16"])
def test_answers_that_do_not_repeat_are_told(tmp_path: Path, who: str) -> None:
    told = subject(tmp_path, random=True, only=who)
    (result,) = all_of(tmp_path, matrix(budgets=(16,)), told)
    one = result.requests[0]
    if who == "plain":
        assert (one.plain_parts, one.plain_near_tie, one.repeats) == (5, False, True)
    else:
        assert (one.plain_parts, one.first_difference, one.repeats) == (None, 5, False)
        assert outcome(result) is Outcome.WRONG


def test_what_the_tap_wrote_is_checked_cell_by_cell(tmp_path: Path) -> None:
    told = subject(tmp_path, tap="{traces}", faulty_steps=True, only="16")
    tried = matrix(budgets=(7, 16), batches=(1, 2))
    clean, _, faulty, two = all_of(tmp_path, tried, told)
    assert clean.findings == {}
    assert clean.trace == "b7-k1-graphs-n1-p0.ddtree.arrow"
    assert faulty.findings == {"positions": 2}  # a step each time that it was asked
    assert faulty.sentence is not None
    assert two.findings == {"positions": 4}
    from engine.trace import open_trace

    recording = open_trace(tmp_path / "traces" / (two.trace or ""))
    names = [step.requests[0].rid for step in recording]
    told_of = {p.rid: (p.text, p.plain_text, p.plain_tokens) for p in recording.header.prompts}
    expected = [(r.prompt, r.plain_text, r.plain_tokens) for r in two.requests]
    assert [told_of[name] for name in sorted(told_of)] == expected * 2
    assert sorted(told_of) == sorted(names)
    assert sorted(names) == [f"b16-k1-graphs-n2-p0.{run}.{k}" for run in (0, 1) for k in (0, 1)]


def test_a_tap_that_wrote_nothing_is_told(tmp_path: Path) -> None:
    told = subject(tmp_path)
    told = replace(told, environment=(*told.environment, ("DDTREE_TRACE_DIR", "{traces}")))
    (result,) = all_of(tmp_path, matrix(), told)
    assert (result.error, result.findings, result.trace) == (None, None, None)
    assert "the tap wrote no step of this cell" in (result.sentence or "")


def test_a_server_that_dies_while_it_loads_is_not_started_again(tmp_path: Path) -> None:
    told = subject(tmp_path, crash=True, only="16")
    right, *wrong = all_of(tmp_path, matrix(budgets=(7, 16), batches=(1, 2)), told)[1:]
    assert right.error is None
    first, second = (result.error or "" for result in wrong)
    assert first == (
        "b16-k1-graphs: ended with status 3 while it loaded; b16-k1-graphs.log ends:\n"
        "loading weights\nCUDA out of memory"
    )
    assert second == f"not started again: {first}"
    assert starts(tmp_path) == ["plain", "7", "16"]


def test_a_plain_server_that_dies_is_every_cells_error(tmp_path: Path) -> None:
    results = all_of(tmp_path, matrix(batches=(1, 2)), subject(tmp_path, crash=True, only="plain"))
    assert {outcome(result) for result in results} == {Outcome.FAILED}
    assert all("plain: ended with status 3" in (result.error or "") for result in results)
    assert starts(tmp_path) == ["plain"]


def test_a_server_that_dies_while_it_answers_is_started_again_for_the_next_cell(
    tmp_path: Path,
) -> None:
    told = subject(tmp_path, die="second", only="7")
    results = all_of(tmp_path, matrix(used_prompts=(0, 1, 2)), told)
    assert [result.error is None for result in results] == [True, False, True]
    error = results[1].error or ""
    assert "b7-k1-graphs: ended with status 7 while it answered" in error
    assert error.endswith("illegal memory access")
    assert starts(tmp_path) == ["plain", "7", "7"]


def test_a_server_that_hangs_is_ended(tmp_path: Path) -> None:
    told = subject(tmp_path, timeout=0.5, hang="second", only="7")
    results = all_of(tmp_path, matrix(used_prompts=(1, 0)), told)
    assert "/generate: no whole answer within 0.5 s" in (results[0].error or "")
    assert results[1].error is None
    assert starts(tmp_path) == ["plain", "7", "7"]


def test_a_refusal_is_an_error_of_the_cell_alone(tmp_path: Path) -> None:
    told = subject(tmp_path)
    told = replace(told, plain_command=(*serving.START, "--budget", "9"))
    (result,) = all_of(tmp_path, matrix(), told)
    assert "expected HTTP 200, found 400" in (result.error or "")
    assert "does not support return_logprob" in (result.error or "")


def test_loading_is_reported_and_patience_ends(tmp_path: Path) -> None:
    told = replace(subject(tmp_path, slow=60.0), patience=0.5)
    words: list[str] = []
    served = measure(tmp_path, matrix(), told)
    result = served.measure(next(iter(served.matrix)), lambda said, _: words.append(said))
    assert "not ready after" in (result.error or "")
    assert "found 503" in (result.error or "")
    assert words[0].startswith("plain: loading for 0 s")
    assert alive(tmp_path) == []


def test_a_slow_start_is_waited_for(tmp_path: Path) -> None:
    (result,) = all_of(tmp_path, matrix(), subject(tmp_path, slow=0.5))
    assert result.error is None


def test_a_port_that_is_taken_is_left_alone(tmp_path: Path) -> None:
    told = subject(tmp_path)
    with socket.socket() as other:
        other.bind(("127.0.0.1", int(told.url.rpartition(":")[2])))
        other.listen()
        (result,) = all_of(tmp_path, matrix(), told)
    said = "expected a free port, found a server that listens there already"
    assert result.error == f"{told.url}: {said}"
    assert starts(tmp_path) == []


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    told = replace(subject(tmp_path), plain_command=("no-such-server",))
    (result,) = all_of(tmp_path, matrix(), told)
    found = "cannot be started: No such file or directory: no-such-server"
    assert result.error == f"no-such-server: {found}"


class Stop(Exception):
    """The reader pressed a button."""


@pytest.mark.parametrize("where", ["plain: loading", "plain decoding", "again"])
def test_a_stop_ends_everything_that_was_started(tmp_path: Path, where: str) -> None:
    """The server has a child that does not heed SIGTERM."""

    def report(words: str, _share: float) -> None:
        if words.startswith(where) and any("child" in line for line in diary(tmp_path)):
            raise Stop

    served = measure(tmp_path, matrix(), subject(tmp_path, child=True, slow=0.3))
    with pytest.raises(Stop):
        served.measure(next(iter(served.matrix)), report)
    assert starts(tmp_path)
    assert alive(tmp_path) == []


def test_an_answer_is_not_waited_for_after_a_stop(tmp_path: Path) -> None:
    served = measure(tmp_path, matrix(), subject(tmp_path, hang="first", only="7"))
    begun = time.monotonic()

    def report(words: str, _share: float) -> None:
        if words == "warming up" and time.monotonic() - begun > 0.1:
            raise Stop

    with pytest.raises(Stop):
        served.measure(next(iter(served.matrix)), report)
    assert time.monotonic() - begun < 10
    assert alive(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_this_program_is_killed(tmp_path: Path, number: int) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.isolate.serving import *\n"
        "folder = Path(sys.argv[1]); told = subject(folder, hang='first', child=True)\n"
        "served = measure(folder, matrix(), told)\n"
        "served.measure(next(iter(served.matrix)), quiet)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    try:
        _until(lambda: any("child" in line for line in diary(tmp_path)))
        os.kill(process.pid, number)
        process.wait()
    finally:
        process.kill()
    _until(lambda: alive(tmp_path) == [])


def test_a_guard_that_is_killed_takes_the_server_with_it(tmp_path: Path) -> None:
    served = measure(tmp_path, matrix(), subject(tmp_path, child=True, hang="first", only="7"))

    def report(words: str, _share: float) -> None:
        if words == "warming up":
            for pid in processes("guard.py", str(tmp_path)):
                os.kill(pid, signal.SIGKILL)

    result = served.measure(next(iter(served.matrix)), report)
    assert "b7-k1-graphs: its guard has ended while it answered" in (result.error or "")
    assert alive(tmp_path) == []


def _until(true: object, patience: float = 20.0) -> None:
    deadline = time.monotonic() + patience
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _lab(store: Store, stop_after: int) -> list[str]:
    def make(experiment: Experiment, traces: Path) -> Measure:
        assert isinstance(experiment.subject, ServerSubject)
        return ServedMeasure(experiment.matrix, experiment.subject, traces, grace=serving.GRACE)

    done, events = [], run_lab(store, quiet, make=make)
    for event in events:
        if isinstance(event, Done):
            done.append(event.measured.cell.key)
            if len(done) == stop_after:
                events.close()  # type: ignore[attr-defined]
                break
    return done


def test_a_stopped_experiment_goes_on_without_the_plain_server(tmp_path: Path) -> None:
    experiment = Experiment(matrix(budgets=(7, 16), batches=(1, 2)), subject(tmp_path, child=True))
    folder = tmp_path / "lab"
    assert len(_lab(Store.create(folder, experiment), 3)) == 3
    assert alive(tmp_path) == []
    assert starts(tmp_path) == ["plain", "7", "16"]
    again = Store.open(folder)
    assert _lab(again, 9) == ["b16-k1-graphs-n2-p0"]
    assert starts(tmp_path)[3:] == ["16"]
    assert again.left == []


def test_plain_answers_that_were_cut_off_are_asked_again_and_wrong_ones_refused(
    tmp_path: Path,
) -> None:
    told, tried = subject(tmp_path), matrix(batches=(1, 2))
    all_of(tmp_path, tried, told)
    path = tmp_path / "plain.jsonl"
    whole = path.read_text()
    first, second = whole.splitlines()
    path.write_text(first + "\n" + second[:-20])
    all_of(tmp_path, tried, told)
    assert starts(tmp_path) == ["plain", "7", "plain", "7"]
    assert [len(line) > 20 for line in path.read_text().splitlines()] == [True, True]
    path.write_text(first.replace('"seed":0', '"seed":"0"') + "\n")
    with pytest.raises(ValueError, match=r"plain.jsonl:1: seed: .*integer, found '0'"):
        measure(tmp_path, tried, told)
