"""Optimisation of 16-bit weights with float32 masters, by AdamW alone or with Muon for the matrices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

OptimizerKind = Literal["adamw", "muon"]


class MasterOptimizer:
    """Steps float32 copies of the parameters and writes them back in the parameters' own type."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        kind: OptimizerKind = "adamw",
        lr: float = 6e-4,
        weight_decay: float = 0.01,
        clip: float = 1.0,
    ) -> None:
        self.parameters = [p for p in parameters if p.requires_grad]
        self.masters = [p.detach().float().clone() for p in self.parameters]
        self.lr, self.clip = lr, clip
        matrices = [m for m in self.masters if m.ndim == 2 and kind == "muon"]
        rest = [m for m in self.masters if m.ndim != 2 or kind != "muon"]
        fused = self.masters[0].is_cuda
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(rest, lr=lr, weight_decay=weight_decay, fused=fused)
        ]
        if matrices:
            self.optimizers.append(
                torch.optim.Muon(
                    matrices, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"
                )
            )

    def step(self, factor: float) -> Tensor:
        """One step at ``factor`` times the learning rate; returns the norm of the gradient before clipping."""
        for master, parameter in zip(self.masters, self.parameters, strict=True):
            assert parameter.grad is not None
            master.grad = parameter.grad.float()
            parameter.grad = None
        norm = torch.nn.utils.clip_grad_norm_(self.masters, self.clip)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.lr * factor
            optimizer.step()
        with torch.no_grad():
            for master, parameter in zip(self.masters, self.parameters, strict=True):
                parameter.copy_(master)
        return norm

    def state(self) -> dict[str, Any]:
        """What a file needs to go on from here."""
        return {"masters": self.masters, "optimizers": [o.state_dict() for o in self.optimizers]}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a :meth:`state`."""
        with torch.no_grad():
            for master, parameter, kept in zip(
                self.masters, self.parameters, state["masters"], strict=True
            ):
                master.copy_(kept)
                parameter.copy_(kept)
        for optimizer, kept in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
