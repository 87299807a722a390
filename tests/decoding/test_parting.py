"""Where a text leaves plain decoding's, and the margin there."""

import math

import torch

from engine.decoding.accept import Sampler
from engine.decoding.parting import parting
from engine.decoding.plain import decode_plain
from engine.models.causal import generate_plain
from engine.models.decoder import Decoder
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


def test_tokens_within_rounding_of_the_best_are_a_near_tie() -> None:
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
    model.head.weight[third] = model.head.weight[plain[0]] * (1 - 2e-7)
    for left, right in ((other, third), (third, other), (plain[0], third)):  # a tie of three
        apart = parting(model, PROMPT, [left], [right])
        assert apart is not None
        assert apart.near_tie
    worse = (plain[0] + 3) % 50
    model.head.weight[worse] = model.head.weight[plain[0]] * 0.9
    for left, right in ((worse, third), (third, worse)):
        apart = parting(model, PROMPT, [left], [right])
        assert apart is not None
        assert not apart.near_tie


def test_sampled_texts() -> None:
    """The margin is how far the uniform lies from the other token's share; from the token's own it lies nowhere."""
    model, sampler = random_decoder("llama", seed=1), Sampler(1.0, seed=3)
    plain = list(decode_plain(model, "r", PROMPT, 8, sampler=sampler))
    for place, token in enumerate(plain):
        other = (token + 1) % 50
        apart = parting(model, PROMPT, plain, [*plain[:place], other], sampler, "r")
        assert apart is not None
        assert apart.place == place
        logits = list(_logits(model, [*PROMPT, *plain[:place]]))
        shares = [math.exp(x) for x in logits]
        before = math.fsum(shares[:other]) / math.fsum(shares)
        after = math.fsum(shares[: other + 1]) / math.fsum(shares)
        drawn = sampler.uniform("r", len(PROMPT) + place)
        wanted = before - drawn if other else drawn - after
        assert apart.margin > 0
        assert abs(apart.margin - wanted) < 1e-6
        assert apart.near_tie == (wanted < 1e-7 * max(map(abs, logits)) * 4)


def test_a_uniform_beside_the_end_of_a_share_is_a_near_tie() -> None:
    model = random_decoder("llama", seed=1)
    shares = torch.softmax(torch.tensor(_logits(model, PROMPT), dtype=torch.float64), dim=0)
    end = float(shares.cumsum(0)[7])

    class Drawn(Sampler):
        def uniform(self, rid: str, position: int) -> float:
            return end - 1e-8

    for other, near in ((8, True), (9, False), (6, False)):
        apart = parting(model, PROMPT, [7], [other], Drawn(1.0), "r")
        assert apart is not None
        assert apart.near_tie is near


def _logits(model: Decoder, tokens: list[int]) -> list[float]:
    found: list[torch.Tensor] = []

    def keep(row: torch.Tensor) -> int:
        found.append(row)
        return 0

    list(generate_plain(model, tokens, 1, sample=keep))
    return [float(x) for x in found[0].double()]
