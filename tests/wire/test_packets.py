"""Packets as values: equality, what a log shows, and properties read late."""

from __future__ import annotations

from hypothesis import given

from timebound.wire import packet_types as types
from timebound.wire.packets import Connect, Pingreq, Pingresp, Publish, SubscribeEntry, make_publish
from timebound.wire.properties import Properties

from .strategies import properties_for


def test_packets_are_equal_by_class_and_fields() -> None:
    assert Pingreq() == Pingreq()
    assert Pingreq() != Pingresp()
    assert Publish("a", b"1") == Publish("a", b"1")
    assert Publish("a", b"1") != Publish("a", b"2")
    assert Publish("a", b"1", frame=b"0") == Publish("a", b"1")


def test_packet_shows_its_fields() -> None:
    assert repr(SubscribeEntry("a/#", 1)) == (
        "SubscribeEntry(topic_filter='a/#', qos=1, no_local=False, "
        "retain_as_published=False, retain_handling=0)"
    )


def test_password_is_compared_but_never_shown() -> None:
    packet = Connect("a", username="u", password=b"hunter2")

    assert "hunter2" not in repr(packet)
    assert packet == Connect("a", username="u", password=b"hunter2")
    assert packet != Connect("a", username="u", password=b"hunter3")


@given(properties_for(types.PUBLISH))
def test_publish_gives_back_the_properties_it_was_made_with(properties: Properties) -> None:
    packet = make_publish("a", b"", properties=properties)

    assert packet.properties() == properties
    assert packet.user_properties == tuple(properties.user_properties)


def test_publish_without_properties_has_none() -> None:
    assert make_publish("a", b"x").properties().present() == {}
