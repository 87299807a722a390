"""PlainBook: ``plain.jsonl`` of an experiment, so that a resumed one does not start the plain server again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from engine.isolate.codec import PLAIN
from engine.isolate.lines import append_line, whole_lines
from engine.isolate.plain import Key, PlainBatch

PLAIN_FILE = "plain.jsonl"


class PlainBook:
    """Answers by what was asked, on disk and in memory. Raises ``ValueError`` for a line that is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._batches = {
            batch.key: batch
            for batch in (PLAIN.loads(line, where) for where, line in whole_lines(path))
        }

    def add(self, batch: PlainBatch) -> None:
        """Keep one."""
        append_line(self.path, PLAIN.dumps(batch))
        self._batches[batch.key] = batch

    def get(self, key: Key) -> PlainBatch | None:
        """None: not asked yet."""
        return self._batches.get(key)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._batches)

    def merge(self, text: str, where: str) -> None:
        """Keep what another book's file holds. Raises ``ValueError`` for a line that is none."""
        for line in filter(None, text.split("\n")):
            batch = PLAIN.loads(line, where)
            if batch.key not in self._batches:
                self.add(batch)

    @property
    def text(self) -> str:
        """Its file."""
        return "".join(f"{PLAIN.dumps(batch)}\n" for batch in self._batches.values())
