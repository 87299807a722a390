"""X-rays in a process of their own: Triton's interpreter is chosen by a variable that is read when Triton is imported.

The caller's process is left as it is. The child is ended by its id when the caller stops or fails.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import engine
from engine.step import VerifyStep
from engine.trace.json_codec import dumps
from engine.xray.child import ERROR, OPTIONS, REFUSED, STEP
from engine.xray.errors import XRayError
from engine.xray.kernels import Kernel
from engine.xray.measure import ProgressFn
from engine.xray.report import XRay, restore

INTERPRETER = "TRITON_INTERPRET"
POLL = 0.2  # seconds
LONGEST = 1800.0  # seconds


class XRayStopped(Exception):
    """The caller would not wait for it."""


def xray_step(
    step: VerifyStep,
    kernel: Kernel,
    *,
    device: str = "cpu",
    sglang_path: str | None = None,
    progress: ProgressFn | None = None,
    stop: threading.Event | None = None,
) -> XRay:
    """X-ray a step in a child process: on a CPU with Triton's interpreter, or on ``cuda``, ``cuda:N``.

    Raises :class:`XRayError` for what cannot be X-rayed, :class:`XRayStopped` once ``stop`` is set.
    """
    with tempfile.TemporaryDirectory(prefix="ddtree-xray-") as name:
        folder = Path(name)
        (folder / STEP).write_text(dumps(step), encoding="utf-8")
        options = {"kernel": str(kernel), "device": device, "sglang_path": sglang_path}
        (folder / OPTIONS).write_text(json.dumps(options), encoding="utf-8")
        with (folder / "stderr").open("w+", encoding="utf-8", errors="replace") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "engine.xray.child", name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_environment(device),
            )
            try:
                _follow(process, progress, stop)
            finally:
                process.kill()
                process.wait()
            errors.seek(0)
            return _answer(folder, process.returncode, errors.read())


def _environment(device: str) -> dict[str, str]:
    root = str(Path(engine.__file__).resolve().parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    variables.pop(INTERPRETER, None)
    return variables | ({INTERPRETER: "1"} if device == "cpu" else {})


def _follow(
    process: subprocess.Popen[bytes],
    progress: ProgressFn | None,
    stop: threading.Event | None,
) -> None:
    """Hand on what the child says until it ends."""
    assert process.stdout is not None
    begun, rest = time.monotonic(), b""
    with process.stdout as pipe, selectors.DefaultSelector() as ready:
        ready.register(pipe, selectors.EVENT_READ)
        while True:
            if stop is not None and stop.is_set():
                raise XRayStopped
            if time.monotonic() - begun > LONGEST:
                raise XRayError(f"kernel: expected an answer within {LONGEST:.0f} s, found none")
            if not ready.select(POLL):
                continue
            data = os.read(pipe.fileno(), 1 << 16)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            if progress is not None and lines:
                progress(*json.loads(lines[-1]))
    process.wait()


def _answer(folder: Path, status: int, errors: str) -> XRay:
    if status == 0:
        return restore(folder)
    if status == REFUSED and (folder / ERROR).exists():
        raise XRayError((folder / ERROR).read_text(encoding="utf-8"))
    last = errors.strip().rpartition("\n")[2] or "no reason given"
    ended = f"signal {-status}" if status < 0 else f"status {status}"
    raise XRayError(f"kernel: the process that ran it ended with {ended}: {last}")
