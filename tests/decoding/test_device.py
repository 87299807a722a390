"""Where tensors live: no step makes one without naming its device, mixes two devices, or waits more often than it says.

No GPU is needed: the default device becomes ``meta``, which a forgotten device name falls for, and a pretended device
refuses what a GPU would refuse. The same bodies run on a GPU where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.attention.addressed import attend, attend_by_group
from engine.checks.registry import check_trace
from engine.decoding.accept import Sampler
from engine.decoding.best_first import _sorted_candidates, top_candidates
from engine.decoding.engine import Engine
from engine.decoding.plain import decode_plain
from engine.decoding.settings import Backend, EngineConfig, Graph
from engine.drafters.base import Drafter
from engine.drafters.dflash import DFlashDrafter
from engine.drafters.oracle import OracleDrafter
from engine.drafters.prompt_lookup import PromptLookupDrafter
from engine.faults import inject
from engine.faults.injector import INJECTORS
from engine.models.decoder import Decoder
from engine.models.device import described, find_device, find_dtype, to_device, to_host
from engine.models.dflash import DFlash
from engine.models.dflash_tiny import random_dflash
from engine.models.tiny import random_decoder
from engine.step import VerifyStep, same_record
from tests.decoding.runs import run_engine
from tests.pretend_device import DEVICE, PretendDevice, There, moved

PROMPTS = ([3, 1, 4, 1, 5], [9, 2], [6, 5, 3, 5, 8, 9, 7])
NEW_TOKENS = 14
GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
DEVICES = ["cpu", pytest.param("cuda", marks=GPU)]


@dataclass(frozen=True)
class Case:
    """How to decode."""

    drafter: str = "dflash"
    batch: int = 1
    config: EngineConfig = field(default_factory=lambda: EngineConfig(max_context=100))


SAMPLED = Sampler(0.9, seed=3)
CASES = {
    "chain": Case(config=EngineConfig(budget=7, topk=1, max_context=100)),
    "tree": Case(),
    "wide-batch-3": Case(batch=3, config=EngineConfig(budget=40, topk=None, max_context=100)),
    "replay-padded-3": Case(batch=3, config=EngineConfig(graph=Graph.REPLAY, max_context=100)),
    "sampled-3": Case(batch=3, config=EngineConfig(sampler=SAMPLED, max_context=100)),
    "dense": Case(batch=3, config=EngineConfig(backend=Backend.DENSE, max_context=100)),
    "oracle": Case("oracle", 3, EngineConfig(sampler=SAMPLED, max_context=100)),
    "prompt-lookup": Case("prompt-lookup", 3),
    "windowed": Case("windowed", 3),
}


def models(family: str = "llama") -> tuple[Decoder, dict[str, DFlash]]:
    target = random_decoder(family, seed=7)
    sliding = ("full_attention", "sliding_attention")
    windowed = random_dflash(
        target, seed=8, sliding_window=5, layer_types=sliding, draft_vocab_size=40
    )
    return target, {"dflash": random_dflash(target, seed=8), "windowed": windowed}


def drafter_of(case: Case, target: Decoder, dflash: dict[str, DFlash]) -> Drafter:
    if case.drafter == "oracle":
        return OracleDrafter(target, 8, accuracy=0.7, sampler=case.config.sampler, max_context=200)
    if case.drafter == "prompt-lookup":
        return PromptLookupDrafter(8, target.config.vocab_size)
    return DFlashDrafter(dflash[case.drafter], target)


@dataclass(frozen=True)
class Texts:
    plain: list[list[int]]
    tree: list[list[int]]
    steps: list[VerifyStep]


def decode(
    case: Case, target: Decoder, dflash: dict[str, DFlash], new_tokens: int = NEW_TOKENS
) -> Texts:
    """Plain decoding and the case's own; every step recorded beside the reference's logits."""
    prompts = PROMPTS[: case.batch]
    plain = [
        list(decode_plain(target, f"r{i}", prompt, new_tokens, sampler=case.config.sampler))
        for i, prompt in enumerate(prompts)
    ]
    drafter = drafter_of(case, target, dflash)
    states, steps = run_engine(target, case.config, prompts, new_tokens, drafter=drafter)
    return Texts(plain, [state.output for state in states], steps)


@cache
def expected(name: str) -> Texts:
    return decode(CASES[name], *models())


def assert_same_steps(found: Sequence[VerifyStep], wanted: Sequence[VerifyStep]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one == other


@pytest.mark.parametrize("name", CASES)
def test_no_tensor_is_made_without_naming_its_device(name: str) -> None:
    """A factory call that names none makes a ``meta`` tensor here, which has no values."""
    wanted = expected(name)
    target, dflash = models()
    with torch.device("meta"):
        found = decode(CASES[name], target, dflash)
    assert (found.plain, found.tree) == (wanted.plain, wanted.tree)
    assert_same_steps(found.steps, wanted.steps)


def on_pretended(case: Case, new_tokens: int = NEW_TOKENS, lenient: bool = False) -> Texts:
    """The same on the pretended device."""
    target, dflash = models()
    with PretendDevice(lenient):
        for model in (target, *dflash.values()):
            moved(model)
        assert target.device == DEVICE
        return decode(case, target, dflash, new_tokens)


@pytest.mark.parametrize("name", CASES)
def test_a_run_on_another_device_never_mixes_it_with_the_host(name: str) -> None:
    wanted, found = expected(name), on_pretended(CASES[name])
    assert (found.plain, found.tree) == (wanted.plain, wanted.tree)
    assert check_trace(found.steps).findings == ()
    for one, other in zip(found.steps, wanted.steps, strict=True):
        for part in ("inputs", "links", "commit"):
            assert same_record(getattr(one, part), getattr(other, part))


@pytest.mark.parametrize("fault", INJECTORS)
def test_a_fault_breaks_a_run_on_another_device_alike(fault: str) -> None:
    stages = inject(fault, replay=True)
    config = EngineConfig(graph=Graph.REPLAY, max_context=100, stop=(3,), stages=stages)
    wanted = decode(Case(batch=2, config=config), *models(), 6)
    config = replace(config, stages=inject(fault, replay=True))
    found = on_pretended(Case(batch=2, config=config), 6, lenient=True)
    assert found.tree == wanted.tree
    faults = [[f.check for f in check_trace(texts.steps).causes] for texts in (found, wanted)]
    assert faults[0] == faults[1]


@pytest.mark.parametrize("batch", [1, 3])
def test_a_step_waits_five_times_whatever_its_batch(batch: int) -> None:
    target, dflash = models()
    with PretendDevice() as device:
        for model in (target, *dflash.values()):
            moved(model)
        config = EngineConfig(max_context=100)
        engine = Engine(target, DFlashDrafter(dflash["dflash"], target), config)
        for i, prompt in enumerate(PROMPTS[:batch]):
            engine.add(f"r{i}", prompt, 60)
        device.copies.clear()
        engine.step()
    assert len(engine.running) == batch
    assert sum(device.copies.values()) == 5


def test_the_pretended_device_refuses_what_a_gpu_would() -> None:
    with PretendDevice():
        there, here = to_device(torch.arange(4), DEVICE), torch.arange(4)
        assert isinstance(there, There)
        for mix in (lambda: there + here, lambda: there[here], lambda: torch.cat([there, here])):
            with pytest.raises(RuntimeError, match="of the device and of the host together"):
                mix()
        assert to_host(there + 1).tolist() == [1, 2, 3, 4]


@given(st.integers(1, 9), st.integers(1, 12), st.integers(0, 10**6))
def test_sorted_candidates_equal_partitioned_ones(rows: int, count: int, seed: int) -> None:
    """Many ties, and tokens that cannot be drafted."""
    chance = torch.Generator().manual_seed(seed)
    logits = torch.randint(5, (rows, 20), generator=chance).float()
    logits[torch.rand(rows, 20, generator=chance) < 0.3] = -torch.inf
    logits[0, 0] = 1.0
    wanted = top_candidates(logits, count)
    log_probs = torch.log_softmax(logits.double(), dim=-1).nan_to_num(-torch.inf, neginf=-torch.inf)
    found = _sorted_candidates(log_probs.clamp(max=0.0), count)
    assert np.array_equal(found.tokens, wanted.tokens)
    assert np.array_equal(found.log_probs, wanted.log_probs)


@pytest.mark.parametrize("device", DEVICES)
@given(st.integers(1, 9), st.integers(0, 12), st.integers(0, 10**6))
def test_attention_by_group_equals_grouped_attention(
    device: str, rows: int, prefix: int, seed: int
) -> None:
    chance = torch.Generator().manual_seed(seed)
    q = torch.randn(rows, 6, 8, generator=chance)
    keys, values = (torch.randn(prefix + rows, 2, 8, generator=chance) for _ in range(2))
    mask = torch.rand(rows, prefix + rows, generator=chance) < 0.5
    mask[:, prefix:] |= torch.eye(rows, dtype=torch.bool)
    wanted = attend(q, keys, values, mask)
    found = attend_by_group(*(t.to(device) for t in (q, keys, values, mask))).cpu()
    assert (found - wanted).abs().max() < 1e-5


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("name", CASES)
def test_texts_are_plain_decodings(name: str, family: str, device: str) -> None:
    target, dflash = models(family)
    target.to(device)
    for model in dflash.values():
        model.to(device)
    found = decode(CASES[name], target, dflash)
    assert found.tree == found.plain
    assert check_trace(found.steps).findings == ()


@pytest.mark.parametrize("device", DEVICES)
def test_in_bfloat16_nothing_but_the_reference_speaks(device: str) -> None:
    for seed in range(3):
        target = random_decoder("llama", seed=seed, dtype=torch.bfloat16, vocab_size=400)
        dflash = {"dflash": random_dflash(target, seed=seed + 50).to(device)}
        found = decode(CASES["wide-batch-3"], target.to(device), dflash)
        assert {finding.check for finding in check_trace(found.steps).findings} <= {"I22"}


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=GPU)])
def test_the_gpu_is_named_and_the_last_one_too(device: str) -> None:
    count = torch.cuda.device_count()
    assert find_device(device).index == torch.cuda.current_device()
    assert find_device(f"cuda:{count - 1}").index == count - 1
    with pytest.raises(ValueError, match="found no such GPU"):
        find_device(f"cuda:{count}")
    assert torch.cuda.get_device_name() in described(find_device(device))


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cpu:0", "CUDA", "", "meta"])
def test_a_device_of_another_kind_is_named(name: str) -> None:
    with pytest.raises(ValueError, match="device: expected cpu, cuda or cuda:N, found"):
        find_device(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")
def test_a_missing_gpu_is_said_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="device cuda: expected a GPU that torch can use, found"):
        find_device("cuda")


def test_other_dtypes_are_named() -> None:
    assert find_dtype("bfloat16") is torch.bfloat16
    with pytest.raises(ValueError, match="dtype: expected float32 or bfloat16, found 'float16'"):
        find_dtype("float16")
