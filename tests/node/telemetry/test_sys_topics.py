"""`$SYS` topics: names others use, and only what has changed."""

from __future__ import annotations

from tests.conftest import BrokerProcess, StartOver
from tests.peer import join

from timebound.core.broker import Broker
from timebound.core.values.access import AccessList
from timebound.core.values.limits import BrokerLimits
from timebound.node.telemetry.figures import Sources
from timebound.node.telemetry.sys_topics import SysTopics
from timebound.records import Reason
from timebound.translate import to_subscription
from timebound.units import SECOND
from timebound.version import VERSION
from timebound.wire.packets import Publish


def test_figures_follow_the_broker() -> None:
    broker = Broker(BrokerLimits(), AccessList([]))
    figures = SysTopics(Sources(broker), "plant-7")
    broker.connect("a", "", True, 0, 10, None, 1, 0)
    session, _ = broker.connect("b", "", True, 60, 10, None, 2, 0)
    broker.disconnect(session, 2, False, 0)
    broker.account.dropped["queue_full"] += 3

    found = figures.figures(90 * SECOND)

    assert found["$SYS/broker/version"] == f"timebound version {VERSION}"
    assert found["$SYS/broker/node"] == "plant-7"
    assert found["$SYS/broker/uptime"] == "90"
    assert found["$SYS/broker/clients/connected"] == "1"
    assert found["$SYS/broker/clients/disconnected"] == "1"
    assert found["$SYS/broker/clients/total"] == "2"
    assert found["$SYS/broker/connections/total"] == "2"
    assert found["$SYS/broker/dropped/queue_full"] == "3"
    assert found["$SYS/broker/publish/messages/dropped"] == "3"
    assert {f"$SYS/broker/dropped/{reason.value}" for reason in Reason} <= set(found)


def test_the_account_is_told_to_the_millionth() -> None:
    broker = Broker(BrokerLimits(), AccessList([]))
    broker.account.matched = 7
    broker.account.in_time = 4
    broker.account.late = 1
    broker.account.dropped[Reason.HOPELESS.value] = 2
    broker.account.earned_micro = 12_345_678_901_234_567_890
    broker.account.paid_micro = 50

    found = SysTopics(Sources(broker), "plant-7").figures(0)

    names = ("matched", "in_time", "late", "dropped", "earned", "paid")
    assert [found[f"$SYS/broker/account/{name}"] for name in names] == [
        "7",
        "4",
        "1",
        "2",
        "12345678901234.567890",
        "0.000050",
    ]


def test_only_changed_figures_are_published_again() -> None:
    broker = Broker(BrokerLimits(), AccessList([]))
    figures = SysTopics(Sources(broker), "plant-7")
    session, _ = broker.connect("watcher", "", True, 0, 10, None, 1, 0)
    broker.subscribe(
        session, to_subscription(client_id="watcher", topic_filter="$SYS/#", retain_handling=2), 0
    )
    figures.publish(0)
    broker.take_deliveries(session, 1_000_000, 0)
    figures.publish(0)
    broker.take_deliveries(session, 1_000_000, 0)

    figures.publish(SECOND)

    changed = [one.message.topic for one in broker.take_deliveries(session, 1_000_000, SECOND)]
    assert "$SYS/broker/uptime" in changed
    assert "$SYS/broker/messages/sent" in changed
    assert "$SYS/broker/version" not in changed
    assert "$SYS/broker/clients/connected" not in changed


def test_subscriber_gets_all_figures_at_once_and_then_the_changes(broker_over: BrokerProcess) -> None:
    with join(broker_over.port) as peer:
        peer.subscribe("$SYS/#")
        seen: dict[str, bytes] = {}
        while len(seen) < 25 or "$SYS/broker/uptime" not in seen:
            packet = peer.expect(Publish)
            seen[packet.topic] = packet.payload
        # Receiving all that has itself changed what was sent.
        before = int(seen["$SYS/broker/bytes/sent"])
        while (packet := peer.expect(Publish)).topic != "$SYS/broker/bytes/sent" or packet.retain:
            pass

    assert seen["$SYS/broker/version"].startswith(b"timebound version ")
    assert int(packet.payload) > before


def test_watching_the_broker_earns_nothing(start_over: StartOver) -> None:
    broker = start_over('sys_interval = "100ms"\n[limits]\nretained_messages_max = 1\n')
    with join(broker.port, "watcher") as watcher, join(broker.port, "reader") as reader:
        terms = [("price", "5"), ("penalty", "3"), ("deadline", "1s")]
        watcher.subscribe("$SYS/#", user_properties=terms)
        reader.subscribe("plant/#")
        reader.publish("plant/a", b"1", retain=True)
        reader.expect_publish("plant/a", b"1")

        figures: dict[str, str] = {}
        while int(figures.get("$SYS/broker/account/in_time", "0")) < 100:
            packet = watcher.expect(Publish)
            figures[packet.topic] = packet.payload.decode()
        assert figures["$SYS/broker/account/earned"] == "1.000000"
        assert figures["$SYS/broker/account/paid"] == "0.000000"
        assert figures["$SYS/broker/retained messages/count"] == "1"
        assert figures["$SYS/broker/dropped/quota"] == "0"


def test_figures_that_were_withdrawn_are_all_published_again() -> None:
    broker = Broker(BrokerLimits(), AccessList([]))
    figures = SysTopics(Sources(broker), "plant-7")
    figures.publish(0)
    before = broker.retained_payload("$SYS/broker/node")

    figures.withdraw()
    assert broker.retained_payload("$SYS/broker/node") == b""
    figures.publish(0)

    assert before == b"plant-7"
    assert broker.retained_payload("$SYS/broker/node") == before
