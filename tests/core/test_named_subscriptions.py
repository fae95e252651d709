"""Several subscriptions of one client to one filter, told apart by their names."""

from __future__ import annotations

import json

import pytest
from tests.core.broker_doubles import Node, Peer

from timebound.core.broker import NO_SUBSCRIPTION_EXISTED, QUOTA_EXCEEDED, SUCCESS
from timebound.core.sessions.session import PUBACK
from timebound.core.values.limits import BrokerLimits
from timebound.terms import Terms
from timebound.units import MILLISECOND, SECOND

HOT = Terms(name="hot", where="v > 90", deadline_ns=100 * MILLISECOND, price=10.0, penalty=1.0)
ALL = Terms(name="all", price=1.0)


class House:
    """A publisher and a reader, with one subscription to `t` for each of the given terms."""

    def __init__(
        self,
        *terms: Terms,
        topic_filter: str = "t",
        durable: bool = False,
        receive_maximum: int = 100,
        **limits: int,
    ) -> None:
        self.node = Node(BrokerLimits(**limits), durable=durable)
        self.publisher = self.node.connect("publisher")
        self.reader = self.node.connect("reader", receive_maximum=receive_maximum)
        for number, one in enumerate(terms, 1):
            self.node.subscribe(self.reader, topic_filter, 1, identifier=number, terms=one)
        self.settle()
        self.reader.take()

    def settle(self) -> None:
        self.node.settle()
        self.node.check()

    def publish(self, value: int, topic: str = "t", qos: int = 1) -> None:
        self.node.publish(self.publisher, topic, json.dumps({"v": value}).encode(), qos)

    def values(self, peer: Peer | None = None) -> list[int]:
        self.settle()
        found = [json.loads(payload)["v"] for payload in (peer or self.reader).payloads()]
        (peer or self.reader).take()
        return found

    def drain(self) -> list[int]:
        """Acknowledge until nothing more comes; return the values in order."""
        found = self.values()
        while inflight := list(self.reader.session.inflight):
            for packet_id in inflight:
                self.node.acknowledge(self.reader, PUBACK, packet_id)
            found += self.values()
        return found

    def outcomes(self) -> tuple[int, int, int]:
        account = self.node.broker.account
        return account.matched, account.in_time, account.late


def test_a_message_comes_once_with_the_identifiers_of_those_that_select_it() -> None:
    house = House(HOT, ALL)
    house.publish(95)
    house.publish(5)
    house.settle()

    first, second = house.reader.publishes()

    assert sorted(first.ids) == [1, 2]
    assert second.ids == (2,)
    assert house.node.broker.account.matched == 3


def test_each_pair_has_the_outcome_of_its_own_deadline_and_price() -> None:
    house = House(HOT, ALL)
    house.publish(95)
    house.settle()
    [sent] = house.reader.publishes()
    house.node.advance(0.2)

    house.node.acknowledge(house.reader, PUBACK, sent.packet_id)

    account = house.node.broker.account
    assert house.outcomes() == (2, 1, 1)
    assert (account.earned_micro, account.paid_micro) == (1_000_000, 1_000_000)


def test_the_same_filter_and_name_replace_and_other_names_stay() -> None:
    house = House(HOT, ALL)

    house.node.subscribe(house.reader, "t", 1, identifier=7, terms=Terms(name="hot", where="v > 50"))
    house.publish(60)
    house.settle()

    [sent] = house.reader.publishes()
    assert sorted(sent.ids) == [2, 7]
    assert len(house.reader.session.subscriptions) == 2


def test_the_unnamed_one_stands_beside_those_with_names() -> None:
    house = House(HOT)

    house.node.subscribe(house.reader, "t", 1, identifier=9)
    house.publish(1)
    house.settle()

    [sent] = house.reader.publishes()
    assert sent.ids == (9,)


@pytest.mark.parametrize(
    ("name", "code", "left"),
    [
        (None, SUCCESS, []),
        ("hot", SUCCESS, ["", "all"]),
        ("", SUCCESS, ["all", "hot"]),
        ("cold", NO_SUBSCRIPTION_EXISTED, ["", "all", "hot"]),
    ],
)
def test_unsubscribing_ends_all_of_a_filter_or_the_one_of_a_name(
    name: str | None, code: int, left: list[str]
) -> None:
    house = House(HOT, ALL, Terms(), durable=True)

    assert house.node.unsubscribe(house.reader, "t", name) == code
    house.settle()

    names = sorted(one.terms.name for one in house.reader.session.subscriptions.values())
    assert names == left
    assert sorted(one.terms.name for one in house.node.storage.subscriptions.values()) == left
    house.publish(95)
    assert house.values() == ([95] if left else [])


def test_copies_that_wait_outlast_the_end_of_one_of_their_subscriptions() -> None:
    house = House(HOT, ALL)
    house.publish(95)
    house.publish(5)

    house.node.unsubscribe(house.reader, "t", "hot")

    assert house.values() == [95, 5]
    house.publish(96)
    house.settle()
    assert [sent.ids for sent in house.reader.publishes()] == [(2,)]


def test_a_copy_that_only_a_lax_deadline_wants_is_sent_after_the_strict_one() -> None:
    house = House(HOT, ALL)
    house.publish(95)
    house.publish(5)
    house.node.advance(0.5)

    assert house.values() == [95, 5]


def test_every_name_counts_against_the_limits() -> None:
    house = House(HOT, ALL, subscriptions_per_client_max=2)

    assert house.node.subscribe(house.reader, "t", terms=Terms(name="third")) == QUOTA_EXCEEDED
    assert house.node.subscribe(house.reader, "t", terms=Terms(name="all", price=3.0)) == 2


def test_retain_handling_if_new_means_filter_and_name() -> None:
    house = House()
    house.node.publish(house.publisher, "t", b'{"v": 1}', retain=True)

    for name, count in (("a", 1), ("a", 0), ("b", 1), ("", 1), ("", 0)):
        house.node.subscribe(house.reader, "t", 0, retain_handling=1, terms=Terms(name=name))
        assert len(house.values()) == count


def test_keeping_the_last_lets_nothing_go_that_another_name_wants() -> None:
    house = House(Terms(name="live", keep_last=True), Terms(name="log", where="v > 1"), receive_maximum=1)
    house.publish(0)
    assert house.values() == [0], "the next ones wait for its answer"
    for value in (1, 1, 2, 3, 1):
        house.publish(value)
        house.settle()

    # Each 1 is for `live` alone, and only the newest of them waits; 2 and 3 are for both.
    assert sorted(house.drain()) == [1, 2, 3]
    assert house.node.broker.account.dropped["replaced"] == 2


def test_two_that_keep_the_last_share_the_newest_copy() -> None:
    house = House(Terms(name="a", keep_last=True), Terms(name="b", keep_last=True), receive_maximum=1)
    house.publish(0)
    assert house.values() == [0]
    for value in (1, 2, 3):
        house.publish(value)
        house.settle()

    assert house.drain() == [3]
    assert house.node.broker.account.dropped["replaced"] == 4


def test_a_correlation_of_one_name_does_not_hold_back_another() -> None:
    both = Terms(name="both", correlate="all(t/a, t/b)")
    house = House(both, Terms(name="each", price=5.0), topic_filter="t/+")

    house.publish(1, "t/a")
    assert house.values() == [1]
    house.publish(2, "t/b")

    house.settle()
    ids = [(sent.ids, sent.topic) for sent in house.reader.publishes()]
    assert sorted(ids) == [((1,), "t/a"), ((1,), "t/b"), ((2,), "t/b")]


def test_watchdogs_and_ticks_belong_to_their_name() -> None:
    house = House(
        Terms(name="calm", where="v = 0", watchdog_ns=SECOND),
        Terms(name="busy", where="v = 1", watchdog_ns=SECOND),
        Terms(name="clock", where="v = 2", every_ns=10 * SECOND),
    )
    house.node.advance(0.6)
    house.publish(0)
    house.settle()
    house.reader.take()

    house.node.advance(0.6)
    house.settle()

    [alarm] = house.reader.publishes()
    assert (alarm.topic, alarm.ids) == ("$timebound/watchdog", (2,))
    assert json.loads(alarm.payload)["name"] == "busy"
    house.node.unsubscribe(house.reader, "t", "busy")
    house.node.unsubscribe(house.reader, "t", "calm")
    house.reader.take()
    house.node.advance(9)
    house.settle()
    [tick] = house.reader.publishes()
    assert (tick.topic, tick.ids, json.loads(tick.payload)["name"]) == (
        "$timebound/every",
        (3,),
        "clock",
    )


def test_ticks_while_away_are_kept_for_each_name() -> None:
    house = House(Terms(name="a", every_ns=SECOND), Terms(name="b", every_ns=SECOND))
    house.node.disconnect(house.reader)
    house.node.advance(5)

    again = house.node.connect("reader")
    house.settle()

    assert sorted(json.loads(payload)["name"] for payload in again.payloads()) == ["a", "b"]


def test_notices_of_missed_messages_say_the_name() -> None:
    wanted = Terms(name="hot", where="v > 90", deadline_ns=SECOND, notify_missed=True)
    house = House(wanted, Terms(name="calm", deadline_ns=60 * SECOND), receive_maximum=1)
    house.node.unsubscribe(house.reader, "t", "calm")
    for value in (95, 96):
        house.publish(value)
        house.settle()

    house.node.advance(2)
    house.settle()

    notices = [json.loads(sent.payload) for sent in house.reader.publishes() if "missed" in sent.topic]
    assert [(notice["topic_filter"], notice["name"]) for notice in notices] == [("t", "hot")]


def test_names_and_what_they_are_owed_survive_a_crash() -> None:
    house = House(HOT, ALL, durable=True)
    house.node.disconnect(house.reader)
    house.publish(95)
    house.publish(5)
    house.settle()

    house.node.crash()
    house.node.check()
    again = house.node.connect("reader")
    pairs = [
        sorted(one.terms.name for one in (copy.subscription, *copy.others) if one is not None)
        for copy in again.session.queue
    ]

    assert again.is_present
    assert pairs == [["all", "hot"], ["all"]]
    assert house.node.broker.account.matched == 3
    house.node.settle()
    assert [json.loads(payload)["v"] for payload in again.payloads()] == [95, 5]


def test_a_take_over_keeps_every_name() -> None:
    house = House(HOT, ALL)

    again = house.node.connect("reader")
    house.publish(95)
    house.settle()

    [sent] = again.publishes()
    assert sorted(sent.ids) == [1, 2]


def test_a_shared_message_goes_to_one_client_and_counts_for_its_names() -> None:
    house = House(HOT, ALL, topic_filter="$share/g/t")
    other = house.node.connect("other")
    house.node.subscribe(other, "$share/g/t", 1, identifier=5)
    house.settle()
    for _ in range(10):
        house.publish(95)
    house.settle()

    mine, theirs = house.reader.publishes(), other.publishes()

    assert (len(mine), len(theirs)) == (5, 5), "clients take turns, not their names"
    assert all(sorted(sent.ids) == [1, 2] for sent in mine)
    assert house.node.broker.account.matched == 15


def test_a_member_that_ends_one_name_keeps_the_copies_of_the_other() -> None:
    house = House(HOT, ALL, topic_filter="$share/g/t")
    for _ in range(3):
        house.publish(95)
    other = house.node.connect("other")
    house.node.subscribe(other, "$share/g/t", 1)

    house.node.unsubscribe(house.reader, "$share/g/t", "hot")
    house.node.check()
    assert (
        len(house.reader.session.queue)
        + (len(house.reader.session.scheduled) if house.reader.session.scheduled is not None else 0)
        == 3
    )
    house.node.unsubscribe(house.reader, "$share/g/t")

    assert house.values(other) == [95, 95, 95]
    assert house.values() == []
    assert house.outcomes()[0] == 3


def test_correlations_of_a_shared_member_count_a_message_once() -> None:
    both = "all(t/a, t/b)"
    house = House(
        Terms(name="x", correlate=both), Terms(name="y", correlate=both), topic_filter="$share/g/t/+"
    )

    house.publish(1, "t/a")
    house.publish(2, "t/b")

    assert sorted(house.values()) == [1, 2]
