"""From a target to a corpus: prompts that it writes itself, seed instructions, and its greedy answers to both."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.models.catalog import Target
from engine.training.chat import ChatFrame, chat_frame
from engine.training.corpus import Corpus, repeated_share
from engine.training.generate import Sampling, generate
from engine.training.instructions import plain, seed_instructions

PART = "part-{:03d}.npz"
PROMPTS = "prompts.npz"
SELF_WRITTEN = Sampling(temperature=1.0, top_k=256, top_p=0.95)


@dataclass(frozen=True)
class CorpusSettings:
    """How much is made, and what of it is kept."""

    self_prompts: int = 60_000  # that the target writes
    seed_prompts: int = 40_000  # from templates
    max_prompt_tokens: int = 96  # of the message alone
    max_answer_tokens: int = 320
    max_repeated: float = 0.6  # share of an answer's 8-grams that stood in it before
    minutes: float | None = None  # of answering; what is not answered then is left out
    part: int = 16_384  # prompts whose answers make one file
    rows: int = 2048
    seed: int = 0


@dataclass(frozen=True)
class CorpusProgress:
    """Where the making of a corpus stands."""

    stage: str
    done: int
    total: int
    answer_tokens: int
    seconds: float


ReportFn = Callable[[CorpusProgress], None]


def make_corpus(
    target: Target,
    folder: Path,
    settings: CorpusSettings,
    *,
    held_out: Collection[str] = (),
    report: ReportFn = lambda _: None,
) -> Corpus:
    """Write parts into ``folder`` and return all of it; parts that are there already are kept, not made again.

    ``held_out``: prompts that must not be in it. Raises ``ValueError`` for a target without a chat template.
    """
    folder.mkdir(parents=True, exist_ok=True)
    prompts = _kept_prompts(folder / PROMPTS) or _prompts(target, settings, held_out, report)
    Corpus.of((prompt, ()) for prompt in prompts).save(folder / PROMPTS)
    started, deadline = time.monotonic(), None
    if settings.minutes is not None:
        deadline = started + 60 * settings.minutes
    tokens = 0
    for number, start in enumerate(range(0, len(prompts), settings.part)):
        path = folder / PART.format(number)
        if path.is_file():
            continue
        if deadline is not None and time.monotonic() > deadline:
            break
        report(CorpusProgress("answers", start, len(prompts), tokens, time.monotonic() - started))
        part = Corpus.of(_answered(target, prompts[start : start + settings.part], settings))
        part.save(path)
        tokens += part.answer_tokens
        report(
            CorpusProgress(
                "answers",
                min(start + settings.part, len(prompts)),
                len(prompts),
                tokens,
                time.monotonic() - started,
            )
        )
    return Corpus.load(sorted(folder.glob("part-*.npz")))


def _kept_prompts(path: Path) -> list[list[int]]:
    """Prompts of an earlier call, so that parts made later belong to the same ones."""
    if not path.is_file():
        return []
    kept = Corpus.load([path])
    return [kept.sequence(index).tolist() for index in range(len(kept))]


def _prompts(
    target: Target, settings: CorpusSettings, held_out: Collection[str], report: ReportFn
) -> list[list[int]]:
    """All prompts in one random order: any part is a fair sample of the whole."""
    frame, started = chat_frame(target.tokenizer), time.monotonic()
    torch.manual_seed(settings.seed)
    wanted = settings.self_prompts + settings.seed_prompts
    report(CorpusProgress("prompts", 0, wanted, 0, 0.0))
    seeds = seed_instructions(settings.seed_prompts, seed=settings.seed, without=held_out)
    prompts = [frame.around(target.tokenizer.encode(text)) for text in seeds]
    barred = {plain(text) for text in held_out}
    for message in self_written(target, frame, settings):
        if plain(target.tokenizer.decode(message)) not in barred:
            prompts.append(frame.around(message))
    random.Random(settings.seed).shuffle(prompts)
    report(CorpusProgress("prompts", len(prompts), len(prompts), 0, time.monotonic() - started))
    return prompts


def self_written(target: Target, frame: ChatFrame, settings: CorpusSettings) -> Iterator[list[int]]:
    """Messages that the target samples where a user's stands in its template, without those that do not end."""
    if settings.self_prompts == 0:
        return
    end = frame.end_of_message
    seen = set()
    for answer in generate(
        target.model,
        [frame.head] * settings.self_prompts,
        max_new_tokens=settings.max_prompt_tokens,
        stop=(end,),
        rows=settings.rows,
        sampling=SELF_WRITTEN,
    ):
        message = answer.tokens[:-1]
        if answer.tokens[-1] == end and message and tuple(message) not in seen:
            seen.add(tuple(message))
            yield message


def _answered(
    target: Target, prompts: Sequence[list[int]], settings: CorpusSettings
) -> Iterator[tuple[list[int], list[int]]]:
    for answer in generate(
        target.model,
        prompts,
        max_new_tokens=settings.max_answer_tokens,
        stop=target.model.config.eos_token_ids,
        rows=settings.rows,
    ):
        if repeated_share(answer.tokens) <= settings.max_repeated:
            yield prompts[answer.prompt], answer.tokens
