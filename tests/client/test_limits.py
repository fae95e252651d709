"""What a server announces in its CONNACK holds before anything is sent."""

from __future__ import annotations

import pytest

from tests.client.scripted_server import (
    ScriptedServer,
    limits,
    published,
)
from timebound import Client
from timebound.client.limits import ServerLimits, read_limits
from timebound.errors import PublishError
from timebound.wire.packets import Connack


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_message_above_the_maximum_packet_size_of_the_server_is_refused_before_sending(
    qos: int,
) -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        peer = await server.connect(client, limits(maximum_packet_size=100))

        with pytest.raises(PublishError, match=r"too large for the server \(\d+ bytes .* 100\)"):
            await client.publish("a", b"x" * 100, qos=qos)
        await client.publish("a", b"small")

        assert (await published(peer)).payload == b"small"
        await client.disconnect()


async def test_qos_and_retain_that_the_server_does_not_have_are_refused_before_sending() -> None:
    async with ScriptedServer() as server:
        client = Client(port=server.port)
        await server.connect(client, limits(maximum_qos=1, retain_available=False))

        with pytest.raises(PublishError, match="QoS 2; the server accepts at most QoS 1") as by_qos:
            await client.publish("a", qos=2)
        with pytest.raises(PublishError, match="does not support retained messages") as by_retain:
            await client.publish("a", retain=True)

        assert (by_qos.value.reason_code, by_retain.value.reason_code) == (0x9B, 0x9A)
        await client.disconnect()


def test_silence_of_the_server_means_the_defaults_of_the_standard() -> None:
    assert read_limits(Connack(), 5) == ServerLimits(has_subscription_identifiers=True)
    assert read_limits(Connack(), 4) == ServerLimits(has_subscription_identifiers=False)


def test_announced_limits_are_read() -> None:
    connack = limits(
        receive_maximum=5,
        maximum_packet_size=100,
        maximum_qos=0,
        retain_available=False,
        subscription_identifier_available=False,
    )

    assert read_limits(connack, 5) == ServerLimits(5, 100, 0, False, False)


@pytest.mark.parametrize(
    ("qos", "retain", "size", "reason_code"),
    [(0, False, 101, 0x95), (2, False, 100, 0x9B), (1, True, 100, 0x9A)],
)
def test_refusal_has_the_reason_code_that_the_server_would_use(
    qos: int, retain: bool, size: int, reason_code: int
) -> None:
    strict = ServerLimits(maximum_packet_size=100, maximum_qos=1, retain_available=False)

    with pytest.raises(PublishError, match="message on 'a'") as refused:
        strict.check_publish("a", qos, retain, size)

    assert refused.value.reason_code == reason_code


def test_message_within_the_limits_is_not_refused() -> None:
    strict = ServerLimits(maximum_packet_size=100, maximum_qos=1, retain_available=False)

    strict.check_publish("a", 1, False, 100)
    ServerLimits().check_publish("a", 2, True, 1 << 30)
