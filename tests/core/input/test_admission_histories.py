"""Admission in the long run: random histories of flows and weights, on the plan and on the scheduler."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.core.input.admission import AdmissionControl
from timebound.core.input.cells import ORDERS, cell_order
from timebound.core.input.contract import Contract, Decision
from timebound.core.input.plan import PAPER_STEP
from timebound.core.input.scheduler import ClientInput, InputScheduler
from timebound.sim.input.server import Arrival, SchedulerChange, relay

from .admission_doubles import QUANTUM, admission, altered, contract, terms
from .live_history import (
    IDLE,
    LOOSE,
    NEAR,
    TIGHT,
    TOPICS,
    Ask,
    Leave,
    LiveHistory,
    Renew,
    Step,
    Weigh,
)


class Planned(NamedTuple):
    """One action of a history that is only planned."""

    client: int
    topic: int
    terms: dict[str, int] | None  # None: unadvertise
    pause_ns: int


histories = st.lists(
    st.builds(
        Planned,
        st.integers(0, 3),
        st.integers(0, 3),
        st.one_of(st.none(), terms, terms),
        st.integers(0, 80_000),
    ),
    max_size=20,
)


def naive_bound(
    plan: AdmissionControl, flow: Contract, flows: list[Contract], background: tuple[int, int]
) -> int:
    """Compute a flow's bound anew, from the topics alone: every start, every message."""
    names = sorted({other.topic for other in flows})
    weights = [plan.weight(name) for name in names] + [background[0]]
    lengths = [sum(other.topic == name for other in flows) for name in names] + [background[1]]
    slots = [plan.slot(name) for name in names] + [plan.slot("rest")]
    own = names.index(flow.topic)
    starts: list[int] = []
    now = 0
    order = cell_order(weights, plan.order, slots, PAPER_STEP)
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
def test_no_history_leaves_an_admitted_flow_over_its_bound(order: str, history: list[Planned]) -> None:
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


def check_offer(plan: AdmissionControl, asked: Contract, decision: Decision, now: int) -> None:
    """Every offer must be accepted when taken, and is taken back again here."""
    before = plan.contract(asked.client, asked.topic)
    for interval, weight in (
        (decision.counter_offer.interval_ns, asked.weight),
        (asked.interval_ns, decision.counter_offer.weight),
    ):
        if before is not None or not interval or (interval, weight) == (asked.interval_ns, 0):
            continue
        again = altered(asked, interval_ns=interval, weight=weight)
        if plan.weight(asked.topic) > 0:
            continue  # its weight would stay raised, and this is only a trial
        assert plan.advertise(again, now_ns=now).accepted
        plan._flow_count -= 1
        del plan._plan.topics[asked.topic]


def random_history(random: Random) -> list[Step]:
    """Return a history that leaves nobody any room.

    Others come first, then somebody who is promised just what remains. He lets nobody join him. So
    what joins has to take the place of what left, while messages wait that have met that.
    """

    def ask(manner: str, weight: int, ticks: int) -> Ask:
        terms = {
            "interval_ns": random.randint(5, 60) * QUANTUM,
            "burst": random.choice([1, 1, 2]),
            "size": random.choice([1, 1, 1, 150]),
            "weight": weight,
            "delay_ns": random.randint(5, 80) * QUANTUM,
        }
        return Ask(ticks, random.randrange(TOPICS), terms, manner)

    def free(ticks: int) -> Step:
        if random.random() < 0.3:
            return Leave(ticks, random.randint(1, 3))
        return Weigh(ticks, random.choice(["rest", "noise", "noise"]), random.choice([-1, -2, -9]))

    def fill(ticks: int) -> Step:
        if random.random() < 0.5:
            return ask(IDLE, random.randint(0, 8), ticks)
        return Weigh(ticks, random.choice(["rest", "rest", "noise"]), random.choice([1, 2, 9]))

    history: list[Step] = [ask(IDLE, random.randint(0, 6), 0) for _ in range(random.randint(1, 5))]
    for _ in range(random.randint(2, 6)):
        for _ in range(random.randint(0, 2)):
            history.append(ask(random.choice([NEAR, TIGHT, LOOSE]), random.randint(0, 3), 0))
        history.append(Renew(random.randint(20, 80)))
        history += [free(random.randint(0, 40)), *[free(0) for _ in range(random.randint(0, 1))]]
        history += [fill(random.randint(0, 3)) for _ in range(random.randint(1, 5))]
    return history


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(ORDERS), st.integers(0, 1 << 32))
def test_promises_are_kept_on_the_scheduler_while_flows_and_weights_change(order: str, seed: int) -> None:
    random = Random(seed)
    live = LiveHistory(order, (random.randint(1, 6), random.randint(1, 3)))

    assert live.run(random_history(random)) == []

    live.give_all_back()
    backgrounds = sum(weight * quanta for _, weight, quanta in live.plan.topics())
    bound_ns = (backgrounds + 2) * QUANTUM
    probe = contract("probe", "probe", weight=1, delay_ns=bound_ns)
    assert live.plan.advertise(probe, live.now_ns).bound_ns == bound_ns, "as in a plan without a past"
    assert live.plan.flow_count() == 1


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
    events: list[Arrival | SchedulerChange] = [Arrival(0, queues["x"]), Arrival(0, queues["x"])]
    events += [Arrival(0, queues["v2"]) for _ in range(5)]
    victim = Arrival(QUANTUM + 1, queues["v1"])
    relayed = relay(scheduler, [*events, victim, SchedulerChange(3 * QUANTUM, exchange)], QUANTUM)

    [delay] = [message.delay_ns for message in relayed if message.arrival is victim]
    assert delay == 7 * QUANTUM - 1 > promised
    plan.unadvertise("x", "x", now_ns=3 * QUANTUM)
    late = contract("y", "y", weight=3, delay_ns=promised)
    assert not plan.advertise(late, now_ns=3 * QUANTUM).accepted
    assert plan.advertise(late, now_ns=3 * QUANTUM + promised).accepted
