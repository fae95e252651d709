"""The numbers of the control packets, against another implementation."""

from __future__ import annotations

from paho.mqtt.packettypes import PacketTypes

from timebound.wire import packet_types as types


def test_names_stand_at_the_numbers_that_another_implementation_has() -> None:
    theirs = [name.upper() for name in PacketTypes.Names]

    assert list(types.NAMES[types.CONNECT :]) == theirs[types.CONNECT :]
    assert theirs[types.WILL] == "RESERVED"


def test_every_constant_is_the_place_of_its_name() -> None:
    for number, name in enumerate(types.NAMES):
        assert getattr(types, name.upper()) == number
