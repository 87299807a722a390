"""Chains of kernels change when they run, not what they make: bit for bit, at every depth, in graphs and without.

Run: pytest tests/graphs/test_chain.py
"""

from __future__ import annotations

import pytest
import torch

from engine.attention import chain
from engine.attention.chain import depth_on, launch_options
from engine.decoding.settings import EngineConfig
from engine.graphs import heads
from engine.graphs.engine import GraphEngine
from engine.models.dflash_tiny import random_dflash
from engine.models.tiny import random_decoder

PROMPTS = {"a": [1, 5, 9, 4], "b": [7, 3], "c": [2, 8, 6, 1] * 40}  # the last over several parts
ON_GPU = pytest.mark.skipif(
    not chain.can_chain(torch.device("cuda" if torch.cuda.is_available() else "cpu")),
    reason="no device with chains",
)


def test_no_chains_on_a_cpu() -> None:
    assert depth_on(torch.device("cpu")) == 0
    assert launch_options(0) == {}
    assert launch_options(1) == launch_options(2) == {"launch_pdl": True}


@ON_GPU
def test_depth_where_there_are_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    for depth in (0, 1, 2):
        monkeypatch.setattr(chain, "DEPTH", depth)
        assert depth_on(torch.device("cuda", 0)) == depth


@ON_GPU
@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("drafted", [False, True])
@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("joins", [False, True])
def test_texts_and_memory_at_every_depth(
    family: str, drafted: bool, graphs: bool, joins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bfloat16, prefixes of one part and of several, many steps in flight."""
    monkeypatch.setattr(heads, "JOINS", joins)
    target = random_decoder(family, seed=7, head_dim=16, vocab_size=12)
    target = target.to(device="cuda", dtype=torch.bfloat16)
    drafter = random_dflash(target, seed=3) if drafted else None
    settings = EngineConfig(budget=11, topk=None, block_size=6, max_context=400, max_requests=3)
    made = []
    for depth in (0, 1, 2):
        monkeypatch.setattr(chain, "DEPTH", depth)
        for _ in range(3):
            engine = GraphEngine(target, drafter, settings, graphs=graphs)
            states = [engine.add(rid, prompt, 60) for rid, prompt in PROMPTS.items()]
            while engine.running:
                engine.step()
            torch.cuda.synchronize()
            made.append(([state.output for state in states], engine.pool.keys.clone()))
    for texts, keys in made[1:]:
        assert texts == made[0][0]
        assert torch.equal(keys[:, 1:], made[0][1][:, 1:])  # slot 0 is what padding writes to
