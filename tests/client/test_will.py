"""A will as CONNECT carries it."""

from __future__ import annotations

from typing import Any

import pytest

from timebound.client.will import Will
from timebound.wire import packets


def test_will_carries_its_message_and_every_property() -> None:
    will = Will(
        "left",
        {"ok": False},
        qos=1,
        retain=True,
        delay="1500ms",
        timeout="400ms",
        priority=7,
        expiry="1m",
        content_type="application/json",
        user_properties={"k": 1},
    )

    packet = will.to_packet(5)

    assert (packet.topic, packet.payload, packet.qos, packet.retain) == ("left", b'{"ok":false}', 1, True)
    assert packet.properties.present() == {
        "message_expiry_interval": 60,
        "content_type": "application/json",
        "will_delay_interval": 2,
        "user_properties": [("k", "1"), ("timeout", "400ms"), ("priority", "7")],
    }


def test_plain_will_is_the_same_in_both_versions() -> None:
    expected = packets.Will("left", b"x", 2, True)

    assert Will("left", "x", 2, True).to_packet(4) == Will("left", "x", 2, True).to_packet(5) == expected


@pytest.mark.parametrize(
    ("values", "version", "message"),
    [
        ({"topic": "a/#"}, 5, "will topic 'a/#' has a wildcard"),
        ({"topic": ""}, 5, "will topic is empty"),
        ({"qos": 3}, 5, "will QoS is 3"),
        ({"timeout": 0}, 5, "will timeout is 0; it must be above zero"),
        ({"priority": 10}, 5, "priority is 10"),
        ({"delay": "1s"}, 4, "will_delay_interval needs MQTT 5"),
        ({"user_properties": {"k": "v"}}, 4, "user_properties needs MQTT 5"),
    ],
)
def test_will_that_cannot_be_carried_is_refused(values: dict[str, Any], version: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Will(**{"topic": "left", **values}).to_packet(version)
