"""Steps that the tap loses: no other is lost with them, and none is told by another."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sglang import worked
from tests.sglang.recorded import steps
from tests.sglang.serving import Server
from tests.sglang.worked import ints


def test_a_step_that_cannot_be_put_together_costs_no_other(serve: Callable[[], Server]) -> None:
    class Broken:
        def made(self, batch: Any, recorded: bool) -> Any:
            raise RuntimeError("broken on purpose")

    server = serve()
    with server.tap.making:
        server.tap.unmade.append(Broken())  # type: ignore[arg-type]
    server.run_eager(worked.verify_input(), worked.batch())
    (step,) = steps(server, 1)
    assert (step.step, server.tap.counts.seen) == (0, 1)


FAILS_AT = {
    "begin": ("engine.sglang.verified", "begin"),
    "predict": ("engine.sglang.verified", "predict"),
    "finish": ("engine.sglang.tap:Tap", "finish"),
}


@pytest.mark.parametrize("where", FAILS_AT)
def test_a_step_that_the_tap_fails_at_is_lost_with_its_number(
    serve: Callable[[], Server], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """What the step after it began with is not what the step before it committed."""
    server, batch = serve(), worked.batch()
    server.pauses = True
    place, name = FAILS_AT[where]
    owner = pkgutil.resolve_name(place)
    original = getattr(owner, name)

    def failing(*given: Any, **named: Any) -> Any:
        if server.tap.counts.seen == 1:
            raise MemoryError("in the second step")
        return original(*given, **named)

    monkeypatch.setattr(owner, name, failing)
    for _ in range(4):
        server.run_eager(worked.verify_input(), batch)
        batch.out_cache_loc = ints(24, 25, 26, 27)
    found = steps(server, 3)
    assert [step.step for step in found] == [0, 2, 3]
    assert server.tap.counts.seen == 4
    assert server.tap.counts.errors + server.tap.counts.not_taken in (1, 2)
    assert (found[0].commit.seq_lens, found[0].commit.kv) == (None, None)
    assert found[1].commit.seq_lens is not None


def test_batches_that_know_no_requests_cost_no_step(serve: Callable[[], Server]) -> None:
    server, batch = serve(), worked.batch()
    server.pauses = True
    server.run_eager(worked.verify_input(), batch)
    unknown = SimpleNamespace(**vars(batch))
    unknown.reqs = None
    server.tap.make(unknown)
    (step,) = steps(server, 1)
    assert (step.commit.seq_lens, server.tap.counts.errors) == (None, 0)
