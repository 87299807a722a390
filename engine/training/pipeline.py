"""train_drafter: corpus, training, weights and figures in one folder, each stage taken up where it was left."""

from __future__ import annotations

import json
import statistics
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from engine.decoding.acceptance_benchmark import SETTINGS, bench_acceptance
from engine.models.catalog import Target
from engine.models.dflash import DFlash
from engine.models.dflash_weights import load_dflash, save_dflash
from engine.training.chat import chat_frame
from engine.training.corpus import Corpus
from engine.training.generate import generate
from engine.training.make_corpus import CorpusProgress, CorpusSettings, make_corpus
from engine.training.simulate import follow, place_candidates
from engine.training.start import new_drafter, spread_layers
from engine.training.train import Figures, Trainer, TrainSettings

HELD_OUT = Path(__file__).with_name("held_out.toml")


@dataclass(frozen=True)
class DrafterSettings:
    """Sizes of the drafter and what is done to make it."""

    num_layers: int = 3
    block_size: int = 16
    features: int = 5  # target layers that are read
    mask_token_id: int | None = None  # None: the rarest token of the corpus that is no end of text
    bits: int = 16  # 16, or 8 with scales
    answer_tokens: int = 128  # of the evaluation
    validation: int = 512  # sequences held out of the corpus
    corpus: CorpusSettings = field(default_factory=CorpusSettings)
    train: TrainSettings = field(default_factory=TrainSettings)


ReportFn = Callable[[CorpusProgress | Figures], None]


def held_out_prompts() -> list[str]:
    """The prompts that acceptance is measured on."""
    prompts: list[str] = tomllib.loads(HELD_OUT.read_text(encoding="utf-8"))["prompts"]
    return prompts


def train_drafter(
    target: Target,
    folder: Path,
    settings: DrafterSettings,
    *,
    report: ReportFn = lambda _: None,
    until: float | None = None,
) -> dict[str, Any] | None:
    """Make ``folder/corpus``, ``folder/state.pt`` and ``folder/drafter`` with ``training.json``; returns its content.

    ``until``: a reading of ``time.monotonic`` at which training stops and is saved; then None is returned.
    """
    started = time.monotonic()
    prompts = held_out_prompts()
    corpus = make_corpus(
        target, folder / "corpus", settings.corpus, held_out=prompts, report=report
    )
    made = time.monotonic() - started
    held_out = min(settings.validation, max(len(corpus) // 10, 1))
    if len(corpus) < held_out + 1:
        raise ValueError(
            f"corpus: expected at least {held_out + 1} sequences, one of them held out, found {len(corpus)}: "
            f"ask for more prompts or longer answers"
        )
    drafter = _new(target, corpus, settings)
    training, validation = corpus.split(held_out)
    trainer = Trainer(target.model, drafter, training, validation, settings.train, folder)
    if not trainer.run(report, until=until):
        return None
    drafter.requires_grad_(False)
    save_dflash(drafter, folder / "drafter", bits=settings.bits)
    figures = {
        "settings": asdict(settings),
        "sequences": len(corpus),
        "answer_tokens": corpus.answer_tokens,
        "corpus_seconds": made,
        "training_seconds": trainer.seconds,
        "steps": trainer.step,
        "device": _device_name(target.model.device),
        "validation": asdict(trainer.history[-1]),
        "history": [[f.step, f.loss, f.accepted] for f in trainer.history if f.validation],
        "followed": followed_table(target, drafter, prompts, settings.answer_tokens),
        "decoded": bench_acceptance(
            target,
            load_dflash(folder / "drafter", target.model),  # as it was saved
            prompts,
            new_tokens=settings.answer_tokens,
        ),
    }
    (folder / "drafter" / "training.json").write_text(json.dumps(figures, indent=1) + "\n")
    return figures


def _new(target: Target, corpus: Corpus, settings: DrafterSettings) -> DFlash:
    mask = settings.mask_token_id
    if mask is None:
        seen = torch.bincount(
            torch.from_numpy(corpus.tokens), minlength=target.model.config.vocab_size
        )
        seen[list(target.model.config.eos_token_ids)] = len(corpus.tokens)
        mask = int(seen.argmin())
    return new_drafter(
        target.model,
        num_layers=settings.num_layers,
        block_size=settings.block_size,
        mask_token_id=mask,
        target_layer_ids=spread_layers(target.model.config.num_layers, settings.features),
        seed=settings.train.seed,
    )


def followed_table(
    target: Target, drafter: DFlash, prompts: Sequence[str], answer_tokens: int
) -> dict[str, Any]:
    """Mean accepted length of each prompt and setting on the target's greedy texts, and the mean over prompts."""
    frame = chat_frame(target.tokenizer)
    heads = [frame.around(target.tokenizer.encode(prompt)) for prompt in prompts]
    stop = target.model.config.eos_token_ids
    answers = sorted(
        generate(target.model, heads, max_new_tokens=answer_tokens, stop=stop),
        key=lambda answer: answer.prompt,
    )
    rows: dict[str, dict[str, float]] = {}
    chain = drafter.config.block_size - 1
    for prompt, head, answer in zip(prompts, heads, answers, strict=True):
        text = [*head, *answer.tokens]
        if len(answer.tokens) < 2:
            continue
        found = place_candidates(target.model, drafter, text, len(head), 256)
        rows[prompt] = {
            name: follow(
                found, text, len(head), chain if nodes is None else nodes, topk
            ).accept_length
            for name, nodes, topk in SETTINGS
        }
    means = {name: statistics.mean(row[name] for row in rows.values()) for name, _, _ in SETTINGS}
    return {"prompts": rows, "mean": means}


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
