"""The workbench's own checks on DDTREE's steps: recorded by the tap, laid out by SGLang 0.5.12's backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.checks.registry import check_trace
from engine.sglang.assemble import Origin, assemble
from engine.sglang.attach import attach
from engine.sglang.ddtree import verify as verification
from engine.sglang.handlers import HANDLERS
from engine.sglang.tap import Tap
from engine.step import VerifyStep
from engine.xray.kernels import Kernel
from engine.xray.report import examine
from tests.sglang.ddtree import test_ahead, test_stock
from tests.sglang.ddtree.recording import Recording
from tests.sglang.ddtree.test_stock import requests, started
from tests.sglang.ddtree.world import World
from tests.sglang.recorded import unpacked
from tests.sglang_wheels import sglang_folder

sglang, launched = test_stock.sglang, test_ahead.launched


@pytest.fixture
def tap(sglang: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tap]:
    """The tap's hooks where its table puts them."""
    from sglang.srt.layers.attention.triton_backend import TritonAttnBackend

    tap = Tap()
    replayed = (
        "self", "bs", "req_pool_indices", "seq_lens", "seq_lens_sum", "encoder_lens",
        "forward_mode", "spec_info", "seq_lens_cpu",
    )  # fmt: skip
    given = ("verify_input", "batch", "logits_output", "page_size")
    walk = ("trees", "predict", "steps", "ahead", "batch")
    for holder, name, handler, names in (
        (TritonAttnBackend, "init_forward_metadata", "eager", ("self", "forward_batch")),
        (TritonAttnBackend, "init_forward_metadata_replay_cuda_graph", "replay", replayed),
        (verification, "verify", "verify", given),
        (verification, "walk", "tree_walk", walk),
    ):
        hook, original = tap.around(HANDLERS[handler], names), getattr(holder, name)
        monkeypatch.setattr(
            holder, name, lambda *a, hook=hook, original=original, **k: hook(original, *a, **k)
        )
    yield tap
    assert tap.counts.errors == 0, tap.counts.last_error


WANTED = {
    "mask-content", "row-extents", "positions", "links", "acceptance", "bonus", "kv-commit",
    "output", "write-slots", "tree-form", "padding",
}  # fmt: skip


def recorded(tap: Tap) -> list[VerifyStep]:
    tap.make()
    return [assemble(raw, Origin()) for raw in unpacked(tap.ring.take(len(tap.ring)))]


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(
    "environ", [{"budget": "16"}, {"budget": "16", "topk": "1"}, {"budget": "24", "spine": "1"}]
)
def test_nothing_is_found(
    tap: Tap, monkeypatch: pytest.MonkeyPatch, graph: bool, environ: dict[str, str]
) -> None:
    """Top-k 1 is a chain of eight nodes in seventeen rows: nine are padding."""
    started(monkeypatch, graph, **environ).run(requests((12, 12, 12, 1)))
    steps = recorded(tap)
    assert len(steps) > 3
    assert all(step.config.budget == int(environ["budget"]) for step in steps)
    topk = int(environ.get("topk", environ["budget"]))
    assert {step.config.topk for step in steps} == {topk}
    report = check_trace(steps)
    assert not report.findings, report.findings[:3]
    assert {*report.checks} >= WANTED


@pytest.mark.parametrize("captured", [(1, 2, 4), (6,)])
def test_nothing_is_found_where_the_acceptance_is_in_a_graph(
    launched: Recording, tap: Tap, monkeypatch: pytest.MonkeyPatch, captured: tuple[int, ...]
) -> None:
    """The walk is watched at every step, not at captures, and without the graphs' padding."""
    monkeypatch.setattr(World, "captured", captured)
    steps = started(monkeypatch, True, budget="16").run(requests((12, 12, 12, 1)))
    found = recorded(tap)
    assert len(found) == steps
    assert len(found[0].requests) == 3  # a fourth wanted one token
    assert 0 < launched.captures < launched.replays
    report = check_trace(found)
    assert not report.findings, report.findings[:3]
    assert {*report.checks} >= WANTED


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("verify-width", "row-extents"),
        ("first-requests-tree", "mask-content"),
        ("causal-mask", "mask-content"),
        ("flattened-positions", "positions"),
        ("crop-commit", "kv-commit"),
    ],
)
def test_the_fault_is_named(
    tap: Tap, monkeypatch: pytest.MonkeyPatch, graph: bool, fault: str, check: str
) -> None:
    started(monkeypatch, graph, budget="16", fault=fault).run(requests((12, 12, 12, 12)))
    report = check_trace(recorded(tap))
    assert check in {cause.name for cause in report.causes}


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("fault", ["", "verify-width"])
def test_what_sglangs_own_kernel_attends_to(
    tap: Tap, monkeypatch: pytest.MonkeyPatch, fault: str, graph: bool
) -> None:
    """Its verify kernel, on the interpreter, with the metadata of a step: intended = built = addressed = measured."""
    started(monkeypatch, graph, budget="9", topk="3", fault=fault).run(requests((6, 6, 6, 1)))
    step = recorded(tap)[1]
    assert len(step.requests) > 1
    found = examine(step, Kernel.SGLANG, sglang_path=str(sglang_folder()))
    faults = [each["fault"] for each in found.report["requests"]]
    assert faults == ["metadata" if fault else "clean"] * len(step.requests)


def test_the_tap_knows_where_ddtree_verifies_and_walks(tmp_path: Path) -> None:
    hooked: list[str] = []
    attach(tmp_path, lambda path, hook: hooked.append(path), {})
    assert hooked == ["engine.sglang.ddtree.verify.verify", "engine.sglang.ddtree.verify.walk"]
