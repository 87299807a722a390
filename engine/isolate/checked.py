"""What the checks say about a cell's recording, in the few words that a result keeps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from engine.checks.trace_checker import Report
from engine.isolate.measured import Measured


@dataclass(frozen=True)
class Checked:
    """Causes alone: findings that another explains are left out."""

    findings: dict[str, int]  # by check
    diagnoses: dict[str, int]  # by diagnosis; the check's name where it has none
    effects: dict[str, int]  # by what the user of the server notices
    sentence: str | None  # of the first

    @classmethod
    def of(cls, report: Report) -> Checked:
        """Of a whole recording."""
        causes = report.causes
        first = causes[0] if causes else None
        return cls(
            dict(Counter(finding.name for finding in causes)),
            dict(Counter(finding.diagnosis or finding.name for finding in causes)),
            dict(Counter(str(finding.effect) for finding in causes)),
            None if first is None else f"step {first.step}: {first.message}",
        )

    def beside(self, done: Measured, trace: str | None) -> Measured:
        """The result with this in it, and with the name of the recording."""
        return replace(
            done,
            findings=self.findings,
            diagnoses=self.diagnoses,
            effects=self.effects,
            sentence=self.sentence,
            trace=trace,
        )
