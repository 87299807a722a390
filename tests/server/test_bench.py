"""Servers measured beside each other: what is asked of whom and when, the figures, and what may go wrong."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from engine.server.client import ServerError, address_of
from engine.server.trial import Endpoint
from engine.server_bench.about import chosen
from engine.server_bench.data import Heading, data_of
from engine.server_bench.figures import figures_of, spread, step_ms
from engine.server_bench.lot import Door, Lot, ask_lot
from engine.server_bench.named import doors_of
from engine.server_bench.plan import Plan, rotated
from engine.server_bench.prompts import PROMPTS
from engine.server_bench.rounds import Round, ready, rounds_of
from engine.server_bench.table import lines
from tests.server.pretend import NEW, OLD, Behaviour, serve

SMALL = {"concurrency": (1,), "rounds": 3, "warm_up": 0, "requests": 2}


def quiet(words: str, share: float) -> None:
    pass


def run(plan: Plan, **behaviours: Behaviour) -> list[Round]:
    with ExitStack() as stack:
        doors = [
            Door(name, address_of(stack.enter_context(serve(behaviour))), 20)
            for name, behaviour in behaviours.items()
        ]
        return list(rounds_of(plan, doors, quiet))


def lot(seconds: float, *texts: str, tokens: int = 100, accept: float | None = None) -> Lot:
    return Lot(seconds, tokens, accept, texts or ("x",))


def row(rounds: list[Round], name: str, level: int = 1) -> dict[str, Any]:
    names = [name for number, name in rounds[0].lots if number == level]
    first = min(names)  # "a" in all that follows
    others = [name for name in names if name != first]
    (found,) = [r for r in figures_of(rounds, [first, *others], [level]) if r["server"] == name]
    return found


def test_a_server_twice_as_slow_has_half_the_speed() -> None:
    rounds = run(Plan(**SMALL), a=Behaviour(delay=0.1), b=Behaviour(delay=0.2))
    assert 0.4 < row(rounds, "b")["ratio"] < 0.75
    assert row(rounds, "a")["ratio"] == 1
    assert 30 < row(rounds, "a")["tokens_per_s"] < 140  # 14 tokens in 0.1 s at the most
    assert row(rounds, "b")["tokens"] == 3 * 2 * 14


def test_figures_are_exact_and_a_ratio_is_of_one_round() -> None:
    """The machine gets slower, both with it; one round in four is odd."""
    pairs = [(1.0, 0.5), (2.0, 1.0), (4.0, 2.0), (8.0, 16.0)]
    rounds = [Round(("a", "b"), {(1, "a"): lot(a), (1, "b"): lot(b)}) for a, b in pairs]
    mine = row(rounds, "b")
    assert mine["ratio"] == 2
    assert mine["ratio_quartiles"] == [1.625, 2.0]
    assert mine["tokens_per_s"] == 75
    assert mine["tokens_per_s_quartiles"] == [39.0625, 125.0]
    assert row(rounds, "a")["ratio_quartiles"] == [1, 1]
    assert mine["rounds"] == 4
    assert figures_of([], ["a"], [1]) == []
    assert spread([3.0]) == (3.0, 3.0)


def test_the_time_of_a_step_does_not_hang_on_what_is_accepted() -> None:
    """100 tokens in 2 s, 4 a step, are 25 steps of 80 ms; twice the acceptance in half the time is the same step."""
    lots = [Lot(2.0, 100, 4.0, ("x",)), Lot(1.0, 100, 8.0, ("x",)), Lot(1.0, 100, None, ("x",))]
    assert [step_ms(lot, 1) for lot in lots] == [80, 80, None]
    assert step_ms(lots[0], 8) == 640  # of each of eight requests at a time
    rounds = [Round(("a", "b"), {(1, "a"): lots[0], (1, "b"): lots[1]})] * 2
    (_, mine) = figures_of(rounds, ("a", "b"), (1,))
    assert (mine["ratio"], mine["step_ratio"], mine["step_ms"]) == (2, 1, 80)
    silent = [Round(("a", "b"), {(1, "a"): lots[2], (1, "b"): lots[1]})]
    assert figures_of(silent, ("a", "b"), (1,))[1]["step_ratio"] is None


def test_the_committed_table_is_its_datas() -> None:
    folder = Path(__file__).parents[2] / "fixtures/bench/ddtree"
    data = json.loads((folder / "servers.json").read_text())
    assert (folder / "servers.md").read_text().splitlines() == list(lines(data))


def test_texts_are_counted_beside_the_first_and_beside_themselves() -> None:
    said = [(("x", "y"), ("x", "z")), (("x", "y"), ("x", "y")), (("u", "y"), ("x", "y"))]
    rounds = [
        Round(("a", "b"), {(1, "a"): lot(1, *mine), (1, "b"): lot(1, *theirs)})
        for mine, theirs in said
    ]
    counts = ("equal", "compared", "repeated", "asked_again")
    assert [row(rounds, "a")[key] for key in counts] == [6, 6, 3, 4]
    assert [row(rounds, "b")[key] for key in counts] == [4, 6, 2, 4]


def test_texts_of_servers_that_differ() -> None:
    wide = "The ocean is wide."
    rounds = run(Plan(**SMALL), a=Behaviour(), b=Behaviour(texts=[wide, "The sea."]), c=Behaviour())
    assert [row(rounds, name)["equal"] for name in "abc"] == [6, 3, 6]
    assert {row(rounds, name)["compared"] for name in "abc"} == {6}


@pytest.mark.parametrize("endpoint", list(Endpoint))
def test_every_server_is_asked_the_same_in_the_same_order(endpoint: Endpoint) -> None:
    behaviours = {name: Behaviour() for name in "abc"}
    plan = Plan(concurrency=(1,), rounds=2, warm_up=1, requests=13, endpoint=endpoint)
    assert len(run(plan, **behaviours)) == 2
    first, *others = [behaviour.asked for behaviour in behaviours.values()]
    assert all(asked == first for asked in others)
    assert len(first) == 3 * 13
    assert first[:13] == first[13:26] == first[26:]
    chat = endpoint is Endpoint.CHAT
    words = [body["messages"][0]["content"] if chat else body["text"] for body in first[:13]]
    assert words == [*PROMPTS, PROMPTS[0]]
    sampling = first[0] if chat else first[0]["sampling_params"]
    assert (sampling["temperature"], sampling["ignore_eos"]) == (0, True)
    assert sampling["max_tokens" if chat else "max_new_tokens"] == 128
    if chat:
        assert (first[0]["model"], first[0]["return_meta_info"]) == ("tiny", True)


def test_each_server_is_first_in_turn() -> None:
    class Heard(list[dict[str, Any]]):
        """Of all servers, in one list."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def append(self, body: dict[str, Any]) -> None:
            super().append(body)
            order.append(self.name)

    order: list[str] = []
    plan = Plan(concurrency=(1, 2), rounds=3, warm_up=1, requests=2)
    rounds = run(plan, **{name: Behaviour(asked=Heard(name)) for name in "abc"})
    assert ["".join(one.order) for one in rounds] == ["bca", "cab", "abc"]
    expected = ["abc", "abc", "bca", "bca", "cab", "cab", "abc", "abc"]  # one a number in flight
    assert "".join(order) == "".join(name * 2 for turn in expected for name in turn)
    assert [rotated(number, "xy") for number in range(3)] == [["x", "y"], ["y", "x"], ["x", "y"]]


def test_so_many_requests_are_in_flight() -> None:
    behaviour = Behaviour(delay=0.15)
    (found,) = run(Plan(concurrency=(4,), rounds=1, warm_up=0, requests=10), a=behaviour)
    assert behaviour.most_in_flight == 4
    assert len(behaviour.asked) == 10
    assert 0.45 <= found.lots[4, "a"].seconds < 1.4  # three times 0.15 s; one by one: 1.5 s
    assert [Plan().requests_at(level) for level in (1, 2, 8)] == [4, 4, 16]


def test_answers_are_kept_in_the_order_of_the_requests() -> None:
    """One server, four in flight: each answer is of its request, whichever comes first."""
    texts = [f"text {number}" for number in range(6)]
    behaviour = Behaviour(texts=texts)
    with serve(behaviour) as url:
        bodies = [{"text": str(number)} for number in range(6)]
        found = ask_lot(Door("a", address_of(url), 20), bodies, 4, Endpoint.GENERATE)
    heard = [int(body["text"]) for body in behaviour.asked]
    assert [found.texts[number] for number in heard] == texts


@pytest.mark.parametrize(("meta", "length"), [(NEW, 3.5), (OLD, 3.5), ({}, None)])
def test_acceptance_under_either_name(meta: dict[str, Any], length: float | None) -> None:
    rounds = run(Plan(**SMALL), a=Behaviour(meta=meta))
    assert row(rounds, "a")["accept_length"] == length
    data = data_of(Plan(**SMALL), [Door("a", address_of("http://x"))], {}, rounds, Heading())
    cells = next(line for line in lines(data) if line.startswith("| 1 | a |")).split(" | ")
    assert cells[6] == ("–" if length is None else "3.50")


def test_a_server_that_dies_is_named_and_what_was_complete_is_known() -> None:
    done: list[Round] = []
    behaviours = [Behaviour(), Behaviour(dies_after=5)]
    with serve(behaviours[0]) as one, serve(behaviours[1]) as two:
        doors = doors_of([f"a={one}", f"b={two}"], timeout=20, key=None)
        with pytest.raises(ServerError, match=rf"^b: {two}/generate: ") as caught:
            done.extend(iter(rounds_of(Plan(**SMALL), doors, quiet)))
    assert "\n" not in str(caught.value)
    assert len(done) == 2


def test_one_failure_ends_the_others() -> None:
    with serve(Behaviour(delay=4, dies_after=3)) as url:
        started = time.monotonic()
        with pytest.raises(ServerError, match=r"/generate: "):
            ask_lot(Door("a", address_of(url), 20), [{"text": "x"}] * 8, 4, Endpoint.GENERATE)
        assert time.monotonic() - started < 2
    assert not [t for t in threading.enumerate() if t.name in ("bench request", "server call")]


def test_a_server_that_is_not_there() -> None:
    with serve(Behaviour()) as one:
        with serve(Behaviour()) as two:
            pass
        doors = doors_of([f"a={one}", f"b={two}"], timeout=20, key=None)
        with pytest.raises(ServerError, match=rf"^b: not ready after 0 s: {two}/"):
            ready(doors, 0, quiet)
    with serve(Behaviour(ready_after=1)) as one:
        ready(doors_of([f"a={one}"], timeout=20, key=None), 20, quiet)


def test_answers_without_a_number_of_tokens_have_no_speed() -> None:
    raw = {"/generate": b'{"text": "x"}'}
    with pytest.raises(ServerError, match=r"^a: .*/generate: expected completion_tokens"):
        run(Plan(**SMALL), a=Behaviour(raw=raw))


def test_the_table_says_what_the_data_say() -> None:
    plan = Plan(concurrency=(1, 8), rounds=2)
    lots = {(n, s): lot(2 / n, "x", "y", accept=2.5) for n in (1, 8) for s in ("a|1", "b")}
    rounds = [Round(("a|1", "b"), {**lots, (8, "b"): lot(s, "x", "z")}) for s in (0.125, 0.5)]
    doors = doors_of(["a|1=http://x:1", "b=http://y:2/v1"], timeout=1, key="s3cret")
    abouts = {"b": {"version": "0.5\x1b[31m", "model_path": "m"}}
    heading = Heading("T\nx", "of | note", "ddtree bench servers")
    text = json.dumps(data_of(plan, doors, abouts, rounds, heading))
    found = list(lines(json.loads(text)))
    assert found == list(lines(data_of(plan, doors, abouts, rounds, heading) | _date(text)))
    assert found[0] == "# T\\nx"
    assert "of \\| note" in found
    assert (
        "| 1 | a\\|1 | 50.0 | 50.0–50.0 | 1.000 | 1.000–1.000 "
        "| 2.50 | 50.000 | 1.000 | 1.000–1.000 | 200 | 4/4 | 2/2 |" in found
    )
    assert (
        "| 8 | b | 500.0 | 350.0–650.0 | 1.250 | 0.875–1.625 | – | – | – | – | 200 | 2/4 | 2/2 |"
        in found
    )
    assert "- b (http://y:2): version 0.5\\x1b[31m, model_path m" in found
    assert "- a\\|1 (http://x:1): says nothing of itself" in found
    assert "s3cret" not in text
    assert not [line for line in found if "Incomplete" in line]
    assert all(line.isprintable() for line in found)
    figures = json.loads(text)["figures"]
    assert [(one["concurrency"], one["server"]) for one in figures] == [
        *((1, "a|1"), (1, "b")),
        *((8, "a|1"), (8, "b")),
    ]


def _date(text: str) -> dict[str, Any]:
    return {"date": json.loads(text)["date"]}


def test_an_incomplete_run_says_so() -> None:
    plan, doors = Plan(concurrency=(1,), rounds=3), [Door("a", address_of("http://x"))]
    rounds = [Round(("a",), {(1, "a"): lot(1)})]
    data = data_of(plan, doors, {}, rounds, Heading(), "a: http://x: it died")
    assert data["incomplete"] is True
    assert "**Incomplete**, 1 of 3 rounds: a: http://x: it died." in list(lines(data))
    assert data_of(plan, doors, {}, rounds * 3, Heading())["incomplete"] is False
    few = "Fewer than 5 rounds tell little of noise."
    assert few in list(lines(data))
    assert few not in list(lines(data_of(plan, doors, {}, rounds * 5, Heading())))
    assert "**Incomplete**, 0 of 3 rounds." in list(lines(data_of(plan, doors, {}, [], Heading())))


def test_secrets_of_a_server_are_not_kept() -> None:
    info = {
        **{"version": "1", "api_key": "s3cret", "admin_api_key": "s3cret", "model_path": "m"},
        **{"speculative_algorithm": "NGRAM", "speculative_ngram_capacity": 7, "dtype": None},
        **{"disable_radix_cache": False, "internal_states": [{}], "speculative_odd": ["x"]},
    }
    assert chosen(info) == {
        **{"version": "1", "model_path": "m", "disable_radix_cache": "False"},
        **{"speculative_algorithm": "NGRAM", "speculative_ngram_capacity": "7"},
    }


@pytest.mark.parametrize(
    "words",
    [
        ["http://x:1"],
        ["http://x:1/?a=b"],
        ["=http://x"],
        ["a"],
        ["a="],
        ["a=ftp://x"],
        ["a\n=http://x"],
        [" a=http://x"],
        ["a=http://x", "a=http://y"],
        [],
    ],
)
def test_only_names_with_addresses(words: list[str]) -> None:
    with pytest.raises(ValueError, match="server: expected"):
        doors_of(words, timeout=1, key=None)


@pytest.mark.parametrize(
    "wrong", [{"requests": 7}, {"prompts": ()}, {"rounds": 0}, {"concurrency": ()}]
)
def test_a_plan_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected at least"):
        Plan(**wrong)


def test_it_needs_little_on_the_machine_that_measures() -> None:
    code = (
        "import sys, importlib, pkgutil, engine.server_bench as package, workbench.cli.bench_servers\n"
        "for m in pkgutil.iter_modules(package.__path__, 'engine.server_bench.'):\n"
        "    importlib.import_module(m.name)\n"
        "print(' '.join(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "typer" in loaded
    heavy = {"torch", "streamlit", "plotly", "pyarrow", "pydantic", "transformers", "pandas"}
    assert not loaded & heavy
