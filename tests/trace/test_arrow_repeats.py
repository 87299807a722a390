"""Settings that steps repeat are read once; whatever a file holds, its steps are what each gives when read alone.

Run: pytest tests/trace/test_arrow_repeats.py
"""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.trace import TraceFormatError, TraceHeader
from engine.trace.arrow_codec import schema, step_to_batch
from engine.trace.arrow_file import ArrowFile, MemoryBytes
from engine.trace.header import header_to_text
from engine.trace.ipc_encode import Encoder
from tests.trace.examples import example_step
from tests.trace.strategies import verify_steps
from tests.trace.test_fuzz import COUNT, damaged
from tests.trace.test_hostile_arrow import stream
from tests.trace.test_older_schema import without, written

METADATA = {b"ddtree.trace": header_to_text(TraceHeader()).encode()}
HEAD = schema().with_metadata(METADATA).serialize().to_pybytes()


def opened(data):
    return ArrowFile("x.ddtree.arrow", MemoryBytes(data))


def encoded(steps):
    encoder = Encoder()
    return HEAD + b"".join(encoder.encode(step_to_batch(step)) for step in steps)


def outcome(file, place):
    """The step, or what is said about it."""
    try:
        return file.step(place)
    except TraceFormatError as error:
        return str(error)


def each_alone(data):
    """Outcomes of the file's steps, none of them after another."""
    count = len(opened(data))
    return [outcome(opened(data), place) for place in range(count)]


def test_settings_are_read_once():
    other = example_step(3, config__topk=3)
    file = opened(encoded([example_step(0), example_step(1), example_step(2), other]))
    steps = [file.step(place) for place in (0, 2, 1, 3, 2)]
    assert [step.step for step in steps] == [0, 2, 1, 3, 2]
    first = steps[0]
    assert all(step.config is first.config and step.source is first.source for step in steps[:3])
    assert steps[3].config.topk == 3
    assert steps[4].config.topk != 3


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_streams_of_other_programs(compression):
    steps = [example_step(0), example_step(1), example_step(2, config__topk=3), example_step(3)]
    file = opened(stream(*map(step_to_batch, steps), compression=compression))
    assert [file.step(place) for place in range(4)] == steps


@settings(max_examples=60, deadline=None)
@given(st.lists(verify_steps(), min_size=2, max_size=3), st.data())
def test_steps_in_any_order(steps, data):
    """Steps that share their settings, or one group of them, or nothing."""
    mixed = []
    for number in range(4):
        step, config, source = (data.draw(st.sampled_from(steps)) for _ in range(3))
        step = replace(step, step=number, config=config.config)
        mixed.append(replace(step, source=source.source) if number % 2 else step)
    try:
        expected = [opened(encoded([step])).step(0) for step in mixed]
    except TraceFormatError:
        return  # sizes that follow from one's settings and another's requests
    file = opened(encoded(mixed))
    for place in data.draw(st.lists(st.integers(0, 3), min_size=4, max_size=8)):
        assert file.step(place) == expected[place]


@pytest.mark.parametrize("codec", ["ours", None, "zstd"])
def test_damage(codec):
    """Damage to a file of like steps gives what it gives where nothing was read before."""
    dice = random.Random(5)
    steps = [example_step(0), example_step(1)]
    data = (
        encoded(steps) if codec == "ours" else stream(*map(step_to_batch, steps), compression=codec)
    )
    start = opened(data)._frames[1].offset
    kinds = set()
    for _ in range(COUNT // 4):
        hostile = data[:start] + damaged(data[start:], dice)
        try:
            alone = each_alone(hostile)
        except TraceFormatError:
            continue
        file = opened(hostile)
        assert [outcome(file, place) for place in range(len(file))] == alone
        kinds |= {type(each) for each in alone[1:]}
    assert len(kinds) == 2


@pytest.mark.parametrize("name", ["source", "config"])
def test_a_file_without_one_of_the_groups(name):
    step = example_step()
    older = without(schema(), name)
    data = written(replace(step, **{name: type(getattr(step, name))()}), older)
    file = opened(data)
    assert file.step(0) == file.step(0)
    assert pa.schema(list(older)) != schema()
