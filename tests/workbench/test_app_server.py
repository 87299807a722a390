"""The real command from another directory. Run: pytest tests/workbench/test_app_server.py."""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "browser"))

from app_server import serve


def test_streamlit_run_from_another_directory(recorded: Path, tmp_path: Path) -> None:
    with serve(recorded, tmp_path) as address:
        with urllib.request.urlopen(address, timeout=10) as answer:
            assert b"<title>Streamlit</title>" in answer.read()
        with urllib.request.urlopen(
            f"{address}/app/static/visible-space.woff", timeout=10
        ) as answer:
            assert answer.read(4) == b"wOFF"
    log = (tmp_path / "server.log").read_text()
    assert "Traceback" not in log
    assert f"URL: {address}" in log  # not 0.0.0.0: the app's own configuration is in force
