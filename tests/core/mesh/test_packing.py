"""A link that packs: the same copies in the same order as one at a time, and publishers that wait in time."""

from __future__ import annotations

from random import Random

import pytest

from timebound.core.link.strategy.registry import strategy_named
from timebound.core.mesh.account import MeshAccount
from timebound.core.mesh.forwarding import Forwarder
from timebound.core.mesh.message import Copy, MeshMessage
from timebound.core.mesh.options import MeshOptions
from timebound.core.mesh.overlay import LinkState
from timebound.core.mesh.pressure import BRAKE
from timebound.core.mesh.table import MeshSubscription, SubscriptionTable
from timebound.core.values.delay import LinkDelay
from timebound.core.values.message import Message
from timebound.terms import Terms
from timebound.units import MILLISECOND, SECOND

FAST = LinkDelay(0.000_1, 0.0)
PACK_BYTES = 10_000


def broker(pack_bytes_max: int, strategy: str = "worth") -> Forwarder:
    """Broker a of a line a - b - c, with an open link to b; some subscriptions have a deadline."""
    link_state = LinkState()
    for source, target in (("a", "b"), ("b", "c")):
        link_state.set_link(source, target, FAST)
        link_state.set_link(target, source, FAST)
    table = SubscriptionTable()
    wanted = (("b", "t", 0), ("b", "far/#", 0), ("c", "far/#", 0), ("c", "near", 0), ("c", "timed/#", SECOND))
    for home, topic, deadline_ns in wanted:
        terms = Terms(deadline_ns=deadline_ns)
        name = f"{home}-{topic}"
        table.insert(MeshSubscription(client_id=name, home=home, topic_filter=topic, terms=terms))
    options = MeshOptions(strategy_named(strategy), is_lossless=True, keeps_fresh=True)
    found = Forwarder("a", link_state, table, options, MeshAccount())
    found.add_neighbour("b", FAST)
    found.links["b"].open(1_024, pack_bytes_max)
    return found


def message(number: int, topic: str, size: int, qos: int = 0, now_ns: int = 0) -> MeshMessage:
    one = Message(topic, b"x" * size, qos, False, now_ns, f"p{number % 3}", sequence=number)
    return MeshMessage(one, "a", one.size() + 100)


def ordered(forwarder: Forwarder) -> list[Copy]:
    """Copies that are to be sent now, however they leave."""
    copies = [send.copy for send in forwarder.take_sends()]
    for link in forwarder.take_packing():
        copies += [copy for pack in link.take_packs() for copy in pack.copies]
    return copies


def shown(copies: list[Copy]) -> list[tuple[int, tuple[str, ...], int, frozenset[str]]]:
    return [(copy.what.number, copy.via, copy.hops, frozenset(copy.targets or ())) for copy in copies]


@pytest.mark.parametrize("strategy", ["worth", "fifo", "ebpc", "mtep"])
def test_without_credit_a_link_that_packs_takes_what_one_that_does_not_would_take(strategy: str) -> None:
    random = Random(strategy)
    single, packing = broker(0, strategy), broker(PACK_BYTES, strategy)
    found: dict[Forwarder, list[Copy]] = {single: [], packing: []}
    now_ns = SECOND
    for number in range(1, 2_000):
        now_ns += random.randrange(MILLISECOND)
        topic = random.choice(["t", "far/t", "near", "timed/t"])
        what = (number, topic, random.randrange(200), random.randrange(3), now_ns)
        is_free = random.random() < 0.5
        for one, copies in found.items():
            one.publish(message(*what), now_ns)
            copies += ordered(one)
            if is_free:
                one.link_free("b", now_ns)
                copies += ordered(one)

    assert shown(found[packing]) == shown(found[single])
    assert len(found[single]) > 800
    for name in ("published", "matched", "received", "dropped", "open_penalty_micro"):
        assert getattr(packing.account, name) == getattr(single.account, name)
    assert packing.waiting_messages() == single.waiting_messages()
    queues = [one.links["b"].queue for one in found]
    assert len({(queue.pushed, queue.popped, queue.link.first_ns) for queue in queues}) == 1


def test_with_credit_copies_leave_at_once_until_it_is_used_up() -> None:
    forwarder = broker(PACK_BYTES)
    link = forwarder.links["b"]
    link.credit = 1_000

    for number in range(1, 21):
        forwarder.publish(message(number, "t", 91), 0)  # 200 bytes each

    assert [copy.what.number for copy in ordered(forwarder)] == [1, 2, 3, 4, 5]
    assert (link.is_busy, len(link.queue)) == (True, 15)
    link.credit = 400
    forwarder.link_free("b", 0)
    assert [copy.what.number for copy in ordered(forwarder)] == [6, 7]


def test_a_pack_is_closed_when_it_is_full_and_counts_once_in_flight() -> None:
    forwarder = broker(1_000)
    link = forwarder.links["b"]
    link.credit = 1 << 20
    for number in range(1, 8):
        forwarder.publish(message(number, "t", 91), 0)

    packs = link.take_packs()

    assert [len(pack.copies) for pack in packs] == [4, 3]  # with their publisher's name
    assert link.send_quota == 1_024 - 2
    assert [copy.what.number for copy in link.unconfirmed()] == [1, 2, 3, 4, 5, 6, 7]
    link.confirm(packs[0].packet_id)
    assert [copy.what.number for copy in link.unconfirmed()] == [5, 6, 7]


def test_a_link_with_time_limits_gets_no_credit_in_advance() -> None:
    forwarder = broker(PACK_BYTES)
    link = forwarder.links["b"]
    forwarder.publish(message(1, "timed/t", 10), 0)
    link.credit = 1_000

    forwarder.link_free("b", MILLISECOND)

    assert link.credit == 0
    forwarder.publish(message(2, "t", 10), MILLISECOND)
    assert link.is_busy


def test_packs_of_a_link_that_fails_go_another_way_before_they_were_sent_too() -> None:
    forwarder = broker(PACK_BYTES)
    link = forwarder.links["b"]
    link.credit = 1_000
    for number in (1, 2):
        forwarder.publish(message(number, "t", 10), 0)
    forwarder.link_state.remove_link("a", "b")

    assert forwarder.link_down("b", 0) == 2

    assert ordered(forwarder) == []
    assert forwarder.account.unreachable == 2


def test_a_publisher_waits_for_a_busy_fast_link_until_it_has_room() -> None:
    forwarder = broker(PACK_BYTES)
    link = forwarder.links["b"]
    link.is_fast = True
    forwarder.publish(message(1, "t", 10), 0)
    assert forwarder.stalled == []
    forwarder.publish(message(2, "t", 10), 0)
    assert forwarder.brake() == [BRAKE + "b"]
    assert list(forwarder.braked) == [BRAKE + "b"]

    forwarder.link_free("b", 0)  # it takes the one that waits, and is busy again
    assert not forwarder.take_released()
    forwarder.link_free("b", 0)

    assert forwarder.take_released()
    assert not forwarder.take_released()
    assert forwarder.braked == {}


def test_copies_of_other_brokers_brake_nobody() -> None:
    forwarder = broker(PACK_BYTES)
    forwarder.links["b"].is_fast = True
    for number in (1, 2, 3):
        what = message(number, "far/t", 10)
        forwarder.receive(Copy(what, ("z",), 1, {"c"}), 0)

    assert forwarder.stalled == []
