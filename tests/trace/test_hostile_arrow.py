"""Arrow files that a stranger made: each ends with one sentence, none with a crash or a large
allocation.

Run: pytest tests/trace/test_hostile_arrow.py
"""

from __future__ import annotations

import io
import resource
import struct

import numpy as np
import pyarrow as pa
import pytest

from engine.trace import TraceFormatError, TraceHeader, TraceWriter, limits, open_trace
from engine.trace.arrow_codec import schema, step_to_batch
from engine.trace.arrow_file import MemoryBytes
from engine.trace.header import header_to_text
from engine.trace.ipc import batch_layout, next_frame
from tests.trace.examples import example_step

METADATA = {b"ddtree.trace": header_to_text(TraceHeader()).encode()}


def stream(*batches, like=None, metadata=METADATA, compression="zstd"):
    """An Arrow stream as another program would write it."""
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    kind = (schema() if like is None else like).with_metadata(metadata)
    with pa.ipc.new_stream(sink, kind, options=options) as out:
        for batch in batches:
            out.write_batch(batch)
    return sink.getvalue()


def read(tmp_path, data):
    path = tmp_path / "a.ddtree.arrow"
    path.write_bytes(data)
    return list(open_trace(path))


@pytest.fixture(autouse=True)
def bounded_memory():
    """Far below what the hostile files claim."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as statm:
        now = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (1 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_streams_of_other_programs_are_read(tmp_path, compression):
    steps = [example_step(0), example_step(1)]
    data = stream(*map(step_to_batch, steps), compression=compression)
    assert read(tmp_path, data) == steps


def refused(tmp_path, data, message):
    with pytest.raises(TraceFormatError, match=message) as caught:
        read(tmp_path, data)
    assert "\n" not in str(caught.value)
    return caught.value


def test_another_schema(tmp_path):
    other = pa.schema([("step", pa.int64()), ("rank", pa.int32())])
    refused(tmp_path, stream(like=other), "expected the schema of ddtree.trace version 1, found")


def test_another_type_in_a_nested_field(tmp_path):
    fields = list(schema())
    fields[0] = pa.field("step", pa.float64())
    refused(tmp_path, stream(like=pa.schema(fields)), "expected the schema of ddtree.trace")


def test_without_our_metadata(tmp_path):
    refused(tmp_path, stream(metadata={}), "expected the schema of ddtree.trace")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"{", "header: expected JSON"),
        (b"[]", "header: expected an object, found a list of 0"),
        (b"{}", "header.format: expected ddtree.trace version 1"),
        (
            b'{"format": "ddtree.trace", "version": 1, "prompts": [{"rid": 3}]}',
            r"header.prompts\[0\].rid: expected a string, found 3",
        ),
        (
            b'{"format": "ddtree.trace", "version": 1, "author": "x"}',
            "header.author: expected a known",
        ),
    ],
)
def test_header(tmp_path, header, message):
    refused(tmp_path, stream(metadata={b"ddtree.trace": header}), message)


def test_two_steps_in_a_batch(tmp_path):
    table = pa.Table.from_batches([step_to_batch(example_step(i)) for i in range(2)])
    batch = table.combine_chunks().to_batches()[0]
    error = refused(tmp_path, stream(batch), "expected one step a record batch, found 2 rows")
    assert error.line == 1


def test_values_pass_the_same_validator_as_json(tmp_path):
    batch = step_to_batch(example_step())
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns["rank"] = pa.array([-1])
    hostile = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema())
    error = refused(tmp_path, stream(hostile), "a.ddtree.arrow:1: rank: expected an integer in 0 …")
    assert (error.line, error.field) == (1, "rank")


def test_missing_required_field(tmp_path):
    batch = step_to_batch(example_step())
    at = batch.schema.names.index("requests")
    columns = list(batch.columns)
    columns[at] = pa.nulls(1, batch.schema.field(at).type)
    hostile = pa.RecordBatch.from_arrays(columns, schema=schema())
    refused(tmp_path, stream(hostile), "requests: expected a list of objects, found null")


def test_text_that_is_not_utf8(tmp_path):
    at = schema().names.index("logits_dtype")
    columns = list(step_to_batch(example_step()).columns)
    columns[at] = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(struct.pack("<ii", 0, 2)), pa.py_buffer(b"\xff\xfe")]
    )
    hostile = pa.RecordBatch.from_arrays(columns, schema=schema())
    refused(tmp_path, stream(hostile), "found damage: .*UTF8")


def first_batch(data):
    """Where the first record batch and its body begin."""
    source = MemoryBytes(data)
    head = next_frame(source, 0, limits.MAX_METADATA_BYTES)
    return next_frame(source, head.end, limits.MAX_METADATA_BYTES)


def test_compression_bomb(tmp_path):
    data = bytearray(stream(step_to_batch(example_step())))
    frame = first_batch(data)
    layout = batch_layout(bytes(data[frame.offset + 8 : frame.body]))
    largest = int(np.argmax(layout.lengths))
    struct.pack_into("<q", data, frame.body + int(layout.offsets[largest]), 1 << 40)
    refused(tmp_path, bytes(data), "bytes decompressed, found a claim of 1099511627776")


def test_honest_compression_bomb(tmp_path):
    """A mask of 600 MB of zeros, truly compressed, in a file of some kilobytes."""
    codec = pa.Codec("zstd")
    data = stream(step_to_batch(example_step()))
    frame = first_batch(data)
    metadata = bytearray(data[frame.offset : frame.body])
    layout = batch_layout(bytes(metadata[8:]))
    largest = int(np.argmax(layout.lengths))
    offset, length = int(layout.offsets[largest]), int(layout.lengths[largest])
    body = data[frame.body : frame.end]
    bomb = struct.pack("<q", 3 << 30) + codec.compress(bytes(1 << 20), asbytes=True)
    assert len(bomb) < length + 4096
    padded = bomb + bytes(-len(bomb) % 8)
    moved = len(body)
    where = metadata.index(struct.pack("<qq", offset, length))
    struct.pack_into("<qq", metadata, where, moved, len(bomb))
    at = metadata.index(struct.pack("<q", len(body)), 8)
    struct.pack_into("<q", metadata, at, moved + len(padded))
    hostile = data[: frame.offset] + bytes(metadata) + body + padded + data[frame.end :]
    refused(tmp_path, hostile, "bytes decompressed, found a claim of 3221225472")


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        (struct.pack("<Ii", 0xFFFFFFFF, 1 << 30), "expected metadata of at most 1048576 bytes"),
        (
            struct.pack("<Ii", 0xFFFFFFFF, -5),
            "expected metadata of at most 1048576 bytes, found -5",
        ),
        (struct.pack("<Ii", 0x1234, 8), "expected an Arrow message, found 0x00001234 at byte"),
        (
            struct.pack("<Ii", 0xFFFFFFFF, 8) + bytes(8),
            "expected a record batch, found message type 0",
        ),
        (
            struct.pack("<Ii", 0xFFFFFFFF, 8) + b"\xff" * 8,
            "expected an Arrow message, found damaged",
        ),
    ],
)
def test_hostile_framing_after_a_good_step(tmp_path, prefix, message):
    data = stream(step_to_batch(example_step()))
    frame = first_batch(data)
    error = refused(tmp_path, data[: frame.end] + prefix, message)
    assert error.line == 2


def test_schema_in_place_of_a_step(tmp_path):
    data = stream(step_to_batch(example_step()))
    frame = first_batch(data)
    hostile = data[: frame.end] + data[: frame.offset]
    refused(tmp_path, hostile, "a.ddtree.arrow:2: expected a record batch, found message type 1")


def test_file_that_ends_in_the_schema(tmp_path):
    data = stream(step_to_batch(example_step()))
    refused(tmp_path, data[:500], "expected an Arrow schema first, found the end of the file")


def test_another_number_of_arrays(tmp_path):
    few = pa.schema([("step", pa.int64())])
    batch = pa.RecordBatch.from_arrays([pa.array([1])], schema=few)
    head = stream()[:-8]
    other = stream(batch, like=few)
    frame = first_batch(other)
    refused(tmp_path, head + other[frame.offset :], r"arrays and buffers, found \(1, 2\)")


def test_writer_and_reader_agree_on_the_layout(tmp_path):
    path = tmp_path / "a.ddtree.arrow"
    with TraceWriter(path, TraceHeader()) as out:
        out.write(example_step())
    assert list(open_trace(path)) == [example_step()]
