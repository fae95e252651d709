"""The state of the input scheduler: clients, their queues, topics, weight rings and changes of weights.

State only; core/input/scheduler.py changes it.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class ClientInput(Generic[ItemT]):
    """The input queues of one client, and the quanta that wait in them."""

    __slots__ = ("name", "queues", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: dict[str, InputQueue[ItemT]] = {}  # by queue name: a row of the matrix IN
        self.waiting = 0  # quanta, in all its queues


class InputQueue(Generic[ItemT]):
    """Messages of one client on one topic, first in first out.

    It keeps the name of the topic it was opened for, even if it is served elsewhere later.
    """

    __slots__ = ("client", "head", "is_closing", "items", "left", "name", "tags", "topic")

    def __init__(self, name: str, client: ClientInput[ItemT], topic: InputTopic[ItemT]) -> None:
        self.name = name
        self.client = client
        self.topic = topic
        self.items: list[ItemT | None] = []
        self.tags: list[int] = []  # per item: quanta << 1 | excess
        self.head = 0  # index of the first item not served yet
        self.left = 0  # quanta that the item at the head still needs
        self.is_closing = False

    def __len__(self) -> int:
        return len(self.items) - self.head


class InputTopic(Generic[ItemT]):
    """A topic of the rotation. `quanta_max` limits its cell; 0 = one quantum for every client.

    A topic without contracts needs the limit: otherwise each new client would lengthen its cell, and with it
    the delay of every flow with a guarantee.
    """

    __slots__ = ("in_rotation", "name", "place", "quanta_max", "queues_open", "ring", "slot", "weight")

    def __init__(self, name: str, weight: int, slot: int, quanta_max: int) -> None:
        self.name = name
        self.weight = weight
        self.slot = slot
        self.place = 0  # its position among the topics of its weight
        self.quanta_max = quanta_max
        self.queues_open = 0
        self.in_rotation = False
        self.ring: deque[InputQueue[ItemT]] = deque()  # queues that are not empty


class WeightChange(Generic[ItemT]):
    """A change of weight that takes effect once the pointer has passed `key`; its new slot is reserved."""

    __slots__ = ("key", "slot", "topic", "weight")

    def __init__(self, topic: InputTopic[ItemT], weight: int, slot: int) -> None:
        self.topic = topic
        self.weight = weight
        self.slot = slot
        self.key = 0


class WeightRing(Generic[ItemT]):
    """The topics of one weight; `places` holds those in the rotation, sorted."""

    __slots__ = ("at", "freed", "key", "places", "slot_next", "slots", "topics", "turn", "weight")

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.slots: dict[int, InputTopic[ItemT]] = {}  # all topics of this weight
        self.freed: list[int] = []  # heap of slots below slot_next that may be free again
        self.slot_next = 0
        self.places: list[int] = []
        self.topics: dict[int, InputTopic[ItemT]] = {}  # in the rotation, by place
        self.turn = 0  # of the next cell
        self.at = 0  # index in `places` of the next cell's topic
        self.key = -1  # of the next cell

    def lowest_free_slot(self) -> int:
        while self.freed:
            slot = heappop(self.freed)
            if slot not in self.slots:
                return slot
        while self.slot_next in self.slots:
            self.slot_next += 1
        return self.slot_next
