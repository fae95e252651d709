"""In which order messages of several clients are taken in, and what must not overtake them.

In process, so that the order in which sockets are read is the test's choice. `contend` announces a
turn first: what is read after it waits for that turn, as it does when many sockets are readable.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.node.doubles import Build, House, RecordingTransport
from tests.peer import props

from timebound.config.input import InputConfig
from timebound.core.input.contract import Contract
from timebound.core.input.steps import finish as finish_steps
from timebound.node.clients.connection import Connection
from timebound.node.input.input import Input
from timebound.wire.codec import encode
from timebound.wire.packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscribeEntry,
    Will,
)

TURNS_MAX = 10_000
PUBREL = 6


def payloads(transport: RecordingTransport, topic: str = "") -> list[bytes]:
    return [
        packet.payload
        for packet in transport.packets()
        if isinstance(packet, Publish) and topic in ("", packet.topic)
    ]


def numbered(name: str, topic: str, count: int, qos: int = 0) -> list[Packet]:
    return [
        Publish(topic, f"{name}{number}".encode(), qos, packet_id=number + 1 if qos else 0)
        for number in range(count)
    ]


def watch(house: House, topic_filter: str = "#") -> RecordingTransport:
    _, transport = house.open(Connect("watcher"), Subscribe(1, [SubscribeEntry(topic_filter)]))
    return transport


def contend(house: House) -> None:
    house.driver.schedule()


def finish(house: House) -> None:
    """Take turns until nothing waits at the input."""
    for _ in range(TURNS_MAX):
        house.driver.turn()
        if not house.driver.input.has_more():
            house.driver.input.scheduler._check()
            return
    pytest.fail(f"the input is not empty after {TURNS_MAX} turns")


async def store(house: House) -> None:
    """Have all orders written that there are, and those that follow from them."""
    while house.storage.waiting:
        house.storage.finish()
        await asyncio.sleep(0)


def pair(house: House) -> tuple[Connection, Connection]:
    return house.open(Connect("a"))[0], house.open(Connect("b"))[0]


async def test_a_new_input_has_nothing_to_do_and_a_turn_of_it_takes_none_of_its_time(build: Build) -> None:
    input_ = Input(build().broker, 0, 1_000_000)

    assert not input_.has_more()
    input_.serve()
    assert not input_.is_contended
    assert input_.entrance.scheduler.is_empty()


async def test_two_publishers_of_one_topic_alternate(build: Build) -> None:
    house = build()
    seen = watch(house)
    a, b = pair(house)
    contend(house)
    house.send(a, *numbered("a", "t", 20))
    house.send(b, *numbered("b", "t", 20))
    finish(house)

    order = [payload[:1] for payload in payloads(seen)]
    assert order == [b"a", b"b"] * 20
    assert payloads(seen)[::2] == [f"a{number}".encode() for number in range(20)]


async def test_topics_share_by_weight_under_load(build: Build) -> None:
    house = build()
    house.driver.input.entrance.flows.set_weight("alarm/#", 3, 0)
    seen = watch(house)
    a, b = pair(house)
    contend(house)
    house.send(a, *numbered("a", "alarm/x", 60))
    house.send(b, *numbered("b", "log/x", 60))
    finish(house)

    first = [payload[:1] for payload in payloads(seen)[:40]]
    assert first.count(b"a") == 30
    assert b"aaaa" not in b"".join(first)


async def test_lone_publisher_passes_straight_through(build: Build) -> None:
    house = build()
    seen = watch(house)
    a, _ = pair(house)
    finish(house)  # a slow machine may end a turn before all have been let in
    house.send(a, *numbered("a", "t", 50))
    finish(house)  # one turn may be over before all are through

    assert len(payloads(seen)) == 50
    assert not a.client_input.queues


async def test_turn_ends_in_time_and_goes_on_with_the_next(build: Build) -> None:
    house = build()
    seen = watch(house)
    house.driver.input.turn_ns = 1  # as if everything took too long
    a, transport = house.open(Connect("a"))
    house.send(a, *numbered("a", "t", 100))

    assert 0 < len(payloads(seen)) < 100
    assert not transport.is_reading
    finish(house)
    assert payloads(seen) == [f"a{number}".encode() for number in range(100)]
    assert transport.is_reading


async def test_a_qos_2_message_that_is_sent_again_is_not_overtaken_by_its_release(build: Build) -> None:
    house = build()
    seen = watch(house, "once")
    a, b = pair(house)
    house.send(a, Publish("once", b"x", 2, packet_id=7))
    finish(house)

    contend(house)
    house.send(b, *numbered("b", "t", 20))
    house.send(a, Publish("once", b"x", 2, packet_id=7, dup=True))
    house.send(a, Ack(PUBREL, 7))
    finish(house)

    assert payloads(seen) == [b"x"]
    session = house.broker.session("a")
    assert session is not None
    assert not session.inbound


async def test_flood_does_not_delay_others_and_is_not_read_further(build: Build) -> None:
    house = build()
    house.driver.input.turn_ns = 1
    seen = watch(house)
    flooder, flooded = house.open(Connect("flooder"))
    calm, _ = house.open(Connect("calm"))
    contend(house)
    # More than one client may have waiting (queue_quanta_max is 256).
    house.send(flooder, *numbered("f", "flood", 3_000))
    house.send(calm, Publish("calm", b"now"))
    house.driver.turn()

    assert payloads(seen, "calm") == [b"now"]
    assert not flooded.is_reading
    finish(house)
    assert flooded.is_reading
    assert payloads(seen, "flood") == [f"f{number}".encode() for number in range(3_000)]


async def test_large_message_is_served_in_parts_and_holds_up_nobody(build: Build) -> None:
    house = build()
    seen = watch(house)
    a, b = pair(house)
    contend(house)
    house.send(a, Publish("t", b"a" * 10_240))  # ten quanta
    house.send(b, *numbered("b", "t", 20))
    finish(house)

    assert [payload[:1] for payload in payloads(seen)].index(b"a") == 9


async def test_subscribe_does_not_overtake_earlier_messages(build: Build) -> None:
    house = build()
    a, seen = house.open(Connect("a"))
    b, _ = house.open(Connect("b"))
    contend(house)
    house.send(b, *numbered("b", "other", 50))
    house.send(a, *numbered("a", "t", 5), Subscribe(1, [SubscribeEntry("t")]), Publish("t", b"later"))
    finish(house)

    assert payloads(seen) == [b"later"]


async def test_answers_keep_the_order_of_the_questions(build: Build) -> None:
    house = build()
    a, seen = house.open(Connect("a"))
    b, _ = house.open(Connect("b"))
    contend(house)
    house.send(b, *numbered("b", "other", 50))
    house.send(a, *numbered("a", "t", 2, qos=1), Pingreq(), Subscribe(9, [SubscribeEntry("x")]))
    finish(house)

    assert [type(packet) for packet in seen.packets()] == [Connack, Ack, Ack, Pingresp, Suback]


async def test_disconnect_waits_for_the_messages_before_it(build: Build) -> None:
    house = build()
    seen = watch(house)
    will = Will("will", b"gone")
    a, transport = house.open(Connect("a", will=will))
    b, _ = house.open(Connect("b"))
    contend(house)
    house.send(b, *numbered("b", "other", 50))
    house.send(a, *numbered("a", "t", 20), Disconnect())
    a.connection_lost(None)  # before the turn
    finish(house)

    assert len(payloads(seen, "t")) == 20
    assert payloads(seen, "will") == []
    assert not transport.is_closed  # there was nothing left to close
    assert house.broker.session("a") is None
    assert house.driver.authenticated == 2


async def test_will_comes_after_what_a_lost_client_had_published(build: Build) -> None:
    house = build()
    seen = watch(house)
    a, _ = house.open(Connect("a", will=Will("t", b"gone")))
    b, _ = house.open(Connect("b"))
    contend(house)
    house.send(b, *numbered("b", "other", 50))
    house.send(a, *numbered("a", "t", 5))
    a.connection_lost(None)
    finish(house)

    assert payloads(seen, "t") == [b"a0", b"a1", b"a2", b"a3", b"a4", b"gone"]


async def test_packets_before_a_wrong_one_count(build: Build) -> None:
    house = build()
    seen = watch(house)
    a, transport = house.open(Connect("a"))
    b, _ = house.open(Connect("b"))
    contend(house)
    house.send(b, *numbered("b", "other", 50))
    a.data_received(b"".join(encode(packet, 5) for packet in numbered("a", "t", 5)) + b"\x00\x00")
    finish(house)

    assert len(payloads(seen, "t")) == 5
    last = transport.packets()[-1]
    assert isinstance(last, Disconnect)
    assert last.reason_code == 0x81


async def test_client_that_comes_back_does_not_overtake_itself(build: Build) -> None:
    house = build()
    house.driver.input.turn_ns = 1
    seen = watch(house)
    old, _ = house.open(Connect("twin"))
    b, _ = house.open(Connect("b"))
    contend(house)
    house.send(b, *numbered("b", "other", 500))
    house.send(old, *numbered("old", "t", 100))
    house.driver.turn()
    new, _ = house.open(Connect("twin"))
    house.send(new, Publish("t", b"new"))
    finish(house)

    seen_on_t = payloads(seen, "t")
    assert seen_on_t[-1] == b"new"
    assert len(seen_on_t) > 1
    assert seen_on_t[:-1] == [f"old{number}".encode() for number in range(len(seen_on_t) - 1)]


@pytest.mark.parametrize("is_durable", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_what_a_closed_client_had_said_counts_and_its_answers_reach_nobody(
    build: Build, qos: int, is_durable: bool
) -> None:
    house = build(is_durable=is_durable)
    house.driver.input.turn_ns = 1
    seen = watch(house)
    a, _ = house.open(Connect("a", properties=props(session_expiry_interval=60)))
    b, _ = house.open(Connect("b"))
    await store(house)
    contend(house)
    house.send(b, *numbered("b", "other", 500))
    house.send(a, *numbered("a", "t", 60, qos))
    house.driver.turn()
    waiting = a.client_input.waiting
    session = a.session
    a.close(0x98, "by the operator")
    finish(house)
    await store(house)

    assert 0 < waiting < 60
    assert payloads(seen, "t") == [f"a{number}".encode() for number in range(60)]
    assert session is not None
    assert (session.replies, session.held) == ([], 0)
    house.broker._check()
    _, again = house.open(Connect("a", clean_start=False, properties=props(session_expiry_interval=60)))
    await store(house)
    assert [type(packet) for packet in again.packets()] == [Connack]


async def test_new_weight_lets_no_message_overtake_another_of_its_topic(build: Build) -> None:
    house = build()
    house.driver.input.turn_ns = 1
    seen = watch(house)
    a, b = pair(house)
    contend(house)
    house.send(b, *numbered("b", "other", 500))
    house.send(a, *numbered("a", "alarm/x", 50))
    house.driver.turn()
    house.driver.input.entrance.flows.set_weight("alarm/#", 100, 0)
    house.send(a, *[Publish("alarm/x", f"a{number}".encode()) for number in range(50, 100)])
    finish(house)

    assert payloads(seen, "alarm/x") == [f"a{number}".encode() for number in range(100)]


async def test_weight_set_under_load_counts_within_a_cycle(build: Build) -> None:
    house = build()
    input_ = house.driver.input
    input_.turn_ns = 1
    input_.entrance.flows.set_weight("alarm/#", 3, 0)
    a, b = pair(house)
    contend(house)
    house.send(a, *numbered("a", "alarm/x", 60))
    house.send(b, *numbered("b", "log/x", 60))
    house.driver.turn()

    # Cells at 1/8, 3/8, 5/8 and 7/8 instead of 1/6, 1/2 and 5/6: from 7/8 on.
    assert input_.entrance.flows.set_weight("alarm/#", 4, 0).accepted

    assert input_.entrance.flows.weights() == {"alarm/#": 4, "#": 1}
    assert input_.entrance.flows.background("alarm/x").weight == 3
    assert input_.entrance.flows.admission.unsettled() == ["\0alarm/#"]
    house.driver.turn()
    assert input_.entrance.flows.background("alarm/x").weight == 4
    input_.entrance.update(input_.now_ns())
    assert input_.entrance.flows.admission.unsettled() == []
    finish(house)


async def test_flow_that_raises_its_topics_weight_is_told_from_when_its_promise_holds(build: Build) -> None:
    house = build()
    input_ = house.driver.input
    input_.turn_ns = 1
    c, d = house.open(Connect("c"))[0], house.open(Connect("d"))[0]
    first = input_.entrance.flows.advertise(c, Contract("c", "t", interval_ns=10_000_000, weight=3), 0)
    a, b = pair(house)
    contend(house)
    house.send(a, *numbered("a", "x", 60))
    house.send(b, *numbered("b", "y", 60))
    house.driver.turn()

    second = input_.entrance.flows.advertise(d, Contract("d", "t", interval_ns=10_000_000, weight=4), 0)

    assert first.reason.endswith(" ms")
    assert second.reason.endswith(" ms once its new weight takes effect, within a cycle")
    assert [row["weight"] for row in finish_steps(input_.entrance.flows.reporting())["rows"]] == [4, 4]
    finish(house)
    assert input_.scheduler.topics["t"].weight == 4


async def test_removed_weight_lets_topics_go_by_the_next_filter(build: Build) -> None:
    house = build()
    input_ = house.driver.input
    for topic_filter, weight in (("alarm/#", 100), ("+/x", 3)):
        input_.entrance.flows.set_weight(topic_filter, weight, 0)
    seen = watch(house)
    a, b = pair(house)
    contend(house)
    house.send(b, *numbered("b", "log/y", 80))
    house.send(a, Publish("alarm/x", b"a0"), Publish("alarm/y", b"a1"))
    finish(house)  # both are known, and their queues are empty

    finish_steps(input_.entrance.flows.removing_weight("alarm/#", input_.entrance.publishers.values()))
    assert input_.entrance.flows.weights() == {"+/x": 3, "#": 1}
    assert sorted(input_.scheduler.topics) == ["\0#", "\0+/x"]
    contend(house)
    house.send(b, *numbered("c", "log/y", 80))
    house.send(a, *numbered("d", "alarm/x", 60))
    finish(house)

    order = [payload[:1] for payload in payloads(seen)[82:122]]
    assert order.count(b"d") == 30  # 3 of 4, no longer 100 of 101


async def test_removed_weight_loses_no_message_and_lets_none_overtake(build: Build) -> None:
    house = build()
    input_ = house.driver.input
    input_.turn_ns = 1
    for topic_filter in ("alarm/#", "+/g"):
        input_.entrance.flows.set_weight(topic_filter, 2, 0)
    seen = watch(house)
    a, b = pair(house)
    gone, _ = house.open(Connect("gone"))
    contend(house)
    house.send(b, *numbered("b", "other", 500))
    house.send(a, Publish("alarm/x", b"a0" * 2_048), *numbered("a", "alarm/x", 100)[1:])
    house.send(a, *numbered("n", "note", 50))
    house.send(gone, *numbered("g", "alarm/g", 30))
    house.driver.turn()
    house.open(Connect("gone"))  # takes over, so that the first one is no publisher any more
    assert len(input_.scheduler.topics["\0alarm/#"].ring) == 2

    finish_steps(input_.entrance.flows.removing_weight("alarm/#", input_.entrance.publishers.values()))
    input_.scheduler._check()
    assert [queue.client.name for queue in input_.scheduler.topics["\0+/g"].ring] == ["gone"]
    house.send(a, *[Publish("alarm/x", f"a{number}".encode()) for number in range(100, 150)])
    finish(house)

    assert payloads(seen, "alarm/x")[1:] == [f"a{number}".encode() for number in range(1, 150)]
    assert payloads(seen, "note") == [f"n{number}".encode() for number in range(50)]
    assert payloads(seen, "alarm/g") == [f"g{number}".encode() for number in range(30)]
    assert "\0alarm/#" not in a.client_input.queues


async def test_weight_can_be_removed_while_excess_of_a_former_flow_waits(build: Build) -> None:
    house = build()
    input_ = house.driver.input
    input_.turn_ns = 1
    input_.entrance.flows.set_weight("alarm/#", 2, 0)
    seen = watch(house)
    a, b = pair(house)
    assert input_.entrance.flows.advertise(a, Contract("a", "alarm/x", interval_ns=10**10), 0).accepted
    contend(house)
    house.send(b, *numbered("b", "other", 500))
    house.send(a, *numbered("a", "alarm/x", 30))
    house.driver.turn()
    house.open(Connect("a"))
    while len(input_.entrance.jobs) > 0:  # the release of its flow
        house.broker.continue_jobs(input_.now_ns())
    assert not input_.scheduler.topics["\0alarm/#"].ring
    assert input_.scheduler.topics["\0alarm/#"].queues_open == 1

    finish_steps(input_.entrance.flows.removing_weight("alarm/#", input_.entrance.publishers.values()))
    finish(house)

    assert payloads(seen, "alarm/x") == [f"a{number}".encode() for number in range(30)]


@pytest.mark.parametrize("is_contended", [False, True])
@pytest.mark.parametrize("mode", ["lower", "refuse"])
async def test_excess_of_an_advertised_flow_is_policed_and_counted(
    build: Build, mode: str, is_contended: bool
) -> None:
    house = build(input_config=InputConfig(excess=mode))  # type: ignore[arg-type]  # a literal
    seen = watch(house)
    a, transport = house.open(Connect("a"))
    b, _ = house.open(Connect("b"))
    contract = Contract("a", "t", interval_ns=10_000_000_000, burst=3, size=10)
    assert house.driver.input.entrance.flows.advertise(a, contract, 0).accepted
    if is_contended:
        contend(house)
        house.send(b, *numbered("b", "other", 50))
    house.send(a, *numbered("a", "t", 8, qos=1))
    finish(house)

    figures = house.driver.input.entrance.figures()
    codes = [packet.reason_code for packet in transport.packets() if isinstance(packet, Ack)]
    if mode == "lower":
        assert payloads(seen, "t") == [f"a{number}".encode() for number in range(8)]
        assert (figures["excess_lowered"], figures["excess_refused"]) == (5, 0)
        assert codes == [0] * 8
    else:
        assert payloads(seen, "t") == [b"a0", b"a1", b"a2"]
        assert (figures["excess_lowered"], figures["excess_refused"]) == (0, 5)
        assert sorted(codes) == [0] * 3 + [0x97] * 5


async def test_contract_ends_with_the_connection(build: Build) -> None:
    house = build()
    flows = house.driver.input.entrance.flows
    a, _ = house.open(Connect("a"))
    assert flows.advertise(a, Contract("a", "t", interval_ns=10_000_000), 0).accepted
    assert [row["topic"] for row in finish_steps(flows.reporting())["rows"]] == ["t"]

    house.send(a, Disconnect())
    a.connection_lost(None)
    finish(house)

    assert finish_steps(flows.reporting())["rows"] == []
    assert list(house.driver.input.scheduler.topics) == ["\0#"]


async def test_message_that_waited_for_a_stop_with_another_is_no_excess(build: Build) -> None:
    """After a stop of 15 ms two messages of a flow are read at once; with one of 40 ms, five are."""
    house = build()
    input_ = house.driver.input
    transport = watch(house, "t")
    a, _ = house.open(Connect("a"))
    assert input_.entrance.flows.advertise(
        a, Contract("a", "t", interval_ns=10_000_000, size=100), 0
    ).accepted

    house.send(a, *numbered("a", "t", 2))
    assert input_.entrance.excess_lowered == 0
    finish_steps(input_.entrance.flows.measuring(50_000, 2_000_000, 40_000_000))
    house.send(a, *numbered("b", "t", 3))

    assert input_.entrance.excess_lowered == 0
    finish(house)
    assert len(payloads(transport)) == 5
