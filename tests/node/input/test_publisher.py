"""What the input knows of a connection: where it starts, and that a connection can do what is asked of it."""

from __future__ import annotations

import pytest
from tests.node.doubles import lone_connections

from timebound.core.input.queues import ClientInput
from timebound.core.sessions.session import Session
from timebound.core.values.access import AccessList
from timebound.core.values.message import Message
from timebound.node.clients.connection import Connection
from timebound.node.input.publisher import InputMessage, Publisher


def test_a_new_publisher_has_nothing_waiting_and_nothing_advertised() -> None:
    publisher = lone_connections()()

    assert [publisher.is_arrived, publisher.is_slow, publisher.is_deferred] == [False] * 3
    assert (publisher.queues, publisher.flow_queues, publisher.policers) == ({}, {}, {})
    assert publisher.predecessor is None
    assert publisher.source == ""


def test_publishers_share_nothing() -> None:
    make = lone_connections()
    one, other = make(), make()

    assert isinstance(one.client_input, ClientInput)
    assert one.client_input is not other.client_input
    assert one.queues is not other.queues
    assert one.flow_queues is not one.queues


def test_a_waiting_message_knows_whose_it_was() -> None:
    publisher, session = lone_connections()(), Session("a", "", AccessList([]).for_client("", "a"))
    message = Message("t", b"x", 1, False, 5)

    queued = InputMessage(publisher, session, message, 7)

    assert (queued.publisher, queued.session, queued.message, queued.packet_id) == (
        publisher,
        session,
        message,
        7,
    )


@pytest.mark.parametrize(
    "name", ["pass_through", "take_in", "continue_request", "has_packets", "publish_queued"]
)
def test_a_connection_is_a_publisher_and_does_what_the_input_asks(name: str) -> None:
    assert issubclass(Connection, Publisher)
    assert getattr(Connection, name) is not getattr(Publisher, name)
