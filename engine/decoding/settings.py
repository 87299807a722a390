"""Settings of an engine run."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine.attention.addressed import Unwritten
from engine.decoding.accept import Sampler
from engine.decoding.stages import CORRECT, Stages


class Graph(StrEnum):
    """How a step is launched."""

    EAGER = "eager"
    REPLAY = "replay"


class Backend(StrEnum):
    """Which attention verifies."""

    ADDRESSED = "addressed"
    DENSE = "dense"
    DEVICE = "device"  # whole steps on the device: tree-verify kernel, CUDA graphs (engine.graphs)


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"  # an end-of-sequence token
    LENGTH = "length"  # max_new_tokens
    CONTEXT = "context"  # no room for another step


@dataclass(frozen=True)
class EngineConfig:
    """Settings of a run. ``q_len`` rows a request are verified; ``block_size - 1`` positions are drafted."""

    budget: int = 16
    topk: int | None = 4  # ranks that a depth may use
    block_size: int = 8
    max_depth: int | None = None  # deepest node; None: block_size - 1
    spine: bool = False  # the chain of best tokens is always in the tree
    kept_candidates: int = 0  # of each draft position, for the record, whatever the tree needs
    sampler: Sampler = field(default_factory=Sampler)
    graph: Graph = Graph.EAGER
    captured_bs: tuple[int, ...] = (1, 2, 4, 8)  # batch sizes that replays exist for
    backend: Backend = Backend.ADDRESSED
    unwritten: Unwritten = Unwritten.STALE
    max_context: int = 1024  # tokens a request may commit
    max_requests: int = 8
    stop: tuple[int, ...] = ()
    stages: Stages = CORRECT

    def __post_init__(self) -> None:
        for name, least in (("budget", 1), ("block_size", 2)):
            if (found := getattr(self, name)) < least:
                raise ValueError(f"{name}: expected at least {least}, found {found}")
        for name in ("topk", "max_depth"):
            if (found := getattr(self, name)) is not None and found < 1:
                raise ValueError(f"{name}: expected at least 1, or no cap, found {found}")

    @property
    def q_len(self) -> int:
        """Rows of one request in verify."""
        return self.budget + 1

    def captured_for(self, raw_bs: int) -> int:
        """Smallest captured batch size that holds ``raw_bs`` requests."""
        fitting = [size for size in sorted(self.captured_bs) if size >= raw_bs]
        if not fitting:
            raise ValueError(
                f"captured_bs: expected one of at least {raw_bs}, found {self.captured_bs}"
            )
        return fitting[0]

    def check_room(self, max_position: int) -> None:
        """Raise ``ValueError`` where a model of so many positions has no room for the last step."""
        room = max_position - self.q_len
        if self.max_context > room:
            raise ValueError(
                f"max_context: expected at most {room} (the model's {max_position} positions less "
                f"{self.q_len} draft rows), found {self.max_context}"
            )

    def check_prompt(self, rid: str, tokens: int, max_new_tokens: int) -> None:
        """Raise ``ValueError`` for a prompt, or a number of new tokens, that does not fit."""
        if not 0 < tokens <= self.max_context:
            raise ValueError(
                f"prompt of {rid}: expected 1 … {self.max_context} tokens, found {tokens}"
            )
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens: expected at least 1, found {max_new_tokens}")
