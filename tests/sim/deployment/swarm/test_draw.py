"""Plans of seeds: always the same, and all terms and faults are among them."""

from __future__ import annotations

import pytest

from timebound.sim.deployment.script import Plan
from timebound.sim.deployment.swarm import draw
from timebound.sim.deployment.swarm.draw import draw_plan
from timebound.terms import DURATION, NUMBER, TERM_PROPERTIES, TIMER, Form, TermProperty

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


def without(plan: Plan, term: str) -> list[str]:
    """The actions of a plan, less one of their terms."""
    for action in plan.actions:
        action.what.get("terms", {}).pop(term, None)
    return [str(action) for action in plan.actions]


@pytest.mark.parametrize("form", [("fresh", "all"), DURATION, TIMER, NUMBER])
def test_a_new_term_is_drawn_by_its_form_and_leaves_the_rest_of_a_plan_as_it_was(
    form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [[str(action) for action in draw_plan(seed).actions] for seed in range(1, 10)]
    new = TermProperty("made-up", "made_up", form)
    monkeypatch.setattr(draw, "TERM_PROPERTIES", {**TERM_PROPERTIES, new.name: new})

    plans = [draw_plan(seed) for seed in range(1, 10)]

    drawn = {
        action.what["terms"][new.name]
        for plan in plans
        for action in plan.actions
        if new.name in action.what.get("terms", {})
    }
    assert len(drawn) > 1
    assert [without(plan, new.name) for plan in plans] == before
