"""What a check says: one finding names place, expected, found, cause and effect."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """How serious a finding is."""

    FAULT = "fault"
    LATENT = "latent"  # wrong, but nothing reads it yet
    NEAR_TIE = "near-tie"  # numerics, nobody's fault
    SKIPPED = "skipped"  # an input was missing; the message names it


class Effect(StrEnum):
    """What the user of the server notices."""

    OUTPUT = "output"
    ACCEPTANCE = "acceptance"
    CRASH = "crash"
    HANG = "hang"
    LATENT = "latent"
    NONE = "none"


@dataclass(frozen=True)
class Where:
    """First place that differs. Rows are flat row ids; ``column`` counts prefix, then nodes."""

    node: int | None = None
    row: int | None = None
    column: int | None = None
    layer: int | None = None
    byte: int | None = None  # offset into custom_mask
    cells: tuple[tuple[int, int], ...] | None = None  # the first 64


@dataclass(frozen=True)
class Finding:
    """One finding per check, step, rank and request (``request`` None: the whole step)."""

    check: str  # "I1" … "I22"
    name: str  # "row-extents"
    verdict: Verdict
    step: int | None
    rank: int | None
    request: str | None
    diagnosis: str | None
    message: str
    hint: str = ""
    effect: Effect = Effect.NONE
    where: Where = field(default_factory=Where)
    expected: Any = None  # plain JSON values
    found: Any = None
    count: int = 0  # cells or entries that differ
    consequence_of: str | None = None  # the check that explains this one

    @property
    def is_cause(self) -> bool:
        """A fault that no earlier finding explains."""
        return self.verdict is Verdict.FAULT and self.consequence_of is None

    def explained_by(self, check: str | None) -> Finding:
        """The same finding as a consequence of ``check``, or of nothing."""
        return replace(self, consequence_of=check)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON in the field order of the checker's contract."""
        where = asdict(self.where)
        where["cells"] = (
            None if self.where.cells is None else [list(cell) for cell in self.where.cells]
        )
        return {
            "check": self.check,
            "name": self.name,
            "verdict": str(self.verdict),
            "step": self.step,
            "rank": self.rank,
            "request": self.request,
            "where": where,
            "expected": self.expected,
            "found": self.found,
            "count": self.count,
            "diagnosis": self.diagnosis,
            "message": self.message,
            "hint": self.hint,
            "effect": str(self.effect),
            "consequence_of": self.consequence_of,
        }
