"""What came of one cell: facts alone; what they mean is judged elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from engine.isolate.cell import Cell


@dataclass(frozen=True)
class Compared:
    """One request of a cell beside plain decoding of its prompt on the same backend. None: not told.

    A cell is run twice; ``text`` is that of the run that leaves plain decoding's text first. A text that was sampled
    where speculation and plain decoding draw different random numbers need not equal plain decoding's: it is
    ``sampled``, and its ``first_difference`` is a fact without a meaning.
    """

    prompt: str
    text: str
    plain_text: str
    tokens: tuple[int, ...] | None  # that were generated
    plain_tokens: tuple[int, ...] | None
    first_difference: int | None  # index of the first token that differs; None: there is none
    # By how much plain decoding prefers its own token there: logits, or log-probabilities of a server.
    margin: float | None = None
    near_tie: bool | None = None  # rounding alone explains the difference
    repeats: bool | None = None  # both runs gave one text
    plain_parts: int | None = None  # index at which a second plain run differs; None: it does not
    plain_near_tie: bool | None = None  # rounding alone explains that
    accept_length: float | None = None  # tokens a verify step, bonus included
    sampled: bool = False  # another text than plain decoding's is no error

    def at_tie(self, tie: float) -> Compared:
        """With a margin below ``tie`` as a near-tie, and no other."""
        return self if self.margin is None else replace(self, near_tie=self.margin < tie)


@dataclass(frozen=True)
class Measured:
    """One cell, once. ``findings``: of each check, its own ones, without those that another explains."""

    cell: Cell
    requests: tuple[Compared, ...] = ()
    seconds: float = 0.0  # of the whole cell
    tokens_per_s: float | None = None
    plain_tokens_per_s: float | None = None
    findings: dict[str, int] | None = None  # None: nothing was checked
    diagnoses: dict[str, int] = field(default_factory=dict)  # the same by diagnosis
    effects: dict[str, int] = field(default_factory=dict)  # the same by effect
    sentence: str | None = None  # of the first finding
    trace: str | None = None  # file name of the recording, beside the results
    error: str | None = None  # why it could not be measured

    @property
    def accept_length(self) -> float | None:
        """Mean over its requests."""
        known = [r.accept_length for r in self.requests if r.accept_length is not None]
        return sum(known) / len(known) if known else None
