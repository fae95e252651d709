"""The order of cells: `paper` and `even`, against the published loop and exact fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from timebound.core.input.cells import (
    EVEN,
    EVEN_CYCLE,
    ORDERS,
    PAPER,
    PAPER_CYCLE,
    SLOT_BITS,
    SLOTS_MAX,
    WEIGHT_MAX,
    cell_order,
    even_key,
    even_switch_turn,
    even_turn_after,
    first_slots,
    paper_key,
    paper_switch_turn,
    paper_turn_after,
    spread,
    step_of,
    weight_of_even_key,
    weight_of_paper_key,
)

weight_lists = st.lists(st.integers(1, 12), min_size=1, max_size=6)
all_weights = st.integers(1, WEIGHT_MAX)
slots = st.integers(0, SLOTS_MAX - 1)
weights_up = st.integers(1, 24)
slots_up = st.integers(0, 9)


class TestCellOrder:
    def test_paper_order_for_weights_4_3_2_is_the_published_one(self) -> None:
        assert cell_order([4, 3, 2], PAPER) == [0, 0, 1, 0, 1, 2, 0, 1, 2]

    def test_even_order_for_weights_4_3_2_has_no_clump(self) -> None:
        assert cell_order([4, 3, 2], EVEN) == [0, 1, 2, 0, 1, 0, 2, 1, 0]

    def test_heavy_topic_is_not_served_in_clumps_by_even(self) -> None:
        order = "".join("AB"[k] for k in cell_order([10, 12], EVEN))

        assert "AAA" not in order
        assert "BBB" not in order

    @given(weight_lists)
    def test_paper_order_is_the_published_loop(self, weights: list[int]) -> None:
        weights.sort(reverse=True)

        assert cell_order(weights, PAPER) == published_loop(weights)

    @given(weight_lists, st.sampled_from(ORDERS), st.integers(2, 5))
    def test_order_depends_on_the_ratio_of_the_weights_alone(
        self, weights: list[int], order: str, factor: int
    ) -> None:
        scaled = [weight * factor for weight in weights]

        assert cell_order(scaled, order) == cell_order(weights, order)

    @pytest.mark.parametrize("weight", [0, -1, 1024])
    def test_weight_out_of_range_is_refused(self, weight: int) -> None:
        with pytest.raises(ValueError, match=r"out of range \(1 to 1023\)"):
            cell_order([3, weight], EVEN)

    def test_unknown_order_is_refused(self) -> None:
        with pytest.raises(ValueError, match="cell order 'odd' is unknown; use paper or even"):
            cell_order([1], "odd")


def published_loop(weights: list[int]) -> list[int]:
    """Figure 3's pseudo-code, word by word, for one cycle."""
    step = weights[0]
    for weight in weights:
        while weight:
            step, weight = weight, step % weight
    served: list[int] = []
    k, current = -1, 0
    while len(served) < sum(weights) // step:
        k = (k + 1) % len(weights)
        if k == 0:
            current -= step
            if current <= 0:
                current = max(weights)
        if weights[k] >= current:
            served.append(k)
    return served


class TestKeys:
    def test_slots_of_one_weight_fill_the_distance_evenly(self) -> None:
        assert [spread(slot) for slot in range(4)] == [16_384, 0, 24_576, 8_192]
        assert sorted(spread(slot) for slot in range(64)) == list(range(0, SLOTS_MAX, SLOTS_MAX // 64))

    @given(all_weights, slots, st.integers(0, 5_000))
    def test_even_places_a_topics_cells_at_equal_distances(self, weight: int, slot: int, turn: int) -> None:
        exact = (turn + Fraction(spread(slot), SLOTS_MAX)) / weight * EVEN_CYCLE

        assert abs(exact - even_key(weight, spread(slot), turn)) < 1 << 10  # the last bits name the weight

    @given(all_weights, all_weights, slots, slots, st.integers(0, 3_000), st.integers(0, 3_000))
    def test_even_keys_are_ordered_as_their_exact_positions(
        self, weight: int, other: int, slot: int, other_slot: int, turn: int, other_turn: int
    ) -> None:
        position = (turn + Fraction(spread(slot), SLOTS_MAX)) / weight
        other_position = (other_turn + Fraction(spread(other_slot), SLOTS_MAX)) / other
        key, other_key = even_key(weight, spread(slot), turn), even_key(other, spread(other_slot), other_turn)

        if position == other_position:
            assert (key < other_key) == (weight > other)  # the heavier topic first
        else:
            assert (key < other_key) == (position < other_position)

    @given(all_weights, slots, st.integers(0, 5_000))
    def test_a_key_names_its_weight_and_repeats_with_the_cycle(
        self, weight: int, slot: int, turn: int
    ) -> None:
        even, paper = even_key(weight, spread(slot), turn), paper_key(weight, slot, turn, 1)

        assert weight_of_even_key(even) == weight
        assert weight_of_paper_key(paper) == weight
        assert even_key(weight, spread(slot), turn + weight) == even + EVEN_CYCLE
        assert paper_key(weight, slot, turn + weight, 1) == paper + PAPER_CYCLE

    @given(st.integers(1, 12), slots, st.integers(-1, 3 * EVEN_CYCLE))
    def test_the_next_even_turn_is_the_first_beyond_the_pointer(
        self, weight: int, slot: int, pointer: int
    ) -> None:
        place = spread(slot)
        naive = next(turn for turn in range(5 * weight) if even_key(weight, place, turn) > pointer)

        assert even_turn_after(weight, place, pointer) == naive

    @given(st.integers(1, 12), st.sampled_from((1, 2, 3)), slots, st.integers(-1, 3 * PAPER_CYCLE))
    def test_the_next_paper_turn_is_the_first_beyond_the_pointer(
        self, factor: int, step: int, slot: int, pointer: int
    ) -> None:
        weight = factor * step
        naive = next(turn for turn in range(5 * factor) if paper_key(weight, slot, turn, step) > pointer)

        assert paper_turn_after(weight, slot, pointer, step) == naive

    def test_topics_of_one_weight_are_numbered_in_their_order(self) -> None:
        assert first_slots([4, 2, 4, 4, 2]) == [0, 0, 1, 2, 1]
        assert step_of([12, 18, 30]) == 6
        assert step_of([]) == 0


@given(weights_up, slots_up, weights_up, slots_up, st.integers(-1, 3 * EVEN_CYCLE))
def test_weight_changes_where_neither_its_topic_nor_others_lose(
    dense: int, dense_slot: int, sparse: int, sparse_slot: int, pointer: int
) -> None:
    """In either direction: counted from any place, both ways, the denser layout is never behind."""
    assume(dense > sparse)
    places = {dense: spread(dense_slot), sparse: spread(sparse_slot)}

    turn = even_switch_turn(dense, places[dense], sparse, places[sparse], pointer)

    assert even_key(dense, places[dense], turn + 1) > pointer
    assert turn <= even_turn_after(dense, places[dense], pointer) + dense
    turns = range(turn - 2 * dense, turn + 2 * dense)
    # Exact places, in a common measure; keys of equal ones put the denser layout first.
    cells = [((number << SLOT_BITS) + places[dense]) * sparse for number in turns]
    others = sorted(
        ((number << SLOT_BITS) + places[sparse]) * dense
        for number in range(turn * sparse // dense - 3 * sparse, turn * sparse // dense + 3 * sparse)
    )
    here = ((turn << SLOT_BITS) + places[dense]) * sparse
    behind = [cell for cell in cells if cell <= here][::-1]
    ahead = [cell for cell in cells if cell > here]
    others_behind = [cell for cell in others if cell <= here][::-1]
    others_ahead = [cell for cell in others if cell > here]
    assert all(mine > other for mine, other in zip(behind, others_behind, strict=False))
    assert all(mine <= other for mine, other in zip(ahead, others_ahead, strict=False))


@given(weights_up, slots_up, weights_up, slots_up, st.integers(-1, 3 * PAPER_CYCLE), st.integers(1, 3))
def test_weight_changes_under_paper_where_neither_its_topic_nor_others_lose(
    dense: int, dense_slot: int, sparse: int, sparse_slot: int, pointer: int, step: int
) -> None:
    """The same as above; here the keys themselves are the places, and no two cells have the same."""
    assume(dense > sparse)
    dense, sparse = dense * step, sparse * step

    turn = paper_switch_turn(dense, dense_slot, sparse, pointer, step)

    assert paper_key(dense, dense_slot, turn + 1, step) > pointer
    assert turn <= paper_turn_after(dense, dense_slot, pointer, step) + dense // step
    cycle = turn // (dense // step)
    cells, others = (
        [
            paper_key(weight, slot, number, step) - 2 * PAPER_CYCLE
            for number in range(cycle * (weight // step), (cycle + 5) * (weight // step))
        ]
        for weight, slot in ((dense, dense_slot), (sparse, sparse_slot))
    )
    here = paper_key(dense, dense_slot, turn, step)
    behind = [cell for cell in cells if cell <= here][::-1]
    ahead = [cell for cell in cells if cell > here]
    others_behind = [cell for cell in others if cell <= here][::-1]
    others_ahead = [cell for cell in others if cell > here]
    assert all(mine > other for mine, other in zip(behind, others_behind, strict=False))
    assert all(mine < other for mine, other in zip(ahead, others_ahead, strict=False))
