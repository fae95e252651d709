"""What the entrance knows of a publisher: where it starts, and whose a waiting message is."""

from __future__ import annotations

from timebound.core.input.publisher import InputMessage, Publisher
from timebound.core.input.queues import ClientInput
from timebound.core.sessions.session import Session
from timebound.core.values.access import AccessList
from timebound.core.values.message import Message


def test_a_new_publisher_has_nothing_waiting_and_nothing_advertised() -> None:
    publisher = Publisher()

    assert (publisher.queues, publisher.flow_queues, publisher.policers) == ({}, {}, {})
    assert publisher.client_input.waiting == 0
    assert (publisher.generation, publisher.promised_ns) == (0, 0)
    assert publisher.predecessor is None
    assert publisher.source == ""


def test_publishers_share_nothing() -> None:
    one, other = Publisher(), Publisher()

    assert isinstance(one.client_input, ClientInput)
    assert one.client_input is not other.client_input
    assert one.queues is not other.queues
    assert one.flow_queues is not one.queues


def test_a_waiting_message_knows_whose_it_was() -> None:
    publisher, session = Publisher(), Session("a", "", AccessList([]).for_client("", "a"))
    message = Message("t", b"x", 1, False, 5)

    queued = InputMessage(publisher, session, message, 7)

    assert (queued.publisher, queued.session, queued.message, queued.packet_id) == (
        publisher,
        session,
        message,
        7,
    )
