"""Any single wrong entry is found by its check first and located; padding is nobody's business."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.checks.finding import Finding
from engine.oracle import Oracle
from engine.step import VerifyStep
from tests.checks.build import causes, clean_steps, findings, on_ranks, spoil

PLAIN = clean_steps(plain=True)  # flashinfer: every cell is read, so nothing is latent
ANY = clean_steps()


def flip(draw: Any, step: VerifyStep) -> tuple[VerifyStep, int, int, int, int]:
    """A step with one tree cell of a real row flipped, and the request, row, column and byte of that cell."""
    oracle = Oracle(step)
    request = draw(st.integers(0, step.raw_bs - 1))
    rows, prefix = oracle.real_rows(request), int(oracle.prefix_lens[request])
    node = draw(st.integers(0, len(rows) - 1))
    column = prefix + draw(st.integers(0, int(oracle.q_lens[request]) - 1))
    byte = oracle.geometry.byte_of(request, node, column)
    assert byte is not None
    bit = 1
    if oracle.geometry.bits:
        inner = column - (prefix if oracle.geometry.qlen_only else 0)
        bit = 1 << (node * int(oracle.geometry.strides[request]) + inner) % 8
    value = int(step.inputs.custom_mask[byte]) ^ bit
    changed = spoil(step, (f"inputs.custom_mask.{byte}", value))
    return changed, request, rows[node], column, byte


def sole(step: VerifyStep, check: str) -> Finding:
    """The only cause, from this check, before all else."""
    found = findings(step)
    assert found
    assert found[0].check == check
    assert [f for f in found[1:] if f.consequence_of is None] == []
    return found[0]


@given(ANY, st.data())
def test_mask_cell(step: VerifyStep, data: st.DataObject) -> None:
    changed, request, row, column, byte = flip(data.draw, step)
    check = findings(changed)[0].check
    assert check in (
        "I5",
        "I8",
    )  # I5: a tiny mask can be another packing of the same tree by chance
    finding = sole(changed, check)
    where = finding.where
    assert finding.request == f"r{request}"
    assert (where.row, where.column, where.byte) == (row, column, byte)
    assert where.node == row - Oracle(step).rows(request).start
    assert where.cells == ((row, column),)
    assert (finding.verdict, finding.count) == ("fault", 1)
    if check == "I8":
        assert finding.expected == 1 - finding.found


@given(PLAIN, st.data())
def test_prefix_cell(step: VerifyStep, data: st.DataObject) -> None:
    oracle = Oracle(step)
    request = data.draw(st.integers(0, step.raw_bs - 1))
    row = data.draw(st.sampled_from(oracle.real_rows(request)))
    column = data.draw(st.integers(0, int(oracle.prefix_lens[request]) - 1))
    byte = oracle.geometry.byte_of(request, row - oracle.rows(request).start, column)
    finding = sole(spoil(step, (f"inputs.custom_mask.{byte}", 0)), "I8")
    assert (finding.request, finding.diagnosis) == (f"r{request}", "prefix-hidden")
    assert (finding.where.row, finding.where.column, finding.where.byte) == (row, column, byte)


SMALL = st.integers(-3, 60)


@given(PLAIN, st.data())
def test_row_extent(step: VerifyStep, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, step.raw_bs))
    right = int(step.inputs.qo_indptr[at])
    value = data.draw(SMALL.filter(lambda v: v != right))
    finding = sole(spoil(step, (f"inputs.qo_indptr.{at}", value)), "I1")
    assert finding.request is None
    if finding.diagnosis == "rows-unaccounted":
        assert (finding.expected, finding.found) == (right, value)
        assert f"qo_indptr[{at}]" in finding.message
    else:
        assert (step.raw_bs, finding.found) == (1, value)


@given(PLAIN, st.data())
def test_mask_extent(step: VerifyStep, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, step.raw_bs))
    right = int(step.inputs.mask_indptr[at])
    value = data.draw(st.integers(-5, 900).filter(lambda v: v != right))
    finding = sole(spoil(step, (f"inputs.mask_indptr.{at}", value)), "I4")
    assert (finding.request, finding.expected, finding.found) == (None, right, value)
    assert f"mask_indptr[{at}] is {value}, should be {right}" in finding.message


@given(ANY, st.data())
def test_position(step: VerifyStep, data: st.DataObject) -> None:
    request = data.draw(st.integers(0, step.raw_bs - 1))
    row = data.draw(st.sampled_from(Oracle(step).real_rows(request)))
    right = int(step.inputs.positions[row])
    value = data.draw(SMALL.filter(lambda v: v != right))
    finding = sole(spoil(step, (f"inputs.positions.{row}", value)), "I10")
    assert (finding.request, finding.where.row) == (f"r{request}", row)
    assert (finding.expected, finding.found, finding.count) == (right, value, 1)


@given(ANY, st.data())
def test_link(step: VerifyStep, data: st.DataObject) -> None:
    request = data.draw(st.integers(0, step.raw_bs - 1))
    name = data.draw(st.sampled_from(["retrieve_next_token", "retrieve_next_sibling"]))
    nodes = Oracle(step).trees[request].num_nodes
    node = data.draw(st.integers(0, nodes - 1))
    right = int(getattr(step.links, name)[request][node])
    value = data.draw(st.integers(-3, nodes + 3).filter(lambda v: v != right))
    finding = sole(spoil(step, (f"links.{name}.{request}.{node}", value)), "I12")
    assert (finding.request, finding.where.node) == (f"r{request}", node)
    assert (finding.expected, finding.found, finding.count) == (right, value, 1)


@given(ANY, st.data())
def test_accepted_row(step: VerifyStep, data: st.DataObject) -> None:
    request = data.draw(st.integers(0, step.raw_bs - 1))
    path = step.outcome.accept_index[request]
    entry = data.draw(st.integers(0, int((path >= 0).sum()) - 1))
    rows = Oracle(step).rows(request)
    right = int(path[entry])
    value = data.draw(st.integers(rows.start - 3, rows.stop + 3).filter(lambda v: v != right))
    changed = spoil(step, (f"outcome.accept_index.{request}.{entry}", value))
    last_dropped = value == -1 and entry > 0 and path[entry + 1] == -1
    inside = value in rows or last_dropped
    finding = sole(changed, "I13" if inside else "I14")
    assert finding.request == f"r{request}"
    if inside:
        assert finding.where.node == (right if last_dropped else value) - rows.start
    else:
        assert (finding.diagnosis, finding.found) == ("accept-index-range", value)


@given(ANY, st.data())
def test_bonus(step: VerifyStep, data: st.DataObject) -> None:
    request = data.draw(st.integers(0, step.raw_bs - 1))
    right = int(step.outcome.bonus_tokens[request])
    value = data.draw(SMALL.filter(lambda v: v != right))
    finding = sole(spoil(step, (f"outcome.bonus_tokens.{request}", value)), "I14")
    assert (finding.request, finding.expected, finding.found) == (f"r{request}", right, value)


@given(ANY, st.data())
def test_committed_node(step: VerifyStep, data: st.DataObject) -> None:
    request = data.draw(st.integers(0, step.raw_bs - 1))
    layer = data.draw(st.integers(0, 1))
    nodes = step.commit.kv[layer].nodes[request]
    entry = data.draw(st.integers(0, len(nodes) - 1))
    right = int(nodes[entry])
    value = data.draw(st.integers(-1, 12).filter(lambda v: v != right))
    changed = spoil(step, (f"commit.kv.{layer}.nodes.{request}.{entry}", value))
    finding = sole(changed, "I15")
    assert (finding.request, finding.where.layer) == (f"r{request}", (0, 3)[layer])
    assert (finding.where.node, finding.found[entry], finding.count) == (right, value, 1)


@given(ANY, st.data())
def test_kv_extent(step: VerifyStep, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, step.captured_bs))
    right = int(step.inputs.kv_indptr[at])
    value = data.draw(st.integers(-3, 80).filter(lambda v: v != right))
    finding = sole(spoil(step, (f"inputs.kv_indptr.{at}", value)), "I3")
    if 0 < at <= step.raw_bs:
        assert finding.request == f"r{at - 1}"
        assert finding.found - finding.expected == value - right
    else:
        assert finding.request is None


@given(ANY, st.data())
def test_seq_len(step: VerifyStep, data: st.DataObject) -> None:
    request = data.draw(st.integers(0, step.raw_bs - 1))
    right = int(step.inputs.seq_lens[request])
    value = data.draw(SMALL.filter(lambda v: v != right))
    finding = sole(spoil(step, (f"inputs.seq_lens.{request}", value)), "I3")
    assert (finding.request, finding.diagnosis) == (f"r{request}", "seq-lens")
    assert (finding.expected, finding.found, finding.count) == (right, value, 1)


@given(ANY, st.data())
def test_kv_index(step: VerifyStep, data: st.DataObject) -> None:
    request = data.draw(st.integers(0, step.raw_bs - 1))
    page = step.config.page_size
    entries = -(-step.requests[request].prefix_len // page)
    entry = data.draw(st.integers(0, entries - 1))
    at = int(step.inputs.kv_indptr[request]) + entry
    right = int(step.inputs.kv_indices[at])
    value = data.draw(SMALL.filter(lambda v: v != right))
    finding = sole(spoil(step, (f"inputs.kv_indices.{at}", value)), "I3")
    assert (finding.request, finding.diagnosis) == (f"r{request}", "kv-indices")
    assert (finding.expected, finding.found, finding.count) == (right, value, 1)
    assert finding.where.column == entry * page


@given(clean_steps(encoding="bits"), st.data())
def test_byte_extent(step: VerifyStep, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, step.captured_bs))
    right = int(step.inputs.byte_indptr[at])
    value = data.draw(st.integers(-5, 900).filter(lambda v: v != right))
    finding = sole(spoil(step, (f"inputs.byte_indptr.{at}", value)), "I5")
    assert (finding.request, finding.diagnosis) == (None, "byte-extent")
    assert (finding.expected, finding.found, finding.where.byte) == (right, value, right)


@given(ANY, st.data())
def test_write_slot(step: VerifyStep, data: st.DataObject) -> None:
    """A real row that writes into a prefix, to another real row's slot, out of the pool, or to the padding slot."""
    oracle = Oracle(step)
    request = data.draw(st.integers(0, step.raw_bs - 1))
    row = data.draw(st.sampled_from(oracle.real_rows(request)))
    real = [r for i in range(step.raw_bs) for r in oracle.real_rows(i)]
    kind = data.draw(
        st.sampled_from(["slot-in-prefix", "slot-collision", "slot-range", "write-slots"])
    )
    others = [r for r in real if r != row]
    assume(kind != "slot-collision" or others)
    value = {
        "slot-in-prefix": int(step.requests[0].prefix_slots[0]),
        "slot-collision": int(step.inputs.out_cache_loc[(others or [row])[0]]),
        "slot-range": -1,
        "write-slots": 0,
    }[kind]
    finding = sole(spoil(step, (f"inputs.out_cache_loc.{row}", value)), "I16")
    assert finding.diagnosis == kind
    if kind != "slot-collision":
        assert (finding.request, finding.where.row, finding.found) == (f"r{request}", row, value)
    else:
        assert finding.where.row in (row, others[0])


@given(clean_steps(padded=1, ragged=False), st.data())
def test_padded_row(step: VerifyStep, data: st.DataObject) -> None:
    oracle = Oracle(step)
    row = data.draw(st.integers(oracle.rows(step.raw_bs - 1).stop, len(step.inputs.positions) - 1))
    name = data.draw(st.sampled_from(["positions", "out_cache_loc"]))
    finding = sole(spoil(step, (f"inputs.{name}.{row}", 40_000)), "I11")
    assert (finding.request, finding.where.row) == (None, row)
    assert (finding.expected, finding.found, finding.count) == (0, 40_000, 1)


@given(ANY, st.data())
def test_hidden_row(step: VerifyStep, data: st.DataObject) -> None:
    request = data.draw(st.integers(0, step.raw_bs - 1))
    nodes = step.commit.hidden_rows[request]
    entry = data.draw(st.integers(0, len(nodes) - 1))
    right = int(nodes[entry])
    value = data.draw(st.integers(-1, 12).filter(lambda v: v != right))
    finding = sole(spoil(step, (f"commit.hidden_rows.{request}.{entry}", value)), "I18")
    assert (finding.request, finding.where.node) == (f"r{request}", right)
    assert (finding.found[entry], finding.count) == (value, 1)


@given(ANY, st.data())
def test_recurrent_index(step: VerifyStep, data: st.DataObject) -> None:
    request = data.draw(st.integers(0, step.raw_bs - 1))
    right = int(step.commit.recurrent_index[request])
    value = data.draw(st.integers(-1, 12).filter(lambda v: v != right))
    finding = sole(spoil(step, (f"commit.recurrent_index.{request}", value)), "I17")
    assert (finding.request, finding.expected, finding.found) == (f"r{request}", right, value)


@given(ANY, st.data())
def test_emitted_token(step: VerifyStep, data: st.DataObject) -> None:
    request = data.draw(st.integers(0, step.raw_bs - 1))
    tokens = step.outcome.emitted[request]
    entry = data.draw(st.integers(0, len(tokens) - 1))
    right = int(tokens[entry])
    value = data.draw(st.integers(-2, 2000).filter(lambda v: v != right))
    finding = sole(spoil(step, (f"outcome.emitted.{request}.{entry}", value)), "I20")
    assert finding.request == f"r{request}"
    assert finding.found[entry] == value
    last = entry == len(tokens) - 1
    node = None if last else int(step.commit.hidden_rows[request][entry + 1])
    assert finding.where.node == node


@given(ANY, st.data())
def test_one_ranks_prediction(step: VerifyStep, data: st.DataObject) -> None:
    """Off the accepted path nothing else in the rank's record depends on it."""
    oracle, world = Oracle(step), data.draw(st.integers(2, 3))
    request = data.draw(st.integers(0, step.raw_bs - 1))
    path = set(step.commit.hidden_rows[request].tolist())
    start = oracle.rows(request).start
    rows = [row for row in oracle.real_rows(request) if row - start not in path]
    assume(rows)
    row = data.draw(st.sampled_from(rows))
    steps, rank = on_ranks(step, world), data.draw(st.integers(1, world - 1))
    steps[rank] = spoil(steps[rank], (f"outcome.target_predict.{row}", 7))
    first, *rest = findings(*steps)
    assert (first.check, first.rank, first.request, first.where.row) == (
        *("I19", rank, f"r{request}", row),
    )
    assert (first.found, first.count, first.consequence_of) == (7, 1, None)
    assert [(f.check, f.consequence_of) for f in rest] == [("I22", "I19")]


@given(clean_steps(), st.data())
def test_padding_is_silent(step: VerifyStep, data: st.DataObject) -> None:
    """Rows past the nodes of a live request may hold anything, and so may the cells of a padded one."""
    oracle = Oracle(step)
    real = {row for i in range(step.raw_bs) for row in oracle.real_rows(i)}
    rows = [row for i in range(step.raw_bs) for row in oracle.rows(i) if row not in real]
    assume(rows)
    changes: list[tuple[str, Any]] = []
    for row in data.draw(st.lists(st.sampled_from(rows), min_size=1, max_size=5)):
        for name in ("positions", "input_ids"):
            changes.append((f"inputs.{name}.{row}", data.draw(st.integers(0, 20))))
        changes.append((f"outcome.target_predict.{row}", data.draw(SMALL)))
    mask = step.inputs.custom_mask.copy()
    if not oracle.geometry.bits:
        starts, strides = oracle.geometry.mask_indptr, oracle.geometry.strides
        for i in range(step.captured_bs):
            nodes = oracle.trees[i].num_nodes if i < step.raw_bs else 0
            first = int(starts[i] + nodes * strides[i])
            mask[first : int(starts[i + 1])] ^= 1
    assert findings(spoil(step, ("inputs.custom_mask", mask), *changes)) == []


def unrelated(data: st.DataObject, step: VerifyStep) -> dict[str, tuple[VerifyStep, str]]:
    """Mistakes that touch different fields: ``check -> (path, value)`` applied one at a time."""
    oracle, request = Oracle(step), data.draw(st.integers(0, step.raw_bs - 1))
    row = data.draw(st.sampled_from(oracle.real_rows(request)))
    node = row - oracle.rows(request).start
    byte = oracle.geometry.byte_of(request, node, int(oracle.prefix_lens[request]) + node)
    end = len(step.inputs.mask_indptr) - 1
    return {
        "I4": (f"inputs.mask_indptr.{end}", int(step.inputs.mask_indptr[end]) - 1),
        "I8": (f"inputs.custom_mask.{byte}", 0),
        "I10": (f"inputs.positions.{row}", int(step.inputs.positions[row]) + 5),
        "I12": (f"links.retrieve_next_token.{request}.{node}", 99),
        "I14": (f"outcome.bonus_tokens.{request}", 777),
        "I15": (f"commit.seq_lens.{request}", 1000),
        "I16": (f"inputs.out_cache_loc.{row}", -1),
        "I17": (f"commit.recurrent_index.{request}", 55),
        "I18": (f"commit.hidden_rows.{request}.0", 66),
        "I20": (f"outcome.emitted.{request}", np.array([3, 3, 3, 3], np.int64)),
    }


@given(PLAIN, st.data())
def test_two_unrelated_mistakes_are_two_causes(step: VerifyStep, data: st.DataObject) -> None:
    mistakes = unrelated(data, step)
    first, second = data.draw(
        st.lists(st.sampled_from(sorted(mistakes)), min_size=2, max_size=2, unique=True)
    )
    found = causes(spoil(step, mistakes[first], mistakes[second]))
    assert {f.check for f in found} == {first, second}
    assert len(found) == 2


@given(PLAIN, st.data())
def test_the_same_mistake_in_two_requests_is_two_causes(
    step: VerifyStep, data: st.DataObject
) -> None:
    assume(step.raw_bs > 1)
    changes = [(f"inputs.positions.{Oracle(step).rows(i).start}", 99) for i in range(step.raw_bs)]
    assert [f.request for f in causes(spoil(step, *changes))] == [
        f"r{i}" for i in range(step.raw_bs)
    ]


def test_huge_offsets_are_located_too() -> None:
    from tests.checks.build import batch

    finding = sole(spoil(batch(), ("inputs.mask_indptr.1", 1 << 48)), "I4")
    assert finding.found == 1 << 48
    assert np.int64(finding.where.byte) > 1 << 47
