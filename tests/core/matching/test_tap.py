from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timebound.core.broker import Broker
from timebound.core.matching import tap as tap_module
from timebound.core.matching.tap import Tap
from timebound.core.sessions.session import PUBACK
from timebound.core.values.access import AccessList
from timebound.core.values.limits import BrokerLimits
from timebound.core.values.message import Message
from timebound.topics import matches

topics = st.lists(st.sampled_from(["a", "b", "$x"]), min_size=1, max_size=3).map("/".join)
filters = st.lists(st.sampled_from(["a", "b", "+", "$x"]), min_size=1, max_size=3).map("/".join) | st.just(
    "#"
)


def message(topic: str, qos: int = 0) -> Message:
    return Message(topic, b"payload", qos, False, 0)


@given(st.lists(filters, max_size=3), st.lists(topics, max_size=20))
def test_a_tap_keeps_in_order_what_one_of_its_filters_matches(
    wanted: list[str], published: list[str]
) -> None:
    tap = Tap(wanted)

    answers = [tap.offer(message(topic)) for topic in published]

    expected = [any(matches(one, topic) for one in wanted) for topic in published]
    assert answers == expected
    kept = [topic for topic, is_kept in zip(published, expected, strict=True) if is_kept]
    assert [one.topic for one in tap.take()] == kept
    assert tap.take() == []


def test_more_topics_than_are_remembered_are_still_decided_rightly() -> None:
    tap = Tap(["a/+"])

    for number in range(tap_module.REMEMBERED_TOPICS_MAX + 10):
        assert tap.offer(message(f"a/{number}"))
        assert not tap.offer(message(f"b/{number}"))

    assert len(tap.take()) == tap_module.REMEMBERED_TOPICS_MAX + 10


def test_a_broker_keeps_each_accepted_message_once() -> None:
    broker = Broker(BrokerLimits(), AccessList([]))
    broker.keep_topics(["kept/#"])
    session, _ = broker.connect("c", "", True, 0, 10, None, 1, 0)

    broker.publish(session, message("kept/a", 2), 1, 0)
    broker.publish(session, message("kept/a", 2), 1, 0)
    broker.publish(session, message("other"), 0, 0)

    assert [one.topic for one in broker.take_kept()] == ["kept/a"]


def test_a_kept_message_is_acknowledged_only_when_its_batch_comes_back() -> None:
    broker = Broker(BrokerLimits(), AccessList([]))
    broker.keep_topics(["kept/#"])
    session, _ = broker.connect("c", "", True, 0, 10, None, 1, 0)

    broker.publish(session, message("kept/a", 1), 7, 0)
    waiting = list(session.replies)
    batch = broker.take_batch()
    assert batch is not None
    broker.committed(batch)

    assert waiting == []
    assert batch.is_journaled
    assert [(reply.kind, reply.packet_id) for reply in session.replies] == [(PUBACK, 7)]


def test_a_message_that_is_not_kept_is_acknowledged_at_once() -> None:
    broker = Broker(BrokerLimits(), AccessList([]))
    broker.keep_topics(["kept/#"])
    session, _ = broker.connect("c", "", True, 0, 10, None, 1, 0)

    broker.publish(session, message("other", 1), 7, 0)

    assert [reply.packet_id for reply in session.replies] == [7]
    assert broker.take_batch() is None
