"""The entrance: publishers come and go, messages are policed and queued by weight, rounds are measured."""

from __future__ import annotations

import pytest

from timebound.core.account.counters import Counters
from timebound.core.input.contract import Contract
from timebound.core.input.entrance import (
    CONFORMING,
    EXCESS,
    MEASURED_QUANTA_MIN,
    MEASURED_ROUNDS_MIN,
    TURNED_DOWN,
    Entrance,
)
from timebound.core.input.options import EntranceOptions
from timebound.core.input.publisher import InputMessage, Publisher
from timebound.core.sessions.session import Session
from timebound.core.values.access import AccessList
from timebound.core.values.message import Message
from timebound.units import MILLISECOND, SECOND

OPTIONS = EntranceOptions(quantum_ns=50_000, stall_ns_min=0, queue_quanta_max=16)


class Hall:
    """An entrance with clients by name."""

    def __init__(self, options: EntranceOptions = OPTIONS) -> None:
        self.counters = Counters()
        self.entrance = Entrance(options, self.counters)

    def join(self, name: str) -> Publisher:
        publisher = Publisher()
        publisher.source = name
        self.entrance.join(name, publisher)
        return publisher

    def push(self, publisher: Publisher, topic: str, is_excess: bool = False) -> bool:
        """Queue a message if it may be; return whether it was."""
        if not self.entrance.may_queue(publisher):
            return False
        name = publisher.client_input.name
        session = Session(name, "", AccessList([]).for_client("", name))
        message = Message(topic, b"x", 0, False, 0, name)
        return self.entrance.push(InputMessage(publisher, session, message, 0), is_excess)

    def update(self) -> None:
        """Update the bounds, and finish that."""
        self.entrance.update(0)
        while len(self.entrance.jobs) > 0:
            self.entrance.jobs.step(0)

    def served(self) -> list[str]:
        served = []
        while (queued := self.entrance.scheduler.pop()) is not None:
            served.append(f"{queued.message.publisher} {queued.message.topic}")
        return served


def test_messages_are_served_by_the_weight_of_their_topics() -> None:
    hall = Hall(EntranceOptions(weights=(("alarm/#", 3),)))
    a, b = hall.join("a"), hall.join("b")
    for _ in range(6):
        assert hall.push(a, "alarm/1")
        assert hall.push(b, "log/1")

    first = hall.served()[:8]

    assert first.count("a alarm/1") == 6


def test_a_publisher_with_full_queues_has_no_room_until_it_is_served() -> None:
    hall = Hall()
    a = hall.join("a")

    pushed = [hall.push(a, "t") for _ in range(17)]

    assert pushed == [True] * 16 + [False]
    hall.entrance.scheduler.pop()
    assert hall.push(a, "t")


def test_after_a_new_weight_nothing_is_queued_until_earlier_messages_are_served() -> None:
    hall = Hall()
    a = hall.join("a")
    hall.push(a, "alarm/1")

    hall.entrance.flows.set_weight("alarm/#", 5, 0)

    assert not hall.entrance.may_queue(a)
    hall.served()
    assert hall.entrance.may_queue(a)
    hall.push(a, "alarm/1")
    assert [queue.topic.name for queue in a.client_input.queues.values() if len(queue)] == ["\0alarm/#"]


def test_messages_of_an_earlier_connection_go_first() -> None:
    hall = Hall()
    old = hall.join("a")
    hall.push(old, "t")

    new = hall.join("a")

    assert hall.entrance.is_preceded(new)
    assert hall.served() == ["a t"]
    assert not hall.entrance.is_preceded(new)
    hall.entrance.leave("a", old)
    assert hall.entrance.publishers == {"a": new}
    hall.entrance.leave("a", new)
    assert hall.entrance.publishers == {}


@pytest.mark.parametrize("mode", ["lower", "refuse"])
def test_excess_is_told_from_what_was_advertised(mode: str) -> None:
    hall = Hall(EntranceOptions(excess=mode, stall_ns_min=0))
    a = hall.join("a")
    contract = Contract("a", "t", interval_ns=10 * SECOND, burst=2, size=5)
    assert hall.entrance.flows.advertise(a, contract, 0).accepted

    verdicts = [hall.entrance.police(a, "t", 5, SECOND) for _ in range(3)]
    promised_ns = a.promised_ns

    assert verdicts == [CONFORMING, CONFORMING, EXCESS if mode == "lower" else TURNED_DOWN]
    assert promised_ns == 0, "excess has no guarantee"
    assert hall.entrance.police(a, "other", 5, SECOND) == CONFORMING
    figures = hall.entrance.figures()
    counts = (figures["excess_lowered"], figures["excess_refused"], hall.counters.refused["not_admitted"])
    assert counts == ((1, 0, 0) if mode == "lower" else (0, 1, 1))


def test_a_conforming_message_has_the_guarantee_of_its_flow() -> None:
    hall = Hall()
    a = hall.join("a")
    decision = hall.entrance.flows.advertise(a, Contract("a", "t", interval_ns=SECOND, size=5), 0)

    assert hall.entrance.police(a, "t", 5, SECOND) == CONFORMING

    assert a.promised_ns == decision.bound_ns > 0


@pytest.mark.parametrize("is_fixed", [False, True])
def test_bounds_count_with_measured_rounds_once_there_are_enough(is_fixed: bool) -> None:
    hall = Hall(EntranceOptions(quantum_ns=50_000, stall_ns_min=0, is_quantum_fixed=is_fixed))
    entrance = hall.entrance

    for _ in range(MEASURED_ROUNDS_MIN - 1):
        entrance.note_round(20 * MILLISECOND, MEASURED_QUANTA_MIN)
    entrance.note_round(500 * MILLISECOND, MEASURED_QUANTA_MIN - 1)  # says little
    hall.update()
    assert entrance.figures()["round_ns"] == 2 * MILLISECOND
    entrance.note_round(20 * MILLISECOND, MEASURED_QUANTA_MIN)
    hall.update()

    figures = entrance.figures()
    assert 20 * MILLISECOND <= figures["round_ns"] <= 24 * MILLISECOND
    assert (figures["quantum_ns"] == 50_000) == is_fixed
