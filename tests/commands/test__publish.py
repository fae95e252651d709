"""What is published, from which source, and which calls are wrong before anybody is reached."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import BrokerProcess
from tests.peer import join

from timebound.commands._connection import Connecting
from timebound.commands._publish import AHEAD_MAX, PublishSource, run_pub


async def payloads(publishing: PublishSource) -> list[bytes]:
    publishing.check()
    return [payload async for payload in publishing.payloads()]


async def test_a_payload_is_repeated_as_often_as_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "payload.bin"
    path.write_bytes(b"\xff\x00")

    assert await payloads(PublishSource("t", payload="grün", count=2)) == ["grün".encode()] * 2
    assert await payloads(PublishSource("t", payload="")) == [b""]
    assert await payloads(PublishSource("t", file=path)) == [b"\xff\x00"]


async def test_bytes_of_the_command_line_that_are_no_text_stay_as_they_are() -> None:
    assert await payloads(PublishSource("t", payload="\udcff")) == [b"\xff"]


@pytest.mark.parametrize(
    ("publishing", "message"),
    [
        (PublishSource("a"), "give one of PAYLOAD"),
        (PublishSource("a", payload="x", lines=True), "give one of PAYLOAD"),
        (PublishSource("a", lines=True, count=2), "--count cannot be combined with --lines"),
    ],
)
def test_a_payload_comes_from_one_source(publishing: PublishSource, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        publishing.check()


def test_a_wrong_call_reaches_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    nobody = Connecting(port=1)

    assert run_pub(nobody, PublishSource("a")) == 2
    assert run_pub(nobody, PublishSource("a", payload="x", interval="soon")) == 2
    assert run_pub(nobody, PublishSource("a", payload="x", properties=("k",))) == 2
    assert "cannot be reached" not in capsys.readouterr().err


def test_more_messages_than_may_be_ahead_arrive_in_order(broker: BrokerProcess) -> None:
    count = 2 * AHEAD_MAX + 1
    with join(broker.port, "publish-order") as peer:
        peer.subscribe("publish/order", qos=1)

        publishing = PublishSource("publish/order", payload="x", qos=1, count=count)
        assert run_pub(Connecting(port=broker.port), publishing) == 0

        for _ in range(count):
            peer.expect_publish("publish/order", b"x")


def test_the_first_refusal_ends_it(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    publishing = PublishSource("publish/no", payload="x", qos=1, count=5, properties=("timeout=soon",))

    assert run_pub(Connecting(port=broker.port), publishing) == 1

    (line,) = capsys.readouterr().err.splitlines()
    assert "property 'timeout' is 'soon'" in line
