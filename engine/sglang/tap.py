"""Tap: what the hooks of one process share. It follows one step through them and hands it to the ring.

Every hook runs through :meth:`Tap.around`: the server's function is called exactly once with its own arguments, and
whatever goes wrong on the tap's side is counted, never raised.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.sglang.control import Control
from engine.sglang.host import HostCopies, NotCopied
from engine.sglang.laid import Laid
from engine.sglang.lift import Lift
from engine.sglang.pace import Pace
from engine.sglang.parcel import Parcel
from engine.sglang.raw import RawStep, Tree
from engine.sglang.ring import Ring
from engine.sglang.verified import LINKS, Verifying

PENDING = 4  # layouts that may wait for their verification: a drafter's blocks are among them

Before = Callable[["Tap", dict[str, Any]], Any]
After = Callable[["Tap", Any, Any, dict[str, Any]], None]


@dataclass(frozen=True)
class Handler:
    """What happens around one function; ``after`` gets what ``before`` returned, then the result."""

    before: Before | None = None
    after: After | None = None
    counts: bool = False  # steps, also those that are not recorded
    always: bool = False  # also when the next verification is not to be recorded


@dataclass
class Counts:
    """What became of the steps; written by the server's thread."""

    seen: int = 0  # verifications
    unmatched: int = 0  # verifications whose layout was not seen
    not_taken: int = 0  # arrays beyond their bounds, lengths that the host does not know
    errors: int = 0  # faults of the tap itself, none of which reached the server
    last_error: str | None = None


@dataclass
class Spent:
    """Seconds of the server's thread that a hook has taken before and after the server's own function."""

    before: float = 0.0
    after: float = 0.0


@dataclass
class Tap:
    """State of one process."""

    ring: Ring = field(default_factory=Ring)
    spent: dict[str, Spent] = field(default_factory=dict)
    control: Control = field(default_factory=Control)  # replaced as a whole by the feeder's thread
    counts: Counts = field(default_factory=Counts)
    start: Callable[[Any], None] | None = (
        None  # called with the scheduler, or None where there is none
    )
    stop: Callable[[], None] | None = None  # ends the recording, once it has started
    early: bool = False  # layouts are read at once: in this version nothing is watched between them and the end
    pending: deque[Laid] = field(default_factory=lambda: deque(maxlen=PENDING))
    tree: Tree | None = None
    tree_copies: HostCopies | None = None
    tree_mask: Any = None  # NGRAM's, which it writes the next one over
    verifying: Verifying | None = None
    walk: HostCopies | None = None  # of the step's acceptance before stops cut it
    held: RawStep | None = None  # waits for the move of its KV rows
    unmade: deque[Verifying] = field(default_factory=deque)  # to be put together, in order
    making: threading.Lock = field(default_factory=threading.Lock)  # of who puts steps together
    pace: Pace = field(default_factory=Pace)
    lift: Lift = field(default_factory=Lift)
    walks: bool = False  # the last step's acceptance was seen before stops cut it

    @property
    def wanted(self) -> bool:
        """Whether the next verification is to be recorded."""
        ready = self.start is None and not self.lift.lifted
        return ready and self.control.wants(self.counts.seen)

    def turn(self, requests: tuple[int, ...]) -> bool:
        """A verification of these begins: whether it is recorded. Hooks step aside for the next or come back for it."""
        wanted, lift, number = self.wanted, self.lift, self.counts.seen
        if self.control.alternate:
            kind = "recorded" if wanted else "away" if lift.lifted else "resting"
            self.pace.step(requests, kind)
        lift.set(not wanted and self.control.away(number + 1))
        return wanted

    def around(
        self, handler: Handler, names: tuple[str, ...], label: str = "hook"
    ) -> Callable[..., Any]:
        """The hook; ``names``: parameters of the watched function in order. ``label``: its time is counted under."""

        before, after, counts = handler.before, handler.after, handler.counts
        always = handler.always or counts
        clock, spent = time.perf_counter, self.spent.setdefault(label, Spent())

        def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if not always and not self.wanted:
                return original(*args, **kwargs)
            seen = self.counts.seen
            held, bound = None, dict(zip(names, args))  # noqa: B905
            if kwargs:
                bound.update(kwargs)
            if before is not None:
                begun = clock()
                try:
                    held = before(self, bound)
                except Exception as error:
                    self._failed(error, seen if counts else None)
                    return original(*args, **kwargs)
                spent.before += clock() - begun
            result = original(*args, **kwargs)
            if after is not None:
                begun = clock()
                try:
                    after(self, held, result, bound)
                except Exception as error:
                    self._failed(error, seen if counts else None)
                spent.after += clock() - begun
            return result

        return hook

    def _failed(self, error: Exception, seen: int | None = None) -> None:
        """``seen``: verifications before the one that failed, which has a number of its own though it is lost."""
        if seen == self.counts.seen:
            self.counts.seen += 1
            self.forget()
        if isinstance(error, NotCopied):
            self.counts.not_taken += 1
            self.counts.last_error = str(error)[:500]
        else:
            self.counts.errors += 1
            self.counts.last_error = f"{type(error).__name__}: {error}"[:500]

    def add_laid(self, laid: Laid) -> None:
        """Keep the layout of a step that is about to run."""
        self.pending.append(laid)
        if self.early and laid.graph == "eager":
            laid.read().mark()

    def laid_of(self, spec_info: Any) -> Laid | None:
        """The latest layout of a step."""
        return next((laid for laid in reversed(self.pending) if laid.spec_info is spec_info), None)

    def release(self) -> None:
        """Hand over the step that waited for a move."""
        held, self.held = self.held, None
        if held is not None:
            self._put(held)

    def make(self, batch: Any = None, *, recorded: bool = False) -> None:
        """Put together what is still to be and hand it over; called where the server is about to wait anyway.

        ``batch``: what is verified next, and whether that is recorded. What the feeder is at, having found it lying, is
        left to it.
        """
        if self.unmade and self.making.acquire(blocking=False):
            try:
                while self.unmade:
                    self._make_one(batch, recorded)
            finally:
                self.making.release()

    def _make_one(self, batch: Any, recorded: bool) -> None:
        try:
            self._put(self.unmade.popleft().made(batch, recorded))
        except Exception as error:  # of this step: the verification that begins goes on
            self._failed(error)

    def _put(self, step: RawStep) -> None:
        """Hand over, with its message: made here, where the server waits soon, not where it would wait for that."""
        try:
            self.ring.put(Parcel.of(step))
        except Exception as error:  # of this step: the verification that begins goes on
            self._failed(error)

    def forget(self) -> None:
        """Let go of what was seen of a step that is not recorded: it is no other step's."""
        self.pending.clear()
        self.take_tree()

    def take_tree(self) -> tuple[Tree, HostCopies | None]:
        """What the tree's builder told of the step that begins, once."""
        tree, copies, mask = self.tree, self.tree_copies, self.tree_mask
        self.tree = self.tree_copies = self.tree_mask = None
        if mask is not None:
            return Tree("ngram", mask=np.array(mask)), None
        return tree or LINKS, copies

    def finish(self, step: Verifying, hold: bool = False) -> None:
        """Leave a step to be put together, or hold it for its move; counts it."""
        if self.held is not None:
            self.release()
        counts = self.counts
        step.number = counts.seen
        counts.seen += 1
        laid = step.laid = step.laid or self.laid_of(step.spec_info)
        self.pending.clear()
        self.verifying = self.walk = None
        if laid is None:
            self.counts.unmatched += 1
            self.counts.last_error = (
                f"{type(step.spec_info).__name__}: expected a layout by the Triton backend before its "
                "verification, found none (another attention backend?)"
            )
            return
        if laid.layout is None:
            laid.read().mark()
        step.logits = None  # the server's next forward may need the memory
        if hold:
            self.make()
        if hold and not self.unmade:  # else the feeder is at one before it, which comes first
            self.held = step.made()
        else:
            self.unmade.append(step)
