"""The plan that decisions are made from: layouts, slots, and what counts for how long."""

from __future__ import annotations

from timebound.core.input.bounds import NEVER
from timebound.core.input.cells import EVEN
from timebound.core.input.contract import Contract
from timebound.core.input.plan import CELLS_MAX, Layout, PlannedTopic, RotationPlan


def plan_of(**weights: int) -> RotationPlan:
    plan = RotationPlan(EVEN)
    for name, weight in weights.items():
        plan.topics[name] = PlannedTopic(name, Layout(weight, plan.free_slot(weight)), 1)
    return plan


def layouts(topic: PlannedTopic) -> list[tuple[int, int]]:
    return [(layout.weight, layout.slot) for layout in [*topic.past, topic.layout]]


def test_flow_raises_its_topics_weight_and_never_lowers_it() -> None:
    plan = plan_of(a=2)

    plan.place(Contract("c", "a", interval_ns=1), 5)
    plan.place(Contract("d", "a", interval_ns=1), 3)

    assert layouts(plan.topics["a"]) == [(2, 0), (5, 0)]
    assert plan.topics["a"].quanta() == 3


def test_placed_flow_can_be_taken_back() -> None:
    plan = plan_of(a=2)

    for topic in ("a", "new"):
        previous = plan.place(Contract("c", topic, interval_ns=1), 5)
        plan.restore(topic, previous)

    assert list(plan.topics) == ["a"]
    assert layouts(plan.topics["a"]) == [(2, 0)]
    assert not plan.topics["a"].flows


def test_layout_that_never_came_into_force_is_forgotten() -> None:
    plan = plan_of(a=2, b=5)
    topic = plan.topics["a"]

    plan.change_layout(topic, 5)
    assert (layouts(topic), topic.is_settled()) == ([(2, 0), (5, 1)], False)
    plan.change_layout(topic, 7)
    assert layouts(topic) == [(2, 0), (7, 0)]
    plan.change_layout(topic, 2)

    assert (layouts(topic), topic.is_settled()) == ([(2, 0)], True)


def test_settled_layout_counts_until_its_time_and_keeps_its_slot_till_then() -> None:
    plan = plan_of(a=2)
    topic = plan.topics["a"]
    plan.change_layout(topic, 5)
    assert topic.past[0].until_ns == NEVER
    topic.past[0].until_ns = 100

    plan.forget(99)
    assert (plan.is_changing(), plan.free_slot(2)) == (True, 1)
    plan.forget(100)

    assert (plan.is_changing(), plan.free_slot(2)) == (False, 0)


def test_rotation_has_all_that_counts_unless_one_layout_is_looked_at_alone() -> None:
    plan = plan_of(a=2, b=1)
    plan.change_layout(plan.topics["a"], 3)
    plan.release(plan.topics["b"], 1, until_ns=100)

    # Three new cells and two old ones of a, one of b, and the one released from it.
    assert plan.rotation({}).length == 3 + 2 + 1 + 1
    assert plan.rotation({"a": plan.topics["a"].layout}).length == 3 + 1 + 1
    assert plan.rotation({"a": plan.topics["a"].past[0]}).length == 2 + 1 + 1
    assert plan.rotation({}, is_settled=True).length == 3 + 1


def test_released_quanta_of_one_place_share_their_cells() -> None:
    plan = plan_of(a=2, b=1)
    for _ in range(50):
        plan.release(plan.topics["a"], 1, until_ns=100)

    rotation = plan.rotation({})

    assert (rotation.cells, rotation.length) == (2 + 1 + 2, 2 + 1 + 100)


def test_very_long_cycle_is_not_laid_out() -> None:
    weights = {str(number): 1000 + number % 7 for number in range(17)}

    rotation = plan_of(**weights).rotation({})

    assert rotation.cells > CELLS_MAX
    assert not rotation.is_exact
    assert rotation.length == sum(weights.values())
