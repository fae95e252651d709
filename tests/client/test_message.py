from __future__ import annotations

import pytest

from timebound.client.message import Message
from timebound.wire.packets import Publish


def received(payload: bytes = b"", *pairs: tuple[str, str]) -> Message:
    return Message("a", Publish("a", payload, user_properties=pairs))


def test_payload_is_read_as_asked() -> None:
    assert received(b'{"value": 91}').json() == {"value": 91}
    assert received("grün".encode()).text() == "grün"


def test_payload_that_is_not_what_was_asked_for_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="codec can't decode"):
        received(b"\xff").text()
    with pytest.raises(ValueError, match="Expecting value"):
        received(b"no").json()


def test_age_is_what_the_broker_added_last() -> None:
    message = received(b"", ("age", "publisher's own"), ("age", "0.365ms"))

    assert message.age_ns == 365_000
    assert message.age == 0.000365


def test_age_is_none_where_the_broker_did_not_say() -> None:
    assert received().age is None
    assert received(b"", ("age", "42 years")).age is None


def test_message_without_properties_has_none() -> None:
    message = received()

    assert (message.content_type, message.response_topic, message.correlation_data) == (None, None, None)
    assert message.properties.present() == {}


def test_long_payload_is_shortened_when_shown() -> None:
    shown = repr(received(b"x" * 10_000))

    assert shown.startswith("Message(topic='a', payload=b'xxx")
    assert len(shown) < 200
