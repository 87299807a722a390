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


def message_of(content: Any) -> list[Any]:
    """The pieces of one message, in order: copies of everything but the arrays, which may still be on their way."""
    blocks: list[Any] = []
    body = pickle.dumps(
        content, protocol=5, buffer_callback=lambda buffer: blocks.append(buffer.raw())
    )
    lengths = struct.pack(f"<{len(blocks)}Q", *(len(block) for block in blocks))
    return [memoryview(HEAD.pack(len(body), len(blocks)) + lengths + body), *filter(len, blocks)]


def send(descriptor: int, *messages: Any) -> None:
    """Write messages one after the other; waits while the pipe is full. Raises ``OSError``.

    Parcels are sent as the messages that they are.
    """
    pieces: list[Any] = []
    for content in messages:
        pieces += getattr(content, "message", None) or message_of(content)
    while pieces:
        left, whole = os.writev(descriptor, pieces[:AT_ONCE]), 0
        while whole < len(pieces) and left >= len(pieces[whole]):
            left -= len(pieces[whole])
            whole += 1
        del pieces[:whole]
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
