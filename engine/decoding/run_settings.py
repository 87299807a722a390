"""RunSettings: everything that one run depends on, refused at once where it cannot work, and its command line."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from engine.decoding.accept import Sampler
from engine.decoding.settings import Backend, EngineConfig, Graph
from engine.drafters.catalog import check_drafter
from engine.faults import inject
from engine.models.device import find_device, find_dtype
from engine.trace.limits import MAX_BUDGET

METHODS = ("ddtree", "chain", "autoregressive")
MOST_REQUESTS = 256  # of one run: prompts, or the batch size that a replay was captured for


@dataclass(frozen=True)
class RunSettings:
    """What to run. ``method`` "chain" drafts one path (top-k 1, budget block_size - 1)."""

    prompts: tuple[str, ...] = ()
    model: str = "smollm2"
    drafter: str = "dflash"  # or "oracle", "prompt-lookup", a DFlash folder
    accuracy: float = 0.9  # of the oracle drafter
    budget: int = 16
    topk: int | None = 4
    block_size: int = 8
    max_depth: int | None = None
    spine: bool = False
    temperature: float = 0.0
    seed: int = 0
    mode: str = "eager"  # or "replay"
    captured_bs: int | None = None  # replay: the one captured batch size; None: powers of two
    fault: str | None = None
    max_new_tokens: int = 64
    method: str = "ddtree"
    backend: str = "addressed"  # or "dense", "device": whole steps on the device
    reference: bool = True  # compute the dense reference beside every step
    device: str = "cpu"  # or "cuda", "cuda:N": where the target was loaded
    dtype: str = "float32"  # or "bfloat16"

    def __post_init__(self) -> None:
        _one_of("method", self.method, METHODS)
        _one_of("mode", self.mode, tuple(Graph))
        _one_of("backend", self.backend, tuple(Backend))
        if not self.prompts or not all(prompt.strip() for prompt in self.prompts):
            raise ValueError("prompts: expected at least one, none of them blank")
        if self.fault is not None and self.method == "autoregressive":
            raise ValueError(
                f"fault {self.fault}: needs a method with verify steps, found autoregressive"
            )
        find_device(self.device)
        find_dtype(self.dtype)
        for prompt in self.prompts:
            _text("prompts", prompt)
        _text("model", self.model)
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens: expected at least 1, found {self.max_new_tokens}")
        _at_most("prompts", len(self.prompts), MOST_REQUESTS)
        _at_most("budget", self.budget, MAX_BUDGET)
        _at_most("block_size", self.block_size, MAX_BUDGET + 1)
        if self.captured_bs is not None:
            if self.captured_bs < 1:
                raise ValueError(f"captured_bs: expected at least 1, found {self.captured_bs}")
            _at_most("captured_bs", self.captured_bs, MOST_REQUESTS)
        if not 0.0 <= self.accuracy <= 1.0:
            raise ValueError(f"accuracy: expected 0 … 1, found {self.accuracy}")
        config = EngineConfig(
            self.budget,
            self.topk,
            self.block_size,
            self.max_depth,
            self.spine,
            sampler=Sampler(self.temperature, self.seed),
            stages=inject(self.fault, replay=self.mode == Graph.REPLAY),
        )
        if self.backend == Backend.DEVICE:
            self._on_device_alone(config)
        if self.method != "autoregressive":
            check_drafter(self.drafter, self.model)

    def _on_device_alone(self, config: EngineConfig) -> None:
        """Refuse what steps without the host cannot do."""
        from engine.graphs.engine import refuse  # brings Triton, which takes its time to import

        refuse(config)
        if self.method != "autoregressive" and self.drafter in ("oracle", "prompt-lookup"):
            raise ValueError(
                f"drafter {self.drafter}: expected a DFlash drafter with steps on the device alone"
            )

    def command(self) -> str:
        """The command line that repeats this run."""
        words = ["ddtree", "run"]
        for prompt in self.prompts:
            words += ["--prompt", prompt]
        for name in RunSettings.__dataclass_fields__:
            value = getattr(self, name)
            if name == "prompts" or value == RunSettings.__dataclass_fields__[name].default:
                continue
            option = "--" + name.replace("_", "-")
            if name == "reference":
                words.append("--no-reference")
            elif name == "spine":
                words.append("--spine")
            else:
                words += [option, "0" if value is None and name == "topk" else str(value)]
        return shlex.join(words)


def _at_most(name: str, found: int, most: int) -> None:
    if found > most:
        raise ValueError(f"{name}: expected at most {most}, found {found}")


def _text(name: str, found: str) -> None:
    """Refuse what a shell hands over for bytes that are not UTF-8: no recording could hold it."""
    try:
        found.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}: expected UTF-8 text, found {ascii(found)[:60]}") from None


def _one_of(name: str, found: str, known: tuple[str, ...]) -> None:
    if found not in known:
        raise ValueError(f"{name}: expected one of {', '.join(known)}, found {found!r}")
