"""Parcel: a step on its way between threads, ready to be sent, its arrays perhaps still on their way to the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.sglang.raw import RawStep
from engine.sglang.wire import message_of


@dataclass(eq=False, slots=True)
class Parcel:
    """Made by the thread that has time for it; who sends it needs little."""

    number: int
    message: list[Any]  # pieces as :func:`engine.sglang.wire.send` takes them
    bytes: int  # of all arrays
    arriving: list[Any]  # copies under way, each with an ``event``

    @classmethod
    def of(cls, step: RawStep) -> Parcel:
        """Takes over what is arriving. Raises what a pickle raises."""
        arriving, step.arriving = step.arriving, []
        return cls(step.number, message_of(step), step.bytes, arriving)

    def wait(self) -> None:
        """Block until every array has arrived; what was kept for that is let go."""
        for copy in self.arriving:
            if not copy.event.query():  # waiting lets go of the interpreter, and has to win it back
                copy.event.synchronize()
        self.arriving.clear()
