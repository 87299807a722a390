"""Devices: how a user names one, and where each tensor of a run lives.

On the model's device: weights, KV pool and ``req_to_token``, the drafter's context, hidden states and logits, and all
that a forward reads (:class:`~engine.decoding.metadata.VerifyInputs`: rows, slots, offsets, mask), replay buffers too.

On the host: trees and their candidates, links, the allocator's slots, chosen tokens, accepted paths, recordings.

Nothing crosses between the two but through :func:`to_device` and :func:`to_host`, and every tensor names its device
where it is made. ``to_host`` waits for the device; a step does it five times, whatever its batch: for the candidates,
the offsets that the addressed attention launches by, the bounds of the positions, the choices of all rows, and what
the moved KV rows hold.
"""

from __future__ import annotations

import torch
from torch import Tensor

HOST = torch.device("cpu")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The same on ``device``. Doesn't wait: a host tensor may be freed or changed at once."""
    # Pageable memory is read before this returns.
    return tensor.to(device, non_blocking=True)


def to_host(tensor: Tensor) -> Tensor:
    """The same on the host, complete; waits for all that the device was told before."""
    return tensor.to(HOST)


def find_device(name: str) -> torch.device:
    """``cpu``, ``cuda`` or ``cuda:N``, with the number. Raises ``ValueError`` for a device that isn't there."""
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (":" in name and not (kind == "cuda" and number.isdigit())):
        raise ValueError(f"device: expected cpu, cuda or cuda:N, found {name!r}")
    if kind == "cpu":
        return HOST
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise ValueError(
            f"device {name}: expected a GPU that torch can use, found none (torch {torch.__version__})"
        )
    if number and int(number) >= count:
        raise ValueError(f"device {name}: expected cuda:0 … cuda:{count - 1}, found no such GPU")
    return torch.device("cuda", int(number) if number else torch.cuda.current_device())


def find_dtype(name: str) -> torch.dtype:
    """``float32`` or ``bfloat16``. Raises ``ValueError`` for any other."""
    if name not in DTYPES:
        raise ValueError(f"dtype: expected {' or '.join(DTYPES)}, found {name!r}")
    return DTYPES[name]


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done all that it was told; a host has already."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def described(device: torch.device) -> str:
    """The device and the versions that a measurement depends on, on one line."""
    versions = [f"torch {torch.__version__}"]
    if device.type != "cuda":
        return ", ".join([f"CPU, {torch.get_num_threads()} threads", *versions])
    try:
        import triton

        versions.append(f"triton {triton.__version__}")
    except ImportError:
        pass
    return ", ".join([torch.cuda.get_device_name(device), *versions, f"CUDA {torch.version.cuda}"])
