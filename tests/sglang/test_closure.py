"""What the tap may import, and when it does anything at all."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from engine.sglang import plugin
from tests.test_imports import modules_after

ENTRY = "from workbench.cli import main; main()"
ALLOWED = "import torch, numpy, numpy.typing"
OURS = (
    "import engine.sglang.plugin, engine.sglang.attach, engine.sglang.recorder, engine.sglang.sink"
)


def test_the_tap_imports_nothing_but_torch_numpy_and_the_standard_library() -> None:
    further = modules_after(f"{ALLOWED}; {OURS}") - modules_after(ALLOWED)
    assert {name for name in further if name not in sys.stdlib_module_names} <= {"engine"}


def test_ddtree_imports_triton_beside_them() -> None:
    ours = "import engine.sglang.ddtree.plugin, engine.sglang.ddtree.worker"
    further = modules_after(f"{ALLOWED}, triton; {ours}") - modules_after(f"{ALLOWED}, triton")
    assert {name for name in further if name not in sys.stdlib_module_names} <= {"engine"}


def test_the_entry_point_imports_the_standard_library_alone() -> None:
    assert not modules_after("import engine.sglang.plugin") & {"torch", "numpy", "pyarrow"}


def test_without_a_directory_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(plugin.DIRECTORY, raising=False)
    monkeypatch.setitem(sys.modules, plugin.SCHEDULER, None)
    plugin.register()


def test_outside_a_scheduler_nothing_happens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(plugin.DIRECTORY, str(tmp_path / "trace"))
    monkeypatch.delitem(sys.modules, plugin.SCHEDULER, raising=False)
    plugin.register()
    assert not (tmp_path / "trace").exists()


def test_the_entry_point_is_declared() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    group = project["project"]["entry-points"]["sglang.srt.plugins"]
    assert group["ddtree"] == f"{plugin.__name__}:register"


def test_the_command_line_checks_what_the_tap_wrote(tmp_path: Path) -> None:
    from engine.sglang.assemble import Origin, assemble
    from engine.sglang.sink import Format, Sink
    from engine.trace import TraceHeader
    from tests.sglang.raw_steps import worked_raw

    sink = Sink(tmp_path, "rank0", TraceHeader(created_by="ddtree tap"), Format.JSONL)
    for number in range(2):
        sink.write(assemble(worked_raw(number, broken=number == 1), Origin()))
    sink.close()
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, "check", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert "I8" in done.stdout
