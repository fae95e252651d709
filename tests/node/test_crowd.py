"""Messages whose filters take long, over a socket: their publisher waits and goes on, others do not wait."""

from __future__ import annotations

import pytest
from tests.conftest import StartOver
from tests.peer import join

from timebound.wire.packets import Ack

READERS = 3
FILTERS = 90
MESSAGES = 5
LONG = " AND ".join(f"(a{one} <> 7 OR b{one} IS NULL)" for one in range(49))


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_every_message_arrives_in_order_and_its_publisher_goes_on(start_over: StartOver, qos: int) -> None:
    broker = start_over("")
    readers = [join(broker.port, f"reader-{number}") for number in range(READERS)]
    for place, reader in enumerate(readers):
        for number in range(FILTERS):
            terms = [("name", str(number)), ("where", f"{LONG} AND x <> {place}.{number:03}")]
            assert reader.subscribe("t", qos=qos, user_properties=terms).reason_codes == [qos]
    with join(broker.port, "publisher") as publisher, join(broker.port, "pair") as pair:
        pair.subscribe("pair")
        for number in range(MESSAGES):
            publisher.publish("t", b'{"x": 9, "n": %d}' % number, qos)
        pair.publish("pair", b"x")
        pair.expect_publish("pair", b"x")
        for reader in readers:
            for number in range(MESSAGES):
                reader.expect_publish("t", b'{"x": 9, "n": %d}' % number)
        if qos:
            answers = [publisher.expect(Ack) for _ in range(MESSAGES)]
            assert [answer.packet_id for answer in answers] == sorted(
                [answer.packet_id for answer in answers]
            )
        publisher.expect_silence()
    for reader in readers:
        reader.close()
