"""What tests of started servers share: an experiment on the pretended one, and what it wrote into its diary."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.isolate.experiment import ServerSubject
from engine.isolate.matrix import Matrix
from engine.isolate.measured import Measured
from engine.isolate.outcome import Outcome, outcomes
from engine.isolate.served import ServedMeasure
from engine.isolate.subject import Report

SCRIPT = str(Path(__file__).with_name("pretend_server.py"))
START = (sys.executable, "-I", "-S", SCRIPT, "--port", "{port}")
GRACE = 0.3  # seconds
LONG = 20.0  # of grace: each server writes its end into the diary


def quiet(_words: str, _share: float) -> None:
    """Nobody watches."""


def free_port(ahead: int = 0) -> int:
    """The ports that follow, so many, are free too."""
    while True:
        with ExitStack() as ports, suppress(OSError, OverflowError):
            first = ports.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            for number in range(1, ahead + 1):
                ports.enter_context(socket.socket()).bind(("127.0.0.1", port + number))
            return port


def matrix(**changes: Any) -> Matrix:
    """One budget, one of everything."""
    few = {"budgets": (7,), "topks": (1,), "graphs": (True,), "batches": (1,)}
    few |= {"used_prompts": (0,), "max_new_tokens": 8}
    return Matrix(**{**few, "prompts": ("first", "second", "third"), **changes})


def subject(folder: Path, timeout: float = 20.0, ahead: int = 0, **behaviour: Any) -> ServerSubject:
    told = json.dumps({"diary": str(folder / "diary"), **behaviour})
    return ServerSubject(
        command=(*START, "--budget", "{budget}", "--topk", "{topk}", "{eager}"),
        plain_command=(*START, "--plain"),
        url=f"http://127.0.0.1:{free_port(ahead)}",
        environment=(("PRETEND", told),),
        patience=20.0,
        ahead=ahead,
        timeout=timeout,
    )


def measure(
    folder: Path, tried: Matrix, on: ServerSubject, *, grace: float = GRACE
) -> ServedMeasure:
    return ServedMeasure(tried, on, folder / "traces", grace=grace)


def outcome(result: Measured) -> Outcome:
    """Of one cell by itself."""
    return outcomes([result])[result.cell]


def diary(folder: Path) -> list[dict[str, Any]]:
    path = folder / "diary"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def starts(folder: Path) -> list[str]:
    """Names of the servers, in the order in which they were started."""
    return [line["name"] for line in diary(folder) if "start" in line]


def alive(folder: Path) -> list[int]:
    """Processes of any server that still run, their children included."""
    known = {line[key] for line in diary(folder) for key in ("pid", "child") if key in line}
    return [pid for pid in known if _runs(pid)]


def announced(
    folder: Path, tried: Matrix, on: ServerSubject, report: Report = quiet
) -> list[Measured]:
    """Results of all cells, which are expected; times are left out."""
    served = measure(folder, tried, on, grace=LONG)
    served.expect(list(tried))
    try:
        results = [served.measure(cell, report) for cell in tried]
    finally:
        served.close()
        assert alive(folder) == []
    changes = {"seconds": 0.0, "tokens_per_s": None, "plain_tokens_per_s": None}
    return [replace(result, **changes) for result in results]


def most_alive(folder: Path) -> int:
    """At any moment; each on a port that no other has then."""
    ports: dict[int, int] = {}
    most = 0
    for line in diary(folder):
        if "start" in line:
            assert line["port"] not in ports.values()
            ports[line["pid"]] = line["port"]
            most = max(most, len(ports))
        elif "end" in line:
            ports.pop(line["pid"], None)  # it may be ended before it has said that it began
    return most


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20.0
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def processes(*words: str) -> list[int]:
    """Those whose command line holds all of them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            line = path.read_text()
            if all(word in line for word in words):
                found.append(int(path.parent.name))
    return found


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state not in "ZX"
