"""Runs with a tiny random model that is never downloaded, for the tests of the Run page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from engine.decoding.run_settings import RunSettings
from engine.models.catalog import ModelUnavailable, Target
from engine.models.tiny import random_decoder
from workbench.runs import Job, State


class Letters:
    """A tokenizer of 50 letters."""

    def encode_chat(self, prompt: str) -> list[int]:
        return [3 + ord(c) % 40 for c in prompt][:12]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.token_text(i) for i in ids)

    def token_text(self, token: int) -> str:
        return chr(65 + token)


def tiny(spec: str, *, dtype, device, progress) -> Target:
    progress("loading", 0.5)
    if spec == "absent":
        raise ModelUnavailable(
            "The model absent isn't here. Either give a folder, or a GGUF file, or download it."
        )
    return Target(spec, Path(spec), random_decoder("llama", seed=1, dtype=dtype), Letters())


def finished(job: Job, seconds: float = 60) -> Job:
    deadline = time.monotonic() + seconds
    while job.state is State.RUNNING and time.monotonic() < deadline:
        time.sleep(0.05)
    assert job.state is not State.RUNNING, job.label
    return job


def settings(**changes: object) -> RunSettings:
    values = {
        "prompts": ("Hello there",),
        "model": "tiny",
        "drafter": "oracle",
        "max_new_tokens": 12,
        "budget": 8,
        "block_size": 4,
    }
    return RunSettings(**{**values, **changes})
