"""How messages are printed, and which calls are wrong before anybody is reached."""

from __future__ import annotations

import base64

import pytest
from tests.conftest import BrokerProcess
from tests.peer import join

from timebound.client import Message
from timebound.commands._connection import Connecting
from timebound.commands._subscribe import Subscribing, _safe_json, message_fields, run_sub
from timebound.wire.packets import Publish


@pytest.mark.parametrize(
    ("subscribing", "message"),
    [
        (Subscribing(("a",), retained_only=True, no_retained=True), "leave nothing to print"),
        (Subscribing(("a",), as_json=True, payload_only=True), "two ways to print"),
    ],
)
def test_options_that_contradict_each_other_are_refused(subscribing: Subscribing, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        subscribing.check()


@pytest.mark.parametrize(
    "subscribing",
    [Subscribing(("a/#/b",)), Subscribing(("a",), wait="0s"), Subscribing(("a",), properties=("k",))],
)
def test_a_wrong_call_reaches_no_server(subscribing: Subscribing, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_sub(Connecting(port=1), subscribing) == 2
    assert "cannot be reached" not in capsys.readouterr().err


def test_programs_get_text_as_text_and_other_bytes_as_base64() -> None:
    text = message_fields(Message("t", Publish("t", "grün".encode(), 1, user_properties=(("unit", "C"),))))
    binary = message_fields(Message("t", Publish("t", b"\xff\x00", 0, True)))

    assert (text["payload"], text["encoding"], text["qos"], text["retain"]) == ("grün", "text", 1, False)
    assert text["user_properties"] == [["unit", "C"]]
    assert (base64.b64decode(binary["payload"]), binary["encoding"], binary["retain"]) == (
        b"\xff\x00",
        "base64",
        True,
    )


def test_json_for_a_terminal_escapes_what_would_steer_it() -> None:
    assert _safe_json('{"payload": "a\x9b ü"}') == '{"payload": "a\\u009b ü"}'


def test_printing_ends_after_the_count(
    broker: BrokerProcess, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with join(broker.port, "subscribe-count") as peer:
        for number in range(3):
            peer.publish(f"subscribe/count/{number}", b"%d" % number, 0, retain=True)
        peer.expect_silence()

    subscribing = Subscribing(("subscribe/count/+",), count=2, wait="20s", payload_only=True)
    assert run_sub(Connecting(port=broker.port), subscribing) == 0

    assert len(capfdbinary.readouterr().out.split()) == 2
