"""What kernels attend to: literal oracles, the address formula, and each other.

Run: pytest tests/xray/test_measure.py
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from engine.layout import UNREAD, MaskKind
from engine.trace import open_trace
from engine.xray import XRayError
from engine.xray.kernels import Kernel
from engine.xray.measure import measure
from engine.xray.report import XRay, examine
from engine.xray.verdict import judge
from tests.sglang_wheels import sglang_folder
from tests.xray.steps import step_of, story, with_inputs

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = [
    pytest.mark.skipif(not INTERPRETED, reason="no TRITON_INTERPRET=1"),
    pytest.mark.filterwarnings("ignore:::triton"),  # of what kernels do on purpose
]
KERNELS = list(Kernel)
TRACES = "fixtures/traces"
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # shrinking would take minutes


def xray(step, kernel: Kernel) -> XRay:
    path = str(sglang_folder()) if kernel is Kernel.SGLANG else None
    return examine(step, kernel, sglang_path=path)


def drawn(found: XRay, request: int = 0) -> list[str]:
    """The measured mask as text: # visible, . hidden, ? never written."""
    cells = found.cells[MaskKind.MEASURED, request]
    return ["".join("#" if c == 1 else "?" if c == UNREAD else "." for c in row) for row in cells]


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_story_with_the_right_width_is_the_chain(kernel: Kernel) -> None:
    found = xray(story(None), kernel)
    assert found.agrees
    assert drawn(found)[:8] == ["#####" + "#" * (node + 1) + "." * (16 - node) for node in range(8)]
    assert found.report["requests"][0]["sentence"].startswith("clean")


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_story_with_width_8_row_by_row(kernel: Kernel) -> None:
    """Stride 5 + 8 where the buffer's is 5 + 17: row r reads eight cells from number 13 r + 5 on.

    So row 1 loses nodes 0 and 1, its own cell included, and attends to nodes 4 to 7, which come after it.
    """
    found = xray(story(8), kernel)
    report = found.report["requests"][0]
    assert drawn(found) == [
        "######................",  # cells 5-12 are row 0's own
        "#####....####.........",  # cells 18-25: the end of row 0, then the prefix of row 1
        "#####.................",  # cells 31-38: row 1 behind its nodes
        "#############.........",  # cells 44-51: the prefix and the nodes of row 2
        "#####.................",
        "##########............",  # cells 70-77: the last prefix column of row 3 and its nodes
        "#####.....###.........",
        "#######...............",
        *["?" * 22] * 9,
    ]
    assert report["unwritten"] == list(range(8, 17))
    assert report["fault"] == "metadata"
    assert [pair["agree"] for pair in report["pairs"]] == [True, False, True]


def test_a_row_that_is_not_written_differs_from_one_that_sees_nothing() -> None:
    """Neither attends to anything, but only one of them leaves what lay there before."""
    step = step_of([[-1, 0, 0]], [0], budget=2)
    mask = step.inputs.custom_mask.copy()
    mask[6:9] = 0  # row 2
    measured = measure(with_inputs(step, custom_mask=mask), Kernel.ADDRESSED)
    assert measured.seen.written.all()
    assert not measured.seen.times[2].any()
    assert judge(step, measured)[0].pairs[2].agrees
    measured.seen.written[2] = False
    lost = judge(step, measured)[0]
    assert lost.unwritten == (2,)
    assert not lost.pairs[2].agrees
    assert {row for row, _ in lost.pairs[2].cells} == {2}


@pytest.mark.parametrize("kernel", [Kernel.ENGINE, Kernel.SGLANG])  # the formula in torch refuses
def test_rows_that_two_programs_write_are_contested_and_nobodys_fault(kernel: Kernel) -> None:
    """Offsets that fall: program 0 has rows 0 to 5, program 1 none, program 2 rows 3 to 8. On a GPU either may win."""
    step = with_inputs(step_of([[-1, 0, 1]] * 3, [3, 2, 4], budget=5), qo_indptr=[0, 6, 3, 9])
    requests = xray(step, kernel).report["requests"]
    assert [each["contested"] for each in requests] == [[3, 4, 5], [], []]
    assert all(each["pairs"][2]["agree"] for each in requests)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("story-16-4-verify-width", 3),
        ("story-16-1", 0),
        ("batch-3-replay-stale-mask", 1),
    ],
)
def test_kernels_do_on_recorded_steps_what_the_formula_says(kernel, name, number) -> None:
    step = open_trace(f"{TRACES}/{name}.ddtree.arrow").step(number)
    for request in xray(step, kernel).report["requests"]:
        assert request["pairs"][2]["agree"], request["sentence"]


@st.composite
def steps(draw):
    """Random trees, one to three requests, now and then a wrong width, mask, window, offset or slot."""
    budget = draw(st.integers(1, 9))
    trees, prefixes = [], []
    for _ in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, budget + 1))
        trees.append([-1, *(draw(st.integers(0, node - 1)) for node in range(1, size))])
        prefixes.append(draw(st.integers(0, 12)))
    width = draw(st.sampled_from([None, None, max(1, budget - 2), budget + 3]))
    step = step_of(
        trees,
        prefixes,
        budget=budget,
        width=width,
        seed=draw(st.integers(0, 99)),
        window=draw(st.sampled_from([None, None, 2, 5])),
    )
    mask = step.inputs.custom_mask.copy()
    flipped = draw(st.lists(st.integers(0, len(mask) - 1), max_size=4))
    mask[flipped] ^= 1
    changed = {"custom_mask": mask}
    names = ("qo_indptr", "kv_indptr", "mask_indptr", "kv_indices")
    for name in draw(st.lists(st.sampled_from(names), max_size=2, unique=True)):
        array = getattr(step.inputs, name).copy()
        if len(array):
            at = draw(st.integers(0, len(array) - 1))
            array[at] += draw(st.sampled_from([-9, -1, 1, 3, 40]))
        changed[name] = array
    return with_inputs(step, **changed)


def attempt(step, kernel: Kernel) -> XRay | None:
    """The X-ray; None for a step that is refused with a sentence."""
    try:
        return xray(step, kernel)
    except XRayError:
        return None


@settings(max_examples=8, phases=PHASES)
@given(steps())
def test_all_kernels_do_the_same_on_random_trees(step) -> None:
    found = [attempt(step, kernel) for kernel in (Kernel.ENGINE, Kernel.SGLANG)]
    if None in found:
        assert found == [None, None]
        return
    for each in found:
        for request in each.report["requests"]:
            assert request["pairs"][2]["agree"], (each.report["kernel"], request["sentence"])
    for i in range(step.raw_bs):
        masks = [each.cells[MaskKind.MEASURED, i] for each in found]
        assert np.array_equal(*masks)


@settings(max_examples=5, phases=PHASES)
@given(steps())
def test_deterministic_kernels_read_the_prefix_too(step) -> None:
    step = replace(step, source=replace(step.source, deterministic=True))
    kernels = [Kernel.ENGINE, Kernel.SGLANG]
    for kernel in kernels if step.config.sliding_window is None else kernels[:1]:
        found = attempt(step, kernel)
        for request in [] if found is None else found.report["requests"]:
            assert found.report["prefix_mask_read"]
            assert request["pairs"][2]["agree"], (found.report["kernel"], request["sentence"])


def test_rows_of_another_request_are_named() -> None:
    """The second request's rows begin one row early: its first row is the first request's last."""
    step = step_of([[-1, 0], [-1, 0]], [2, 3], budget=1)
    step = with_inputs(step, qo_indptr=[0, 2, 4], kv_indptr=[0, 3, 5])
    first, second = xray(step, Kernel.ENGINE).report["requests"]
    assert {f["key"] for f in first["foreign"]} == {"prefix 0 of r1"}
    assert first["fault"] == second["fault"] == "metadata"
    step = with_inputs(step, qo_indptr=[0, 2, 3], kv_indptr=[0, 2, 5])
    assert xray(step, Kernel.ENGINE).report["requests"][1]["unwritten"] == [1]


def test_slots_of_nobody_and_repeated_ones_are_named() -> None:
    step = step_of([[-1, 0]], [3], budget=1)
    slots = step.requests[0].prefix_slots
    step = with_inputs(step, kv_indices=[int(slots[0]), int(slots[0]), 777])
    request = xray(step, Kernel.ENGINE).report["requests"][0]
    assert request["repeated"] == [[0, 0, 2], [1, 0, 2]]
    assert {f["key"] for f in request["foreign"]} == {"slot 777, which is nobody's prefix"}
    assert request["fault"] == "metadata"


def test_a_wrong_buffer_is_the_builders() -> None:
    step = step_of([[-1, 0, 0]], [3], budget=2)
    mask = step.inputs.custom_mask.copy()
    mask[2 * 6 + 3 + 1] = 1  # node 2 sees its sibling
    request = xray(with_inputs(step, custom_mask=mask), Kernel.ENGINE).report["requests"][0]
    assert request["fault"] == "builder"
    assert request["pairs"][0]["first"] == {"row": 2, "column": 4}
    assert request["sentence"] == (
        "builder at fault: the buffer differs from the tree; 1 cell in row 2, first row 2, "
        "column 4 (node 1): visible, expected hidden"
    )


def test_a_prefix_cell_that_the_kernel_does_not_read_is_nobodys_fault() -> None:
    step = step_of([[-1, 0]], [3], budget=1)
    mask = step.inputs.custom_mask.copy()
    mask[0] = 0
    assert xray(with_inputs(step, custom_mask=mask), Kernel.ENGINE).agrees
    read = step_of([[-1, 0]], [3], budget=1, deterministic=True)
    found = xray(with_inputs(read, custom_mask=mask), Kernel.ENGINE).report
    assert found["prefix_mask_read"]
    assert found["requests"][0]["fault"] == "builder"
