"""What a DDTREE server is asked for, and the one place that decides how many rows target and drafter have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.decoding.device_tree import WORD_BITS, WORDS
from engine.graphs.candidates import MOST
from engine.sglang.ddtree.faults import Fault

BUDGET, TOPK, SPINE, FAULT = "DDTREE_BUDGET", "DDTREE_TOPK", "DDTREE_SPINE", "DDTREE_FAULT"
DEFAULT_BUDGET = 16
SLACK = 4  # columns of req_to_token beyond context and verify width
ON, OFF = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


@dataclass(frozen=True)
class Options:
    """Sizes of the tree and what is broken on purpose. Raises ``ValueError`` for what cannot be served."""

    budget: int  # nodes without the root
    block_size: int  # tokens of a drafter's block, the bonus token included
    topk: int | None = None  # ranks that a depth may use; None for as many as the budget
    spine: bool = False
    fault: Fault | None = None

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ValueError(f"DDTREE: expected a budget of 1 or more nodes, found {self.budget}")
        if self.block_size < 2:
            raise ValueError(f"DDTREE: expected a block of 2 or more, found {self.block_size}")
        if self.topk is not None and not 1 <= self.topk <= MOST:
            raise ValueError(f"{TOPK}: expected 1 … {MOST}, found {self.topk}")
        if self.block_size > self.target_width + SLACK:
            raise ValueError(
                f"DDTREE: a block of {self.block_size} does not fit into a request's last slots with a budget of "
                f"{self.budget}; use a budget of at least {self.block_size - SLACK - 1}, or a smaller "
                "--speculative-dflash-block-size"
            )
        most = WORDS * (WORD_BITS // self.candidates.bit_length())
        if self.max_depth > most:
            raise ValueError(
                f"DDTREE: at most {most} draft positions with {self.candidates} ranks each, found {self.max_depth}"
            )
        if self.fault is Fault.VERIFY_WIDTH and self.block_size > self.target_width:
            raise ValueError(
                f"{FAULT}=verify-width: a block of {self.block_size} over {self.target_width} rows would let the "
                "kernel write past its output; use a larger budget"
            )

    @property
    def target_width(self) -> int:
        """Rows a request that the target verifies: the root and the budget's nodes."""
        return self.budget + 1

    @property
    def draft_width(self) -> int:
        """Rows a request of the drafter's forward."""
        return self.block_size

    @property
    def attention_width(self) -> int:
        """Rows a request that the target's attention backend lays out: the target's, unless broken on purpose."""
        return self.draft_width if self.fault is Fault.VERIFY_WIDTH else self.target_width

    @property
    def max_depth(self) -> int:
        """Draft positions of a block, and so the depth of the deepest node."""
        return self.block_size - 1

    @property
    def steps(self) -> int:
        """Nodes of the longest path, the root included."""
        return min(self.max_depth, self.budget) + 1

    @property
    def candidates(self) -> int:
        """Tokens of each draft position that the tree may use."""
        return min(self.budget if self.topk is None else self.topk, self.budget, MOST)


def options_of(server_args: Any, environ: Mapping[str, str]) -> Options:
    """Options of arguments that :func:`.arguments.settle` has settled."""
    return Options(
        int(server_args.speculative_num_draft_tokens) - 1,
        int(server_args.speculative_dflash_block_size),
        number(environ, TOPK),
        _switch(environ, SPINE),
        Fault.named(environ.get(FAULT)),
    )


def number(environ: Mapping[str, str], name: str) -> int | None:
    """A whole number from the environment, None where it is not set."""
    text = environ.get(name, "").strip()
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name}: expected a whole number, found {text!r}") from None


def _switch(environ: Mapping[str, str], name: str) -> bool:
    text = environ.get(name, "").strip().lower()
    if text not in ON + OFF:
        raise ValueError(f"{name}: expected 0 or 1, found {text!r}")
    return text in ON
