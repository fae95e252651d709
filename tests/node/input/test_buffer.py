"""The one buffer that clients' and neighbours' sockets are read into, and the copies taken of it."""

from __future__ import annotations

from tests.node.doubles import Build, RecordingTransport

from timebound.node.clients.adapter import Adapter
from timebound.node.clients.connection import Connection
from timebound.node.input.buffer import READ_BUFFER, READ_BYTES_MAX, take_read
from timebound.node.mesh.connection import BufferedReads


class Reads(BufferedReads):
    """Remembers what it was given."""

    def __init__(self) -> None:
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data


def test_what_was_read_is_a_copy() -> None:
    READ_BUFFER[:5] = b"first"
    first = take_read(5)
    READ_BUFFER[:5] = b"later"

    assert (first, take_read(3)) == (b"first", b"lat")


async def test_everything_reads_through_the_same_buffer(build: Build) -> None:
    house = build()
    connection = Connection(house.driver, house.door)
    connection.connection_made(RecordingTransport("127.0.0.1"))

    assert len(READ_BUFFER) == READ_BYTES_MAX
    for protocol in (connection, Adapter(connection), Reads()):
        assert protocol.get_buffer(-1).obj is READ_BUFFER.obj


def test_link_gets_as_much_as_was_read() -> None:
    reads = Reads()
    reads.get_buffer(-1)[:4] = b"abcd"

    reads.buffer_updated(3)

    assert reads.data == b"abc"
