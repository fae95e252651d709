"""The input scheduler: queues per client and topic, served by topic weight.

A topic gets as many cells in a cycle as its weight says (core/input/cells.py has the order); in a cell every
client with waiting messages of that topic gets one quantum, round robin. An empty quantum, cell or topic
takes no time. A message larger than the quantum needs several; it stays at the head of its queue meanwhile,
and delays only that queue.

Only topics with waiting messages are in the rotation, so the cost of a quantum does not depend on the number
of topics and clients. A topic that ran empty leaves only at its next cell: a client that sends one message at
a time then changes no list at all. The sorted lists are those of the active topics of one weight and of the
active weights; both are short.

A topic's weight changes at a point of the cycle where no waiting message is worse off (`set_weight`).

This module has no clock: a quantum is over when the caller asks for the next one. docs/bounds.md derives the
delay bounds from exactly these rules. The file is long because the hot path, the rotation and its changes all
work on the same few lists.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappush
from typing import Final, Generic, TypeVar

from timebound.core.input.cells import (
    EVEN,
    EVEN_CYCLE,
    PAPER_CYCLE,
    SLOTS_MAX,
    check_order,
    check_weight,
    even_key,
    even_switch_turn,
    even_turn_after,
    paper_key,
    paper_switch_turn,
    paper_turn_after,
    spread,
    step_of,
    weight_of_even_key,
    weight_of_paper_key,
)
from timebound.core.input.queues import ClientInput, InputQueue, InputTopic, WeightChange, WeightRing

__all__ = ["ClientInput", "InputQueue", "InputScheduler", "InputTopic"]

ItemT = TypeVar("ItemT")

# Holds a few typical telemetry messages; a larger message yields to others after each quantum.
QUANTUM_BYTES: Final = 1_024
# 4 MiB of the default quantum: beyond it a client's socket is not read.
CLIENT_QUANTA_MAX: Final = 4_096
# Keys stay below this, so that compiled code never needs long integers.
_POINTER_MAX: Final = 1 << 58
# Later than any key: no change of a weight is due.
_NO_CHANGE: Final = 1 << 60
# Served entries of a queue are removed together once there are this many.
_TRIM_AT: Final = 256
_EXCESS: Final = 1
_PLAIN: Final = 2  # tag of a message of one quantum within its contract: quanta << 1 | excess


class InputScheduler(Generic[ItemT]):
    """Decide which message the broker takes next.

    `push` refuses if the client has too much waiting: the caller keeps the message, stops reading from that
    client, and resumes when there is room. `step` is that of `paper`; with 0 it follows the weights as
    published, and a new weight may move all cells at once.
    """

    def __init__(
        self,
        order: str = EVEN,
        *,
        quantum_bytes: int = QUANTUM_BYTES,
        client_quanta_max: int = CLIENT_QUANTA_MAX,
        step: int = 0,
    ) -> None:
        check_order(order)
        if quantum_bytes < 1 or client_quanta_max < 1:
            raise ValueError(
                f"quantum_bytes={quantum_bytes} and client_quanta_max={client_quanta_max} must be positive"
            )
        self.order = order
        self.quantum_bytes = quantum_bytes
        self.client_quanta_max = client_quanta_max
        self.topics: dict[str, InputTopic[ItemT]] = {}
        self.finished: ItemT | None = None  # the message that the last quantum completed
        self._is_even = order == EVEN
        self._lower: InputTopic[ItemT] | None = None
        self._rings: dict[int, WeightRing[ItemT]] = {}  # by weight
        self._keys: list[int] = []  # of the weights in the rotation, sorted
        self._step = step or 1  # under `paper` only
        self._is_step_fixed = self._is_even or step > 0
        self._pointer = -1  # key of the cell being served
        self._cell: InputTopic[ItemT] | None = None
        self._cell_left = 0  # quanta left in it
        self._queues_waiting = 0
        self._topics_active = 0  # in the rotation
        self._changes: list[WeightChange[ItemT]] = []  # of weights, by key
        self._change_key = _NO_CHANGE  # the first of them

    # Topics and clients: the weights and the matrix IN.

    def add_topic(self, name: str, weight: int, *, slot: int = -1, quanta_max: int = 0) -> InputTopic[ItemT]:
        """Add a topic to the rotation; `slot` is chosen by admission control; -1 = the lowest free one.

        Raises:
            ValueError: the name or the slot is taken, or a value is out of range.
        """
        self._check_place(weight, slot)
        if name in self.topics:
            raise ValueError(f"topic {name!r} is already scheduled")
        topic: InputTopic[ItemT] = InputTopic(name, weight, slot, quanta_max)
        self._join_weight(topic, slot)
        self.topics[name] = topic
        self._update_step()
        return topic

    def remove_topic(self, topic: InputTopic[ItemT]) -> None:
        """Remove a topic from the rotation.

        Raises:
            ValueError: a client still publishes it, or excess waits there.
        """
        if topic.queues_open > 0 or len(topic.ring) > 0 or topic is self._lower:
            raise ValueError(f"topic {topic.name!r} is in use (queues_open={topic.queues_open})")
        self._cancel_change(topic)
        self._leave_weight(topic)
        del self.topics[topic.name]
        self._update_step()

    def set_weight(self, topic: InputTopic[ItemT], weight: int, *, slot: int = -1) -> None:
        """Change a topic's weight; the order in its queues is kept.

        The cells stay as they are until the pointer comes to a point where no message is worse off for having
        met both layouts (`even_switch_turn`), at most a cycle away, or until nothing waits. A change that has
        not taken effect yet is replaced. If the step follows the weights, the change takes effect at once.

        Raises:
            ValueError: the slot is taken, or a value is out of range.
        """
        self._cancel_change(topic)
        if weight == topic.weight:
            check_weight(weight)
            return
        self._check_place(weight, slot)
        change: WeightChange[ItemT] = WeightChange(topic, weight, self._take_slot(topic, weight, slot))
        is_put_off = self._is_step_fixed and self._queues_waiting > 0
        if is_put_off:
            change.key = self._key_of_change(change)
        if not is_put_off or change.key <= self._pointer:
            self._change_weight(change)
            return
        self._changes.append(change)
        self._changes.sort(key=_key_of)
        self._change_key = self._changes[0].key

    def is_changing(self, topic: InputTopic[ItemT]) -> bool:
        """Whether the topic still has the cells of its old weight."""
        for change in self._changes:
            if change.topic is topic:
                return True
        return False

    def set_lower_topic(self, topic: InputTopic[ItemT]) -> None:
        """Set the topic in whose cells excess is served; call it once, before the first excess is pushed."""
        self._lower = topic

    def open_queue(
        self, client: ClientInput[ItemT], topic: InputTopic[ItemT], name: str = ""
    ) -> InputQueue[ItemT]:
        """Set IN[client, topic] to 1, and return the queue to push to.

        `name` distinguishes several queues of a client in one topic; by default it is the topic's. A queue of
        that name in another topic moves here with all that waits in it.
        """
        name = name or topic.name
        queue = client.queues.get(name)
        if queue is None:
            queue = InputQueue(name, client, topic)
            client.queues[name] = queue
            topic.queues_open += 1
        elif queue.topic is not topic:
            self.move_queue(queue, topic)
        queue.is_closing = False
        return queue

    def move_queue(self, queue: InputQueue[ItemT], topic: InputTopic[ItemT]) -> None:
        """Serve a queue in another topic's cells from now on: its flow gained or lost its contract.

        The queue keeps its order, so no message overtakes another of its flow.
        """
        waits_in = self._waits_in(queue)
        queue.topic.queues_open -= 1
        queue.topic = topic
        topic.queues_open += 1
        if waits_in is None or waits_in is self._waits_in(queue):
            return
        index = waits_in.ring.index(queue)
        del waits_in.ring[index]
        if waits_in is self._cell and index < self._cell_left:
            self._cell_left -= 1
        self._wait(queue, queue.tags[queue.head])

    def close_queue(self, queue: InputQueue[ItemT]) -> None:
        """Set IN to 0 as soon as the queue is empty."""
        queue.is_closing = True
        if len(queue) == 0:
            self._detach(queue)

    # The hot path.

    def push(self, queue: InputQueue[ItemT], item: ItemT, size: int, is_excess: bool = False) -> bool:
        """Add a message, or return False and change nothing if the client has too much waiting.

        Excess is queued like the rest, since a client's messages on a topic keep their order, but is served
        in the cells of the lower topic once it is at the head.
        """
        client = queue.client
        if client.waiting >= self.client_quanta_max:
            return False
        tag = _PLAIN if size <= self.quantum_bytes else -(-size // self.quantum_bytes) << 1
        if is_excess:
            assert self._lower is not None, "excess needs a lower topic"
            tag |= _EXCESS
        queue.items.append(item)
        queue.tags.append(tag)
        client.waiting += tag >> 1
        if queue.head == len(queue.items) - 1:
            queue.left = tag >> 1
            self._queues_waiting += 1
            self._wait(queue, tag)
        return True

    def pop(self) -> ItemT | None:
        """Return the next message that got all its quanta, or None if nothing waits."""
        while self.serve() is not None:
            if self.finished is not None:
                return self.finished
        return None

    def serve(self) -> InputQueue[ItemT] | None:
        """Serve one quantum and return the queue that got it, or None if nothing waits.

        `finished` is then the message it completed, or None if that needs more quanta.
        """
        self.finished = None
        if self._queues_waiting == 0:
            while self._changes:
                self._take_change()
            return None
        topic = self._cell
        # While a change of weight is pending, the pointer has to move on.
        if topic is not None and self._change_key == _NO_CHANGE:
            if self._queues_waiting == 1 and len(topic.ring) == 1:
                return self._serve_alone(topic)
            if self._cell_left == 0 and self._topics_active == 1 and len(topic.ring) > 0:
                self._cell_left = 1  # no other topic has a cell, so the pointer may stay
        if self._cell_left == 0:
            topic = self._begin_cell()
        assert topic is not None, "a cell has begun"
        queue = topic.ring.popleft()
        self._cell_left -= 1
        queue.left -= 1
        if queue.left == 0:
            self._finish(queue)
        if queue.left > 0:
            self._wait(queue, queue.tags[queue.head])
        if len(topic.ring) == 0:
            self._cell_left = 0
        return queue

    def _serve_alone(self, topic: InputTopic[ItemT]) -> InputQueue[ItemT]:
        """Serve a quantum to the only queue that is not empty.

        The pointer may stay: it passed over no other cell. The ring stays too; compiled, that lowers push and
        pop of a lone client's message from 138 to 104 ns.
        """
        queue = topic.ring[0]
        self._cell_left = 0
        queue.left -= 1
        if queue.left == 0:
            self._finish(queue)
            if queue.left == 0:
                topic.ring.popleft()
            elif self._lower is not None and self._waits_in(queue) is not topic:
                topic.ring.popleft()
                self._wait(queue, queue.tags[queue.head])
        return queue

    def is_empty(self) -> bool:
        return self._queues_waiting == 0

    def waits_only_for(self, client: ClientInput[ItemT]) -> bool:
        """Whether no other client has anything waiting."""
        return self._queues_waiting == sum([1 for queue in client.queues.values() if len(queue) > 0])

    def _finish(self, queue: InputQueue[ItemT]) -> None:
        """Remove the served message from its queue, and prepare the one behind it."""
        head = queue.head
        client = queue.client
        self.finished = queue.items[head]
        client.waiting -= queue.tags[head] >> 1
        head += 1
        if head == len(queue.items):
            queue.items.clear()
            queue.tags.clear()
            queue.head = 0
            self._queues_waiting -= 1
            if queue.is_closing:
                self._detach(queue)
            return
        queue.items[head - 1] = None
        if head >= _TRIM_AT and head * 2 >= len(queue.items):
            del queue.items[:head]
            del queue.tags[:head]
            head = 0
        queue.head = head
        queue.left = queue.tags[head] >> 1

    def _wait(self, queue: InputQueue[ItemT], tag: int) -> None:
        """Append a queue to the ring of the topic that serves its head."""
        topic = queue.topic
        if tag & _EXCESS and self._lower is not None:
            topic = self._lower
        topic.ring.append(queue)
        if not topic.in_rotation:
            self._enter_rotation(topic)

    def _waits_in(self, queue: InputQueue[ItemT]) -> InputTopic[ItemT] | None:
        """Return the topic whose ring holds the queue, or None if the queue is empty."""
        if len(queue) == 0:
            return None
        if queue.tags[queue.head] & _EXCESS and self._lower is not None:
            return self._lower
        return queue.topic

    def _detach(self, queue: InputQueue[ItemT]) -> None:
        if queue.client.queues.pop(queue.name, None) is not None:
            queue.topic.queues_open -= 1

    # The rotation.

    def _begin_cell(self) -> InputTopic[ItemT]:
        """Move the pointer to the next cell of a topic with waiting messages."""
        while True:
            while self._change_key < self._keys[0]:
                self._pointer = max(self._pointer, self._change_key)
                self._take_change()
            key = self._keys[0]
            ring = self._rings[weight_of_even_key(key) if self._is_even else weight_of_paper_key(key)]
            topic = ring.topics[ring.places[ring.at]]
            self._pointer = key
            waiting = len(topic.ring)
            if waiting > 0:
                ring.at += 1
                self._rekey(ring)
                if topic.quanta_max > 0 and waiting > topic.quanta_max:
                    waiting = topic.quanta_max
                self._cell = topic
                self._cell_left = waiting
                if key >= _POINTER_MAX:
                    self._rebase()
                return topic
            # It ran empty since its last cell. Another queue is not empty, so this loop ends.
            topic.in_rotation = False
            self._topics_active -= 1
            del ring.topics[topic.place]
            del ring.places[ring.at]
            self._rekey(ring)

    def _key(self, ring: WeightRing[ItemT], place: int, turn: int) -> int:
        if self._is_even:
            return even_key(ring.weight, place, turn)
        return paper_key(ring.weight, place, turn, self._step)

    def _turn_after(self, ring: WeightRing[ItemT], place: int) -> int:
        if self._is_even:
            return even_turn_after(ring.weight, place, self._pointer)
        return paper_turn_after(ring.weight, place, self._pointer, self._step)

    def _rekey(self, ring: WeightRing[ItemT]) -> None:
        """Update the first of `_keys`, which is this ring's, for (turn, at)."""
        keys = self._keys
        if len(ring.places) == 0:
            ring.key = -1
            del keys[0]
            return
        if ring.at == len(ring.places):
            ring.at = 0
            ring.turn += 1
        key = self._key(ring, ring.places[ring.at], ring.turn)
        ring.key = key
        if len(keys) == 1 or key < keys[1]:
            keys[0] = key
        else:
            del keys[0]
            insort(keys, key)

    def _enter_rotation(self, topic: InputTopic[ItemT]) -> None:
        """Insert a topic so that its first cell is the next one of its own after the pointer."""
        ring = self._rings[topic.weight]
        topic.in_rotation = True
        self._topics_active += 1
        ring.topics[topic.place] = topic
        index = bisect_left(ring.places, topic.place)
        ring.places.insert(index, topic.place)
        turn = self._turn_after(ring, topic.place)
        if ring.key >= 0:
            if index <= ring.at:
                ring.at += 1  # the same topic as before the insertion
            next_place = ring.places[ring.at]
            if turn > ring.turn or (turn == ring.turn and topic.place > next_place):
                return
            del self._keys[bisect_left(self._keys, ring.key)]
        ring.turn = turn
        ring.at = index
        ring.key = self._key(ring, topic.place, turn)
        insort(self._keys, ring.key)

    def _leave_rotation(self, topic: InputTopic[ItemT]) -> None:
        if not topic.in_rotation:
            return
        ring = self._rings[topic.weight]
        topic.in_rotation = False
        self._topics_active -= 1
        del ring.topics[topic.place]
        del ring.places[bisect_left(ring.places, topic.place)]
        self._rebuild(ring)

    def _rebuild(self, ring: WeightRing[ItemT]) -> None:
        """Recompute a ring's next cell from the pointer, after a change to the ring."""
        if ring.key >= 0:
            del self._keys[bisect_left(self._keys, ring.key)]
            ring.key = -1
        for index, place in enumerate(ring.places):
            turn = self._turn_after(ring, place)
            key = self._key(ring, place, turn)
            if ring.key < 0 or key < ring.key:
                ring.key = key
                ring.turn = turn
                ring.at = index
        if ring.key >= 0:
            insort(self._keys, ring.key)

    def _rebase(self) -> None:
        """Restart the count of cycles, so that keys stay small."""
        cycle = EVEN_CYCLE if self._is_even else PAPER_CYCLE
        cycles = self._pointer // cycle
        self._pointer -= cycles * cycle
        for ring in self._rings.values():
            if ring.key >= 0:
                ring.turn -= cycles * (ring.weight // self._step)
                ring.key -= cycles * cycle
        self._keys = [key - cycles * cycle for key in self._keys]
        for change in self._changes:
            change.key -= cycles * cycle
        if self._changes:
            self._change_key = self._changes[0].key

    def _check_place(self, weight: int, slot: int) -> None:
        check_weight(weight)
        ring = self._rings.get(weight)
        if slot >= SLOTS_MAX or (ring is not None and (slot in ring.slots or len(ring.slots) == SLOTS_MAX)):
            raise ValueError(f"slot {slot} of weight {weight} is taken or not below {SLOTS_MAX}")

    def _join_weight(self, topic: InputTopic[ItemT], slot: int) -> None:
        """Reserve a slot for the topic among those of its weight; -1 = the lowest free one."""
        topic.slot = self._take_slot(topic, topic.weight, slot)
        topic.place = self._place_of(topic.slot)

    def _take_slot(self, topic: InputTopic[ItemT], weight: int, slot: int) -> int:
        ring = self._rings.get(weight)
        if ring is None:
            ring = WeightRing(weight)
            self._rings[weight] = ring
        if slot < 0:
            slot = ring.lowest_free_slot()
        ring.slots[slot] = topic
        return slot

    def _free_slot(self, weight: int, slot: int) -> None:
        ring = self._rings[weight]
        del ring.slots[slot]
        heappush(ring.freed, slot)
        if len(ring.slots) == 0:
            del self._rings[weight]

    def _place_of(self, slot: int) -> int:
        return spread(slot) if self._is_even else slot

    def _leave_weight(self, topic: InputTopic[ItemT]) -> None:
        self._leave_rotation(topic)
        self._free_slot(topic.weight, topic.slot)

    # Changes of weights.

    def _key_of_change(self, change: WeightChange[ItemT]) -> int:
        """Return the key of the denser layout's cell after which the change takes effect."""
        dense, place = change.topic.weight, change.topic.place
        sparse, sparse_place = change.weight, self._place_of(change.slot)
        if sparse > dense:
            dense, place, sparse, sparse_place = sparse, sparse_place, dense, place
        if self._is_even:
            return even_key(dense, place, even_switch_turn(dense, place, sparse, sparse_place, self._pointer))
        turn = paper_switch_turn(dense, place, sparse, self._pointer, self._step)
        return paper_key(dense, place, turn, self._step)

    def _take_change(self) -> None:
        change = self._changes.pop(0)
        self._change_key = self._changes[0].key if self._changes else _NO_CHANGE
        self._change_weight(change)

    def _change_weight(self, change: WeightChange[ItemT]) -> None:
        topic = change.topic
        self._leave_weight(topic)
        topic.weight = change.weight
        topic.slot = change.slot
        topic.place = self._place_of(change.slot)
        self._update_step()
        if len(topic.ring) > 0:
            self._enter_rotation(topic)

    def _cancel_change(self, topic: InputTopic[ItemT]) -> None:
        for change in self._changes:
            if change.topic is topic:
                self._free_slot(change.weight, change.slot)
        self._changes = [change for change in self._changes if change.topic is not topic]
        self._change_key = self._changes[0].key if self._changes else _NO_CHANGE

    def _update_step(self) -> None:
        """Set the step to the gcd of all weights, unless it is fixed: it decides which rounds have cells."""
        if self._is_step_fixed:
            return
        step = max(1, step_of(list(self._rings)))
        if step == self._step:
            return
        self._step = step
        for ring in self._rings.values():
            self._rebuild(ring)

    def _check(self) -> None:
        """Assert the invariants between calls; for tests."""
        waiting = 0
        for topic in self.topics.values():
            assert topic.in_rotation or len(topic.ring) == 0, topic.name
            assert self._rings[topic.weight].slots[topic.slot] is topic, topic.name
            waiting += len(topic.ring)
            for queue in topic.ring:
                assert self._waits_in(queue) is topic, topic.name
                assert queue.left > 0, topic.name
        assert waiting == self._queues_waiting, (waiting, self._queues_waiting)
        assert self._topics_active == sum(1 for topic in self.topics.values() if topic.in_rotation)
        keys = [change.key for change in self._changes]
        assert keys == sorted(keys), keys
        assert self._change_key == (keys[0] if keys else _NO_CHANGE)
        for change in self._changes:
            assert self._rings[change.weight].slots[change.slot] is change.topic, change.topic.name
        assert self._keys == sorted(ring.key for ring in self._rings.values() if ring.key >= 0)
        for ring in self._rings.values():
            assert ring.places == sorted(ring.topics), ring.weight
            if ring.places:
                assert ring.key > self._pointer, ring.weight
                firsts = [self._key(ring, place, self._turn_after(ring, place)) for place in ring.places]
                assert ring.key == min(firsts), ring.weight


def _key_of(change: WeightChange[ItemT]) -> int:
    return change.key
