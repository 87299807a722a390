"""Recordings for the app's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from sample import broken_step, continued, hostile_steps, make_step
from tiny_runs import tiny

from engine.trace.header import PromptRecord, TraceHeader
from engine.trace.writer import TraceWriter
from workbench.runs import RunStore

PLAIN = (0, 1, 3, 5, 8) * 20


def write(folder: Path, name: str, steps: list, header: TraceHeader) -> Path:
    path = folder / f"{name}.ddtree.arrow"
    with TraceWriter(path, header) as out:
        for step in continued(steps):
            out.write(step)
    return path


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of recordings that no test changes."""
    folder = tmp_path_factory.mktemp("recordings")
    prompt = PromptRecord("r0", "Write a poem", (1, 2), PLAIN)
    header = TraceHeader(created_by="sample", model="tiny", prompts=(prompt,))
    write(folder, "broken", [broken_step(i) for i in range(5)], header)
    write(folder, "clean", [make_step(i) for i in range(4)], header)
    pair = [make_step(0, bs=2), broken_step(1, bs=2), make_step(2, bs=2), broken_step(3, bs=2)]
    write(folder, "pair", pair, header)
    ranks = [step for i in range(3) for step in (make_step(i), broken_step(i, rank=1))]
    write(folder, "ranks", ranks, header)
    write(folder, "empty", [], header)
    write(folder, "hostile", hostile_steps(), header)
    (folder / "torn.ddtree.arrow").write_bytes(b"\xff\xff\xff\xff and then nothing")
    return folder


@pytest.fixture
def traces(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same recordings in a folder of the test's own."""
    for path in recorded.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setenv("DDTREE_TRACES", str(tmp_path))
    return tmp_path


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, traces: Path) -> RunStore:
    """The Run page's runs, of a tiny model."""
    made = RunStore(tiny)
    monkeypatch.setattr("workbench.run_page.store", lambda: made)
    return made
