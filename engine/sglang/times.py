"""Where a decode step of DFLASH or DDTREE spends its time: host and device, stage by stage, on a running server.

``DDTREE_TIMES=FILE`` puts a clock around each stage of :data:`STAGES` and writes medians as JSON every hundred steps,
for servers of one rank. A stage holds those inside it; device time is from the
stage's first launch to its last on the stream, waits for the host included. The clocks cost some microseconds a stage.

The drafter's cache is a stage of its own where DFLASH's worker appends to it, and "drafter's cache ahead" where DDTREE
has launched it with the acceptance; "wait for paths" is the host's wait for the target's forward and the walk.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

SETTING = "DDTREE_TIMES"
EVERY = 100  # steps between two files
KEPT = 2000  # steps that a median is of
DFLASH = "sglang.srt.speculative.dflash_worker.DFlashWorker"
STEP = f"{DFLASH}.forward_batch_generation"
APPEND = f"{DFLASH}._append_target_hidden_to_draft_kv"  # called twice a step, once with work
VERIFY = "engine.sglang.ddtree.verify"
STAGES = {
    "draft": f"{DFLASH}._prepare_for_speculative_decoding",
    "tree": "engine.sglang.ddtree.worker.tree_and_rows",
    "target": "sglang.srt.managers.tp_worker.TpModelWorker.forward_batch_generation",
    "verify": "sglang.srt.speculative.dflash_info.DFlashVerifyInput.verify",
    "verify tree": f"{VERIFY}.verify",
    "walk": f"{VERIFY}.walk",
    "drafter's cache ahead": f"{VERIFY}.append_ahead",
    "wait for paths": f"{VERIFY}.told",
    "commit": f"{VERIFY}.commit_to_tables",
}
Clock = Callable[[], float]


def _kept() -> deque[Any]:
    return deque(maxlen=KEPT)


@dataclass
class Times:
    """Stages of one process. ``event``: makes a CUDA event, None without a device."""

    path: Path
    event: Callable[[], Any] | None = None
    clock: Clock = time.perf_counter
    steps: int = 0
    inside: bool = False  # a decode step
    ended: float | None = None  # when the last step did
    host: dict[str, deque[float]] = field(default_factory=lambda: defaultdict(_kept))
    device: dict[str, deque[tuple[Any, Any]]] = field(default_factory=lambda: defaultdict(_kept))

    def step(
        self, original: Callable[..., Any], worker: Any, batch: Any, *args: Any, **kw: Any
    ) -> Any:
        """Around a step of the worker; prompts are not counted, nor what follows them."""
        extends = bool(
            batch.forward_mode.is_extend() or getattr(batch, "is_extend_in_batch", False)
        )
        if extends or batch.forward_mode.is_idle():
            self.ended = None
            return original(worker, batch, *args, **kw)
        if self.ended is not None:
            self.host["between steps"].append(self.clock() - self.ended)
        self.inside = True
        try:
            return self.stage("step")(original, worker, batch, *args, **kw)
        finally:
            self.inside, self.ended = False, self.clock()
            self.steps += 1
            if self.steps % EVERY == 0:
                self.write()

    def stage(self, name: str) -> Callable[..., Any]:
        """Around one stage, also where it ends with an exception."""

        def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if not self.inside:
                return original(*args, **kwargs)
            begun, first = self.clock(), self._mark()
            try:
                return original(*args, **kwargs)
            finally:
                last = self._mark()
                self.host[name].append(self.clock() - begun)
                if first is not None:
                    self.device[name].append((first, last))

        return hook

    def append(
        self, original: Callable[..., Any], worker: Any, batch: Any, draft_input: Any
    ) -> Any:
        """Around the drafter's cache; a call that has nothing to append is not counted."""
        features = draft_input.target_hidden
        if features is None or not len(features):
            return original(worker, batch, draft_input)
        return self.stage("drafter's cache")(original, worker, batch, draft_input)

    def _mark(self) -> Any:
        if self.event is None:
            return None
        event = self.event()
        event.record()
        return event

    def found(self) -> dict[str, Any]:
        """Medians in microseconds."""
        stages = {
            name: {
                "host_us": round(1e6 * statistics.median(seconds), 1),
                "device_us": self._device_us(name),
            }
            for name, seconds in self.host.items()
        }
        return {"steps": self.steps, "stages": stages}

    def _device_us(self, name: str) -> float | None:
        pairs = [pair for pair in self.device.get(name, ()) if pair[1].query()]
        return (
            round(1e3 * statistics.median(a.elapsed_time(b) for a, b in pairs), 1)
            if pairs
            else None
        )

    def write(self) -> None:
        """The file, in one go; a folder that takes none costs the figures and nothing else."""
        beside = self.path.with_name(self.path.name + ".new")
        try:
            beside.write_text(json.dumps(self.found(), indent=1) + "\n", encoding="utf-8")
            os.replace(beside, self.path)
        except OSError:
            return


def watch(hook_on: Callable[[str, Any], None], settings: Mapping[str, str]) -> Times:
    """Put the clocks on."""

    def event() -> Any:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    times = Times(Path(settings[SETTING]), event if torch.cuda.is_available() else None)
    hook_on(STEP, times.step)
    hook_on(APPEND, times.append)
    for name, path in STAGES.items():
        hook_on(path, times.stage(name))
    return times
