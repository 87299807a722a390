"""What an injector on recorded steps is. It changes records of a clean run, never a run: the engine needs no part in
it, so mistakes of layouts and devices that it does not have can be shown too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.step import VerifyStep

Apply = Callable[[Sequence[VerifyStep]], list[VerifyStep]]


@dataclass(frozen=True)
class RecordedInjector:
    """A fault by name.

    ``apply`` takes clean steps in order of time and returns new ones, of the same or of more ranks; it changes none of
    those it was given. It raises ``ValueError`` where the steps cannot show the fault.
    """

    name: str
    description: str  # one sentence
    apply: Apply
