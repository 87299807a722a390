"""Writes tiny GGUF files from transformers' models, the way converters to that format do."""

import gguf
import numpy as np

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}answer:"
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def byte_characters():
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return list(bytes_to_unicode().values())


def vocabulary():
    """256 bytes, two merges, two special tokens: 260 entries."""
    return [*byte_characters(), "th", "the", "<|im_start|>", "<|im_end|>"]


def stored_name(name):
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        _, _, layer, part = stem.split(".", 3)
        return f"blk.{layer}.{NAMES[part]}.{kind}"
    return f"{NAMES[stem]}.{kind}"


def interleaved(weight, heads):
    """Row h * width + i of the halves goes to h * width + 2 i (first half) or 2 i + 1 (second)."""
    width = weight.shape[0] // heads
    out = np.empty_like(weight)
    for row in range(weight.shape[0]):
        head, place = divmod(row, width)
        half, pair = divmod(place, width // 2)
        out[head * width + 2 * pair + half] = weight[row]
    return out


def write_gguf(file, family, model, *, quantised=(), extra=None, arch=None):
    """Write ``model``; returns its weights as the file holds them, by transformers' names."""
    config = model.config
    writer = gguf.GGUFWriter(file, arch or family)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    _add_tokenizer(writer)
    if extra is not None:
        extra(writer)
    held = {}
    for name, parameter in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        held[name] = _add_tensor(writer, family, config, name, parameter.numpy(), quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return held


def _add_tensor(writer, family, config, name, weight, quantised):
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    part = name.split(".")[-2]
    permuted = family == "llama" and part in heads
    stored = interleaved(weight, heads[part]) if permuted else weight
    if part not in quantised:
        writer.add_tensor(stored_name(name), np.ascontiguousarray(stored))
        return weight
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor(stored_name(name), gguf.quantize(stored, kind), raw_dtype=kind)
    # Q8_0 treats each row by itself, so the order of rows doesn't matter to the values
    return gguf.dequantize(gguf.quantize(weight, kind), kind)


def _add_tokenizer(writer):
    tokens = vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    normal, control = gguf.TokenType.NORMAL, gguf.TokenType.CONTROL
    writer.add_token_types([normal] * 258 + [control] * 2)
    writer.add_token_merges(["t h", "th e"])
    writer.add_bos_token_id(258)
    writer.add_eos_token_id(259)
    writer.add_unk_token_id(259)
    writer.add_chat_template(TEMPLATE)
