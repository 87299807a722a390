"""Steps a second that the checks get through on recordings."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from engine.checks.registry import check_trace
from engine.trace import open_trace


def bench_checks(paths: list[Path], *, rounds: int = 3) -> dict[str, Any]:
    """Read once, check ``rounds`` times. Keys: ``steps``, ``steps_per_second`` (median), ``findings``, ``checks``."""
    steps = [step for path in paths for step in open_trace(path)]
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        report = check_trace(steps)
        seconds.append(time.perf_counter() - started)
    return {
        "recordings": len(paths),
        "steps": len(steps),
        "steps_per_second": len(steps) / statistics.median(seconds),
        "findings": len(report.findings),
        "checks": len(report.checks),
    }
