"""Which subscription gets a message, and what is remembered of those that have ended."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import cast

import pytest

from timebound.client import router as router_module
from timebound.client.router import Router
from timebound.client.subscription import Owner, Subscription
from timebound.client.topics import FilterMatcher
from timebound.wire.packets import SubscribeEntry
from timebound.wire.properties import Properties


def make(topic_filter: str) -> Subscription:
    return Subscription(cast(Owner, None), [SubscribeEntry(topic_filter)], Properties())


def test_filters_that_ended_are_known_until_too_many_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_module, "ENDED_MAX", 3)
    router = Router(keeps_session=False)
    for name in "abcd":
        subscription = make(f"{name}/#")
        router.insert(subscription)
        assert router.remove(subscription)
        assert not router.remove(subscription)

    router.insert(make("c/#"))  # subscribed to again

    assert [router.was_ended(f"{name}/x") for name in "abcd"] == [False, True, False, True]


def test_forgetting_the_oldest_takes_no_longer_where_many_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 35_000
    matcher = FilterMatcher("t")
    monkeypatch.setattr(router_module, "FilterMatcher", lambda topic_filter: matcher)

    def forgetting_s(most: int) -> float:
        """Time to forget some filters, of so many that have ended."""
        monkeypatch.setattr(router_module, "ENDED_MAX", most)
        router = Router(keeps_session=False)
        for number in range(most):
            router._ended[str(number)] = matcher
        took_s = 0.0
        for number in range(most, most + count):
            subscription = cast(Subscription, SimpleNamespace(identifier=1, topic_filters=(str(number),)))
            router._by_identifier[1] = subscription
            began_s = time.thread_time()
            assert router.remove(subscription)
            took_s += time.thread_time() - began_s
        assert list(router._ended) == [str(number) for number in range(count, most + count)]
        return took_s

    few_s = min(forgetting_s(10) for _ in range(3))
    assert min(forgetting_s(40_000) for _ in range(2)) < 3.5 * few_s
