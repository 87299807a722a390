"""Waiting for a server that still loads its model: minutes for a large one."""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.server.client import Client, ServerError

EVERY = 1.0  # seconds
PROBE = 10.0  # seconds of one question, at most
ABSENT = (404, 405)  # the server answers, but not here
REFUSED = (401, 403)  # the server answers, but not us

Report = Callable[[str, float], None]  # words, seconds since the wait began; raising ends it


def wait_ready(
    client: Client,
    patience: float,
    report: Report,
    *,
    sleep: Callable[[float], None] = time.sleep,
    since: float | None = None,
) -> float:
    """Seconds that it took until the server was ready. Raises ``ServerError`` after ``patience`` seconds.

    ``since``: when these begin, by ``time.monotonic``; None: now.
    """
    started = time.monotonic() if since is None else since
    while True:
        rest = patience - (time.monotonic() - started)
        problem = _problem(client, min(PROBE, max(1.0, rest)))
        elapsed = time.monotonic() - started
        if problem is None:
            return elapsed
        if problem.status in REFUSED:
            raise problem
        if elapsed >= patience:
            raise ServerError(f"not ready after {elapsed:.0f} s: {problem}", problem.status)
        report(f"waiting for the server: {problem}", elapsed)
        sleep(min(EVERY, max(0.05, patience - elapsed)))


def _problem(client: Client, timeout: float) -> ServerError | None:
    """None where ``/health`` says yes, or where there is no such question and ``/v1/models`` is answered."""
    try:
        client.get("/health", timeout=timeout)
    except ServerError as error:
        if error.status not in ABSENT:
            return error
        try:
            client.get("/v1/models", timeout=timeout)
        except ServerError as other:
            return None if other.status in ABSENT else other
    return None
