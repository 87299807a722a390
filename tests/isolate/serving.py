"""What tests of started servers share: an experiment on the pretended one, and what it wrote into its diary."""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine.isolate.experiment import ServerSubject
from engine.isolate.matrix import Matrix
from engine.isolate.measured import Measured
from engine.isolate.outcome import Outcome, outcomes
from engine.isolate.served import ServedMeasure

SCRIPT = str(Path(__file__).with_name("pretend_server.py"))
START = (sys.executable, "-I", "-S", SCRIPT, "--port", "{port}")
GRACE = 0.3  # seconds


def quiet(_words: str, _share: float) -> None:
    """Nobody watches."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def matrix(**changes: Any) -> Matrix:
    """One budget, one of everything."""
    few = {"budgets": (7,), "topks": (1,), "graphs": (True,), "batches": (1,)}
    few |= {"used_prompts": (0,), "max_new_tokens": 8}
    return Matrix(**{**few, "prompts": ("first", "second", "third"), **changes})


def subject(folder: Path, timeout: float = 20.0, **behaviour: Any) -> ServerSubject:
    told = json.dumps({"diary": str(folder / "diary"), **behaviour})
    return ServerSubject(
        command=(*START, "--budget", "{budget}", "--topk", "{topk}", "{eager}"),
        plain_command=(*START, "--plain"),
        url=f"http://127.0.0.1:{free_port()}",
        environment=(("PRETEND", told),),
        patience=20.0,
        timeout=timeout,
    )


def measure(folder: Path, tried: Matrix, on: ServerSubject) -> ServedMeasure:
    return ServedMeasure(tried, on, folder / "traces", grace=GRACE)


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
