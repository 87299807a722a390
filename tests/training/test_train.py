"""A whole training run on a tiny target: it learns, goes on where it stopped, and its figures are those of decoding."""

import numpy as np
import pytest
import torch

from engine.decoding.engine import Engine
from engine.decoding.settings import EngineConfig
from engine.drafters.dflash import DFlashDrafter
from engine.models.causal import generate_plain
from engine.models.tiny import random_decoder
from engine.training.corpus import Corpus, batches, make_batch, repeated_share
from engine.training.loss import Weighting
from engine.training.simulate import follow, place_candidates
from engine.training.start import new_drafter, spread_layers
from engine.training.train import Trainer, TrainSettings

TARGET = random_decoder("llama", seed=1, hidden_size=32, logit_scale=12.0)
CHANCE = torch.Generator().manual_seed(3)
PROMPTS = [torch.randint(50, (4,), generator=CHANCE).tolist() for _ in range(90)]
ANSWERS = [list(generate_plain(TARGET, prompt, 24)) for prompt in PROMPTS]
CORPUS = Corpus.of(zip(PROMPTS, ANSWERS, strict=True))
SETTINGS = TrainSettings(
    steps=120, batch=16, anchors=8, lr=4e-3, report_every=10, weighting=Weighting("exp", gamma=4.0)
)


def fresh(seed=0):
    return new_drafter(TARGET, num_layers=2, block_size=6, mask_token_id=49, seed=seed)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    drafter = fresh()
    training, held_out = CORPUS.split(16)
    folder = tmp_path_factory.mktemp("run")
    trainer = Trainer(TARGET, drafter, training, held_out, SETTINGS, folder)
    assert trainer.run()
    return drafter, trainer


def test_it_learns(trained):
    _, trainer = trained
    runs = [figures for figures in trainer.history if not figures.validation]
    assert runs[-1].loss < 0.6 * runs[0].loss
    assert runs[-1].accuracy[0] > runs[0].accuracy[0] + 0.1
    assert trainer.history[-1].validation
    assert trainer.history[-1].accepted > 1.04


@pytest.mark.parametrize(("budget", "topk"), [(5, 1), (8, 2), (16, None)])
def test_followed_texts_are_what_the_engine_decodes(trained, budget, topk):
    drafter, _ = trained
    config = EngineConfig(budget=budget, topk=topk, block_size=6, max_context=64)
    for prompt in PROMPTS[-4:]:
        engine = Engine(TARGET, DFlashDrafter(drafter, TARGET), config)
        state = engine.add("r", prompt, 24)
        steps = 0
        while engine.running:
            engine.step()
            steps += 1
        text = [*prompt, *state.output]
        found = place_candidates(TARGET, drafter, text, len(prompt), budget)
        followed = follow(found, text, len(prompt), budget, topk)
        assert (followed.tokens, followed.steps) == (len(state.output) - 1, steps)


def test_a_run_goes_on_where_it_stopped(tmp_path, trained):
    training, held_out = CORPUS.split(16)
    first = Trainer(TARGET, fresh(), training, held_out, SETTINGS, tmp_path)
    stream = first._stream()
    for _ in range(50):
        first._train(next(stream))
        first.step += 1
    first.save()
    drafter = fresh(seed=9)  # its weights are replaced
    second = Trainer(TARGET, drafter, training, held_out, SETTINGS, tmp_path)
    assert second.step == 50
    assert second.run()
    whole, _ = trained
    for (name, mine), (_, want) in zip(
        drafter.named_parameters(), whole.named_parameters(), strict=True
    ):
        assert torch.allclose(mine, want, atol=1e-5), name
    other = TrainSettings(**{**vars(SETTINGS), "lr": 1e-3})
    with pytest.raises(ValueError, match=r"lr was 0\.004 when the run began, found 0.001 now"):
        Trainer(TARGET, fresh(), training, held_out, other, tmp_path)


def test_a_run_that_is_out_of_time_is_saved(tmp_path):
    training, held_out = CORPUS.split(16)
    trainer = Trainer(TARGET, fresh(), training, held_out, SETTINGS, tmp_path)
    assert not trainer.run(until=0.0)
    assert (tmp_path / "state.pt").is_file()


def test_by_the_clock_the_run_ends_with_its_minutes(tmp_path):
    training, held_out = CORPUS.split(16)
    settings = TrainSettings(**{**vars(SETTINGS), "minutes": 0.01, "report_every": 2})
    trainer = Trainer(TARGET, fresh(), training, held_out, settings, tmp_path)
    assert trainer.run()
    assert trainer.seconds >= 0.6


def test_batches_hold_every_block_where_it_stands():
    for batch in batches(CORPUS, size=8, anchors=5, block_size=6, seed=1):
        for line, anchors, labels in zip(batch.tokens, batch.anchors, batch.labels, strict=True):
            text = line.tolist()
            whole = next(
                CORPUS.sequence(i).tolist()
                for i in range(len(CORPUS))
                if CORPUS.sequence(i).tolist()[:8] == text[:8]
            )
            assert text[: len(whole)] == whole
            for anchor, row in zip(anchors.tolist(), labels.tolist(), strict=True):
                assert 4 <= anchor <= len(whole) - 2
                ahead = whole[anchor + 1 : anchor + 6]
                assert row == ahead + [-1] * (5 - len(ahead))


def test_short_answers_give_all_their_blocks():
    corpus = Corpus.of([([1, 2, 3], [4, 5, 6, 7])])
    batch = make_batch(corpus, [0], 7, 4, np.random.default_rng(0))
    assert sorted(set(batch.anchors[0].tolist())) == [3, 4, 5]


def test_parts_are_one_corpus_again(tmp_path):
    CORPUS.part(0, 30).save(tmp_path / "a.npz")
    CORPUS.part(30, 90).save(tmp_path / "b.npz")
    again = Corpus.load([tmp_path / "a.npz", tmp_path / "b.npz"])
    for name in ("tokens", "offsets", "prompt_lens"):
        assert np.array_equal(getattr(again, name), getattr(CORPUS, name))
    (tmp_path / "c.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"c\.npz: expected a part of a corpus, found"):
        Corpus.load([tmp_path / "c.npz"])
    with pytest.raises(ValueError, match="expected at least one part"):
        Corpus.load([])


def test_repetition_is_the_share_of_known_8_grams():
    assert repeated_share(list(range(50))) == 0.0
    assert repeated_share([1, 2] * 20) == pytest.approx(1 - 2 / 33)
    assert repeated_share([1, 2]) == 0.0


def test_feature_layers_are_spread():
    assert spread_layers(30, 5) == (1, 8, 14, 20, 27)
    assert spread_layers(36, 5) == (1, 9, 17, 25, 33)
    assert spread_layers(2, 5) == (0,)


@pytest.mark.parametrize("content", [b"", b"\n", b"PK\x03\x04" + bytes(40), b"state"])
def test_damaged_files_get_one_sentence(tmp_path, content):
    (tmp_path / "state.pt").write_bytes(content)
    training, held_out = CORPUS.split(16)
    with pytest.raises(
        ValueError, match=r"state\.pt: expected the state of a run, found a damaged"
    ):
        Trainer(TARGET, fresh(), training, held_out, SETTINGS, tmp_path)
    (tmp_path / "part.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"part\.npz: expected a part of a corpus"):
        Corpus.load([tmp_path / "part.npz"])
