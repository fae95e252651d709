"""gmqtt as a client, in MQTT 5 and 3.1.1."""

from __future__ import annotations

import asyncio
from typing import Any

import gmqtt
import pytest
from gmqtt.mqtt.constants import MQTTv50, MQTTv311
from tests.conftest import BrokerProcess

TIMEOUT_S = 10.0


class Client:
    """A gmqtt client whose callbacks become queues."""

    def __init__(self, client_id: str, **more: Any) -> None:
        self.gmqtt = gmqtt.Client(client_id, **more)
        self.messages: asyncio.Queue[tuple[str, bytes, int, dict[str, Any]]] = asyncio.Queue()
        self.subscribed: asyncio.Queue[tuple[int, ...]] = asyncio.Queue()
        self.gmqtt.on_message = self._on_message
        self.gmqtt.on_subscribe = lambda _c, _m, qos, _p: self.subscribed.put_nowait(qos)

    async def _on_message(
        self, _c: Any, topic: str, payload: bytes, qos: int, properties: dict[str, Any]
    ) -> int:
        self.messages.put_nowait((topic, payload, qos, properties))
        return 0

    async def connect(self, port: int, version: int = MQTTv50) -> Client:
        await asyncio.wait_for(self.gmqtt.connect("127.0.0.1", port, version=version), TIMEOUT_S)
        return self

    async def subscribe(self, topic: str, qos: int = 0, **more: Any) -> tuple[int, ...]:
        self.gmqtt.subscribe(topic, qos, **more)
        return await asyncio.wait_for(self.subscribed.get(), TIMEOUT_S)

    async def message(self) -> tuple[str, bytes, int, dict[str, Any]]:
        return await asyncio.wait_for(self.messages.get(), TIMEOUT_S)


@pytest.mark.parametrize("version", [MQTTv50, MQTTv311])
async def test_messages_of_every_qos_arrive(opened: BrokerProcess, version: int) -> None:
    client = await Client(f"gmqtt-{version}").connect(opened.port, version)
    assert tuple(await client.subscribe(f"gmqtt/{version}/+", 2)) == (2,)
    for qos in (0, 1, 2):
        client.gmqtt.publish(f"gmqtt/{version}/{qos}", f"payload {qos}", qos=qos)
    found = [await client.message() for _ in range(3)]
    await client.gmqtt.disconnect()

    assert [(topic, payload, qos) for topic, payload, qos, _ in found] == [
        (f"gmqtt/{version}/{qos}", b"payload %d" % qos, qos) for qos in (0, 1, 2)
    ]


async def test_properties_keep_their_order(opened: BrokerProcess) -> None:
    client = await Client("gmqtt-properties").connect(opened.port)
    await client.subscribe("gmqtt/properties", 1)
    pairs = [("b", "2"), ("a", "1"), ("b", "3")]
    client.gmqtt.publish(
        "gmqtt/properties",
        "x",
        qos=1,
        user_property=pairs,
        content_type="text/plain",
        response_topic="gmqtt/answers",
        correlation_data=b"42",
    )
    _, _, _, properties = await client.message()
    await client.gmqtt.disconnect()

    assert properties["user_property"] == pairs
    assert properties["content_type"] == ["text/plain"]
    assert properties["response_topic"] == ["gmqtt/answers"]
    assert properties["correlation_data"] == [b"42"]


async def test_will_retained_and_session_expiry(opened: BrokerProcess) -> None:
    watcher = await Client("gmqtt-watcher").connect(opened.port)
    await watcher.subscribe("gmqtt/will", 1)
    lost = await Client(
        "gmqtt-lost", will_message=gmqtt.Message("gmqtt/will", "lost", qos=1, retain=True)
    ).connect(opened.port)
    lost.gmqtt.set_config({"reconnect_retries": 0})
    lost.gmqtt._connection._transport.abort()
    topic, payload, _, _ = await watcher.message()
    late = await Client("gmqtt-late", session_expiry_interval=60).connect(opened.port)
    await late.subscribe("gmqtt/will", 1)
    _, kept, _, properties = await late.message()
    watcher.gmqtt.publish("gmqtt/will", b"", qos=1, retain=True)
    await watcher.gmqtt.disconnect()
    await late.gmqtt.disconnect()

    assert (topic, payload, kept) == ("gmqtt/will", b"lost", b"lost")
    assert properties["retain"]
