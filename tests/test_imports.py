"""What may import what: the engine knows no user interface, and starting is light."""

import subprocess
import sys

import pytest

LISTING = "import sys; print(' '.join(sorted({name.split('.')[0] for name in sys.modules})))"


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; {LISTING}"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_whole_engine_imports_no_user_interface_and_no_sglang() -> None:
    walk = (
        "import pkgutil, importlib, engine; "
        "[importlib.import_module(m.name) for m in pkgutil.walk_packages(engine.__path__, 'engine.')]"
    )
    assert not modules_after(walk) & {"streamlit", "plotly", "sglang", "workbench"}


@pytest.mark.parametrize(
    "module",
    ["engine.step", "engine.tree", "engine.oracle", "engine.layout", "engine.checks.registry"],
)
def test_checks_need_numpy_alone(module: str) -> None:
    heavy = {"torch", "pyarrow", "transformers", "triton", "pandas", "networkx", "scipy"}
    assert not modules_after(f"import {module}") & heavy


def test_the_command_line_starts_without_what_its_commands_need() -> None:
    assert not modules_after("import workbench.cli") & {
        "torch",
        "streamlit",
        "plotly",
        "transformers",
    }
