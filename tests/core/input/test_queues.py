"""The parts of the input scheduler's state that answer for themselves."""

from __future__ import annotations

from heapq import heappush

from hypothesis import given
from hypothesis import strategies as st

from timebound.core.input.queues import ClientInput, InputQueue, InputTopic, WeightChange, WeightRing


def topic(name: str = "t", weight: int = 4) -> InputTopic[str]:
    return InputTopic(name, weight, 0, 0)


def test_the_length_of_a_queue_leaves_out_what_was_served() -> None:
    queue: InputQueue[str] = InputQueue("t", ClientInput("c"), topic())
    assert len(queue) == 0

    queue.items += ["first", "second", "third"]
    queue.head = 2

    assert len(queue) == 1


def test_a_new_topic_is_outside_the_rotation_and_nobody_waits_for_it() -> None:
    new = topic()

    assert (new.in_rotation, new.queues_open, len(new.ring)) == (False, 0, 0)


def test_a_change_keeps_its_topic_with_the_weight_to_come() -> None:
    changed = topic(weight=4)

    change = WeightChange(changed, 9, 3)

    assert (change.topic, change.weight, change.slot) == (changed, 9, 3)
    assert changed.weight == 4


@given(st.lists(st.one_of(st.none(), st.integers(0, 11)), max_size=60))
def test_the_lowest_free_slot_is_what_a_search_finds(steps: list[int | None]) -> None:
    """None takes the lowest slot; a number frees that one, if it is taken, as the scheduler does."""
    ring: WeightRing[str] = WeightRing(4)
    for freed in steps:
        if freed is None:
            slot = ring.lowest_free_slot()
            assert slot == next(number for number in range(100) if number not in ring.slots)
            ring.slots[slot] = topic()
        elif freed in ring.slots:
            del ring.slots[freed]
            heappush(ring.freed, freed)


def test_a_slot_that_was_freed_and_chosen_again_is_not_free() -> None:
    ring: WeightRing[str] = WeightRing(4)
    for _ in range(3):
        ring.slots[ring.lowest_free_slot()] = topic()
    del ring.slots[1]
    heappush(ring.freed, 1)
    ring.slots[1] = topic()  # admission chose it by number

    assert ring.lowest_free_slot() == 3
