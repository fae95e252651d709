"""The rotation as admission control plans it: topics, their layouts, and what still delays waiting messages.

A topic's *layout* defines its cells: a weight, and a slot among the topics of that weight. After a change of
weight the scheduler keeps the old layout until it can change over (core/input/scheduler.py), and messages
that wait at that time have met cells of both. So an old layout stays in the plan until all of them are
through, and so do released quanta. core/input/admission.py decides; this is the state it decides on.
"""

from __future__ import annotations

from typing import Final

from timebound.core.input.bounds import NEVER, Rotation
from timebound.core.input.cells import SLOTS_MAX
from timebound.core.input.contract import Contract

WEIGHT_DEFAULT: Final = 1
# Under `paper`, the decrease of the current weight from round to round. As published it is the greatest
# common divisor of all weights; but when that changes, all cells move, and waiting messages may meet more of
# them than before or after. The scheduler must use the same.
PAPER_STEP: Final = 1
# Longer cycles are not laid out cell by cell, and bounds get looser: docs/bounds.md has the times.
CELLS_MAX: Final = 16_384


class Layout:
    """The cells of a topic, and until when they may have delayed a waiting message.

    NEVER: until the shell reports that the scheduler has changed over.
    """

    __slots__ = ("slot", "until_ns", "weight")

    def __init__(self, weight: int, slot: int, until_ns: int = NEVER) -> None:
        self.weight = weight
        self.slot = slot
        self.until_ns = until_ns


class PlannedTopic:
    """A topic of the rotation as admission control counts it."""

    __slots__ = ("background", "flows", "layout", "name", "past")

    def __init__(self, name: str, layout: Layout, background: int) -> None:
        self.name = name
        self.layout = layout
        self.past: list[Layout] = []  # earlier ones that still count, oldest first
        self.background = background  # quanta of its cell for clients without a contract
        self.flows: dict[str, Contract] = {}  # by client

    def quanta(self) -> int:
        return self.background + len(self.flows)

    def is_settled(self) -> bool:
        """Whether the scheduler has taken up the newest layout, as far as is known."""
        return not self.past or self.past[-1].until_ns != NEVER

    def copy(self) -> PlannedTopic:
        copied = PlannedTopic(self.name, self.layout, self.background)
        copied.past = list(self.past)
        copied.flows = dict(self.flows)
        return copied


class ReleasedQuanta:
    """Released quanta that may still have delayed a waiting message."""

    __slots__ = ("layout", "quanta")

    def __init__(self, layout: Layout, quanta: int, until_ns: int) -> None:
        self.layout = Layout(layout.weight, layout.slot, until_ns)
        self.quanta = quanta


class RotationPlan:
    """All topics and released quanta; changes are made on copies, so that they can be undone."""

    __slots__ = ("order", "released", "topics")

    def __init__(self, order: str) -> None:
        self.order = order
        self.topics: dict[str, PlannedTopic] = {}
        self.released: list[ReleasedQuanta] = []

    def copy(self) -> RotationPlan:
        """Return a plan that changes of this one do not reach; they are made on copies of topics."""
        copied = RotationPlan(self.order)
        copied.topics = dict(self.topics)
        copied.released = list(self.released)
        return copied

    def is_changing(self) -> bool:
        """Whether anything counts that is no longer in force."""
        if self.released:
            return True
        for topic in self.topics.values():
            if topic.past:
                return True
        return False

    def change_count(self) -> int:
        """Return the number of layouts that still count but are no longer in force."""
        return sum([len(topic.past) for topic in self.topics.values()])

    def raises(self, contract: Contract) -> bool:
        """Whether a flow would change the weight of its topic."""
        topic = self.topics.get(contract.topic)
        return topic is not None and contract.weight > topic.layout.weight

    def rotation(self, pure: dict[str, Layout], is_settled: bool = False) -> Rotation:
        """Return the cycle of all topics in order, followed by what still counts.

        Topics in `pure` have that layout alone. With `is_settled`, nothing earlier counts.
        """
        weights: list[int] = []
        quanta: list[int] = []
        slots: list[int] = []
        extra: dict[tuple[int, int], int] = {}
        for topic in self.topics.values():
            layout = pure.get(topic.name, topic.layout)
            weights.append(layout.weight)
            slots.append(layout.slot)
            quanta.append(topic.quanta())
            if topic.past and not is_settled and topic.name not in pure:
                for past in topic.past:
                    key = (past.weight, past.slot)
                    extra[key] = extra.get(key, 0) + topic.quanta()
        if not is_settled:
            for released in self.released:
                key = (released.layout.weight, released.layout.slot)
                extra[key] = extra.get(key, 0) + released.quanta
        # Quanta released from a topic that goes on are in that topic's cells, right behind its own.
        for (weight, slot), count in extra.items():
            weights.append(weight)
            slots.append(slot)
            quanta.append(count)
        return Rotation(weights, quanta, self.order, slots, cells_max=CELLS_MAX, step=PAPER_STEP)

    def place(self, contract: Contract, weight: int) -> PlannedTopic | None:
        """Add a flow to the plan; return the topic as it was, for `restore`.

        A topic's weight only rises, to that of its heaviest flow.
        """
        previous = self.topics.get(contract.topic)
        if previous is None:
            weight = weight or WEIGHT_DEFAULT
            topic = PlannedTopic(contract.topic, Layout(weight, self.free_slot(weight)), 0)
        else:
            topic = previous.copy()
            if weight > previous.layout.weight:
                self.change_layout(topic, weight)
        topic.flows[contract.client] = contract
        self.topics[contract.topic] = topic
        return previous

    def restore(self, name: str, previous: PlannedTopic | None) -> None:
        if previous is None:
            del self.topics[name]
        else:
            self.topics[name] = previous

    def change_layout(self, topic: PlannedTopic, weight: int) -> None:
        """Assign to a topic (a copy) the cells of another weight; the old ones count until it is settled."""
        if topic.is_settled():
            topic.past.append(Layout(topic.layout.weight, topic.layout.slot))
        elif topic.past[-1].weight == weight:
            # The scheduler has not changed over yet, and now never will.
            topic.layout = topic.past.pop()
            return
        # Otherwise the newest layout was never in force, and no message met it.
        topic.layout = Layout(weight, self.free_slot(weight))

    def free_slot(self, weight: int) -> int:
        """Return the lowest slot that no topic of that weight has, or had until it is settled."""
        used = set()
        for topic in self.topics.values():
            if topic.layout.weight == weight:
                used.add(topic.layout.slot)
            for past in topic.past:
                if past.weight == weight:
                    used.add(past.slot)
        slot = 0
        while slot in used:
            slot += 1
        assert slot < SLOTS_MAX, "flows_max is below the number of slots"
        return slot

    def release(self, topic: PlannedTopic, quanta: int, until_ns: int) -> None:
        """Count quanta of a topic until `until_ns`, in all layouts it has."""
        for layout in [topic.layout, *topic.past]:
            self.released.append(ReleasedQuanta(layout, quanta, until_ns))

    def forget(self, now_ns: int) -> None:
        """Remove what no waiting message can have met."""
        if self.released:
            self.released = [released for released in self.released if released.layout.until_ns > now_ns]
        for topic in self.topics.values():
            if topic.past:
                topic.past = [past for past in topic.past if past.until_ns > now_ns]
