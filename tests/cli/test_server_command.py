"""``ddtree server``: what it prints, and its exit status."""

from __future__ import annotations

import json
import socket
import time

import pytest
from typer.testing import CliRunner

from tests.server.pretend import Behaviour, serve
from workbench.cli import app


def server(*words: str):
    return CliRunner().invoke(app, ["server", *words])


def test_the_same_twice() -> None:
    with serve(Behaviour(ready_after=1)) as url:
        done = server(url, "--generate")
    assert done.exit_code == 0, done.output
    assert f"{url} (tiny): 2 of 2 prompts answered the same twice" in done.stdout
    assert "3.50 tokens a verify step, correct drafts 0:1 2:1 3:2" in done.stdout
    assert "sglang:spec_accept_length 3.25" in done.stdout
    assert "waiting for the server" in done.stderr


def test_answers_that_differ() -> None:
    with serve(Behaviour(texts=["one\x1b[31m", "on!!!!!!"])) as url:
        done = server(url, "--prompt", "x", "--generate")
        found = server(url, "--prompt", "x", "--json")
    assert done.exit_code == 1, done.output
    assert "differ first at character 2, token 2" in done.stdout
    assert "hint: one symbol again and again (1), first '!!!!!!'" in done.stdout
    assert "\x1b" not in done.stdout
    assert found.exit_code == 1
    report = json.loads(found.stdout)
    assert report["asked"][0]["first_character"] == 2
    assert report["asked"][0]["answers"][0]["speculation"]["verify_steps"] == 4


def test_foreign_texts_reach_no_terminal_as_they_are() -> None:
    text = "a\x1b[31m\x9b31m\u202e\U000e0001b"
    with serve(Behaviour(texts=[text])) as url:
        done = server(url, "--prompt", "x", "--json")
    assert all(c.isprintable() or c == "\n" for c in done.stdout)
    assert json.loads(done.stdout)["asked"][0]["answers"][0]["text"] == text
    path = "/v1/chat/completions"
    raw = {path: b"\x1b[31m\xc2\x9b31m", "/health": b"\x1b]0;x\x07"}
    with serve(Behaviour(raw=raw, status={path: 500}, ready_after=1)) as url:
        done = server(url)
    assert "\\x1b]0;x\\x07" in done.stderr
    assert "found 500: \\x1b[31m\\x9b31m" in done.stderr
    assert all(c.isprintable() or c == "\n" for c in done.stderr)


def test_what_does_not_answer_is_one_line() -> None:
    with serve(Behaviour(status={"/v1/chat/completions": 500})) as url:
        done = server(url)
    assert done.exit_code == 2
    assert "expected HTTP 200, found 500" in done.stderr.splitlines()[-1]
    assert server(url, "--patience", "0").exit_code == 2
    assert server("file:///etc/passwd").exit_code == 2


def test_a_server_that_asks_for_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "s3cret")
    with serve(Behaviour(key="s3cret")) as url:
        assert server(url, "--generate", "--key-env", "MY_KEY").exit_code == 0
        without = server(url, "--generate")
        absent = server(url, "--generate", "--key-env", "NOT_THERE")
        monkeypatch.setenv("MY_KEY", "a\nb")
        odd = server(url, "--generate", "--key-env", "MY_KEY")
    assert (without.exit_code, absent.exit_code, odd.exit_code) == (2, 2, 2)
    assert "expected HTTP 200, found 401: no key" in without.stderr
    assert "--key-env: expected a variable that holds the key, found none" in absent.stderr
    assert odd.stderr == "key: expected printable ASCII, found other characters in it\n"


def test_patience_bounds_the_first_question_too() -> None:
    """Something that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        done = server(f"http://127.0.0.1:{silent.getsockname()[1]}", "--patience", "1")
    assert done.exit_code == 2
    assert time.monotonic() - began < 6
    assert "not ready after 1 s" in done.stderr
