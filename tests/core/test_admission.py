"""Admission: every accepted flow keeps its promise, every refusal says what would fit."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.core.admission import Admission
from timebound.core.bounds import UNBOUNDED
from timebound.core.cells import EVEN, ORDERS, cell_order
from timebound.core.offers import Contract, Decision, Policer
from timebound.core.wrr import ClientInput, InputQueue, InputScheduler
from timebound.sim.input_server import Arrival, Change, relay

QUANTUM = 1_000
MS = 1_000_000


def admission(order: str = EVEN, **options: int) -> Admission:
    return Admission(quantum_ns=QUANTUM, quantum_bytes=100, order=order, **options)


def contract(client: str, topic: str, **terms: int) -> Contract:
    return Contract(client, topic, **({"interval_ns": MS} | terms))


class TestAdvertise:
    def test_first_flow_is_admitted_with_its_bound(self) -> None:
        decision = admission().advertise(contract("c", "t", weight=3), now_ns=0)

        # It just misses its only poll: one quantum lost, one served.
        assert decision.accepted
        assert (decision.bound_ns, decision.weight, decision.slot) == (2 * QUANTUM, 3, 0)
        assert decision.reason == "flow 't' of client 'c' waits at most 0.002 ms"

    def test_flow_over_its_delay_is_refused_with_a_weight_that_fits(self) -> None:
        plan = admission()
        plan.add_background("rest", 10, 4)

        asked = contract("c", "t", weight=1, delay_ns=10 * QUANTUM)
        decision = plan.advertise(asked, now_ns=0)

        # Ten cells of four quanta, its own, and the missed one.
        assert not decision.accepted
        assert (decision.bound_ns, decision.limit_ns) == (42 * QUANTUM, 10 * QUANTUM)
        assert decision.offer.weight == 5
        assert decision.reason == (
            "flow 't' of client 'c' would wait up to 0.042 ms, longer than its 0.010 ms; "
            "a weight of 5 would fit"
        )
        assert plan.weight("t") == 0

    def test_flow_over_its_share_is_refused_with_a_period_that_fits(self) -> None:
        plan = admission()
        plan.add_background("rest", 1, 3)

        decision = plan.advertise(contract("c", "t", interval_ns=2 * QUANTUM), now_ns=0)

        assert decision.bound_ns == UNBOUNDED
        assert decision.offer.interval_ns == 4 * QUANTUM + 1
        assert "would get less than the 500000 messages/s it needs" in decision.reason
        assert "a period of 0.005 ms or a weight of" in decision.reason

    def test_flow_that_would_break_anothers_promise_is_refused_and_names_it(self) -> None:
        plan = admission()
        plan.advertise(contract("old", "a", weight=1, delay_ns=6 * QUANTUM), now_ns=0)

        decision = plan.advertise(contract("new", "b", weight=9), now_ns=0)

        assert (decision.broken_client, decision.broken_topic) == ("old", "a")
        assert decision.offer.weight == 4
        assert decision.offer.interval_ns == 0

    def test_refused_again_advertisement_keeps_the_old_contract(self) -> None:
        plan = admission()
        plan.add_background("rest", 1, 3)
        kept = contract("c", "t")
        plan.advertise(kept, now_ns=0)

        assert not plan.advertise(contract("c", "t", interval_ns=1), now_ns=0).accepted

        assert plan.contract("c", "t") is kept

    def test_contract_without_delay_gets_the_default(self) -> None:
        plan = admission(delay_default_ns=4 * QUANTUM)
        plan.advertise(contract("a", "t"), now_ns=0)
        plan.advertise(contract("b", "t"), now_ns=0)
        plan.advertise(contract("c", "t"), now_ns=0)

        assert not plan.advertise(contract("d", "t"), now_ns=0).accepted

    def test_message_of_several_quanta_needs_as_many_cells(self) -> None:
        plan = admission()
        plan.add_background("rest", 1, 1)

        decision = plan.advertise(contract("c", "t", size=250), now_ns=0)

        assert decision.bound_ns == (1 + 3 * 2) * QUANTUM

    def test_jitter_counts_as_messages_that_come_together(self) -> None:
        calm, jittery = admission(), admission(jitter_ns=MS)
        for plan in (calm, jittery):
            plan.add_background("rest", 1, 1)

        bounds = [plan.advertise(contract("c", "t"), now_ns=0).bound_ns for plan in (calm, jittery)]

        assert bounds == [3 * QUANTUM, 5 * QUANTUM]

    def test_weight_of_a_topic_rises_and_stays_until_the_last_flow_is_gone(self) -> None:
        plan = admission()
        plan.advertise(contract("a", "t", weight=2), now_ns=0)
        plan.advertise(contract("b", "t", weight=5), now_ns=0)

        plan.unadvertise("b", "t", now_ns=0)
        assert plan.weight("t") == 5
        plan.unadvertise("a", "t", now_ns=0)
        assert plan.weight("t") == 0

    def test_table_of_flows_is_limited(self) -> None:
        plan = admission(flows_max=1)
        plan.advertise(contract("a", "t"), now_ns=0)

        decision = plan.advertise(contract("b", "t"), now_ns=0)

        assert decision.reason == "flow 't' of client 'b' is one too many (flows_max=1)"
        assert plan.advertise(contract("a", "t", burst=2), now_ns=0).accepted

    def test_background_that_would_break_a_promise_is_refused(self) -> None:
        plan = admission()
        plan.advertise(contract("c", "t", delay_ns=5 * QUANTUM), now_ns=0)

        decision = plan.add_background("rest", 1, 4)

        assert not decision.accepted
        assert decision.reason == "flow 't' of client 'c' would wait up to 0.006 ms, longer than its 0.005 ms"
        assert plan.add_background("rest", 1, 3).accepted


class TestGivingBack:
    def full(self) -> Admission:
        plan = admission()
        for client in "abc":
            assert plan.advertise(contract(client, "t", delay_ns=4 * QUANTUM), now_ns=0).accepted
        return plan

    def test_capacity_returns_once_nobody_can_have_waited_for_it(self) -> None:
        plan = self.full()

        assert plan.unadvertise("a", "t", now_ns=100)

        late = contract("d", "t", delay_ns=4 * QUANTUM)
        assert not plan.advertise(late, now_ns=100 + 4 * QUANTUM - 1).accepted
        assert plan.advertise(late, now_ns=100 + 4 * QUANTUM).accepted

    def test_capacity_returns_at_once_when_nobody_else_was_promised_anything(self) -> None:
        plan = admission()
        plan.advertise(contract("a", "t", delay_ns=2 * QUANTUM), now_ns=0)
        plan.unadvertise("a", "t", now_ns=5)

        assert plan.advertise(contract("b", "t", delay_ns=2 * QUANTUM), now_ns=5).accepted

    def test_client_that_leaves_gives_back_all_its_flows(self) -> None:
        plan = admission()
        for topic in "xy":
            plan.advertise(contract("a", topic), now_ns=0)
        plan.advertise(contract("b", "y"), now_ns=0)

        assert plan.remove_client("a", now_ns=0) == ["x", "y"]

        assert [flow.client for flow, _ in plan.bounds()] == ["b"]

    def test_unknown_flow_gives_nothing_back(self) -> None:
        assert not admission().unadvertise("nobody", "t", now_ns=0)

    def test_slower_quantum_names_the_flows_it_breaks(self) -> None:
        plan = self.full()

        assert plan.set_quantum(QUANTUM) == []
        assert [flow.client for flow in plan.set_quantum(QUANTUM + 1)] == ["a", "b", "c"]


class TestPolicer:
    def test_burst_then_one_per_interval(self) -> None:
        policer = Policer(contract("c", "t", burst=2, interval_ns=100, size=10))

        times = [0, 0, 0, 99, 100, 200, 300, 300]

        assert [policer.conforms(10, t) for t in times] == [True, True, False, False, True, True, True, False]
        assert policer.excess == 3

    def test_message_larger_than_agreed_is_excess(self) -> None:
        policer = Policer(contract("c", "t", size=10))

        assert not policer.conforms(11, 0)
        assert policer.conforms(10, 0)

    def test_jitter_lets_a_message_come_early(self) -> None:
        policer = Policer(contract("c", "t", interval_ns=100), jitter_ns=30)

        assert [policer.conforms(1, t) for t in (0, 69, 70, 170, 240)] == [True, False, True, True, False]

    @given(st.integers(1, 4), st.lists(st.integers(0, 300), max_size=30))
    def test_no_interval_ever_holds_more_than_agreed(self, burst: int, gaps: list[int]) -> None:
        policer = Policer(contract("c", "t", burst=burst, interval_ns=100))
        passed = []
        now = 0
        for gap in gaps:
            now += gap
            if policer.conforms(1, now):
                passed.append(now)

        for first, start in enumerate(passed):
            for last in range(first, len(passed)):
                assert last - first + 1 <= burst + (passed[last] - start) / 100

    def test_unknown_mode_is_refused(self) -> None:
        with pytest.raises(ValueError, match="excess mode 'drop' is unknown; use lower or refuse"):
            Policer(contract("c", "t"), mode="drop")


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"interval_ns": 0}, "interval 0 ns is not positive"),
        ({"burst": 0}, r"burst 0 is out of range \(1 to 10000\)"),
        ({"weight": 1024}, "weight 1024 is out of range"),
        ({"size": -1}, "must not be negative"),
    ],
)
def test_impossible_contract_is_refused(terms: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        contract("c", "t", **terms)


class Step:
    """One action of a random history."""

    def __init__(self, client: int, topic: int, terms: dict[str, int] | None, pause_ns: int) -> None:
        self.client = client
        self.topic = topic
        self.terms = terms  # None: unadvertise
        self.pause_ns = pause_ns


terms = st.fixed_dictionaries(
    {
        "interval_ns": st.integers(5 * QUANTUM, 200 * QUANTUM),
        "burst": st.integers(1, 3),
        "size": st.integers(1, 250),
        "weight": st.integers(0, 6),
        "delay_ns": st.one_of(st.just(0), st.integers(5 * QUANTUM, 150 * QUANTUM)),
    }
)
histories = st.lists(
    st.builds(
        Step, st.integers(0, 3), st.integers(0, 3), st.one_of(st.none(), terms, terms), st.integers(0, 80_000)
    ),
    max_size=20,
)


def naive_bound(plan: Admission, flow: Contract, flows: list[Contract], background: tuple[int, int]) -> int:
    """Compute a flow's bound anew, from the topics alone: every start, every message."""
    names = sorted({other.topic for other in flows})
    weights = [plan.weight(name) for name in names] + [background[0]]
    lengths = [sum(other.topic == name for other in flows) for name in names] + [background[1]]
    slots = [plan.slot(name) for name in names] + [plan.slot("rest")]
    own = names.index(flow.topic)
    starts: list[int] = []
    now = 0
    order = cell_order(weights, plan.order, slots)
    parts = -(-flow.size // 100)
    messages = flow.burst + 2 * order.count(own)
    while len(starts) <= order.count(own) + messages * parts:
        for topic in order:
            if topic == own:
                starts.append(now)
            now += lengths[topic] * QUANTUM
    return QUANTUM + max(
        starts[j + n * parts] - starts[j] - max(0, n - flow.burst) * flow.interval_ns
        for j in range(order.count(own))
        for n in range(1, messages + 1)
    )


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ORDERS), histories)
def test_no_history_leaves_an_admitted_flow_over_its_bound(order: str, history: list[Step]) -> None:
    plan = admission(order)
    plan.add_background("rest", 2, 2)
    flows: dict[tuple[str, str], Contract] = {}
    now = 0
    for step in history:
        now += step.pause_ns
        key = (str(step.client), str(step.topic))
        if step.terms is None:
            assert plan.unadvertise(*key, now_ns=now) == (key in flows)
            flows.pop(key, None)
        else:
            asked = contract(*key, **step.terms)
            decision = plan.advertise(asked, now_ns=now)
            if decision.accepted:
                flows[key] = asked
            else:
                check_offer(plan, asked, decision, now)
        for flow in flows.values():
            worst = naive_bound(plan, flow, list(flows.values()), (2, 2))
            assert flow.delay_ns == 0 or worst <= flow.delay_ns


def check_offer(plan: Admission, asked: Contract, decision: Decision, now: int) -> None:
    """Every offer must be accepted when taken, and is taken back again here."""
    before = plan.contract(asked.client, asked.topic)
    for interval, weight in (
        (decision.offer.interval_ns, asked.weight),
        (asked.interval_ns, decision.offer.weight),
    ):
        if before is not None or not interval or (interval, weight) == (asked.interval_ns, 0):
            continue
        again = Contract(
            asked.client,
            asked.topic,
            interval_ns=interval,
            burst=asked.burst,
            size=asked.size,
            weight=weight,
            delay_ns=asked.delay_ns,
        )
        if plan.weight(asked.topic) > 0:
            continue  # its weight would stay raised, and this is only a trial
        assert plan.advertise(again, now_ns=now).accepted
        plan._flow_count -= 1
        del plan._topics[asked.topic]


class LiveHistory:
    """The same decisions carried out on a real scheduler, by flows that use all they were granted.

    Clients without a contract flood the background topic all the time.
    """

    def __init__(self, history: list[Step]) -> None:
        self.scheduler: InputScheduler[Arrival] = InputScheduler(quantum_bytes=100, client_quanta_max=10**6)
        self.plan = admission()
        self.plan.add_background("rest", 2, 2)
        self.rest = self.scheduler.add_topic("rest", 2, quanta_max=2)
        self.events: list[Arrival | Change] = []
        self.promised: dict[int, int] = {}  # by event: the delay promised to that message
        end = sum(step.pause_ns for step in history) + 100 * QUANTUM
        for number in range(3):
            queue = self.scheduler.open_queue(ClientInput(f"flood {number}"), self.rest)
            self.events.append(Arrival(0, queue, size=100 * (end // QUANTUM)))
        self.play(history, end)
        self.events.sort(key=lambda event: event.time_ns)

    def play(self, history: list[Step], end: int) -> None:
        clients: list[ClientInput[Arrival]] = [ClientInput(str(i)) for i in range(4)]
        active: dict[InputQueue[Arrival], tuple[Contract, int]] = {}
        ended: list[InputQueue[Arrival]] = []
        now = 0
        for step in history:
            now += step.pause_ns
            name = str(step.topic)
            queue = self.scheduler.open_queue(clients[step.client], self.rest, name)
            if queue in ended:
                continue  # a promise starts once what waited in its queue before is gone
            if queue in active:
                ended.append(queue)
                self.publish(queue, *active.pop(queue), now)
                self.plan.unadvertise(queue.client.name, name, now)
                self.events.append(Change(now, partial(self.leave, queue)))
                continue
            # A promise does not cover what waits while its own topic's weight changes.
            if step.terms is None or 0 < self.plan.weight(name) < step.terms["weight"]:
                continue
            asked = contract(queue.client.name, name, **step.terms)
            decision = self.plan.advertise(asked, now)
            if decision.accepted:
                active[queue] = (asked, now)
                self.events.append(Change(now, partial(self.join, queue, decision)))
        for queue, (asked, start) in active.items():
            self.publish(queue, asked, start, end)

    def publish(self, queue: InputQueue[Arrival], asked: Contract, start: int, until: int) -> None:
        """Send as early as the contract allows, while it lasts."""
        for n in range(1, 200):
            time = start + max(0, n - asked.burst) * asked.interval_ns
            if time + asked.delay_ns > until:
                break
            arrival = Arrival(time, queue, asked.size)
            self.events.append(arrival)
            self.promised[id(arrival)] = asked.delay_ns

    def join(self, queue: InputQueue[Arrival], decision: Decision) -> None:
        topic = self.scheduler.topics.get(queue.name)
        if topic is None:
            topic = self.scheduler.add_topic(queue.name, decision.weight, slot=decision.slot)
        self.scheduler.move_queue(queue, topic)

    def leave(self, queue: InputQueue[Arrival]) -> None:
        topic = queue.topic
        self.scheduler.move_queue(queue, self.rest)
        if topic.queues_open == 0:
            self.scheduler.remove_topic(topic)
        self.scheduler._check()


@settings(max_examples=60, deadline=None)
@given(histories)
def test_promises_are_kept_on_the_scheduler_while_flows_come_and_go(history: list[Step]) -> None:
    live = LiveHistory(history)

    for message in relay(live.scheduler, live.events, QUANTUM):
        promised = live.promised.get(id(message.arrival), 0)
        assert promised == 0 or message.delay_ns <= promised


def test_flow_admitted_right_after_another_left_could_break_a_promise_and_is_refused() -> None:
    """Topic v has its cell at 1/2 of the cycle, x at 1/4 and 3/4, y at 1/6, 1/2 and 5/6.

    A message of v that arrives at 1/2 meets x at 3/4. If x is then exchanged for y, it meets all
    three cells of y as well, more than with either of them alone.
    """
    plan = admission()
    promised = 6 * QUANTUM
    for client, topic, weight in (("v1", "v", 1), ("v2", "v", 1), ("x", "x", 2)):
        assert plan.advertise(contract(client, topic, weight=weight, delay_ns=promised), now_ns=0).accepted
    scheduler: InputScheduler[Arrival] = InputScheduler()
    queues = {
        name: scheduler.open_queue(
            ClientInput(name), scheduler.topics.get(name[0]) or scheduler.add_topic(name[0], weight)
        )
        for name, weight in (("v1", 1), ("v2", 1), ("x", 2))
    }

    def exchange() -> None:
        scheduler.close_queue(queues["x"])
        queue = scheduler.open_queue(ClientInput("y"), scheduler.add_topic("y", 3))
        for _ in range(9):
            scheduler.push(queue, Arrival(0, queue), 1)

    # The first cell is x's at 1/4, the second v's at 1/2, the third x's at 3/4.
    events: list[Arrival | Change] = [Arrival(0, queues["x"]), Arrival(0, queues["x"])]
    events += [Arrival(0, queues["v2"]) for _ in range(5)]
    victim = Arrival(QUANTUM + 1, queues["v1"])
    relayed = relay(scheduler, [*events, victim, Change(3 * QUANTUM, exchange)], QUANTUM)

    [delay] = [message.delay_ns for message in relayed if message.arrival is victim]
    assert delay == 7 * QUANTUM - 1 > promised
    plan.unadvertise("x", "x", now_ns=3 * QUANTUM)
    late = contract("y", "y", weight=3, delay_ns=promised)
    assert not plan.advertise(late, now_ns=3 * QUANTUM).accepted
    assert plan.advertise(late, now_ns=3 * QUANTUM + promised).accepted


def test_flows_get_no_more_than_what_is_reserved_for_them() -> None:
    admission = Admission(quantum_ns=100, quantum_bytes=64, reserved=0.5)
    assert admission.advertise(Contract("a", "t", interval_ns=250, weight=10), 0).accepted

    refused = admission.advertise(Contract("b", "u", interval_ns=500, weight=10), 0)
    assert not refused.accepted
    assert 1_000 <= refused.offer.interval_ns <= 1_001  # fractions are floats
    assert "10.0% of the 50% for advertised flows are left" in refused.reason
    offered_ns = refused.offer.interval_ns
    assert admission.advertise(Contract("b", "u", interval_ns=offered_ns, weight=10), 0).accepted
    # Its own share does not count against a flow that is advertised again.
    assert admission.advertise(Contract("a", "t", interval_ns=251, weight=10), 0).accepted


def test_time_outside_the_queues_is_part_of_every_bound() -> None:
    inside = Admission(quantum_ns=100, quantum_bytes=64)
    outside = Admission(quantum_ns=100, quantum_bytes=64, outside_ns=5_000)
    contract = Contract("a", "t", interval_ns=10_000, delay_ns=5_100)

    bound_ns = inside.advertise(contract, 0).bound_ns
    refused = outside.advertise(contract, 0)

    assert bound_ns <= 5_100
    assert not refused.accepted
    assert refused.bound_ns == bound_ns + 5_000


def test_capacity_of_a_background_returns_once_nobody_can_have_waited_for_it() -> None:
    for change in ("remove", "lower"):
        plan = admission()
        plan.add_background("rest", 1, 1)
        plan.add_background("noise", 5, 1)
        promised = 8 * QUANTUM
        assert plan.advertise(contract("a", "t", weight=1, delay_ns=promised), now_ns=0).accepted
        late = contract("b", "u", weight=4)
        assert not plan.advertise(late, now_ns=0).accepted

        if change == "remove":
            plan.remove_background("noise", now_ns=100)
            assert [name for name, _, _ in plan.topics()] == ["rest", "t"]
        else:
            assert plan.set_background("noise", 1, now_ns=100).accepted

        assert not plan.advertise(late, now_ns=100).accepted
        assert plan.advertise(late, now_ns=100 + promised).accepted


def test_weight_that_heals_a_broken_promise_is_accepted_and_one_that_makes_it_worse_is_not() -> None:
    plan = admission()
    plan.add_background("rest", 8, 1)
    assert plan.advertise(contract("a", "t", weight=1, delay_ns=12 * QUANTUM), now_ns=0).accepted
    assert len(plan.set_quantum(4 * QUANTUM)) == 1

    assert not plan.set_background("rest", 9, 0).accepted
    assert plan.set_background("rest", 4, 0).accepted  # still broken, but less
    assert len(plan.set_quantum(4 * QUANTUM)) == 1
    assert plan.set_background("rest", 1, MS).accepted
    assert not plan.advertise(contract("b", "u", weight=1), now_ns=2 * MS).accepted
    assert plan.set_quantum(4 * QUANTUM) == []


def test_background_that_is_not_planned_cannot_be_removed() -> None:
    with pytest.raises(ValueError, match="'noise' is not planned"):
        admission().remove_background("noise", 0)


@given(
    st.sampled_from(ORDERS),
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 3)), min_size=1, max_size=4),
    terms,
)
def test_removed_background_makes_no_bound_longer(
    order: str, backgrounds: list[tuple[int, int]], asked: dict[str, int]
) -> None:
    plan = admission(order)
    for number, (weight, quanta) in enumerate(backgrounds):
        plan.add_background(str(number), weight, quanta)
    if not plan.advertise(contract("a", "t", **asked), now_ns=0).accepted:
        return
    [(_, before)] = plan.bounds()

    plan.remove_background("0", now_ns=0)
    plan._forget_released(MS * MS)

    [(_, after)] = plan.bounds()
    assert after.delay_ns != UNBOUNDED
    assert after.delay_ns <= before.delay_ns


def test_background_weight_changes_only_if_every_promise_holds() -> None:
    admission = Admission(quantum_ns=100, quantum_bytes=64)
    admission.add_background("rest", 1, 1)
    assert admission.advertise(Contract("a", "t", interval_ns=100_000, delay_ns=500), 0).accepted

    assert admission.set_background("rest", 2, 0).accepted
    refused = admission.set_background("rest", 100, 0)

    assert not refused.accepted
    assert refused.broken_topic == "t"
    assert ("rest", 2, 1) in admission.topics()
    with pytest.raises(ValueError, match="not planned"):
        admission.set_background("other", 2, 0)
