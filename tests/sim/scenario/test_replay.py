"""A trace's load under other strategies: what must not change, and what the order changes."""

from __future__ import annotations

import pickle
from dataclasses import fields
from typing import Any

import pytest

from timebound.sim.scenario.replay import CHOICES, MIXING, RESULTS, Load, open_runs, replay
from timebound.units import MILLISECOND, SECOND

KILOBYTE = 1_024
MICRO = 1_000_000
# One KB takes a second, exactly.
SLOW = (1_000.0, 0.0)


def load(*pairs: dict[str, Any], links: dict[str, tuple[float, float]] | None = None) -> Load:
    """Pairs of one KB that arrive at once at the link `radio`, unless they say otherwise."""
    usual = {
        "link": "radio",
        "subscriber": "anna",
        "arrival_ns": 0,
        "size_bytes": KILOBYTE,
        "allowed_ns": 0,
        "price_micro": MICRO,
        "penalty_micro": 0,
    }
    whole = [{"message_id": number, **usual, **pair} for number, pair in enumerate(pairs, 1)]
    columns = {name: [pair[name] for pair in whole] for name in whole[0]}
    return Load(links or {"radio": SLOW}, 60 * SECOND, **columns)


RELAXED = {"allowed_ns": 10 * SECOND}
URGENT = {"allowed_ns": 2_500 * MILLISECOND, "price_micro": 5 * MICRO, "penalty_micro": 2 * MICRO}


def test_in_order_of_arrival_the_urgent_message_is_lost_and_paid_for() -> None:
    found = replay(load(RELAXED, RELAXED, URGENT), "fifo", -1.0, seed=1)

    assert (found["matched"], found["in_time"], found["earning"]) == (3, 2, 2.0 - 2.0)


@pytest.mark.parametrize("strategy", ["eb", "worth", "mtep"])
def test_a_strategy_that_looks_at_worth_sends_the_urgent_one_in_time(strategy: str) -> None:
    found = replay(load(RELAXED, RELAXED, URGENT), strategy, -1.0, seed=1)

    assert (found["in_time"], found["earning"]) == (3, 7.0)


def test_one_copy_serves_all_subscriptions_behind_a_link() -> None:
    same = {"message_id": 7, "allowed_ns": 1_500 * MILLISECOND}
    found = replay(load(same, {**same, "subscriber": "bert"}, {**same, "subscriber": "cora"}), "eb", -1.0, 1)

    assert (found["matched"], found["in_time"]) == (3, 3)


def test_subscriptions_keep_their_own_time_and_price() -> None:
    quick = {"message_id": 7, "allowed_ns": 500 * MILLISECOND, "price_micro": 9 * MICRO}
    patient = {"message_id": 7, "subscriber": "bert", "allowed_ns": 2 * SECOND, "price_micro": 3 * MICRO}

    found = replay(load(quick, patient), "worth", -1.0, seed=1)

    assert (found["in_time"], found["earning"]) == (1, 3.0)


def test_links_do_not_wait_for_each_other() -> None:
    limited = {"allowed_ns": 1_500 * MILLISECOND}
    both = load(limited, {**limited, "link": "wire"}, links={"radio": SLOW, "wire": SLOW})

    assert replay(both, "fifo", -1.0, seed=1)["in_time"] == 2
    assert replay(load(limited, limited), "fifo", -1.0, seed=1)["in_time"] == 1


def test_what_is_under_way_in_the_end_has_not_arrived() -> None:
    many = load(*[{} for _ in range(100)])

    found = replay(many, "fifo", -1.0, seed=1)

    assert (found["in_time"], found["dropped"]) == (60, 40)


def test_every_choice_runs_and_every_pair_ends_once() -> None:
    pairs = [{"arrival_ns": n * 300 * MILLISECOND, **(URGENT if n % 3 else RELAXED)} for n in range(30)]
    one = load(*pairs, links={"radio": (1_000.0, 200.0)})
    context = pickle.dumps({"node": {field.name: getattr(one, field.name) for field in fields(one)}})
    run_row = open_runs(context)

    for strategy, weight in CHOICES:
        found = run_row({"node": "node", "strategy": strategy, "weight": weight, "seed": 2})
        assert set(found) == {name for name, _ in RESULTS}
        assert found["in_time"] + found["late"] + found["dropped"] == found["matched"] == 30
        assert found == run_row({"node": "node", "strategy": strategy, "weight": weight, "seed": 2})


def test_the_default_strategy_comes_first_and_weights_only_where_they_count() -> None:
    assert CHOICES[0] == ("worth", -1.0)
    assert all((weight >= 0) == (strategy in MIXING) for strategy, weight in CHOICES)
