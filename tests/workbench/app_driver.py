"""Runs the app without a browser and reads what it drew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streamlit.testing.v1 import AppTest

from workbench import guard

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("step_inspector", "mask_diff", "findings", "run", "isolate", "snapshots")
CALM = ("run", "isolate")  # pages that are not about the recording: its verdict is a link


def _again(error: Exception) -> None:
    raise error


# Folders of tests import this module each under a name of its own: the second time it is replaced already.
real_draw_failed = getattr(guard.draw_failed, "real", guard.draw_failed)
_again.real = real_draw_failed
guard.draw_failed = _again  # a fault is to fail the test, not to become a sentence


def open_app(page: str = "step_inspector", **query: object) -> AppTest:
    at = AppTest.from_file(str(ROOT / "workbench" / "app.py"), default_timeout=120)
    for name, value in query.items():
        at.query_params[name] = str(value)
    if page == "step_inspector":
        return at.run()
    return at.switch_page(str(ROOT / "pages" / f"{page}.py")).run()


def params(at: AppTest) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else value[0]
        for name, value in at.query_params.items()
    }


def figures(at: AppTest) -> list[dict[str, Any]]:
    return [json.loads(chart.proto.spec) for chart in at.get("plotly_chart")]


def words(at: AppTest) -> str:
    """Everything that the app says in Markdown, alerts, captions and code."""
    kinds = ("markdown", "caption", "error", "warning", "success", "info", "code", "text")
    return "\n".join(str(element.value) for kind in kinds for element in at.get(kind))
