"""The buffer that all sockets of clients and neighbours are read into; the event loop reads one at a time.

What was read is copied out at once, so the buffer stays in the processor's cache.
"""

from __future__ import annotations

from typing import Final

# The most that a connection gets in one read.
# 64 KiB of small messages, as objects, still fit the processor's cache: 256 KiB were a third slower.
READ_BYTES_MAX: Final = 64 * 1024
READ_BUFFER: Final = memoryview(bytearray(READ_BYTES_MAX))


def take_read(count: int) -> bytes:
    """Return what the event loop has read into the buffer."""
    return bytes(READ_BUFFER[:count])
