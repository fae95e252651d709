"""Advertising, weights and bounds over the wire, by the client and by commands, at a real broker."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.conftest import BrokerProcess, StartBroker
from tests.node.clients_in_memory import PlainClient
from tests.node.doubles import Build, House
from tests.peer import Peer, join

from timebound import Client
from timebound.client.refusals import PublishRefused
from timebound.config.input import InputConfig
from timebound.units import SECOND
from timebound.wire.packets import Ack, Connect, Publish, make_publish
from timebound.wire.properties import Properties

ADVERTISE = "$timebound/advertise/"
# A fixed quantum: what is guaranteed must not depend on how busy the machine is.
CONFIG = """
sys_interval = "100ms"
[input]
turn = "2ms"
quantum_time = "100us"
stall_allowance = "10ms"
[[weights]]
topic = "alarm/#"
weight = 4
"""


@pytest.fixture
def fixed(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(CONFIG)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("input"), CONFIG)
    yield process
    process.check()
    assert process.stop() == 0


def ask(peer: Peer, topic: str, payload: bytes = b"", **terms: str) -> tuple[int, str]:
    peer.publish(topic, payload, 1, user_properties=list(terms.items()))
    answer = peer.expect(Ack)
    return answer.reason_code, answer.reason_string


def rows(port: int) -> list[dict[str, object]]:
    with join(port) as peer:
        ask(peer, "$timebound/control/bounds")
        peer.subscribe("$SYS/broker/bounds")
        found: list[dict[str, object]] = json.loads(peer.expect(Publish).payload)["rows"]
        return found


def test_flow_is_admitted_with_a_bound(running: BrokerProcess) -> None:
    with join(running.port, "press") as peer:
        code, words = ask(peer, ADVERTISE + "alarm/1", period="20ms", size="64", delay="50ms")

        assert code == 0
        # A quantum each of `alarm/#`, `#` and its own, one just begun, two rounds of 4 ms, and a stop of 10.
        assert words == "flow 'alarm/1' of client 'press' waits at most 18.400 ms"
        row = rows(running.port)[0]
        assert (row["topic"], row["client"], row["weight"], row["delay_ms"]) == ("alarm/1", "press", 4, 50)


@pytest.mark.parametrize(
    ("terms", "code", "words"),
    [
        ({"period": "20us"}, 0x97, "a period of 0.601 ms would fit"),
        ({"period": "600us"}, 0x97, "a period of 0.601 ms"),
        (
            {"rate": "100", "delay": "3ms"},
            0x97,
            "longer than its 3.000 ms: reading, writing, stalls alone take 18.000 ms; "
            "no other period or weight would fit",
        ),
        ({"rate": "50", "delay": "18500us"}, 0x97, "longer than its 18.500 ms; a weight of"),
        ({"rate": "100", "size": "5000000"}, 0x97, "of the service rate"),
        ({"burst": "2"}, 0x83, "either period=20ms or rate=50"),
        ({"rate": "100", "period": "10ms"}, 0x83, "either period=20ms or rate=50"),
        ({"rate": "fast"}, 0x83, "property 'rate' is 'fast'"),
        ({"rate": "0"}, 0x83, "property 'rate' is '0'"),
        ({"rate": "-1"}, 0x83, "property 'rate' is '-1'; it must be a number above zero and up to"),
        ({"rate": "1000000001"}, 0x83, "property 'rate' is '1000000001'"),
        ({"period": "soon"}, 0x83, "property 'period' is 'soon'"),
        ({"period": "0s"}, 0x83, "property 'period' is '0s'"),
        ({"rate": "1", "burst": "many"}, 0x83, "property 'burst' is 'many'"),
        ({"rate": "1", "burst": "0"}, 0x83, "'burst' is '0'; it must be a whole number from 1 to 10000"),
        ({"rate": "1", "size": "0"}, 0x83, "'size' is '0'; it must be a whole number from 1 to"),
        ({"rate": "1", "size": "300000000"}, 0x83, "property 'size' is '300000000'"),
        ({"rate": "1", "weight": "0"}, 0x83, "'weight' is '0'; it must be a whole number from 1 to 1023"),
        ({"rate": "1", "weight": "5000"}, 0x83, "property 'weight' is '5000'"),
        ({"rate": "1", "delay": "5"}, 0x83, "property 'delay' is '5'"),
        ({"rate": "1", "burts": "5"}, 0x83, "property 'burts' is unknown"),
    ],
)
def test_refusal_names_what_breaks_and_what_would_fit(
    running: BrokerProcess, terms: dict[str, str], code: int, words: str
) -> None:
    with join(running.port) as peer:
        refused, reason = ask(peer, ADVERTISE + "log/1", **terms)

        assert refused == code
        assert words in reason
        peer.expect_silence()
    assert not [row for row in rows(running.port) if row["topic"] == "log/1"]


def test_capacity_is_given_back_by_unadvertise_and_disconnect(fixed: BrokerProcess) -> None:
    # 40 % of the service rate; half of it is for all flows.
    heavy = {"rate": "4000", "burst": "1"}
    first, second = join(fixed.port, "first"), join(fixed.port, "second")
    assert ask(first, ADVERTISE + "a", weight="100", **heavy)[0] == 0
    code, words = ask(second, ADVERTISE + "b", weight="100", **heavy)
    assert code == 0x97
    assert "10.0% of the 50% reserved for flows is left" in words

    assert ask(first, ADVERTISE + "a") == (0, "done")
    assert ask(first, ADVERTISE + "a") == (0, "done")  # twice does no harm
    assert ask(second, ADVERTISE + "b", weight="100", **heavy)[0] == 0
    assert ask(first, ADVERTISE + "a", weight="100", **heavy)[0] == 0x97

    second.close()
    fixed.wait_logged("'first' connected")
    end = time.monotonic() + 10
    while rows(fixed.port):
        assert time.monotonic() < end, "the contract outlived its connection"
    assert ask(first, ADVERTISE + "a", weight="100", **heavy)[0] == 0
    first.close()


def test_promise_to_one_flow_refuses_another_and_a_weight(fixed: BrokerProcess) -> None:
    with join(fixed.port, "tight") as tight, join(fixed.port, "other") as other:
        assert ask(tight, ADVERTISE + "t", rate="50", delay="18500us", weight="1")[0] == 0x97
        assert ask(tight, ADVERTISE + "t", rate="50", delay="18500us", weight="8")[0] == 0

        code, words = ask(other, ADVERTISE + "u", rate="50", weight="100")
        assert code == 0x97
        assert words.startswith("not_admitted: flow 't' of client 'tight' would wait up to")
        assert "longer than its 18.500 ms" in words
        assert "would fit" in words
        code, words = ask(other, "$timebound/control/weight", b"noise/# 200")
        assert code == 0x97
        assert "flow 't' of client 'tight'" in words


def test_access_rules_decide_who_may_advertise(start_broker: StartBroker) -> None:
    broker = start_broker('[[acl]]\nuser = "*"\nfilter = "mine/#"\n')
    with join(broker.port) as peer:
        assert ask(peer, ADVERTISE + "mine/a", rate="10")[0] == 0
        assert ask(peer, ADVERTISE + "yours/a", rate="10")[0] == 0x87


@pytest.mark.parametrize(
    ("topic", "payload", "code"),
    [
        (ADVERTISE, b"", 0x90),
        (ADVERTISE + "$SYS/x", b"", 0x90),
        (ADVERTISE + "a", b"no properties", 0x83),
        ("$timebound/control/weight", b"alarm/#", 0x83),
        ("$timebound/control/weight", b"alarm/# heavy", 0x83),
        ("$timebound/control/weight", b"alarm/# 0", 0x83),
        ("$timebound/control/weight", b"alarm/# 1024", 0x83),
        ("$timebound/control/weight", b"alarm/# +3", 0x83),
        ("$timebound/control/weight", "alarm/# ٣".encode(), 0x83),
        ("$timebound/control/weight", b"alarm/# " + b"3" * 10_000, 0x83),
        ("$timebound/control/weight", b"a/#/b 3", 0x83),
        ("$timebound/control/weight", b"$share/g/a 3", 0x83),
        ("$timebound/control/weight", b"# -", 0x83),
        ("$timebound/control/weight", b"-", 0x83),
    ],
)
def test_wrong_requests_are_refused(running: BrokerProcess, topic: str, payload: bytes, code: int) -> None:
    with join(running.port) as peer:
        assert ask(peer, topic, payload)[0] == code


def test_excess_shows_in_the_figures(running: BrokerProcess) -> None:
    with join(running.port, "eager") as peer, join(running.port, "counter") as counter:
        assert ask(peer, ADVERTISE + "slow", period="10s", size="10")[0] == 0
        counter.subscribe("$SYS/broker/input/excess_lowered")
        for _ in range(5):
            peer.publish("slow", b"1", 1)
            peer.expect(Ack)
        end = time.monotonic() + 10
        while counter.expect(Publish).payload != b"4":
            assert time.monotonic() < end


async def test_client_advertises_and_renews_after_a_reconnection(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG)
    async with Client("127.0.0.1", broker.port, client_id="press") as client:
        words = await client.advertise("alarm/1", period="10ms", burst=2, size=64, delay=0.05)
        assert "waits at most" in words
        with pytest.raises(PublishRefused, match="would fit"):
            await client.advertise("alarm/2", rate=100_000)
        lost = client._session.connection
        assert lost is not None
        lost._transport.abort()
        async with asyncio.timeout(20):
            # Answered after the advertisement, if it was sent on the new connection.
            while client.reconnects == 0:
                await client.publish("anything", qos=1)
        assert [row["topic"] for row in rows(broker.port)] == ["alarm/1"]

        await client.unadvertise("alarm/1")
        assert rows(broker.port) == []


async def test_client_refuses_impossible_flows() -> None:
    client = Client("127.0.0.1", 1)
    with pytest.raises(ValueError, match="either a period"):
        await client.advertise("a")
    with pytest.raises(ValueError, match="either a period"):
        await client.advertise("a", period=1, rate=1)
    with pytest.raises(ValueError, match="burst"):
        await client.advertise("a", rate=1, burst=-1)


GREEDY = InputConfig(
    flows_per_client_max=2, flows_per_user_max=3, advertisements_per_second_max=1, quantum_time_s=0.00001
)
HELD_BACK = (0x97, "quota: advertisements_per_second_max is reached; try again later")


class Asker(PlainClient):
    """A client that advertises flows and reads the answers."""

    def ask(self, topic: str, *pairs: tuple[str, str]) -> tuple[int, str]:
        terms = Properties()
        terms.user_properties = list(pairs)
        self.send(make_publish(ADVERTISE + topic, b"", 1, packet_id=1, properties=terms))
        self.house.driver.turn()
        while self.house.driver.input.has_more():
            self.house.driver.turn()
        [answer] = [packet for packet in self.packets() if isinstance(packet, Ack)]
        return answer.reason_code, answer.reason_string


def join_as(house: House, client_id: str, host: str) -> Asker:
    asker = Asker(house, host)
    asker.send(Connect(client_id))
    return asker


PERIOD = ("period", "1s")


async def test_one_client_cannot_take_all_flows_nor_ask_all_the_time(build: Build) -> None:
    house = build(input_config=GREEDY)
    greedy = join_as(house, "greedy", "10.0.0.1")

    answers = [greedy.ask(topic, PERIOD) for topic in ("a", "b", "c", *"a" * 8)]

    # Four are allowed at once, and one more with each second; so of the last eight, one or a few.
    assert [code for code, _ in answers[:4]] == [0, 0, 0x97, 0]
    assert answers[2][1].endswith("exceeds the limit of flows (flows_per_client_max=2)")
    assert answers[-1] == HELD_BACK
    assert greedy.ask("a")[0] == 0, "ending one is always allowed"
    assert join_as(house, "other", "10.0.0.2").ask("o", PERIOD)[0] == 0


async def test_reconnecting_renews_nothing(build: Build) -> None:
    house = build(input_config=GREEDY)
    answers = []
    for _ in range(10):
        greedy = join_as(house, "greedy", "10.0.0.1")
        answers.append(greedy.ask("a", PERIOD))
        greedy.lose()
        house.driver.turn()

    assert [code for code, _ in answers[:4]] == [0] * 4
    assert answers[-1] == HELD_BACK
    assert house.broker.entrance.flows.admission.flow_count() == 0


async def test_clients_of_one_address_share_their_flows(build: Build) -> None:
    house = build(input_config=GREEDY)

    answers = [join_as(house, f"c{number}", "10.0.0.1").ask(f"t{number}", PERIOD) for number in range(4)]

    assert [code for code, _ in answers] == [0, 0, 0, 0x97]
    assert answers[3][1].endswith("exceeds the limit of flows (flows_per_user_max=3)")
    assert house.broker.entrance.flows.admission.flow_count() == 3
    assert join_as(house, "other", "10.0.0.2").ask("o", PERIOD)[0] == 0


async def test_flow_that_ends_makes_room_for_another_of_its_address(build: Build) -> None:
    house = build(input_config=replace(GREEDY, advertisements_per_second_max=10))
    askers = [join_as(house, f"c{number}", "10.0.0.1") for number in range(4)]
    for number in range(3):
        askers[number].ask(f"t{number}", PERIOD)
    assert askers[3].ask("t3", PERIOD)[0] == 0x97

    askers[0].lose()
    house.driver.turn()

    assert askers[3].ask("t3", PERIOD)[0] == 0
    assert house.broker.entrance.flows.admission.flow_count() == 3


async def test_release_of_flows_counts_as_time_of_requests(build: Build) -> None:
    house = build()
    asker = join_as(house, "c", "10.0.0.1")
    for number in range(20):
        assert asker.ask(f"t{number}", PERIOD)[0] == 0
    flows = house.broker.entrance.flows
    flows.allowance._left = 1.0  # not refilled: nothing asks for it

    asker.lose()
    while house.driver.input.has_more():
        house.driver.turn()

    assert flows.admission.flow_count() == 0
    assert flows.allowance._left < 0


async def test_requests_of_all_clients_have_a_share_of_the_time(build: Build) -> None:
    house = build()
    connection, transport = house.open(Connect("c"))
    terms = Properties()
    terms.user_properties = [("period", "1s")]
    asking = make_publish(ADVERTISE + "t", b"", 1, packet_id=1, properties=terms)
    house.send(connection, asking)
    house.driver.turn()
    house.broker.entrance.flows.allowance.take(3 * SECOND)  # as if requests had taken so long

    house.send(connection, asking)
    house.send(connection, make_publish(ADVERTISE + "t", b"", 1, packet_id=2))  # gives it back
    while house.driver.input.has_more():
        house.driver.turn()

    [first, second, third] = [packet for packet in transport.packets() if isinstance(packet, Ack)]
    assert first.reason_code == 0
    assert second.reason_code == 0x97
    assert second.reason_string == "quota: advertising_percent_max is reached; try again later"
    assert third.reason_code == 0
    assert house.broker.entrance.flows.admission.flow_count() == 0


async def test_what_a_request_did_is_logged_and_its_time_is_counted(
    build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    house = build()
    connection, _ = house.open(Connect("c"))
    left = house.broker.entrance.flows.allowance._left

    with caplog.at_level("INFO"):
        house.send(connection, Publish("$timebound/control/weight", b"alarm/# 3", 1, packet_id=1))
        house.driver.turn()

    assert "weight of 'alarm/#' is 3" in caplog.text
    assert house.broker.entrance.flows.allowance._left < left


async def test_bounds_that_change_often_are_published_later(build: Build) -> None:
    house = build()
    connection, _ = house.open(Connect("c"))
    terms = Properties()
    terms.user_properties = [("period", "1s")]
    for number in range(5):
        house.send(connection, make_publish(f"{ADVERTISE}{number}", b"", 1, packet_id=1, properties=terms))
        house.driver.turn()
        house.broker.entrance.flows.reported_ns = house.driver.now_ns()  # just now

    rows = json.loads(house.broker.retained_payload("$SYS/broker/bounds"))["rows"]
    assert len(rows) == 1
    assert house.broker.entrance.flows.is_report_due
