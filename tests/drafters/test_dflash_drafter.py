"""DFlashDrafter: its cache, its batches, and its place in the engine."""

from functools import partial

import pytest
import torch

from engine.decoding.accept import Sampler
from engine.decoding.plain import decode_plain
from engine.decoding.settings import EngineConfig
from engine.drafters.dflash import FIRST_ROWS, DFlashDrafter
from engine.models.causal import CausalCache
from engine.models.dflash_tiny import random_dflash
from engine.models.tiny import random_decoder
from tests.decoding.runs import PROMPTS, run_engine

TARGET = random_decoder("llama", seed=0, num_layers=3, logit_scale=1.0)
SLIDING = ("sliding_attention", "full_attention")
KINDS = {
    "full": {},
    "llama": {"qk_norm": False},
    "sliding": {"layer_types": SLIDING, "sliding_window": 6},
    "reduced": {"draft_vocab_size": 20},
}


def drafter(kind="full", **changes):
    return DFlashDrafter(random_dflash(TARGET, seed=5, **KINDS[kind]), TARGET, **changes)


def features(rows, seed=0):
    return torch.randn(rows, 3 * 32, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", KINDS)
def test_context_step_by_step_equals_context_in_one(kind):
    rows = features(23)
    stepwise, whole = drafter(kind), drafter(kind)
    stepwise.start("r0", [1] * 4, rows[:4])
    done = 4
    for count in (1, 3, 6, 1, 8):
        stepwise.draft(["r0"], [9])  # leaves block rows behind the context, to be overwritten
        stepwise.commit("r0", [1] * count, rows[done : done + count])
        done += count
        assert stepwise.context_length("r0") == done
    whole.start("r0", [1] * 23, rows)
    found, wanted = stepwise.draft(["r0"], [9]), whole.draft(["r0"], [9])
    finite = wanted.isfinite()
    assert (finite == found.isfinite()).all()
    assert (found - wanted)[finite].abs().max() <= 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_equals_its_requests(kind):
    together = drafter(kind)
    lengths, roots = {"a": 3, "b": 17, "c": 8}, {"a": 4, "b": 5, "c": 6}
    for seed, (rid, length) in enumerate(lengths.items()):
        together.start(rid, [1] * length, features(length, seed))
    together.draft(["b"], [5])
    together.commit("b", [2, 3], features(2, 9))
    batch = together.draft(["c", "a", "b"], [6, 4, 5])
    assert batch.shape == (3, 7, 50)
    for i, rid in enumerate("cab"):
        alone = drafter(kind)
        alone.start("x", [1] * lengths[rid], features(lengths[rid], list(lengths).index(rid)))
        if rid == "b":
            alone.commit("x", [2, 3], features(2, 9))
        wanted = alone.draft(["x"], [roots[rid]])[0]
        finite = wanted.isfinite()
        assert (finite == batch[i].isfinite()).all()
        assert (batch[i] - wanted)[finite].abs().max() <= 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_drafting_twice_gives_the_same(kind):
    one = drafter(kind)
    one.start("r0", [1] * 5, features(5))
    first = one.draft(["r0"], [9])
    assert not torch.equal(first, one.draft(["r0"], [10]))
    assert torch.equal(first, one.draft(["r0"], [9]))
    assert one.context_length("r0") == 5


def test_context_beyond_the_first_capacity():
    rows = features(FIRST_ROWS + 60)
    grown, whole = drafter(), drafter()
    grown.start("r0", [1] * 250, rows[:250])
    grown.draft(["r0"], [9])  # its block crosses the first capacity
    for at in range(250, len(rows), 11):
        grown.commit("r0", [1] * len(rows[at : at + 11]), rows[at : at + 11])
        grown.draft(["r0"], [9])
    whole.start("r0", [1] * len(rows), rows)
    assert (grown.draft(["r0"], [9]) - whole.draft(["r0"], [9])).abs().max() <= 1e-5


def test_only_the_reduced_vocabulary_is_drafted():
    one = drafter("reduced")
    one.start("r0", [1] * 5, features(5))
    logits = one.draft(["r0"], [9])[0]
    wanted = torch.zeros(50, dtype=torch.bool)
    wanted[[i * 50 // 20 for i in range(20)]] = True
    assert (logits.isfinite() == wanted).all()
    full = random_dflash(TARGET, seed=5)
    other = DFlashDrafter(full, TARGET)
    other.start("r0", [1] * 5, features(5))
    assert torch.equal(logits[:, wanted], other.draft(["r0"], [9])[0][:, wanted])


def test_a_finished_request_is_forgotten():
    one = drafter()
    one.start("r0", [1] * 5, features(5))
    one.finish("r0")
    with pytest.raises(KeyError):
        one.draft(["r0"], [9])
    one.start("r0", [1] * 2, features(2))
    assert one.context_length("r0") == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("budget", "topk"), [(7, 1), (12, 3)])
def test_the_engine_stays_lossless(kind, budget, topk):
    config = EngineConfig(budget=budget, topk=topk, block_size=8, max_context=120)
    states, _ = run_engine(TARGET, config, PROMPTS, 20, drafter=drafter(kind))
    for state, prompt in zip(states, PROMPTS, strict=True):
        plain = list(decode_plain(TARGET, state.rid, prompt, 20, sampler=Sampler()))
        assert state.output == plain


def test_the_engine_hands_over_the_context_of_a_full_forward():
    """Every draft inside the engine equals one of a new drafter that gets all features of one target forward."""
    one, seen = drafter(), []
    ask = one.draft

    def watched(rids, roots):
        found = ask(rids, roots)
        seen.append((one.context_length("r0"), roots[0], found[0]))
        return found

    one.draft = watched
    config = EngineConfig(budget=10, topk=3, block_size=8, max_context=120)
    (state,), _ = run_engine(TARGET, config, PROMPTS[:1], 16, drafter=one)
    tokens = torch.tensor([*PROMPTS[0], *state.output])
    cache = CausalCache(TARGET.config, len(tokens))
    run = partial(TARGET, attention=cache.attention(0), feature_layers=one.target_layer_ids)
    with torch.inference_mode():
        rows = run(tokens, torch.arange(len(tokens))).features.transpose(0, 1).flatten(1)
    assert len(seen) > 3
    for length, root, found in seen:
        fresh = drafter()
        fresh.start("x", tokens[:length].tolist(), rows[:length])
        assert root == int(tokens[length])
        assert (fresh.draft(["x"], [root])[0] - found).abs().max() <= 2e-4


def test_errors_name_place_expected_and_found():
    for size in (9, 1):
        text = {
            9: "block_size: expected at most 8, which the drafter was trained with, found 9",
            1: "block_size: expected at least 2 (the root and one draft), found 1",
        }[size]
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            drafter(block_size=size)
        assert str(caught.value) == text
    one = drafter()
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        one.start("r0", [1, 2], features(3))
    assert str(caught.value) == (
        "features of r0: expected [2, 96] (tokens, target layers * hidden_size), found [3, 96]"
    )
    one.start("r0", [1] * 513, features(513))
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        one.draft(["r0"], [1])
    assert str(caught.value) == (
        "draft of r0: expected positions 0 … 519, found a block of 8 from 513"
    )


def test_bfloat16_is_close_to_float32():
    narrow = random_decoder("llama", seed=0, num_layers=3, logit_scale=1.0, dtype=torch.bfloat16)
    wide = drafter("sliding")
    half = DFlashDrafter(random_dflash(narrow, seed=5, **KINDS["sliding"]), narrow)
    for one in (wide, half):
        one.start("r0", [1] * 9, features(9))
        one.commit("r0", [1] * 2, features(2, 1))
    found, wanted = half.draft(["r0"], [9]), wide.draft(["r0"], [9])
    assert half.model.dtype is torch.bfloat16
    assert found.dtype is torch.float32
    assert (found - wanted).abs().mean() < 0.1 * wanted.std()
