"""DFlash against a second implementation in plain loops, through the cache of decoding and as in training."""

import math

import pytest
import torch

from engine.drafters.dflash import DFlashDrafter
from engine.models.dflash import layer_visibility
from engine.models.dflash_weights import load_dflash
from tests.drafters.dflash_files import (
    random_features,
    random_tensors,
    raw_config,
    target,
    write_checkpoint,
)
from tests.drafters.plain_dflash import plain_draft

SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5}
SCALES = {
    "input_embedding_scale": 2.0,
    "output_multiplier": 0.5,
    "final_logit_softcapping": 3.0,
}
CASES = {
    "qwen3": ({}, {}),
    "llama": ({"model_type": "llama"}, {"qk_norm": False}),
    "llama-with-head-norms": ({"model_type": "llama"}, {}),
    "bias": ({"attention_bias": True}, {"bias": True}),
    "one-kv-head": ({"num_key_value_heads": 1}, {}),
    "no-sharing": ({"num_key_value_heads": 4}, {}),
    "wide-heads": ({"head_dim": 16}, {}),
    "theta": ({"rope_theta": 100.0}, {}),
    "three-layers": ({"num_hidden_layers": 3}, {}),
    "one-feature": ({"own": {"target_layer_ids": [1]}}, {}),
    "sliding": (SLIDING, {}),
    "sliding-not-causal": (SLIDING | {"is_causal": False}, {}),
    "causal": ({"is_causal": True}, {}),
    "scales": ({"own": SCALES}, {}),
}
TARGET = target()


def made(case, tmp_path, **loading):
    """(raw, tensors, model) of a case."""
    changes, form = CASES[case]
    raw = raw_config(**{k: dict(v) if k == "own" else v for k, v in changes.items()})
    tensors = random_tensors(raw, **form)
    return raw, tensors, load_dflash(write_checkpoint(tmp_path, raw, tensors), TARGET, **loading)


def expected(raw, tensors, features, root, block_size=6):
    head = TARGET.head.dense()
    return plain_draft(raw, tensors, TARGET.embedding, head, features, root, block_size)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("length", [1, 4, 13])
def test_logits_equal_the_plain_loops(case, length, tmp_path):
    raw, tensors, model = made(case, tmp_path)
    features = random_features(length, raw)
    drafter = DFlashDrafter(model, TARGET)
    drafter.start("r0", [1] * length, features)
    found = drafter.draft(["r0"], [9])
    wanted = expected(raw, tensors, features, 9)
    assert found.shape == (1, 5, 50)
    assert found.dtype is torch.float32
    assert wanted.std() > 0.3, "the reference must not be flat"
    assert (found[0] - wanted).abs().max() <= 1e-5


def test_a_smaller_block_is_its_own_draft(tmp_path):
    raw, tensors, model = made("qwen3", tmp_path)
    features = random_features(8, raw)
    drafter = DFlashDrafter(model, TARGET, block_size=3)
    drafter.start("r0", [1] * 8, features)
    wanted = expected(raw, tensors, features, 9, 3)
    assert (drafter.draft(["r0"], [9])[0] - wanted).abs().max() <= 1e-5
    assert (wanted - expected(raw, tensors, features, 9)[:2]).abs().max() > 1e-2


def test_context_and_root_matter(tmp_path):
    raw, tensors, _ = made("qwen3", tmp_path)
    features = random_features(8, raw)
    base = expected(raw, tensors, features, 9)
    other_order = torch.cat([features[:, 32:], features[:, :32]], dim=1)
    for other in (
        expected(raw, tensors, other_order, 9),
        expected(raw, tensors, features[:-1], 9),
        expected(raw, tensors, features, 10),
    ):
        assert (base - other).abs().max() > 1e-2


def block_attention(model, context, places, anchors):
    """Training's attention written out: [batch, anchors, block] rows over a shared context and their own block."""
    config = model.config
    size = config.block_size
    block = anchors[..., None] + torch.arange(size)
    before = places[:, None, None, :] < anchors[..., None, None]

    def attend(layer, q, k, v):
        wide = (*anchors.shape, -1, *k.shape[-2:])
        keys = torch.cat([context[layer][0][:, None].expand(wide), k], dim=2)
        values = torch.cat([context[layer][1][:, None].expand(wide), v], dim=2)
        positions = torch.cat([places[:, None].expand(*anchors.shape, -1), block], dim=-1)
        own = torch.ones(*anchors.shape, size, size, dtype=torch.bool)
        mask = torch.cat([before.expand(*anchors.shape, size, -1), own], dim=-1)
        seen = layer_visibility(config, layer, block, positions)
        mask = mask if seen is None else mask & seen
        keys, values = (x.repeat_interleave(config.group_size, dim=-2) for x in (keys, values))
        scores = torch.einsum("banhd,bamhd->bahnm", q, keys) / math.sqrt(config.head_dim)
        weights = scores.masked_fill(~mask[:, :, None], -torch.inf).softmax(-1)
        return torch.einsum("bahnm,bamhd->banhd", weights, values)

    return attend, block


@pytest.mark.parametrize("case", ["qwen3", "llama", "sliding"])
def test_training_runs_many_blocks_at_once_with_gradients(case, tmp_path):
    raw, tensors, model = made(case, tmp_path, trainable=True, dtype=torch.float64)
    features = torch.stack([random_features(12, raw, seed) for seed in (1, 2)]).double()
    places, anchors = torch.arange(12).expand(2, 12), torch.tensor([[3, 7, 11], [1, 5, 12]])
    roots = torch.tensor([[9, 10, 11], [12, 13, 14]])
    context = model.context_keys_values(features, places)
    attend, positions = block_attention(model, context, places, anchors)
    hidden = model(TARGET.embed(model.block_ids(roots)).double(), positions, attend)
    head = TARGET.head.dense().double()
    logits = model.logits(hidden[..., 1:, :], lambda rows: rows @ head.T)
    assert logits.shape == (2, 3, 5, 50)
    for b in range(2):
        for a in range(3):
            known = features[b, : anchors[b, a]]
            wanted = expected(raw, tensors, known, int(roots[b, a]))
            assert (logits[b, a] - wanted).abs().max() <= 1e-5
    logits.logsumexp(-1).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name
    assert all(not parameter.requires_grad for parameter in TARGET.parameters())


def test_gradients_equal_finite_differences(tmp_path):
    _, _, model = made("qwen3", tmp_path, trainable=True, dtype=torch.float64)
    places, anchors = torch.arange(6).expand(1, 6), torch.tensor([[4]])
    features = random_features(6, raw_config())[None].double()

    def loss():
        context = model.context_keys_values(features, places)
        attend, positions = block_attention(model, context, places, anchors)
        embeddings = TARGET.embed(model.block_ids(torch.tensor([[9]]))).double()
        return model(embeddings, positions, attend).pow(3).sum()

    loss().backward()
    for weight in (model.fc.weight, model.hidden_norm, model.layers[0].k_norm):
        flat, step = weight.data.view(-1), 1e-6
        entry = int(weight.grad.abs().argmax())
        kept = float(flat[entry])
        ends = []
        for sign in (1, -1):
            flat[entry] = kept + sign * step
            ends.append(float(loss().detach()))
        flat[entry] = kept
        slope = (ends[0] - ends[1]) / (2 * step)
        assert float(weight.grad.view(-1)[entry]) == pytest.approx(slope, rel=1e-4)
