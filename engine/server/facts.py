"""What a server says about its speculation: ``meta_info`` of an answer, ``/metrics``, ``/server_info``.

Names differ between versions; each fact is looked for under all that it had. Every value is checked: a server may say
anything.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from engine.server.client import Client, ServerError

MAX_BARS = 4096
VERIFIED = ("spec_verify_ct",)
CORRECT = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
PROPOSED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")
LENGTH, RATE = ("spec_accept_length",), ("spec_accept_rate",)

SAMPLE = re.compile(r"^(sglang[:_]spec_\w+)(?:\{[^}]*\})?\s+(\S+)")
MAX_SAMPLES = 32
SHOWN = (
    "version",
    "model_path",
    "attention_backend",
    "speculative_algorithm",
    "speculative_draft_model_path",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "disable_cuda_graph",
    "disable_overlap_schedule",
    "enable_deterministic_inference",
    "tp_size",
    "page_size",
    "dtype",
)


@dataclass(frozen=True)
class Speculation:
    """Of one answer. None: not told."""

    accept_length: float | None = None  # tokens a verify step
    accept_rate: float | None = None
    verify_steps: int | None = None
    correct_drafts: int | None = None
    proposed_drafts: int | None = None
    histogram: tuple[int, ...] | None = None  # [k]: verify steps with k correct drafts


def speculation_of(meta: Any, tokens: int | None) -> Speculation | None:
    """From ``meta_info``; None where it says nothing of speculation. ``tokens``: that the answer has."""
    if not isinstance(meta, dict):
        return None
    steps, length = _count(_first(meta, VERIFIED)), _number(_first(meta, LENGTH))
    if length is None and steps and tokens is not None:
        length = tokens / steps
    found = Speculation(
        accept_length=length,
        accept_rate=_number(_first(meta, RATE)),
        verify_steps=steps,
        correct_drafts=_count(_first(meta, CORRECT)),
        proposed_drafts=_count(_first(meta, PROPOSED)),
        histogram=_histogram(_first(meta, HISTOGRAM)),
    )
    return None if found == Speculation() else found


def metrics_of(text: str) -> tuple[tuple[str, float], ...]:
    """Samples of speculation in the text of ``/metrics``."""
    found = []
    for line in text.splitlines():
        match = SAMPLE.match(line)
        if match and (value := _parsed(match[2])) is not None:
            found.append((match[1], value))
    return tuple(found[:MAX_SAMPLES])


def settings_of(info: Any) -> tuple[tuple[str, str], ...]:
    """What ``/server_info`` says that matters here, and the mean acceptance length that it counts."""
    if not isinstance(info, dict):
        return ()
    found = [(name, str(info[name])[:200]) for name in SHOWN if info.get(name) is not None]
    states = info.get("internal_states")
    for number, state in enumerate(states[:64] if isinstance(states, list) else []):
        length = _number(state.get("avg_spec_accept_length")) if isinstance(state, dict) else None
        if length is not None:
            found.append((f"internal_states[{number}].avg_spec_accept_length", f"{length:.3f}"))
    return tuple(found)


def read_metrics(client: Client) -> tuple[tuple[str, float], ...]:
    """Of a server that tells them; none where it does not."""
    try:
        return metrics_of(client.get("/metrics", timeout=10).decode("utf-8", "replace"))
    except ServerError:
        return ()


def read_settings(client: Client) -> tuple[tuple[str, str], ...]:
    """What matters here of :func:`read_info`."""
    return settings_of(read_info(client))


def read_info(client: Client) -> Any:
    """``/server_info`` as it is, else what the old path says; None where there is neither. May hold secrets."""
    for path in ("/server_info", "/get_server_info"):
        try:
            return client.parsed(path, client.get(path, timeout=10))
        except ServerError:
            continue
    return None


def _first(meta: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((meta[name] for name in names if meta.get(name) is not None), None)


def _number(value: Any) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    if not usable or abs(value) > 1e15 or not math.isfinite(value):
        return None
    return float(value)


def _count(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number >= 0 and number == int(number) else None


def _parsed(text: str) -> float | None:
    try:
        return _number(float(text))
    except ValueError:
        return None


def _histogram(value: Any) -> tuple[int, ...] | None:
    """A list of counts, or an object of counts by length."""
    if isinstance(value, dict):
        keys = [key for key in value if str(key).isdecimal() and len(str(key)) <= 4]
        longest = max((int(key) for key in keys), default=-1)
        value = [value.get(str(k), value.get(k, 0)) for k in range(longest + 1)]
    if not isinstance(value, list) or not 0 < len(value) <= MAX_BARS:
        return None
    counts = [_count(entry) for entry in value]
    return None if None in counts else tuple(count or 0 for count in counts)
