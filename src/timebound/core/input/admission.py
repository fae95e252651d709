"""Admission control: accept or refuse a flow, so that every accepted flow keeps its guaranteed delay.

Delay bounds assume that all other clients always have something waiting. So the bound of a flow depends on
the cells and their lengths, never on how others behave: to admit a flow is to add its quantum to a cell, or a
topic to the rotation, and to check every bound. A refusal names the bound that would break, and the nearest
counter-offer.

Waiting messages may have met what is gone by now: released quanta, or the cells of a topic before its weight
changed. Both count until all those messages are through (core/input/plan.py). While a weight changes, other
flows meet no more than the denser of its two layouts, and flows of the topic itself wait no longer than in
the sparser one (docs/bounds.md): so each layout is checked alone.

An answer takes milliseconds, so it comes in steps (core/input/steps.py): between two of them the plan may
hold what is only being tried. No other decision may begin before that one has returned, or was given up
(`roll_back`).

It is over 500 lines because counter-offers are searched for with the very steps that decide.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from timebound.core.input.bounds import NEVER, OUTSIDE, UNBOUNDED, Bound, Rotation, flow_bound
from timebound.core.input.cells import EVEN, WEIGHT_MAX, check_order, check_weight
from timebound.core.input.contract import (
    Contract,
    CounterOffer,
    Decision,
    accept,
    refuse,
    refuse_change,
    refuse_full,
    refuse_share,
)
from timebound.core.input.plan import WEIGHT_DEFAULT, Layout, PlannedTopic, ReleasedQuanta, RotationPlan
from timebound.core.input.steps import Steps, finish

# Each advertisement checks every flow, while messages wait: docs/bounds.md has the times.
FLOWS_MAX: Final = 1_000
# Layouts that are no longer in force and still count: every decision checks all flows for each of them.
CHANGES_MAX: Final = 4
# Cells and flows visited in search of a counter-offer, after which the best one found so far is used.
SEARCH_MAX: Final = 100_000
# Flows that are compared with their limits in one step of a search; it takes about as long as one bound.
FLOWS_PER_STEP: Final = 32
# An offered period exceeds the shortest that would fit by 1/1024 at most.
PRECISION_BITS: Final = 10

Flow = tuple[Contract, Bound]


class AdmissionControl:
    """The admitted flows, and the rotation that results from them.

    `quantum_ns` is the longest time of a quantum, as measured. A contract without a delay gets
    `delay_default_ns`; if that is 0 too, only its rate is guaranteed. `jitter_ns` is how early a message may
    come, since sockets are read in batches. `outside_ns` is how long a message waits before its queue and
    after its quantum; every bound includes it. Flows get at most `reserved` of the service rate together; the
    rest is for other clients.
    """

    def __init__(
        self,
        *,
        quantum_ns: int,
        quantum_bytes: int,
        order: str = EVEN,
        delay_default_ns: int = 0,
        jitter_ns: int = 0,
        outside_ns: int = 0,
        reserved: float = 1.0,
        flows_max: int = FLOWS_MAX,
    ) -> None:
        check_order(order)
        if quantum_ns < 1 or quantum_bytes < 1:
            raise ValueError(f"quantum_ns={quantum_ns} and quantum_bytes={quantum_bytes} must be positive")
        self.order = order
        self.quantum_ns = quantum_ns
        self.quantum_bytes = quantum_bytes
        self.delay_default_ns = delay_default_ns
        self.jitter_ns = jitter_ns
        self.outside_ns = outside_ns
        self.reserved = reserved
        self.flows_max = flows_max
        # Every flow with its bound, as of the last admission, change of weight, or measurement.
        self.last_bounds: list[Flow] = []
        self.work = 0  # cells and flows visited for the last decision
        self._plan = RotationPlan(order)
        self._before: RotationPlan | None = None  # the plan before the decision that is under way
        self._flow_count = 0

    # Requests of the shell.

    def add_background(self, name: str, weight: int, quanta: int, now_ns: int = 0) -> Decision:
        """Decide like `adding_background`, in one step."""
        return finish(self.adding_background(name, weight, quanta, now_ns))

    def adding_background(self, name: str, weight: int, quanta: int, now_ns: int = 0) -> Steps[Decision]:
        """Add a background topic with `quanta` in each of its cells, or refuse.

        The scheduler's topic needs the same limit (`quanta_max`).

        Raises:
            ValueError: the topic is planned already, or a value is out of range.
        """
        return self._trying(self._add_background(name, weight, quanta, now_ns))

    def _add_background(self, name: str, weight: int, quanta: int, now_ns: int) -> Steps[Decision]:
        check_weight(weight)
        plan = self._plan
        if name in plan.topics or quanta < 1:
            raise ValueError(f"background topic {name!r} is planned already, or has no quanta ({quanta})")
        self._begin(now_ns)
        layout = Layout(weight, plan.free_slot(weight))
        plan.topics[name] = PlannedTopic(name, layout, quanta)
        bounds = yield from self._bounds({})
        broken = self._first_broken(bounds, None)
        if broken is None:
            self.last_bounds = yield from self._settled(bounds)
            return accept(None, UNBOUNDED, layout.weight, layout.slot)
        del plan.topics[name]
        return refuse(broken[0], broken[1], self.limit_ns(broken[0]))

    def setting_background(self, name: str, weight: int, now_ns: int) -> Steps[Decision]:
        """Change the weight of a background topic, or refuse and change nothing.

        A guarantee that a measurement broke already is no obstacle unless the flow would wait even longer.
        The caller calls `settle` once the scheduler has changed over.

        Raises:
            ValueError: the topic is not planned, or the weight is out of range.
        """
        return self._trying(self._set_background(name, weight, now_ns))

    def _set_background(self, name: str, weight: int, now_ns: int) -> Steps[Decision]:
        check_weight(weight)
        plan = self._plan
        previous = plan.topics.get(name)
        if previous is None:
            raise ValueError(f"background topic {name!r} is not planned")
        self._begin(now_ns)
        if weight == previous.layout.weight:
            return accept(None, UNBOUNDED, weight, previous.layout.slot)
        before = yield from self.computing_bounds()
        topic = previous.copy()
        plan.change_layout(topic, weight)
        self._part_with_denser(topic)
        plan.topics[name] = topic
        bounds = yield from self._bounds({name: topic.layout})
        broken = self._first_broken(self._worse(bounds, before), None)
        if broken is None:
            self.last_bounds = yield from self.computing_bounds()
            return accept(None, UNBOUNDED, weight, topic.layout.slot)
        plan.restore(name, previous)
        return refuse(broken[0], broken[1], self.limit_ns(broken[0]))

    def remove_background(self, name: str, now_ns: int) -> None:
        """Remove a background topic; that breaks no guarantee, in either order of cells.

        Raises:
            ValueError: the topic is not planned.
        """
        topic = self._plan.topics.get(name)
        if topic is None:
            raise ValueError(f"background topic {name!r} is not planned")
        assert not topic.flows, "a background topic has no contracts"
        self._begin(now_ns)
        self._plan.release(topic, topic.background, now_ns + self._longest_wait_ns("", []))
        del self._plan.topics[name]

    def unsettled(self) -> list[str]:
        """Return the topics whose new weight the scheduler may not have taken up yet."""
        return [topic.name for topic in self._plan.topics.values() if not topic.is_settled()]

    def settle(self, name: str, now_ns: int) -> None:
        """Note that the scheduler now serves a topic by its new weight."""
        topic = self._plan.topics.get(name)
        if topic is not None and not topic.is_settled():
            topic.past[-1].until_ns = now_ns + self._longest_wait_ns("", [])

    def advertise(self, contract: Contract, now_ns: int) -> Decision:
        """Decide like `advertising`, in one step."""
        return finish(self.advertising(contract, now_ns))

    def advertising(self, contract: Contract, now_ns: int) -> Steps[Decision]:
        """Admit a flow if it and all admitted flows keep their delays; else refuse and change nothing.

        A flow that is advertised again gets its contract replaced, or keeps the old one if refused. The
        weight of a topic rises to the largest of its contracts, and stays until the last is gone. The caller
        calls `settle` once the scheduler has changed over; a flow that raised the weight has its guarantee
        from then on.
        """
        return self._trying(self._advertise(contract, now_ns))

    def _advertise(self, contract: Contract, now_ns: int) -> Steps[Decision]:
        self._begin(now_ns)
        is_new = self.contract(contract.client, contract.topic) is None
        if is_new and self._flow_count >= self.flows_max:
            return refuse_full(contract, "flows_max", self.flows_max)
        if self._plan.raises(contract) and self._plan.change_count() >= CHANGES_MAX:
            return refuse_change(contract, CHANGES_MAX)
        taken = self.share_taken(contract)
        # Tolerance for sums of fractions: what was offered must fit.
        if taken + self._share_of(contract) > self.reserved + 1e-9:
            return (yield from self._refuse_share(contract, taken))
        previous = self._plan.place(contract, contract.weight)
        bounds = yield from self._bounds(self._pure(contract.topic))
        broken = yield from self._broken(contract, bounds)
        if broken is None:
            settled = yield from self._settled(bounds)
            self._flow_count += 1 if is_new else 0
            layout = self._plan.topics[contract.topic].layout
            self.last_bounds = settled
            own = [bound.delay_ns for flow, bound in self.last_bounds if flow is contract]
            return accept(contract, own[0], layout.weight, layout.slot)
        is_own = broken[0] is contract
        interval_ns = (yield from self._fitting_interval(contract)) if is_own else 0
        self._plan.restore(contract.topic, previous)
        weight = yield from self._fitting_weight(contract, broken[0])
        counter_offer = CounterOffer(interval_ns, weight, self.work <= SEARCH_MAX)
        return refuse(
            broken[0],
            broken[1],
            self.limit_ns(broken[0]),
            outside_ns=self.outside_ns,
            counter_offer=counter_offer,
        )

    def unadvertise(self, client: str, topic_name: str, now_ns: int) -> bool:
        """Release a flow; return False if there is none."""
        if self.contract(client, topic_name) is None:
            return False
        self._release(client, [topic_name], now_ns)
        return True

    def measuring(self, quantum_ns: int, outside_ns: int) -> Steps[list[Contract]]:
        """Set the times of a quantum and outside the queues; return the flows whose guarantee breaks."""
        self.quantum_ns = quantum_ns
        self.outside_ns = outside_ns
        self.jitter_ns = outside_ns
        bounds = yield from self.computing_bounds()
        if bounds or self.last_bounds:  # an empty list made in a flood would keep memory from being returned
            self.last_bounds = bounds
        return [contract for contract, bound in self.last_bounds if not self._keeps(contract, bound)]

    def guaranteed_ns(self, contract: Contract, bound: Bound) -> int:
        """Return the guaranteed delay of a flow: its bound, or its delay limit if the bound exceeds that."""
        limit_ns = self.limit_ns(contract)
        if bound.delay_ns == UNBOUNDED or 0 < limit_ns < bound.delay_ns:
            return limit_ns
        return bound.delay_ns

    def share_taken(self, without: Contract | None = None) -> float:
        """Return the share of the service rate that admitted flows take, except the flow of `without`."""
        taken = 0.0
        for topic in self._plan.topics.values():
            for flow in topic.flows.values():
                is_left_out = (
                    without is not None and flow.topic == without.topic and flow.client == without.client
                )
                taken += 0.0 if is_left_out else self._share_of(flow)
        return taken

    def _share_of(self, contract: Contract) -> float:
        return contract.parts(self.quantum_bytes) * self.quantum_ns / contract.interval_ns

    def contract(self, client: str, topic_name: str) -> Contract | None:
        topic = self._plan.topics.get(topic_name)
        return None if topic is None else topic.flows.get(client)

    def weight(self, topic_name: str) -> int:
        """Return the topic's weight, or 0 if it has no cells of its own."""
        topic = self._plan.topics.get(topic_name)
        return 0 if topic is None else topic.layout.weight

    def slot(self, topic_name: str) -> int:
        """Return the slot that the scheduler must give the topic, or -1."""
        topic = self._plan.topics.get(topic_name)
        return -1 if topic is None else topic.layout.slot

    def flow_count(self) -> int:
        return self._flow_count

    def topics(self) -> list[tuple[str, int, int]]:
        """Return name, weight, and quanta per cell of every topic of the rotation."""
        topics = self._plan.topics.values()
        return [(topic.name, topic.layout.weight, topic.quanta()) for topic in topics]

    def limit_ns(self, contract: Contract) -> int:
        """Return the delay limit of a flow, or 0 if only its rate is guaranteed."""
        return contract.delay_ns or self.delay_default_ns

    def bounds(self) -> list[Flow]:
        """Return what `computing_bounds` does, in one step."""
        return finish(self.computing_bounds())

    def computing_bounds(self) -> Steps[list[Flow]]:
        """Return every admitted flow with its bound, once all changes are settled."""
        return (yield from self._bounds({}, is_settled=True))

    def is_trying(self) -> bool:
        """Whether a decision has begun and not returned yet."""
        return self._before is not None

    def roll_back(self) -> None:
        """Give up the decision that has not returned, if there is one: nothing it tried stays."""
        if self._before is not None:
            self._plan = self._before
            self._before = None

    def _trying(self, steps: Steps[Decision]) -> Steps[Decision]:
        """Take the steps of a decision, which `roll_back` can give up until the last."""
        self._before = self._plan.copy()
        decision = yield from steps
        self._before = None
        return decision

    # Bounds, and the flows whose guarantee would break.

    def _begin(self, now_ns: int) -> None:
        self.work = 0
        self._plan.forget(now_ns)

    def _bounds(self, pure: dict[str, Layout], is_settled: bool = False) -> Steps[list[Flow]]:
        """Return every flow with its bound; topics in `pure` have that layout alone.

        A topic that changes counts with all its layouts for others, and each in turn for itself.
        """
        rotation = self._plan.rotation(pure, is_settled)
        flows: list[Flow] = []
        for index, topic in enumerate(self._plan.topics.values()):
            if not topic.flows:
                continue
            own: list[Flow] = []
            for contract in topic.flows.values():
                own.append((contract, self._bound_in(rotation, index, contract)))
                yield
            if topic.past and not is_settled and topic.name not in pure:
                for past in topic.past:
                    own = yield from self._worst(own, index, {**pure, topic.name: past})
            flows += own
        self.work += rotation.work + len(flows)
        return flows

    def _settled(self, bounds: list[Flow]) -> Steps[list[Flow]]:
        """Return the bounds once all changes are settled, from those that were just computed if none is."""
        if self._plan.is_changing():
            bounds = yield from self.computing_bounds()
        return bounds

    def _pure(self, topic_name: str) -> dict[str, Layout]:
        """Return the newest layout of a topic to be looked at alone, if there is more than one."""
        topic = self._plan.topics[topic_name]
        return {topic_name: topic.layout} if topic.past else {}

    def _worst(self, flows: list[Flow], index: int, pure: dict[str, Layout]) -> Steps[list[Flow]]:
        """Return the flows of a topic with the longer of their bounds, those known and those of `pure`.

        Only for flows with a delay limit: a change is too short to cost a flow its rate.
        """
        rotation = self._plan.rotation(pure)
        worst: list[Flow] = []
        for contract, bound in flows:
            if self.limit_ns(contract) > 0 and bound.delay_ns != UNBOUNDED:
                other = self._bound_in(rotation, index, contract)
                yield
                if other.delay_ns == UNBOUNDED or other.delay_ns > bound.delay_ns:
                    bound = other
            worst.append((contract, bound))
        self.work += rotation.work
        return worst

    def _bound_in(self, rotation: Rotation, index: int, contract: Contract) -> Bound:
        bound = flow_bound(
            rotation,
            index,
            burst=contract.burst,
            interval_ns=contract.interval_ns,
            quantum_ns=self.quantum_ns,
            clients=self._plan.topics[contract.topic].quanta(),
            parts=contract.parts(self.quantum_bytes),
            jitter_ns=self.jitter_ns,
        )
        if bound.delay_ns != UNBOUNDED:
            if self.outside_ns * 2 > bound.delay_ns + self.outside_ns:
                bound.dominating = OUTSIDE
            bound.delay_ns += self.outside_ns
        return bound

    def _keeps(self, contract: Contract, bound: Bound) -> bool:
        if bound.delay_ns == UNBOUNDED:
            return False
        limit_ns = self.limit_ns(contract)
        return limit_ns == 0 or bound.delay_ns <= limit_ns

    def _broken(self, asking: Contract, bounds: list[Flow]) -> Steps[Flow | None]:
        """Return a flow whose guarantee the placed flow would break; the placed one itself only if no other.

        If its topic changes weight, the others must keep theirs in every layout that a message may meet;
        `bounds` are those of the newest alone.
        """
        topic = self._plan.topics[asking.topic]
        broken = self._first_broken(bounds, asking)
        if broken is not None and broken[0] is not asking:
            return broken
        for past in topic.past:
            flows = yield from self._bounds({topic.name: past})
            flows = [flow for flow in flows if flow[0] is not asking and self.limit_ns(flow[0]) > 0]
            other = self._first_broken(flows, asking)
            if other is not None:
                return other
        return broken

    def _first_broken(self, bounds: list[Flow], asking: Contract | None) -> Flow | None:
        """Return a flow whose guarantee would break; the asking flow only if no other does."""
        own: Flow | None = None
        for flow in bounds:
            if not self._keeps(flow[0], flow[1]):
                if flow[0] is not asking:
                    return flow
                own = flow
        return own

    def _worse(self, bounds: list[Flow], before: list[Flow]) -> list[Flow]:
        """Return the flows that wait longer than before; both lists have them in the same order."""
        return [
            flow
            for flow, (_, old) in zip(bounds, before, strict=True)
            if old.delay_ns != UNBOUNDED
            and (flow[1].delay_ns == UNBOUNDED or flow[1].delay_ns > old.delay_ns)
        ]

    # Release.

    def _release(self, client: str, topic_names: list[str], now_ns: int) -> None:
        """Remove flows; their quanta count until no waiting message can have met them."""
        self._begin(now_ns)
        until_ns = now_ns + self._longest_wait_ns(client, topic_names)
        for name in topic_names:
            topic = self._plan.topics[name]
            self._plan.release(topic, 1, until_ns)
            del topic.flows[client]
            self._flow_count -= 1
            if topic.quanta() == 0:
                del self._plan.topics[name]

    def _longest_wait_ns(self, leaving: str, topic_names: list[str]) -> int:
        """Return how long a message of an admitted flow may still wait, except the flows that leave.

        The bounds of the last admission are no shorter than the bounds now, unless something is changing:
        then flows may wait as long as they were guaranteed.
        """
        is_changing = self._plan.is_changing()
        longest_ns = 0
        for contract, bound in self.last_bounds:
            if contract.client == leaving and contract.topic in topic_names:
                continue
            if self.contract(contract.client, contract.topic) is contract:
                longest_ns = max(longest_ns, bound.delay_ns)
                if is_changing or bound.delay_ns == UNBOUNDED:
                    longest_ns = max(longest_ns, self.limit_ns(contract))
        return longest_ns

    def _part_with_denser(self, topic: PlannedTopic) -> None:
        """Count earlier layouts separately that a rise does not exceed: after a fall and a rise.

        If a topic changed in one direction only, one of its layouts covers whatever a message met. After a
        fall and a rise it does not.
        """
        dense = [past for past in topic.past[:-1] if past.weight > topic.past[-1].weight]
        if topic.past and topic.layout.weight > topic.past[-1].weight:
            for past in dense:
                self._plan.released.append(ReleasedQuanta(past, topic.quanta(), past.until_ns))
            topic.past = [past for past in topic.past if past not in dense]

    # Counter-offers.

    def _refuse_share(self, contract: Contract, taken: float) -> Steps[Decision]:
        """Refuse for lack of reserved service rate; offer a period that also keeps all bounds."""
        left = self.reserved - taken
        interval_ns = 0
        if left > 0:
            slower = contract.with_interval(ceil(contract.interval_ns * self._share_of(contract) / left))
            previous = self._plan.place(slower, slower.weight)
            bounds = yield from self._bounds(self._pure(slower.topic))
            broken = yield from self._broken(slower, bounds)
            if broken is None:
                interval_ns = slower.interval_ns
            elif broken[0] is slower:
                interval_ns = yield from self._fitting_interval(slower)
            self._plan.restore(contract.topic, previous)
        return refuse_share(
            contract, self._share_of(contract), left, self.reserved, CounterOffer(interval_ns, 0)
        )

    def _fitting_interval(self, contract: Contract) -> Steps[int]:
        """Return about the shortest longer interval with which the flow, already placed, would fit; or 0.

        No other bound depends on it, so only the flow's own is checked. The search starts at the share and
        goes up in steps that double and then halve.
        """
        topic = self._plan.topics[contract.topic]
        rotation = self._plan.rotation({topic.name: topic.layout})
        index = list(self._plan.topics).index(contract.topic)
        parts = contract.parts(self.quantum_bytes)
        miss = max(contract.interval_ns, rotation.share_interval_ns(index, parts, self.quantum_ns))
        if not self._keeps_with(rotation, index, contract, NEVER):
            return 0
        near = 1 + (miss >> PRECISION_BITS)
        step = near
        while not self._keeps_with(rotation, index, contract, min(NEVER, miss + step)):
            yield
            miss += step
            step *= 2
        hit = min(NEVER, miss + step)
        while hit - miss > near:
            yield
            middle = (miss + hit) // 2
            if self._keeps_with(rotation, index, contract, middle):
                hit = middle
            else:
                miss = middle
        self.work += rotation.work
        return hit

    def _keeps_with(self, rotation: Rotation, index: int, contract: Contract, interval_ns: int) -> bool:
        self.work += 1
        return self._keeps(contract, self._bound_in(rotation, index, contract.with_interval(interval_ns)))

    def _fitting_weight(self, contract: Contract, broken: Contract) -> Steps[int]:
        """Return the nearest weight with which all would fit, or 0.

        More weight helps the flow itself, less helps the others; so one direction is searched for the first
        weight that helps, in steps that double and then halve. Beyond SEARCH_MAX, the nearest weight found so
        far is used.
        """
        is_own = broken is contract
        planned = self.weight(contract.topic)
        asked = max(contract.weight or WEIGHT_DEFAULT, planned)
        if is_own and planned and self._plan.change_count() >= CHANGES_MAX:
            return 0
        direction = 1 if is_own else -1
        farthest = WEIGHT_MAX - asked if is_own else asked - max(1, planned)
        miss = max(0, direction * (self._weight_at_best(contract, broken) - asked))
        step = 1 + (miss >> 4)
        hit = min(miss + step, farthest)
        if hit <= miss:
            return 0
        while not (yield from self._helps(contract, asked + direction * hit, broken)):
            if hit == farthest or self.work > SEARCH_MAX:
                return 0
            miss = hit
            step *= 2
            hit = min(hit + step, farthest)
        while hit - miss > 1 and self.work <= SEARCH_MAX:
            middle = (miss + hit) // 2
            if (yield from self._helps(contract, asked + direction * middle, broken)):
                hit = middle
            else:
                miss = middle
        weight = asked + direction * hit
        return weight if (yield from self._fits(contract, weight)) else 0

    def _weight_at_best(self, contract: Contract, broken: Contract) -> int:
        """Return the asking flow's weight that would not suffice even if the cells of a topic lay evenly.

        The longest distance of two cells is no shorter than the mean one. With L quanta a cycle,
        message n of a flow of weight w waits at least n · L / w quanta, and its share is w / L.
        """
        previous = self._plan.place(contract, contract.weight)
        own = self._plan.topics[contract.topic]
        others = 0  # quanta of a cycle, but for the asking flow's topic
        for topic in self._plan.topics.values():
            others += 0 if topic is own else topic.layout.weight * topic.quanta()
        weight = self._plan.topics[broken.topic].layout.weight
        self._plan.restore(contract.topic, previous)
        parts = broken.parts(self.quantum_bytes)
        # The longest mean time between two cells: a message per interval, and within the delay
        # the last of those that may come at once. Rounded up, to exclude no weight that suffices.
        most_ns = -(-broken.interval_ns // parts)
        limit_ns = self.limit_ns(broken)
        if limit_ns > 0:
            message = broken.burst + self.jitter_ns // broken.interval_ns
            left_ns = max(0, limit_ns - self.outside_ns - self.quantum_ns)
            most_ns = min(most_ns, -(-left_ns // (message * parts)))
        others_ns = others * self.quantum_ns
        own_ns = own.quanta() * self.quantum_ns
        if broken is contract:
            return (others_ns - 1) // (most_ns - own_ns) if most_ns > own_ns else WEIGHT_MAX
        return max(0, most_ns * weight - others_ns) // own_ns + 1

    def _helps(self, contract: Contract, weight: int, broken: Contract) -> Steps[bool]:
        """Whether the broken flow keeps its guarantee with that weight; if it is another's, whether all do.

        The broken flow is checked first: it rules out most weights that do not help.
        """
        previous = self._plan.place(contract, weight)
        pure = self._pure(contract.topic)
        rotation = self._plan.rotation(pure)
        index = list(self._plan.topics).index(broken.topic)
        helps = self._keeps(broken, self._bound_in(rotation, index, broken))
        yield
        if helps and broken is not contract:
            helps = yield from self._others_keep(rotation, contract)
            if helps:
                helps = (yield from self._broken(contract, [])) is None
        self.work += rotation.work
        self._plan.restore(contract.topic, previous)
        return helps

    def _others_keep(self, rotation: Rotation, asking: Contract) -> Steps[bool]:
        """Whether all flows but one keep their guarantees; those without a delay their rate."""
        for index, topic in enumerate(self._plan.topics.values()):
            for flow in topic.flows.values():
                if flow is asking:
                    continue
                self.work += 1
                if self.work % FLOWS_PER_STEP == 0:
                    yield
                if not self._surely_keeps(rotation, index, flow) and not self._keeps(
                    flow, self._bound_in(rotation, index, flow)
                ):
                    return False
        return True

    def _surely_keeps(self, rotation: Rotation, index: int, flow: Contract) -> bool:
        """Whether a flow keeps its guarantee with room to spare, without visiting its cells.

        The message after those that may come at once is the last whose wait can be the longest.
        """
        parts = flow.parts(self.quantum_bytes)
        if not rotation.is_stable(index, flow.interval_ns, parts, self.quantum_ns):
            return False
        limit_ns = self.limit_ns(flow)
        message = flow.burst + self.jitter_ns // flow.interval_ns + 1
        quanta = 1 + rotation.whole_cycles(index, message * parts)
        return limit_ns == 0 or quanta * self.quantum_ns + self.outside_ns <= limit_ns

    def _fits(self, contract: Contract, weight: int) -> Steps[bool]:
        previous = self._plan.place(contract, weight)
        bounds = yield from self._bounds(self._pure(contract.topic))
        broken = yield from self._broken(contract, bounds)
        self._plan.restore(contract.topic, previous)
        return broken is None
