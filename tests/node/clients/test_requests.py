"""The seldom packets: what `requests` itself decides; the rest is shown over sockets."""

from __future__ import annotations

import pytest
from tests.conftest import BrokerProcess
from tests.peer import join

from timebound.wire.packets import Publish, SubscribeEntry


def test_refused_filter_leaves_the_others_of_its_packet_in_force(broker: BrokerProcess) -> None:
    with join(broker.port) as peer:
        assert peer.subscribe("mixed/a", "mixed/#/b", "mixed/c").reason_codes == [0, 0x8F, 0]
        peer.publish("mixed/a", b"1")
        peer.publish("mixed/c", b"2")

        assert [peer.expect(Publish).payload for _ in range(2)] == [b"1", b"2"]


def test_refused_replacement_leaves_the_old_subscription(broker: BrokerProcess) -> None:
    with join(broker.port) as peer:
        assert peer.subscribe("old", qos=1).reason_codes == [1]
        assert peer.subscribe("old", user_properties=[("where", "value >")]).reason_codes == [0x83]
        peer.publish("old", b"1")

        peer.expect_publish("old", b"1")


def test_reasons_of_many_filters_are_joined_and_bounded(broker: BrokerProcess) -> None:
    with join(broker.port) as peer:
        entries = [SubscribeEntry(f"{number}/#/x" + "y" * 50) for number in range(100)]
        suback = peer.subscribe(*entries)

        assert suback.reason_codes == [0x8F] * 100
        reason = suback.properties.reason_string or ""
        assert reason.startswith("topic filter '0/#/x")
        assert len(reason) == 1024


@pytest.mark.parametrize("timer", ["watchdog", "every"])
def test_a_correlation_with_no_room_for_its_timer_is_refused_and_not_an_error(
    broker: BrokerProcess, timer: str
) -> None:
    parts = ", ".join([f"t/{number}" for number in range(62)])
    with join(broker.port) as peer:
        suback = peer.subscribe("#", user_properties=[("correlate", f"all({parts})"), (timer, "1h")])
        assert suback.reason_codes == [0x83]
        assert "property 'correlate': " in (suback.properties.reason_string or "")
        assert peer.subscribe("#", user_properties=[("correlate", f"all({parts})")]).reason_codes == [0]
