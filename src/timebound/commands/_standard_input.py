"""Reads standard input without holding up the event loop.

Pipes, terminals and files all work, because a thread reads them. It uses the file descriptor
itself: a daemon thread inside `sys.stdin` would trip over the end of the interpreter.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from typing import Final

from timebound.wire.codec import PACKET_SIZE_MAX

_CHUNK_BYTES: Final = 65_536
_CHUNKS_AHEAD_MAX: Final = 16  # a fast file waits for a slow network


async def read_chunks(descriptor: int = 0) -> AsyncIterator[bytes]:
    """Yield the input in chunks until its end."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(_CHUNKS_AHEAD_MAX)

    def read() -> None:
        chunk: bytes | OSError = b"-"
        while chunk and not isinstance(chunk, OSError):
            room.acquire()
            try:
                chunk = os.read(descriptor, _CHUNK_BYTES)
            except OSError as error:
                chunk = error
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            except RuntimeError:
                return  # the loop is closed: nobody wants the rest

    threading.Thread(target=read, name="standard input", daemon=True).start()
    while True:
        chunk = await chunks.get()
        room.release()
        if isinstance(chunk, OSError):
            raise chunk
        if not chunk:
            return
        yield chunk


async def read_all(descriptor: int = 0) -> bytes:
    """Return the whole input; raises ValueError when no MQTT packet could hold it."""
    parts = bytearray()
    async for chunk in read_chunks(descriptor):
        parts += chunk
        _check_length(len(parts))
    return bytes(parts)


async def read_lines(descriptor: int = 0) -> AsyncIterator[bytes]:
    """Yield the lines without their line ends; the last one may lack it."""
    # A bytearray grows in place, so a long line in many pieces costs linear time.
    rest = bytearray()
    async for chunk in read_chunks(descriptor):
        first, *others = chunk.split(b"\n")
        rest += first
        _check_length(len(rest))
        for following in others:
            yield bytes(rest.removesuffix(b"\r"))
            rest = bytearray(following)
    if rest:
        yield bytes(rest)


def _check_length(length: int) -> None:
    if length > PACKET_SIZE_MAX:
        raise ValueError(f"input is longer than a message can be (at most {PACKET_SIZE_MAX} bytes)")
