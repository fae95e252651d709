"""SUBSCRIBE, UNSUBSCRIBE, DISCONNECT and AUTH: step by step in process, and over sockets."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import BrokerProcess, StartOver
from tests.node.doubles import Build, House, RecordingTransport
from tests.peer import join, props

from timebound.config.limits import Limits
from timebound.core.correlation.expression import AnyOf, Every
from timebound.core.sessions.correlations import TIMERS_MAX
from timebound.core.values.message import Message
from timebound.core.values.subscription import Subscription
from timebound.node.clients.connection import Connection
from timebound.node.clients.output import CLOSED
from timebound.serving.requests import REASON_STRING_LENGTH_MAX, RETAINED_STEPS, Request, handle
from timebound.units import SECOND
from timebound.wire.packets import (
    Ack,
    Auth,
    Connect,
    Disconnect,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Unsuback,
    Unsubscribe,
)
from timebound.wire.properties import Properties

LATER_NS = 1 << 62


def test_refused_filter_leaves_the_others_of_its_packet_in_force(broker_over: BrokerProcess) -> None:
    with join(broker_over.port) as peer:
        assert peer.subscribe("mixed/a", "mixed/#/b", "mixed/c").reason_codes == [0, 0x8F, 0]
        peer.publish("mixed/a", b"1")
        peer.publish("mixed/c", b"2")

        assert [peer.expect(Publish).payload for _ in range(2)] == [b"1", b"2"]


def test_refused_replacement_leaves_the_old_subscription(broker_over: BrokerProcess) -> None:
    with join(broker_over.port) as peer:
        assert peer.subscribe("old", qos=1).reason_codes == [1]
        assert peer.subscribe("old", user_properties=[("where", "value >")]).reason_codes == [0x83]
        peer.publish("old", b"1")

        peer.expect_publish("old", b"1")


def test_reasons_of_many_filters_are_joined_and_bounded(broker_over: BrokerProcess) -> None:
    with join(broker_over.port) as peer:
        entries = [SubscribeEntry(f"{number}/#/x" + "y" * 50) for number in range(100)]
        suback = peer.subscribe(*entries)

        assert suback.reason_codes == [0x8F] * 100
        reason = suback.properties.reason_string or ""
        assert reason.startswith("topic filter '0/#/x")
        assert len(reason) == REASON_STRING_LENGTH_MAX


@pytest.mark.parametrize("timer", ["watchdog", "every"])
def test_a_correlation_with_no_room_for_its_timer_is_refused_and_not_an_error(
    broker_over: BrokerProcess, timer: str
) -> None:
    parts = ", ".join([f"t/{number}" for number in range(62)])
    with join(broker_over.port) as peer:
        suback = peer.subscribe("#", user_properties=[("correlate", f"all({parts})"), (timer, "1h")])
        assert suback.reason_codes == [0x83]
        assert "property 'correlate': " in (suback.properties.reason_string or "")
        assert peer.subscribe("#", user_properties=[("correlate", f"all({parts})")]).reason_codes == [0]


def begin(
    house: House, packet: Subscribe | Unsubscribe, version: int = 5
) -> tuple[Request, Connection, RecordingTransport]:
    """A request of a client that is connected, of which nothing is done yet."""
    connection, transport = house.open(Connect("asker"))
    connection.version = version
    assert connection.session is not None
    return Request(connection, connection.session, packet), connection, transport


async def test_each_step_acts_on_one_filter_and_the_answer_comes_after_the_last(build: Build) -> None:
    house = build()
    entries = [SubscribeEntry("a"), SubscribeEntry("b/#"), SubscribeEntry("c")]
    request, connection, transport = begin(house, Subscribe(7, entries))

    counts = []
    while not request.continue_request(until_ns=0):
        house.driver.turn()
        counts.append(house.broker.statistics().subscriptions)
        assert len(transport.packets()) == 1  # CONNACK only
    house.driver.turn()

    assert sorted(set(counts)) == [1, 2, 3]
    assert counts == sorted(counts)
    suback = transport.packets()[1]
    assert isinstance(suback, Suback)
    assert (suback.packet_id, suback.reason_codes) == (7, [0, 0, 0])
    connection.connection_lost(None)


async def test_retained_messages_are_looked_through_a_few_at_a_time(build: Build) -> None:
    house = build()
    count = 3 * RETAINED_STEPS
    for number in range(count):
        house.broker.route(Message(f"kept/{number}", b"1", 0, True, 0), house.driver.now_ns())
    request, connection, transport = begin(house, Subscribe(7, [SubscribeEntry("kept/#")]))

    steps = 1
    while not request.continue_request(until_ns=0):
        steps += 1
    for _ in range(20):
        house.driver.turn()

    assert steps >= 3
    received = [packet for packet in transport.packets() if isinstance(packet, Publish)]
    assert {packet.topic for packet in received} == {f"kept/{number}" for number in range(count)}
    assert len(received) == count
    connection.connection_lost(None)


async def test_a_client_that_leaves_ends_its_request(build: Build) -> None:
    house = build()
    entries = [SubscribeEntry("a"), SubscribeEntry("b")]
    request, connection, transport = begin(house, Subscribe(7, entries))
    assert not request.continue_request(until_ns=0)

    connection.connection_lost(None)

    assert request.continue_request(LATER_NS)
    assert house.broker.statistics().subscriptions == 0
    assert not any(isinstance(packet, Suback) for packet in transport.packets())


async def test_unsubscribing_tells_which_filters_there_were(build: Build) -> None:
    house = build()
    request, connection, transport = begin(house, Unsubscribe(9, ["a", "b", "c/#/d"]))
    house.send(connection, Subscribe(1, [SubscribeEntry("a")]))

    assert request.continue_request(LATER_NS)
    house.driver.turn()

    unsuback = transport.packets()[-1]
    assert isinstance(unsuback, Unsuback)
    assert unsuback.reason_codes == [0, 0x11, 0x8F]
    assert house.broker.statistics().subscriptions == 0
    connection.connection_lost(None)


async def test_before_mqtt_5_a_wrong_filter_closes_the_connection_and_nothing_of_the_packet_is_done(
    build: Build,
) -> None:
    house = build()
    entries = [SubscribeEntry("a"), SubscribeEntry("b#")]
    request, connection, _ = begin(house, Subscribe(7, entries), version=4)

    assert request.continue_request(LATER_NS)

    assert connection.state == CLOSED
    assert house.broker.statistics().subscriptions == 0
    connection.connection_lost(None)


async def test_a_filter_longer_than_allowed_is_refused_with_the_limit(build: Build) -> None:
    house = build(Limits(filter_length_max=10, topic_length_max=20))
    where = Properties()
    where.user_properties.append(("where", "a = 1 AND b = 2"))
    request, connection, transport = begin(house, Subscribe(7, [SubscribeEntry("a")], where))

    assert request.continue_request(LATER_NS)
    house.driver.turn()

    suback = transport.packets()[-1]
    assert isinstance(suback, Suback)
    assert suback.reason_codes == [0x97]
    assert "filter_length_max is 10" in (suback.properties.reason_string or "")
    connection.connection_lost(None)


async def test_a_subscription_without_timers_left_is_refused_with_their_number(build: Build) -> None:
    house = build()
    hoarder, _ = house.open(Connect("hoarder"))
    assert hoarder.session is not None
    many = AnyOf([Every(3_600 * SECOND)] * 32)
    for number in range(TIMERS_MAX // 32):
        one = Subscription(client_id="hoarder", topic_filter=f"h/{number}")
        one.dependency = many
        assert house.broker.subscribe(hoarder.session, one, house.driver.now_ns()) == 0
    every = Properties()
    every.user_properties.append(("every", "1h"))
    request, connection, transport = begin(house, Subscribe(7, [SubscribeEntry("a")], every))

    assert request.continue_request(LATER_NS)
    house.driver.turn()

    suback = transport.packets()[-1]
    assert isinstance(suback, Suback)
    assert suback.reason_codes == [0x97]
    reason = suback.properties.reason_string
    assert reason == "quota: the broker's number of timers (16384) is reached at 'a'"
    for one_of_them in (connection, hoarder):
        one_of_them.connection_lost(None)


@pytest.mark.parametrize(("connect_s", "wanted_s", "kept_s"), [(60, 30, 30), (60, 10**9, 3_600), (0, 30, -1)])
async def test_a_disconnect_may_shorten_the_session_but_not_begin_one(
    build: Build, connect_s: int, wanted_s: int, kept_s: int
) -> None:
    house = build(Limits(session_expiry_max_s=3_600))
    connect = Connect("leaver")
    connect.properties.session_expiry_interval = connect_s
    connection, transport = house.open(connect)
    session = connection.session
    assert session is not None
    goodbye = Disconnect(0)
    goodbye.properties.session_expiry_interval = wanted_s

    handle(connection, session, goodbye)

    if kept_s < 0:
        last = transport.packets()[-1]
        assert isinstance(last, Disconnect)
        assert last.reason_code == 0x82
    else:
        assert session.expiry_interval_s == kept_s
        assert transport.is_closed
    connection.connection_lost(None)


async def test_auth_without_a_method_is_a_protocol_error(build: Build) -> None:
    house = build()
    connection, transport = house.open(Connect("asker"))
    assert connection.session is not None

    handle(connection, connection.session, Auth(0x19))

    last = transport.packets()[-1]
    assert isinstance(last, Disconnect)
    assert last.reason_code == 0x82
    connection.connection_lost(None)


def test_names_tell_subscriptions_to_one_filter_apart(broker_over: BrokerProcess) -> None:
    topic = "named/apart"
    with join(broker_over.port) as peer:
        hot = [("name", "hot"), ("where", "v > 90"), ("deadline", "10s")]
        peer.subscribe(topic, qos=1, subscription_identifiers=[1], user_properties=hot)
        peer.subscribe(topic, subscription_identifiers=[2], user_properties=[("name", "all")])
        peer.subscribe(topic, subscription_identifiers=[3])
        peer.publish(topic, b'{"v": 95}', qos=1)
        peer.expect(Ack)

        both = peer.expect(Publish)
        assert (sorted(both.subscription_identifiers), both.qos) == ([1, 2, 3], 1)
        assert peer.unsubscribe(topic, user_properties=[("name", "")]).reason_codes == [0]
        assert peer.unsubscribe(topic, user_properties=[("name", "cold")]).reason_codes == [0x11]
        peer.publish(topic, b'{"v": 5}')
        assert list(peer.expect(Publish).subscription_identifiers) == [2]
        assert peer.unsubscribe(topic).reason_codes == [0]
        peer.publish(topic, b'{"v": 95}')
        peer.expect_silence()


def test_a_name_that_is_empty_too_long_or_given_twice_is_refused(broker_over: BrokerProcess) -> None:
    with join(broker_over.port) as peer:
        for names in ([""], ["x" * 129], ["a", "b"]):
            pairs = [("name", name) for name in names]
            suback = peer.subscribe("named/refused", user_properties=pairs)
            assert suback.reason_codes == [0x83]
            assert "property 'name'" in (suback.properties.reason_string or "")
        unsuback = peer.unsubscribe("named/refused", user_properties=[("name", "a"), ("name", "b")])
        assert unsuback.reason_codes == [0x83]


def test_names_survive_the_end_of_the_process_and_a_take_over(start_over: StartOver, tmp_path: Path) -> None:
    topic, data = "named/kept", tmp_path / "data"
    lasting = props(session_expiry_interval=600)
    first = start_over(data=data)
    with join(first.port, "keeper", properties=lasting) as peer:
        hot = [("name", "hot"), ("where", "v > 90")]
        peer.subscribe(topic, qos=1, subscription_identifiers=[1], user_properties=hot)
        peer.subscribe(topic, qos=1, subscription_identifiers=[2], user_properties=[("name", "all")])
        peer.subscribe(topic, qos=1, subscription_identifiers=[3], user_properties=[("name", "ended")])
        assert peer.unsubscribe(topic, user_properties=[("name", "ended")]).reason_codes == [0]
    first.kill()

    second = start_over(data=data)
    with (
        join(second.port, "keeper", clean=False, properties=lasting) as old,
        join(second.port, "keeper", clean=False, properties=lasting) as peer,
        join(second.port) as publisher,
    ):
        old.expect_disconnect(0x8E)
        for value in (95, 5):
            publisher.publish(topic, b'{"v": %d}' % value, qos=1)
        found = [sorted(peer.expect(Publish).subscription_identifiers) for _ in range(2)]

    assert found == [[1, 2], [2]]
