"""What a run says while it goes on, and at its end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.step import VerifyStep


@dataclass(frozen=True)
class Progress:
    """Work without text to show. ``fraction``: 0 … 1."""

    label: str
    fraction: float


@dataclass(frozen=True)
class PlainTokens:
    """Plain decoding's text so far."""

    rid: str
    tokens: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class TreeTokens:
    """The chosen method's text so far."""

    rid: str
    tokens: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class StepRecorded:
    """A step was verified, and written if there is a trace."""

    step: VerifyStep


@dataclass(frozen=True)
class RequestSummary:
    """One prompt's two texts side by side."""

    rid: str
    prompt: str
    plain_tokens: tuple[int, ...]
    tree_tokens: tuple[int, ...]
    plain_text: str
    tree_text: str
    first_difference: int | None  # index of the first generated token that differs
    accept_lengths: tuple[int, ...]  # a step, bonus included


@dataclass(frozen=True)
class RunSummary:
    """How a run ended."""

    requests: tuple[RequestSummary, ...]
    trace_path: Path | None
    plain_seconds: float
    tree_seconds: float  # drafting, verifying and committing; without the reference
    steps: int

    @property
    def lossless(self) -> bool:
        """Whether every text equals plain decoding's, token by token."""
        return all(request.first_difference is None for request in self.requests)


@dataclass(frozen=True)
class Finished:
    """The last event."""

    summary: RunSummary


Event = Progress | PlainTokens | TreeTokens | StepRecorded | Finished
