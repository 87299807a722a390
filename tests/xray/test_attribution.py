"""Faults injected into real runs: the X-ray says whose they are. Run: pytest tests/xray/test_attribution.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.decoding.run_settings import RunSettings
from engine.decoding.session import run
from engine.trace import open_trace
from engine.xray.kernels import Kernel
from engine.xray.report import examine
from tests.decoding.tiny_target import tiny_target

TARGET = tiny_target()
PROMPTS = ("Hello there", "Good evening, everybody", "x y z")
BUILDER = ("causal-mask", "first-requests-tree", "sibling-leak", "hidden-ancestor", "stale-mask")
METADATA = ("verify-width", "seq-lens-behind", "stale-kv-indices", "prefix-only-offsets")
METADATA += ("slot-in-prefix", "kv-counts-draft")
NO_MASK = ("flattened-positions", "lost-sibling", "shifted-logits", "crop-commit", "past-stop")
REPLAYED = ("stale-mask", "kv-counts-draft")
FAULTS = [
    (None, set()),
    *((fault, {"builder"}) for fault in BUILDER),
    *((fault, {"metadata"}) for fault in METADATA),
    *((fault, set()) for fault in NO_MASK),
]


@pytest.mark.parametrize(("fault", "whose"), FAULTS)
def test_a_fault_is_attributed(fault: str | None, whose: set[str], tmp_path: Path) -> None:
    settings = RunSettings(
        PROMPTS,
        model="tiny",
        # the oracle's trees have one shape but for rounding, which differs between processors
        drafter="prompt-lookup" if fault == "first-requests-tree" else "oracle",
        budget=9,
        block_size=4,
        topk=2,
        max_new_tokens=8,
        fault=fault,
        mode="replay" if fault in REPLAYED else "eager",
    )
    path = tmp_path / "run.ddtree.arrow"
    list(run(settings, TARGET, trace_path=path))
    found = {
        request["fault"]
        for step in open_trace(path)
        for request in examine(step, Kernel.ADDRESSED).report["requests"]
    }
    assert found - {"clean"} == whose
