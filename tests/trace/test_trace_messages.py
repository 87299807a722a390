"""What a reader is told about an input that cannot be read: place, expected, found, on one line.

Run: pytest tests/trace/test_trace_messages.py
"""

from __future__ import annotations

import json
import re
import time
import tracemalloc

import pytest

from engine.trace import TraceFormatError, limits, loads, step_from_json
from tests.trace.examples import changed, edited, line

BIG = 2**63

TABLE = [
    ("format", "ddtree.trace", "format", "expected 'ddtree.step', found 'ddtree.trace'"),
    ("version", 2, "version", "expected 1, found 2"),
    ("version", True, "version", "expected 1, found true"),
    ("version", 1.0, "version", "expected 1, found 1.0"),
    ("step", -1, "step", "expected an integer in 0 …"),
    ("step", True, "step", "expected an integer, found true"),
    ("step", 1.5, "step", "expected an integer, found 1.5"),
    ("rank", "0", "rank", "expected an integer, found '0'"),
    ("world_size", 0, "world_size", "expected an integer in 1 …"),
    ("source", [], "source", "expected an object, found a list of 0"),
    ("source.engine", 5, "source.engine", "expected a string, found 5"),
    ("source.deterministic", 1, "source.deterministic", "expected true or false, found 1"),
    ("source.graph", "cuda", "source.graph", "expected one of eager, replay, found 'cuda'"),
    ("source.captured_bs", 10**9, "source.captured_bs", "expected an integer in 0 … 4096"),
    ("config.budget", 10**9, "config.budget", "expected an integer in 0 … 2048"),
    ("config.page_size", 0, "config.page_size", "expected an integer in 1 …"),
    ("config.temperature", "0", "config.temperature", "expected a number, found '0'"),
    ("config.temperature", 1e999, "config.temperature", "expected a finite number, found inf"),
    ("config.verify_rows", "fixed", "config.verify_rows", "expected one of static, ragged"),
    ("config.mask_layout", "half", "config.mask_layout", "expected one of full, qlen"),
    ("config.mask_encoding", "bit", "config.mask_encoding", "expected one of bytes, bits"),
    ("config.kv_indptr_unit", "slot", "config.kv_indptr_unit", "expected one of token, page"),
    ("config.index_dtype", "int8", "config.index_dtype", "expected one of int32, int64, uint32"),
    ("config.budgets", 3, "config.budgets", "expected a known field (nearest: budget"),
    ("config.x y", 3, "config['x y']", "expected a known field"),
    ("logits_dtype", "fp8", "logits_dtype", "expected one of bfloat16, float16"),
    ("request", [], "request", "expected a known field (nearest: requests"),
    ("requests", None, "requests", "expected a list of objects, found null"),
    ("requests", {}, "requests", "expected a list of objects, found an object"),
    ("requests.0", 3, "requests[0]", "expected an object, found 3"),
    ("requests.0.rid", 0, "requests[0].rid", "expected a string, found 0"),
    ("requests.0.rid", "\ud800", "requests[0].rid", "expected a string of Unicode characters"),
    ("requests.0.prefix_len", -1, "requests[0].prefix_len", "expected an integer in 0 … 4194304"),
    (
        "requests.0.prefix_len",
        3,
        "requests[0].prefix_slots",
        "expected 3 entries (as prefix_len), found 2",
    ),
    ("requests.0.tree", None, "requests[0].tree", "expected an object, found null"),
    (
        "requests.0.tree.parents.3",
        "x",
        "requests[0].tree.parents[3]",
        "expected an integer, found 'x'",
    ),
    ("requests.0.tree.parents", [], "requests[0].tree.parents", "expected at least the root"),
    (
        "requests.0.tree.tokens",
        [5],
        "requests[0].tree.tokens",
        "expected 4 entries (as tree.parents), found 1",
    ),
    (
        *("requests.0.tree.log_weights", [0.0] * 5, "requests[0].tree.log_weights"),
        "expected 4 entries (as tree.parents), found 5",
    ),
    (
        "requests.0.tree.log_weights.0",
        "0",
        "requests[0].tree.log_weights[0]",
        "expected a number, found '0'",
    ),
    ("inputs.positions", 3, "inputs.positions", "expected a list of integers, found 3"),
    ("inputs.positions.1", True, "inputs.positions[1]", "expected an integer, found true"),
    ("inputs.positions.1", 3.0, "inputs.positions[1]", "expected an integer, found 3.0"),
    ("inputs.positions.1", None, "inputs.positions[1]", "expected an integer, found null"),
    ("inputs.positions.1", BIG, "inputs.positions[1]", "expected an integer of 64 bits"),
    ("inputs.positions.1", -BIG - 1, "inputs.positions[1]", "expected an integer of 64 bits"),
    ("inputs.positions.1", 10**400, "inputs.positions[1]", "found an integer of 1329 bits"),
    (
        "inputs.custom_mask.5",
        256,
        "inputs.custom_mask[5]",
        "expected an integer 0 … 255, found 256",
    ),
    ("inputs.custom_mask.5", -1, "inputs.custom_mask[5]", "expected an integer 0 … 255, found -1"),
    (
        "inputs.custom_mask.5",
        True,
        "inputs.custom_mask[5]",
        "expected an integer 0 … 255, found true",
    ),
    ("inputs.qo_indptr.1", 10**12, "inputs.qo_indptr[1]", "expected an integer in -65536 … 65536"),
    ("inputs.mask_indptr.1", BIG - 1, "inputs.mask_indptr[1]", "expected an integer in -2814"),
    (
        "links.retrieve_next_token",
        [1],
        "links.retrieve_next_token[0]",
        "expected a list of integers, found 1",
    ),
    (
        "links.retrieve_next_token",
        [],
        "links.retrieve_next_token",
        "expected 1 entries (as requests), found 0",
    ),
    ("outcome.top2", [[1, 2]], "outcome.top2[0][0]", "expected a pair [id, logit], found 1"),
    ("outcome.top2", [[[1, 2]]], "outcome.top2[0]", "expected two pairs [id, logit] or null"),
    (
        "outcome.top2",
        [[[1, 2], [1.5, 2]]],
        "outcome.top2[0][1][0]",
        "expected an integer, found 1.5",
    ),
    ("outcome.top2", [[[1, 2], [1, "x"]]], "outcome.top2[0][1][1]", "expected a number, found 'x'"),
    ("outcome.finite_rows", [1], "outcome.finite_rows[0]", "expected true or false, found 1"),
    (
        "outcome.predict_compacted",
        {"values": []},
        "outcome.predict_compacted.row_width",
        "no such field",
    ),
    ("commit.kv.0.layer", -1, "commit.kv[0].layer", "expected an integer in 0 … 4095"),
    ("commit.kv.0.nodes", [], "commit.kv[0].nodes", "expected 1 entries (as requests), found 0"),
    ("commit.seq_lens", [1, 2], "commit.seq_lens", "expected 1 entries (as requests), found 2"),
    (
        "workbench",
        {"token_texts": {"01": "x"}},
        "workbench.token_texts",
        "expected an integer as key",
    ),
    (
        "workbench",
        {"token_texts": {"7": 1}},
        "workbench.token_texts[7]",
        "expected a string, found 1",
    ),
    ("workbench", {"extra": 1}, "workbench.extra", "expected a known field"),
]


@pytest.mark.parametrize(("path", "value", "field", "message"), TABLE)
def test_message_names_place_expected_and_found(path, value, field, message):
    with pytest.raises(TraceFormatError, match=re.escape(message)) as caught:
        step_from_json(changed(path, value), "runs/story.jsonl:12")
    error = caught.value
    assert (error.file, error.line, error.field) == ("runs/story.jsonl", 12, field)
    assert str(error).startswith(f"runs/story.jsonl:12: {field}: ")
    assert "\n" not in str(error)


def test_whole_message():
    with pytest.raises(TraceFormatError) as caught:
        step_from_json(changed("requests.0.tree.parents.3", "x"), "a.jsonl:7")
    assert (
        str(caught.value)
        == "a.jsonl:7: requests[0].tree.parents[3]: expected an integer, found 'x'"
    )


@pytest.mark.parametrize("key", ["format", "version", "requests"])
def test_required_field_is_absent(key):
    with pytest.raises(TraceFormatError, match=f"{key}: expected .*, found no such field"):
        step_from_json(edited(lambda obj: obj.pop(key)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected JSON, found expecting value at character 1"),
        ("{", "expected JSON"),
        ("[1]", "expected a step (an object), found a list of 1"),
        ("null", "expected a step (an object), found null"),
        (line()[:-1], "expected JSON"),
        (line() + "{}", "expected JSON, found extra data"),
        (line().replace('"step": 0', '"step": 0, "step": 1'), "step: expected each key once"),
        (line().replace("-1.2", "NaN"), "expected a finite number or null, found NaN"),
        (line().replace("-1.2", "-Infinity"), "expected a finite number or null, found -Infinity"),
        (line().replace("-1.2", "9" * 5000), "expected an integer of 64 bits"),
        ("[" * 100_000, "expected JSON nested a few levels deep"),
        ('{"a":' * 100_000, "expected JSON nested a few levels deep"),
        ("[" * (limits.MAX_CONTAINERS + 1), "lists and objects, found more"),
        (" " * (limits.MAX_LINE_BYTES + 1), "bytes of JSON"),
    ],
)
def test_text_that_is_no_step(text, message):
    with pytest.raises(TraceFormatError, match=re.escape(message)) as caught:
        loads(text, "f:3")
    assert (caught.value.file, caught.value.line) == ("f", 3)


def _claim(**paths):
    def change(obj):
        for path, value in paths.items():
            group, name = path.split("__")
            (obj["requests"][0] if group == "request" else obj[group])[name] = value

    return edited(change)


@pytest.mark.parametrize(
    "obj",
    [
        _claim(request__prefix_len=4_000_000, request__prefix_slots=None, config__budget=2000),
        _claim(request__prefix_len=10**9, request__prefix_slots=None),
        _claim(source__captured_bs=4096, config__budget=2048),
        _claim(source__captured_bs=9, inputs__seq_lens=[2] + [4_000_000] * 8),
        _claim(source__captured_bs=2, inputs__seq_lens=[2, -1]),
        _claim(inputs__qo_indptr=[0, 10**9]),
    ],
)
def test_small_file_that_claims_much_is_refused_without_allocating(obj):
    text = json.dumps(obj)
    assert len(text) < 3000
    tracemalloc.start()
    begun = time.perf_counter()
    with pytest.raises(TraceFormatError):
        loads(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000
    assert time.perf_counter() - begun < 1.0


def test_control_characters_of_foreign_texts_are_escaped():
    with pytest.raises(TraceFormatError) as caught:
        step_from_json(changed("source.graph", "\x1b[2J\n"), "evil\x1b\n.jsonl:1")
    assert str(caught.value).isprintable()


def test_long_values_are_cut():
    with pytest.raises(TraceFormatError) as caught:
        step_from_json(changed("source.graph", "x" * 100_000))
    assert len(str(caught.value)) < 200
