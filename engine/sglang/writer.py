"""The writer's process: ``python -m engine.sglang.writer``, messages of :mod:`engine.sglang.wire` on standard input.

Records are made here and not in the server, whose interpreter can do one thing at a time. It ends with the server: the
pipe then ends, and what had arrived by then is on the disk.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from engine.sglang.assemble import Origin
from engine.sglang.recorder import Recorder, Report
from engine.sglang.sink import Format, Sink
from engine.sglang.wire import receive
from engine.trace.header import TraceHeader

ENDED = "ended with the server"
LOST = "ended: the server's process is gone"


@dataclass(frozen=True)
class Opening:
    """First message: where to write, and what the files say of their origin."""

    place: Path
    name: str
    header: TraceHeader
    form: Format
    total_bytes: int
    origin: Origin
    folder: Path
    facts: dict[str, Any]


def write_all(stream: BinaryIO) -> None:
    """Take an :class:`Opening`, then steps and reports, and None from a server that ends."""
    opening: Opening = receive(stream)
    sink = Sink(
        opening.place,
        opening.name,
        opening.header,
        opening.form,
        total_bytes=opening.total_bytes,
    )
    recorder = Recorder(sink, opening.origin, opening.folder, opening.facts)
    recorder.renew()
    state = LOST
    try:
        while (message := receive(stream)) is not None:
            if isinstance(message, Report):
                recorder.renew(message)
            else:
                recorder.handle(message)
        state = ENDED
    except EOFError:
        pass
    recorder.close(state)


if __name__ == "__main__":
    from engine.sglang import writer  # under its own name: messages are unpickled by it

    writer.write_all(sys.stdin.buffer)
