"""Admission in the long run: random histories of flows and weights, on the plan and on the scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from heapq import heappop, heappush

from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.core.admission import Admission
from timebound.core.cells import ORDERS, cell_order
from timebound.core.offers import Contract, Decision
from timebound.core.wrr import ClientInput, InputQueue, InputScheduler
from timebound.sim.input_server import Arrival, Change, relay

from .admission_doubles import QUANTUM, admission, contract, terms, with_delay

TIGHT = "as short as can be promised"
GREEDY = "sends without end, and is promised nothing"


class Step:
    """One action of a random history."""

    def __init__(
        self, client: int, topic: int, terms: dict[str, int] | None, pause_ns: int, manner: str = ""
    ) -> None:
        self.client = client
        self.topic = topic
        self.terms = terms  # None: unadvertise
        self.pause_ns = pause_ns
        self.manner = manner


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
        del plan._plan.topics[asked.topic]


class Weigh:
    """A background topic gets another weight; 0 takes its cells away, or gives them back."""

    def __init__(self, topic: str, weight: int, pause_ns: int) -> None:
        self.topic = topic
        self.weight = weight
        self.pause_ns = pause_ns


pauses = st.one_of(st.just(0), st.integers(0, 20_000), st.integers(0, 80_000))
live_histories = st.lists(
    st.one_of(
        st.builds(
            Step,
            st.integers(0, 3),
            st.integers(0, 2),
            st.one_of(st.none(), terms, terms, terms),
            pauses,
            st.sampled_from(["", TIGHT, TIGHT, GREEDY]),
        ),
        st.builds(Weigh, st.just("rest"), st.integers(1, 8), pauses),
        st.builds(Weigh, st.just("noise"), st.integers(0, 8), pauses),
    ),
    max_size=25,
)


class LiveFlow:
    """An admitted flow that sends all it may, as early as it may."""

    def __init__(self, queue: InputQueue[Arrival], asked: Contract, start_ns: int) -> None:
        self.queue = queue
        self.asked = asked
        self.start_ns = start_ns
        self.promised_from_ns = start_ns
        self.ended_ns = 1 << 60
        self.arrivals: list[Arrival] = []


class LiveHistory:
    """Decisions carried out on a real scheduler, as they are made, by flows that use all they were granted.

    Clients without a contract flood the background topics all the time.
    """

    def __init__(self, history: list[Step | Weigh]) -> None:
        self.scheduler: InputScheduler[Arrival] = InputScheduler(quantum_bytes=100, client_quanta_max=10**6)
        self.plan = admission()
        self.heap: list[tuple[int, int, Change]] = []
        self.count = 0
        self.flows: list[LiveFlow] = []
        self.active: dict[InputQueue[Arrival], LiveFlow] = {}
        self.floods: dict[str, list[InputQueue[Arrival]]] = {"rest": [], "noise": []}
        self.end_ns = sum(step.pause_ns for step in history) + 100 * QUANTUM
        for name, quanta in (("rest", 2), ("noise", 1)):
            decision = self.plan.add_background(name, 2, quanta)
            topic = self.scheduler.add_topic(name, 2, slot=decision.slot, quanta_max=quanta)
            for number in range(quanta + 1):
                queue = self.scheduler.open_queue(ClientInput(f"{name} {number}"), topic)
                self.floods[name].append(queue)
                self.flood(queue, 0)
        rest = self.scheduler.topics["rest"]
        clients: list[ClientInput[Arrival]] = [ClientInput(str(number)) for number in range(4)]
        self.queues = [
            [self.scheduler.open_queue(client, rest, f"queue {topic}") for topic in range(3)]
            for client in clients
        ]
        now = 0
        for step in history:
            now += step.pause_ns
            self.push(Change(now, partial(self.act, step, now)))

    def push(self, event: Change) -> None:
        self.count += 1
        heappush(self.heap, (event.time_ns, self.count, event))

    def events(self) -> Iterator[Change]:
        while self.heap:
            yield heappop(self.heap)[2]

    def act(self, step: Step | Weigh, now: int) -> None:
        self.settle(now)
        if isinstance(step, Weigh):
            self.weigh(step.topic, step.weight, now)
        else:
            queue = self.queues[step.client][step.topic]
            if step.terms is None:
                self.leave(queue, now)
            elif len(queue) == 0:  # a contract changes only while nothing of its client waits
                self.join(queue, contract(queue.client.name, str(step.topic), **step.terms), now, step.manner)
        self.scheduler._check()
        if self.plan.unsettled():
            self.push(Change(now + QUANTUM, partial(self.settle, now + QUANTUM)))

    def settle(self, now: int) -> None:
        for name in self.plan.unsettled():
            if not self.scheduler.is_changing(self.scheduler.topics[name]):
                self.plan.settle(name, now)
                for queue, flow in self.active.items():
                    if queue.topic.name == name and flow.promised_from_ns == 1 << 60:
                        flow.promised_from_ns = now
        if self.plan.unsettled():
            self.push(Change(now + QUANTUM, partial(self.settle, now + QUANTUM)))

    def weigh(self, name: str, weight: int, now: int) -> None:
        topic = self.scheduler.topics.get(name)
        if topic is None:
            decision = self.plan.add_background(name, weight or 1, 1, now)
            if decision.accepted:
                topic = self.scheduler.add_topic(name, decision.weight, slot=decision.slot, quanta_max=1)
                for queue in self.floods[name]:
                    self.scheduler.move_queue(queue, topic)
        elif weight == 0:
            for queue in self.floods[name]:
                self.scheduler.move_queue(queue, self.scheduler.topics["rest"])
            self.scheduler.remove_topic(topic)
            self.plan.remove_background(name, now)
        else:
            decision = self.plan.set_background(name, weight, now)
            if decision.accepted:
                self.scheduler.set_weight(topic, decision.weight, slot=decision.slot)

    def join(self, queue: InputQueue[Arrival], asked: Contract, now: int, manner: str) -> None:
        if manner:
            asked = with_delay(asked, 0)
        decision = self.plan.advertise(asked, now)
        if not decision.accepted:
            return
        if manner == TIGHT:
            tight = with_delay(asked, decision.bound_ns)
            # Refused only while something else is changing, and counts for a little longer.
            if self.plan.advertise(tight, now).accepted:
                asked = tight
        if queue in self.active:
            self.active.pop(queue).ended_ns = now
        topic = self.scheduler.topics.get(asked.topic)
        if topic is None:
            topic = self.scheduler.add_topic(asked.topic, decision.weight, slot=decision.slot)
        elif self.plan.unsettled():
            self.scheduler.set_weight(topic, decision.weight, slot=decision.slot)
        self.scheduler.move_queue(queue, topic)
        flow = LiveFlow(queue, asked, now)
        if self.scheduler.is_changing(topic):
            flow.promised_from_ns = 1 << 60  # until the scheduler has changed over
        self.flows.append(flow)
        self.active[queue] = flow
        if manner == GREEDY:
            self.flood(queue, now)
        else:
            self.send(flow, 1)

    def send(self, flow: LiveFlow, number: int) -> None:
        """Send message `number` when the contract allows it first, and see to the next."""
        time = flow.start_ns + max(0, number - flow.asked.burst) * flow.asked.interval_ns
        if time < self.end_ns and number < 200:
            self.push(Change(time, partial(self.arrive, flow, number, time)))

    def arrive(self, flow: LiveFlow, number: int, time: int) -> None:
        if self.active.get(flow.queue) is flow:
            arrival = Arrival(time, flow.queue, flow.asked.size)
            flow.arrivals.append(arrival)
            assert self.scheduler.push(flow.queue, arrival, arrival.size)
            self.send(flow, number + 1)

    def flood(self, queue: InputQueue[Arrival], now: int) -> None:
        arrival = Arrival(now, queue, size=100 * (self.end_ns // QUANTUM))
        assert self.scheduler.push(queue, arrival, arrival.size)

    def leave(self, queue: InputQueue[Arrival], now: int) -> None:
        flow = self.active.pop(queue, None)
        if flow is None:
            return
        flow.ended_ns = now
        topic = queue.topic
        assert self.plan.unadvertise(flow.asked.client, flow.asked.topic, now)
        self.scheduler.move_queue(queue, self.scheduler.topics["rest"])
        if topic.queues_open == 0:
            self.scheduler.remove_topic(topic)

    def late(self) -> list[str]:
        """Return the messages that waited longer than promised."""
        done = {id(each.arrival): each.done_ns for each in relay(self.scheduler, self.events(), QUANTUM)}
        late = []
        for flow in self.flows:
            # A promise starts with an empty queue, and ends with the contract.
            start_ns = flow.promised_from_ns
            for each in flow.arrivals:
                if each.time_ns < start_ns:
                    start_ns = max(start_ns, done[id(each)])
                    continue
                waited_ns = min(done[id(each)], flow.ended_ns) - each.time_ns
                if 0 < flow.asked.delay_ns < waited_ns:
                    late.append(
                        f"{flow.asked.topic} of {flow.asked.client}: {waited_ns} > {flow.asked.delay_ns}"
                    )
        return late


@settings(max_examples=100, deadline=None)
@given(live_histories)
def test_promises_are_kept_on_the_scheduler_while_flows_and_weights_change(
    history: list[Step | Weigh],
) -> None:
    assert LiveHistory(history).late() == []


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
