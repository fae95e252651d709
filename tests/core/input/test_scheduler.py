"""The input scheduler: whose message is next."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.core.input.cells import (
    EVEN,
    EVEN_CYCLE,
    ORDERS,
    PAPER,
    PAPER_CYCLE,
    cell_order,
)
from timebound.core.input.scheduler import ClientInput, InputQueue, InputScheduler, InputTopic

weight_lists = st.lists(st.integers(1, 12), min_size=1, max_size=6)


def filled(weights: list[int], publishers: list[list[int]], order: str, count: int) -> InputScheduler[str]:
    """Return a scheduler with `count` messages waiting for each (client, topic) of `publishers`."""
    scheduler: InputScheduler[str] = InputScheduler(order, client_quanta_max=1_000_000)
    topics = [scheduler.add_topic("ABCDEFGHIJ"[k], weight) for k, weight in enumerate(weights)]
    clients: dict[int, ClientInput[str]] = {}
    for topic, numbers in zip(topics, publishers, strict=True):
        for number in numbers:
            client = clients.setdefault(number, ClientInput(str(number)))
            queue = scheduler.open_queue(client, topic)
            for index in range(count):
                assert scheduler.push(queue, f"{number}{topic.name}{index}", 1)
    return scheduler


def topics_served(scheduler: InputScheduler[str], cells: int) -> str:
    """Return the topics of the next quanta."""
    served = []
    for _ in range(cells):
        queue = scheduler.serve()
        assert queue is not None
        scheduler._check()
        served.append(queue.topic.name)
    return "".join(served)


class TestRotation:
    @given(weight_lists, st.sampled_from(ORDERS))
    def test_saturated_topics_are_served_in_cell_order(self, weights: list[int], order: str) -> None:
        # A second topic keeps a lone one from the shortcut for a single waiting queue.
        weights.append(1)
        expected = "".join("ABCDEFGHIJ"[k] for k in cell_order(weights, order))
        scheduler = filled(weights, [[1]] * len(weights), order, 3 * sum(weights))

        assert topics_served(scheduler, 2 * len(expected)) == 2 * expected

    def test_figure_6_routine(self) -> None:
        # Figure 4: topic A from clients 1, 2, 4; B from 2, 3, 4; C from client 1 and, as far as
        # the scan can be read, 3 and 4.
        scheduler = filled([4, 3, 2], [[1, 2, 4], [2, 3, 4], [1, 3, 4]], PAPER, 9)

        popped = [scheduler.pop() for _ in range(27)]

        a, b, c = ["1A{}", "2A{}", "4A{}"], ["2B{}", "3B{}", "4B{}"], ["1C{}", "3C{}", "4C{}"]
        cells = [(a, 0), (a, 1), (b, 0), (a, 2), (b, 1), (c, 0), (a, 3), (b, 2), (c, 1)]
        assert popped == [name.format(index) for cell, index in cells for name in cell]

    def test_empty_topics_take_no_time(self) -> None:
        scheduler: InputScheduler[str] = InputScheduler(PAPER)
        for index in range(1000):
            scheduler.add_topic(f"idle/{index}", 1 + index % 7)
        queue = scheduler.open_queue(ClientInput("c"), scheduler.add_topic("busy", 1))
        for item in ("first", "second"):
            assert scheduler.push(queue, item, 1)

        assert [scheduler.serve(), scheduler.serve(), scheduler.serve()] == [queue, queue, None]

    def test_flooding_client_alternates_with_others_of_its_topic(self) -> None:
        scheduler: InputScheduler[str] = InputScheduler()
        topic = scheduler.add_topic("t", 1)
        flood = scheduler.open_queue(ClientInput("flood"), topic)
        calm = scheduler.open_queue(ClientInput("calm"), topic)
        for index in range(100):
            scheduler.push(flood, f"f{index}", 1)
        scheduler.pop()
        scheduler.push(calm, "c0", 1)
        scheduler.push(calm, "c1", 1)

        assert [scheduler.pop() for _ in range(5)] == ["f1", "c0", "f2", "c1", "f3"]

    def test_limited_cell_serves_its_clients_in_turn(self) -> None:
        scheduler: InputScheduler[str] = InputScheduler(PAPER)
        rest = scheduler.add_topic("rest", 1, quanta_max=2)
        other = scheduler.add_topic("other", 1)
        queues = [scheduler.open_queue(ClientInput(str(i)), rest) for i in range(4)]
        queues.append(scheduler.open_queue(ClientInput("4"), other))
        for queue in queues:
            for _ in range(2):
                scheduler.push(queue, queue.client.name, 1)

        assert [scheduler.pop() for _ in range(10)] == list("0142340123")

    @pytest.mark.parametrize(("order", "cycle"), [(EVEN, EVEN_CYCLE), (PAPER, PAPER_CYCLE)])
    def test_order_is_kept_when_keys_are_counted_from_zero_again(self, order: str, cycle: int) -> None:
        scheduler = filled([4, 3, 2], [[], [], []], order, 0)
        scheduler._pointer = (1 << 58) // cycle * cycle - 1
        client: ClientInput[str] = ClientInput("c")
        for topic in list(scheduler.topics.values()):
            queue = scheduler.open_queue(client, topic)
            for _ in range(9):
                scheduler.push(queue, topic.name, 1)

        served = topics_served(scheduler, 18)

        assert served == 2 * "".join("ABC"[k] for k in cell_order([4, 3, 2], order))
        assert scheduler._pointer < 4 * cycle


class Oracle:
    """The same rules without any cleverness: walk over the cell order, skip what is empty.

    A topic that ran empty leaves the rotation when its cell comes round. One that is alone in it is
    served without going round, a quantum at a time: nobody else's cell would be passed over.
    """

    def __init__(self, weights: list[int], order: str) -> None:
        self.cells = cell_order(weights, order)
        self.at = -1
        self.left = 0
        self.rings: list[deque[tuple[int, int]]] = [deque() for _ in weights]
        self.queues: dict[tuple[int, int], deque[list[int]]] = {}
        self.rotation: set[int] = set()

    def push(self, client: int, topic: int, item: int, quanta: int) -> None:
        queue = self.queues.setdefault((client, topic), deque())
        queue.append([item, quanta])
        if len(queue) == 1:
            self.rings[topic].append((client, topic))
            self.rotation.add(topic)

    def serve(self) -> tuple[int, int, int] | None:
        """Return client, topic and the finished item or -1."""
        waiting = sum(len(ring) for ring in self.rings)
        if waiting == 0:
            return None
        here = len(self.rings[self.cells[self.at]]) if self.at >= 0 else 0
        if here > 0 and (waiting == 1 or (self.left == 0 and len(self.rotation) == 1)):
            self.left = 1
        while self.left == 0:
            self.at = (self.at + 1) % len(self.cells)
            self.left = len(self.rings[self.cells[self.at]])
            if self.left == 0:
                self.rotation.discard(self.cells[self.at])
        ring = self.rings[self.cells[self.at]]
        self.left -= 1
        client, topic = ring.popleft()
        queue = self.queues[client, topic]
        queue[0][1] -= 1
        finished = -1
        if queue[0][1] == 0:
            finished = queue.popleft()[0]
        if queue:
            ring.append((client, topic))
        return client, topic, finished


steps = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 3)),  # client, topic, quanta
        st.integers(1, 6),  # serve that many quanta
    ),
    max_size=60,
)


@given(st.lists(st.integers(1, 6), min_size=4, max_size=4), st.sampled_from(ORDERS), steps)
def test_scheduler_serves_what_the_naive_oracle_serves(
    weights: list[int], order: str, script: list[tuple[int, int, int] | int]
) -> None:
    scheduler: InputScheduler[int] = InputScheduler(order, quantum_bytes=10)
    topics = [scheduler.add_topic(str(k), weight) for k, weight in enumerate(weights)]
    clients: list[ClientInput[int]] = [ClientInput(str(i)) for i in range(3)]
    oracle = Oracle(weights, order)
    pushed = finished = 0

    for step in [*script, 500]:
        if isinstance(step, tuple):
            client, topic, quanta = step
            assert scheduler.push(scheduler.open_queue(clients[client], topics[topic]), pushed, quanta * 10)
            oracle.push(client, topic, pushed, quanta)
            pushed += 1
            continue
        for _ in range(step):
            expected = oracle.serve()
            queue = scheduler.serve()
            scheduler._check()
            if expected is None:
                assert queue is None
                break
            assert queue is not None
            item = -1 if scheduler.finished is None else scheduler.finished
            assert (int(queue.client.name), int(queue.topic.name), item) == expected
            finished += item >= 0
    assert finished == pushed
    assert scheduler.is_empty()


@given(st.sampled_from(ORDERS), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 9))))
def test_topics_may_come_go_and_change_weight_without_losing_a_message(
    order: str, script: list[tuple[int, int, int]]
) -> None:
    scheduler: InputScheduler[tuple[str, int]] = InputScheduler(order)
    client: ClientInput[tuple[str, int]] = ClientInput("c")
    pushed: list[tuple[str, int]] = []
    popped: list[tuple[str, int]] = []
    for action, number, value in script:
        name = str(number)
        topic = scheduler.topics.get(name)
        if topic is None:
            topic = scheduler.add_topic(name, value)
        queue = scheduler.open_queue(client, topic)
        if action == 0:
            scheduler.set_weight(topic, value)
        elif action == 1:
            scheduler.close_queue(queue)
            if topic.queues_open == 0:
                scheduler.remove_topic(topic)
        elif action == 2:
            item = scheduler.pop()
            popped += [] if item is None else [item]
        else:
            item = (name, len(pushed))
            assert scheduler.push(queue, item, 1)
            pushed.append(item)
        scheduler._check()
    while (item := scheduler.pop()) is not None:
        popped.append(item)

    assert sorted(popped) == sorted(pushed)
    for name in scheduler.topics:
        numbers = [number for topic_name, number in popped if topic_name == name]
        assert numbers == sorted(numbers)


class TestChangeOfWeight:
    def busy(self) -> tuple[InputScheduler[str], list[InputTopic[str]]]:
        scheduler: InputScheduler[str] = InputScheduler()
        topics = [scheduler.add_topic(name, weight) for name, weight in (("a", 2), ("b", 3), ("c", 1))]
        for topic in topics:
            queue = scheduler.open_queue(ClientInput(topic.name), topic)
            for _ in range(40):
                scheduler.push(queue, topic.name, 1)
        return scheduler, topics

    def served(self, scheduler: InputScheduler[str], count: int) -> str:
        found = ""
        for _ in range(count):
            found += scheduler.pop() or "-"
            scheduler._check()
        return found

    def test_it_waits_for_its_place_and_then_counts(self) -> None:
        scheduler, (topic, *_) = self.busy()
        assert self.served(scheduler, 7) == "babcabb"  # a cycle of six, and one

        scheduler.set_weight(topic, 4)

        # Its four cells will be at 1/8, 3/8, 5/8 and 7/8, and the two are at 1/4 and 3/4: from 3/8 on.
        assert self.served(scheduler, 1) == "a"
        assert (topic.weight, scheduler.is_changing(topic)) == (2, True)
        assert self.served(scheduler, 8) == "bcabaaba"
        assert (topic.weight, scheduler.is_changing(topic)) == (4, False)

    def test_newer_change_replaces_it_and_the_old_weight_cancels_it(self) -> None:
        scheduler, (topic, other, _) = self.busy()
        self.served(scheduler, 1)
        scheduler.set_weight(topic, 4)
        scheduler.set_weight(topic, 5)
        assert 4 not in scheduler._rings
        scheduler.set_weight(other, 4)
        assert scheduler.is_changing(topic)
        assert scheduler.is_changing(other)

        scheduler.set_weight(topic, 2)

        assert not scheduler.is_changing(topic)
        assert 5 not in scheduler._rings
        self.served(scheduler, 8)
        assert (topic.weight, other.weight) == (2, 4)

    def test_it_takes_effect_at_once_when_nothing_waits(self) -> None:
        scheduler, (topic, *_) = self.busy()
        self.served(scheduler, 1)
        scheduler.set_weight(topic, 4)
        self.served(scheduler, 119)
        assert scheduler.serve() is None
        assert topic.weight == 4

        scheduler.set_weight(topic, 9)

        assert (topic.weight, scheduler.is_changing(topic)) == (9, False)

    def test_removed_topic_changes_no_more(self) -> None:
        scheduler, _ = self.busy()
        self.served(scheduler, 1)
        idle = scheduler.add_topic("idle", 2)
        scheduler.set_weight(idle, 3)
        assert scheduler.is_changing(idle)

        scheduler.remove_topic(idle)

        assert list(scheduler._rings[3].slots) == [0]
        self.served(scheduler, 12)

    def test_lone_topic_goes_round_until_its_weight_has_changed(self) -> None:
        scheduler: InputScheduler[str] = InputScheduler()
        topic, queue = one_queue(scheduler, weight=2)
        for _ in range(9):
            scheduler.push(queue, "x", 1)
        scheduler.pop()

        scheduler.set_weight(topic, 3)
        for _ in range(3):
            scheduler.pop()

        assert topic.weight == 3

    def test_pending_change_moves_along_when_keys_are_counted_from_zero_again(self) -> None:
        scheduler, (topic, *_) = self.busy()
        self.served(scheduler, 1)
        scheduler.set_weight(topic, 4)
        cycles = 5 * EVEN_CYCLE
        scheduler._pointer += cycles
        scheduler._keys = [key + cycles for key in scheduler._keys]
        for weight, ring in scheduler._rings.items():
            if ring.key >= 0:
                ring.key += cycles
                ring.turn += 5 * weight
        scheduler._changes[0].key += cycles
        scheduler._change_key += cycles

        scheduler._rebase()

        scheduler._check()
        assert scheduler._pointer < EVEN_CYCLE
        self.served(scheduler, 12)
        assert topic.weight == 4


def one_queue(
    scheduler: InputScheduler[str], name: str = "t", weight: int = 1
) -> tuple[InputTopic[str], InputQueue[str]]:
    topic = scheduler.add_topic(name, weight)
    return topic, scheduler.open_queue(ClientInput("c"), topic)


def quanta(scheduler: InputScheduler[str]) -> list[str]:
    """Serve until nothing waits; what each quantum finished, "" where a message needs more."""
    served: list[str] = []
    while scheduler.serve() is not None:
        served.append(scheduler.finished or "")
    return served


class TestFragments:
    def test_large_message_takes_a_quantum_per_part_and_lets_other_topics_pass(self) -> None:
        scheduler: InputScheduler[str] = InputScheduler(PAPER, quantum_bytes=100)
        client: ClientInput[str] = ClientInput("c")
        big = scheduler.open_queue(client, scheduler.add_topic("big", 1))
        small = scheduler.open_queue(client, scheduler.add_topic("small", 1))
        scheduler.push(big, "250 bytes", 250)
        for name in ("s0", "s1", "s2"):
            scheduler.push(small, name, 100)

        assert quanta(scheduler) == ["", "s0", "", "s1", "250 bytes", "s2"]

    def test_message_of_no_bytes_takes_one_quantum(self) -> None:
        scheduler: InputScheduler[str] = InputScheduler()
        _, queue = one_queue(scheduler)

        scheduler.push(queue, "empty", 0)

        assert quanta(scheduler) == ["empty"]


class TestBackPressure:
    def test_push_to_full_client_is_refused_and_changes_nothing(self) -> None:
        scheduler: InputScheduler[str] = InputScheduler(client_quanta_max=4)
        _, queue = one_queue(scheduler)
        for name in "abcd":
            assert scheduler.push(queue, name, 1)

        assert not scheduler.push(queue, "e", 1)

        assert len(queue) == 4

    def test_long_queue_is_trimmed_and_keeps_its_order(self) -> None:
        scheduler: InputScheduler[str] = InputScheduler()
        _, queue = one_queue(scheduler)
        for index in range(1000):
            scheduler.push(queue, str(index), 1)

        popped = [scheduler.pop() for _ in range(600)]

        assert popped == [str(index) for index in range(600)]
        assert len(queue) == 400
        assert len(queue.items) < 700


class TestExcess:
    def test_excess_waits_for_the_lower_topic_and_keeps_the_flows_order(self) -> None:
        scheduler: InputScheduler[str] = InputScheduler(PAPER)
        _, queue = one_queue(scheduler, "flow", 3)
        lower, background = one_queue(scheduler, "rest", 1)
        scheduler.set_lower_topic(lower)
        for index in range(4):
            scheduler.push(background, f"b{index}", 1)
        scheduler.push(queue, "f0", 1)
        scheduler.push(queue, "f1 excess", 1, True)
        scheduler.push(queue, "f2", 1)
        scheduler.push(queue, "f3", 1)

        popped = [scheduler.pop() for _ in range(8)]

        assert popped == ["f0", "b0", "f1 excess", "f2", "f3", "b1", "b2", "b3"]

    def test_lower_topic_cannot_be_removed(self) -> None:
        scheduler: InputScheduler[str] = InputScheduler()
        lower = scheduler.add_topic("rest", 1)
        scheduler.set_lower_topic(lower)

        with pytest.raises(ValueError, match="topic 'rest' is in use"):
            scheduler.remove_topic(lower)


class TestMembership:
    def test_closed_queue_is_drained_first(self) -> None:
        scheduler: InputScheduler[str] = InputScheduler()
        topic, queue = one_queue(scheduler)
        scheduler.push(queue, "last words", 1)

        scheduler.close_queue(queue)
        assert topic.queues_open == 1
        assert scheduler.pop() == "last words"

        assert topic.queues_open == 0
        assert queue.client.queues == {}

    def test_moved_queue_takes_its_messages_along_and_no_second_turn(self) -> None:
        scheduler: InputScheduler[str] = InputScheduler(PAPER)
        first, second = scheduler.add_topic("first", 1), scheduler.add_topic("second", 1)
        queues = [scheduler.open_queue(ClientInput(name), first) for name in "abc"]
        for queue in queues:
            for index in range(2):
                scheduler.push(queue, f"{queue.client.name}{index}", 1)
        assert scheduler.pop() == "a0"

        scheduler.move_queue(queues[1], second)

        # The cell of `first` has one more turn, for c; a's second has to wait for the next cell.
        assert [scheduler.pop() for _ in range(5)] == ["c0", "b0", "a1", "c1", "b1"]
        assert (first.queues_open, second.queues_open) == (2, 1)
        scheduler._check()

    def test_queue_opened_in_another_topic_under_its_name_moves_there(self) -> None:
        scheduler: InputScheduler[str] = InputScheduler()
        rest, flow = scheduler.add_topic("rest", 1), scheduler.add_topic("flow", 5)
        client: ClientInput[str] = ClientInput("c")
        queue = scheduler.open_queue(client, rest, "flow")
        scheduler.push(queue, "early", 1)

        assert scheduler.open_queue(client, flow) is queue

        scheduler.remove_topic(rest)
        assert scheduler.pop() == "early"

    def test_topic_in_use_cannot_be_removed(self) -> None:
        scheduler: InputScheduler[str] = InputScheduler()
        topic, _ = one_queue(scheduler)

        with pytest.raises(ValueError, match=r"topic 't' is in use \(queues_open=1\)"):
            scheduler.remove_topic(topic)

    def test_topic_cannot_be_added_twice(self) -> None:
        scheduler: InputScheduler[str] = InputScheduler()
        scheduler.add_topic("t", 1)

        with pytest.raises(ValueError, match="topic 't' is already scheduled"):
            scheduler.add_topic("t", 2)

    def test_freed_slot_is_used_again(self) -> None:
        scheduler: InputScheduler[str] = InputScheduler()
        first = scheduler.add_topic("a", 5)
        scheduler.add_topic("b", 5)
        scheduler.remove_topic(first)

        assert scheduler.add_topic("c", 5).slot == 0
        assert scheduler.add_topic("d", 5).slot == 2

    def test_chosen_slot_must_be_free(self) -> None:
        scheduler: InputScheduler[str] = InputScheduler()
        scheduler.add_topic("a", 5, slot=3)

        with pytest.raises(ValueError, match="slot 3 of weight 5 is taken"):
            scheduler.add_topic("b", 5, slot=3)
