"""aiomqtt as a client, in MQTT 5 and 3.1.1, over TCP, TLS, WebSocket and secure WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import aiomqtt
import pytest
from tests.conftest import BrokerProcess
from tests.peer import Endpoint

TIMEOUT_S = 10.0
VERSIONS = [aiomqtt.ProtocolVersion.V5, aiomqtt.ProtocolVersion.V311]


def client_of(port: int, **more: Any) -> aiomqtt.Client:
    assert isinstance(port, Endpoint)
    transport: Any = "websockets" if port.scheme in ("ws", "wss") else "tcp"
    return aiomqtt.Client("127.0.0.1", int(port), transport=transport, tls_context=port.tls, **more)


async def collect(client: aiomqtt.Client, count: int) -> list[aiomqtt.Message]:
    found: list[aiomqtt.Message] = []
    async with asyncio.timeout(TIMEOUT_S):
        async for message in client.messages:
            found.append(message)
            if len(found) == count:
                break
    return found


@pytest.mark.parametrize("version", VERSIONS)
async def test_messages_of_every_qos_arrive(reached: BrokerProcess, version: aiomqtt.ProtocolVersion) -> None:
    topic = f"aiomqtt/{version.name}"
    async with client_of(reached.port, protocol=version) as client:
        await client.subscribe(f"{topic}/+", qos=2)
        for qos in (0, 1, 2):
            await client.publish(f"{topic}/{qos}", f"payload {qos}", qos)
        found = await collect(client, 3)

    assert [(str(message.topic), message.payload, message.qos) for message in found] == [
        (f"{topic}/{qos}", b"payload %d" % qos, qos) for qos in (0, 1, 2)
    ]


async def test_will_and_retained_messages(reached: BrokerProcess) -> None:
    async with client_of(reached.port) as watcher:
        await watcher.publish("aiomqtt/status", "online", 1, retain=True)
        await watcher.subscribe("aiomqtt/status", qos=1)
        will = aiomqtt.Will("aiomqtt/status", "offline", 1, retain=True)
        lost = client_of(reached.port, will=will)
        await lost.__aenter__()
        sock = lost._client.socket()
        assert sock is not None
        getattr(sock, "_socket", sock).shutdown(2)  # below the frames of a WebSocket
        found = await collect(watcher, 2)
        with contextlib.suppress(aiomqtt.MqttError):  # it may or may not have noticed
            await lost.__aexit__(None, None, None)
        await watcher.publish("aiomqtt/status", None, 1, retain=True)

    assert [(message.payload, message.retain) for message in found] == [
        (b"online", True),
        (b"offline", False),
    ]


async def test_many_clients_at_once(reached: BrokerProcess) -> None:
    count = 20
    async with client_of(reached.port) as watcher:
        await watcher.subscribe("aiomqtt/crowd/+", qos=1)

        async def speak(number: int) -> None:
            async with client_of(reached.port) as client:
                await client.publish(f"aiomqtt/crowd/{number}", str(number), 1)

        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.gather(*(speak(number) for number in range(count)))
        found = await collect(watcher, count)

    assert sorted(int(message.payload) for message in found) == list(range(count))
