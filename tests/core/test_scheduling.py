"""Settings of the output side: what is refused, and what queues are made of them."""

from __future__ import annotations

import pytest

from timebound.core.delay import link_of_rate
from timebound.core.scheduling import DEFAULT_SCHEDULING, STRATEGY_NAMES, Scheduling
from timebound.core.strategy.entry import Audience, Entry, Term
from timebound.units import SECOND

LINK = link_of_rate(100_000.0)


def test_the_default_is_worth_with_a_twentieth_for_what_has_no_limit() -> None:
    assert DEFAULT_SCHEDULING.name == "worth"
    assert DEFAULT_SCHEDULING.untimed_share == 0.05


@pytest.mark.parametrize("name", STRATEGY_NAMES)
def test_every_strategy_makes_a_queue_with_the_limits_given(name: str) -> None:
    queue = Scheduling(name).make_queue(LINK, 7, 5_000, 0)

    assert queue.strategy.name == name
    assert (queue.messages_max, queue.bytes_max, len(queue)) == (7, 5_000, 0)


def test_a_weight_reaches_its_strategy() -> None:
    strategy = Scheduling("ebpc", 0.7).make_queue(LINK, 10, 10_000, 0).strategy

    assert strategy.weight == 0.7  # type: ignore[attr-defined]  # ebpc has one


@pytest.mark.parametrize(
    ("name", "weight", "share", "words"),
    [
        ("best", -1.0, 0.05, "strategy 'best' is unknown"),
        ("ebpc", 1.5, 0.05, "weight=1.5"),
        ("worth", -1.0, 1.0, "untimed_share=1.0"),
        ("worth", -1.0, -0.1, "untimed_share=-0.1"),
    ],
)
def test_wrong_settings_are_refused(name: str, weight: float, share: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Scheduling(name, weight, share)


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_messages_without_a_limit_keep_their_share_of_a_full_link(share: float) -> None:
    queue = Scheduling("worth", untimed_share=share).make_queue(LINK, 10_000, 10_000_000, 0)
    timed, untimed = Audience([Term(SECOND, 100.0)]), Audience([Term()])
    sent = {"timed": 0, "untimed": 0}
    now_ns = 0
    for _ in range(2_000):
        for name, audience in (("timed", timed), ("timed", timed), ("untimed", untimed)):
            queue.push(Entry(name, 1_000, now_ns, audience), now_ns)
        entry = queue.pop(now_ns)
        while queue.pop_dropped(now_ns) is not None:
            pass
        assert entry is not None
        sent[str(entry.item)] += 1
        now_ns += 10_000_000  # 1,000 bytes at 100 kB/s

    assert sent["untimed"] / 2_000 == pytest.approx(share, abs=0.01)


def test_the_papers_strategies_know_one_class() -> None:
    assert len(Scheduling("eb").make_queue(LINK, 10, 10_000, 0).lanes) == 1
    assert len(Scheduling("worth").make_queue(LINK, 10, 10_000, 0).lanes) == 2
