"""Brokers that match again at every hop, and brokers that never drop."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.mesh.doubles import SECOND, Diamond

from timebound.core.link.strategy.audience import Audience, Term
from timebound.core.link.strategy.fifo import Fifo
from timebound.core.link.strategy.fixed import Fixed
from timebound.core.link.strategy.registry import strategy_named
from timebound.core.mesh.forwarding import Forwarder
from timebound.core.mesh.message import Copy
from timebound.core.mesh.options import LATE, TREE
from timebound.core.values.message import Message
from timebound.sim.mesh.experiment import run
from timebound.sim.mesh.setting import FaultSetting, TopologySetting
from timebound.sim.papers.brokers.forwarding import PaperForwarder, endless_entry
from timebound.sim.papers.readings import read_as
from timebound.sim.papers.settings import paper_002
from timebound.units import MINUTE


class PaperDiamond(Diamond):
    """A diamond of paper brokers; `keep` names the strategy whose order queues keep."""

    def __init__(self, *, again: bool = False, forwards: bool = False, keep: str = "", routing: int = TREE):
        self.again = again
        self.forwards = forwards
        self.keep = keep
        super().__init__(routing, "fixed" if keep else "eb")

    def _make_broker(self, name: str) -> Forwarder:
        return PaperForwarder(
            name,
            self.link_state,
            self.table,
            self.options,
            self.account,
            matches_again=self.again,
            forwards_duplicates=self.forwards,
            order=strategy_named(self.keep) if self.keep else None,
        )


def test_a_broker_that_matches_again_sends_to_every_matching_next_hop_whatever_the_targets() -> None:
    mesh = PaperDiamond(again=True)

    mesh.brokers["a"].receive(Copy(mesh.message(), ("x",), 1, {"c"}), 0)

    sends = mesh.brokers["a"].take_sends()
    assert [send.neighbour for send in sends] == ["b", "c"]
    assert [(send.copy.targets, send.copy.via, send.copy.hops) for send in sends] == [(None, ("a",), 2)] * 2


def test_a_second_copy_is_dropped_and_counted() -> None:
    mesh = PaperDiamond(again=True)
    what = mesh.message()
    broker = mesh.brokers["d"]
    broker.receive(Copy(what, ("b",), 2, None), SECOND)
    assert len(broker.take_deliveries()) == 1

    broker.receive(Copy(what, ("c",), 2, None), SECOND)

    assert broker.take_deliveries() == []
    assert mesh.account.duplicates == 1


@pytest.mark.parametrize("forwards", [False, True])
def test_a_second_copy_travels_on_only_where_duplicates_are_forwarded(forwards: bool) -> None:
    mesh = PaperDiamond(again=True, forwards=forwards)
    what = mesh.message()
    broker = mesh.brokers["c"]
    broker.receive(Copy(what, ("a",), 1, None), 0)
    assert [send.neighbour for send in broker.take_sends()] == ["d"]
    assert len(broker.take_deliveries()) == 1

    broker.receive(Copy(what, ("b",), 1, None), 0)
    broker.link_free("d", SECOND)

    assert len(broker.take_sends()) == (1 if forwards else 0)
    assert broker.take_deliveries() == []
    assert mesh.account.duplicates == 1


def test_what_one_broker_gives_up_is_not_counted_where_another_copy_may_arrive() -> None:
    again, plain = PaperDiamond(again=True), PaperDiamond()

    for mesh in (again, plain):
        mesh.brokers["a"].publish(mesh.message(), 10 * SECOND)

    assert again.account.dropped_total() == 0
    assert plain.account.dropped_total() == 3


def test_matching_again_survives_links_that_fail_while_messages_wait() -> None:
    setting = replace(
        read_as(paper_002("ssd", 30.0, "eb"), "match"),
        topology=TopologySetting(layers=(2, 2, 4, 4)),
        duration_ns=2 * MINUTE,
        faults=(FaultSetting("cut", 30 * SECOND, 60 * SECOND, link=("b1", "b3")),),
    )

    result = run(setting, 1)

    assert 0 < result.in_time < result.matched
    assert result.matched == result.in_time + result.late + sum(result.dropped.values())


def test_late_binding_cannot_match_again() -> None:
    with pytest.raises(AssertionError, match="late binding"):
        PaperDiamond(again=True, routing=LATE)


def test_a_broker_that_never_drops_sends_even_what_has_expired() -> None:
    keeping, plain = PaperDiamond(keep="fifo"), Diamond(TREE, "fifo")

    for mesh in (keeping, plain):
        mesh.brokers["a"].publish(mesh.message(published_ns=0), 10 * SECOND)

    assert [send.neighbour for send in keeping.brokers["a"].take_sends()] == ["c", "b"]
    assert plain.brokers["a"].take_sends() == []
    assert keeping.account.dropped_total() == 0


def test_a_kept_queue_has_the_order_of_its_strategy() -> None:
    sent: dict[str, list[int]] = {}
    for keep in ("fifo", "fixed", "remaining-lifetime"):
        mesh = PaperDiamond(keep=keep)
        broker = mesh.brokers["c"]
        for published_ns, priority in ((0, 1), (300, 1), (100, 3), (200, 2)):
            what = mesh.message(published_ns=published_ns * 1_000_000)
            what.message.priority = priority
            broker.receive(Copy(what, ("a",), 1, {"d"}), SECOND)
        order = [send.copy.what.message.sequence for send in broker.take_sends()]
        for number in range(3):
            broker.link_free("d", (2 + number) * SECOND)
            order += [send.copy.what.message.sequence for send in broker.take_sends()]
        sent[keep] = order

    # The first found the link idle.
    assert sent == {"fifo": [1, 2, 3, 4], "fixed": [1, 3, 4, 2], "remaining-lifetime": [1, 3, 4, 2]}


def test_an_endless_entry_has_no_limit_and_the_earliest_average_end_first() -> None:
    rl = strategy_named("remaining-lifetime")
    audience = Audience([Term(10 * SECOND, count=1), Term(30 * SECOND, count=3)])
    message = Message("t", b"", 0, False, 0, "p")
    short = Message("t", b"", 0, False, 0, "p", timeout_ns=10 * SECOND)

    entry = endless_entry("item", message, 10, audience, rl)
    sooner = endless_entry("item", short, 10, audience, rl)
    never = endless_entry("item", message, 10, Audience([Term()]), rl)

    assert (entry.priority, sooner.priority) == (-25_000, -10_000)
    assert never.priority < entry.priority
    assert entry.timeout == float("inf")
    assert [term.allowed for term in entry.audience.terms] == [float("inf")]


def test_only_a_static_order_can_be_kept() -> None:
    message = Message("t", b"", 0, False, 0, "p", priority=7)

    assert endless_entry("item", message, 10, Audience([Term()]), Fifo()).priority == 0
    assert endless_entry("item", message, 10, Audience([Term()]), Fixed()).priority == 7
    with pytest.raises(AssertionError, match="never changes"):
        endless_entry("item", message, 10, Audience([Term()]), strategy_named("eb"))
