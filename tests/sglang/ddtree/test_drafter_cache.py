"""The drafter's cache without waits: what SGLang's own fused helper writes, and when it is used."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.sglang.ddtree.drafter_cache import DrafterCache
from engine.sglang.ddtree.faults import Fault
from engine.sglang.ddtree.options import Options
from tests.sglang.ddtree import test_stock

sglang = test_stock.sglang
LAYERS, HEADS, DIM, HIDDEN, FEATURES, LENGTH, SLOTS = 2, 2, 8, 16, 24, 64, 40
DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    ),
]


class MHATokenToKVPool:
    """SGLang's pool by name."""

    def __init__(self, device: str) -> None:
        self.k, self.v = (torch.zeros(LAYERS, SLOTS, HEADS, DIM, device=device) for _ in range(2))

    def set_kv_buffer(
        self, layer: Any, loc: Any, k: Any, v: Any, k_scale: Any, v_scale: Any
    ) -> None:
        self.k[layer.layer_id, loc], self.v[layer.layer_id, loc] = k, v


def a_layer(number: int, rope: Any, device: str) -> Any:
    kv = HEADS * DIM
    weight = torch.randn(3 * kv, HIDDEN, device=device)
    norm = SimpleNamespace(
        weight=torch.rand(DIM, device=device) + 0.5, variance_epsilon=10.0 ** -(5 + number)
    )
    attention = SimpleNamespace(
        num_kv_heads=HEADS, head_dim=DIM, q_size=kv, kv_size=kv, rotary_emb=rope, k_norm=norm,
        qkv_proj=SimpleNamespace(weight=weight),
        attn=SimpleNamespace(layer_id=number, k_scale=None, v_scale=None),
    )  # fmt: skip
    return SimpleNamespace(self_attn=attention)


def a_worker(device: str = "cpu", fused: bool = True) -> Any:
    torch.manual_seed(3)
    angles = torch.rand(LENGTH, DIM // 2, device=device) * 6
    rope = SimpleNamespace(
        cos_sin_cache=torch.cat([angles.cos(), angles.sin()], dim=1),
        rotary_dim=DIM,
        is_neox_style=True,
    )
    layers = [a_layer(number, rope, device) for number in range(LAYERS)]
    projection = torch.randn(FEATURES, HIDDEN, device=device)
    model = SimpleNamespace(layers=layers, project_target_hidden=lambda x: x @ projection)
    helper = None
    if fused:
        from sglang.srt.speculative.triton_ops.fused_kv_materialize import FusedKVMaterializeHelper

        helper = FusedKVMaterializeHelper(layers, rope, HEADS, DIM, device)
    return SimpleNamespace(
        draft_model=model,
        draft_model_runner=SimpleNamespace(token_to_kv_pool=MHATokenToKVPool(device)),
        use_compact_draft_cache=False,
        _use_fused_kv_materialize=fused,
        _fused_kv_helper=helper,
    )


@pytest.mark.usefixtures("sglang")
@pytest.mark.parametrize("device", DEVICES)
def test_it_writes_what_sglangs_fused_helper_writes(device: str) -> None:
    worker = a_worker(device)
    features = torch.randn(6, FEATURES, device=device)
    positions = torch.tensor([3, 4, 63, 0, 0, 9], device=device)
    slots = torch.tensor([8, 2, 39, 0, 11, 5], device=device)
    pool = worker.draft_model_runner.token_to_kv_pool
    DrafterCache(worker).write(features, positions, slots)
    found = pool.k.clone(), pool.v.clone()
    pool.k.zero_(), pool.v.zero_()

    def write(layer: int, k: torch.Tensor, v: torch.Tensor) -> None:
        own = worker.draft_model.layers[layer].self_attn.attn
        pool.set_kv_buffer(own, slots, k, v, None, None)

    hidden = worker.draft_model.project_target_hidden(features)
    worker._fused_kv_helper.materialize(hidden, positions, write)
    assert pool.k.any()
    assert torch.equal(found[0], pool.k)
    assert torch.equal(found[1], pool.v)


def test_without_the_helper_it_takes_the_workers_own_loop() -> None:
    worker, calls = a_worker(fused=False), []
    worker._append_target_hidden_sequential = lambda *given: calls.append(given)
    positions, slots = torch.arange(4), torch.arange(4) + 9
    features = torch.randn(4, FEATURES)
    DrafterCache(worker).write(features, positions, slots)
    ((hidden, *rest),) = calls
    assert torch.equal(hidden, worker.draft_model.project_target_hidden(features))
    assert rest[0] is positions
    assert rest[1] is slots


@pytest.mark.usefixtures("sglang")
def test_its_parts_change_with_the_workers() -> None:
    worker = a_worker()
    cache = DrafterCache(worker)
    rope = worker.draft_model.layers[0].self_attn.rotary_emb
    assert cache.parts == (worker._fused_kv_helper, rope.cos_sin_cache)  # one for all layers
    worker._use_fused_kv_materialize = False
    assert cache.parts[0] is None
    rope.cos_sin_cache = longer = torch.zeros(2 * LENGTH, DIM)
    assert cache.parts[1] is longer
    assert cache.reaches(2 * LENGTH - 1)
    assert not cache.reaches(2 * LENGTH)


def test_where_it_serves() -> None:
    worker = a_worker(fused=False)
    kept = (Fault.CROP_COMMIT, Fault.HIDDEN_ROWS)
    for fault in (None, *Fault):
        made = DrafterCache.of(worker, Options(16, 8, fault=fault))
        assert (made is None) == (fault in kept), fault
    worker.use_compact_draft_cache = True
    assert DrafterCache.of(worker, Options(16, 8)) is None
    worker = a_worker(fused=False)
    worker.draft_model_runner.token_to_kv_pool = SimpleNamespace()
    assert DrafterCache.of(worker, Options(16, 8)) is None
