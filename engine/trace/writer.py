"""TraceWriter: appends verify steps to an Arrow IPC stream, one record batch a step.

Each step reaches the operating system in one write before :meth:`TraceWriter.write` returns, so a
process that is killed loses at most the step it was writing. Not covered: safety against power loss
(nothing is fsynced) and concurrent calls (one writer a thread).
"""

from __future__ import annotations

import os
from contextlib import nullcontext, suppress
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from engine.step import VerifyStep
from engine.trace.arrow_codec import schema, step_to_batch
from engine.trace.errors import FieldProblem
from engine.trace.header import TraceHeader, header_to_text
from engine.trace.ipc_encode import Encoder
from engine.trace.validate import validate_step

HEADER_KEY = b"ddtree.trace"
SUFFIX = ".ddtree.arrow"
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


class TraceWriter:
    """One rank's recording. Raises ``FileExistsError`` rather than overwrite one.

    Example: ``with TraceWriter("story.ddtree.arrow", TraceHeader(created_by="me")) as out:
    out.write(step)``.
    """

    def __init__(
        self, path: str | os.PathLike[str], header: TraceHeader, *, overwrite: bool = False
    ):
        self.path = Path(path)
        self.written = 0  # steps
        metadata = {
            HEADER_KEY: header_to_text(header).encode()
        }  # before there is a file to fail in
        self._encoder = Encoder()
        self._file = open(self.path, "wb" if overwrite else "xb", buffering=0)  # noqa: SIM115
        try:
            self._append(schema().with_metadata(metadata).serialize())
        except BaseException:
            self._file.close()
            self.path.unlink(missing_ok=True)  # without a schema it could never be read
            raise

    def write(self, step: VerifyStep) -> None:
        """Append one step. Raises ``TraceFormatError`` for one that could not be read back and
        ``OSError`` where the disk is full; the file stays valid.
        """
        try:
            validate_step(step)
        except FieldProblem as problem:
            raise problem.at(str(self.path), self.written + 1) from None
        self._append(self._encoder.encode(step_to_batch(step)))
        self.written += 1

    def close(self) -> None:
        """Write the end-of-stream mark and close the file; a second call does nothing."""
        if not self._file.closed:
            try:
                self._append(END_OF_STREAM)
            finally:
                self._file.close()

    def _append(self, data: bytes | pa.Buffer) -> None:
        """All of ``data`` or nothing: what a full disk took is cut off again."""
        start, rest = self._file.tell(), memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except BaseException as error:
            with suppress(OSError):
                self._file.truncate(start)
                self._file.seek(start)
            if isinstance(error, OSError) and error.filename is None:
                raise OSError(error.errno, error.strerror, str(self.path)) from None
            raise

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError) if error is not None else nullcontext():
            self.close()
