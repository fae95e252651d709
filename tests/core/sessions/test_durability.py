"""Answers wait for what they promise, keep their order, and reach only the connection they are for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.core.sessions.durability import ALL_SO_FAR, Batch, Durability
from timebound.core.sessions.session import PUBACK, ReadyList, Reply, Session
from timebound.core.values.access import AccessList
from timebound.core.values.message import SENT, Delivery, Message
from timebound.core.values.store_orders import DropRetained


class Fixture:
    """A durability with one connected session."""

    def __init__(self, is_enabled: bool = True) -> None:
        self.ready = ReadyList()
        self.durability = Durability(self.ready, is_enabled)
        self.session = Session("c", "", AccessList([]).for_client("", "c"))
        self.session.connection = 1

    def answer(self, packet_id: int, *, with_order: bool) -> None:
        mark = self.durability.mark()
        if with_order:
            self.durability.add(DropRetained("t"))
        self.durability.reply(self.session, Reply(PUBACK, packet_id), mark)

    def take(self) -> Batch:
        batch = self.durability.take()
        assert batch is not None
        return batch

    def answered(self) -> list[int]:
        return [reply.packet_id for reply in self.session.replies]


def test_an_answer_that_promises_nothing_leaves_at_once() -> None:
    fixture = Fixture()

    fixture.answer(1, with_order=False)

    assert fixture.answered() == [1]
    assert fixture.ready.take() == [fixture.session]
    assert fixture.durability.take() is None


def test_an_answer_to_everything_so_far_waits_for_what_goes_to_a_journal_alone() -> None:
    fixture = Fixture()
    fixture.durability.expect_journal()

    fixture.durability.reply(fixture.session, Reply(PUBACK, 1), ALL_SO_FAR)

    assert fixture.answered() == []
    fixture.durability.committed(fixture.take())
    assert fixture.answered() == [1]


def test_an_answer_waits_until_its_orders_are_on_disk() -> None:
    fixture = Fixture()
    fixture.answer(1, with_order=True)
    batch = fixture.take()
    assert fixture.answered() == []
    assert len(batch.orders) == 1

    fixture.durability.committed(batch)

    assert fixture.answered() == [1]
    assert fixture.ready.take() == [fixture.session]


def test_an_answer_does_not_overtake_an_earlier_one_that_waits() -> None:
    # MQTT 5, 4.6.0-2: PUBACKs leave in the order in which the PUBLISH packets came.
    fixture = Fixture()
    fixture.answer(1, with_order=True)
    first = fixture.take()
    fixture.answer(2, with_order=False)
    second = fixture.take()
    assert fixture.answered() == []

    fixture.durability.committed(first)
    assert fixture.answered() == [1]
    fixture.durability.committed(second)
    assert fixture.answered() == [1, 2]


def test_an_answer_for_an_old_connection_does_not_reach_the_new_one() -> None:
    fixture = Fixture()
    fixture.answer(1, with_order=True)
    batch = fixture.take()
    fixture.session.held = 0
    fixture.session.connection = 2

    fixture.durability.committed(batch)

    assert fixture.answered() == []
    assert fixture.session.held == 0
    assert fixture.ready.is_empty()


@pytest.mark.parametrize("with_order", [False, True])
def test_an_answer_for_a_session_without_connection_reaches_nobody(with_order: bool) -> None:
    fixture = Fixture()
    fixture.session.connection = 0

    fixture.answer(1, with_order=with_order)
    batch = fixture.durability.take()
    fixture.session.connection = 2
    fixture.answer(2, with_order=False)
    if batch is not None:
        fixture.durability.committed(batch)

    # What was ordered is stored all the same, and nothing is kept waiting for it.
    assert (len(batch.orders) if batch is not None else 0) == int(with_order)
    assert fixture.answered() == [2]
    assert fixture.session.held == 0


def test_a_delivery_waits_for_everything_ordered_before_it() -> None:
    fixture = Fixture()
    delivery = Delivery(Message("t", b"", 2, False, 0), 2, False, packet_id=1, state=SENT)
    fixture.durability.add(DropRetained("t"))
    first = fixture.take()
    fixture.durability.deliver(fixture.session, delivery)
    second = fixture.take()
    assert not second.orders

    fixture.durability.committed(first)
    assert not fixture.session.outbox
    fixture.durability.committed(second)
    assert list(fixture.session.outbox) == [delivery]
    assert fixture.durability.is_settled()


def test_without_storage_nothing_waits() -> None:
    fixture = Fixture(is_enabled=False)

    fixture.answer(1, with_order=True)

    assert fixture.answered() == [1]
    assert fixture.durability.take() is None


@settings(max_examples=100)
@given(st.lists(st.sampled_from(["plain", "stored", "take", "commit"]), max_size=30))
def test_answers_leave_in_order_and_never_before_their_orders(steps: list[str]) -> None:
    fixture = Fixture()
    batches: list[Batch] = []
    orders_made = orders_on_disk = number = 0
    needed: dict[int, int] = {}

    for step in [*steps, "take", *["commit"] * len(steps), "commit"]:
        if step in ("plain", "stored"):
            number += 1
            orders_made += step == "stored"
            needed[number] = orders_made if step == "stored" else 0
            fixture.answer(number, with_order=step == "stored")
        elif step == "take":
            batch = fixture.durability.take()
            batches += [batch] if batch is not None else []
        elif batches:
            orders_on_disk += len(batches[0].orders)
            fixture.durability.committed(batches.pop(0))

        answered = fixture.answered()
        assert answered == list(range(1, len(answered) + 1))
        assert all(needed[one] <= orders_on_disk for one in answered)

    assert fixture.answered() == list(range(1, number + 1))
    assert fixture.session.held == 0
