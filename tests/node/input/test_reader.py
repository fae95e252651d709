"""What the input knows of a connection, and that a connection can do what is asked of it."""

from __future__ import annotations

import pytest
from tests.node.doubles import lone_connections

from timebound.core.input.publisher import Publisher
from timebound.node.clients.connection import Connection
from timebound.node.input.reader import InputReader


def test_a_new_reader_has_nothing_to_do() -> None:
    reader = lone_connections()()

    assert [reader.is_arrived, reader.is_slow, reader.is_deferred] == [False] * 3
    assert isinstance(reader, Publisher)


@pytest.mark.parametrize(
    "name", ["pass_through", "take_in", "continue_request", "has_packets", "publish_queued"]
)
def test_a_connection_reads_packets_and_does_what_the_input_asks(name: str) -> None:
    assert issubclass(Connection, InputReader)
    assert getattr(Connection, name) is not getattr(InputReader, name)
