"""The training loop: batches of a corpus to a DFlash drafter, resumable, by steps or by minutes.

The target is frozen and runs beside the drafter, so that no features are stored. Recipe of DFlash (arXiv 2602.06036):
random anchors in the target's own answers, one denoising step, loss weighted by place, AdamW with a cosine.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.models.decoder import Decoder
from engine.models.dflash import DFlash
from engine.training.blocks import block_hidden, target_features
from engine.training.corpus import Batch, Corpus, batches
from engine.training.loss import BlockLoss, Weighting, block_loss, cosine
from engine.training.optim import MasterOptimizer, OptimizerKind

STATE = "state.pt"
# What torch raises for a file that is not one of its own, or not whole.
UNREADABLE = (OSError, RuntimeError, EOFError, LookupError, ValueError, TypeError)


@dataclass(frozen=True)
class TrainSettings:
    """One training run. It ends after ``steps``, or after ``minutes`` of training where they are given."""

    steps: int = 4000
    minutes: float | None = None
    batch: int = 64  # sequences a step
    anchors: int = 64  # blocks a sequence
    weighting: Weighting = field(default_factory=Weighting)
    optimizer: OptimizerKind = "adamw"
    lr: float = 6e-4
    warm_up: float = 0.04
    weight_decay: float = 0.01
    seed: int = 0
    compiled: bool = False  # layers of the drafter by torch.compile
    report_every: int = 50  # steps
    validate_every: float = 60.0  # seconds
    save_every: float = 120.0  # seconds


@dataclass(frozen=True)
class Figures:
    """What is known at one point of a run."""

    step: int
    seconds: float  # of training, validation left out
    share: float  # of the whole run that is done
    loss: float  # nats, weighted mean since the last figures
    accuracy: tuple[float, ...]  # by place 1 … L
    accepted: (
        float  # tokens that a chain of the block would emit, the bonus included, mean over blocks
    )
    validation: bool = False


class Trainer:
    """A run that can be stopped and taken up again from ``folder``."""

    def __init__(
        self,
        target: Decoder,
        drafter: DFlash,
        corpus: Corpus,
        held_out: Corpus,
        settings: TrainSettings,
        folder: Path,
    ) -> None:
        """Takes up the run in ``folder`` if there is one. Raises ``ValueError`` if it had other settings."""
        self.target, self.drafter = target, drafter
        self.corpus, self.held_out = corpus, held_out
        self.settings, self.folder = settings, folder
        drafter.requires_grad_(True)
        self.optimizer = MasterOptimizer(
            drafter.parameters(),
            kind=settings.optimizer,
            lr=settings.lr,
            weight_decay=settings.weight_decay,
        )
        self.step, self.seconds = 0, 0.0
        self.history: list[Figures] = []
        if (folder / STATE).is_file():
            self._resume()

    @property
    def share(self) -> float:
        """Share of the run that is done, 0 … 1."""
        if self.settings.minutes is not None:
            return min(self.seconds / (60 * self.settings.minutes), 1.0)
        return min(self.step / max(self.settings.steps, 1), 1.0)

    def run(
        self, report: Callable[[Figures], None] = lambda _: None, *, until: float | None = None
    ) -> bool:
        """Train to the end, or until ``time.monotonic`` reads ``until``, and save. True: to the end."""
        tally = _Tally(self.drafter.config.block_size - 1, self.drafter.device)
        validated = saved = started = time.monotonic()
        before = self.seconds
        stream = self._stream()
        while self.share < 1.0 and (until is None or time.monotonic() < until):
            tally.add(self._train(next(stream)))
            self.step += 1
            if self.step % self.settings.report_every == 0:
                self._wait()
                now = time.monotonic()
                self.seconds = before + now - started
                self._note(tally.figures(self), report)
                if now - validated > self.settings.validate_every:
                    self._note(self.validate(), report)
                    validated = time.monotonic()
                    started += validated - now
                if time.monotonic() - saved > self.settings.save_every:
                    self.save()
                    saved = time.monotonic()
        self._wait()
        self.seconds = before + time.monotonic() - started
        self._note(self.validate(), report)
        self.save()
        return self.share >= 1.0

    def _note(self, figures: Figures, report: Callable[[Figures], None]) -> None:
        self.history.append(figures)
        report(figures)

    def _wait(self) -> None:
        if self.drafter.device.type == "cuda":
            torch.cuda.synchronize()

    def _stream(self) -> Iterator[Batch]:
        """Batches without end, from where the run stands."""
        epoch, skip = 0, self.step
        while True:
            count = 0
            for batch in self._batches(self.corpus, self.settings.seed + epoch):
                count += 1
                if count > skip:
                    yield batch.to(self.drafter.device)
            if count == 0:
                raise ValueError(
                    f"corpus: expected at least {self.settings.batch} sequences (one batch), found "
                    f"{len(self.corpus)}"
                )
            skip, epoch = max(skip - count, 0), epoch + 1

    def _batches(self, corpus: Corpus, seed: int) -> Iterator[Batch]:
        return batches(
            corpus,
            size=min(self.settings.batch, len(corpus)),
            anchors=self.settings.anchors,
            block_size=self.drafter.config.block_size,
            seed=seed,
            pin=self.drafter.device.type == "cuda",
        )

    def _train(self, batch: Batch) -> BlockLoss:
        found = self._loss(batch)
        found.loss.backward()  # type: ignore[no-untyped-call]
        settings = self.settings
        if settings.minutes is None:
            factor = cosine(self.step, settings.steps, settings.warm_up)
        else:  # the clock is read every few steps; between them the rate stands still
            factor = cosine(int(1e6 * self.share), 10**6, settings.warm_up)
            factor = min(factor, (self.step + 1) / 100)
        self.optimizer.step(factor)
        return found

    def _loss(self, batch: Batch) -> BlockLoss:
        features = target_features(self.target, batch.tokens, self.drafter.config.target_layer_ids)
        hidden = block_hidden(
            self.drafter,
            self.target.embedding,
            features,
            batch.tokens,
            batch.anchors,
            compiled=self.settings.compiled and torch.is_grad_enabled(),
        )
        return block_loss(hidden, self.target.head.dense(), batch.labels, self.settings.weighting)

    @torch.no_grad()
    def validate(self) -> Figures:
        """Figures on the held-out sequences."""
        tally = _Tally(self.drafter.config.block_size - 1, self.drafter.device)
        for batch in self._batches(self.held_out, seed=0):
            tally.add(self._loss(batch.to(self.drafter.device)))
        return tally.figures(self, validation=True)

    def save(self) -> None:
        """Write the state, whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / f"{STATE}.partial"
        state = {
            "settings": asdict(self.settings),
            "config": asdict(self.drafter.config),
            "step": self.step,
            "seconds": self.seconds,
            "history": [asdict(figures) for figures in self.history],
            "optimizer": self.optimizer.state(),
        }
        torch.save(state, partial)
        partial.replace(self.folder / STATE)

    def _resume(self) -> None:
        path = self.folder / STATE
        try:
            state: dict[str, Any] = torch.load(
                path, map_location=self.drafter.device, weights_only=True
            )
        except (*UNREADABLE, pickle.UnpicklingError) as error:
            raise ValueError(
                f"{path}: expected the state of a run, found a damaged file; remove it to begin anew"
            ) from error
        for name, mine in (("settings", self.settings), ("config", self.drafter.config)):
            for key, value in asdict(mine).items():
                if state[name][key] != value:
                    raise ValueError(
                        f"{path}: {key} was {state[name][key]!r} when the run began, found {value!r} now"
                    )
        self.step, self.seconds = state["step"], state["seconds"]
        self.history = [
            Figures(**{**kept, "accuracy": tuple(kept["accuracy"])}) for kept in state["history"]
        ]
        self.optimizer.load(state["optimizer"])


class _Tally:
    """Sums over batches, kept on the device until they are asked for."""

    def __init__(self, length: int, device: torch.device) -> None:
        self._zero: tuple[Tensor, ...] = (
            torch.zeros((), device=device),
            torch.zeros(length, device=device),
            torch.zeros(length, device=device),
            torch.zeros((), device=device),
        )
        self._sums, self._count = list(self._zero), 0

    def add(self, found: BlockLoss) -> None:
        parts = (found.loss.detach(), found.correct, found.counted, found.accepted)
        self._sums = [total + part for total, part in zip(self._sums, parts, strict=True)]
        self._count += 1

    def figures(self, trainer: Trainer, *, validation: bool = False) -> Figures:
        """Means since the last call."""
        loss, correct, counted, accepted = self._sums
        count = max(self._count, 1)
        self._sums, self._count = list(self._zero), 0
        return Figures(
            trainer.step,
            trainer.seconds,
            trainer.share,
            float(loss) / count,
            tuple((correct / counted.clamp(min=1)).tolist()),
            float(accepted) / count,
            validation,
        )
