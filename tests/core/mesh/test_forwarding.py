"""One broker of a mesh: where messages go, what is given up, and the account of both."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.core.mesh.doubles import SECOND, Diamond

from timebound.core.link.scheduling import Scheduling
from timebound.core.link.strategy.entry import NEVER_NS
from timebound.core.link.strategy.fifo import Fifo
from timebound.core.link.strategy.registry import strategy_named
from timebound.core.mesh.account import MeshAccount
from timebound.core.mesh.forwarding import Forwarder
from timebound.core.mesh.link import MeshLink
from timebound.core.mesh.message import Copy, MeshMessage
from timebound.core.mesh.options import LATE, TREE, MeshOptions, Send
from timebound.core.mesh.overlay import LinkState
from timebound.core.mesh.pressure import EXHAUSTED, FULL
from timebound.core.mesh.table import MeshSubscription, SubscriptionTable
from timebound.core.values.delay import LinkDelay
from timebound.core.values.message import Message
from timebound.records import Reason
from timebound.terms import Terms


def test_tree_sends_each_home_over_its_one_best_way() -> None:
    mesh = Diamond(TREE)

    mesh.brokers["a"].publish(mesh.message(), 0)

    sends = {send.neighbour: send.copy.targets for send in mesh.brokers["a"].take_sends()}
    assert sends == {"b": {"d"}, "c": {"c"}}


def test_late_binding_sends_both_homes_over_one_link_when_the_other_is_busy() -> None:
    mesh = Diamond(LATE, preference=0.0)
    broker = mesh.brokers["a"]
    broker.publish(mesh.message(), 0)
    assert [send.neighbour for send in broker.take_sends()] == ["c"]

    broker.publish(mesh.message(), 0)

    # Only c reaches both, but it is busy: b takes what it can, and c waits for its own.
    sends = {send.neighbour: send.copy.targets for send in broker.take_sends()}
    assert sends == {"b": {"d"}}
    broker.link_free("c", SECOND)
    assert [send.copy.targets for send in broker.take_sends()] == [{"c"}]


def test_late_binding_never_sends_a_home_twice() -> None:
    mesh = Diamond(LATE, preference=0.0)
    broker = mesh.brokers["a"]
    for _ in range(5):
        broker.publish(mesh.message(), 0)

    seen: list[tuple[int, str]] = []
    for step in range(20):
        for send in broker.take_sends():
            assert send.copy.targets is not None
            seen += [(send.copy.what.message.sequence, home) for home in send.copy.targets]
        broker.link_free("b" if step % 2 else "c", step * SECOND // 10)

    assert sorted(seen) == sorted({(number, home) for number in range(1, 6) for home in "cd"})


def test_a_free_link_leaves_a_home_to_a_much_better_way() -> None:
    mesh = Diamond(LATE, preference=0.9)
    mesh.link_state.set_link("c", "d", LinkDelay(0.9, 0.0001))
    broker = mesh.brokers["a"]

    broker.publish(mesh.message(), 0)

    # Over c to d takes 9.6 of 10 s; b promises far more and is idle as well.
    sends = {send.neighbour: send.copy.targets for send in broker.take_sends()}
    assert sends == {"b": {"d"}, "c": {"c"}}


def test_waits_that_neighbours_report_lower_what_a_way_is_worth() -> None:
    mesh = Diamond(LATE, preference=0.9, waiting_share=1.0)
    broker = mesh.brokers["a"]
    broker.receive_delay_report("c", {"d": 9 * SECOND})

    broker.publish(mesh.message(), 0)

    sends = {send.neighbour: send.copy.targets for send in broker.take_sends()}
    assert sends == {"b": {"d"}, "c": {"c"}}


@pytest.mark.parametrize(("epsilon", "neighbours"), [(0.5, {"c"}), (0.2, {"b", "c"})])
def test_epsilon_decides_what_is_hopeless(epsilon: float, neighbours: set[str]) -> None:
    """Over b, 101 KB take 10.1 of 10 s to d: a little less than an even chance. Over c, 6 s to c."""
    mesh = Diamond(TREE, epsilon=epsilon)

    mesh.brokers["a"].publish(mesh.message(size_bytes=101 * 1_024), 0)

    assert {send.neighbour for send in mesh.brokers["a"].take_sends()} == neighbours


def numbers_over(mesh: Diamond, neighbour: str, count: int) -> list[int]:
    """What goes over a link of broker a next, without a wait, by its number."""
    broker = mesh.brokers["a"]
    numbers = []
    for _ in range(count):
        broker.link_free(neighbour, 0)
        numbers += [send.copy.what.number for send in broker.take_sends() if send.neighbour == neighbour]
    return numbers


def short_after_long(topics: tuple[str, str], **options: float) -> list[int]:
    """What goes over one link by worth after a long message: long and short ones, published in turn."""
    mesh = Diamond(TREE, "worth", **options)
    mesh.table.insert(MeshSubscription(client_id="s9", home="d", topic_filter="u"))
    broker = mesh.brokers["a"]
    for number in range(7):
        is_short = number > 0 and number % 2 == 0
        size, topic = (1_000, topics[1]) if is_short else (20_000, topics[0])
        broker.publish(mesh.message(size_bytes=size, topic=topic), 0)
    assert [send.copy.what.number for send in broker.take_sends() if send.neighbour == "b"] == [1]
    return numbers_over(mesh, "b", 6)


def test_messages_of_one_publisher_and_topic_keep_their_order_on_a_link() -> None:
    assert short_after_long(("t", "t")) == [2, 3, 4, 5, 6, 7]


def test_messages_of_another_topic_or_without_order_may_overtake() -> None:
    assert short_after_long(("t", "t"), keeps_order=False) == [3, 5, 7, 2, 4, 6]
    assert sorted(short_after_long(("u", "t"))[:3]) == [3, 5, 7]


def test_what_another_link_leaves_of_a_message_keeps_its_place() -> None:
    mesh = Diamond(LATE, "worth", preference=0.0)
    broker = mesh.brokers["a"]
    for _ in range(5):
        broker.publish(mesh.message(), 0)
    first = [(send.copy.what.number, send.neighbour) for send in broker.take_sends()]
    assert first == [(1, "c"), (2, "b")]  # c reaches both homes, b only one: c still has the rest of 2

    assert numbers_over(mesh, "b", 1) == [3]

    # The rest of 3 is queued again, but not behind 4.
    assert numbers_over(mesh, "c", 4) == [2, 3, 4, 5]


def sent_over_a_full_link(scheduling: Scheduling | None, then: str = "") -> Counter[str]:
    """What goes over one link that has worthless and dear messages for 48 s, in 24 s; the topics of it."""
    mesh = Diamond(TREE, "worth", thrift=0.0)
    broker = mesh.brokers["a"]
    delay = LinkDelay(0.06, 0.0001)
    broker.add_neighbour("c", delay, scheduling)
    for topic, price in (("log/x", 0.001), ("alarm", 100.0)):
        mesh.table.insert(
            MeshSubscription(
                client_id=topic,
                home="c",
                topic_filter=topic,
                terms=Terms(deadline_ns=100 * SECOND, price=price),
            )
        )
        for _ in range(40):
            broker.publish(mesh.message(topic=topic), 0)
    broker.take_sends()  # the first found the link idle
    if then:
        broker.set_strategy("c", strategy_named(then), 0)
    topics: list[str] = []
    for number in range(40):
        broker.link_free("c", number * 6 * SECOND // 10)
        topics += [send.copy.what.message.topic for send in broker.take_sends()]
    return Counter(topics)


def test_a_full_link_keeps_the_share_of_a_class() -> None:
    assert sent_over_a_full_link(None)["log/x"] <= 1
    assert 9 <= sent_over_a_full_link(Scheduling(shares=[("log/#", 0.25)]))["log/x"] <= 11
    assert sent_over_a_full_link(Scheduling(shares=[("other", 0.25)]))["log/x"] <= 1


def test_the_strategy_of_a_link_is_its_own_and_changes_while_messages_wait() -> None:
    assert sent_over_a_full_link(Scheduling("fifo"))["log/x"] == 39
    assert sent_over_a_full_link(Scheduling("worth"), then="fifo")["log/x"] == 39
    assert sent_over_a_full_link(Scheduling("fifo"), then="eb") == {"alarm": 40}


def congested(usual_worth: float, wait_ns: int) -> Diamond:
    """A diamond whose broker a has sent what is worth so much a link, and hears that it waits so long."""
    mesh = Diamond(LATE, waiting_share=0.0, thrift=1.0)
    for name, link in mesh.brokers["a"].links.items():
        link.note_worth(usual_worth, 10_240.0, 10e9)
        mesh.brokers["a"].receive_delay_report(name, dict.fromkeys("bcd", wait_ns))
    return mesh


@pytest.mark.parametrize(
    ("usual_worth", "wait_ns", "size_bytes", "sends"),
    [
        (20.0, 5 * SECOND, 10_240, 0),  # worth far less than what usually goes a congested way
        (20.0, 0, 10_240, 1),  # nobody waits
        (2.0, 5 * SECOND, 10_240, 1),  # worth as much as everything else
        (20.0, 5 * SECOND, 512, 1),  # takes as little time as it is worth
        (2.0, 5 * SECOND, 102_400, 0),  # worth as much, in ten times the time
    ],
)
def test_a_congested_way_gives_up_what_is_worth_far_less_than_usual_for_its_time(
    usual_worth: float, wait_ns: int, size_bytes: int, sends: int
) -> None:
    mesh = congested(usual_worth, wait_ns)
    broker = mesh.brokers["a"]

    broker.publish(mesh.message(size_bytes=size_bytes), 0)

    assert len(broker.take_sends()) == sends
    assert mesh.account.dropped["queue_full"] == (0 if sends else 3)


def test_what_has_no_limit_is_sent_however_congested_its_way_is() -> None:
    mesh = congested(1e6, 9 * SECOND)
    mesh.table.insert(MeshSubscription(client_id="patient", home="d", topic_filter="untimed"))

    mesh.brokers["a"].publish(mesh.message(topic="untimed"), 0)

    assert len(mesh.brokers["a"].take_sends()) == 1


def test_waits_are_reported_over_the_shorter_of_two_queues() -> None:
    mesh = Diamond(LATE)
    broker = mesh.brokers["a"]
    broker.links["b"].queue_delay_ns = 3e9
    broker.links["c"].queue_delay_ns = 1e9
    broker.receive_delay_report("c", {"d": SECOND // 2})

    delays = broker.delay_report()

    assert delays["d"] == 1_500_000_000
    assert delays["b"] == 3_000_000_000


def test_a_broker_delivers_to_its_own_subscribers() -> None:
    mesh = Diamond(TREE)
    what = mesh.message()

    mesh.brokers["d"].receive(Copy(what, ("a", "b"), 2, {"d"}), SECOND)

    [delivery] = mesh.brokers["d"].take_deliveries()
    assert [one.client_id for one in delivery.group.subscriptions] == ["s0", "s1"]
    assert mesh.account.received == 1


def test_what_can_no_longer_arrive_is_given_up_and_accounted() -> None:
    mesh = Diamond(LATE)

    mesh.brokers["a"].publish(mesh.message(published_ns=0), 10 * SECOND)

    account = mesh.account
    assert mesh.brokers["a"].take_sends() == []
    assert account.dropped["hopeless"] + account.dropped["timed_out"] == 3
    assert account.paid_micro == 1_500_000
    assert account.open_pairs() == 0
    assert account.open_penalty_micro == 0


def test_a_message_given_up_in_one_queue_still_waits_in_the_other() -> None:
    mesh = Diamond(LATE, preference=0.0)
    mesh.table.remove("s2", "t")
    mesh.link_state.set_link("c", "d", LinkDelay(0.85, 0.0001))
    broker = mesh.brokers["a"]
    for _ in range(3):  # two leave at once, the third waits for both links
        broker.publish(mesh.message(), 0)
    broker.take_sends()

    broker.wake(2 * SECOND)  # over c it takes 9.1 s: hopeless by now

    assert mesh.account.dropped_total() == 0
    broker.link_free("b", 2 * SECOND)
    assert [send.neighbour for send in broker.take_sends()] == ["b"]


def test_a_link_is_due_when_its_first_message_becomes_hopeless() -> None:
    mesh = Diamond(TREE)
    broker = mesh.brokers["a"]
    for _ in range(2):
        broker.publish(mesh.message(), 0)

    assert set(broker.due.take_touched()) == set(broker.links.values())
    link = min(broker.links.values(), key=MeshLink.next_drop_ns)
    due_ns = link.next_drop_ns()
    assert broker.drop_due(link, 10, due_ns - 1) == 0
    assert broker.drop_due(link, 10, due_ns) == 1

    assert mesh.account.dropped_total() > 0
    assert link.next_drop_ns() == NEVER_NS


def test_when_a_link_fails_its_messages_take_another_way() -> None:
    for routing in (TREE, LATE):
        mesh = Diamond(routing)
        mesh.table.remove("s2", "t")
        broker = mesh.brokers["a"]
        for _ in range(3):
            broker.publish(mesh.message(), 0)
        broker.take_sends()
        mesh.link_state.remove_link("a", "b")

        broker.link_down("b", SECOND)
        broker.links["c"].is_busy = False
        broker.link_free("c", SECOND)

        assert {send.neighbour for send in broker.take_sends()} == {"c"}
        assert mesh.account.dropped_total() == 0


def test_a_failed_link_without_alternative_loses_what_waits_for_it() -> None:
    mesh = Diamond(LATE)
    mesh.link_state.remove_link("a", "c")
    mesh.brokers["a"].link_down("c", 0)

    mesh.brokers["a"].publish(mesh.message(), 0)

    assert mesh.account.dropped["disconnected"] == 1  # the subscriber at c
    assert mesh.account.unreachable == 1


def test_a_crash_loses_everything_that_waits() -> None:
    mesh = Diamond(LATE)
    broker = mesh.brokers["a"]
    for _ in range(4):
        broker.publish(mesh.message(), 0)
    sent = {
        (send.copy.what.message.sequence, home)
        for send in broker.take_sends()
        for home in send.copy.targets or ()
    }

    broker.crash(SECOND)

    pairs_sent = sum(2 if home == "d" else 1 for _, home in sent)
    assert broker.waiting_messages() == 0
    assert mesh.account.dropped["disconnected"] == 12 - pairs_sent
    for link in broker.links.values():
        link.queue._check()


def test_messages_that_match_nothing_go_nowhere() -> None:
    mesh = Diamond(LATE)

    mesh.brokers["a"].publish(mesh.message(topic="other"), 0)

    assert mesh.brokers["a"].take_sends() == []
    assert mesh.account.matched == 0
    assert mesh.account.published == 1


def test_a_copy_never_returns_to_a_broker_it_has_passed() -> None:
    mesh = Diamond(LATE)
    mesh.link_state.set_link("d", "b", LinkDelay(0.01, 0.0))
    mesh.link_state.set_link("b", "a", LinkDelay(0.01, 0.0))
    mesh.link_state.set_link("a", "c", LinkDelay(0.01, 0.0))
    d = mesh.brokers["d"]
    d.add_neighbour("b", LinkDelay(0.01, 0.0))

    d.receive(Copy(mesh.message(), ("a", "b"), 2, {"c"}), 0)

    assert d.take_sends() == []
    assert mesh.account.unreachable == 1


def test_a_copy_names_the_brokers_it_has_passed() -> None:
    mesh = Diamond(LATE)

    mesh.brokers["b"].receive(Copy(mesh.message(), ("a",), 1, {"d"}), 0)

    [send] = mesh.brokers["b"].take_sends()
    assert (send.copy.via, send.copy.hops) == (("a", "b"), 2)


def test_what_was_sent_over_a_link_that_failed_goes_another_way() -> None:
    mesh = Diamond(LATE)
    mesh.table.remove("s2", "t")
    broker = mesh.brokers["a"]
    broker.publish(mesh.message(), 0)
    [sent] = broker.take_sends()
    mesh.link_state.remove_link("a", sent.neighbour)
    broker.link_down(sent.neighbour, SECOND)

    broker.send_again(sent.copy, SECOND)

    [again] = broker.take_sends()
    assert again.neighbour != sent.neighbour
    assert again.copy.targets == {"d"}
    assert mesh.account.dropped_total() == 0


def lossless(messages_max: int = 1, grace_ns: int = 0) -> tuple[Forwarder, SubscriptionTable, MeshAccount]:
    """A forwarder of one link, a -> b, as the node sets it up; s at b has no deadline."""
    link_state, table, account = LinkState(), SubscriptionTable(), MeshAccount()
    delay = LinkDelay(0.05, 0.0001)
    link_state.set_link("a", "b", delay)
    table.insert(MeshSubscription(client_id="s", home="b", topic_filter="t"))
    options = MeshOptions(
        Fifo(), messages_max=messages_max, bytes_max=1 << 20, is_lossless=True, grace_ns=grace_ns
    )
    forwarder = Forwarder("a", link_state, table, options, account)
    forwarder.add_neighbour("b", delay)
    return forwarder, table, account


def message_of(number: int, qos: int) -> MeshMessage:
    return MeshMessage(Message("t", b"", qos, False, 0, "p", sequence=number), "a", 10)


def test_a_full_queue_keeps_what_has_no_time_limit_and_levels_say_so() -> None:
    forwarder, _, account = lossless()
    forwarder.publish(message_of(1, 1), 0)  # found the link idle
    assert forwarder.levels() == {}

    levels = []
    for number in range(2, 11):
        forwarder.publish(message_of(number, 1), 0)
        levels.append(forwarder.levels().get("b", 0))

    assert levels == [FULL] * 7 + [EXHAUSTED] * 2
    assert account.dropped_total() == 0
    assert forwarder.waiting_messages() == 9


def test_an_exhausted_queue_drops_qos_0_alone() -> None:
    forwarder, _, account = lossless()
    for number in range(1, 10):
        forwarder.publish(message_of(number, 1), 0)

    forwarder.publish(message_of(10, 0), 0)
    forwarder.publish(message_of(11, 1), 0)

    assert account.dropped["queue_full"] == 1
    assert forwarder.waiting_messages() == 9


def test_qos_1_waits_for_a_home_that_cannot_be_reached_and_goes_on_when_it_can() -> None:
    forwarder, _, account = lossless(grace_ns=10 * SECOND)
    forwarder.link_state.remove_link("a", "b")
    forwarder.link_down("b", 0)
    forwarder.publish(message_of(1, 1), 0)
    forwarder.publish(message_of(2, 0), 0)
    assert (len(forwarder.parking), account.unreachable) == (1, 1)

    forwarder.link_state.set_link("a", "b", LinkDelay(0.05, 0.0001))
    forwarder.link_up("b")
    forwarder.revive(SECOND)

    assert [send.copy.what.number for send in forwarder.take_sends()] == [1]
    assert len(forwarder.parking) == 0


def test_what_waits_for_a_home_that_stays_away_is_dropped_after_the_grace() -> None:
    forwarder, _, account = lossless(grace_ns=10 * SECOND)
    forwarder.link_state.remove_link("a", "b")
    forwarder.link_down("b", 0)
    forwarder.publish(message_of(1, 1), 0)

    forwarder.wake(10 * SECOND - 1)
    assert account.dropped_total() == 0
    forwarder.wake(10 * SECOND)

    assert (account.dropped["disconnected"], account.unreachable) == (1, 1)
    assert account.open_pairs() == 0


def test_a_message_published_while_its_broker_is_down_is_counted_as_dropped() -> None:
    forwarder, _, account = lossless()

    forwarder.refuse(message_of(1, 1), 0)

    assert (account.published, account.matched, account.dropped["disconnected"]) == (1, 1, 1)
    assert forwarder.take_sends() == []


def test_a_new_delay_of_a_link_is_used_at_once() -> None:
    forwarder, table, _ = lossless()
    table.insert(
        MeshSubscription(client_id="hurried", home="b", topic_filter="t", terms=Terms(deadline_ns=SECOND))
    )
    group = table.match(message_of(1, 1).message)[0]
    link = forwarder.links["b"]
    before = forwarder.router.reach(link, "b").worth(group, message_of(1, 1).message, 10_240.0, 0.0)

    forwarder.set_link("b", LinkDelay(5.0, 0.0001), 0)

    after = forwarder.router.reach(link, "b").worth(group, message_of(1, 1).message, 10_240.0, 0.0)
    assert forwarder.delay_of("b").mean_s_per_kb == 5.0
    assert after < before


def test_no_more_copies_are_in_flight_than_the_neighbour_receives() -> None:
    mesh = Diamond(TREE)
    broker = mesh.brokers["a"]
    link = broker.links["b"]
    link.open(2)
    for _ in range(3):
        broker.publish(mesh.message(), 0)
    sent: list[Send] = []
    for _ in range(3):
        sent += [send for send in broker.take_sends() if send.neighbour == "b"]
        broker.link_free("b", 0)
    assert [send.packet_id for send in sent] == [1, 2]

    link.confirm(1)
    broker.link_free("b", 0)

    [last] = [send for send in broker.take_sends() if send.neighbour == "b"]
    assert link.unconfirmed() == [sent[1].copy, last.copy]


def test_a_hello_that_takes_the_last_place_keeps_a_copy_waiting() -> None:
    mesh = Diamond(TREE)
    broker = mesh.brokers["a"]
    link = broker.links["b"]
    link.open(1)
    hello = link.start(None)
    broker.publish(mesh.message(), 0)
    assert "b" not in [send.neighbour for send in broker.take_sends()]

    link.confirm(hello)
    broker.link_free("b", 0)

    assert [send.neighbour for send in broker.take_sends()] == ["b"]


def test_a_copy_that_cannot_be_sent_frees_its_packet_id_and_is_dropped() -> None:
    mesh = Diamond(TREE)
    broker = mesh.brokers["a"]
    link = broker.links["b"]
    link.open(1)
    broker.publish(mesh.message(), 0)
    [send] = [send for send in broker.take_sends() if send.neighbour == "b"]

    broker.abandon(send, Reason.TOO_LARGE, 0)

    assert link.unconfirmed() == []
    assert link.send_quota == 1
    assert mesh.account.dropped["too_large"] == 2  # subscriptions


def test_copies_ordered_but_not_taken_go_another_way_once() -> None:
    mesh = Diamond(LATE, preference=0.0)
    broker = mesh.brokers["a"]
    for name in "bc":
        broker.links[name].open(10)
    broker.publish(mesh.message(), 0)
    [first] = broker.take_sends()
    broker.link_free(first.neighbour, 0)
    broker.publish(mesh.message(), 0)
    assert len(broker.links[first.neighbour].unconfirmed()) == 2  # one is not taken yet
    mesh.link_state.remove_link("a", first.neighbour)

    assert broker.link_down(first.neighbour, 0) == 1  # that has been sent

    numbers: Counter[int] = Counter()
    other = "b" if first.neighbour == "c" else "c"
    for _ in range(3):
        numbers.update(send.copy.what.number for send in broker.take_sends())
        broker.link_free(other, 0)
    assert all(count == 1 for count in numbers.values())
