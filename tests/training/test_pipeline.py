"""From nothing but a tiny target to a drafter in a folder, every stage taken up where it was left."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.decoding.acceptance_benchmark import SETTINGS, bench_acceptance
from engine.decoding.engine import Engine
from engine.decoding.settings import EngineConfig
from engine.drafters.dflash import DFlashDrafter
from engine.models.catalog import Target
from engine.models.dflash_weights import load_dflash
from engine.models.tiny import random_decoder
from engine.training.chat import ChatFrame, chat_frame
from engine.training.corpus import Corpus
from engine.training.instructions import plain, seed_instructions
from engine.training.make_corpus import CorpusSettings, make_corpus
from engine.training.pipeline import (
    DrafterSettings,
    followed_table,
    held_out_prompts,
    train_drafter,
)
from engine.training.start import new_drafter
from engine.training.train import TrainSettings

START, END, ANSWER = 200, 201, 202


class Tokenizer:
    """A character is its code below 200; a message stands between START and END, the answer follows ANSWER."""

    def encode(self, text: str) -> list[int]:
        return [ord(c) % 200 for c in text]

    def encode_chat(self, prompt: str) -> list[int]:
        return [START, *self.encode(prompt), END, ANSWER]

    def decode(self, ids) -> str:
        return "".join(map(chr, ids))


class Untemplated(Tokenizer):
    def encode_chat(self, prompt: str) -> list[int]:
        return self.encode(prompt)


def target(tokenizer=None) -> Target:
    model = random_decoder("llama", seed=2, vocab_size=210, num_layers=4, max_position=1024)
    return Target("tiny", Path("tiny"), model, tokenizer or Tokenizer())  # type: ignore[arg-type]


CORPUS = CorpusSettings(
    self_prompts=30, seed_prompts=20, max_prompt_tokens=12, max_answer_tokens=10, part=16, rows=8,
    max_repeated=1.0,
)  # fmt: skip
SMALL = DrafterSettings(
    num_layers=1, block_size=4, features=2, answer_tokens=8, corpus=CORPUS,
    train=TrainSettings(steps=4, batch=4, anchors=4, report_every=2),
)  # fmt: skip


def test_a_drafter_from_nothing_but_the_target(tmp_path, monkeypatch):
    monkeypatch.setattr("engine.training.pipeline.held_out_prompts", lambda: ["One?", "Two."])
    said = []
    made = train_drafter(target(), tmp_path, SMALL, report=said.append)
    assert made is not None
    assert json.loads((tmp_path / "drafter" / "training.json").read_text())["steps"] == 4
    assert set(made["followed"]["mean"]) == {name for name, _, _ in SETTINGS}
    assert set(made["followed"]["prompts"]) == {"One?", "Two."}
    drafter = load_dflash(tmp_path / "drafter", target().model)
    decoded = made["decoded"]
    assert set(decoded["prompts"]) == {"One?", "Two."}
    assert set(decoded["same_text"].values()) == {2}
    expected = bench_acceptance(target(), drafter, ["One?", "Two."], new_tokens=8)
    assert expected["mean"] == decoded["mean"]
    assert drafter.config.block_size == 4
    assert drafter.config.target_layer_ids == (1,)
    assert any(getattr(figures, "validation", False) for figures in said)
    parts = sorted((tmp_path / "corpus").glob("part-*.npz"))
    before = [path.stat().st_mtime_ns for path in parts]
    again = train_drafter(target(), tmp_path, SMALL)  # nothing is left to do
    assert [path.stat().st_mtime_ns for path in parts] == before
    assert again is not None
    assert again["followed"] == made["followed"]


def test_out_of_time_is_no_result_and_goes_on(tmp_path):
    assert train_drafter(target(), tmp_path, SMALL, until=0.0) is None
    assert (tmp_path / "state.pt").is_file()
    assert train_drafter(target(), tmp_path, SMALL) is not None


def test_a_corpus_holds_prompts_in_their_frame_and_no_held_out_one(tmp_path):
    held = seed_instructions(3, seed=0)
    corpus = make_corpus(target(), tmp_path, CORPUS, held_out=held)
    barred = {plain(text) for text in held}
    for index in range(len(corpus)):
        prompt = corpus.sequence(index)[: corpus.prompt_lens[index]].tolist()
        assert (prompt[0], prompt[-2:]) == (START, [END, ANSWER])
        assert plain(Tokenizer().decode(prompt[1:-2])) not in barred
    assert 20 <= len(corpus) <= 50


def test_a_part_that_was_lost_is_made_again_from_the_same_prompts(tmp_path):
    whole = make_corpus(target(), tmp_path, CORPUS)
    (tmp_path / "part-001.npz").unlink()
    again = make_corpus(target(), tmp_path, CORPUS)
    order = [sorted(map(bytes, _texts(corpus))) for corpus in (whole, again)]
    assert order[0] == order[1]


def _texts(corpus: Corpus):
    return [corpus.sequence(i).astype(np.uint8).tobytes() for i in range(len(corpus))]


def test_answers_that_repeat_themselves_are_left_out(tmp_path):
    strict = replace(CORPUS, max_repeated=-1.0)
    with pytest.raises(
        ValueError, match="corpus: expected at least 2 sequences, one of them held out, found 0"
    ):
        train_drafter(target(), tmp_path, replace(SMALL, corpus=strict))


def test_frames_are_found_around_a_probe():
    assert chat_frame(Tokenizer()) == ChatFrame((START,), (END, ANSWER))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected a chat template with a mark after the user"):
        chat_frame(Untemplated())  # type: ignore[arg-type]


def test_seed_instructions_are_different_and_follow_from_the_seed():
    some = seed_instructions(500, seed=3)
    assert len(set(some)) == 500
    assert some == seed_instructions(500, seed=3)
    assert some != seed_instructions(500, seed=4)
    held = {plain(prompt) for prompt in held_out_prompts()}
    everything = seed_instructions(10**6, seed=0, without=held_out_prompts())
    assert len(everything) > 80_000
    assert not any(prompt in plain(text) for text in everything for prompt in held)
    assert any(prompt in map(plain, seed_instructions(10**6, seed=0)) for prompt in held)


def test_the_table_is_what_the_engine_decodes():
    one = target()
    drafter = new_drafter(one.model, num_layers=1, block_size=4, mask_token_id=209)
    table = followed_table(one, drafter, ["Hello"], 20)
    for name, nodes, topk in SETTINGS:
        budget = 3 if nodes is None else nodes
        config = EngineConfig(budget=budget, topk=topk, block_size=4, max_context=40 + budget)
        engine = Engine(one.model, DFlashDrafter(drafter, one.model), config)
        state, steps = engine.add("r", one.tokenizer.encode_chat("Hello"), 20), 0
        while engine.running:
            engine.step()
            steps += 1
        assert table["prompts"]["Hello"][name] == (len(state.output) - 1) / steps
    assert table["mean"] == table["prompts"]["Hello"]


def test_a_held_out_prompt_that_the_target_writes_itself_is_left_out(tmp_path, monkeypatch):
    messages = [Tokenizer().encode(text) for text in ("How are YOU, today?!", "Something else.")]
    monkeypatch.setattr("engine.training.make_corpus.self_written", lambda *_: iter(messages))
    settings = replace(CORPUS, seed_prompts=0)
    corpus = make_corpus(target(), tmp_path, settings, held_out=["how are you today"])
    prompts = [corpus.sequence(i)[: corpus.prompt_lens[i]].tolist() for i in range(len(corpus))]
    assert prompts == [Tokenizer().encode_chat("Something else.")]
