"""Lines of a growing file: whole ones alone count, whatever a text in them holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.isolate import lines
from engine.isolate.lines import append_line, whole_lines


def test_separators_inside_a_text_split_nothing(tmp_path: Path) -> None:
    """A model may write them, and JSON keeps them as they are."""
    path = tmp_path / "a.jsonl"
    texts = ['{"text":"a\u2028b\x85c\x0bd"}', '{"text":"e"}']
    for text in texts:
        append_line(path, text)
    assert [line for _, line in whole_lines(path)] == texts
    assert [where for where, _ in whole_lines(path)] == [f"{path}:1", f"{path}:2"]


@pytest.mark.parametrize("cut", [b"x", b'{"half', b"\xe2\x80"])
@pytest.mark.parametrize("before", [b"", b"first\n"])
def test_what_was_cut_off_does_not_count_and_goes(
    tmp_path: Path, before: bytes, cut: bytes
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(before + cut)
    append_line(path, "next")
    assert path.read_bytes() == before + b"next\n"


def test_a_cut_within_a_character_is_read_over(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes("first\n\u2028".encode()[:-1])
    assert [line for _, line in whole_lines(path)] == ["first"]


def test_no_file_has_no_lines(tmp_path: Path) -> None:
    assert list(whole_lines(tmp_path / "none")) == []


def test_what_is_too_large_or_no_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xff\n")
    with pytest.raises(ValueError, match=r"a.jsonl: expected UTF-8, found invalid start byte"):
        list(whole_lines(path))
    monkeypatch.setattr(lines, "MAX_BYTES", 1)
    with pytest.raises(ValueError, match=r"a.jsonl: expected at most 1 bytes, found 2"):
        list(whole_lines(path))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(ValueError, match=r"a.jsonl: expected a file, found something else"):
        list(whole_lines(tmp_path / "a.jsonl"))
