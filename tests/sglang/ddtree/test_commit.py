"""What is emitted and which rows stay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.sglang.ddtree.commit import commit_rows, emit
from engine.sglang.ddtree.faults import Fault
from tests.sglang.ddtree.scheduled import Req


def test_literal() -> None:
    """Two requests of five rows: the path 0, 2, 4 whole, and the path 0, 1 cut by a stop after one token."""
    commit = commit_rows([[0, 2, 4], [0, 1]], [3, 1], 5)
    assert commit.kept == commit.features == [0, 2, 4, 5]
    assert commit.freed == [1, 3, 6, 7, 8, 9]
    assert commit.lengths == [3, 1]


@given(st.lists(st.tuples(st.sets(st.integers(1, 9)), st.integers(1, 10)), max_size=4))
def test_every_row_is_kept_or_freed(drawn: list[tuple[set[int], int]]) -> None:
    paths = [[0, *sorted(nodes)] for nodes, _ in drawn]
    lengths = [min(length, len(path)) for path, (_, length) in zip(paths, drawn, strict=True)]
    commit = commit_rows(paths, lengths, 10)
    assert sorted(commit.kept + commit.freed) == list(range(10 * len(paths)))
    assert len(commit.kept) == len(commit.features) == sum(lengths)


@pytest.mark.parametrize(("path", "length"), [([0, 2], 3), ([0, 5], 2), ([0, -1], 2)])
def test_a_path_outside_its_request_is_refused(path: list[int], length: int) -> None:
    with pytest.raises(ValueError, match=f"request 0: expected {length} nodes in 0 … 4"):
        commit_rows([path], [length], 5)


def test_faults() -> None:
    crop = commit_rows([[0, 2, 4]], [3], 5, Fault.CROP_COMMIT)
    assert (crop.kept, crop.freed, crop.features) == ([0, 1, 2], [3, 4], [0, 2, 4])
    late = commit_rows([[0, 2, 4]], [3], 5, Fault.HIDDEN_ROWS)
    assert (late.kept, late.features) == ([0, 2, 4], [2, 4, 4])


def test_a_request_says_all_until_it_stops() -> None:
    assert emit(req := Req([1], limit=9), [4, 5, 6]) == 3
    assert req.output_ids == [4, 5, 6]
    assert emit(req := Req([1], limit=9, stop=5), [4, 5, 6]) == 2
    assert req.output_ids == [4, 5]
    assert emit(req := Req([1], limit=2), [4, 5, 6]) == 2
    assert req.finished_reason == "length"


def test_an_aborted_request_says_one_token() -> None:
    req = Req([1], limit=9)
    req.to_finish = True
    assert emit(req, [4, 5, 6]) == 1
    assert req.finished_reason == "abort"


def test_reasoning_tokens_are_counted_one_by_one() -> None:
    told: list[tuple[int, int]] = []

    class Thinking(Req):
        def update_reasoning_tokens(self, token: int, end: int) -> None:
            told.append((token, end))

    req = Thinking([1], limit=9)
    req.require_reasoning = True
    emit(req, [4, 5], think_end_id=3)
    assert told == [(4, 3), (5, 3)]
