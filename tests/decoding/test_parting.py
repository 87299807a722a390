"""Where a text leaves plain decoding's, and the margin there."""

import torch

from engine.decoding.parting import parting
from engine.models.causal import generate_plain
from engine.models.tiny import random_decoder

PROMPT = [3, 1, 4]


def test_equal_and_shorter_texts_do_not_part() -> None:
    model = random_decoder("llama", seed=1)
    assert parting(model, PROMPT, [5, 6, 7], [5, 6, 7]) is None
    assert parting(model, PROMPT, [5, 6, 7], [5, 6]) is None


def test_the_margin_is_plain_decodings_own() -> None:
    model = random_decoder("llama", seed=1)
    plain = list(generate_plain(model, PROMPT, 8))
    found: list[torch.Tensor] = []

    def greedy(logits: torch.Tensor) -> int:
        found.append(logits)
        return int(logits.argmax())

    list(generate_plain(model, PROMPT, 8, sample=greedy))
    other = int(found[5].topk(2).indices[1])
    apart = parting(model, PROMPT, plain, [*plain[:5], other, 0, 0])
    assert apart is not None
    assert apart.place == 5
    wanted = float(found[5][plain[5]] - found[5][other])
    assert abs(apart.margin - wanted) < 1e-4
    assert not apart.near_tie
    assert str(apart).startswith(f"parts at token 5 by {apart.margin:.3g} (no near-tie)")


def test_the_best_two_within_rounding_are_a_near_tie() -> None:
    model = random_decoder("llama", seed=1)
    plain = list(generate_plain(model, PROMPT, 1))
    other = (plain[0] + 1) % 50
    assert model.head.weight is not None
    model.head.weight[other] = model.head.weight[plain[0]] * (1 - 1e-7)
    apart = parting(model, PROMPT, plain, [other])
    assert apart is not None
    assert apart.near_tie
    third = (plain[0] + 2) % 50
    apart = parting(model, PROMPT, plain, [third])
    assert apart is not None
    assert not apart.near_tie
