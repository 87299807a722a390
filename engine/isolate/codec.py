"""Experiments and results as JSON, and back: whatever a file says is checked field by field."""

from __future__ import annotations

from collections import Counter
from typing import Any, Generic, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from engine.isolate.cell import Cell
from engine.isolate.experiment import Experiment, LocalSubject, ServerSubject
from engine.isolate.matrix import Matrix
from engine.isolate.measured import Compared, Measured
from engine.isolate.plain import PlainAnswer, PlainBatch
from engine.trace.errors import FieldProblem
from engine.trace.json_codec import parse_json

MAX_BYTES = 8 << 20  # of one line
T = TypeVar("T")


class Codec(Generic[T]):
    """One dataclass as one line of JSON."""

    def __init__(self, kind: type[T]) -> None:
        self._adapter: TypeAdapter[T] = TypeAdapter(kind)

    def dumps(self, value: T) -> str:
        """One line, without its newline."""
        return self._adapter.dump_json(value).decode()

    def loads(self, text: str, where: str) -> T:
        """``where``: file and line for the message. Raises ``ValueError`` with place, expected and found."""
        try:
            parse_json(text, MAX_BYTES)  # refuses doubled keys and nesting without end
            return self._adapter.validate_json(text)
        except FieldProblem as problem:
            said = f"expected {problem.expected}, found {problem.found}"
            raise ValueError(f"{where}: {said}") from None
        except ValidationError as error:
            first = _telling(error.errors(include_url=False))
            field = ".".join(str(part) for part in first["loc"]) or "the whole"
            found = repr(first["input"])[:60]
            raise ValueError(f"{where}: {field}: {first['msg']}, found {found}") from None


def _telling(errors: list[ErrorDetails]) -> ErrorDetails:
    """The first; where a subject is none of its kinds, of the kind that it comes closest to."""
    kinds = Counter(error["loc"][:2] for error in errors)
    return min(errors, key=lambda e: kinds[e["loc"][:2]] if e["loc"][:1] == ("subject",) else 0)


RECORDS: tuple[Any, ...] = (
    Experiment,
    Matrix,
    LocalSubject,
    ServerSubject,
    Measured,
    Compared,
    Cell,
    PlainAnswer,
    PlainBatch,
)
for record in RECORDS:  # no field that is not known, no word for a number
    record.__pydantic_config__ = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
EXPERIMENT = Codec(Experiment)
MEASURED = Codec(Measured)
PLAIN = Codec(PlainBatch)
