"""The target's choices: greedy, sampled, and what settings cut away."""

import ast
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scipy.stats import chisquare

from engine.sglang.ddtree.choose import choose, cut, draw
from tests.sglang_wheels import sglang_folder

ALL = 1 << 30


def sampling(temperatures: list[float], **given: Any) -> SimpleNamespace:
    """SamplingBatchInfo of requests."""
    count = len(temperatures)
    top_ks = torch.tensor(given.pop("top_ks", [ALL] * count), dtype=torch.int32)
    top_ps = torch.tensor(given.pop("top_ps", [1.0] * count))
    min_ps = torch.tensor(given.pop("min_ps", [0.0] * count))
    return SimpleNamespace(
        temperatures=torch.tensor(temperatures).view(-1, 1),
        top_ks=top_ks,
        top_ps=top_ps,
        min_ps=min_ps,
        is_all_greedy=bool((top_ks <= 1).all()),
        need_top_k_sampling=bool((top_ks != ALL).any()),
        need_top_p_sampling=bool((top_ps != 1).any()),
        need_min_p_sampling=bool((min_ps > 0).any()),
        logit_bias=given.pop("logit_bias", None),
    )


PROBS = torch.tensor([0.4, 0.3, 0.2, 0.1])


def test_without_sampling_the_best_token_wins() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    assert choose(logits, None, 2).tolist() == [1, 0]
    assert choose(logits, sampling([1.0], top_ks=[1]), 2).tolist() == [1, 0]


def test_a_bias_is_added_to_every_row_of_its_request() -> None:
    bias = torch.tensor([[0.0, 9.0], [9.0, 0.0]])
    logits = torch.zeros(4, 2)
    assert choose(logits, sampling([1.0, 1.0], top_ks=[1, 1], logit_bias=bias), 2).tolist() == [
        1,
        1,
        0,
        0,
    ]
    assert logits[0].tolist() == [0.0, 9.0]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_samples_follow_the_target(temperature: float) -> None:
    torch.manual_seed(0)
    rows = 20000
    logits = PROBS.log().repeat(rows, 1)
    drawn = choose(logits, sampling([temperature]), rows)
    wanted = torch.softmax(PROBS.double().log() / temperature, dim=0)
    assert chisquare(torch.bincount(drawn, minlength=4), (wanted * rows).numpy()).pvalue > 1e-3


def test_samples_follow_what_the_settings_leave() -> None:
    torch.manual_seed(1)
    rows = 20000
    drawn = choose(PROBS.log().repeat(rows, 1), sampling([1.0], top_ks=[3], top_ps=[0.65]), rows)
    counts = torch.bincount(drawn, minlength=4)
    assert counts[2:].tolist() == [0, 0]
    assert chisquare(counts[:2], [rows * 4 / 7, rows * 3 / 7]).pvalue > 1e-3


def test_rows_are_sampled_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row by its own request's settings, wherever a chunk ends."""
    monkeypatch.setattr("engine.sglang.ddtree.choose.CHUNK", 3)
    sharp = sampling([1.0, 1e-4], top_ks=[ALL, 3])
    drawn = choose(PROBS.log().repeat(200, 1), sharp, 100)
    assert len(set(drawn[:100].tolist())) > 1
    assert set(drawn[100:].tolist()) == {0}


def test_greedy_and_sampled_requests_in_one_batch() -> None:
    torch.manual_seed(2)
    logits = PROBS.log().repeat(400, 1)
    drawn = choose(logits, sampling([1.0, 1.0], top_ks=[1, ALL]), 200)
    assert (drawn[:200] == 0).all()
    assert (drawn[200:] != 0).any()


@pytest.mark.parametrize(
    ("top_k", "top_p", "min_p", "kept"),
    [
        (ALL, 1.0, 0.0, [0, 1, 2, 3]),
        (2, 1.0, 0.0, [0, 1]),
        (ALL, 0.65, 0.0, [0, 1]),
        (ALL, 0.75, 0.0, [0, 1, 2]),
        (ALL, 0.0, 0.0, [0]),
        (ALL, 1.0, 0.45, [0, 1, 2]),
        (3, 0.65, 0.0, [0, 1]),
    ],
)
def test_what_is_cut(top_k: int, top_p: float, min_p: float, kept: list[int]) -> None:
    order = torch.tensor([2, 0, 3, 1])
    probs = PROBS[order][None]
    left = cut(probs, torch.tensor([top_k]), torch.tensor([top_p]), torch.tensor([min_p]))[0]
    assert sorted(order[left > 0].tolist()) == kept
    assert torch.equal(left[left > 0], probs[0][left > 0])


def test_the_cut_is_that_of_the_servers_own_sampler() -> None:
    """Its function out of the wheel, with a recorder where it would draw."""
    source = (sglang_folder() / "sglang/srt/layers/sampler.py").read_text("utf-8")
    name = "top_k_top_p_min_p_sampling_from_probs_torch"
    found = next(n for n in ast.parse(source).body if getattr(n, "name", "") == name)
    drawn: list[torch.Tensor] = []

    class Recorder:
        def __getattr__(self, attribute: str) -> Any:
            return getattr(torch, attribute)

        def multinomial(self, probs: torch.Tensor, num_samples: int) -> torch.Tensor:
            drawn.append(probs.clone())
            return torch.zeros(len(probs), 1, dtype=torch.int64)

    names: dict[str, Any] = {"torch": Recorder()}
    exec(compile("from __future__ import annotations\n" + ast.unparse(found), name, "exec"), names)
    generator = torch.Generator().manual_seed(4)
    probs = torch.softmax(torch.randn(64, 40, generator=generator) * 2, dim=-1)
    top_ks = torch.randint(1, 50, (64,), generator=generator)
    top_ps, min_ps = (torch.rand(64, generator=generator) for _ in range(2))
    min_ps = min_ps * 0.2
    names[name](probs.clone(), top_ks, top_ps, min_ps, True, None, None)
    ours = cut(probs, top_ks, top_ps, min_ps).sort(dim=-1, descending=True).values
    assert torch.equal(ours, drawn[0].sort(dim=-1, descending=True).values)


def test_a_race_is_won_in_proportion_and_never_by_nothing() -> None:
    weights = torch.tensor([[0.0, 1.0, 3.0]]).repeat(4000, 1)
    noise = torch.empty_like(weights).exponential_(generator=torch.Generator().manual_seed(3))
    won = torch.bincount(draw(weights, noise), minlength=3)
    assert won[0] == 0
    assert chisquare(won[1:], [1000, 3000]).pvalue > 1e-3
    assert draw(weights[:1], torch.zeros(1, 3)).tolist() == [2]
