"""The one selection: trace · rank · step · request · node, clamped to what the recording holds."""

from __future__ import annotations

from dataclasses import dataclass

from engine.checks.finding import Finding
from workbench import urlstate
from workbench.loaded import Loaded
from workbench.tokens import shorten


@dataclass(frozen=True)
class Selection:
    """What is selected in a recording that has steps. ``notes`` say what of the URL could not be
    had.
    """

    rank: int
    step: int
    request: int  # number in the batch
    rid: str | None  # None: the step has no live request
    node: int | None
    notes: tuple[str, ...] = ()


def resolve(loaded: Loaded, asked: dict[str, str | None]) -> Selection:
    """``asked``: the texts of the URL; missing or impossible ones become the nearest that exists."""
    notes: list[str] = []
    rank = _nearest("rank", asked.get("rank"), loaded.ranks, loaded.ranks[0], notes)
    steps = loaded.steps_of(rank)
    faulty = loaded.faulty_steps(rank)
    step = _nearest("step", asked.get("step"), steps, faulty[0] if faulty else steps[0], notes)
    record = loaded.step(loaded.position(step, rank))
    rids = [request.rid for request in record.requests]
    rid = asked.get("request")
    if rid is not None and rid not in rids:
        notes.append(
            f"request {shorten(rid, 60)} is not in step {step}; "
            f"showing {shorten(rids[0], 60) if rids else 'none'}"
        )
    request = rids.index(rid) if rid in rids else 0
    node = _node(
        asked.get("node"),
        len(record.requests[request].tree.parents) if rids else 0,
        record.config.budget,
        notes,
    )
    return Selection(rank, step, request, rids[request] if rids else None, node, tuple(notes))


def _nearest(name: str, text: str | None, have: list[int], default: int, notes: list[str]) -> int:
    if text is None:
        return default
    number = _number(text)
    if number in have:
        return number
    nearest = default if number is None else min(have, key=lambda n: (abs(n - number), n))
    notes.append(f"{name} {text[:20]} is not in this recording; showing {name} {nearest}")
    return nearest


def _node(text: str | None, num_nodes: int, budget: int | None, notes: list[str]) -> int | None:
    if text is None:
        return None
    number, rows = _number(text), max(num_nodes, (budget or 0) + 1)
    if number is not None and 0 <= number < rows:
        return number
    notes.append(f"node {text[:20]} is not in this step (0 … {rows - 1}); none is selected")
    return None


def _number(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isdecimal() and digits.isascii() and len(digits) <= 15 else None


def asked() -> dict[str, str | None]:
    """The selection as the URL states it."""
    return {name: urlstate.get(name) or None for name in urlstate.SELECTION}


def go_to(finding: Finding, *, rid: str | None = None, node: int | None = None) -> None:
    """Select the place of a finding. ``rid``, ``node``: where a finding of the whole step first
    shows.
    """
    blank = dict.fromkeys(("step", "rank", "request", "node"))
    urlstate.put(**{**blank, **place_of(finding, rid, node)})


def place_of(finding: Finding, rid: str | None, node: int | None) -> dict[str, str]:
    """The selection of a finding's place as the URL holds it; see :func:`go_to`."""
    values = {
        "step": finding.step,
        "rank": finding.rank,
        "request": finding.request or rid,
        "node": finding.where.node if node is None else node,
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def pick_node(node: int | None) -> None:
    """Select a node of the current request."""
    urlstate.put(node=node)
