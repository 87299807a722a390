"""The server panel of the Live page, against a real server."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from app_driver import figures, open_app
from app_driver import words as shown

from tests.server.pretend import Behaviour, serve


def words(at) -> str:
    return shown(at).replace("\\", "")


def ask(at, url: str, endpoint: str = "chat"):
    at.text_input(key="server url").set_value(url)
    at.selectbox(key="server endpoint").set_value(endpoint)
    at.button(key="server ask").click().run()
    return at


def wait(at, text: str):
    deadline = time.monotonic() + 20
    while text not in words(at):
        assert time.monotonic() < deadline, words(at)
        time.sleep(0.1)
        at.run()
    assert not at.exception
    return at


def test_two_prompts_twice(traces: Path) -> None:
    behaviour = Behaviour(texts=["<script>alert(1)</script> $x$ The sea."])
    at = open_app("live")
    assert "Nothing is sent before the button is pressed" in words(at)
    with serve(behaviour) as url:
        at = wait(ask(at, url, "generate"), "2 prompts answered the same twice")
    assert len(behaviour.asked) == 4
    assert [code.value for code in at.code].count("<script>alert(1)</script> $x$ The sea.") == 4
    assert not any(markdown.proto.allow_html for markdown in at.markdown)
    assert "3.50 tokens a verify step · 10 of 20 drafts correct" in words(at)
    assert figures(at)[0]["data"][0]["name"] == "verify steps"
    assert "0.5.12" in at.dataframe[0].value["value"].tolist()


def test_answers_that_part_and_look_odd(traces: Path) -> None:
    texts = ["The ocean is wide.", "The ocean.r!!!!!!!"]
    with serve(Behaviour(texts=texts, meta={})) as url:
        at = wait(ask(open_app("live"), url), "2 of 2 prompts answered differently")
    assert "they part at character 9: ' is wide.' against '.r!!!!!!!'" in words(at)
    assert "hint, no verdict: one symbol again and again, 1 place" in words(at)
    assert "no meta_info on speculation" in words(at)
    assert not at.error


def test_answers_that_are_no_text(traces: Path) -> None:
    with serve(Behaviour(texts=["a\ud800\x1b\n\tb"], version="\ud800")) as url:
        at = wait(ask(open_app("live"), url), "2 prompts answered the same twice")
    assert at.code[0].value == "a‹D800›‹1B›\n\tb"
    assert "‹D800›" in at.dataframe[0].value["value"].tolist()


def test_waiting_can_be_stopped(traces: Path) -> None:
    with serve(Behaviour(ready_after=10**6)) as url:
        at = ask(open_app("live"), url)
        at.button(key="server stop").click().run()
        wait(at, "It was stopped.")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "expected http://host:port"),
        ("file:///etc/passwd", "expected http://host:port"),
        ("{url}", "could not be asked"),
    ],
)
def test_what_cannot_be_asked_is_a_sentence(url: str, says: str, traces: Path) -> None:
    with serve(Behaviour(status={"/v1/chat/completions": 500})) as address:
        wait(ask(open_app("live"), url.format(url=address)), says)


def test_a_key_goes_with_every_question(traces: Path) -> None:
    with serve(Behaviour(key="s3cret")) as url:
        at = open_app("live")
        at.text_input(key="server key").set_value("s3cret")
        wait(ask(at, url), "2 prompts answered the same twice")
        at.text_input(key="server key").set_value("wrong")
        wait(ask(at, url), "expected HTTP 200, found 401")
    assert "s3cret" not in words(at)
    at.text_input(key="server key").set_value("ü")
    assert "key: expected printable ASCII" in words(ask(at, url))
