"""Recordings from before a field existed stay readable; a file with other fields is refused.

Run: pytest tests/trace/test_older_schema.py
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from engine.step import VerifyStep
from engine.trace import TraceFormatError
from engine.trace.arrow_codec import schema, step_to_batch
from engine.trace.arrow_decode import LOAD, plan_of_file
from engine.trace.arrow_plan import plan_of
from engine.trace.ipc import batch_layout
from fixtures import TRACES
from tests.trace.examples import example_step
from tests.trace.strategies import verify_steps
from tests.trace.test_hostile_arrow import read, stream


def without(kind, *path):
    """A schema or struct type without one field, wherever it lies."""
    name, rest = path[0], path[1:]
    fields = [
        kind.field(i)
        for i in range(len(kind.names) if isinstance(kind, pa.Schema) else kind.num_fields)
    ]
    kept = []
    for field in fields:
        if field.name != name:
            kept.append(field)
        elif rest:
            kept.append(pa.field(name, nested(field.type, rest)))
    return pa.schema(kept) if isinstance(kind, pa.Schema) else pa.struct(kept)


def nested(kind, path):
    if pa.types.is_list(kind):
        return pa.list_(pa.field("item", without(kind.value_type, *path), nullable=False))
    return without(kind, *path)


def written(step, older):
    """The step as a program with an older schema wrote it."""
    row = pa.Table.from_batches([step_to_batch(step)]).to_pylist()[0]
    values = pa.array([row], type=pa.struct(list(older)))
    return stream(pa.RecordBatch.from_arrays(values.flatten(), schema=older), like=older)


OPTIONAL = [
    ("logits_dtype",),
    ("workbench",),
    ("world_size",),
    ("config", "sliding_window"),
    ("config", "eos_token_ids"),
    ("inputs", "custom_mask"),
    ("outcome", "predict_compacted"),
    ("requests", "counted_nodes"),
    ("requests", "tree", "log_weights"),
    ("commit", "kv"),
]


@pytest.mark.parametrize("path", OPTIONAL)
def test_without_an_optional_field(tmp_path, path):
    older = without(schema(), *path)
    (step,) = read(tmp_path, written(example_step(), older))
    assert step == forgotten(example_step(), path)


def forgotten(record, path):
    """The record with the default of one field."""
    name, rest = path[0], path[1:]
    value = getattr(record, name)
    if not rest:
        default = type(record).__dataclass_fields__[name].default
        return replace(record, **{name: default})
    if isinstance(value, tuple):
        return replace(record, **{name: tuple(forgotten(item, rest) for item in value)})
    return replace(record, **{name: forgotten(value, rest)})


@pytest.mark.parametrize("name", ["draft_width", "drafter_ranks", "token_texts"])
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(step=verify_steps())
def test_random_steps_without_a_late_field(tmp_path_factory, name, step: VerifyStep):
    older = without(schema(), "workbench", name)
    read_back = read(tmp_path_factory.mktemp("t"), written(step, older))
    assert read_back == [forgotten(step, ("workbench", name))]


@pytest.mark.parametrize(
    "path",
    [
        ("requests",),
        ("requests", "rid"),
        ("requests", "tree", "parents"),
        ("outcome", "predict_compacted", "values"),
    ],
)
def test_without_a_required_field(tmp_path, path):
    older = without(schema(), *path)
    assert plan_of_file(older) is None
    with pytest.raises(TraceFormatError, match=r"expected the schema of ddtree\.trace"):
        read(tmp_path, written(example_step(), older))


def test_without_the_number_in_front():
    assert plan_of_file(without(schema(), "step")) is None
    fields = list(schema())
    assert plan_of_file(pa.schema([fields[1], fields[0], *fields[2:]])) is None


def test_fields_that_are_not_ours():
    fields = list(schema())
    other = pa.field("mood", pa.string())
    inside = pa.field("workbench", pa.struct([other]))
    twice = [*fields, fields[-1]]
    asked = pa.field(fields[-1].name, fields[-1].type, nullable=False)
    for wrong in ([*fields, other], twice, [*fields[:-1], asked], [*fields[:-1], inside]):
        assert plan_of_file(pa.schema(wrong)) is None


def test_our_own_plan_counts_what_arrow_stores():
    plan = plan_of(schema(), LOAD)
    data = stream(step_to_batch(example_step()), compression=None)
    reader = pa.ipc.MessageReader.open_stream(data)
    reader.read_next_message()
    layout = batch_layout(reader.read_next_message().metadata.to_pybytes())
    assert plan is not None
    assert (plan.nodes, plan.buffers) == (len(layout.node_lengths), len(layout.lengths))


def test_bundled_recordings():
    from engine.trace import open_trace

    paths = sorted(TRACES.glob("*.ddtree.arrow"))
    assert paths
    for path in paths:
        trace = open_trace(path)
        assert [trace.key(i) for i in range(len(trace))] == [(s.step, s.rank) for s in trace]
