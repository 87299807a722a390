"""Wrong metadata is shown or refused with a sentence, and nothing is read outside a buffer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.trace import open_trace
from engine.xray import XRayError
from engine.xray.bounds import grid_rows
from engine.xray.kernels import Kernel
from engine.xray.report import examine
from tests.sglang_wheels import sglang_folder
from tests.xray.steps import step_of, with_inputs
from tests.xray.test_measure import pytestmark as pytestmark

STEP = step_of([[-1, 0, 1], [-1, 0, 0]], [4, 2], budget=2)
FAR = 1 << 40
TRACES = Path(__file__).parents[2] / "fixtures" / "traces"


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"qo_indptr": [0, 3, FAR]}, "qo_indptr: expected offsets within 0 … 6 (rows sent), found"),
        ({"kv_indptr": [0, 4, FAR]}, "kv_indptr: expected offsets within 0 … 6 (entries"),
        ({"mask_indptr": [0, -FAR, 9]}, "mask_indptr: expected offsets within 0 … 36 (cells"),
        ({"mask_indptr": [FAR, 0, 9]}, "too far outside to run"),
        ({"kv_indptr": [0, 4]}, "kv_indptr: expected at least 3 entries, found 2"),
        ({"mask_indptr": []}, "mask_indptr: expected at least 2 entries, found 0"),
        ({"max_extend_len": FAR}, "max_extend_len: expected 0 … 8192, found"),
        ({"max_extend_len": None}, "expected max_extend_len to be recorded, found none"),
        ({"custom_mask": None, "qo_indptr": None}, "expected qo_indptr, custom_mask to be"),
    ],
)
def test_what_cannot_run_is_refused(inputs, words) -> None:
    with pytest.raises(XRayError) as error:
        examine(with_inputs(STEP, **inputs), Kernel.ENGINE)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {"mask_layout": "qlen"},
            "mask_layout: expected full (what these kernels read), found qlen",
        ),
        ({"mask_encoding": "bits"}, "mask_encoding: expected bytes"),
        ({"kv_indptr_unit": "page"}, "kv_indptr_unit: expected token"),
        ({"kv_indptr_counts_draft": True}, "kv_indptr_counts_draft: expected False"),
        ({"budget": None}, "expected config.budget to be recorded, found none"),
    ],
)
def test_layouts_of_other_kernels_are_refused(config, words) -> None:
    step = replace(STEP, config=replace(STEP.config, **config))
    with pytest.raises(XRayError) as error:
        examine(step, Kernel.ENGINE)
    assert words in str(error.value)


def test_the_addressed_formula_refuses_what_it_does_not_cover() -> None:
    with pytest.raises(XRayError, match="kernel addressed: prefix columns of the mask"):
        examine(step_of([[-1]], [3], budget=0, deterministic=True), Kernel.ADDRESSED)
    with pytest.raises(XRayError, match=r"kv_indptr: expected offsets .* found \[0, 5, 3\]"):
        examine(with_inputs(STEP, kv_indptr=[0, 5, 3]), Kernel.ADDRESSED)
    windowed = with_inputs(step_of([[-1]], [3], budget=0, window=2), kv_indptr=[3, 1])
    with pytest.raises(XRayError, match=r"kv_indptr: expected offsets that never fall \(a window"):
        examine(windowed, Kernel.ENGINE)
    with pytest.raises(XRayError, match=r"mask_indptr: expected offsets of at least 0"):
        examine(with_inputs(STEP, mask_indptr=[-3, 21, 36]), Kernel.ADDRESSED)


def test_the_deterministic_kernel_refuses_what_would_lay_its_indices_out_of_bounds() -> None:
    step = step_of([[-1, 0, 1], [-1, 0, 0]], [4, 2], budget=2, deterministic=True)
    folder = str(sglang_folder())
    with pytest.raises(XRayError, match="kv_indptr: expected offsets that start at 0 or more and"):
        examine(with_inputs(step, kv_indptr=[4, 1, 6]), Kernel.SGLANG, sglang_path=folder)
    with pytest.raises(XRayError, match="out_cache_loc: the deterministic kernel needs it, found"):
        examine(with_inputs(step, out_cache_loc=None), Kernel.SGLANG, sglang_path=folder)
    wide = with_inputs(step, qo_indptr=[0, 3, 8], max_extend_len=5)
    found = examine(wide, Kernel.SGLANG, sglang_path=folder).report["requests"][1]
    assert found["pairs"][2]["agree"]


@pytest.mark.parametrize("offset", [-40, 30])
def test_cells_outside_the_mask_are_told_from_those_inside(offset) -> None:
    found = examine(with_inputs(STEP, mask_indptr=[0, 21 + offset, 36]), Kernel.ENGINE)
    second = found.report["requests"][1]
    assert second["outside"]
    assert second["fault"] == "metadata"
    assert second["pairs"][2]["agree"]


def test_entries_beyond_kv_indices_and_rows_beyond_the_batch_are_named() -> None:
    found = examine(with_inputs(STEP, kv_indptr=[0, 4, 9]), Kernel.ENGINE).report["requests"][1]
    assert "an entry beyond kv_indices" in {f["key"] for f in found["foreign"]}
    mask = STEP.inputs.custom_mask.copy()
    mask[:] = 1
    wide = with_inputs(STEP, qo_indptr=[0, 3, 8], max_extend_len=5, custom_mask=mask)
    found = examine(wide, Kernel.ENGINE).report["requests"][1]
    assert "a row beyond the batch" in {f["key"] for f in found["foreign"]}


def test_a_tree_with_a_cycle_has_no_intended_mask() -> None:
    cycle = step_of([[-1, 0, 1]], [2], budget=2)
    request = cycle.requests[0]
    tree = replace(request.tree, parents=request.tree.parents * 0 + [-1, 2, 1])
    with pytest.raises(XRayError, match="expected trees whose nodes all reach the root"):
        examine(replace(cycle, requests=(replace(request, tree=tree),)), Kernel.ENGINE)


def test_a_replayed_graph_covers_the_rows_that_it_was_captured_with() -> None:
    """A recording of it has no ``max_extend_len``: that went into the graph."""
    for name, width, fault, unwritten in (
        ("sglang-16-4-verify-width", 8, "metadata", list(range(8, 17))),
        ("sglang-16-4", 17, "clean", []),
    ):
        step = next(iter(open_trace(TRACES / f"{name}.ddtree.arrow")))
        assert (step.inputs.max_extend_len, step.source.graph) == (None, "replay")
        assert grid_rows(step) == width
        (found,) = examine(step, Kernel.ENGINE).report["requests"]
        assert (found["fault"], found["unwritten"]) == (fault, unwritten)
        eager = replace(step, source=replace(step.source, graph="eager"))
        with pytest.raises(XRayError, match="expected max_extend_len to be recorded"):
            examine(eager, Kernel.ENGINE)
