"""The plugin through SGLang's own hook registry, taken out of the wheels; the server is the double."""

from __future__ import annotations

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from engine.sglang import plugin
from tests.sglang import server_double as double
from tests.sglang import worked
from tests.sglang.recorded import steps
from tests.sglang.serving import Server
from tests.sglang_wheels import REGISTRY, sglang_folder

NAME = "sglang.srt.plugins.hook_registry"


@pytest.fixture(params=["0.5.12", "0.5.23"])
def registry(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The registry's module under its own name; nothing else of the package."""
    spec = spec_from_file_location(NAME, sglang_folder(request.param) / REGISTRY)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "sglang.srt.plugins", ModuleType("sglang.srt.plugins"))
    monkeypatch.setitem(sys.modules, NAME, module)
    spec.loader.exec_module(module)
    return module.HookRegistry


def test_hooks_through_the_registry(
    registry: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(plugin.DIRECTORY, str(tmp_path))
    for kind in [kind for kinds in double.PLACES.values() for kind in kinds]:
        for name, member in list(vars(kind).items()) if isinstance(kind, type) else ():
            if callable(member):
                monkeypatch.setattr(kind, name, member)  # puts back afterwards what hooks replace
    monkeypatch.setattr(double, "verify_tree_greedy_func", double.verify_tree_greedy_func)
    with double.installed():
        plugin.register()
        registry.apply_hooks()
        server = Server(tmp_path, None)  # type: ignore[arg-type]
        answer = server.run_eager(worked.verify_input(), worked.batch())
    assert answer == "verified"
    (step,) = steps(server, 1)
    assert [path.tolist() for path in step.outcome.accept_index] == [[0, 2, 3, -1]]
    hooks = json.loads((tmp_path / "health.rank0.json").read_text())["hooks"]
    assert hooks
    assert all(hooks.values()), hooks
