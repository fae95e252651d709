"""Correlation, watchdogs and timers for subscriptions, under virtual time."""

from __future__ import annotations

import json

import pytest

from timebound.core.broker import NOT_AUTHORIZED, QUOTA_EXCEEDED, Broker
from timebound.core.correlation.expression import DEPTH_MAX, SIGNALS_MAX
from timebound.core.correlation.timers import MADE_AT_ONCE
from timebound.core.sessions.correlations import EVERY_TOPIC, TICKS_MAX, TIMERS_MAX, WATCHDOG_TOPIC
from timebound.core.sessions.outbound import Outbound
from timebound.core.sessions.session import Session
from timebound.core.values.access import AccessList, AccessRule
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Delivery, Message
from timebound.core.values.subscription import MICRO, Subscription, UserProperties
from timebound.errors import ProtocolError
from timebound.translate import to_subscription
from timebound.units import MILLISECOND, SECOND
from timebound.version import is_compiled

ANY_BYTES = 1 << 20
# As many parts, and as deep, as a correlation may be that has no timers of its own.
MANY_PARTS = ", ".join([f"t/{number}" for number in range(SIGNALS_MAX)])
DEEP = "any(" * DEPTH_MAX + "a" + ")" * DEPTH_MAX

# For tests of timers, not of limits.
ROOMY = BrokerLimits(ticks_per_second_max=1_000_000, subscriptions_per_client_max=100_000)


class Scene:
    """A broker with one subscriber and one publisher, and a clock to move."""

    def __init__(
        self, access: AccessList | None = None, *, expiry_s: int = 0, limits: BrokerLimits | None = None
    ) -> None:
        self.broker = Broker(limits or ROOMY, access or AccessList([]))
        self.now_ns = SECOND
        self.expiry_s = expiry_s
        self.subscriber = self._connect("subscriber", 1)
        self.publisher = self._connect("publisher", 2)

    def _connect(self, name: str, connection: int) -> Session:
        session, _ = self.broker.connect(name, "", True, self.expiry_s, 100, None, connection, self.now_ns)
        return session

    def reconnect(self) -> None:
        self.broker.connect("subscriber", "", False, self.expiry_s, 100, None, 3, self.now_ns)

    def subscribe(self, topic_filter: str, *terms: tuple[str, str]) -> int:
        subscription = to_subscription(
            client_id="subscriber", topic_filter=topic_filter, qos=1, identifier=5, user_properties=terms
        )
        return self.broker.subscribe(self.subscriber, subscription, self.now_ns)

    def publish(self, topic: str, payload: bytes = b"x") -> list[Delivery]:
        self.broker.route(Message(topic, payload, 0, False, self.now_ns, "publisher"), self.now_ns)
        return self.taken()

    def taken(self) -> list[Delivery]:
        return self.broker.take_deliveries(self.subscriber, ANY_BYTES, self.now_ns)

    def wait(self, seconds: float) -> list[Delivery]:
        """Let time pass as a driver would: woken whenever the broker asked for it."""
        end_ns = self.now_ns + int(seconds * SECOND)
        got: list[Delivery] = []
        while (wakeup_ns := self.broker.next_wakeup_ns()) is not None and wakeup_ns <= end_ns:
            self.now_ns = max(wakeup_ns, self.now_ns)
            self.broker.wake(self.now_ns)
            got += self.taken()
        self.now_ns = end_ns
        return got


def topics(deliveries: list[Delivery]) -> list[str]:
    return [delivery.message.topic for delivery in deliveries]


def test_all_delivers_its_parts_together_once_the_last_has_come() -> None:
    scene = Scene()
    scene.subscribe("#", ("correlate", "all(a/+, b/c)"))

    assert scene.publish("a/1") == []
    assert scene.publish("other") == []
    together = scene.publish("b/c")

    assert topics(together) == ["a/1", "b/c"]
    assert [delivery.group for delivery in together] == ["1:1/2", "1:2/2"]
    assert [delivery.subscription_ids for delivery in together] == [(5,), (5,)]
    assert scene.publish("b/c") == []  # it starts over


def test_only_completed_correlations_are_numbered() -> None:
    scene = Scene()
    scene.subscribe("#", ("correlate", "all(a, b)"), ("watchdog", "2s"), ("every", "3s"))
    scene.publish("a")
    first = scene.publish("b")

    alarms = scene.wait(10)
    scene.publish("a")
    second = scene.publish("b")

    assert {WATCHDOG_TOPIC, EVERY_TOPIC} == set(topics(alarms))
    assert [delivery.group for delivery in alarms] == [""] * len(alarms)
    assert [delivery.group for delivery in first + second] == ["1:1/2", "1:2/2", "2:1/2", "2:2/2"]


def test_ticks_and_alarms_earn_and_cost_nothing() -> None:
    scene = Scene()
    scene.broker.account.is_tracing = True
    scene.subscribe("a", ("watchdog", "2s"), ("every", "3s"), ("price", "7"), ("deadline", "10s"))
    published = scene.publish("a")
    notices = scene.wait(6)

    for delivery in published + notices:
        scene.broker.acknowledge(scene.subscriber, 4, delivery.packet_id, 0, scene.now_ns)

    assert len(notices) == 5
    assert (scene.broker.account.earned_micro, scene.broker.account.in_time) == (7 * MICRO, 6)
    records = list(scene.broker.account.trace.take().records())
    assert [record.receiver.price_micro for record in records] == [7 * MICRO, 0, 0, 0, 0, 0]
    assert {record.receiver.topic_filter for record in records} == {"a"}


def test_timers_of_a_client_that_is_away_leave_only_their_last_word() -> None:
    scene = Scene(expiry_s=3_600)
    scene.subscribe("a", ("watchdog", "2s"), ("every", "100ms"))
    scene.broker.disconnect(scene.subscriber, 1, False, scene.now_ns)

    scene.wait(60)

    assert scene.subscriber.queued_messages() == 0
    assert scene.broker.account.matched == 0
    scene.reconnect()
    waiting = scene.taken()
    counts = {delivery.message.topic: json.loads(delivery.message.payload)["count"] for delivery in waiting}
    assert counts == {EVERY_TOPIC: 600, WATCHDOG_TOPIC: 30}
    assert len(waiting) == 2
    assert len(scene.wait(1)) == 10  # and on they go


def test_parts_older_than_the_window_no_longer_count() -> None:
    scene = Scene()
    scene.subscribe("#", ("correlate", "all(a, b)"), ("within", "2s"))

    scene.publish("a", b"old")
    scene.wait(3)
    assert scene.publish("b") == []
    together = scene.publish("a", b"new")

    assert [delivery.message.payload for delivery in together] == [b"new", b"x"]


def test_the_topic_filter_limits_what_a_correlation_sees() -> None:
    scene = Scene()
    scene.subscribe("a/#", ("correlate", "all(a/1, b/1)"))

    scene.publish("a/1")

    assert scene.publish("b/1") == []


def test_watchdog_speaks_up_in_silence_also_before_the_first_message() -> None:
    scene = Scene()
    scene.subscribe("pump/+", ("watchdog", "2s"))

    (notice,) = scene.wait(2)

    assert notice.message.topic == WATCHDOG_TOPIC
    told = json.loads(notice.message.payload)
    assert told == {"filter": "pump/+", "count": 1, "missed": 0, "silent_ms": 2000}


def test_watchdog_is_quiet_while_messages_come_and_they_are_delivered() -> None:
    scene = Scene()
    scene.subscribe("pump/+", ("watchdog", "2s"))

    for _ in range(3):
        assert scene.wait(1.5) == []
        assert topics(scene.publish("pump/1")) == ["pump/1"]
    assert topics(scene.wait(2)) == [WATCHDOG_TOPIC]


def test_every_beats_regularly_beside_the_messages() -> None:
    scene = Scene()
    scene.subscribe("pump/+", ("every", "1s"))

    ticks = scene.wait(3.5)

    assert topics(ticks) == [EVERY_TOPIC] * 3
    assert [json.loads(tick.message.payload)["count"] for tick in ticks] == [1, 2, 3]
    assert topics(scene.publish("pump/1")) == ["pump/1"]


def test_timers_end_with_the_subscription_and_with_the_session() -> None:
    scene = Scene()
    scene.subscribe("a", ("every", "1s"))
    scene.subscribe("b", ("watchdog", "1s"))

    scene.broker.unsubscribe(scene.subscriber, "a", scene.now_ns)
    assert topics(scene.wait(1)) == [WATCHDOG_TOPIC]
    scene.broker.disconnect(scene.subscriber, 1, False, scene.now_ns)

    assert scene.broker.next_wakeup_ns() is None


def test_a_changed_subscription_starts_its_wait_anew() -> None:
    scene = Scene()
    scene.subscribe("#", ("correlate", "all(a, b)"))
    scene.publish("a")

    scene.subscribe("#", ("correlate", "all(a, b)"))

    assert scene.publish("b") == []


@pytest.mark.parametrize("period", ["1h", "2h"])
def test_too_many_timers_are_refused_and_nothing_changes(period: str) -> None:
    scene = Scene()
    for number in range(TIMERS_MAX // 2):
        assert scene.subscribe(f"t/{number}", ("every", period), ("watchdog", period)) == 1

    assert scene.subscribe("one/more", ("every", period)) == QUOTA_EXCEEDED
    assert topics(scene.publish("one/more")) == []
    scene.broker._check()


def wanted(client_id: str, topic_filter: str, *terms: tuple[str, str]) -> Subscription:
    return to_subscription(client_id=client_id, topic_filter=topic_filter, qos=1, user_properties=terms)


def out_of_timers(*, but: int = 0) -> Scene:
    """A scene in which a third client has taken all timers except some."""
    scene = Scene()
    session = scene._connect("hoarder", 3)
    for number in range(TIMERS_MAX - but):
        one = wanted("hoarder", f"h/{number}", ("every", "2h"))
        assert scene.broker.subscribe(session, one, scene.now_ns) == 1
    return scene


def test_a_refusal_without_timers_names_the_timers() -> None:
    scene = out_of_timers()

    named = scene.broker.limit_reached(scene.subscriber, wanted("subscriber", "one/more", ("every", "2h")))

    assert named == "the broker's number of timers (16384)"
    assert scene.broker.limit_reached(scene.subscriber, wanted("subscriber", "one/more")) == ""


def test_with_no_timers_left_a_subscription_is_replaced_with_its_own() -> None:
    scene = out_of_timers(but=2)
    assert scene.subscribe("a", ("every", "1s"), ("watchdog", "2h")) == 1

    assert scene.subscribe("a", ("every", "2s"), ("watchdog", "2h")) == 1
    assert topics(scene.wait(2)) == [EVERY_TOPIC]
    assert scene.subscribe("a", ("every", "1s")) == 1
    assert scene.subscribe("b", ("every", "1s")) == 1
    assert scene.subscribe("a", ("every", "1s"), ("watchdog", "2h")) == QUOTA_EXCEEDED

    assert topics(scene.wait(1)) == [EVERY_TOPIC] * 2
    assert topics(scene.publish("a")) == ["a"]
    scene.broker._check()


def test_timers_that_other_members_keep_are_not_free_for_a_replacement() -> None:
    scene = out_of_timers(but=1)
    other = scene._connect("other", 4)
    terms = ("every", "1s")
    assert scene.subscribe("$share/g/#", terms) == 1
    assert scene.broker.subscribe(other, wanted("other", "$share/g/#", terms), scene.now_ns) == 1

    assert scene.subscribe("$share/g/#", ("every", "2s")) == QUOTA_EXCEEDED
    scene.broker.unsubscribe(other, "$share/g/#", scene.now_ns)
    assert scene.subscribe("$share/g/#", ("every", "2s")) == 1

    assert topics(scene.wait(2)) == [EVERY_TOPIC]
    scene.broker._check()


@pytest.mark.skipif(is_compiled(), reason="functions of compiled classes cannot be replaced")
def test_a_replacement_that_fails_without_timers_leaves_no_subscription(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = out_of_timers(but=1)
    assert scene.subscribe("a", ("every", "1s")) == 1

    with monkeypatch.context() as patched:
        patched.setattr(Outbound, "prepare", None)
        with pytest.raises(TypeError):
            scene.subscribe("a", ("every", "2s"))

    assert scene.subscriber.subscriptions == {}
    assert topics(scene.publish("a")) == []
    assert scene.subscribe("b", ("every", "1s")) == 1  # with the timer of both
    scene.broker._check()


def test_the_first_correlation_makes_only_some_timers() -> None:
    scene = Scene()

    assert scene.subscribe("a", ("every", "1s")) == 1

    heap = scene.broker._correlations._heap
    assert heap is not None
    assert (len(heap._timers), heap.available()) == (MADE_AT_ONCE, TIMERS_MAX - 1)


@pytest.mark.parametrize("term", ["every", "watchdog"])
def test_a_timer_of_more_than_an_hour_counts_as_one_tick_an_hour(term: str) -> None:
    scene = Scene(limits=BrokerLimits(ticks_per_second_max=1, subscriptions_per_client_max=100_000))
    for number in range(3_600):
        assert scene.subscribe(f"t/{number}", (term, "25h")) == 1

    assert scene.subscribe("one/more", (term, "25h")) == QUOTA_EXCEEDED
    assert scene.subscribe("t/0") == 1  # instead of one with a timer
    assert scene.subscribe("one/more", (term, "25h")) == 1
    scene.broker._check()


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ((("correlate", "all(a, b"),), "property 'correlate': "),
        ((("correlate", "all(a/#/b, c)"),), "'#' before its last level"),
        ((("correlate", "all(a/x+, c)"),), "'+' inside a level"),
        ((("correlate", f"all({MANY_PARTS})"), ("watchdog", "1s")), "more than 62 leaves and timers"),
        ((("correlate", f"any({MANY_PARTS})"), ("every", "1s")), "more than 62 leaves and timers"),
        ((("correlate", DEEP), ("watchdog", "1s")), "nested more than 8 deep"),
        ((("within", "1s"),), "'within' is the window of 'correlate'"),
        ((("every", "1ms"),), "the shortest is 10ms"),
        ((("watchdog", "soon"),), "property 'watchdog'"),
    ],
)
def test_bad_terms_are_refused_with_what_would_be_right(terms: UserProperties, message: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        to_subscription(client_id="c", topic_filter="#", user_properties=terms)

    assert caught.value.reason_code == 0x83
    assert message in str(caught.value)


@pytest.mark.parametrize("correlation", [f"any({MANY_PARTS})", DEEP])
def test_a_correlation_may_be_as_large_as_the_limits(correlation: str) -> None:
    scene = Scene()

    assert scene.subscribe("#", ("correlate", correlation)) == 1
    assert topics(scene.publish("t/61")) + topics(scene.publish("a")) in (["t/61"], ["a"])


def test_a_part_widens_neither_its_subscription_nor_what_its_client_may_read() -> None:
    rule = AccessRule("*", "all", "open/#", True)
    scene = Scene(AccessList([rule]))

    assert scene.subscribe("#", ("correlate", "any(open/a)")) == NOT_AUTHORIZED
    assert scene.subscribe("open/#", ("correlate", "any(secret, $SYS/#, +/a, #)")) == 1
    assert topics(scene.publish("secret")) == []
    assert topics(scene.publish("$SYS/broker/uptime")) == []
    assert topics(scene.publish("open/a")) == ["open/a"]


def test_timers_of_one_client_do_not_delay_those_of_another() -> None:
    scene = Scene()
    for number in range(10 * TICKS_MAX):
        scene.subscribe(f"t/{number}", ("every", "10ms"))
    other = scene._connect("other", 3)
    terms = to_subscription(client_id="other", topic_filter="o", user_properties=(("every", "11ms"),))
    assert scene.broker.subscribe(other, terms, scene.now_ns) == 0

    scene.now_ns += 20 * MILLISECOND  # all are due, those of the other client last
    scene.broker.wake(scene.now_ns)

    assert len(scene.taken()) == TICKS_MAX - 1
    assert len(scene.broker.take_deliveries(other, ANY_BYTES, scene.now_ns)) == 1
    assert scene.broker.next_wakeup_ns() == 0  # there is more


def test_ticks_that_wait_are_counted_as_missed_not_made_up_for() -> None:
    scene = Scene()
    for number in range(3 * TICKS_MAX):
        scene.subscribe(f"t/{number}", ("every", "10ms"))
    scene.now_ns += 10 * MILLISECOND
    scene.broker.wake(scene.now_ns)
    scene.taken()

    scene.now_ns += 1_000 * MILLISECOND
    scene.broker.wake(scene.now_ns)

    # A tick of every subscription still has to come, and none of them twice.
    fields = [json.loads(delivery.message.payload) for delivery in scene.taken()]
    assert len(fields) == TICKS_MAX
    assert {one["missed"] for one in fields} == {100}


def test_a_timer_in_line_is_nobodys_once_its_subscription_has_ended() -> None:
    scene = Scene()
    for number in range(2 * TICKS_MAX):
        scene.subscribe(f"t/{number}", ("every", "10ms"))
    scene.now_ns += 10 * MILLISECOND
    scene.broker.wake(scene.now_ns)
    scene.taken()

    for number in range(2 * TICKS_MAX):
        scene.broker.unsubscribe(scene.subscriber, f"t/{number}", scene.now_ns)
    scene.subscribe("new", ("every", "1s"))  # with a timer that stands in line for another

    assert scene.wait(0.99) == []
    assert topics(scene.wait(0.02)) == [EVERY_TOPIC]


class Group:
    """A broker with members of one shared group, and a publisher."""

    def __init__(self, *names: str, terms: UserProperties) -> None:
        self.scene = Scene()
        self.terms = terms
        self.sessions: dict[str, Session] = {}
        for number, name in enumerate(names):
            self.join(name, 10 + number)

    def join(self, name: str, connection: int) -> None:
        session = self.scene._connect(name, connection)
        self.sessions[name] = session
        subscription = to_subscription(
            client_id=name, topic_filter="$share/g/#", qos=1, user_properties=self.terms
        )
        assert self.scene.broker.subscribe(session, subscription, self.scene.now_ns) == 1

    def publish(self, topic: str) -> None:
        self.scene.publish(topic)

    def wait(self, seconds: float) -> None:
        self.scene.wait(seconds)

    def taken(self) -> list[list[str]]:
        """Return the topics of what each member got since the last call."""
        broker, now_ns = self.scene.broker, self.scene.now_ns
        return [
            topics(broker.take_deliveries(one, ANY_BYTES, now_ns))
            for one in self.sessions.values()
            if one.connection
        ]


def test_members_of_a_shared_group_correlate_together() -> None:
    group = Group("a", "b", terms=(("correlate", "all(x, y)"),))

    for topic in ("x", "y", "x", "y"):
        group.publish(topic)

    assert group.taken() == [["x", "y"], ["x", "y"]]
    group.scene.broker._check()


def test_members_that_wait_for_something_else_correlate_alone() -> None:
    group = Group("a", terms=(("correlate", "all(x, y)"),))
    group.terms = (("correlate", "all(x, z)"),)
    group.join("b", 20)

    for topic in ("x", "y", "z", "x", "y", "z"):  # to the members in turn
        group.publish(topic)

    assert group.taken() == [["x", "y"], ["x", "z"]]


@pytest.mark.parametrize("leaves", ["unsubscribes", "disconnects"])
def test_a_correlation_outlives_the_member_that_kept_it(leaves: str) -> None:
    group = Group("a", "b", terms=(("correlate", "all(x, y)"), ("watchdog", "5s")))
    group.publish("x")

    broker, now_ns, first = group.scene.broker, group.scene.now_ns, group.sessions["a"]
    if leaves == "unsubscribes":
        broker.unsubscribe(first, "$share/g/#", now_ns)
    else:
        broker.disconnect(first, first.connection, False, now_ns)
    group.publish("y")

    assert group.taken()[-1] == ["x", "y"]
    group.wait(5.1)
    assert group.taken()[-1] == [WATCHDOG_TOPIC]
    broker._check()


def test_the_watchdog_of_a_shared_group_is_quiet_while_any_member_gets_messages() -> None:
    group = Group("a", "b", terms=(("watchdog", "1s"),))

    for _ in range(6):
        group.publish("x")
        group.wait(0.6)

    assert group.taken() == [["x"] * 3, ["x"] * 3]
    group.wait(0.5)
    assert sorted(group.taken()) == [[], [WATCHDOG_TOPIC]]


def test_timers_of_a_shared_group_are_those_of_one_member() -> None:
    group = Group("a", "b", "c", terms=(("every", "1s"),))

    group.wait(3.5)

    assert group.taken() == [[EVERY_TOPIC]] * 3
    for name in ("a", "b", "c"):
        session = group.sessions[name]
        group.scene.broker.disconnect(session, session.connection, False, group.scene.now_ns)
    assert group.scene.broker.next_wakeup_ns() is None


def test_a_timer_that_stands_in_line_goes_on_with_the_next_member() -> None:
    group = Group("a", "b", terms=(("every", "1s"),))
    scene = group.scene
    for number in range(2 * TICKS_MAX):
        scene.subscribe(f"t/{number}", ("every", "1s"))
    scene.now_ns += SECOND
    scene.broker._correlations._line_up(scene.now_ns)  # due, but not served yet

    scene.broker.unsubscribe(group.sessions["a"], "$share/g/#", scene.now_ns)
    group.wait(2.5)

    assert group.taken() == [[], [EVERY_TOPIC] * 3]


def test_retained_messages_are_parts_of_a_correlation() -> None:
    scene = Scene()
    for topic in ("x", "z"):
        scene.broker.route(Message(topic, b"old", 0, True, scene.now_ns, "publisher"), scene.now_ns)

    scene.subscribe("#", ("correlate", "all(x, y)"))

    assert scene.taken() == []
    assert topics(scene.publish("y")) == ["x", "y"]


def test_a_correlation_completed_by_retained_messages_is_delivered_at_once() -> None:
    scene = Scene()
    for topic in ("x", "y"):
        scene.broker.route(Message(topic, b"old", 0, True, scene.now_ns, "publisher"), scene.now_ns)

    scene.subscribe("#", ("correlate", "all(x, y)"))

    assert topics(scene.taken()) == ["x", "y"]
    scene.broker._check()


def test_parts_that_a_member_leaves_go_to_one_other_member_together() -> None:
    group = Group("a", terms=(("correlate", "all(x, y)"),))
    group.publish("x")
    group.publish("y")
    for number, name in enumerate(("b", "c", "d")):
        group.join(name, 20 + number)

    leaving = group.sessions["a"]
    group.scene.broker.disconnect(leaving, leaving.connection, False, group.scene.now_ns)

    assert sorted(group.taken()) == [[], [], ["x", "y"]]
