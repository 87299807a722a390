"""Random damage: only TraceFormatError ever leaves a reader. DDTREE_FUZZ sets the number of inputs
of each kind.

Run: DDTREE_FUZZ=100000 pytest tests/trace/test_fuzz.py
"""

from __future__ import annotations

import os
import random
import re

import numpy as np
import pytest

from engine.trace import TraceFormatError, TraceHeader, TraceWriter, loads, open_trace
from engine.trace.arrow_file import ArrowFile, MemoryBytes
from engine.trace.snapshot import export_snapshot, import_snapshot
from tests.trace.examples import example_step, line

COUNT = int(os.environ.get("DDTREE_FUZZ", "2000"))
TOKENS = [
    "null",
    "true",
    "-1",
    "1e999",
    "9" * 30,
    "[]",
    "{}",
    "[[",
    '""',
    "0.5",
    "NaN",
    '"\\ud800"',
]
NUMBERS = [0, 1, 2, 3, 7, -1, -2, 255, 256, 65536, 10**6, 2**31, 2**48, 2**63 - 1, -(2**63), 2**63]


def damaged(data: bytes, dice: random.Random) -> bytes:
    """One to four changes: bits, runs, cuts, repeats, words of 8 bytes at their extremes."""
    result = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(result)) if result else 0
        match dice.randrange(6):
            case 0:
                result[at : at + 1] = bytes([dice.randrange(256)])
            case 1:
                del result[at : at + dice.randint(1, 40)]
            case 2:
                result[at:at] = result[at : at + dice.randint(1, 40)]
            case 3:
                del result[at:]
            case 4:
                word = dice.choice([0, 1, -1, 2**31 - 1, 2**40, 2**63 - 1, -(2**63)])
                result[at : at + 8] = word.to_bytes(8, "little", signed=True)
            case _:
                result[at : at + 1] = (
                    bytes([result[at] ^ (1 << dice.randrange(8))]) if result else b""
                )
    return bytes(result)


def mutated_text(text: str, dice: random.Random) -> str:
    """Other numbers, a JSON token in place of another, or damaged bytes."""
    kind = dice.randrange(3)
    if kind == 0:
        number = dice.choice(list(re.finditer(r"-?\d+", text)))
        return text[: number.start()] + str(dice.choice(NUMBERS)) + text[number.end() :]
    if kind == 1:
        return damaged(text.encode(), dice).decode(errors="replace")
    cuts = [i for i, c in enumerate(text) if c in " ,:[]{}"]
    start, end = sorted(dice.sample(cuts, 2)) if dice.random() < 0.1 else (0, 0)
    if not end:
        index = dice.randrange(len(cuts) - 1)
        start, end = cuts[index], cuts[index + 1]
    return text[: start + 1] + dice.choice(TOKENS) + text[end:]


def outcome(read) -> str:
    """``read`` or ``refused``; any other exception fails the test."""
    try:
        read()
    except TraceFormatError as error:
        return "refused" if str(error).isprintable() else "refused unprintably"
    return "read"


def test_json_lines():
    dice = random.Random(1)
    outcomes = [outcome(lambda: loads(mutated_text(line(), dice), "f:1")) for _ in range(COUNT)]
    assert set(outcomes) == {"read", "refused"}
    assert outcomes.count("refused") > COUNT // 3
    assert outcomes.count("read") > COUNT // 10


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "a.ddtree.arrow"
    with TraceWriter(path, TraceHeader(notes="x")) as out:
        out.write(example_step(0))
        mask = np.ones(300_000, np.uint8).tolist()
        out.write(example_step(1, inputs__custom_mask=mask))  # large enough for the other codec
    return path


def _read_all(path, data):
    file = ArrowFile(path, MemoryBytes(data))
    return [file.step(position) for position in range(len(file))]


def test_arrow_bytes(recording):
    dice = random.Random(2)
    data = recording.read_bytes()
    outcomes = [
        outcome(lambda: _read_all(recording, damaged(data, dice))) for _ in range(COUNT // 2)
    ]
    assert set(outcomes) == {"read", "refused"}
    assert outcomes.count("refused") > COUNT // 10


def test_arrow_messages_after_an_intact_schema(recording):
    """Most damage to a whole file falls on its schema; here it falls on the steps."""
    dice = random.Random(3)
    data = recording.read_bytes()
    start = ArrowFile(recording)._frames[0].offset
    outcomes = [
        outcome(lambda: _read_all(recording, data[:start] + damaged(data[start:], dice)))
        for _ in range(COUNT)
    ]
    assert set(outcomes) == {"read", "refused"}
    assert outcomes.count("refused") > COUNT // 4


def test_snapshots(recording, tmp_path):
    dice = random.Random(4)
    good, bad = tmp_path / "good.zip", tmp_path / "bad.zip"
    export_snapshot(good, open_trace(recording), [0], [], report_html="<p>")
    for _ in range(COUNT // 4):
        bad.write_bytes(damaged(good.read_bytes(), dice))
        for read in (lambda: list(import_snapshot(bad).trace), lambda: list(open_trace(bad))):
            assert outcome(read) in ("read", "refused")
