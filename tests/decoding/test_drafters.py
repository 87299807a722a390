"""Drafters: what they promise about their marginals; and that the interface fits one that reads hidden states."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from engine.decoding.accept import Sampler
from engine.decoding.plain import decode_plain
from engine.decoding.settings import EngineConfig
from engine.drafters.base import Drafter
from engine.drafters.oracle import OracleDrafter
from engine.drafters.prompt_lookup import PromptLookupDrafter
from engine.models.tiny import random_decoder
from tests.decoding.runs import PROMPTS, run_engine

MODEL = random_decoder("llama", seed=0)
NOTHING = torch.empty(0)


def test_prompt_lookup_drafts_what_followed_before() -> None:
    drafter = PromptLookupDrafter(4, 50)
    drafter.start("r0", [1, 2, 3, 4, 5, 6, 1, 2], NOTHING)
    logits = drafter.draft(["r0"], [3])[0]
    assert logits.argmax(-1).tolist() == [4, 5, 6]
    assert (logits[0].isfinite().nonzero().flatten() == torch.tensor([4])).all()


def test_a_longer_match_counts_more() -> None:
    drafter = PromptLookupDrafter(2, 50)
    drafter.start("r0", [9, 3, 7, 3, 8, 9], NOTHING)
    assert drafter.draft(["r0"], [3])[0, 0].argmax() == 7  # "9 3" stood before 7, only "3" before 8


def test_a_text_without_repetition_drafts_nothing() -> None:
    drafter = PromptLookupDrafter(4, 50)
    drafter.start("r0", [1, 2, 3], NOTHING)
    assert drafter.draft(["r0"], [4]).isneginf().all()


def test_the_oracle_at_accuracy_1_ranks_the_targets_choice_first() -> None:
    plain = list(decode_plain(MODEL, "r0", PROMPTS[0], 12, sampler=Sampler()))
    drafter = OracleDrafter(MODEL, 8, accuracy=1.0)
    drafter.start("r0", PROMPTS[0], NOTHING)
    assert drafter.draft(["r0"], [plain[0]])[0].argmax(-1).tolist() == plain[1:8]
    drafter.commit("r0", plain[:3], NOTHING)
    assert drafter.draft(["r0"], [plain[3]])[0].argmax(-1).tolist() == plain[4:11]


def test_the_oracle_follows_a_text_that_takes_another_turn() -> None:
    drafter = OracleDrafter(MODEL, 4, accuracy=1.0)
    drafter.start("r0", PROMPTS[0], NOTHING)
    drafter.draft(["r0"], [11])
    other = list(decode_plain(MODEL, "r0", [*PROMPTS[0], 40], 3, sampler=Sampler()))
    assert drafter.draft(["r0"], [40])[0].argmax(-1).tolist() == other


def test_accuracy_is_the_share_of_first_ranks() -> None:
    drafter = OracleDrafter(MODEL, 8, accuracy=0.7, seed=1)
    ranked = torch.arange(8)
    hits = sum(int(drafter._blurred(ranked, "r0", place)[0]) == 0 for place in range(4000))
    assert hits / 4000 == pytest.approx(0.7, abs=0.03)
    places = {int((drafter._blurred(ranked, "r0", p) == 0).nonzero()) for p in range(400)}
    assert places == {0, 1, 2, 3}


class FeatureDrafter(Drafter):
    """Shaped like DFlash: wants hidden states of two layers, notes what it is given."""

    target_layer_ids = (0, 1)

    def __init__(self) -> None:
        super().__init__(4)
        self.context: dict[str, list[Tensor]] = {}
        self.lengths: dict[str, list[int]] = {}

    def start(self, rid: str, tokens: Sequence[int], features: Tensor) -> None:
        self.context[rid], self.lengths[rid] = [features], [len(tokens)]

    def commit(self, rid: str, tokens: Sequence[int], features: Tensor) -> None:
        self.context[rid].append(features)
        self.lengths[rid].append(len(tokens))

    def draft(self, rids: Sequence[str], roots: Sequence[int]) -> Tensor:
        return torch.randn(len(rids), 3, 50, generator=torch.Generator().manual_seed(roots[0]))

    def finish(self, rid: str) -> None:
        pass


def test_a_drafter_gets_the_features_of_exactly_the_committed_tokens() -> None:
    drafter = FeatureDrafter()
    config = EngineConfig(budget=6, topk=3, block_size=4, max_context=100)
    (state,), _ = run_engine(MODEL, config, PROMPTS[:1], 12, drafter=drafter)
    given = torch.cat(drafter.context["r0"])
    assert [len(f) for f in drafter.context["r0"]] == drafter.lengths["r0"]
    tokens = [*PROMPTS[0], *state.output][: len(given)]
    from engine.models.causal import CausalCache

    cache = CausalCache(MODEL.config, len(tokens))
    with torch.inference_mode():
        out = MODEL(
            torch.tensor(tokens),
            torch.arange(len(tokens)),
            cache.attention(0),
            feature_layers=(0, 1),
        )
    expected = torch.cat([out.features[0], out.features[1]], dim=-1)
    assert (given - expected).abs().max() < 1e-4


def test_a_drafter_of_another_block_size_is_refused() -> None:
    with pytest.raises(ValueError, match="block_size: the engine has 8, the drafter 4"):
        run_engine(MODEL, EngineConfig(max_context=100), PROMPTS[:1], 4, drafter=FeatureDrafter())
