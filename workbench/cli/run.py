"""``ddtree run``: decode prompts, compare with plain decoding, record every verify step, say what is wrong."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.device import Device, Dtype, DtypeOption, load
from workbench.cli.failures import one_line_errors

if TYPE_CHECKING:
    from engine.checks.registry import TraceChecker
    from engine.decoding.events import Event, RequestSummary, RunSummary
    from engine.decoding.run_settings import RunSettings
    from engine.models.catalog import Target

DIFFERENT = 1  # exit status: the text is not plain decoding's, or a check found a fault
INTERRUPTED = 130
QUIET_SECONDS = 5.0  # at most, between two lines where there is no terminal


class Method(StrEnum):
    """How to decode."""

    DDTREE = "ddtree"
    CHAIN = "chain"
    AUTOREGRESSIVE = "autoregressive"


class Mode(StrEnum):
    """How a step is launched."""

    EAGER = "eager"
    REPLAY = "replay"


class Backend(StrEnum):
    """Which attention verifies."""

    ADDRESSED = "addressed"
    DENSE = "dense"
    DEVICE = "device"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(run)


def run(
    prompt: Annotated[list[str], typer.Option(help="A prompt; again for a batch.")],
    model: Annotated[
        str, typer.Option(help="smollm2, a folder, a GGUF file or a hub id.")
    ] = "smollm2",
    method: Annotated[Method, typer.Option()] = Method.DDTREE,
    drafter: Annotated[
        str, typer.Option(help="dflash (bundled), oracle, prompt-lookup, or a DFlash folder.")
    ] = "dflash",
    accuracy: Annotated[float, typer.Option(help="Of the oracle drafter, 0 … 1.")] = 0.9,
    budget: Annotated[int, typer.Option(help="Nodes a tree, without the root.")] = 16,
    topk: Annotated[int, typer.Option(help="Ranks that a depth may use; 0: no cap.")] = 4,
    block_size: Annotated[int, typer.Option(help="The drafter's block: root and drafts.")] = 8,
    max_depth: Annotated[
        int | None, typer.Option(help="Deepest node; default: block size - 1.")
    ] = None,
    spine: Annotated[
        bool, typer.Option(help="The chain of best tokens is always in the tree.")
    ] = False,
    temperature: Annotated[float, typer.Option()] = 0.0,
    seed: Annotated[int, typer.Option()] = 0,
    mode: Annotated[Mode, typer.Option()] = Mode.EAGER,
    captured_bs: Annotated[
        int | None, typer.Option(help="Replay: the captured batch size (default: powers of two).")
    ] = None,
    fault: Annotated[
        str | None,
        typer.Option(help="Break the run on purpose; an unknown name lists the known ones."),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option()] = 64,
    backend: Annotated[Backend, typer.Option()] = Backend.ADDRESSED,
    reference: Annotated[bool, typer.Option(help="Dense logits beside every step.")] = True,
    device: Device = "cpu",
    dtype: DtypeOption = Dtype.FLOAT32,
    out: Annotated[
        Path | None, typer.Option(help="The recording; default: a new file in the current folder.")
    ] = None,
) -> None:
    """Decode, compare with plain decoding token by token, and record every verify step.

    Exit status 0: the same text and no fault; 1: another text or a fault; 2: a wrong call; 130: stopped (what was
    recorded stays).
    """
    with one_line_errors():
        from engine.decoding.run_settings import RunSettings

        settings = RunSettings(
            prompts=tuple(prompt),
            model=model,
            drafter=drafter,
            accuracy=accuracy,
            budget=budget,
            topk=topk or None,
            block_size=block_size,
            max_depth=max_depth,
            spine=spine,
            temperature=temperature,
            seed=seed,
            mode=mode,
            captured_bs=captured_bs,
            fault=fault,
            max_new_tokens=max_new_tokens,
            method=method,
            backend=backend,
            reference=reference,
            device=device,
            dtype=dtype,
        )
        path = out or Path(f"run-{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}.ddtree.arrow")
        if path.is_dir():
            raise ValueError(f"{path}: expected a file to write, found a folder")
        if path.exists():
            raise ValueError(f"{path}: exists already; recordings are never overwritten")
        if not os.access(path.parent, os.W_OK):  # said before the model is loaded, not after
            raise ValueError(f"{path}: expected a folder that can be written, found {path.parent}")
        target = load(model, device, dtype)
        raise typer.Exit(_decode(settings, target, path))


def _decode(settings: RunSettings, target: Target, path: Path) -> int:
    from engine.checks.registry import TraceChecker
    from engine.decoding.events import Finished, StepRecorded
    from engine.decoding.session import run as events

    checker, screen = TraceChecker(), Screen()
    stream = events(settings, target, trace_path=path)
    try:
        for event in stream:
            screen.show(event)
            if isinstance(event, StepRecorded):
                checker.feed(event.step)
            if isinstance(event, Finished):
                return _conclude(event.summary, checker)
    except KeyboardInterrupt:
        stream.close()
        place = f" in {path}" if path.exists() else ""
        print(f"\nstopped; {screen.steps} steps recorded{place}", file=sys.stderr)
    return INTERRUPTED


@dataclass
class Screen:
    """Texts as they appear on a terminal, one stream at a time; elsewhere a line now and then."""

    steps: int = 0
    _said: float = field(default_factory=time.monotonic)  # when the last line was printed
    _shown: dict[str, int] = field(default_factory=dict)

    def show(self, event: Event) -> None:
        """Print what is new."""
        from engine.decoding.events import PlainTokens, StepRecorded, TreeTokens

        if isinstance(event, StepRecorded):
            self.steps += 1
        elif isinstance(event, PlainTokens | TreeTokens) and not sys.stderr.isatty():
            if time.monotonic() - self._said > QUIET_SECONDS:
                self._said = time.monotonic()
                kind = "plain decoding" if isinstance(event, PlainTokens) else "tree decoding"
                line = (
                    f"{kind} {event.rid}: {len(event.tokens)} tokens, {self.steps} steps recorded"
                )
                print(line, file=sys.stderr)
        elif isinstance(event, PlainTokens | TreeTokens):
            kind = "plain" if isinstance(event, PlainTokens) else "tree"
            label = f"{kind} {event.rid}"
            if label not in self._shown:
                print(f"\n[{label}] ", end="", file=sys.stderr)
            new = event.text[self._shown.get(label, 0) :]
            print(_printable(new), end="", flush=True, file=sys.stderr)
            self._shown[label] = len(event.text)


def _printable(text: str) -> str:
    """Text of a model without control characters that a terminal would obey."""
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)


def _conclude(summary: RunSummary, checker: TraceChecker) -> int:
    from workbench.cli.text import report_lines

    for request in summary.requests:
        print(_compared(request))
    if not summary.steps:
        return 0
    print(f"{summary.steps} steps recorded in {summary.trace_path}")
    report = checker.report()
    print("\n".join(report_lines(summary.trace_path.name if summary.trace_path else "run", report)))
    return DIFFERENT if report.faults or not summary.lossless else 0


def _compared(request: RequestSummary) -> str:
    at = request.first_difference
    mean = (
        sum(request.accept_lengths) / len(request.accept_lengths) if request.accept_lengths else 0
    )
    accepted = f", {mean:.2f} tokens a step" if mean else ""
    if at is None:
        return f"{request.rid}: {len(request.tree_tokens)} tokens, the same as plain decoding{accepted}"
    return (
        f"{request.rid}: differs from plain decoding at token {at}{accepted}\n"
        f"  plain: {_line(request.plain_text)}\n  tree:  {_line(request.tree_text)}"
    )


def _line(text: str) -> str:
    return _printable(text).replace("\n", "↵")[:160]
