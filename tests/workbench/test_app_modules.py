"""``workbench/`` comes first on the path of ``streamlit run``: no module may hide another. Run:
pytest tests/workbench/test_app_modules.py.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from workbench.theme import MONO

ROOT = Path(__file__).resolve().parents[2]
OWN = {"ddtree_workbench", "workbench", "ddtree-workbench"}


def modules() -> set[str]:
    folder = ROOT / "workbench"
    files = {path.stem for path in folder.glob("*.py")}
    return (files | {path.name for path in folder.iterdir() if path.is_dir()}) - {
        "__init__",
        "__pycache__",
    }


def test_no_module_hides_the_standard_library_or_a_package() -> None:
    taken = set(sys.stdlib_module_names) | {path.name for path in ROOT.iterdir() if path.is_dir()}
    for package, owners in importlib.metadata.packages_distributions().items():
        if not OWN & set(owners):
            taken.add(package)
    assert not modules() & taken


def test_pages_hold_no_logic() -> None:
    for path in (ROOT / "pages").glob("*.py"):
        assert len(path.read_text().splitlines()) <= 12, path.name


def test_nothing_renders_html_of_others() -> None:
    for path in (ROOT / "workbench").rglob("*.py"):
        text = path.read_text()
        assert "unsafe_allow_html" not in text, path
        for call in re.findall(r"st\.html\((.*)\)", text):
            assert call == 'HERE / "static" / "app.css"', path


def test_the_server_stays_on_this_machine_and_sends_nothing() -> None:
    config = tomllib.loads((ROOT / "workbench" / ".streamlit" / "config.toml").read_text())
    assert config["server"]["address"] == "127.0.0.1"
    assert set(config["server"]["allowedHosts"]) == {"127.0.0.1", "localhost"}
    assert config["browser"]["gatherUsageStats"] is False
    assert "enableCORS" not in config["server"]
    assert {"light", "dark"} <= set(config["theme"])
    assert config["theme"]["codeFont"] == MONO


def test_pandas_is_whole_before_the_first_figure() -> None:
    """Plotly asks for it in sys.modules alone, where it stands half imported while another session's first table is
    drawn: two tabs that open at once, and one of them fails.
    """
    program = "import sys, workbench.figures.base; assert hasattr(sys.modules['pandas'], 'Series')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
