"""Hooks that step aside: what lies where meanwhile, and that what is recorded around it is whole."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from engine.sglang.attach import attach
from engine.sglang.control import Control
from engine.sglang.lift import Lift
from tests.sglang import server_double as double
from tests.sglang import worked
from tests.sglang.serving import Server

PATHS = [
    "held.Worker.work",
    "held.Worker.make",
    "held.Worker.alone",
    "held.count",
    "held.Heir.work",
]


@pytest.fixture
def held() -> Iterator[tuple[ModuleType, ModuleType]]:
    """A module with a class and a function, and one that has imported the function."""
    module, other = ModuleType("held"), ModuleType("holder")
    source = """
class Worker:
    def work(self): return "bare"
    @classmethod
    def make(cls): return "bare " + cls.__name__
    @staticmethod
    def alone(): return "bare"
class Heir(Worker): pass
def count(): return "bare"
"""
    exec(source, vars(module))
    other.counted = module.count  # type: ignore[attr-defined]
    sys.modules.update(held=module, holder=other)
    yield module, other
    del sys.modules["held"], sys.modules["holder"]


def hooked(module: ModuleType, other: ModuleType) -> Lift:
    """As SGLang's registry puts hooks on."""
    lift = Lift()
    for path in PATHS:
        lift.note(path)
    worker: Any = module.Worker
    bare = dict(vars(worker))
    worker.work = lambda self: "hooked " + bare["work"](self)
    worker.make = classmethod(lambda cls: "hooked " + bare["make"].__func__(cls))
    worker.alone = staticmethod(lambda: "hooked " + bare["alone"].__func__())
    original = module.count
    module.count = other.counted = lambda: "hooked " + original()  # type: ignore[attr-defined]
    lift.settle()
    return lift


def told(module: ModuleType, other: ModuleType) -> list[str]:
    heir = module.Heir
    return [heir().work(), heir.make(), heir.alone(), module.count(), other.counted()]


def test_hooks_come_off_everywhere_and_back(held: tuple[ModuleType, ModuleType]) -> None:
    bare = told(*held)
    lift = hooked(*held)
    assert told(*held) == ["hooked " + text for text in bare]
    for _ in range(2):
        lift.set(True)
        assert told(*held) == bare
        lift.set(True)
        lift.set(False)
        assert told(*held) == ["hooked " + text for text in bare]
    assert "work" not in vars(held[0].Heir)


def test_a_module_that_imports_meanwhile_gets_the_hook_too(
    held: tuple[ModuleType, ModuleType],
) -> None:
    lift = hooked(*held)
    late = ModuleType("late")
    lift.set(True)
    late.counted = held[0].count  # type: ignore[attr-defined]
    sys.modules["late"] = late
    try:
        for _ in range(2):
            assert late.counted() == "bare"
            lift.set(False)
            assert late.counted() == "hooked bare"
            lift.set(True)
    finally:
        del sys.modules["late"]


def test_what_another_plugin_laid_over_it_stays(held: tuple[ModuleType, ModuleType]) -> None:
    module, other = held
    lift = hooked(*held)
    mine = module.Worker.work
    module.Worker.work = lambda self: "theirs " + mine(self)
    lift.set(True)
    assert told(module, other)[:2] == ["theirs hooked bare", "bare Heir"]
    module.count = lambda: "theirs"  # type: ignore[attr-defined]
    lift.set(False)
    assert told(module, other) == [
        "theirs hooked bare", "hooked bare Heir", "hooked bare", "theirs", "hooked bare",
    ]  # fmt: skip


def test_a_path_that_was_not_hooked_is_left_alone(held: tuple[ModuleType, ModuleType]) -> None:
    lift = Lift()
    lift.note("held.Worker.work")
    lift.settle()
    lift.set(True)
    assert told(*held)[0] == "bare"


def all_written(server: Server, seen: int, written: int) -> bool:
    """Nothing else became of a step."""
    health = server.health()
    others = {name: count for name, count in health["steps"].items() if count}
    return others == {"seen": seen, "written": written} and not health["hook_errors"]


@pytest.mark.parametrize("replay", [False, True])
def test_only_the_hook_that_counts_stays(tmp_path: Path, replay: bool) -> None:
    """And the first steps after the hooks are back are recorded whole, whatever the turn's length."""
    for turn in (1, 2, 5):
        (tmp_path / f"{turn}").mkdir()
        (tmp_path / f"{turn}" / "control.json").write_text(f'{{"alternate": {turn}}}')
        with double.installed() as hook_on:
            server = Server(tmp_path / f"{turn}", attach(tmp_path / f"{turn}", hook_on, {}))
            backend = double.TritonAttnBackend
            with_hooks = backend.init_forward_metadata
            try:
                for number in range(6 * turn):
                    away = number // turn % 3 == 2
                    assert (backend.init_forward_metadata is not with_hooks) is away
                    if replay:
                        server.run_replay(worked.verify_input(), worked.batch(), 3)
                    else:
                        server.run_eager(worked.verify_input(), worked.batch())
            finally:
                assert server.tap.stop is not None
                server.tap.stop()
        assert all_written(server, 6 * turn, 2 * turn)


def test_hooks_come_back_when_turns_end(tmp_path: Path) -> None:
    (tmp_path / "control.json").write_text('{"alternate": 2}')
    with double.installed() as hook_on:
        server = Server(tmp_path, attach(tmp_path, hook_on, {}))
        tap = server.tap
        try:
            for _ in range(5):
                server.run_eager(worked.verify_input(), worked.batch())
            assert tap.lift.lifted
            (tmp_path / "control.json").unlink()
            tap.control = Control()
            for _ in range(3):  # the first was laid out before they were back
                server.run_eager(worked.verify_input(), worked.batch())
            assert not tap.lift.lifted
        finally:
            assert tap.stop is not None
            tap.stop()
    assert all_written(server, 8, 4)
