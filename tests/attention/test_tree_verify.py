"""Tree-verify attention: the Triton kernel, its plain torch twin and a literal oracle agree, wrong metadata included.

Run: pytest tests/attention/test_tree_verify.py
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.attention.tree_verify import tree_verify_attention
from engine.attention.tree_verify_plan import Plan, make_plan, query_tile_of
from engine.attention.tree_verify_torch import tree_verify_torch
from tests.attention.devices import DEVICES, INTERPRETED
from tests.attention.verify_inputs import Sizes, make_inputs, poisoned

kernel = pytest.importorskip("engine.attention.tree_verify").tree_verify_triton
SMALL = Plan(rows=16, tiles=2, keys=16, splits=3, least=16, warps=4, stages=2)
PLANS = {
    "one part": Plan(rows=32, tiles=1, keys=32, splits=1, least=16, warps=4, stages=2),
    "three parts": SMALL,
    "more parts than keys": Plan(rows=16, tiles=1, keys=16, splits=8, least=64, warps=4, stages=2),
    "as planned": None,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "prefix cells": {"skip_prefix_custom_mask": False},
    "no mask": {"custom_mask": None},
    "no mask, both ways": {"custom_mask": None, "is_causal": False},
    "mask, both ways": {"is_causal": False},
    "cap": {"logit_cap": 3.0},
    "scales": {"k_scale": 0.5, "v_scale": 2.0, "sm_scale": 0.4},
    "temperature by length": {"xai_temperature_len": 20},
    "everything": {
        "skip_prefix_custom_mask": False,
        "logit_cap": 3.0,
        "k_scale": 0.5,
        "v_scale": 2.0,
        "xai_temperature_len": 20,
    },
}


def both(inputs: dict[str, Any], plan: Plan | None = SMALL, **options: Any) -> None:
    """Kernel and twin write the same rows with the same values, NaN included."""
    left, right = poisoned(inputs | options), poisoned(inputs | options)
    kernel(**left, plan=plan)
    tree_verify_torch(**right)
    torch.testing.assert_close(
        left["o_extend"], right["o_extend"], rtol=2e-4, atol=2e-5, equal_nan=True
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options(device: str, options: dict[str, Any]) -> None:
    both(make_inputs(Sizes((9, 5), (35, 0), 2, 1), device), **options)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_plans(device: str, plan: Plan | None) -> None:
    for options in ("plain", "everything"):
        both(make_inputs(Sizes((9, 5, 12), (40, 0, 33)), device), plan, **OPTIONS[options])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("window", [1, 4, 12, 1000])
def test_windows_with_offsets(device: str, skip: bool, window: int) -> None:
    sizes = Sizes((9, 5), (20, 12), 2, 1)
    inputs = make_inputs(sizes, device, window=window, offsets=(13, 0))
    both(inputs, skip_prefix_custom_mask=skip)


@pytest.mark.parametrize("device", DEVICES)
def test_sinks(device: str) -> None:
    inputs = make_inputs(Sizes((9, 5), (40, 3), 4, 4), device)
    for plan in (PLANS["one part"], SMALL):
        both(inputs, plan, sinks=torch.linspace(-2, 2, 4, device=device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("heads", [(1, 1), (3, 1), (9, 3), (8, 1)])
def test_grouped_heads(device: str, heads: tuple[int, int]) -> None:
    both(make_inputs(Sizes((7,), (20,), *heads), device))


@pytest.mark.parametrize("device", DEVICES)
def test_a_row_that_sees_nothing_is_nan_and_with_a_sink_zero(device: str) -> None:
    inputs = make_inputs(Sizes((4,), (0,)), device)
    inputs["custom_mask"][4:8] = 0  # row 1
    left = poisoned(inputs)
    kernel(**left, plan=SMALL)
    assert left["o_extend"][1].isnan().all()
    assert (
        not left["o_extend"][[0, 2, 3]][
            inputs["custom_mask"][:16].view(4, 4)[[0, 2, 3]].bool().any(1)
        ]
        .isnan()
        .any()
    )
    left = poisoned(inputs) | {"sinks": torch.zeros(4, device=device)}
    kernel(**left, plan=SMALL)
    assert (left["o_extend"][1] == 0).all()


WRONG: dict[str, dict[str, Any]] = {
    "rows of half the width": {"qo_indptr": [0, 5, 10], "max_len_extend": 5},
    "a grid of one tile for longer requests": {"qo_indptr": [0, 70, 140], "max_len_extend": 8},
    "cells one request late": {"mask_indptr": [40, 441, 801]},
    "a prefix one token short": {"kv_indptr": [0, 29, 60]},
    "another request's prefix": {"kv_indptr": [11, 41, 61]},
    "no rows": {"qo_indptr": [0, 0, 9]},
    "offsets that fall": {"qo_indptr": [9, 4, 10], "kv_indptr": [30, 10, 40]},
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_wrong_metadata_is_taken_at_its_word(device: str, wrong: dict[str, Any]) -> None:
    """Nothing is mended: what the offsets say is computed, what they leave out is not written."""
    inputs = make_inputs(Sizes((75, 75), (30, 31), 1, 1), device)
    changed = {
        name: value if isinstance(value, int) else torch.tensor(value, device=device)
        for name, value in wrong.items()
    }
    both(inputs, **changed)


@pytest.mark.parametrize("device", DEVICES)
def test_rows_beyond_the_grid_keep_what_memory_held(device: str) -> None:
    inputs = make_inputs(Sizes((150,), (10,), 2, 1), device) | {"max_len_extend": 8}
    left = poisoned(inputs)
    kernel(**left, plan=PLANS["one part"], tile=64)
    assert (left["o_extend"][64:] == 77).all()
    assert not (left["o_extend"][:64] == 77).any()


@pytest.mark.parametrize("device", DEVICES)
def test_keys_of_a_later_query_tile_are_dropped(device: str) -> None:
    """A causal launch ends with each row's own tile, whatever the mask says."""
    inputs = make_inputs(Sizes((70,), (6,), 2, 1), device)
    inputs["custom_mask"].fill_(1)
    left = poisoned(inputs)
    kernel(**left, plan=PLANS["one part"], tile=64)
    inputs["k_extend"][64:70] += 9
    inputs["v_extend"][64:70] += 9
    right = poisoned(inputs)
    kernel(**right, plan=PLANS["one part"], tile=64)
    assert torch.equal(left["o_extend"][:64], right["o_extend"][:64])
    assert not torch.equal(left["o_extend"][64:70], right["o_extend"][64:70])


@pytest.mark.parametrize("device", DEVICES)
def test_one_hot_values_show_the_mask(device: str) -> None:
    """Zero queries and keys, one-hot values: each row's output is the mean over the columns that it sees."""
    inputs = make_inputs(Sizes((5,), (8,), 2, 1, 16), device)
    for name in ("q_extend", "k_extend", "k_buffer"):
        inputs[name].zero_()
    eye = torch.eye(16, device=device)
    inputs["v_buffer"][inputs["kv_indices"], 0] = eye[:8]
    inputs["v_extend"][:5, 0] = eye[8:13]
    inputs["custom_mask"][: 5 * 13] = (
        torch.ones(5, 13, device=device).tril(8).to(torch.uint8).view(-1)
    )
    out = poisoned(inputs)
    kernel(**out, plan=SMALL)
    for row in range(5):
        seen = torch.tensor([1.0] * (9 + row) + [0.0] * (7 - row), device=device) / (9 + row)
        torch.testing.assert_close(out["o_extend"][row, 0], seen)


@settings(max_examples=25)
@given(st.data())
def test_twin_is_the_formula(data: st.DataObject) -> None:
    """The twin beside the address formula written out in scalars."""
    rows = tuple(data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3)))
    prefixes = tuple(data.draw(st.integers(0, 5)) for _ in rows)
    skip = data.draw(st.booleans())
    inputs = make_inputs(Sizes(rows, prefixes, 2, 1, 4), seed=data.draw(st.integers(0, 99)))
    out = poisoned(inputs)
    tree_verify_torch(**out, skip_prefix_custom_mask=skip)
    q, cells = inputs["q_extend"].double(), inputs["custom_mask"].tolist()
    qo, kv = (list(pairwise(inputs[name].tolist())) for name in ("qo_indptr", "kv_indptr"))
    for i, ((first, last), (low, high)) in enumerate(zip(qo, kv, strict=True)):
        width, held, at = last - first, high - low, int(inputs["mask_indptr"][i])
        for row in range(width):
            for head in range(2):
                weights, rows_of = [], []
                for column in range(held + width):
                    cell = cells[at + row * (held + width) + column]
                    if not cell and not (skip and column < held):
                        continue
                    slot = (
                        int(inputs["kv_indices"][low + column])
                        if column < held
                        else first + column - held
                    )
                    side = "buffer" if column < held else "extend"
                    key = inputs[f"k_{side}"][slot, 0].double()
                    weights.append(math.exp(float(q[first + row, head] @ key) / 2))
                    rows_of.append(inputs[f"v_{side}"][slot, 0].double())
                found = out["o_extend"][first + row, head]
                if not weights:
                    assert found.isnan().all()
                    continue
                wanted = sum(w * v for w, v in zip(weights, rows_of, strict=True)) / sum(weights)
                torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-6)
    assert (out["o_extend"][sum(rows) :] == 77).all()


@settings(max_examples=8, deadline=None)
@given(st.data())
@pytest.mark.skipif(not INTERPRETED, reason="no TRITON_INTERPRET=1")
def test_kernel_on_random_batches(data: st.DataObject) -> None:
    rows = tuple(data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=2)))
    prefixes = tuple(data.draw(st.integers(0, 50)) for _ in rows)
    if not any(rows):
        return
    plan = data.draw(st.sampled_from(list(PLANS.values())))
    inputs = make_inputs(Sizes(rows, prefixes), seed=data.draw(st.integers(0, 99)))
    both(inputs, plan, skip_prefix_custom_mask=data.draw(st.booleans()))


def test_the_twin_serves_where_no_gpu_is() -> None:
    inputs = make_inputs(Sizes((3,), (4,)))
    left, right = poisoned(inputs), poisoned(inputs)
    tree_verify_attention(**left)
    tree_verify_torch(**right)
    assert torch.equal(left["o_extend"], right["o_extend"])


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (Sizes((3,), (4,), dim=24), r"head_dim: expected one power of two in 16 … 256, found 24"),
        (Sizes((3,), (4,), 5, 2), r"heads: expected a multiple of 2 \(kv_heads\), found 5"),
    ],
)
def test_shapes_that_are_not_covered(sizes: Sizes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel(**make_inputs(sizes))


@pytest.mark.parametrize(
    ("capability", "narrow", "wide"),
    [((9, 0), 128, 128), ((8, 0), 128, 64), ((8, 6), 64, 64), ((8, 9), 64, 64), ((7, 5), 64, 32),
     ((10, 0), 64, 64), ((12, 0), 64, 64)],
)  # fmt: skip
def test_rows_of_a_program_of_sglang(capability: tuple[int, int], narrow: int, wide: int) -> None:
    """``_get_block_sizes_for_extend_attention`` of 0.5.12, heads of at most 128 and of at most 256."""
    assert [query_tile_of(dim, capability) for dim in (64, 128)] == [narrow] * 2
    assert [query_tile_of(dim, capability) for dim in (192, 256)] == [wide] * 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("rows", [1, 2, 17, 65, 513])
@pytest.mark.parametrize("group", [1, 3, 4, 8])
def test_plans_cover_every_row(rows: int, group: int, dtype: torch.dtype) -> None:
    for batch in (1, 8, 64):
        plan = make_plan(batch, rows, 8, group, 128, dtype, 132)
        assert plan.rows * plan.tiles >= rows * group > plan.rows * (plan.tiles - 1)
        assert plan.rows & (plan.rows - 1) == 0
        assert 1 <= plan.splits <= 16
    assert (
        make_plan(1, rows, 8, group, 128, dtype, 132).splits
        >= make_plan(64, rows, 8, group, 128, dtype, 132).splits
    )


@pytest.mark.parametrize("rows", [17, 18, 33, 65, 200])
def test_plans_for_hopper_take_the_eight_rows_left_with_the_others(rows: int) -> None:
    plan = make_plan(1, rows, 8, 4, 128, torch.bfloat16, 132, hopper=True)
    assert plan.rows == 64 * plan.groups + 8
    assert plan.groups == (1 if rows <= 18 else 2)
    assert plan.rows * plan.tiles >= rows * 4 > plan.rows * (plan.tiles - 1)
    assert make_plan(1, rows, 8, 4, 128, torch.bfloat16, 132).groups == 0


@pytest.mark.parametrize(
    ("rows", "dim", "groups"),
    [(7, 128, 0), (8, 128, 1), (16, 128, 1), (16, 64, 0), (17, 64, 1), (19, 64, 2)],
)
def test_plans_for_hopper_from_how_many_rows(rows: int, dim: int, groups: int) -> None:
    plan = make_plan(1, rows, 8, 4, dim, torch.bfloat16, 132, hopper=True)
    assert plan.groups == groups


def test_kernels_compile_for_a_gpu() -> None:
    """What the interpreter lets pass, a compiler may refuse: types that change in a loop, say."""
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    command = [sys.executable, "-m", "tests.attention.compile_for_gpu"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("over_parts") == done.stdout.count("merge") == 5
    assert done.stdout.count("warpgroups") == 3
