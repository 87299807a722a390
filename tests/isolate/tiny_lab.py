"""Experiments on a tiny random model that is never downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.isolate.experiment import LocalSubject
from engine.isolate.local import LocalMeasure
from engine.isolate.matrix import Matrix
from engine.isolate.measured import Measured
from engine.models.catalog import Target
from tests.decoding.tiny_target import tiny_target

MATRIX = Matrix(
    (7, 16),
    (1, 4),
    (False, True),
    (1, 2),
    ("Hello there", "Another one entirely"),
    max_new_tokens=28,
)


def subject(**changes: Any) -> LocalSubject:
    values = {"model": "tiny", "drafter": "oracle", "accuracy": 0.4, "checks": False}
    return LocalSubject(**{**values, **changes})


def load(name: str, **settings: Any) -> Target:
    return tiny_target()


def run(matrix: Matrix, what: LocalSubject, traces: Path) -> list[Measured]:
    measure = LocalMeasure(matrix, what, traces, load=load)
    return [measure.measure(cell, lambda words, share: None) for cell in matrix]
