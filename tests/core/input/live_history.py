"""A history of flows and weights on a real scheduler, with everybody at his worst at all times.

Every client always has something waiting: floods in the background topics, and every flow, too. So each
quantum that a flow gets stands for a burst of it that came just after, when its poll had just been
missed: when the last of that burst would be through can be read from the quanta that follow. In this way
every moment of a history is the worst one for each flow in it, and what changes, changes while messages
wait. Flows are promised exactly their bound. One quantum is one tick.
"""

from __future__ import annotations

from typing import NamedTuple

from timebound.core.input.contract import Contract, Decision
from timebound.core.input.plan import PAPER_STEP
from timebound.core.input.scheduler import ClientInput, InputQueue, InputScheduler
from timebound.core.input.steps import finish

from .admission_doubles import QUANTUM, admission, altered, contract

TIGHT = "is promised its bound"
NEAR = "is promised its bound, and sends as often as its share allows"
LOOSE = "is promised what it asked for"
IDLE = "is promised next to nothing"
CLIENTS = 3
TOPICS = 3
# Quanta in each cell of a background topic; one client more than that floods it.
BACKGROUNDS = {"rest": 1, "noise": 5}
# At the end, for those who still wait.
END_TICKS = 100
# Messages after a burst that are looked at; near its share a busy period has no end.
MESSAGES_MAX = 6
NEVER = 1 << 60


class Ask(NamedTuple):
    """A client without a flow of that topic asks for one."""

    ticks: int  # after the step before
    topic: int
    terms: dict[str, int]
    manner: str


class Leave(NamedTuple):
    """So many of those who came first give their flows back."""

    ticks: int
    count: int


class Renew(NamedTuple):
    """Everybody is promised what his bound is now."""

    ticks: int


class Weigh(NamedTuple):
    """A background topic gets so much more weight or as much of it as fits, or less.

    Without any, its cells are taken away; but `rest` keeps one.
    """

    ticks: int
    topic: str
    more: int


Step = Ask | Leave | Renew | Weigh


class LiveFlow:
    """An admitted flow, and when each of its quanta began."""

    def __init__(self, queue: InputQueue[int], asked: Contract) -> None:
        self.queue = queue
        self.asked = asked
        self.ended_ns = NEVER
        self.is_promised = False  # from when its topic has the weight it brought
        self.quanta_ns: list[int] = []

    def late_ns(self) -> int:
        """Return by how much a message would have exceeded what was promised, while it was; 0 if none."""
        if self.asked.delay_ns == 0:
            return 0
        return max([self._wait_ns(first) for first in range(len(self.quanta_ns))], default=0) - (
            self.asked.delay_ns
        )

    def _wait_ns(self, first: int) -> int:
        """Return the longest wait after a burst that came when one of its quanta had just begun."""
        parts = self.asked.parts(100)
        came_ns = self.quanta_ns[first] + 1
        longest_ns = 0
        for number in range(1, self.asked.burst + MESSAGES_MAX):
            this_ns = came_ns + max(0, number - self.asked.burst) * self.asked.interval_ns
            last = first + number * parts
            is_served = last < len(self.quanta_ns)
            done_ns = self.quanta_ns[last] + QUANTUM if is_served else self.ended_ns
            longest_ns = max(longest_ns, done_ns - this_ns)
            if not is_served or done_ns <= this_ns + self.asked.interval_ns:
                break
        return longest_ns


class LiveHistory:
    """Decisions carried out on a real scheduler, as they are made."""

    def __init__(self, order: str, weights: tuple[int, int]) -> None:
        self.now_ns = 0
        self.scheduler: InputScheduler[int] = InputScheduler(
            order, quantum_bytes=100, client_quanta_max=NEVER, step=PAPER_STEP
        )
        self.plan = admission(order)
        self.flows: list[LiveFlow] = []
        self.active: dict[InputQueue[int], LiveFlow] = {}
        self._floods: dict[str, list[InputQueue[int]]] = {name: [] for name in BACKGROUNDS}
        for (name, quanta), weight in zip(BACKGROUNDS.items(), weights, strict=True):
            decision = self.plan.add_background(name, weight, quanta)
            topic = self.scheduler.add_topic(name, weight, slot=decision.slot, quanta_max=quanta)
            for number in range(quanta + 1):
                queue = self.scheduler.open_queue(ClientInput(f"{name} {number}"), topic)
                self._floods[name].append(queue)
                self.scheduler.push(queue, 0, 1 << 40)
        rest = self.scheduler.topics["rest"]
        clients: list[ClientInput[int]] = [ClientInput(str(number)) for number in range(CLIENTS)]
        self._queues = [
            [self.scheduler.open_queue(client, rest, f"queue {topic}") for client in clients]
            for topic in range(TOPICS)
        ]

    def run(self, history: list[Step]) -> list[str]:
        """Carry out a history; return who would have waited longer than promised."""
        for step in history:
            self._pass(step.ticks)
            self._settle()
            if isinstance(step, Ask):
                self._ask(step)
            elif isinstance(step, Leave):
                self._leave(step.count)
            elif isinstance(step, Weigh):
                self._weigh(step.topic, step.more)
            else:
                self._renew()
            self.scheduler._check()
        self._pass(END_TICKS)
        for flow in self.active.values():
            flow.ended_ns = self.now_ns
        return [
            f"{flow.asked.topic} of {flow.asked.client}: {flow.late_ns()} ns more than {flow.asked.delay_ns}"
            for flow in self.flows
            if flow.late_ns() > 0
        ]

    def give_all_back(self) -> None:
        """End all contracts, and wait until nobody can have met them."""
        for queue in list(self.active):
            self._end(queue)
        self._pass(END_TICKS)
        self.now_ns += 1 << 40

    def _pass(self, ticks: int) -> None:
        for _ in range(ticks):
            self._settle()
            queue = self.scheduler.serve()
            assert queue is not None, "floods never end"
            flow = self.active.get(queue)
            if flow is not None:
                self.scheduler.push(queue, 0, 1)
                if flow.is_promised:
                    flow.quanta_ns.append(self.now_ns)
                else:
                    flow.is_promised = not self.scheduler.is_changing(queue.topic)
            self.now_ns += QUANTUM

    def _settle(self) -> None:
        for name in self.plan.unsettled():
            if not self.scheduler.is_changing(self.scheduler.topics[name]):
                self.plan.settle(name, self.now_ns)

    # What changes.

    def _weigh(self, name: str, more: int) -> None:
        topic = self.scheduler.topics.get(name)
        weight = max(0, self.plan.weight(name) + more)
        if topic is None:
            decision = self.plan.add_background(name, weight or 1, BACKGROUNDS[name], self.now_ns)
            if decision.accepted:
                topic = self.scheduler.add_topic(
                    name, decision.weight, slot=decision.slot, quanta_max=BACKGROUNDS[name]
                )
                for queue in self._floods[name]:
                    self.scheduler.move_queue(queue, topic)
        elif weight == 0 and name != "rest":
            for queue in self._floods[name]:
                self.scheduler.move_queue(queue, self.scheduler.topics["rest"])
            self.scheduler.remove_topic(topic)
            self.plan.remove_background(name, self.now_ns)
        else:
            for fitting in range(weight or 1, 0, -1):
                decision = finish(self.plan.setting_background(name, fitting, self.now_ns))
                if decision.accepted:
                    self.scheduler.set_weight(topic, decision.weight, slot=decision.slot)
                    return

    def _ask(self, step: Ask) -> None:
        free = [queue for queue in self._queues[step.topic] if len(queue) == 0]
        if not free:
            return
        asked = contract(free[0].client.name, str(step.topic), **step.terms)
        if step.manner != LOOSE:
            asked = altered(asked, delay_ns=0)
        if step.manner in (NEAR, IDLE):
            asked = altered(asked, interval_ns=1 if step.manner == NEAR else NEVER)
        decision = self.plan.advertise(asked, self.now_ns)
        if not decision.accepted:
            taken = _take_offer(asked, decision)
            if taken is None:
                return
            asked = taken
            decision = self.plan.advertise(asked, self.now_ns)
            assert decision.accepted, decision.reason
        if step.manner in (TIGHT, NEAR):
            tight = altered(asked, delay_ns=decision.bound_ns)
            # Refused only while something else is changing, and counts for a little longer.
            if self.plan.advertise(tight, self.now_ns).accepted:
                asked = tight
        self._join(free[0], asked, decision)

    def _join(self, queue: InputQueue[int], asked: Contract, decision: Decision) -> None:
        topic = self.scheduler.topics.get(asked.topic)
        if topic is None:
            topic = self.scheduler.add_topic(asked.topic, decision.weight, slot=decision.slot)
        elif asked.topic in self.plan.unsettled():
            self.scheduler.set_weight(topic, decision.weight, slot=decision.slot)
        self.scheduler.move_queue(queue, topic)
        for _ in range(2):
            self.scheduler.push(queue, 0, 1)
        self.flows.append(LiveFlow(queue, asked))
        self.active[queue] = self.flows[-1]

    def _renew(self) -> None:
        bounds = {(flow.client, flow.topic): bound.delay_ns for flow, bound in self.plan.bounds()}
        for queue, flow in list(self.active.items()):
            asked = altered(flow.asked, delay_ns=bounds[flow.asked.client, flow.asked.topic])
            if flow.is_promised and self.plan.advertise(asked, self.now_ns).accepted:
                flow.ended_ns = self.now_ns
                self.flows.append(LiveFlow(queue, asked))
                self.active[queue] = self.flows[-1]

    def _leave(self, count: int) -> None:
        for queue in list(self.active)[:count]:
            self._end(queue)

    def _end(self, queue: InputQueue[int]) -> None:
        flow = self.active.pop(queue)
        flow.ended_ns = self.now_ns
        topic = queue.topic
        assert self.plan.unadvertise(flow.asked.client, flow.asked.topic, self.now_ns)
        self.scheduler.move_queue(queue, self.scheduler.topics["rest"])
        if topic.queues_open == 0:
            self.scheduler.remove_topic(topic)


def _take_offer(asked: Contract, decision: Decision) -> Contract | None:
    offer = decision.counter_offer
    if offer.interval_ns:
        return altered(asked, interval_ns=offer.interval_ns)
    return altered(asked, weight=offer.weight) if offer.weight else None
