"""Reference without any tree: a node's logits are those of its root path decoded as a plain causal sequence."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.attention.addressed import AddressedAttention
from engine.decoding import metadata
from engine.decoding.metadata import VerifyRequest
from engine.decoding.reference import ReferenceModel
from engine.models.causal import CausalCache
from engine.models.decoder import Decoder
from engine.models.kv_pool import KVPool
from engine.models.tiny import random_decoder
from engine.tree import DraftTree
from tests.factories import trees

MODELS = {family: random_decoder(family, seed=3) for family in ("llama", "qwen3")}
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
        ],
    ),
]


def plain_logits(model: Decoder, tokens: list[int]) -> torch.Tensor:
    cache = CausalCache(model.config, len(tokens))
    with torch.inference_mode():
        ids = torch.tensor(tokens)
        return model(ids, torch.arange(len(ids)), cache.attention(0)).logits[-1]


def tree_logits(model: Decoder, prefix: list[int], tree: DraftTree, padding: int) -> torch.Tensor:
    """One verify forward through the addressed backend, prefix slots in random order."""
    q_len, prefix_len = tree.num_nodes + padding, len(prefix)
    pool = KVPool(model.config, 200)
    slots = torch.randperm(199)[: prefix_len + q_len] + 1
    attention = AddressedAttention(pool)
    table = torch.zeros(2, 100, dtype=torch.int32)
    table[1, :prefix_len] = slots[:prefix_len].to(torch.int32)
    with torch.inference_mode():
        if prefix_len:
            causal = torch.ones(prefix_len, prefix_len).tril().to(torch.uint8).flatten()
            meta = metadata.build_attention_metadata(
                torch.tensor([0]), torch.empty(0, dtype=torch.int64), causal, prefix_len
            )
            step = attention.begin(meta, slots[:prefix_len])
            model(torch.tensor(prefix), torch.arange(prefix_len), step)
        mask = metadata.tree_mask(tree, prefix_len, q_len).to(torch.uint8).flatten()
        request = VerifyRequest("r0", tree, prefix_len, 1)
        indices = metadata.gather_kv_indices(table, [request])
        meta = metadata.build_attention_metadata(torch.tensor([prefix_len]), indices, mask, q_len)
        step = attention.begin(meta, slots[prefix_len:])
        positions = metadata.tree_positions(tree, prefix_len, q_len)
        return model(metadata.tree_tokens(tree, q_len), positions, step).logits


@pytest.mark.parametrize("family", sorted(MODELS))
@given(tree=trees(12), prefix_len=st.integers(1, 9), padding=st.integers(0, 3))
@settings(max_examples=25)
def test_a_node_equals_its_root_path(family, tree, prefix_len, padding) -> None:
    model = MODELS[family]
    prefix = [(7 * i + 3) % 50 for i in range(prefix_len)]
    logits = tree_logits(model, prefix, tree, padding)
    for node, path in enumerate(tree.paths):
        expected = plain_logits(model, prefix + tree.tokens[list(path)].tolist())
        assert (logits[node] - expected).abs().max() <= 1e-4


@given(tree=trees(12), prefix_len=st.integers(1, 9))
@settings(max_examples=25)
def test_the_reference_model_says_the_same(tree, prefix_len) -> None:
    model = MODELS["llama"]
    prefix = [(7 * i + 3) % 50 for i in range(prefix_len)]
    reference = ReferenceModel(model, torch.float64)
    reference.start("r0", prefix)
    logits = reference.verify("r0", tree, prefix_len)
    for node, path in enumerate(tree.paths):
        expected = plain_logits(model, prefix + tree.tokens[list(path)].tolist())
        assert (logits[node] - expected).abs().max() <= 1e-4


@pytest.mark.parametrize("device", DEVICES)
def test_a_siblings_token_changes_no_other_branch(device: str) -> None:
    model = random_decoder("llama", seed=3).to(device)
    reference = ReferenceModel(model)
    reference.start("r0", [1, 2, 3])
    from engine.tree import make_tree

    one = reference.verify("r0", make_tree([-1, 0, 0, 1], [4, 5, 6, 7]), 3)
    other = reference.verify("r0", make_tree([-1, 0, 0, 1], [4, 5, 40, 7]), 3)
    assert torch.equal(one[[0, 1, 3]], other[[0, 1, 3]])
    assert not torch.equal(one[2], other[2])
