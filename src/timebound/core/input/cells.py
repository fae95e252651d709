"""The order in which topics get their cells: `paper`, as published, and `even`, our own.

A cycle has `weight / gcd` cells for each topic. Both orders are defined the same way, so that the scheduler
and the bounds cannot disagree: the cell of a topic at its `turn` has a *key*, an integer, and cells are
served in ascending order of their keys. A key depends on the topic alone (its weight and its slot among the
topics of that weight), so a topic that comes or goes moves no other cells. (Under `paper` the `step` matters
too. As published it is the greatest common divisor of all weights; where guarantees must hold while weights
change it stays 1.)

`even` places the cells of a topic at equal distances, and spreads the topics of one weight over that distance
by their bit-reversed slots, so that they do not cluster. docs/decisions/0030-cell-order.md compares the two.
"""

from __future__ import annotations

from math import gcd
from typing import Final

PAPER: Final = "paper"
EVEN: Final = "even"
ORDERS: Final = (PAPER, EVEN)

# Ten bits: the product of two weights then fits _FRACTION_BITS, which keeps `even` exact.
WEIGHT_MAX: Final = 1023
_WEIGHT_BITS: Final = 10
_WEIGHT_MASK: Final = (1 << _WEIGHT_BITS) - 1
# Slots of one weight: 15 bits, so that every key of a cycle stays far inside 62 bits.
SLOT_BITS: Final = 15
SLOTS_MAX: Final = 1 << SLOT_BITS
# Two different cells of `even` differ by at least 1 / (w1 * w2 * 2^15) of a cycle.
_FRACTION_BITS: Final = 20
_ROUNDS: Final = WEIGHT_MAX + 1  # rounds of a `paper` cycle; those above the heaviest topic are empty

EVEN_CYCLE: Final = 1 << (SLOT_BITS + _FRACTION_BITS + _WEIGHT_BITS)
PAPER_CYCLE: Final = _ROUNDS << (_WEIGHT_BITS + SLOT_BITS)
_PAPER_ROUND_SHIFT: Final = _WEIGHT_BITS + SLOT_BITS
_PLACE_SHIFT: Final = SLOT_BITS + _FRACTION_BITS
# Cache of places by slot; admission needs the same ones at every decision.
_PLACES: Final[dict[int, int]] = {}


def check_weight(weight: int) -> None:
    """Check that a weight is in range.

    Raises:
        ValueError: it is not.
    """
    if not 1 <= weight <= WEIGHT_MAX:
        raise ValueError(f"weight {weight} is out of range (1 to {WEIGHT_MAX})")


def check_order(order: str) -> None:
    if order not in ORDERS:
        raise ValueError(f"cell order {order!r} is unknown; use paper or even")


def spread(slot: int) -> int:
    """Return the slot's place within the distance of two cells, in 1/32768.

    The bits of the slot in reverse order (the van der Corput sequence) fill the distance evenly, however many
    slots are in use; the first one gets the middle.
    """
    place = _PLACES.get(slot, -1)
    if place < 0:
        place = 0
        for bit in range(SLOT_BITS):
            place = place << 1 | (slot >> bit & 1)
        place ^= 1 << (SLOT_BITS - 1)
        _PLACES[slot] = place
    return place


def even_key(weight: int, place: int, turn: int) -> int:
    """Return the key of a topic's cell under `even`; equal positions go to the heavier topic."""
    position = (((turn << SLOT_BITS) + place) << _FRACTION_BITS) // weight
    return position << _WEIGHT_BITS | (WEIGHT_MAX - weight)


def even_turn_after(weight: int, place: int, pointer: int) -> int:
    """Return the first turn whose key is greater than `pointer`."""
    position = max(pointer, 0) >> _WEIGHT_BITS
    turn = max(0, ((position * weight >> _FRACTION_BITS) - place) >> SLOT_BITS)
    while even_key(weight, place, turn) <= pointer:
        turn += 1
    return turn


def even_switch_turn(
    dense_weight: int, dense_place: int, sparse_weight: int, sparse_place: int, pointer: int
) -> int:
    """Return the turn of the denser layout after which a topic can change to or from the sparser one.

    It is the first whose next turn is still ahead of `pointer`, without a cell of the sparser layout from its
    own cell up to the next. After a change there, no window of the cycle has more of the topic's cells than
    the denser layout alone, and the topic waits for no cell longer than in the sparser one (docs/bounds.md).
    There is one in every cycle: the denser layout has more gaps than the sparser one has cells.
    """
    turn = max(0, even_turn_after(dense_weight, dense_place, pointer) - 1)
    while True:
        begin = ((turn << SLOT_BITS) + dense_place) * sparse_weight
        end = begin + (sparse_weight << SLOT_BITS)
        # The first cell of the sparser layout that is not before `begin`; all times both weights.
        distance = dense_weight << SLOT_BITS
        first = begin + (sparse_place * dense_weight - begin) % distance
        if first >= end:
            return turn
        turn += 1


def paper_key(weight: int, slot: int, turn: int, step: int) -> int:
    """Return the key of a topic's cell under `paper`.

    The published loop lowers the current weight `cw` by the gcd from the largest weight to
    the gcd, and in each round serves every topic at least that heavy, the heaviest first.
    """
    turns = weight // step
    cycle = turn // turns
    current_weight = weight - (turn - cycle * turns) * step
    cell_round = cycle * _ROUNDS + _ROUNDS - current_weight
    return (cell_round << _WEIGHT_BITS | (WEIGHT_MAX - weight)) << SLOT_BITS | slot


def paper_turn_after(weight: int, slot: int, pointer: int, step: int) -> int:
    """Return the first turn whose key is greater than `pointer`."""
    cell_round = max(pointer, 0) >> _PAPER_ROUND_SHIFT
    cycle = cell_round // _ROUNDS
    current_weight = _ROUNDS - (cell_round - cycle * _ROUNDS)
    missed = max(0, weight - current_weight)
    turn = cycle * (weight // step) + (missed + step - 1) // step
    while paper_key(weight, slot, turn, step) <= pointer:
        turn += 1
    return turn


def paper_switch_turn(dense_weight: int, dense_slot: int, sparse_weight: int, pointer: int, step: int) -> int:
    """Return the turn of the denser layout after which a topic can change to or from the sparser one.

    As in `even_switch_turn`, its next turn is still ahead, and no cell of the sparser layout lies between.
    That holds in the rounds that only the denser layout has; in the others the sparser one has a cell a
    little later.
    """
    turn = max(0, paper_turn_after(dense_weight, dense_slot, pointer, step) - 1)
    turns = dense_weight // step
    if turn % turns < turns - sparse_weight // step:
        return turn
    return (turn // turns + 1) * turns


def weight_of_even_key(key: int) -> int:
    return WEIGHT_MAX - (key & _WEIGHT_MASK)


def weight_of_paper_key(key: int) -> int:
    return WEIGHT_MAX - (key >> SLOT_BITS & _WEIGHT_MASK)


def step_of(weights: list[int]) -> int:
    """Return the greatest common divisor of the weights (g in docs/bounds.md)."""
    step = 0
    for weight in weights:
        step = gcd(step, weight)
    return step


def first_slots(weights: list[int]) -> list[int]:
    """Number the topics of each weight from 0, in the order they are listed."""
    used: dict[int, int] = {}
    slots = []
    for weight in weights:
        slot = used.get(weight, 0)
        used[weight] = slot + 1
        slots.append(slot)
    return slots


def cell_order(weights: list[int], order: str, slots: list[int] | None = None, step: int = 0) -> list[int]:
    """Return the topics (as indices into `weights`) in the order of one cycle's cells.

    Without `slots`, topics of one weight are numbered in the order of `weights`. Without `step`, and always
    under `even`, the step is the greatest common divisor of the weights.

    Raises:
        ValueError: a weight is out of range, or the order is unknown.
    """
    check_order(order)
    for weight in weights:
        check_weight(weight)
    if slots is None:
        slots = first_slots(weights)
    if step == 0 or order == EVEN:
        step = step_of(weights)
    # Topic and key in one integer: sorts in a third of the time of pairs.
    topic_bits = len(weights).bit_length()
    keyed: list[int] = []
    for topic, weight in enumerate(weights):
        turns = weight // step
        if order == EVEN:
            # Divided by the step, so that a pattern is listed once: keys keep their order. This is
            # `even_key` without a call for each turn.
            place = spread(slots[topic]) << _FRACTION_BITS
            low = WEIGHT_MAX - turns
            keyed += [
                ((turn << _PLACE_SHIFT) + place) // turns << _WEIGHT_BITS + topic_bits
                | low << topic_bits
                | topic
                for turn in range(turns)
            ]
        else:
            slot = slots[topic]
            keyed += [paper_key(weight, slot, turn, step) << topic_bits | topic for turn in range(turns)]
    keyed.sort()
    mask = (1 << topic_bits) - 1
    return [key & mask for key in keyed]
