"""Messages from the server's process to the writer's: pickled, the arrays' blocks beside them.

uint32 length of the pickle, uint32 count of blocks, uint64 length of each, the pickle, the blocks. Both ends are this
package in two processes of one user; nothing else may write to the pipe.
"""

from __future__ import annotations

import os
import pickle
import struct
from typing import Any, BinaryIO

HEAD = struct.Struct("<II")
AT_ONCE = 512  # pieces of one system call; below every system's limit


def send(descriptor: int, message: Any) -> None:
    """Write one message; waits while the pipe is full. Raises ``OSError``."""
    blocks: list[Any] = []
    body = pickle.dumps(
        message, protocol=5, buffer_callback=lambda buffer: blocks.append(buffer.raw())
    )
    lengths = struct.pack(f"<{len(blocks)}Q", *(len(block) for block in blocks))
    pieces = [memoryview(HEAD.pack(len(body), len(blocks)) + lengths + body), *filter(len, blocks)]
    while pieces:
        left = os.writev(descriptor, pieces[:AT_ONCE])
        while pieces and left >= len(pieces[0]):
            left -= len(pieces.pop(0))
        if left:
            pieces[0] = pieces[0][left:]


def receive(stream: BinaryIO) -> Any:
    """The next message. Raises ``EOFError`` at the end of the stream, within a message too."""
    size, count = HEAD.unpack(_exactly(stream, HEAD.size))
    lengths = struct.unpack(f"<{count}Q", _exactly(stream, 8 * count))
    body = _exactly(stream, size)
    return pickle.loads(body, buffers=[_exactly(stream, length) for length in lengths])


def _exactly(stream: BinaryIO, size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise EOFError
    return found
