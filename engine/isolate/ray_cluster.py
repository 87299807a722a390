"""A Ray cluster: one that this machine belongs to, or one that is made for the moment. Ray is optional.

Ray itself waits 80 seconds for an address where nothing answers and then ends the process; here the wait has a limit,
and what goes wrong leaves as :class:`ClusterError`. What a Ray that is started here would send home is switched off.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LOCAL, AUTO = "local", "auto"
CONNECT = 5.0  # seconds
OBJECTS = (
    128 << 20
)  # bytes that a Ray started here keeps for what is sent: lines and parts of files
TRY = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False)"
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}


class ClusterError(OSError):
    """There is no Ray, no cluster, or nothing on it that a cell can be measured with."""


@contextmanager
def cluster(address: str | None, patience: float) -> Iterator[Any]:
    """Ray, connected: as it is where this process is already, else to ``address``: ``local`` or None starts one on
    this machine, ``auto`` finds the one that runs here, ``host:port`` is the head of one that this machine belongs to.
    Raises :class:`ClusterError`, after ``patience`` seconds at the latest.
    """
    ray = installed_ray()
    if ray.is_initialized():  # not ours to shut down
        yield ray
        return
    options = _options(address, patience)
    try:
        ray.init(**options, **QUIET)
    except (Exception, SystemExit) as error:
        raise ClusterError(f"ray at {address or LOCAL}: {_last_line(str(error))}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def installed_ray() -> Any:
    """The package. Raises :class:`ClusterError` where there is none."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when it is imported
    try:
        import ray
    except ImportError:
        how = "pip install 'ddtree-workbench[ray]'"
        raise ClusterError(
            f"ray: expected to be installed ({how}), found no such package"
        ) from None
    return ray


def slots(ray: Any, num_cpus: float, num_gpus: float) -> int:
    """Workers that fit on the nodes that are there; each needs all it needs on one of them.

    Not covered: nodes that a cluster would only start on demand. Raises :class:`ClusterError` where none fits.
    """
    wanted = {"CPU": num_cpus, "GPU": num_gpus}
    count = 0
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for has in nodes:
        fits = [int(has.get(name, 0) // need) for name, need in wanted.items() if need > 0]
        count += min(fits, default=1)
    if count:
        return count
    found = "; ".join(f"{node.get('CPU', 0):g} and {node.get('GPU', 0):g}" for node in nodes)
    need = f"a node with {num_cpus:g} CPUs and {num_gpus:g} GPUs"
    raise ClusterError(f"ray: expected {need}, found {found or 'no node'}")


def _options(address: str | None, patience: float) -> dict[str, Any]:
    if address in (None, LOCAL):
        return {"address": LOCAL, "include_dashboard": False, "object_store_memory": OBJECTS}
    assert address is not None
    if address != AUTO:
        require_head(address, patience)
    return {"address": address}


def require_head(address: str, patience: float) -> None:
    """Raises ``ValueError`` for what is no address, and :class:`ClusterError` where no head answers."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        expected = f"{LOCAL}, {AUTO} or host:port of a head whose cluster this machine belongs to"
        raise ValueError(f"address: expected {expected}, found {address!r}")
    try:
        socket.create_connection((host, int(port)), min(CONNECT, patience)).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(f"ray at {address}: {error}") from None
    try:  # in a process of its own, which can be ended
        done = subprocess.run(
            [sys.executable, "-c", TRY, address],
            capture_output=True,
            text=True,
            timeout=patience,
        )
    except subprocess.TimeoutExpired:
        said = f"expected an answer within {patience:g} s, found none"
        raise ClusterError(f"ray at {address}: {said}") from None
    if done.returncode:
        raise ClusterError(f"ray at {address}: {_last_line(done.stderr)}")


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2][:300] or "no reason given"
