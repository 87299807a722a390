"""What a session follows: the directory, what was seen of it, and whether it looks on.

A session holds its follower itself: nothing is read unless its page asks, and it is forgotten with the session.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

import streamlit as st

from engine.checks.finding import Finding
from engine.live.follower import Follower
from engine.live.state import LiveState

KEY = "live following"
FINDINGS, EVENTS = 100, 20  # that are kept


@dataclass(eq=False)
class Following:
    """One directory. ``state`` None: it was not looked at yet."""

    follower: Follower
    playing: bool = True
    state: LiveState | None = None
    looked_at: float = 0.0  # seconds since 1970
    findings: deque[Finding] = field(default_factory=lambda: deque(maxlen=FINDINGS))  # newest first
    events: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=EVENTS))

    @property
    def url(self) -> str:
        """What is followed."""
        return self.follower.directory.url

    def look(self) -> LiveState:
        """Poll once, and keep what is new."""
        self.state, self.looked_at = self.follower.poll(), time.time()
        own = (f for f in self.state.findings if f.consequence_of is None)
        self.findings.extendleft(own)
        self.events.extendleft((self.looked_at, event) for event in self.state.events)
        return self.state


def following() -> Following | None:
    """This session's."""
    found: Following | None = st.session_state.get(KEY)
    return found


def follow(url: str) -> Following:
    """Begin to follow; the same directory goes on. Raises ``ValueError`` for what is none."""
    held = following()
    if held is None or held.url != url:
        held = st.session_state[KEY] = Following(Follower(url))
    held.playing = True
    return held
