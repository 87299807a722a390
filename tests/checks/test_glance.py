"""A check that is called silent at a glance is silent: on clean steps, and with anything in them changed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from engine.checks import fast_clean
from engine.checks.context import StepContext
from engine.checks.glance.plain_step import plain_step
from engine.checks.glance.plain_tree import links_of, plain_tree
from engine.checks.glance.silent import CONDITIONS, silent_checks
from engine.checks.registry import CHECKS
from engine.checks.synthetic import Shape, synthetic_steps
from engine.oracle import Oracle
from engine.step import VerifyStep
from engine.trace import step_to_json
from engine.trace.errors import FieldProblem
from engine.trace.validate import validate_step
from tests.checks.build import batch, clean, clean_steps, rooted, spoil
from tests.checks.test_robust import accepted, at, changed, paths, variants
from tests.factories import trees as random_trees


@st.composite
def two_unpadded_steps(draw: st.DrawFn) -> tuple[VerifyStep, VerifyStep]:
    """A clean step and the one after it, as they are covered; every layout and encoding."""
    fixed: dict[str, Any] = {"padded": 0}
    if draw(st.booleans()):
        fixed |= {"page": None, "counts_draft": draw(st.booleans()), "window": None}
    first = draw(clean_steps(**fixed))
    return first, draw(clean_steps(number=1, before=first, **fixed))


def holds_back_nothing(previous: VerifyStep | None, step: VerifyStep) -> set[str]:
    """Every check that is called silent says nothing when it is asked; returns which are."""
    silent = silent_checks(StepContext(step, previous))
    for spec in CHECKS:
        if spec.id in silent and spec.can_run(step):
            fast_clean.ENABLED = False
            try:
                found = list(spec.run(spec, StepContext(step, previous)))
            finally:
                fast_clean.ENABLED = True
            assert found == []
    return silent


def values_of(record: Any, prefix: str = "") -> Iterator[tuple[str, Any, bool]]:
    """``(dotted path, value, optional)`` of everything recorded that is no record itself, but for the mask."""
    for field in fields(record):
        value, path, optional = (
            getattr(record, field.name),
            f"{prefix}{field.name}",
            field.default is None,
        )
        if value is None or path == "inputs.custom_mask":
            continue
        if is_dataclass(value):
            yield from values_of(value, f"{path}.")
        elif not isinstance(value, tuple):
            yield path, value, optional
        else:
            yield path, value, optional
            for i, item in enumerate(value):
                if is_dataclass(item):
                    yield from values_of(item, f"{path}.{i}.")
                else:
                    yield f"{path}.{i}", item, False


def changes(path: str, value: Any, optional: bool) -> Iterator[tuple[str, Any]]:
    """Another value in its place, every entry of an array alone, an entry more or less, or nothing."""
    if optional:
        yield path, None
    if isinstance(value, np.ndarray):
        for place in np.ndindex(value.shape):
            for other in others(value[place].item()):
                out = value.copy()
                out[place] = other
                yield path, out
        yield path, value[:-1]
        yield path, np.concatenate([value, value[-1:]])
    elif not isinstance(value, tuple):
        for other in others(value):
            yield path, other


def others(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, -1]
    if isinstance(value, float):
        return [value + 1.0, value - 1.0, 0.0, math.nan]
    return [f"{value}x", "ragged", "qlen", "page", "bits"]


def all_changes(step: VerifyStep, group: str) -> Iterator[VerifyStep]:
    """Steps that a reader accepts."""
    for path, value, optional in values_of(step):
        if path.partition(".")[0] == group:
            for change in changes(path, value, optional):
                other = spoil(step, change)
                try:
                    validate_step(other)
                except FieldProblem:
                    continue
                yield other


def with_every_field(step: VerifyStep) -> VerifyStep:
    """The step with weights and logits as well."""
    weights = [
        (f"requests.{i}.tree.log_weights", -np.arange(1.0 * len(r.tree.parents)))
        for i, r in enumerate(step.requests)
    ]
    top2 = np.full((int(step.inputs.qo_indptr[-1]), 2, 2), 3.0)
    counted = [
        (f"requests.{i}.counted_nodes", len(r.tree.parents)) for i, r in enumerate(step.requests)
    ]
    return spoil(step, *weights, *counted, ("outcome.top2", top2), ("reference.top2", top2))


LAYOUTS: dict[str, dict[str, Any]] = {
    "bytes": {},
    "bits": {"encoding": "bits", "layout": "qlen"},
    "ragged": {"ragged": True, "counts_draft": True},
}
GROUPS = ("requests", "inputs", "links", "outcome", "commit", "config", "source", "reference")


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_entry_changed(layout: str, group: str) -> None:
    """Each entry of each array alone, in a step or in the one before; in some every check is silent, in others not."""
    first = with_every_field(batch(full=True, **LAYOUTS[layout]))
    prefixes = first.commit.seq_lens.tolist()
    trees = [
        rooted(r.tree.tree, int(b))
        for r, b in zip(first.requests, first.outcome.bonus_tokens, strict=True)
    ]
    second = with_every_field(
        clean(
            trees, prefixes, [[0], [0, 2], [0, 1]], budget=9, number=1, full=True, **LAYOUTS[layout]
        )
    )
    assert holds_back_nothing(first, second) == set(CONDITIONS)
    unsure = set[str]()
    for other in all_changes(second, group):
        unsure |= set(CONDITIONS) - holds_back_nothing(first, other)
    assert unsure
    if group in ("outcome", "commit"):
        for other in all_changes(first, group):
            holds_back_nothing(other, second)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(two_unpadded_steps(), st.data())
def test_fields_changed(steps: tuple[VerifyStep, VerifyStep], data: st.DataObject) -> None:
    documents = [step_to_json(step) for step in steps]
    for _ in range(data.draw(st.integers(1, 3))):
        number = data.draw(st.integers(0, 1))
        path = data.draw(st.sampled_from(list(paths(documents[number]))))
        value = data.draw(st.sampled_from(list(variants(at(documents[number], path)))))
        documents[number] = changed(documents[number], path, value)
    first, second = map(accepted, documents)
    assume(first is not None and second is not None)
    holds_back_nothing(first, second)


@pytest.mark.parametrize("layout", ["full", "qlen"])
@pytest.mark.parametrize("encoding", ["bytes", "bits"])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("window", [None, 2])
def test_each_bit_of_the_mask(layout: str, encoding: str, ragged: bool, window: int | None) -> None:
    step = batch(
        layout=layout, encoding=encoding, ragged=ragged, window=window, backend="flashinfer"
    )
    for place, value in enumerate(step.inputs.custom_mask.tolist()):
        for bit in range(8 if encoding == "bits" else 2):
            holds_back_nothing(None, spoil(step, (f"inputs.custom_mask.{place}", value ^ 1 << bit)))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(two_unpadded_steps())
def test_clean_steps(steps: tuple[VerifyStep, VerifyStep]) -> None:
    """Only entries of whole pages are left to the check itself."""
    silent = holds_back_nothing(*steps)
    unsure = set(CONDITIONS) - silent
    assert unsure <= ({"I3"} if steps[1].config.kv_indptr_unit == "page" else set())


@pytest.mark.parametrize("layout", ["full", "qlen"])
def test_synthetic_steps(layout: str) -> None:
    previous = None
    for step in synthetic_steps(Shape(steps=30, prefix_len=30, layout=layout)):
        assert holds_back_nothing(previous, step) == set(CONDITIONS)
        previous = step


@pytest.mark.parametrize("change", ["length", "token"])
def test_a_step_that_does_not_go_on(change: str) -> None:
    """Whole by itself, and not what follows the one before."""
    first = batch(full=True)
    prefixes, bonuses = first.commit.seq_lens.tolist(), first.outcome.bonus_tokens.tolist()
    if change == "length":
        prefixes[1] += 1
    else:
        bonuses[1] += 1
    trees = [rooted(r.tree.tree, token) for r, token in zip(first.requests, bonuses, strict=True)]
    second = clean(trees, prefixes, [[0], [0, 2], [0, 1]], budget=9, number=1, full=True)
    assert holds_back_nothing(None, second) == set(CONDITIONS)
    speaks = {"length": "I3", "token": "I18"}[change]
    assert holds_back_nothing(first, second) == set(CONDITIONS) - {speaks}


@pytest.mark.parametrize(
    ("path", "value", "check"),
    [
        ("config.index_dtype", "uint8", "I6"),
        ("config.block_size", 3, "I7"),
        ("config.vocab_size", 5, "I20"),
        ("config.eos_token_ids", np.array([5]), "I20"),
        ("outcome.top2.4", np.array([[5.0, 0.0], [6.0, 0.0]]), "I9"),
    ],
)
def test_what_takes_more_than_a_step_to_the_next_number(path: str, value: Any, check: str) -> None:
    step = spoil(with_every_field(batch(full=True)), (path, value))
    assert holds_back_nothing(None, step) == set(CONDITIONS) - {check}


@pytest.mark.parametrize(
    "path",
    [
        "links.retrieve_next_token",
        "outcome.accept_index",
        "outcome.emitted",
        "outcome.accept_length",
        "outcome.bonus_tokens",
        "outcome.target_predict",
        "commit.kv.1.nodes",
        "commit.seq_lens",
        "commit.recurrent_index",
        "commit.hidden_rows",
    ],
)
def test_fewer_than_there_are_requests(path: str) -> None:
    """No reader accepts such a step, and no condition stumbles over it."""
    step = batch(full=True)
    (value,) = (value for known, value, _ in values_of(step) if known == path)
    assert silent_checks(StepContext(spoil(step, (path, value[:1])))) < set(CONDITIONS)


def test_no_mask() -> None:
    step = spoil(batch(full=True), ("inputs.custom_mask", None))
    assert holds_back_nothing(None, step) == set(CONDITIONS) - {"I5", "I8"}


@pytest.mark.parametrize("change", ["padded", "no budget", "late parent", "cycle", "no root"])
def test_not_covered(change: str) -> None:
    step = batch(padded=1) if change == "padded" else batch()
    spoiled = {
        "padded": (),
        "no budget": (("config.budget", None),),
        "late parent": (("requests.1.tree.parents.1", 2), ("requests.1.tree.parents.2", 0)),
        "cycle": (("requests.1.tree.parents.1", 1),),
        "no root": (("requests.1.tree.parents.0", 0),),
    }[change]
    context = StepContext(spoil(step, *spoiled))
    assert plain_step(context) is None
    assert silent_checks(context) == set()


@given(random_trees(max_nodes=12))
def test_plain_trees(tree: Any) -> None:
    """Derived in another way than the oracle's, and the same."""
    step = batch(ragged=True)
    step = spoil(step, ("requests.0.tree.parents", tree.parents), ("requests.0.tree.tokens", None))
    oracle, plain = Oracle(step), plain_tree(step.requests[0].tree)
    assert plain is not None
    assert plain.depths == tree.depths.tolist()
    block = b"".join(row.to_bytes(tree.num_nodes, "little") for row in plain.rows)
    assert block == oracle.tree_block(0).tobytes()
    for mine, theirs in zip(links_of(plain.parents), oracle.links(0), strict=True):
        assert np.array_equal(mine, theirs)
