"""Tree-verify attention on Hopper's matrix units writes what the plain kernel writes, wrong metadata included.

Run on a GPU of compute capability 9.0: pytest tests/attention/test_tree_verify_hopper.py
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.attention.tree_verify import hopper_covers, tree_verify_triton
from engine.attention.tree_verify_plan import Plan
from tests.attention.test_tree_verify import WRONG
from tests.attention.verify_inputs import Sizes, make_inputs, poisoned

pytest.importorskip("triton.experimental.gluon")
HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
on_hopper = pytest.mark.skipif(not HOPPER, reason="no GPU of compute capability 9.0")
PLAIN = Plan(rows=64, tiles=1, keys=64, splits=3, least=64, warps=4, stages=2)
PLANS = {
    f"{groups} warpgroups, {splits} parts": Plan(
        64 * groups + 8, 1, 64, splits, 64, warps=4, stages=7 - groups, groups=groups
    )
    for groups in (1, 2)
    for splits in (1, 3)
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no mask": {"custom_mask": None},
    "no mask, both ways": {"custom_mask": None, "is_causal": False},
    "mask, both ways": {"is_causal": False},
    "scale": {"sm_scale": 0.2},
}


def both(inputs: dict[str, Any], plan: Plan, **options: Any) -> None:
    """Both kernels write the same rows with the same values but for rounding, NaN included."""
    left, right = poisoned(inputs | options), poisoned(inputs | options)
    tree_verify_triton(**left, plan=plan)
    tree_verify_triton(**right, plan=replace(PLAIN, splits=plan.splits))
    torch.testing.assert_close(
        left["o_extend"].float(), right["o_extend"].float(), rtol=2e-2, atol=1e-2, equal_nan=True
    )
    held = (right["o_extend"] == 77).flatten(1).all(1)
    assert torch.equal(held, (left["o_extend"] == 77).flatten(1).all(1))


@on_hopper
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options(options: dict[str, Any], plan: Plan) -> None:
    sizes = Sizes((17, 70, 1, 9), (300, 64, 0, 129), 8, 2, 128)
    both(make_inputs(sizes, "cuda", torch.bfloat16), plan, **options)


@on_hopper
@pytest.mark.parametrize(
    ("heads", "dim", "dtype"),
    [
        ((8, 2), 128, torch.float16),
        ((9, 3), 64, torch.bfloat16),
        ((3, 1), 128, torch.bfloat16),
        ((2, 2), 64, torch.float16),
    ],
)
def test_heads_and_dtypes(heads: tuple[int, int], dim: int, dtype: torch.dtype) -> None:
    """33 rows of 4 heads are two tiles of one warpgroup and its rest, the last of them with rows to spare."""
    inputs = make_inputs(Sizes((33, 2), (700, 31), *heads, dim), "cuda", dtype)
    for plan in PLANS.values():
        both(inputs, plan)


@on_hopper
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_wrong_metadata_is_taken_at_its_word(wrong: dict[str, Any], plan: Plan) -> None:
    inputs = make_inputs(Sizes((75, 75), (30, 31), 4, 2, 64), "cuda", torch.bfloat16)
    changed = {
        name: value if isinstance(value, int) else torch.tensor(value, device="cuda")
        for name, value in wrong.items()
    }
    both(inputs, plan, **changed)


@on_hopper
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_rows_beyond_the_grid_keep_what_memory_held(plan: Plan) -> None:
    inputs = make_inputs(Sizes((150,), (100,), 4, 2, 64), "cuda", torch.bfloat16)
    left = poisoned(inputs) | {"max_len_extend": 8}
    tree_verify_triton(**left, plan=plan, tile=64)
    assert (left["o_extend"][64:] == 77).all()
    assert not (left["o_extend"][:64] == 77).any()


@on_hopper
def test_what_lies_beside_the_keys_is_not_read() -> None:
    """Slots and rows that no request names hold NaN."""
    inputs = make_inputs(Sizes((17, 65), (100, 3), 8, 2, 128), "cuda", torch.bfloat16)
    unused = torch.ones(len(inputs["k_buffer"]), dtype=torch.bool, device="cuda")
    unused[inputs["kv_indices"]] = False
    for name in ("k_buffer", "v_buffer"):
        inputs[name][unused] = torch.nan
    for name in ("q_extend", "k_extend", "v_extend"):
        inputs[name][82:] = torch.nan
    inputs["custom_mask"].fill_(1)
    for plan in PLANS.values():
        left = poisoned(inputs)
        tree_verify_triton(**left, plan=plan)
        assert not left["o_extend"].isnan().any()


@on_hopper
def test_it_is_taken_where_it_covers_the_case() -> None:
    """Without a plan the same numbers come out as with it, and other ones than the plain kernel's."""
    inputs = make_inputs(Sizes((17,), (4096,), 8, 2, 128), "cuda", torch.bfloat16)
    plan = Plan(72, 1, 64, 16, 64, warps=4, stages=6, groups=1)
    results = []
    for chosen in (None, plan, replace(PLAIN, splits=16)):
        out = poisoned(inputs)
        tree_verify_triton(**out, plan=chosen)
        results.append(out["o_extend"])
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


@pytest.mark.parametrize(
    "options",
    [
        {"sliding_window_size": 5, "window_kv_offsets": torch.zeros(1, dtype=torch.int32)},
        {"skip_prefix_custom_mask": False},
        {"logit_cap": 3.0},
        {"xai_temperature_len": 20},
        {"k_scale": 0.5},
        {"v_scale": 0.5},
        {"sinks": torch.zeros(4)},
    ],
    ids=lambda options: next(iter(options)),
)
def test_a_plan_for_what_it_does_not_cover_is_refused(options: dict[str, Any]) -> None:
    device = "cuda" if HOPPER else "cpu"
    inputs = make_inputs(Sizes((17,), (20,), 4, 2, 64), device, torch.bfloat16)
    moved = {
        name: value.to(device) if isinstance(value, torch.Tensor) else value
        for name, value in options.items()
    }
    with pytest.raises(ValueError, match=r"plan: the kernel of 1 warpgroups doesn't cover"):
        tree_verify_triton(**inputs | moved, plan=next(iter(PLANS.values())))


@on_hopper
def test_what_it_covers() -> None:
    inputs = make_inputs(Sizes((17,), (20,), 4, 2, 64), "cuda", torch.bfloat16)
    names = ("q_extend", "k_extend", "v_extend", "o_extend", "k_buffer", "v_buffer")
    tensors = [inputs[name] for name in names]
    assert hopper_covers(tensors)
    assert not hopper_covers([tensor.float() for tensor in tensors])
    assert not hopper_covers([*tensors[:5], tensors[5].to(torch.float8_e4m3fn)])
    assert not hopper_covers([tensor[..., :32] for tensor in tensors])
    shifted = torch.empty(tensors[0].numel() + 1, dtype=torch.bfloat16, device="cuda")[1:]
    assert not hopper_covers([shifted.view_as(tensors[0]), *tensors[1:]])
