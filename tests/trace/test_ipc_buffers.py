"""Buffers of a record: small ones stored as they are, large ones compressed, none of them more or less than it claims.

Run: pytest tests/trace/test_ipc_buffers.py
"""

from __future__ import annotations

import io
import struct

import numpy as np
import pyarrow as pa
import pytest

from engine.trace import TraceFormatError, TraceHeader, limits
from engine.trace.arrow_codec import schema, step_to_batch
from engine.trace.arrow_file import ArrowFile, MemoryBytes
from engine.trace.header import header_to_text
from engine.trace.ipc import Table, batch_layout, next_frame
from engine.trace.ipc_encode import CODEC, SMALL, Encoder
from tests.trace.examples import example_step

METADATA = {b"ddtree.trace": header_to_text(TraceHeader()).encode()}
HEAD = schema().with_metadata(METADATA).serialize().to_pybytes()


def large_step(number: int = 0):
    """A step with a mask that is worth compressing."""
    return example_step(number, inputs__custom_mask=np.ones(10_000, np.uint8).tolist())


def pyarrow_message(step, codec):
    """The same step as pyarrow writes it."""
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, schema(), options=options) as out:
        start = sink.tell()
        out.write_batch(step_to_batch(step))
        end = sink.tell()
    schema_end = len(schema().serialize())
    return sink.getvalue()[max(start, schema_end) : end]


def read(message):
    return ArrowFile("x.ddtree.arrow", MemoryBytes(HEAD + message)).step(0)


def split(message):
    """Metadata, layout and body of a message."""
    frame = next_frame(MemoryBytes(message), 0, limits.MAX_METADATA_BYTES)
    return message[8 : frame.body], batch_layout(message[8 : frame.body]), message[frame.body :]


def test_any_arrow_reader_reads_what_is_written():
    steps, encoder = [large_step(0), example_step(1)], Encoder()
    data = HEAD + b"".join(encoder.encode(step_to_batch(step)) for step in steps)
    table = pa.ipc.open_stream(data).read_all()
    table.validate(full=True)
    expected = pa.Table.from_batches([step_to_batch(step) for step in steps])
    assert table.to_pylist() == expected.to_pylist()


def test_only_large_buffers_are_compressed():
    step = large_step()
    _, layout, body = split(Encoder().encode(step_to_batch(step)))
    _, plain, _ = split(pyarrow_message(step, None))
    assert layout.codec == CODEC
    claims = [
        struct.unpack_from("<q", body, offset)[0] if length else None
        for offset, length in zip(layout.offsets.tolist(), layout.lengths.tolist(), strict=True)
    ]
    for claim, length in zip(claims, plain.lengths.tolist(), strict=True):
        assert claim == (None if not length else -1 if length < SMALL else length)
    assert max(plain.lengths) > SMALL


def test_what_does_not_shrink_is_stored_as_it_is():
    noise = np.random.default_rng(0).integers(0, 256, 4 * SMALL).tolist()
    step = example_step(inputs__custom_mask=noise)
    _, layout, body = split(Encoder().encode(step_to_batch(step)))
    largest = int(np.argmax(layout.lengths))
    assert struct.unpack_from("<q", body, int(layout.offsets[largest]))[0] == -1
    assert read(Encoder().encode(step_to_batch(step))) == step


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
def test_messages_of_pyarrow_are_read(codec):
    step = large_step()
    assert read(pyarrow_message(step, codec)) == step


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("other", [0, 1])
def test_buffers_of_equal_length(codec, other):
    """Equal ones may be decompressed once, ones that only claim the same length may not."""
    slots = np.arange(4096) % 7
    fields = {
        "inputs__kv_indices": slots.tolist(),
        "inputs__input_ids": (slots + other).tolist(),
        "inputs__positions": slots.tolist(),
    }
    step = example_step(**fields)
    for message in (pyarrow_message(step, codec), Encoder().encode(step_to_batch(step))):
        found = read(message)
        assert found == step
        assert found.inputs.input_ids.tolist() == fields["inputs__input_ids"]
        assert found.inputs.positions.tolist() == slots.tolist()


def test_no_message_is_longer_than_pyarrows():
    for step in (example_step(), large_step()):
        assert len(Encoder().encode(step_to_batch(step))) < len(pyarrow_message(step, "zstd"))


def refused(message, expected):
    with pytest.raises(TraceFormatError, match=expected):
        read(message)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("off", [-1, 1, 1000])
def test_a_wrong_claim(codec, off):
    """The mask claims other bytes than it has: fewer do not fit, of more the rest would be anything."""
    message = bytearray(pyarrow_message(large_step(), codec))
    metadata, layout, _ = split(bytes(message))
    body = 8 + len(metadata)
    claims = [
        struct.unpack_from("<q", message, body + int(offset))[0] if length else 0
        for offset, length in zip(layout.offsets, layout.lengths, strict=True)
    ]
    place = body + int(layout.offsets[int(np.argmax(claims))])
    struct.pack_into("<q", message, place, max(claims) + off)
    refused(bytes(message), "expected .* found")


def test_claims_that_are_too_large_together():
    message = bytearray(pyarrow_message(large_step(), "zstd"))
    metadata, layout, _ = split(bytes(message))
    for offset, length in zip(layout.offsets.tolist(), layout.lengths.tolist(), strict=True):
        if length:
            place = 8 + len(metadata) + offset
            struct.pack_into("<q", message, place, limits.MAX_INFLATED_BYTES // 2 + 1)
    refused(bytes(message), "expected .* found")


@pytest.mark.parametrize(
    ("offset", "length"),
    [(8, 1 << 40), (-8, 16), (4, 16), (1 << 62, 1 << 62), ((1 << 63) - 8, 8), (0, -8), (8, 4)],
)
def test_a_buffer_elsewhere(offset, length):
    message = bytearray(Encoder().encode(step_to_batch(large_step())))
    metadata, layout, _ = split(bytes(message))
    filled = int(np.flatnonzero(layout.lengths)[0])
    old = struct.pack("<qq", int(layout.offsets[filled]), int(layout.lengths[filled]))
    struct.pack_into("<qq", message, 8 + metadata.index(old), offset, length)
    refused(bytes(message), "buffers inside the message, found one")


@pytest.mark.parametrize("codec", [2, 127])
def test_another_codec(codec):
    message = Encoder().encode(step_to_batch(large_step()))
    metadata = bytearray(split(message)[0])
    Table.root(metadata).table(2).table(3).put(0, "<b", codec)
    hostile = message[:8] + metadata + message[8 + len(metadata) :]
    refused(hostile, f"compressed with lz4 or zstd, found codec {codec}")


def damaged_offsets(values):
    """A step whose ``positions`` have other offsets, not compressed."""
    message = bytearray(pyarrow_message(example_step(), None))
    step = example_step()
    count = len(step.inputs.positions)
    body = step.inputs.positions.tobytes()
    place = message.index(body) - 8  # the list's offsets lie before its numbers
    assert struct.unpack_from("<ii", message, place) == (0, count)
    struct.pack_into("<ii", message, place, *values)
    return bytes(message)


@pytest.mark.parametrize("values", [(0, 1 << 20), (2, 1), (-1, 2), (0, 1 << 30)])
def test_offsets_that_lead_elsewhere(values):
    refused(damaged_offsets(values), "found damage: offsets")


def test_offsets_of_a_part_are_read():
    message = damaged_offsets((1, 3))
    positions = ArrowFile("x", MemoryBytes(HEAD + message)).step(0).inputs.positions
    assert positions.tolist() == example_step().inputs.positions[1:3].tolist()
