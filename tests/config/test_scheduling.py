"""The settings of a listener or a link, as its queues get them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.config.doubles import PATH

from timebound.config.listeners import ListenerConfig
from timebound.config.mesh import NeighbourConfig
from timebound.config.scheduling import scheduling_of
from timebound.core.link.queue import EPSILON
from timebound.core.link.strategy.audience import Audience, Term
from timebound.core.link.strategy.entry import Entry
from timebound.core.values.delay import LinkDelay
from timebound.errors import FilterError
from timebound.node.config import parse_config
from timebound.units import SECOND


def test_a_margin_reaches_the_queues_of_its_listener() -> None:
    config = parse_config("[[listeners]]\nmargin = '150ms'\n[[listeners]]\nport = 1884\n", PATH)

    assert [scheduling_of(one).margin_ns for one in config.listeners] == [150_000_000, 0]


def test_a_mix_of_0_and_an_epsilon_of_a_listener_are_those_of_its_queues() -> None:
    config = parse_config(
        "[[listeners]]\nstrategy = 'ebpc'\nstrategy_mix_percent = 0\nepsilon = 0.25\n"
        "[[neighbours]]\nname = 'b'\nstrategy = 'mtep'\nstrategy_mix_percent = 0\n",
        PATH,
    )

    listener, link = scheduling_of(config.listeners[0]), scheduling_of(config.neighbours[0])

    assert (listener.mix, link.mix) == (0.0, 0.0)
    queue = listener.make_queue(LinkDelay(0.1, 0.0001), 10, 10_000, 0)
    assert queue.link.epsilon == 0.25
    # 1 KB takes 100 ± 10 ms: with a chance of a quarter it is dropped 6.7 ms after it should have left.
    for _ in range(2):
        queue.push(Entry(None, 1_024, 0, Audience([Term(SECOND)])), 0)
    assert queue.next_wakeup_ns() == pytest.approx(906_745_000, abs=100_000)
    assert scheduling_of(ListenerConfig(strategy="ebpc")).mix == -1.0


def test_percents_become_shares_of_one() -> None:
    listener = ListenerConfig(untimed_share_percent=7, shares=("alarm/#=20",), epsilon=0.1)

    scheduling = scheduling_of(listener)

    assert scheduling.untimed_share == 0.07
    assert scheduling.epsilon == 0.1
    assert scheduling.shares == [("alarm/#", 0.2)]


def test_link_to_a_broker_has_the_usual_epsilon_and_no_margin() -> None:
    scheduling = scheduling_of(NeighbourConfig("b", strategy="mtep", strategy_mix_percent=15))

    assert (scheduling.name, scheduling.mix) == ("mtep", 0.15)
    assert (scheduling.epsilon, scheduling.margin_ns) == (EPSILON, 0)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"shares": ("a",)}, ValueError, "share 'a' is not a topic filter with a percentage"),
        ({"shares": ("a/#/b=5",)}, FilterError, "has '#' before its last level"),
        ({"untimed_share_percent": 60, "shares": ("a=50",)}, ValueError, "add up to more than 1"),
    ],
)
def test_shares_that_cannot_be_kept_are_refused(
    values: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        scheduling_of(ListenerConfig(**values))
