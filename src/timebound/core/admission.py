"""Accept or refuse a flow, so that every accepted one keeps the delay it was promised.

The scheduler's bounds assume that everybody else always has something waiting. So a flow's bound
depends on which cells there are and how long they are, never on how others behave: to admit a
flow is to add its quantum to a cell, or a topic to the rotation, and to look at every bound.
Refusals are returned, with the bound that broke and the nearest offer that would fit.

A quantum given back counts until all messages that may have waited for it are through: else
one of them could wait for the flow that left and for the one admitted in its place.
"""

from __future__ import annotations

from typing import Final

from timebound.core.bounds import NEVER, OUTSIDE, UNBOUNDED, Bound, Rotation, flow_bound
from timebound.core.cells import EVEN, SLOTS_MAX, WEIGHT_MAX, check_order, check_weight
from timebound.core.offers import Contract, Decision, Offer, accept, refuse, refuse_full, refuse_share

# Each advertisement looks at every flow, while messages wait: docs/bounds.md has the times.
FLOWS_MAX: Final = 1_000
WEIGHT_DEFAULT: Final = 1


class _Planned:
    """A topic of the rotation as admission counts it."""

    __slots__ = ("background", "flows", "name", "slot", "weight")

    def __init__(self, name: str, weight: int, slot: int, background: int) -> None:
        self.name = name
        self.weight = weight
        self.slot = slot
        self.background = background  # quanta of its cell for those without a contract
        self.flows: dict[str, Contract] = {}  # by client

    def quanta(self) -> int:
        return self.background + len(self.flows)


class _Released:
    """A quantum that was given back and may still have delayed a waiting message."""

    __slots__ = ("slot", "until_ns", "weight")

    def __init__(self, topic: _Planned, until_ns: int) -> None:
        self.weight = topic.weight
        self.slot = topic.slot
        self.until_ns = until_ns


class Admission:
    """The admitted flows, and the rotation that results from them.

    `quantum_ns` is the longest that a quantum takes, as measured. A contract without a delay
    gets `delay_default_ns`; if that is 0 too, only its rate is promised. `jitter_ns` is how far
    a message may come early, which reading from a socket in batches makes unavoidable, and
    `outside_ns` what a message waits before its queue and after its quantum: it is part of every bound.
    Flows are promised at most `reserved` of the service rate in all, so that others keep the rest.
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
        # Every flow with its worst case, as it was when one was last admitted, weighted or measured anew.
        self.told: list[tuple[Contract, Bound]] = []
        self._topics: dict[str, _Planned] = {}
        self._released: list[_Released] = []
        self._flow_count = 0

    # What the shell asks for.

    def add_background(self, name: str, weight: int, quanta: int, now_ns: int = 0) -> Decision:
        """Give a topic for messages without a contract `quanta` in each of its cells, or refuse.

        The scheduler's topic needs the same limit (`quanta_max`).

        Raises:
            ValueError: the topic is planned already, or a value is out of range.
        """
        check_weight(weight)
        if name in self._topics or quanta < 1:
            raise ValueError(f"background topic {name!r} is planned already, or has no quanta ({quanta})")
        self._forget_released(now_ns)
        topic = _Planned(name, weight, self._free_slot(weight), quanta)
        self._topics[name] = topic
        bounds = self.bounds()
        broken = self._first_broken(bounds, None)
        if broken is None:
            self.told = bounds
            return accept(None, UNBOUNDED, topic.weight, topic.slot)
        del self._topics[name]
        return refuse(broken[0], broken[1], self.limit_ns(broken[0]))

    def set_background(self, name: str, weight: int, now_ns: int) -> Decision:
        """Give a background topic another weight, or refuse and change nothing.

        A promise that a measurement broke does not forbid it, if the wait gets no longer by it.

        Raises:
            ValueError: the topic is not planned, or the weight is out of range.
        """
        check_weight(weight)
        previous = self._topics.get(name)
        if previous is None:
            raise ValueError(f"background topic {name!r} is not planned")
        self._forget_released(now_ns)
        if weight == previous.weight:
            return accept(None, UNBOUNDED, weight, previous.slot)
        before = self.bounds()
        topic = _Planned(name, weight, self._free_slot(weight), previous.background)
        topic.flows = previous.flows
        self._topics[name] = topic
        bounds = self.bounds()
        broken = self._first_broken(self._worse(bounds, before), None)
        if broken is None:
            self._release_background(previous, bounds, now_ns)
            self.told = bounds
            return accept(None, UNBOUNDED, weight, topic.slot)
        self._restore(name, previous)
        return refuse(broken[0], broken[1], self.limit_ns(broken[0]))

    def remove_background(self, name: str, now_ns: int) -> None:
        """Take a background topic out of the plan; it breaks no promise, in either order of cells.

        Raises:
            ValueError: the topic is not planned.
        """
        topic = self._topics.get(name)
        if topic is None:
            raise ValueError(f"background topic {name!r} is not planned")
        assert not topic.flows, "a background topic has no contracts"
        self._forget_released(now_ns)
        self._release_background(topic, self.bounds(), now_ns)
        del self._topics[name]

    def advertise(self, contract: Contract, now_ns: int) -> Decision:
        """Admit a flow if every admitted one, and it, keeps its delay; else change nothing.

        A flow that is advertised again has its contract replaced, or kept if the answer is no.
        A topic's weight rises to the largest of its contracts', and stays until the last is gone.
        """
        self._forget_released(now_ns)
        topic = self._topics.get(contract.topic)
        is_new = topic is None or contract.client not in topic.flows
        if is_new and self._flow_count >= self.flows_max:
            return refuse_full(contract, self.flows_max)
        taken = self.share_taken(contract)
        # A little more than nothing for sums of fractions: what was offered must fit.
        if taken + self._share_of(contract) > self.reserved + 1e-9:
            return refuse_share(contract, self._share_of(contract), taken, self.reserved)
        previous = self._place(contract, contract.weight)
        bounds = self.bounds()
        broken = self._first_broken(bounds, contract)
        if broken is None:
            self._flow_count += 1 if is_new else 0
            planned = self._topics[contract.topic]
            self.told = bounds
            own = [bound.delay_ns for flow, bound in bounds if flow is contract]
            return accept(contract, own[0], planned.weight, planned.slot)
        is_own = broken[0] is contract
        interval_ns = self._fitting_interval(contract) if is_own else 0
        self._restore(contract.topic, previous)
        weight = self._fitting_weight(contract, is_own)
        return refuse(broken[0], broken[1], self.limit_ns(broken[0]), offer=Offer(interval_ns, weight))

    def unadvertise(self, client: str, topic_name: str, now_ns: int) -> bool:
        """Give a flow's capacity back; False if there was none."""
        if self.contract(client, topic_name) is None:
            return False
        self._release(client, [topic_name], now_ns)
        return True

    def remove_client(self, client: str, now_ns: int) -> list[str]:
        """Give back all that a client had; return the topics."""
        names = [name for name, topic in self._topics.items() if client in topic.flows]
        self._release(client, names, now_ns)
        return names

    def set_quantum(self, quantum_ns: int) -> list[Contract]:
        """Take a new measurement, and return the flows whose promise it breaks."""
        self.quantum_ns = quantum_ns
        self.told = self.bounds()
        return [contract for contract, bound in self.told if not self._keeps(contract, bound)]

    def promised_ns(self, contract: Contract, bound: Bound) -> int:
        """Return the longest wait a flow was told: its bound, or the delay it asked for if that is broken."""
        limit_ns = self.limit_ns(contract)
        if bound.delay_ns == UNBOUNDED or 0 < limit_ns < bound.delay_ns:
            return limit_ns
        return bound.delay_ns

    def share_taken(self, without: Contract | None = None) -> float:
        """Return the part of the service rate that is promised, but for the flow that `without` names."""
        taken = 0.0
        for topic in self._topics.values():
            for flow in topic.flows.values():
                is_left_out = (
                    without is not None and flow.topic == without.topic and flow.client == without.client
                )
                taken += 0.0 if is_left_out else self._share_of(flow)
        return taken

    def _share_of(self, contract: Contract) -> float:
        return contract.parts(self.quantum_bytes) * self.quantum_ns / contract.interval_ns

    def contract(self, client: str, topic_name: str) -> Contract | None:
        topic = self._topics.get(topic_name)
        return None if topic is None else topic.flows.get(client)

    def weight(self, topic_name: str) -> int:
        """Return the topic's weight, or 0 if it has no cells of its own."""
        topic = self._topics.get(topic_name)
        return 0 if topic is None else topic.weight

    def slot(self, topic_name: str) -> int:
        """Return the slot that the scheduler must give the topic, or -1."""
        topic = self._topics.get(topic_name)
        return -1 if topic is None else topic.slot

    def flow_count(self) -> int:
        return self._flow_count

    def topics(self) -> list[tuple[str, int, int]]:
        """Return every topic of the rotation: its name, its weight, and the quanta of its cells."""
        return [(topic.name, topic.weight, topic.quanta()) for topic in self._topics.values()]

    def limit_ns(self, contract: Contract) -> int:
        """Return the delay promised to a flow, or 0 if only its rate is."""
        return contract.delay_ns or self.delay_default_ns

    def bounds(self) -> list[tuple[Contract, Bound]]:
        """Return every admitted flow with its worst case as things are now."""
        names = list(self._topics)
        rotation = self._rotation()
        return [
            (contract, self._bound_in(rotation, index, contract))
            for index, name in enumerate(names)
            for contract in self._topics[name].flows.values()
        ]

    # The rotation that the bounds are computed from.

    def _rotation(self) -> Rotation:
        """Return the cycle of planned topics, in their order, and after them of what was released.

        A quantum released from a topic that goes on has that topic's cells, right behind its own.
        """
        weights: list[int] = []
        quanta: list[int] = []
        slots: list[int] = []
        for topic in self._topics.values():
            weights.append(topic.weight)
            quanta.append(topic.quanta())
            slots.append(topic.slot)
        for released in self._released:
            weights.append(released.weight)
            quanta.append(1)
            slots.append(released.slot)
        return Rotation(weights, quanta, self.order, slots)

    def _bound_in(self, rotation: Rotation, index: int, contract: Contract) -> Bound:
        bound = flow_bound(
            rotation,
            index,
            burst=contract.burst,
            interval_ns=contract.interval_ns,
            quantum_ns=self.quantum_ns,
            clients=self._topics[contract.topic].quanta(),
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

    def _first_broken(
        self, bounds: list[tuple[Contract, Bound]], asking: Contract | None
    ) -> tuple[Contract, Bound] | None:
        """Return a flow that would lose its promise; the asking one only if it is the only one."""
        own: tuple[Contract, Bound] | None = None
        for flow in bounds:
            if not self._keeps(flow[0], flow[1]):
                if flow[0] is not asking:
                    return flow
                own = flow
        return own

    def _worse(
        self, bounds: list[tuple[Contract, Bound]], before: list[tuple[Contract, Bound]]
    ) -> list[tuple[Contract, Bound]]:
        """Return the flows that wait longer than before; both lists have them in the same order."""
        return [
            flow
            for flow, (_, old) in zip(bounds, before, strict=True)
            if old.delay_ns != UNBOUNDED
            and (flow[1].delay_ns == UNBOUNDED or flow[1].delay_ns > old.delay_ns)
        ]

    # Changing the plan, and changing it back.

    def _place(self, contract: Contract, weight: int) -> _Planned | None:
        """Put a flow into the plan; return the topic as it was, for `_restore`."""
        previous = self._topics.get(contract.topic)
        if previous is None:
            weight = weight or WEIGHT_DEFAULT
            topic = _Planned(contract.topic, weight, self._free_slot(weight), 0)
        else:
            topic = _Planned(previous.name, previous.weight, previous.slot, previous.background)
            topic.flows = dict(previous.flows)
            if weight > previous.weight:
                topic.weight = weight
                topic.slot = self._free_slot(weight)
        topic.flows[contract.client] = contract
        self._topics[contract.topic] = topic
        return previous

    def _restore(self, name: str, previous: _Planned | None) -> None:
        if previous is None:
            del self._topics[name]
        else:
            self._topics[name] = previous

    def _free_slot(self, weight: int) -> int:
        used = {topic.slot for topic in self._topics.values() if topic.weight == weight}
        slot = 0
        while slot in used:
            slot += 1
        assert slot < SLOTS_MAX, "flows_max is below the number of slots"
        return slot

    def _release(self, client: str, topic_names: list[str], now_ns: int) -> None:
        """Take flows out of the plan; their quanta count until no one can still have met them."""
        self._forget_released(now_ns)
        longest_ns = 0
        for contract, bound in self.bounds():
            if contract.client != client or contract.topic not in topic_names:
                longest_ns = max(longest_ns, bound.delay_ns)
        for name in topic_names:
            topic = self._topics[name]
            self._released.append(_Released(topic, now_ns + longest_ns))
            del topic.flows[client]
            self._flow_count -= 1
            if topic.quanta() == 0:
                del self._topics[name]

    def _release_background(self, topic: _Planned, bounds: list[tuple[Contract, Bound]], now_ns: int) -> None:
        until_ns = now_ns + max([bound.delay_ns for _, bound in bounds], default=0)
        for _ in range(topic.background):
            self._released.append(_Released(topic, until_ns))

    def _forget_released(self, now_ns: int) -> None:
        if self._released:
            self._released = [released for released in self._released if released.until_ns > now_ns]

    # What would fit instead.

    def _fitting_interval(self, contract: Contract) -> int:
        """Return the shortest longer interval with which the flow, already placed, would fit; or 0.

        Nobody else's bound depends on it, so only the flow's own is looked at.
        """
        rotation = self._rotation()
        index = list(self._topics).index(contract.topic)
        low = contract.interval_ns
        high = min(NEVER, low * 2)
        while not self._keeps(contract, self._bound_in(rotation, index, contract.with_interval(high))):
            if high == NEVER:
                return 0
            low = high
            high = min(NEVER, high * 2)
        while high - low > 1:
            middle = (low + high) // 2
            if self._keeps(contract, self._bound_in(rotation, index, contract.with_interval(middle))):
                high = middle
            else:
                low = middle
        return high

    def _fitting_weight(self, contract: Contract, is_own: bool) -> int:
        """Return the nearest weight with which all would fit, or 0.

        More weight helps the flow itself, less helps the others; so one direction is searched for
        the first weight that helps, in steps that double and then halve.
        """
        planned = self.weight(contract.topic)
        asked = max(contract.weight or WEIGHT_DEFAULT, planned)
        direction = 1 if is_own else -1
        farthest = WEIGHT_MAX - asked if is_own else asked - max(1, planned)
        miss = 0
        hit = min(1, farthest)
        while not self._helps(contract, asked + direction * hit, is_own):
            if hit == farthest:
                return 0
            miss = hit
            hit = min(2 * hit, farthest)
        while hit - miss > 1:
            middle = (miss + hit) // 2
            if self._helps(contract, asked + direction * middle, is_own):
                hit = middle
            else:
                miss = middle
        weight = asked + direction * hit
        return weight if self._helps(contract, weight, not is_own) else 0

    def _helps(self, contract: Contract, weight: int, is_own: bool) -> bool:
        """Tell whether with that weight the flow itself, or else every other one, keeps its promise."""
        previous = self._place(contract, weight)
        rotation = self._rotation()
        helps = True
        for index, topic in enumerate(self._topics.values()):
            if is_own and topic.name != contract.topic:
                continue
            for flow in topic.flows.values():
                if (flow is contract) == is_own and helps:
                    helps = self._keeps(flow, self._bound_in(rotation, index, flow))
        self._restore(contract.topic, previous)
        return helps
