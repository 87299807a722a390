"""The one-request cache, row by row, in blocks and at once; plain decoding on top of it."""

import pytest
import torch

from engine.models.causal import CausalCache, generate_plain
from engine.models.tiny import random_decoder

IDS = [3, 17, 42, 8, 8, 25, 0, 11, 30, 49, 2, 19]


@pytest.fixture(params=["llama", "qwen3"])
def model(request):
    return random_decoder(request.param, seed=2)


def feed(model, cache, ids):
    start = cache.length
    positions = torch.arange(start, start + len(ids))
    return model(torch.tensor(ids), positions, cache.attention(start)).logits


@pytest.mark.parametrize("blocks", [[1] * 12, [12], [5, 1, 6], [1, 11], [4, 4, 4]])
def test_any_division_into_blocks_gives_the_same_logits(model, blocks, one_shot):
    cache, parts, start = CausalCache(model.config, 16), [], 0
    for size in blocks:
        parts.append(feed(model, cache, IDS[start : start + size]))
        start += size
    assert cache.length == 12
    assert torch.allclose(torch.cat(parts), one_shot(model, IDS).logits, atol=1e-4)


def test_a_row_does_not_see_later_rows(model, one_shot):
    changed = [*IDS[:-1], 33]
    same, other = one_shot(model, IDS).logits, one_shot(model, changed).logits
    assert torch.allclose(same[:-1], other[:-1], atol=1e-5)
    assert not torch.allclose(same[-1], other[-1], atol=1e-2)


def test_truncated_rows_are_forgotten(model, one_shot):
    cache = CausalCache(model.config, 16)
    feed(model, cache, [*IDS[:4], 1, 2, 3])
    cache.truncate(4)
    rest = feed(model, cache, IDS[4:])
    assert torch.allclose(rest, one_shot(model, IDS).logits[4:], atol=1e-4)


def test_refusals_name_the_bounds(model):
    cache = CausalCache(model.config, 4)
    feed(model, cache, [1, 2])
    with pytest.raises(ValueError, match=r"truncate: expected 0 … 2 rows, found 3"):
        cache.truncate(3)
    with pytest.raises(ValueError, match=r"prefix of 0 … 2, found 3"):
        cache.attention(3)
    with pytest.raises(ValueError, match=r"at most 4 rows, found 5"):
        feed(model, cache, [1, 2, 3])


def test_plain_decoding_takes_the_best_token_of_each_step(model, one_shot):
    text = list(generate_plain(model, IDS, 20))
    for count in range(20):
        logits = one_shot(model, IDS + text[:count]).logits[-1]
        assert logits[text[count]] >= logits.max() - 1e-4


def test_text_depends_on_more_than_the_last_token(model):
    texts = {tuple(generate_plain(model, [first, 5, 6], 8)) for first in range(10)}
    assert len(texts) >= 5
    assert len(set(generate_plain(model, IDS, 40))) >= 8


def test_stop_token_is_the_last_one_given(model):
    text = list(generate_plain(model, IDS, 20))
    stopped = list(generate_plain(model, IDS, 20, stop={text[6]}))
    assert stopped == text[: text.index(text[6]) + 1]


def test_sampler_gets_float32_logits_and_decides(model):
    seen = []

    def second_best(logits):
        seen.append((logits.dtype, tuple(logits.shape)))
        return int(logits.topk(2).indices[1])

    text = list(generate_plain(model, IDS, 5, sample=second_best))
    assert seen == [(torch.float32, (50,))] * 5
    assert text != list(generate_plain(model, IDS, 5))
    assert list(generate_plain(model, IDS, 0)) == []


def test_empty_prompt_is_refused(model):
    with pytest.raises(ValueError, match="at least one token"):
        list(generate_plain(model, [], 3))
