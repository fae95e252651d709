"""How brokers introduce themselves: a name, and the version of the mesh protocol."""

from __future__ import annotations

import pytest

from timebound.errors import ProtocolError
from timebound.linking.codec import BROKER_PROPERTY
from timebound.linking.greeting import MESH_VERSION, VERSION_PROPERTY, greeting_properties, read_greeting


def test_a_greeting_is_read_as_it_was_written() -> None:
    greeting = read_greeting(greeting_properties("plant-1"))

    assert (greeting.name, greeting.version, greeting.unknown) == ("plant-1", MESH_VERSION, ())


def test_a_greeting_without_a_version_is_of_version_0() -> None:
    greeting = read_greeting([(BROKER_PROPERTY, "plant-1"), ("colour", "red")])

    assert (greeting.name, greeting.version, greeting.unknown) == ("plant-1", 0, ())


def test_what_a_later_version_adds_is_named() -> None:
    greeting = read_greeting([*greeting_properties("b"), ("timebound-packs", "yes")])

    assert greeting.unknown == ("timebound-packs",)


@pytest.mark.parametrize("text", ["", "one", "-1", "1.5", "65536", 300 * "9"])
def test_a_version_that_is_no_number_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(ProtocolError, match=f"property 'timebound-mesh' is '{text[:100]}'"):
        read_greeting([(BROKER_PROPERTY, "b"), (VERSION_PROPERTY, text)])


def test_a_client_does_not_greet() -> None:
    assert read_greeting([]).name == ""
