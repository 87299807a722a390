"""``ddtree bench servers``: what it prints and writes, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from engine.server_bench.table import lines
from tests.server.pretend import Behaviour, serve
from workbench.cli import app

QUICK = ("--rounds", "2", "--warm-up", "1", "--requests", "2", "--concurrency", "1")


def servers(*words: str) -> Any:
    return CliRunner().invoke(app, ["bench", "servers", *words])


def test_two_servers(tmp_path: Path) -> None:
    words = ("--out", str(tmp_path), "--title", "Plain and trees", "--note", "A try.")
    behaviours = [Behaviour(), Behaviour(texts=["Else."])]
    with serve(behaviours[0]) as one, serve(behaviours[1]) as two:
        done = servers(
            *(f"plain={one}", f"tree={two}", *QUICK, "--concurrency", "2"),
            *("--prompt", "x", "--prompt", "y", *words),
        )
    assert done.exit_code == 0, done.output
    data = json.loads((tmp_path / "servers.json").read_text())
    assert "\n".join(lines(data)) == done.stdout.rstrip("\n")
    assert (tmp_path / "servers.md").read_text() == done.stdout
    assert done.stdout.startswith("# Plain and trees\n\nA try.\n\n")
    assert (data["incomplete"], data["problem"]) == (False, None)
    assert data["plan"]["prompts"] == ["x", "y"]
    assert data["plan"]["requests"] == {"1": 2, "2": 2}
    figures = {
        (r["concurrency"], r["server"]): (r["equal"], r["compared"]) for r in data["figures"]
    }
    assert figures == {
        (1, "plain"): (4, 4),
        (1, "tree"): (0, 4),
        (2, "plain"): (4, 4),
        (2, "tree"): (0, 4),
    }
    assert [server["about"]["version"] for server in data["servers"]] == ["0.5.12"] * 2
    assert [one["order"] for one in data["rounds"]] == [["tree", "plain"], ["plain", "tree"]]
    assert len(behaviours[0].asked) == 3 * (2 + 2)  # warm-up too
    assert {body["text"] for body in behaviours[1].asked} == {"x", "y"}
    assert "warm-up 1 of 1\nround 1 of 2\nround 2 of 2" in done.stderr


def test_json_and_the_end_of_a_text() -> None:
    behaviour = Behaviour()
    with serve(behaviour) as url:
        done = servers(f"a={url}", *QUICK, "--no-ignore-eos", "--max-new-tokens", "14", "--json")
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert data["figures"][0]["accept_length"] == 3.5
    sampling = {"temperature": 0, "max_new_tokens": 14, "ignore_eos": False}
    assert behaviour.asked[0]["sampling_params"] == sampling


def test_a_server_that_dies_leaves_what_was_complete(tmp_path: Path) -> None:
    with serve(Behaviour()) as one, serve(Behaviour(dies_after=5)) as two:
        done = servers(f"a={one}", f"b={two}", *QUICK, "--out", str(tmp_path))
    assert done.exit_code == 2
    assert "Traceback" not in done.output
    assert done.stderr.splitlines()[-1].startswith(f"b: {two}/generate: ")
    data = json.loads((tmp_path / "servers.json").read_text())
    assert data["incomplete"] is True
    assert data["problem"] == done.stderr.splitlines()[-1]
    assert [(r["server"], r["rounds"], r["compared"]) for r in data["figures"]] == [
        ("a", 1, 2),
        ("b", 1, 2),
    ]
    assert "**Incomplete**, 1 of 2 rounds: b: " in done.stdout
    assert (tmp_path / "servers.md").read_text() == done.stdout


def test_a_server_that_dies_while_warming_up_has_no_figures(tmp_path: Path) -> None:
    with serve(Behaviour(dies_after=1)) as url:
        done = servers(f"a={url}", *QUICK, "--out", str(tmp_path))
    assert (done.exit_code, done.stdout) == (2, "")
    data = json.loads((tmp_path / "servers.json").read_text())
    assert (data["incomplete"], data["figures"], data["rounds"]) == (True, [], [])


def test_an_interruption_leaves_what_was_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import engine.server_bench.rounds as module

    real = module.rounds_of

    def interrupted(*words: Any) -> Any:
        yield next(real(*words))
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "rounds_of", interrupted)
    with serve(Behaviour()) as url:
        done = servers(f"a={url}", *QUICK, "--out", str(tmp_path))
    assert done.exit_code != 0
    data = json.loads((tmp_path / "servers.json").read_text())
    assert (data["incomplete"], data["problem"], len(data["rounds"])) == (True, "interrupted", 1)


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with serve(Behaviour()) as one:
        with serve(Behaviour()) as two:
            pass
        done = servers(f"a={one}", f"gone={two}", *QUICK, "--patience", "0", "--out", str(tmp_path))
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith(f"gone: not ready after 0 s: {two}/")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("http://x:1",), "server: expected NAME=URL, found 'http://x:1'"),
        (("a=ftp://x",), "a: server: expected http://host:port or https://host:port"),
        (("a=http://x", "a=http://y"), "server: expected each name once, found 'a' twice"),
        (("a=http://x", "--requests", "3"), "requests: expected at least 8"),
        (
            ("a=http://x", "--out", "/dev/null"),
            "out: expected a folder, found /dev/null (File exists)",
        ),
        (("a=http://x", "--key-env", "NOT_THERE"), "--key-env: expected a variable"),
    ],
)
def test_wrong_calls_are_one_line(words: tuple[str, ...], says: str) -> None:
    done = servers(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(says)
    assert done.stderr.count("\n") == 1


def test_a_key_is_sent_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "s3cret")
    with serve(Behaviour(key="s3cret")) as url:
        with_key = servers(f"a={url}", *QUICK, "--key-env", "MY_KEY", "--json")
        without = servers(f"a={url}", *QUICK)
    assert with_key.exit_code == 0, with_key.output
    assert "s3cret" not in with_key.output
    assert without.exit_code == 2
    assert "found 401: no key" in without.stderr


def test_help() -> None:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["bench", "servers", "--help"])
    assert done.exit_code == 0
    for word in ("NAME=URL", "--concurrency", "--warm-up", "--no-ignore-eos", "--key-env", "--out"):
        assert word in done.stdout
    assert servers().exit_code == 2
