"""Words of a command line filled in for a cell, and what is refused before anything is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.isolate.cell import Cell
from engine.isolate.experiment import ServerSubject
from engine.isolate.launch import addresses_of, check_placeholders, launch_of, plain_launch
from engine.isolate.matrix import Matrix

CELL = Cell(16, 4, False, 1, 0, 0.0, 0)
SUBJECT = ServerSubject(
    command=("serve", "--rows={width}", "-b", "{budget}", "{topk}", "{port}", "{eager}", '{"a":1}'),
    plain_command=("serve", "{eager}", "{port}"),
    url="http://127.0.0.1:30001",
    environment=(("TAP", "{traces}/x"), ("WIDTH", "{width}"), ("JSON", '{"n":{budget}}')),
)


def test_everything_is_filled_in(tmp_path: Path) -> None:
    launch = launch_of(SUBJECT, CELL, tmp_path)
    words = ("serve", "--rows=17", "-b", "16", "4", "30001", "--disable-cuda-graph", '{"a":1}')
    assert launch.command(30001) == words
    assert launch.command(7) == (*words[:5], "7", *words[6:])
    folder = tmp_path / "b16-k4-eager"
    assert launch.traces == folder
    variables = (("TAP", f"{folder}/x"), ("WIDTH", "17"), ("JSON", '{"n":16}'))
    assert launch.environment(30001) == variables


def test_what_was_filled_in_is_not_filled_in_again(tmp_path: Path) -> None:
    subject = replace(SUBJECT, eager_words=("{port}",))
    launch = launch_of(subject, CELL, tmp_path / "{port}")
    assert launch.command(1)[6] == "{port}"
    assert launch.environment(1)[0] == ("TAP", f"{launch.traces}/x")
    assert launch.traces == tmp_path / "{port}" / launch.name


def test_ports_follow_that_of_the_address() -> None:
    ahead = replace(SUBJECT, ahead=2)
    assert [str(address) for address in addresses_of(ahead)] == [
        f"http://127.0.0.1:{port}" for port in (30001, 30002, 30003)
    ]
    assert [str(one) for one in addresses_of(replace(SUBJECT, url="http://a/v1"))] == ["http://a"]
    far = "url: expected a port up to 65533, since 2 servers that load ahead have the ports that "
    with pytest.raises(ValueError, match=far + "follow, found 65534"):
        addresses_of(replace(ahead, url="http://127.0.0.1:65534"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ahead": -1}, "ahead: expected at least 0, found -1"),
        ({"ahead": 1, "command": ("serve", "{budget}")}, "command: expected {port}, since"),
        ({"ahead": 1, "plain_command": ("serve",)}, "plain_command: expected {port}, since"),
    ],
)
def test_servers_that_load_ahead_need_ports(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        replace(SUBJECT, **changes)
    assert str(caught.value).startswith(message)


def test_no_cap_is_the_budget_and_graphs_drop_the_word(tmp_path: Path) -> None:
    launch = launch_of(SUBJECT, replace(CELL, topk=None, graphs=True), tmp_path)
    words = ("serve", "--rows=17", "-b", "16", "16", "30001", '{"a":1}')
    assert launch.command(30001) == words
    assert launch.name == "b16-kall-graphs"


def test_variables_of_a_cell_are_not_the_plain_servers(tmp_path: Path) -> None:
    """As SGLang with this project's own algorithm is told its sizes."""
    told = (("DDTREE_BUDGET", "{budget}"), ("DDTREE_TOPK", "{topk}"), ("A", "b"))
    subject = replace(SUBJECT, environment=told)
    assert launch_of(subject, CELL, tmp_path).environment(1) == (
        *(("DDTREE_BUDGET", "16"), ("DDTREE_TOPK", "4")),
        ("A", "b"),
    )
    assert plain_launch(subject, Matrix(), tmp_path).environment(1) == (("A", "b"),)


@pytest.mark.parametrize(
    ("graphs", "words"), [((False, True), ()), ((False,), ("--disable-cuda-graph",))]
)
def test_the_plain_server_has_graphs_unless_no_cell_has(
    tmp_path: Path, graphs: tuple[bool, ...], words: tuple[str, ...]
) -> None:
    launch = plain_launch(SUBJECT, Matrix(graphs=graphs), tmp_path)
    assert launch.command(30001) == ("serve", *words, "30001")
    assert launch.environment(30001) == (("TAP", f"{tmp_path / 'plain'}/x"),)


def test_cells_that_differ_in_what_a_server_is_not_told_share_a_launch(tmp_path: Path) -> None:
    other = replace(CELL, batch=2, prompt=1, temperature=0.5, seed=3)
    assert launch_of(SUBJECT, other, tmp_path) == launch_of(SUBJECT, CELL, tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"command": ("serve", "{buget}")},
            "command, word 2: expected one of {budget}, {width}, {topk}, {eager}, {port}, {traces}, found {buget}",
        ),
        (
            {"command": ("serve", "--x={eager}")},
            "command, word 2: expected {eager} as a word by itself, found '--x={eager}'",
        ),
        (
            {"plain_command": ("serve", "{budget}")},
            "plain_command, word 2: expected one of {eager}, {port}, {traces}, found {budget}",
        ),
        (
            {"environment": (("A", "{eager}"),)},
            "environment A: expected one of {budget}, {width}, {topk}, {port}, {traces}, found {eager}",
        ),
        (
            {"command": ("serve", "{topk}", "{eager}"), "environment": ()},
            "command: expected {budget} or {width}, since 2 values of budget are tried, "
            "found neither there nor in the environment",
        ),
        (
            {"command": ("serve", "{budget}", "{topk}")},
            "command: expected {eager}, since 2 values of graphs are tried, "
            "found neither there nor in the environment",
        ),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        check_placeholders(Matrix(), replace(SUBJECT, **changes))
    assert str(caught.value) == message
