"""Plans of seeds: always the same, and all terms and faults are among them."""

from __future__ import annotations

from timebound.sim.deployment.swarm.draw import draw_plan
from timebound.terms import TERM_PROPERTIES

SEEDS = range(1, 150)


def test_seed_gives_the_same_plan() -> None:
    assert draw_plan(3) == draw_plan(3)
    assert draw_plan(3) != draw_plan(4)


def test_actions_are_in_the_order_of_time() -> None:
    for seed in SEEDS:
        times = [action.time_ns for action in draw_plan(seed).actions]
        assert times == sorted(times)


def test_every_term_every_action_and_each_shape_is_drawn() -> None:
    plans = [draw_plan(seed) for seed in SEEDS]
    actions = [action for plan in plans for action in plan.actions]

    terms = {name for action in actions if action.kind == "subscribe" for name in action.what["terms"]}
    assert terms == set(TERM_PROPERTIES)
    assert {action.kind for action in actions} == {
        *("connect", "disconnect", "vanish", "mute", "speak", "subscribe", "unsubscribe", "publish"),
        "request",
        *("crash", "restart", "clock", "rules", "disk-fails", "disk-works", "cut", "slow", "dead", "mend"),
    }
    assert {len(plan.configs) for plan in plans} == {1, 2, 3}


def test_terms_are_drawn_in_combination() -> None:
    pairs = set()
    for seed in range(1, 400):
        for action in draw_plan(seed).actions:
            if action.kind == "subscribe":
                names = sorted(action.what["terms"])
                pairs |= {(one, other) for one in names for other in names if one < other}

    every = sorted(TERM_PROPERTIES)
    assert pairs == {(one, other) for one in every for other in every if one < other}
