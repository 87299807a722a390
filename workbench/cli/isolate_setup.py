"""From the options of ``ddtree isolate`` to an experiment and its folder."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from engine.isolate.experiment import Experiment, LocalSubject, ServerSubject
from engine.isolate.local import LocalMeasure
from engine.isolate.matrix import PROMPTS, Matrix
from engine.isolate.plan import hardest, plan_of
from engine.isolate.store import Store

GRAPHS = {"both": (False, True), "on": (True,), "off": (False,)}


def matrix(
    *,
    budget: Sequence[int] | None,
    topk: Sequence[int] | None,
    graphs: str,
    batch: Sequence[int] | None,
    prompt: Sequence[str] | None,
    each_prompt: bool,
    temperature: Sequence[float] | None,
    seed: Sequence[int] | None,
    max_new_tokens: int,
) -> Matrix:
    """Raises ``ValueError`` for what no cell can have."""
    prompts = tuple(prompt or PROMPTS)
    return Matrix(
        tuple(budget or Matrix.budgets),
        tuple(k or None for k in topk) if topk else Matrix.topks,
        GRAPHS[graphs],
        tuple(batch or Matrix.batches),
        prompts,
        tuple(range(len(prompts))) if each_prompt or not prompt else (0,),
        tuple(temperature or (0.0,)),
        tuple(seed or (0,)),
        max_new_tokens,
    )


def local(**fields: Any) -> LocalSubject:
    """The local engine; its fields are checked with the cells."""
    return LocalSubject(**fields)


def server(
    command: str,
    plain: str | None,
    *,
    eager_words: str,
    environment: Sequence[str],
    **fields: Any,
) -> ServerSubject:
    """A server from command lines as a shell reads them. Raises ``ValueError``."""
    if plain is None:
        raise ValueError(
            "--server: expected --plain-server too, the command that starts the same model without speculation; "
            "texts are compared with its"
        )
    pairs = []
    for entry in environment:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise ValueError(f"--env: expected NAME=VALUE, found {entry!r}")
        pairs.append((name, value))
    return ServerSubject(
        command=_words("--server", command),
        plain_command=_words("--plain-server", plain),
        eager_words=_words("--eager-words", eager_words),
        environment=tuple(pairs),
        **fields,
    )


def new(
    matrix: Matrix, subject: LocalSubject | ServerSubject, out: Path | None, *, keep: bool
) -> Store:
    """A new experiment in a folder; without ``keep`` nothing is written. Raises ``ValueError``."""
    experiment = Experiment(matrix, subject)
    folder = out or Path(f"isolate-{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}")
    if isinstance(subject, LocalSubject):
        LocalMeasure(matrix, subject, folder)  # refuses cells that cannot be run
    return Store.create(folder, experiment) if keep else Store(folder, experiment)


def known(
    resume: Path | None, repeat: Path | None, out: Path | None, *, keep: bool, retry: bool
) -> Store:
    """An earlier experiment to go on with, or the same anew; see :func:`new`. Raises ``ValueError``.

    ``retry``: its failed cells count as not measured.
    """
    if retry and resume is None:
        raise ValueError("--retry-failed: expected --resume with it, found none")
    if resume is not None and repeat is not None:
        raise ValueError("--resume and --repeat: expected one of them, found both")
    if resume is not None:
        if out is not None:
            raise ValueError("--out: expected none with --resume, whose folder goes on")
        store = Store.open(resume)
        for cell in [c for c, m in store.results.items() if retry and m.error is not None]:
            store.forget(cell)
        return store
    assert repeat is not None
    earlier = Store.open(repeat).experiment
    return new(earlier.matrix, earlier.subject, out, keep=keep)


def check_tie(tie: float | None, repeat: Path | None) -> None:
    """Raises ``ValueError`` for a near-tie that cannot be judged by."""
    if tie is not None and repeat is not None:
        raise ValueError("--tie: expected --resume, or a new experiment, found --repeat")
    if tie is not None and not tie >= 0:
        raise ValueError(f"--tie: expected 0 or more, found {tie}")


def planned(store: Store) -> str:
    """What would run, and how long; the local engine tries a few tokens to know."""
    experiment, tried = store.experiment, None
    if isinstance(experiment.subject, LocalSubject) and not store.results:
        measure = LocalMeasure(experiment.matrix, experiment.subject, store.traces)
        cell = hardest(list(experiment.matrix))
        tried = (cell, measure.seconds_of(cell, lambda words, fraction: None))
    return str(plan_of(experiment, store.results, tried))


def _words(option: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"{option}: {error}, found {text!r}") from None
