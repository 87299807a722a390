"""Measured: which keys each row attends to, told from what the kernel wrote.

First every key has a channel for its column and one for its group (committed tokens of a request, rows of a request,
everything else). Requests share the column channels, which is exact as long as a row's weight lies in its own
request's groups. Keys of groups that are hit from elsewhere are then run with a channel each, and so named one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from engine.oracle import Oracle
from engine.step import VerifyStep
from engine.xray.bounds import Launch, bounded, require
from engine.xray.errors import XRayError
from engine.xray.formula import formula
from engine.xray.kernels import Kernel, Runner, make_runner
from engine.xray.keys import NOBODY, Keys, keys_of
from engine.xray.launch import HEAD_DIM, Channels, passes_of, run_passes
from engine.xray.seen import OUTSIDE, Seen

ProgressFn = Callable[[str, float], None]
MOST_REPEATS = 16  # of one key in one row that are told apart
Weights = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Measurement:
    """A kernel's behaviour on one step, beside that of the formula."""

    keys: Keys
    seen: Seen
    formula: Seen
    label: str  # of the kernel, with its version
    passes: int
    reads_prefix: bool  # the kernel was told to read prefix columns of the mask


def measure(
    step: VerifyStep,
    kernel: Kernel,
    *,
    device: torch.device | None = None,
    sglang_path: str | None = None,
    progress: ProgressFn | None = None,
) -> Measurement:
    """Run ``kernel`` on the metadata of ``step``. On a CPU, Triton kernels need its interpreter to be on.

    Raises :class:`XRayError` for a step, kernel or device that cannot be X-rayed.
    """
    device = torch.device("cpu") if device is None else device
    oracle = Oracle(step)
    require(step, oracle)
    keys = keys_of(step, oracle)
    launch = bounded(step, oracle, keys)
    runner = make_runner(
        kernel, device, HEAD_DIM, reads_prefix=launch.reads_prefix, sglang_path=sglang_path
    )
    probe = _Probe(launch, keys, runner, device, progress)
    seen = probe.seen(fill=0)
    if launch.mask_overrun:
        other = probe.seen(fill=1)
        seen.times[(seen.times == 0) & (other.times > 0)] = OUTSIDE
    expected = formula(launch, keys, runner.tile)
    seen = replace(seen, contested=expected.contested)
    return Measurement(keys, seen, expected, runner.label, probe.passes, launch.reads_prefix)


class _Probe:
    """One launch, run with different channels."""

    def __init__(
        self,
        launch: Launch,
        keys: Keys,
        runner: Runner,
        device: torch.device,
        progress: ProgressFn | None,
    ) -> None:
        self.launch, self.keys, self.runner, self.device = launch, keys, runner, device
        self.progress, self.passes = progress, 0
        self.group, self.code, self.width = channels_of(keys)
        self.groups = int(self.group.max()) + 1

    def seen(self, fill: int) -> Seen:
        """``fill``: what mask cells outside the recorded buffer hold."""
        codes = (self.code, self.width + self.group)
        weight, written = self._run(codes, self.width + self.groups, fill)
        shares, by_group = weight[:, : self.width], weight[:, self.width :]
        own = self._own_groups()
        hit = by_group > 0
        foreign = np.flatnonzero((hit & ~own).any(axis=0))
        share = np.zeros((self.keys.rows, self.keys.count), np.float32)
        rest = shares.copy()
        members = np.flatnonzero(np.isin(self.group, foreign))
        if len(members):
            alone = np.full(self.keys.count, -1)
            alone[members] = np.arange(len(members))
            share[:, members], _ = self._run((alone,), len(members), fill)
            np.subtract.at(rest.T, self.code[members], share[:, members].T)
        for row in range(self.keys.rows):
            ours = own[row].copy()
            ours[foreign] = False
            members = np.flatnonzero(ours[self.group])
            share[row, members] = rest[row, self.code[members]]
        times = np.array([times_of(row) for row in share], np.int16).reshape(share.shape)
        return Seen(times, written, np.zeros(self.keys.rows, np.bool_))

    def _own_groups(self) -> NDArray[np.bool_]:
        """Per row, the groups that are its request's, bool [rows, groups]."""
        own = np.zeros((self.keys.rows, self.groups), np.bool_)
        for request, columns in enumerate(self.keys.columns):
            rows = columns[columns < self.keys.rows]
            groups = np.unique(self.group[self.keys.request == request])
            own[np.ix_(rows, groups)] = True
        return own

    def _run(
        self, codes: tuple[Channels, ...], channels: int, fill: int
    ) -> tuple[Weights, NDArray[np.bool_]]:
        """Share of each channel, 0 where a row sees nothing or is not written, and which rows are."""
        total = len(passes_of(self.launch, channels))
        parts, written = [], np.zeros(self.keys.rows, np.bool_)
        outputs = run_passes(self.launch, self.runner, codes, channels, self.device, fill=fill)
        for number, output in enumerate(outputs, start=1):
            self.passes += 1
            if self.progress is not None:
                self.progress(f"{self.runner.label}: pass {self.passes}", number / total)
            parts.append(output.weight)
            written |= output.written
        weight = np.nan_to_num(np.concatenate(parts, axis=1), nan=0.0)
        weight[~written] = 0.0
        return weight, written


def channels_of(keys: Keys) -> tuple[Channels, Channels, int]:
    """Group of each key, its channel (own groups of a request do not share any), and the number of channels."""
    requests = len(keys.columns)
    numbers = np.arange(keys.count)
    is_row, nobody = numbers < keys.rows, keys.request == NOBODY
    group = np.where(is_row, requests + keys.request, keys.request)
    group[nobody] = 2 * requests
    committed = ~is_row & ~nobody
    longest = int(keys.column[committed].max(initial=-1)) + 1
    code = np.where(committed, keys.column, 0)
    for columns in keys.columns:
        rows = columns[columns < keys.rows]
        code[rows] = longest + np.arange(len(rows))
    code[nobody] = np.arange(int(nobody.sum()))
    return group.astype(np.int64), code.astype(np.int64), int(code.max(initial=0)) + 1


def times_of(share: Weights) -> NDArray[np.int16]:
    """How often each key was attended to, from its share of a row's weight: the smallest whole numbers that fit.

    ``[0.5, 0.25, 0.25]`` is 2, 1 and 1. Raises :class:`XRayError` for shares that no whole numbers explain.
    """
    least = 0.5 / max(len(share), 1) / MOST_REPEATS
    there = share > least
    times = np.zeros(len(share), np.int16)
    if not there.any():
        return times
    smallest = float(share[there].min())
    for count in range(1, MOST_REPEATS + 1):
        exact = share[there] * (count / smallest)
        whole = np.rint(exact)
        if np.abs(exact - whole).max() < 0.02 and abs(float(share[there].sum()) - 1) < 1e-3:
            times[there] = whole
            return times
    raise XRayError(
        f"output: expected equal weights of the keys that a row attends to, found {share[there][:8].tolist()}"
    )
