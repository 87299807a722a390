"""Guard of one server: a small process between the workbench and what it starts, so that nothing is left behind.

    python -I guard.py GRACE LOG COMMAND …

It starts the command in a session of its own, output to the end of LOG, and says ``pid N`` or ``error …``, at the end
``status N`` (negative: ended by a signal). Once its standard input says anything or is closed, as it is when the
workbench ends in whatever way, it sends SIGTERM to everything in that session, and SIGKILL after GRACE seconds. It
leaves the session and the parenthood of its caller, and does not outlive the command.

Not covered: a process that has left the session by itself, as a daemon does. Runs on Linux.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

POLL = 0.05  # seconds
AFTER_KILL = 10.0  # seconds that dying may take, as with a large model in memory
PR_SET_PDEATHSIG = 1


def main(grace: float, log: str, command: list[str]) -> None:
    """Never returns before the session is empty."""
    if os.fork():  # whoever kills its own children must not kill this one
        os._exit(0)
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        with open(log, "ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_before,  # this process has one thread
            )
    except OSError as error:
        _say(f"error {error.strerror}: {error.filename}")
        return
    _say(f"pid {process.pid}")
    _until_told_or_over(process)
    end_session(process.pid, grace)
    if process.poll() is not None:
        _say(f"status {process.returncode}")


def _before() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # should this one be killed


def _until_told_or_over(process: subprocess.Popen[bytes]) -> None:
    with selectors.DefaultSelector() as ready:
        ready.register(0, selectors.EVENT_READ)
        while process.poll() is None and not ready.select(POLL):
            pass


def end_session(session: int, grace: float) -> None:
    """SIGTERM to all of it, SIGKILL to what is left after ``grace`` seconds."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, AFTER_KILL)):
        deadline = time.monotonic() + patience
        for pid in living(session):
            _send(pid, number)
        while living(session) and time.monotonic() < deadline:
            time.sleep(POLL)


def living(session: int) -> list[int]:
    """Processes of a session that are not zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            if fields[0] not in "ZX" and int(fields[3]) == session:
                found.append(int(entry.name))
    return found


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _say(line: str) -> None:
    try:
        os.write(1, f"{line}\n".encode())
    except OSError:
        return  # nobody listens any more


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2], sys.argv[3:])
