"""Which checks have nothing to say about a step."""

from __future__ import annotations

from collections.abc import Callable

from engine.checks import fast_clean
from engine.checks.context import StepContext
from engine.checks.glance import extents, masks, nodes, outcome
from engine.checks.glance.plain_step import PlainStep, plain_step

# By check: whether it is surely silent. I11 is about padded requests, which no plain step has; I16 is quick by itself.
CONDITIONS: dict[str, Callable[[PlainStep], bool]] = {
    "I1": extents.rows,
    "I2": extents.tree_size,
    "I3": extents.kv,
    "I4": extents.mask,
    "I5": masks.packing,
    "I6": extents.capacity,
    "I7": nodes.tree_form,
    "I8": masks.content,
    "I9": masks.live_rows,
    "I10": nodes.positions,
    "I11": lambda _: True,
    "I12": nodes.links,
    "I13": outcome.acceptance,
    "I14": outcome.bonus,
    "I15": outcome.kv_commit,
    "I17": outcome.recurrent_commit,
    "I18": outcome.drafter_context,
    "I20": outcome.output,
    "I22": outcome.reference,
}


def silent_checks(context: StepContext) -> set[str]:
    """Ids of the checks that would find nothing, as far as that is told at a glance."""
    plain = plain_step(context) if fast_clean.ENABLED else None
    if plain is None:
        return set()
    return {check for check, holds in CONDITIONS.items() if holds(plain)}
