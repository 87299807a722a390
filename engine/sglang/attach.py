"""Puts the hooks on, and starts the recorder when the scheduler stands."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.sglang.feeder import Feeder
from engine.sglang.handlers import HANDLERS
from engine.sglang.origin import origin_of, server_arguments, versions, watched
from engine.sglang.probe import Find, Probe, installed, probe, resolve
from engine.sglang.recorder import write_health
from engine.sglang.sink import TOTAL_BYTES, chosen_format, free_place
from engine.sglang.table import OWN, TARGETS, Target
from engine.sglang.tap import Tap
from engine.sglang.warm import warm
from engine.sglang.writer import Opening
from engine.trace.header import TraceHeader

ON = ("1", "true", "yes", "y", "on")
DOUBTFUL = {  # settings of the server under which hooks see too little, and why
    "SGLANG_ENABLE_OVERLAP_PLAN_STREAM": "SGLANG_ENABLE_OVERLAP_PLAN_STREAM: masks are read before they are filled",
    "SGLANG_ENABLE_METADATA_GLUE_GRAPH": "SGLANG_ENABLE_METADATA_GLUE_GRAPH: replays soon go without the watched call",
}
HookOn = Callable[[str, Any], None]


def attach(
    folder: Path, hook_on: HookOn, settings: Mapping[str, str], find: Find = installed
) -> Tap:
    """Watch every target that this version has. ``hook_on(path, hook)``: ``hook(original, *args, **kwargs)``."""
    found = probe(find, (*TARGETS, *OWN, *_outside(settings)))
    tap, sources = Tap(), _sources(found)
    originals: dict[str, Any] = {}
    for target, parameters in found.found:
        if target.path not in originals:
            originals[target.path] = resolve(target.path)
            if not HANDLERS[target.handler].counts:
                tap.lift.note(target.path)
            hook = tap.around(HANDLERS[target.handler], parameters, target.handler)
            hook_on(target.path, hook)

    tap.early = any(target.handler == "dflash_step" for target, _ in found.found)
    gaps = {"missing": list(found.missing), "refused": list(found.refused)}

    def start(scheduler: Any) -> None:
        about = {**gaps, "hooks": in_place(originals)}
        try:
            _start(tap, scheduler, folder, about, sources, settings)
        except Exception as error:
            _not_started(folder, f"{type(error).__name__}: {error}", about)
            raise
        tap.lift.settle()
        tap.start = None
        warm(scheduler)

    tap.start = start
    if not found.usable or "start" in found.missing:
        _not_started(folder, "functions are missing in this version", gaps)
    return tap


def _not_started(folder: Path, why: str, about: Mapping[str, Any]) -> None:
    """A health file of the process: its rank is not known."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {"versions": versions(), "process": os.getpid(), "state": f"not started: {why}"}
    write_health(folder / f"health.process{os.getpid()}.json", {**state, **about})


def _outside(settings: Mapping[str, str]) -> list[Target]:
    """Verifications that ``DDTREE_TRACE_HOOKS`` names; one that returns three tensors is told by its parameters."""
    named = [path.strip() for path in settings.get("DDTREE_TRACE_HOOKS", "").split(",")]
    return [
        Target(f"verification: {path}", path, ("batch", "logits_output"), "outside")
        for path in filter(None, named)
    ]


def _sources(found: Probe) -> list[dict[str, Any]]:
    """File, lines and hash of each watched function, read before a hook lies over it."""
    sources = []
    for target, _ in found.found:
        try:
            sources.append(asdict(watched(target.path, resolve(target.path))))
        except (OSError, TypeError) as error:
            sources.append({"path": target.path, "unknown": str(error)})
    return sources


def in_place(originals: Mapping[str, Any]) -> dict[str, bool]:
    """By path: whether something else than the original function lies there now."""
    return {path: resolve(path) is not function for path, function in originals.items()}


def _start(
    tap: Tap,
    scheduler: Any,
    folder: Path,
    about: dict[str, Any],
    sources: list[dict[str, Any]],
    settings: Mapping[str, str],
) -> None:
    origin, sizes = origin_of(scheduler)
    form = chosen_format(settings.get("DDTREE_TRACE_FORMAT", "auto"))
    place = free_place(folder / origin.group, f"rank{origin.rank}")
    place.mkdir(parents=True, exist_ok=True)
    facts = {
        "process": os.getpid(),
        "versions": versions(),
        "rank": origin.rank,
        "world_size": origin.world_size,
        "sizes": sizes,
        "format": form.value,
        "doubtful": [
            why for name, why in DOUBTFUL.items() if settings.get(name, "0").lower() in ON
        ],
        **about,
    }
    header = _header(scheduler, facts, sources)
    total = int(settings.get("DDTREE_TRACE_MAX_BYTES", TOTAL_BYTES))
    opening = Opening(place, f"rank{origin.rank}", header, form, total, origin, folder, facts)
    feeder = Feeder(tap, opening)
    feeder.start()
    tap.stop = feeder.stop


def _header(scheduler: Any, facts: dict[str, Any], sources: list[dict[str, Any]]) -> TraceHeader:
    arguments = getattr(scheduler, "server_args", None)
    known = {} if arguments is None else server_arguments(arguments)
    notes = {**facts, "server_args": known, "watched": sources}
    return TraceHeader(
        created_by="ddtree tap",
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        model=known.get("model_path"),
        drafter=known.get("speculative_draft_model_path"),
        notes=json.dumps(notes, ensure_ascii=False),
    )
