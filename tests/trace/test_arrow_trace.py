"""Arrow recordings: round trips, growth, a killed writer, and directories of ranks.

Run: pytest tests/trace/test_arrow_trace.py
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.step import Inputs, Source, VerifyStep
from engine.trace import PromptRecord, TraceFormatError, TraceHeader, TraceWriter, open_trace
from engine.trace.convert import convert
from tests.trace.examples import example_step, line
from tests.trace.strategies import verify_steps

HEADER = TraceHeader(
    created_by="a test",
    command="ddtree run",
    created="2025-11-29T22:00:00+00:00",
    model="m",
    fault="bit-order",
    prompts=(
        PromptRecord("r0", "Say \u2028 it", (1, 2), (3,), "it"),
        PromptRecord("r1", None, (4,), None, None),
    ),
    notes="été",
)


def record(path, steps, header=HEADER):
    with TraceWriter(path, header) as out:
        for step in steps:
            out.write(step)
    return path


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(verify_steps(), min_size=1, max_size=2))
def test_random_steps_survive(tmp_path_factory, steps):
    path = record(tmp_path_factory.mktemp("t") / "a.ddtree.arrow", steps)
    trace = open_trace(path)
    assert [trace.key(i) for i in range(len(steps))] == [(s.step, s.rank) for s in steps]
    assert list(trace) == steps


def test_header_and_digest(tmp_path):
    path = record(tmp_path / "a.ddtree.arrow", [example_step(i) for i in range(3)])
    trace = open_trace(path)
    assert trace.header == HEADER
    assert (len(trace), trace.truncated, trace.ranks) == (3, False, (0,))
    assert trace.digest == sha256(path.read_bytes()).hexdigest()
    assert trace.index(2, 0) == 2
    with pytest.raises(KeyError, match="step 7 of rank 0 is not recorded"):
        trace.index(7, 0)
    with pytest.raises(IndexError, match=r"position: expected 0 … 2, found 3"):
        trace.step(3)


def test_any_arrow_reader_reads_the_file(tmp_path):
    path = record(tmp_path / "a.ddtree.arrow", [example_step(5, 1)])
    table = pa.ipc.open_stream(path.read_bytes()).read_all()
    row = table.to_pylist()[0]
    assert (row["step"], row["rank"]) == (5, 1)
    assert row["requests"][0]["tree"]["parents"] == [-1, 0, 0, 2]
    assert row["inputs"]["custom_mask"] == bytes(example_step().inputs.custom_mask)
    assert row["reference"] is None


def test_large_steps_are_stored_small(tmp_path):
    mask = np.tile(np.tril(np.ones((100, 100), np.uint8)).ravel(), 100)
    step = VerifyStep(requests=(), inputs=Inputs(custom_mask=mask))
    path = record(tmp_path / "a.ddtree.arrow", [step])
    assert path.stat().st_size < len(mask) // 20
    assert open_trace(path).step(0) == step


def test_writer_keeps_an_existing_recording(tmp_path):
    path = record(tmp_path / "a.ddtree.arrow", [example_step()])
    with pytest.raises(FileExistsError):
        TraceWriter(path, HEADER)
    TraceWriter(path, HEADER, overwrite=True).close()
    assert len(open_trace(path)) == 0


def test_writer_refuses_what_could_not_be_read_back(tmp_path):
    path = tmp_path / "a.ddtree.arrow"
    with TraceWriter(path, HEADER) as out:
        out.write(example_step(0))
        with pytest.raises(
            TraceFormatError, match=r"a.ddtree.arrow:2: source.graph: expected one of"
        ):
            out.write(VerifyStep(requests=(), source=Source(graph="?")))
        out.write(example_step(1))
    assert [step.step for step in open_trace(path)] == [0, 1]


def test_live_recording_grows(tmp_path):
    path = tmp_path / "a.ddtree.arrow"
    out = TraceWriter(path, HEADER)
    trace = open_trace(path)
    assert (len(trace), trace.header) == (0, HEADER)
    digests = set()
    for number in range(3):
        out.write(example_step(number))
        assert trace.refresh() == number + 1
        assert trace.step(number).step == number
        assert trace.index(number, 0) == number
        digests.add(trace.digest)
    out.close()
    assert (trace.refresh(), trace.truncated, len(digests)) == (3, False, 3)
    assert trace.digest == sha256(path.read_bytes()).hexdigest()


def test_every_torn_tail_is_told_and_loses_one_step(tmp_path):
    path = tmp_path / "a.ddtree.arrow"
    ends = []
    with TraceWriter(path, HEADER) as out:
        for number in range(3):
            out.write(example_step(number))
            ends.append(path.stat().st_size)
    data = path.read_bytes()
    torn = tmp_path / "torn.ddtree.arrow"
    for cut in [*range(ends[0], ends[2], 97), *ends, ends[1] + 4, ends[1] + 8]:
        torn.write_bytes(data[:cut])
        trace = open_trace(torn)
        complete = sum(end <= cut for end in ends)
        assert len(list(trace)) == complete
        assert trace.truncated == (cut not in ends)


def test_file_that_was_cut_while_open(tmp_path):
    path = record(tmp_path / "a.ddtree.arrow", [example_step(i) for i in range(3)])
    trace = open_trace(path)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(
        TraceFormatError, match=r"a.ddtree.arrow:3: expected a file that only grows"
    ):
        trace.step(2)
    with pytest.raises(TraceFormatError, match="expected a file that only grows, found it cut"):
        trace.refresh()


KILLED = """
import sys
sys.path.insert(0, {root!r})
from tests.trace.examples import example_step
from engine.trace import TraceHeader, TraceWriter
out = TraceWriter({path!r}, TraceHeader())
number = 0
while True:
    out.write(example_step(number))
    number += 1
    print(number, flush=True)
"""


def test_killed_writer_leaves_every_complete_step(tmp_path, request):
    path = tmp_path / "a.ddtree.arrow"
    code = KILLED.format(root=str(request.config.rootpath), path=str(path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        reported = 0
        while reported < 20:
            reported = int(child.stdout.readline())
        time.sleep(0.013)
        os.kill(child.pid, signal.SIGKILL)
        rest = child.stdout.read().split("\n")
        assert child.wait() == -signal.SIGKILL
    reported = max([reported, *(int(number) for number in rest[:-1] if number)])
    numbers = [step.step for step in open_trace(path)]
    assert len(numbers) >= reported
    assert numbers == list(range(len(numbers)))


def test_conversion_there_and_back(tmp_path):
    steps = [example_step(i, rank) for i in range(3) for rank in (0, 1)]
    first = record(tmp_path / "a.ddtree.arrow", steps)
    assert convert(first, tmp_path / "b.jsonl") == 6
    assert convert(tmp_path / "b.jsonl", tmp_path / "c.ddtree.arrow") == 6
    last = open_trace(tmp_path / "c.ddtree.arrow")
    assert list(last) == steps
    assert last.header == HEADER
    assert last.digest == open_trace(first).digest


def test_conversion_never_overwrites_and_leaves_no_half(tmp_path):
    source = tmp_path / "a.jsonl"
    source.write_text(line() + "\n{}\n")
    target = tmp_path / "b.ddtree.arrow"
    with pytest.raises(TraceFormatError, match=r"a.jsonl:2: format: expected"):
        convert(source, target)
    assert not target.exists()
    target.write_text("mine")
    with pytest.raises(FileExistsError):
        convert(source, target)
    assert target.read_text() == "mine"
    with pytest.raises(ValueError, match=r"target: expected a name \*.jsonl or \*.ddtree.arrow"):
        convert(source, tmp_path / "b.parquet")


def test_ranks_of_a_directory_are_merged_in_time(tmp_path):
    for rank in (1, 0):
        record(tmp_path / f"rank{rank}.ddtree.arrow", [example_step(i, rank) for i in range(3)])
    trace = open_trace(tmp_path)
    assert [(s.step, s.rank) for s in trace] == [(i, r) for i in range(3) for r in (0, 1)]
    assert trace.ranks == (0, 1)
    assert trace.index(1, 1) == 3
    assert trace.header == HEADER
    assert len(trace.digest) == 64


def test_directory_of_unrelated_recordings_is_refused(tmp_path):
    for name in ("a.ddtree.arrow", "b.ddtree.arrow"):
        record(tmp_path / name, [example_step()])
    message = "expected one file a rank, found rank 0 in a.ddtree.arrow and b.ddtree.arrow"
    with pytest.raises(TraceFormatError, match=message):
        open_trace(tmp_path)


def test_empty_directory_and_file(tmp_path):
    with pytest.raises(TraceFormatError, match=r"expected 1 … 1024 files \*.ddtree.arrow or"):
        open_trace(tmp_path)
    (tmp_path / "a.jsonl").write_bytes(b"")
    with pytest.raises(
        TraceFormatError, match=r"a.jsonl: expected at least one step, found an empty"
    ):
        open_trace(tmp_path / "a.jsonl")


def test_json_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(f"{line()}\n\n  \n{line()}")
    trace = open_trace(path)
    assert list(trace) == [example_step()] * 2
    with open(path, "a") as out:
        out.write(f"\n{line()}\nnonsense")
    assert trace.refresh() == 4
    assert trace.step(2) == example_step()
    with pytest.raises(TraceFormatError, match=r"a.jsonl:6: expected JSON"):
        trace.step(3)


def test_json_lines_that_are_no_text(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"format": "\xff"}\n')
    with pytest.raises(TraceFormatError, match=r"a.jsonl:1: expected UTF-8, found byte 0xff at 12"):
        open_trace(path).step(0)


@pytest.mark.parametrize("module", ["engine.trace.writer", "engine.trace"])
def test_writer_needs_only_numpy_and_pyarrow(module):
    code = (
        f"import sys, {module}\n"
        "roots = {name.split('.')[0] for name in sys.modules}\n"
        "known = sys.stdlib_module_names\n"
        "foreign = {r for r in roots if r not in known and not r.startswith('_')}\n"
        "print(sorted(foreign))"
    )
    before = subprocess.run(
        [sys.executable, "-c", code.replace(module, "json")],
        capture_output=True,
        text=True,
        check=True,
    )
    after = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(eval(after.stdout)) - set(eval(before.stdout)) <= {
        *("engine", "numpy", "pyarrow"),
        "cython_runtime",  # made by numpy's and pyarrow's own extension modules
    }
