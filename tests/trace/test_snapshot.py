"""Snapshots: what goes in and what stays out, the reproducing test, and archives that a stranger
made.

Run: pytest tests/trace/test_snapshot.py
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from engine.checks.finding import Effect, Finding, Verdict, Where
from engine.step import Extras
from engine.trace import PromptRecord, TraceFormatError, TraceHeader, TraceWriter, open_trace
from engine.trace.archive import MEMBERS
from engine.trace.snapshot import export_snapshot, import_snapshot, snapshot_summary
from tests.trace.examples import example_step

SECRET = "the secret prompt"
HEADER = TraceHeader(
    created_by="t",
    command=f"ddtree run --prompt '{SECRET}'",
    prompts=(PromptRecord("r0", SECRET, (1, 2), (3,), SECRET),),
    notes=SECRET,
)
FAULTY = 5


def finding(step: int, rank: int = 0, check: str = "I10") -> Finding:
    return Finding(
        check=check,
        name="positions",
        verdict=Verdict.FAULT,
        step=step,
        rank=rank,
        request="r0",
        diagnosis="position",
        message="row 3: position 9, should be 4",
        effect=Effect.OUTPUT,
        where=Where(node=3, row=3, cells=((3, 4),)),
        expected=4,
        found=9,
        count=1,
    )


@pytest.fixture
def trace(tmp_path):
    """Steps 0 … 7 of ranks 0 and 1; step 5 of rank 0 has a wrong position."""
    path = tmp_path / "story.ddtree.arrow"
    with TraceWriter(path, HEADER) as out:
        for number in range(8):
            for rank in (0, 1):
                faulty = number == FAULTY and rank == 0
                step = example_step(number, rank, inputs__positions=[2, 3, 3, 9 if faulty else 4])
                out.write(replace(step, workbench=Extras(token_texts={5: SECRET})))
    return open_trace(path)


@pytest.fixture
def snapshot(trace, tmp_path):
    path = tmp_path / "s.zip"
    export_snapshot(
        path, trace, [trace.index(FAULTY, 0)], [finding(5), finding(1)], report_html="<p>"
    )
    return path


def contents(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path, members, *, honest=True):
    """A zip of these members; ``honest``: the manifest names their digests."""
    members = dict(members)
    if honest:
        manifest = json.loads(members.pop("manifest.json"))
        manifest["members"] = {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
            for name, data in members.items()
        }
        members = {"manifest.json": json.dumps(manifest).encode(), **members}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def test_chosen_step_and_the_one_before_it(trace, snapshot):
    read = import_snapshot(snapshot)
    assert [(s.step, s.rank) for s in read.trace] == [(4, 0), (5, 0)]
    assert [s["role"] for s in read.manifest["steps"]] == ["context", "chosen"]
    assert read.findings == (finding(5),)
    assert read.report_html_present
    assert set(contents(snapshot)) == set(MEMBERS)
    assert read.manifest["source_digest"] == trace.digest


def test_every_rank_goes_in_where_ranks_disagree(trace, tmp_path):
    position = trace.index(5, 1)
    summary = export_snapshot(tmp_path / "s.zip", trace, [position], [finding(5, 1, "I19")])
    steps = import_snapshot(tmp_path / "s.zip").trace
    assert [(s.step, s.rank) for s in steps] == [(4, 1), (5, 0), (5, 1)]
    assert (summary.chosen, summary.context) == ((position,), (9, 10))


def test_texts_are_left_out(snapshot):
    for name, data in contents(snapshot).items():
        assert SECRET.encode() not in data, name
    read = import_snapshot(snapshot)
    assert all(step.workbench.token_texts is None for step in read.trace)
    assert read.trace.header.prompts == (PromptRecord("r0", None, (1, 2), (3,), None),)
    assert read.trace.header.command == ""
    assert "prompts and plain texts" in read.manifest["left_out"]
    assert "(token ids are included)" in read.manifest["left_out"]


def test_texts_go_in_when_asked_for(trace, tmp_path):
    path = tmp_path / "s.zip"
    summary = export_snapshot(path, trace, [0], [], include_text=True)
    read = import_snapshot(path)
    assert list(read.trace) == [trace.step(0)]
    assert read.trace.header == HEADER
    assert summary.left_out == ()
    assert "prompts and plain texts" in summary.included


def test_report_is_built_from_what_goes_in(trace, tmp_path):
    seen = []

    def build(inner, positions, findings):
        seen.append([inner.step(p) for p in positions])
        assert inner.header.prompts[0].text is None
        assert list(findings) == [finding(5)]
        return "<p>built</p>"

    export_snapshot(tmp_path / "s.zip", trace, [10], [finding(5)], report_html=build)
    assert [(s.step, s.workbench.token_texts) for s in seen[0]] == [(4, None), (5, None)]
    assert contents(tmp_path / "s.zip")["report.html"] == b"<p>built</p>"


def test_summary_tells_before_saving(trace, tmp_path):
    told = snapshot_summary(trace, [10], [finding(5)], report_html="<p>", selection="step=5")
    done = export_snapshot(
        tmp_path / "s.zip", trace, [10], [finding(5)], report_html="<p>", selection="step=5"
    )
    assert replace(told, size=0) == replace(done, size=0)
    assert done.size == (tmp_path / "s.zip").stat().st_size
    assert abs(told.size - done.size) < 50  # the time of writing compresses differently
    assert dict(done.members).keys() == set(MEMBERS)
    assert import_snapshot(tmp_path / "s.zip").manifest["selection"] == "step=5"


def test_manifest_names_versions_and_members(snapshot):
    manifest = json.loads(contents(snapshot)["manifest.json"])
    assert (manifest["format"], manifest["version"]) == ("ddtree.snapshot", 1)
    assert manifest["versions"]["numpy"] == np.__version__
    for name, facts in manifest["members"].items():
        data = contents(snapshot)[name]
        assert facts == {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def test_snapshot_is_a_recording(snapshot):
    trace = open_trace(snapshot)
    assert [(s.step, s.rank) for s in trace] == [(4, 0), (5, 0)]
    assert trace.index(5, 0) == 1


@pytest.mark.parametrize(
    ("steps", "found"), [([], "found none"), ([16], "found 16"), ([-1], "found -1")]
)
def test_positions_that_do_not_exist(trace, tmp_path, steps, found):
    with pytest.raises(ValueError, match=f"steps: expected .*{found}"):
        export_snapshot(tmp_path / "s.zip", trace, steps, [])
    assert not (tmp_path / "s.zip").exists()


def test_export_replaces_whole_files_only(trace, tmp_path):
    path = tmp_path / "s.zip"
    path.write_text("before")

    def fail(*_):
        raise RuntimeError("no report")

    with pytest.raises(RuntimeError, match="no report"):
        export_snapshot(path, trace, [0], [], report_html=fail)
    assert path.read_text() == "before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.zip", "story.ddtree.arrow"]


def reproduce(directory, root, **environment):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_repro.py"]
    env = {**os.environ, "PYTHONPATH": str(root), **environment}
    return subprocess.run(
        command, cwd=directory, env=env, capture_output=True, text=True, check=False
    )


def test_reproduction_fails_on_faulty_steps_and_passes_on_mended_ones(snapshot, tmp_path, request):
    directory = tmp_path / "unpacked"
    directory.mkdir()
    for name, data in contents(snapshot).items():
        (directory / name).write_bytes(data)
    root = request.config.rootpath
    failed = reproduce(directory, root)
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert "step 5, rank 0: I10 positions" in failed.stdout
    mended = tmp_path / "mended.ddtree.arrow"
    with TraceWriter(mended, TraceHeader()) as out:
        out.write(example_step(4))
        out.write(example_step(6))
    passed = reproduce(directory, root, DDTREE_STEPS=str(mended))
    assert passed.returncode == 0, passed.stdout + passed.stderr


def refused(path, message):
    with pytest.raises(TraceFormatError, match=message) as caught:
        import_snapshot(path)
    assert str(caught.value).isprintable()
    with pytest.raises(TraceFormatError):
        open_trace(path)


@pytest.mark.parametrize(
    "name",
    ["../../etc/cron.d/x", "/etc/passwd", "payload.pkl", "steps.ddtree.arrow/x", "a\\b", "C:x"],
)
def test_foreign_members(snapshot, tmp_path, name):
    bad = rewritten(tmp_path / "bad.zip", {**contents(snapshot), name: b"x"})
    refused(bad, "expected members manifest.json, .* found '")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.zip", "s.zip", "story.ddtree.arrow"]


def test_pickle_under_a_known_name(snapshot, tmp_path):
    pickle = b"cos\nsystem\n(S'touch pwned'\ntR."
    members = {**contents(snapshot), "steps.ddtree.arrow": pickle}
    refused(rewritten(tmp_path / "bad.zip", members), "expected an Arrow message, found 0x")


def test_duplicate_member(snapshot, tmp_path):
    bad = tmp_path / "bad.zip"
    bad.write_bytes(snapshot.read_bytes())
    with zipfile.ZipFile(bad, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("findings.json", "[]")
    refused(bad, "findings.json: expected each member once, found it twice")


@pytest.mark.parametrize("name", ["manifest.json", "steps.ddtree.arrow", "findings.json"])
def test_missing_member(snapshot, tmp_path, name):
    members = {key: data for key, data in contents(snapshot).items() if key != name}
    refused(rewritten(tmp_path / "bad.zip", members, honest=False), f"{name}: expected a member")


@pytest.mark.parametrize(
    "name", ["steps.ddtree.arrow", "findings.json", "report.html", "test_repro.py"]
)
def test_wrong_digest(snapshot, tmp_path, name):
    members = contents(snapshot)
    members[name] += b" "
    bad = rewritten(tmp_path / "bad.zip", members, honest=False)
    refused(bad, f"{name}: expected the content that the manifest names, found sha256")


def test_member_that_the_manifest_does_not_name(snapshot, tmp_path):
    members = {key: data for key, data in contents(snapshot).items() if key != "report.html"}
    bad = rewritten(tmp_path / "bad.zip", members, honest=False)
    refused(bad, "manifest.json.members: expected")


def test_zip_bomb_by_ratio(snapshot, tmp_path):
    members = {**contents(snapshot), "report.html": bytes(64 << 20)}
    bad = rewritten(tmp_path / "bad.zip", members)
    assert bad.stat().st_size < 200_000
    refused(bad, "report.html: expected at most 200-fold compression, found .* inflate to 67108864")


def patched_size(path, name, size):
    """The directory claims another inflated size than the data has."""
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\x01\x02", 0, data.rindex(name.encode()))
    data[at + 24 : at + 28] = size.to_bytes(4, "little")
    path.write_bytes(data)
    return path


def test_zip_bomb_by_size(snapshot):
    bad = patched_size(snapshot, "report.html", 0xFFFFFFF0)
    refused(bad, "report.html: expected at most 536870912 bytes inflated, found 4294967280")


def test_directory_that_understates_a_size(snapshot):
    refused(
        patched_size(snapshot, "findings.json", 10), "expected a snapshot, found a damaged archive"
    )


def test_huge_directory(tmp_path):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for number in range(1000):
            archive.writestr(f"member-{number}", b"")
    (tmp_path / "bad.zip").write_bytes(sink.getvalue())
    refused(tmp_path / "bad.zip", "expected a directory of at most 16384 bytes")


@pytest.mark.parametrize("cut", [3, 30, 1000, -10])
def test_cut_archive(snapshot, cut):
    snapshot.write_bytes(snapshot.read_bytes()[:cut])
    with pytest.raises(TraceFormatError, match="expected a snapshot, found"):
        import_snapshot(snapshot)


def test_encrypted_member(snapshot):
    data = bytearray(snapshot.read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1
    snapshot.write_bytes(data)
    refused(snapshot, "manifest.json: expected a readable member, found an encrypted one")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verdict": "fine"}, r"findings\[0\].verdict: expected one of fault, latent"),
        ({"check": 3}, r"findings\[0\].check: expected a string, found 3"),
        ({"where": {"row": "x"}}, r"findings\[0\].where.row: expected an integer, found 'x'"),
        ({"where": {"cells": [[1]]}}, r"findings\[0\].where.cells: expected pairs"),
        ({"step": 1.5}, r"findings\[0\].step: expected an integer, found 1.5"),
    ],
)
def test_findings_are_distrusted(snapshot, tmp_path, change, message):
    members = contents(snapshot)
    document = json.loads(members["findings.json"])
    document["findings"][0].update(change)
    members["findings.json"] = json.dumps(document).encode()
    with pytest.raises(TraceFormatError, match=message):
        import_snapshot(rewritten(tmp_path / "bad.zip", members))
