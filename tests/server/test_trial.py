"""A server asked: readiness, answers, what it says of its speculation, and everything that may go wrong."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

import pytest

from engine.server.client import Client, ServerError, address_of
from engine.server.facts import metrics_of, settings_of, speculation_of
from engine.server.ready import wait_ready
from engine.server.trial import PROMPTS, Endpoint, first_difference, run_trial
from tests.server.pretend import METRICS, NEW, OLD, Behaviour, serve


def quiet(words: str, share: float) -> None:
    pass


def client(url: str, **options) -> Client:
    return Client(address_of(url), **{"timeout": 20, **options})


@pytest.mark.parametrize("endpoint", list(Endpoint))
def test_both_answers_the_same(endpoint: Endpoint) -> None:
    behaviour = Behaviour()
    with serve(behaviour) as url:
        trial = run_trial(client(f"{url}/v1/"), PROMPTS, endpoint=endpoint, max_tokens=14)
    assert trial.same
    assert (trial.model, trial.address) == ("tiny", url)
    assert [len(asked.answers) for asked in trial.asked] == [2, 2]
    answer = trial.asked[0].answers[0]
    assert (answer.tokens, answer.text) == (14, "The ocean is wide.")
    assert answer.tokens_a_second is not None
    assert answer.speculation is not None
    assert (answer.speculation.accept_length, answer.speculation.histogram) == (3.5, (1, 0, 1, 2))
    assert trial.metrics == (("sglang:spec_accept_length", 3.25),)
    assert ("version", "0.5.12") in trial.settings
    assert ("internal_states[0].avg_spec_accept_length", "3.100") in trial.settings
    asked = behaviour.asked[0]
    sampling = asked["sampling_params"] if endpoint is Endpoint.GENERATE else asked
    assert sampling["temperature"] == 0
    assert len(behaviour.asked) == 4


def test_answers_that_part_name_the_first_place_and_look_odd() -> None:
    behaviour = Behaviour(texts=["The ocean is wide.", "The ocean poemownersWrite!!!!!!"])
    with serve(behaviour) as url:
        trial = run_trial(client(url), ["x"], endpoint=Endpoint.GENERATE)
    (asked,) = trial.asked
    assert not trial.same
    assert (asked.first_character, asked.first_token) == (10, 10)
    assert asked.signals[0] == ()
    assert {signal.kind for signal in asked.signals[1]} == {
        "one symbol again and again",
        "no space where one belongs",
    }


def test_a_slow_start_is_waited_for() -> None:
    said: list[tuple[str, float]] = []
    with serve(Behaviour(ready_after=3)) as url:
        waited = wait_ready(client(url), 30, lambda *told: said.append(told), sleep=lambda _: None)
    assert len(said) == 3
    assert "503" in said[0][0]
    assert waited >= said[-1][1] >= 0


def test_a_server_that_never_gets_ready_is_given_up() -> None:
    with (
        serve(Behaviour(ready_after=10**6)) as url,
        pytest.raises(ServerError, match="not ready after"),
    ):
        wait_ready(client(url), 0.2, quiet)
    with pytest.raises(ServerError, match="not ready after"):  # nobody listens any more
        wait_ready(client(url), 0.1, quiet)


@pytest.mark.parametrize(("status", "ready"), [(404, True), (401, False)])
def test_a_server_without_a_health_question(status: int, ready: bool) -> None:
    with serve(Behaviour(status={"/health": status})) as url:
        if ready:
            assert wait_ready(client(url), 5, quiet) >= 0
        else:
            with pytest.raises(ServerError, match="401"):
                wait_ready(client(url), 5, quiet)


@pytest.mark.parametrize("head", [b"", b"Content-Length: 1000000\r\n"])
def test_a_call_that_is_given_up_leaves_no_thread(head: bytes) -> None:
    listening = socket.create_server(("127.0.0.1", 0))

    def trickle() -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
            while True:
                connection.sendall(b" ")
                time.sleep(0.05)

    thread = threading.Thread(target=trickle, daemon=True)
    thread.start()
    with listening, pytest.raises(ServerError, match=r"no whole answer within 0\.3 s"):
        client(f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=0.3).get("/metrics")
    thread.join(10)
    assert not thread.is_alive()
    assert not [t for t in threading.enumerate() if t.name == "server call"]


def test_a_call_can_be_given_up_and_has_an_end() -> None:
    class GivenUp(Exception):
        pass

    def stop() -> None:
        if time.monotonic() - started > 0.2:
            raise GivenUp

    with serve(Behaviour(delay=3)) as url:
        started = time.monotonic()
        with pytest.raises(GivenUp):
            run_trial(client(url, tick=stop), ["x"])
        with pytest.raises(ServerError, match=r"no whole answer within|timed out"):
            run_trial(client(url, timeout=0.3), ["x"])
        assert time.monotonic() - started < 2.5


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "expected JSON"),
        (b"<html>", "expected"),
        (b"[]", "expected choices"),
        (b'{"choices": [{"message": {"content": 7}}]}', "expected choices"),
        (b"\xff\xfe", "expected JSON"),
        (b"[" * 100_000, "expected"),
        (b" " * (9 << 20), "at most 8388608 bytes"),
    ],
)
def test_garbage_is_one_sentence(raw: bytes, says: str) -> None:
    with serve(Behaviour(raw={"/v1/chat/completions": raw})) as url:
        with pytest.raises(ServerError, match=says) as caught:
            run_trial(client(url), ["x"])
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith(f"{url}/v1/chat/completions: ")


@pytest.mark.parametrize("status", [302, 400, 500])
def test_errors_and_redirects_are_not_followed(status: int) -> None:
    with (
        serve(Behaviour(status={"/v1/chat/completions": status})) as url,
        pytest.raises(ServerError, match=f"expected HTTP 200, found {status}"),
    ):
        run_trial(client(url), ["x"])


def test_odd_facts_are_not_believed() -> None:
    odd = {
        "/v1/models": b'{"data": [{"id": 7}]}',
        "/metrics": b"\xff\xfe\x00",
        "/server_info": b"[1]",
    }
    meta = {"spec_accept_length": "many", "spec_verify_ct": -1, "spec_accept_histogram": [1, None]}
    with serve(Behaviour(raw=odd, meta=meta)) as url:
        trial = run_trial(client(url), ["x"])
    assert (trial.model, trial.metrics, trial.settings) == (None, (), ())
    assert trial.asked[0].answers[0].speculation is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:30000",
        "ftp://x",
        "file:///etc/passwd",
        "http://",
        "http://u:p@x",
        "http://x:99999",
        "http://x/?a=b",
        "http://x y",
        "http://x\nHost: y",
    ],
)
def test_only_http_addresses(url: str) -> None:
    with pytest.raises(ValueError, match="server"):
        address_of(url)


def test_names_of_both_versions() -> None:
    new, old = speculation_of(NEW, 14), speculation_of(OLD, 14)
    assert new is not None
    assert old is not None
    assert new.accept_length == old.accept_length == 3.5
    assert new.histogram == old.histogram
    assert new.correct_drafts == old.correct_drafts == 10
    assert speculation_of({"completion_tokens": 3}, 3) is None
    assert speculation_of({"spec_accept_histogram": {"0": 1, "2": 5}}, 3).histogram == (1, 0, 5)  # type: ignore[union-attr]
    assert metrics_of(METRICS) == (("sglang:spec_accept_length", 3.25),)
    assert settings_of({"version": "1", "internal_states": [{}, 7]}) == (("version", "1"),)


def test_first_difference() -> None:
    assert first_difference("abc", "abd") == 2
    assert first_difference("abc", "ab") == 2
    assert first_difference("", "") is None
