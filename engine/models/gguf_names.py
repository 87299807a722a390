"""Tensor names of GGUF files and the rotary order of their rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.models.naming import EMBEDDING, FINAL_NORM, HEAD

WHOLE = {"token_embd.weight": EMBEDDING, "output_norm.weight": FINAL_NORM, "output.weight": HEAD}
ROPE_FACTORS = "rope_freqs.weight"
IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hf_name(name: str) -> str:
    """blk.3.attn_q.weight to model.layers.3.self_attn.q_proj.weight. Raises ValueError for other
    names.
    """
    if name in WHOLE:
        return WHOLE[name]
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[1].isdigit() and parts[2] in IN_LAYER:
        return f"model.layers.{parts[1]}.{IN_LAYER[parts[2]]}.{parts[3]}"
    raise ValueError(f"tensor {name}: expected a tensor of a llama or qwen3 decoder")


def half_rotary_rows(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo the row order of llama files, whose rotary pairs stand beside each other.

    In a head of width 4 the stored rows are 0, 2, 1, 3 of ours: pair (0, 2) first, then pair (1,
    3).
    """
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
