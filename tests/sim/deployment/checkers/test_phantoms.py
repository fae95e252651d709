"""The checker of phantoms notices arrivals of what nobody sent, or nobody asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.sim.deployment.plans import calm, judge

from timebound.sim.deployment.checkers.phantoms import Phantoms
from timebound.sim.deployment.history import Received


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"number": 99}, "s got 99: nobody published it"),
        ({"topic": "a/y"}, "s got 1: it was published on 'a/x', not 'a/y'"),
        ({"time_ns": 1}, "s got 1: it came before it was published"),
        ({"run": 5}, "s got 1: no subscription of its session has such a filter"),
        ({"qos": 2}, "s got 1: with QoS 2, published with 0"),
    ],
)
def test_changed_arrival_is_a_phantom(changes: dict[str, int | str], text: str) -> None:
    deployment = calm(Phantoms())
    first: Received = deployment.history.arrivals[0]
    assert judge(deployment, Phantoms()) == []

    deployment.history.arrivals.append(replace(first, **changes))  # type: ignore[arg-type]  # by name

    assert judge(deployment, Phantoms()) == [text]


def test_content_filter_and_no_local_count() -> None:
    deployment = calm(Phantoms())
    [asked] = [one for one in deployment.history.subscriptions if one.client == "s"]

    asked.terms["where"] = "level > 50"

    assert len(judge(deployment, Phantoms())) == 6
