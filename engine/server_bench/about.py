"""What a server says of itself, as far as it bears on speed; its keys and passwords do not."""

from __future__ import annotations

from typing import Any

from engine.server.client import Client
from engine.server.facts import SHOWN, read_info

MORE = (
    "chunked_prefill_size",
    "cuda_graph_max_bs",
    "disable_radix_cache",
    "kv_cache_dtype",
    "max_running_requests",
    "mem_fraction_static",
    "quantization",
    "sampling_backend",
)
SPECULATIVE = "speculative_"
MOST = 64  # entries


def about(client: Client) -> dict[str, str]:
    """Version, model and settings; empty where the server tells none."""
    info = read_info(client)
    return chosen(info) if isinstance(info, dict) else {}


def chosen(info: dict[str, Any]) -> dict[str, str]:
    """The entries that count, as words."""
    names = [
        *SHOWN,
        *MORE,
        *sorted(n for n in info if n.startswith(SPECULATIVE) and n not in SHOWN),
    ]
    values = {name: info.get(name) for name in names}
    plain = {n: v for n, v in values.items() if isinstance(v, str | int | float)}
    return {name[:100]: str(value)[:200] for name, value in list(plain.items())[:MOST]}
