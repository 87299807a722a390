"""JSON codec: the literal example, round trips over random steps, and what else is in a line.

Run: pytest tests/trace/test_json_codec.py
"""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from engine.step import UNKNOWN_TOKEN, Source, VerifyStep
from engine.trace import TraceFormatError, dumps, loads, step_from_json, step_to_json
from tests.trace.examples import EXAMPLE, changed, edited, line
from tests.trace.strategies import verify_steps

relaxed = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def without_nulls(value):
    """What is left when unknown fields and groups without known fields are dropped."""
    if isinstance(value, dict):
        kept = {key: without_nulls(item) for key, item in value.items() if item is not None}
        return {key: item for key, item in kept.items() if item != {}}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def test_example_is_read_field_by_field():
    step = loads(line(), "story.jsonl:1")
    assert (step.step, step.rank, step.world_size, step.raw_bs, step.captured_bs) == (0, 0, 1, 1, 1)
    assert step.source.deterministic is False
    assert step.config.temperature == 0.0
    assert step.config.mask_token_id is None
    np.testing.assert_array_equal(step.config.eos_token_ids, [2])
    request = step.requests[0]
    assert (request.rid, request.prefix_len, request.counted_nodes) == ("r0", 2, None)
    np.testing.assert_array_equal(request.prefix_slots, [7, 8])
    np.testing.assert_array_equal(request.tree.parents, [-1, 0, 0, 2])
    np.testing.assert_array_equal(request.tree.log_weights, [0.0, -0.4, -1.2, -1.5])
    assert step.inputs.custom_mask.dtype == np.uint8
    np.testing.assert_array_equal(step.inputs.custom_mask, EXAMPLE["inputs"]["custom_mask"])
    np.testing.assert_array_equal(step.links.retrieve_next_sibling[0], [-1, 2, -1, -1])
    np.testing.assert_array_equal(step.outcome.accept_index[0], [0, 2, 3, -1])
    np.testing.assert_array_equal(step.commit.kv[0].nodes[0], [0, 2, 3])
    assert step.reference.target_predict is None
    assert step.logits_dtype == "bfloat16"


def test_example_survives_in_every_field():
    assert json.loads(dumps(loads(line()))) == without_nulls(EXAMPLE)


def test_format_and_version_come_first():
    written = step_to_json(loads(line()))
    assert list(written)[:5] == ["format", "version", "step", "rank", "world_size"]


def refuse(literal):
    raise AssertionError(f"{literal} is no JSON")


@relaxed
@given(verify_steps())
def test_random_steps_survive_as_one_strict_line(step):
    text = dumps(step)
    assert len(text.splitlines()) == 1
    json.loads(text, parse_constant=refuse)
    assert loads(text) == step


def test_step_with_nothing_but_requests():
    step = step_from_json({"format": "ddtree.step", "version": 1, "requests": []})
    assert step == VerifyStep(requests=())
    assert step_to_json(step) == {
        **{"format": "ddtree.step", "version": 1, "step": 0, "rank": 0, "world_size": 1},
        "requests": [],
    }


def test_null_is_an_absent_field():
    nulls = edited(lambda obj: obj.update(step=None, links=None, workbench=None))
    absent = edited(lambda obj: [obj.pop(key) for key in ("step", "links")])
    assert step_from_json(nulls) == step_from_json(absent)


def test_integer_temperature_is_a_number():
    assert step_from_json(changed("config.temperature", 0)).config.temperature == 0.0


def test_bare_recurrent_index_is_a_list_of_one():
    step = step_from_json(changed("commit.recurrent_index", 2))
    np.testing.assert_array_equal(step.commit.recurrent_index, [2])


def test_null_rows():
    top2 = [None, [[4, 1.5], [9, None]], None, [[1, 2], [3, 4]]]
    step = step_from_json(
        changed("reference", {"target_predict": [12, None, 30, None], "top2": top2})
    )
    np.testing.assert_array_equal(
        step.reference.target_predict, [12, UNKNOWN_TOKEN, 30, UNKNOWN_TOKEN]
    )
    assert np.isnan(step.reference.top2[0]).all()
    np.testing.assert_array_equal(step.reference.top2[1], [[4, 1.5], [9, np.nan]])
    assert step_to_json(step)["reference"]["top2"] == top2


@pytest.mark.parametrize("parents", [[-1, 2, 1, 0], [-1, 0, 99, 0], [0, 0, 0, 0], [-1, -1, -5, 3]])
def test_malformed_trees_are_for_the_checks(parents):
    step = step_from_json(changed("requests.0.tree.parents", parents))
    np.testing.assert_array_equal(step.requests[0].tree.parents, parents)


def test_unreadable_record_is_not_written():
    step = VerifyStep(requests=(), source=Source(graph="captured"))
    with pytest.raises(TraceFormatError, match=r"source.graph: expected one of eager, replay"):
        dumps(step)


def test_strategy_reaches_every_group():
    seen = set()

    @settings(
        max_examples=15,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(verify_steps())
    def collect(step):
        seen.update(step_to_json(step))

    collect()
    assert seen == {f.name for f in fields(VerifyStep)} | {"format", "version"}
