"""What may cross a link: filters in both directions, and the brokers a neighbour may speak for."""

from __future__ import annotations

import pytest
from tests.core.mesh.doubles import SECOND, Diamond

from timebound.core.mesh.border import OPEN_BORDER, Border
from timebound.core.mesh.message import Copy, MeshMessage
from timebound.core.mesh.options import LATE, TREE
from timebound.core.values.message import Message
from timebound.topics import matches

TOPICS = ("plant/1/temp", "plant/2", "office", "$SYS/x", "")


def copy_on(topic: str, origin: str = "a") -> Copy:
    message = Message(topic, b"", 0, False, 0, "p", sequence=1)
    return Copy(MeshMessage(message, origin, 100), (origin,), 1, {"d"})


@pytest.mark.parametrize("topic", TOPICS)
def test_without_filters_everything_crosses(topic: str) -> None:
    assert OPEN_BORDER.is_open
    assert OPEN_BORDER.lets_out(topic)
    assert OPEN_BORDER.lets_in(copy_on(topic, "anybody"))


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("filters", [("plant/#",), ("plant/+", "office"), ("#",)])
def test_filters_of_each_direction_count_alone(filters: tuple[str, ...], topic: str) -> None:
    is_among = any(matches(one, topic) for one in filters)
    out, inwards = Border("n", exports=filters), Border("n", imports=filters)

    assert (out.lets_out(topic), out.lets_in(copy_on(topic))) == (is_among, True)
    assert (inwards.lets_out(topic), inwards.lets_in(copy_on(topic))) == (True, is_among)
    assert not out.is_open
    assert inwards.is_open


def test_a_neighbour_speaks_for_its_origins_and_itself() -> None:
    border = Border("n", origins=("m",))

    assert [name for name in ("n", "m", "x") if border.may_speak_for(name)] == ["n", "m"]
    assert border.lets_in(copy_on("t", "m"))
    assert not border.lets_in(copy_on("t", "x"))


@pytest.mark.parametrize("routing", [LATE, TREE])
def test_a_message_takes_a_way_that_lets_it_out(routing: int) -> None:
    diamond = Diamond(routing)
    forwarder = diamond.brokers["a"]
    forwarder.links["b"].border = Border("b", exports=("other",))

    diamond.brokers["a"].publish(diamond.message(), 0)

    ways = [send.neighbour for send in forwarder.take_sends()]
    dropped = diamond.account.dropped["not_authorized"]
    # To d the one path of single-path routing leads over b; late binding takes the other.
    assert (ways, dropped) == ((["c"], 0) if routing == LATE else (["c"], 2))


@pytest.mark.parametrize("routing", [LATE, TREE])
def test_what_no_link_lets_out_is_dropped_at_once_and_does_not_wait(routing: int) -> None:
    diamond = Diamond(routing, is_lossless=True, grace_ns=30 * SECOND)
    forwarder = diamond.brokers["a"]
    for name in ("b", "c"):
        forwarder.links[name].border = Border(name, exports=("other",))
    message = diamond.message()
    message.message.qos = 1

    forwarder.publish(message, 0)
    forwarder.revive(SECOND)

    assert forwarder.take_sends() == []
    assert not forwarder.parking.homes()
    assert diamond.account.dropped["not_authorized"] == diamond.account.matched == 3


def test_what_waits_for_a_link_that_failed_still_waits() -> None:
    diamond = Diamond(LATE, grace_ns=30 * SECOND)
    forwarder = diamond.brokers["a"]
    for name in ("b", "c"):
        forwarder.links[name].border = Border(name, exports=("other",))
        forwarder.links[name].is_up = False
    message = diamond.message()
    message.message.qos = 1

    forwarder.publish(message, 0)

    assert sorted(forwarder.parking.homes()) == ["c", "d"]
    assert diamond.account.dropped["not_authorized"] == 0
