"""Trials of servers as background jobs of this session: waiting until one is ready, then the prompts."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any

import streamlit as st

from engine.server.client import Client, address_of
from engine.server.ready import wait_ready
from engine.server.trial import Endpoint, run_trial
from workbench import background
from workbench.background import Job, ProgressFn, Stopped

KEY, PROBLEM, SINCE = "server trial", "server problem", "server since"
PATIENCE = 1800.0  # seconds until a server is ready


def current_job() -> Job | None:
    """This session's newest trial; its result is an :class:`engine.server.trial.Trial`."""
    key = st.session_state.get(KEY)
    return None if key is None else background.store().get(key)


def seconds() -> float:
    """Since the newest trial began."""
    return time.monotonic() - float(st.session_state.get(SINCE, time.monotonic()))


def start(url: str, prompts: Sequence[str], endpoint: str, max_tokens: int, key: str = "") -> None:
    """Begin a trial, or keep what is wrong with the call for the page to tell."""
    try:
        address = address_of(url)
        Client(address, key=key)  # refuses a key that no header can hold
        if not any(prompt.strip() for prompt in prompts):
            raise ValueError("prompts: expected one at least, found none")
    except ValueError as error:
        st.session_state[PROBLEM] = str(error)
        return
    asked = [prompt for prompt in prompts if prompt.strip()]

    def work(progress: ProgressFn, stop: threading.Event) -> Any:
        def tick() -> None:
            if stop.is_set():
                raise Stopped

        client = Client(address, tick=tick, key=key)
        waited = wait_ready(
            client, PATIENCE, lambda words, elapsed: progress(words, elapsed / PATIENCE)
        )
        return run_trial(
            client,
            asked,
            endpoint=Endpoint(endpoint),
            max_tokens=max_tokens,
            waited=waited,
            report=progress,
        )

    st.session_state[KEY] = ("server", uuid.uuid4().hex)
    st.session_state[SINCE] = time.monotonic()
    background.store().start(st.session_state[KEY], work)
