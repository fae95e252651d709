"""paho-mqtt as a client, in MQTT 5 and 3.1.1, over TCP, TLS, WebSocket and secure WebSocket."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions
from tests.conftest import BrokerProcess
from tests.peer import Endpoint

TIMEOUT_S = 10.0
VERSIONS = [paho.MQTTv5, paho.MQTTv311]


class Client:
    """A paho client on its own thread, whose callbacks become queues."""

    def __init__(self, port: int, version: int, client_id: str = "", **more: Any) -> None:
        assert isinstance(port, Endpoint)
        if version != paho.MQTTv5:
            more.setdefault("clean_session", True)
        transport = "websockets" if port.scheme in ("ws", "wss") else "tcp"
        self.paho = paho.Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=version, transport=transport, **more
        )
        if port.tls is not None:
            self.paho.tls_set_context(port.tls)
        self._port = int(port)
        self.connected: queue.Queue[tuple[Any, Any]] = queue.Queue()
        self.messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.subscribed: queue.Queue[list[ReasonCode]] = queue.Queue()
        self.disconnected: queue.Queue[ReasonCode] = queue.Queue()
        self.paho.on_connect = lambda _c, _u, flags, code, _p: self.connected.put((flags, code))
        self.paho.on_message = lambda _c, _u, message: self.messages.put(message)
        self.paho.on_subscribe = lambda _c, _u, _m, codes, _p: self.subscribed.put(codes)
        self.paho.on_disconnect = lambda _c, _u, _f, code, _p: self.disconnected.put(code)

    def connect(self) -> Client:
        self.paho.connect("127.0.0.1", self._port)
        self.paho.loop_start()
        self.flags, code = self.connected.get(timeout=TIMEOUT_S)
        assert not code.is_failure, code
        return self

    def subscribe(self, *arguments: Any, **more: Any) -> list[int]:
        self.paho.subscribe(*arguments, **more)
        return [code.value for code in self.subscribed.get(timeout=TIMEOUT_S)]

    def publish(self, *arguments: Any, **more: Any) -> None:
        self.paho.publish(*arguments, **more).wait_for_publish(TIMEOUT_S)

    def message(self) -> paho.MQTTMessage:
        return self.messages.get(timeout=TIMEOUT_S)

    def stop(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    started: list[Client] = []
    yield started
    for client in started:
        client.stop()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_arrive_in_order(
    reached: BrokerProcess, clients: list[Client], version: int, qos: int
) -> None:
    client = Client(reached.port, version).connect()
    clients.append(client)
    topic = f"paho/{version}/{qos}"
    assert client.subscribe(topic, qos) == [qos]
    for number in range(20):
        client.publish(topic, str(number), qos)

    found = [client.message() for _ in range(20)]
    assert [(message.payload, message.qos) for message in found] == [(b"%d" % n, qos) for n in range(20)]


@pytest.mark.parametrize("version", VERSIONS)
def test_retained_message_comes_to_a_new_subscriber(
    reached: BrokerProcess, clients: list[Client], version: int
) -> None:
    client = Client(reached.port, version).connect()
    clients.append(client)
    topic = f"paho/retained/{version}"
    client.publish(topic, "kept", 1, True)
    client.subscribe(topic, 1)

    message = client.message()
    assert (message.payload, message.retain) == (b"kept", True)
    client.publish(topic, "", 1, True)


@pytest.mark.parametrize("version", VERSIONS)
def test_will_is_published_when_the_client_is_lost(
    reached: BrokerProcess, clients: list[Client], version: int
) -> None:
    watcher = Client(reached.port, version).connect()
    clients.append(watcher)
    watcher.subscribe("paho/will", 1)
    lost = Client(reached.port, version)
    lost.paho.will_set("paho/will", "lost", 1)
    lost.connect()
    lost.paho.loop_stop()
    sock = lost.paho.socket()
    assert sock is not None
    sock.close()

    assert watcher.message().payload == b"lost"


def test_persistent_session_keeps_messages(reached: BrokerProcess, clients: list[Client]) -> None:
    name = f"paho-keeps-{reached.scheme}"
    first = Client(reached.port, paho.MQTTv311, name, clean_session=False).connect()
    assert not first.flags.session_present
    first.subscribe("paho/kept", 2)
    first.stop()
    publisher = Client(reached.port, paho.MQTTv5).connect()
    clients.append(publisher)
    for number in range(3):
        publisher.publish("paho/kept", str(number), 2)
    second = Client(reached.port, paho.MQTTv311, name, clean_session=False).connect()
    clients.append(second)

    assert second.flags.session_present
    assert [second.message().payload for _ in range(3)] == [b"0", b"1", b"2"]


def test_properties_keep_their_order(reached: BrokerProcess, clients: list[Client]) -> None:
    client = Client(reached.port, paho.MQTTv5).connect()
    clients.append(client)
    client.subscribe("paho/properties", 1)
    sent = Properties(PacketTypes.PUBLISH)
    sent.UserProperty = [("b", "2"), ("a", "1"), ("b", "3")]
    sent.ContentType = "text/plain"
    sent.ResponseTopic = "paho/answers"
    sent.CorrelationData = b"\x00\x01"
    sent.MessageExpiryInterval = 60
    client.publish("paho/properties", "x", 1, properties=sent)

    found = client.message().properties
    assert found is not None
    assert found.UserProperty == [("b", "2"), ("a", "1"), ("b", "3")]
    assert (found.ContentType, found.ResponseTopic) == ("text/plain", "paho/answers")
    assert found.CorrelationData == b"\x00\x01"
    assert found.MessageExpiryInterval in (59, 60)


def test_subscription_options_and_identifiers(reached: BrokerProcess, clients: list[Client]) -> None:
    own, other = Client(reached.port, paho.MQTTv5).connect(), Client(reached.port, paho.MQTTv5).connect()
    clients += [own, other]
    identified = Properties(PacketTypes.SUBSCRIBE)
    identified.SubscriptionIdentifier = 17
    own.subscribe("paho/options", options=SubscribeOptions(qos=1, noLocal=True), properties=identified)
    own.publish("paho/options", "mine", 1)
    other.publish("paho/options", "theirs", 1)

    message = own.message()
    assert message.payload == b"theirs"
    assert message.properties is not None
    assert message.properties.SubscriptionIdentifier == [17]


def test_shared_subscription(reached: BrokerProcess, clients: list[Client]) -> None:
    members = [Client(reached.port, version).connect() for version in VERSIONS]
    publisher = Client(reached.port, paho.MQTTv5).connect()
    clients += [*members, publisher]
    for member in members:
        assert member.subscribe("$share/paho/paho/work", 1) == [1]
    for number in range(10):
        publisher.publish("paho/work", str(number), 1)

    found = [member.message().payload for member in members for _ in range(5)]
    assert sorted(found) == [b"%d" % number for number in range(10)]


def test_where_filter_selects(reached: BrokerProcess, clients: list[Client]) -> None:
    client = Client(reached.port, paho.MQTTv5).connect()
    clients.append(client)
    terms = Properties(PacketTypes.SUBSCRIBE)
    terms.UserProperty = [("where", "value > 90"), ("deadline", "250ms")]
    assert client.subscribe("paho/where", 1, properties=terms) == [1]
    for value in (80, 95):
        client.publish("paho/where", f'{{"value": {value}}}', 1)

    assert client.message().payload == b'{"value": 95}'


def test_refusals_reach_the_application(reached: BrokerProcess, clients: list[Client]) -> None:
    client, old = Client(reached.port, paho.MQTTv5).connect(), Client(reached.port, paho.MQTTv311).connect()
    clients += [client, old]

    terms = Properties(PacketTypes.SUBSCRIBE)
    terms.UserProperty = [("where", "value >")]
    assert client.subscribe("paho/refused", 1, properties=terms) == [0x83]
    assert old.subscribe("$share/paho", 1) == [0x80]


def test_take_over_tells_the_older_client(reached: BrokerProcess, clients: list[Client]) -> None:
    older = Client(reached.port, paho.MQTTv5, "paho-twin")
    older.paho.reconnect_delay_set(60, 60)
    older.connect()
    newer = Client(reached.port, paho.MQTTv5, "paho-twin").connect()
    clients += [older, newer]

    assert older.disconnected.get(timeout=TIMEOUT_S).value == 0x8E


@pytest.mark.parametrize("version", VERSIONS)
def test_large_messages_arrive(reached: BrokerProcess, clients: list[Client], version: int) -> None:
    client = Client(reached.port, version).connect()
    clients.append(client)
    client.subscribe("paho/large", 2)
    for qos in (0, 1, 2):
        client.publish("paho/large", b"x" * 100_000, qos)

    assert [len(client.message().payload) for _ in range(3)] == [100_000] * 3
