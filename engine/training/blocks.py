"""Many blocks of many sequences in one pass of the drafter, and the target's features that they stand on.

Block j of a sequence begins at its anchor: it sees the context strictly before the anchor (the anchor's own hidden
state does not exist yet when decoding) and all of itself, nothing of other blocks.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.models.decoder import AttentionFn, Decoder
from engine.models.dflash import DFlash, DFlashLayer, Turn, layer_visibility, norm


@torch.no_grad()
def target_features(model: Decoder, tokens: Tensor, layers: tuple[int, ...]) -> Tensor:
    """Outputs of the target's ``layers`` side by side, [batch, length, len(layers) * hidden_size].

    ``tokens`` int64 [batch, length], padded on the right, each line a text of its own from position 0.
    """
    batch, length = tokens.shape
    positions = torch.arange(length, device=tokens.device).repeat(batch)
    out = model(
        tokens.flatten(),
        positions,
        causal_lines(batch),
        feature_layers=layers,
        logits_rows=positions[:0],
        check=False,
    )
    return torch.cat(list(out.features), dim=-1).view(batch, length, -1)


def causal_lines(batch: int) -> AttentionFn:
    """Causal attention within each of ``batch`` equally long lines that stand one after another."""

    def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = (t.view(batch, -1, *t.shape[1:]).transpose(1, 2) for t in (query, key, value))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2).flatten(0, 1)

    return attend


def block_hidden(
    drafter: DFlash,
    embedding: Tensor,
    features: Tensor,
    tokens: Tensor,
    anchors: Tensor,
    *,
    compiled: bool = False,
) -> Tensor:
    """Final hidden states of places 1 … L of every block, [batch, anchors, block_size - 1, hidden_size].

    ``features`` as of :func:`target_features`; ``tokens`` int64 [batch, length]; ``anchors`` int64 [batch, anchors].
    ``compiled``: one layer is compiled once, for all layers and lengths.
    """
    config, device = drafter.config, tokens.device
    places = torch.arange(features.shape[1], device=device)
    positions = anchors[..., None] + torch.arange(config.block_size, device=device)
    rows, turn = drafter.context(features), drafter.turn(places)
    ids = drafter.block_ids(tokens.gather(1, anchors))
    hidden = F.embedding(ids, embedding) * config.input_embedding_scale
    block_turn = drafter.turn(positions)
    run = _compiled_layer if compiled else _layer
    for index in range(config.num_layers):
        rule = _rule(drafter, index, places, positions)
        layer = drafter.layer(index)
        hidden = run(layer, hidden, block_turn, rows, turn, places < anchors[..., None], rule)
    return norm(hidden, drafter.final_norm, config.rms_norm_eps)[..., 1:, :]


def _layer(
    layer: DFlashLayer,
    hidden: Tensor,
    block_turn: Turn,
    rows: Tensor,
    turn: Turn,
    before: Tensor,
    rule: Tensor | None,
) -> Tensor:
    """One layer over all blocks: softmax over [context before the anchor | own block].

    ``before`` bool [batch, anchors, S]; ``rule`` bool [batch, anchors, size, S + size] of windows and causality.
    """
    far_keys, far_values = (t.transpose(1, 2) for t in layer.keys_values(rows, turn))
    batch, blocks, size, _ = hidden.shape
    kv_heads, length, dim = far_keys.shape[1:]
    group = layer.config.group_size
    others = before[:, None, :, None]
    if rule is not None:
        rule = rule.repeat_interleave(group, dim=2)[:, None]
        others = others & rule[..., :length]

    def attend(index: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q = query.view(batch, blocks, size, kv_heads, group, dim).permute(0, 3, 1, 2, 4, 5)
        q = q.reshape(batch, kv_heads, blocks, size * group, dim) * float(dim**-0.5)
        k, v = (t.permute(0, 3, 1, 2, 4) for t in (key, value))
        far = q.flatten(2, 3) @ far_keys.transpose(-1, -2)
        far = far.view(batch, kv_heads, blocks, size * group, length)
        far = far.masked_fill(~others, -torch.inf)
        near = q @ k.transpose(-1, -2)
        if rule is not None:
            near = near.masked_fill(~rule[..., length:], -torch.inf)
        weights = torch.cat((far, near), dim=-1).softmax(dim=-1)
        out = weights[..., :length].flatten(2, 3) @ far_values
        out = out.view(batch, kv_heads, blocks, size * group, dim) + weights[..., length:] @ v
        out = out.view(batch, kv_heads, blocks, size, group, dim).permute(0, 2, 3, 1, 4, 5)
        return out.reshape(query.shape)

    out: Tensor = layer(hidden, block_turn, 0, attend)
    return out


_compiled_layer = torch.compile(_layer, dynamic=True)


def _rule(drafter: DFlash, layer: int, places: Tensor, positions: Tensor) -> Tensor | None:
    """What windows and causality of a layer let block rows see of [context | own block], None for everything."""
    keys = torch.cat((places.expand(*positions.shape[:-1], -1), positions), dim=-1)
    return layer_visibility(drafter.config, layer, positions, keys)
