"""The defaults of the core's limits, and that each can be set alone."""

from __future__ import annotations

import pytest

from timebound.core.values.limits import SESSION_NEVER_EXPIRES_S, BrokerLimits

DEFAULTS = {
    "queue_bytes_per_client_max": 16_777_216,
    "queue_messages_per_client_max": 100_000,
    "queue_bytes_total_max": 536_870_912,
    "outgoing_inflight_max": 1_024,
    "subscriptions_per_client_max": 1_000,
    "retained_messages_max": 500_000,
    "retained_bytes_max": 268_435_456,
    "session_expiry_max_s": 2_592_000,
    "will_delay_max_s": 86_400,
    "filter_cost_per_client_max": 10_000,
    "ticks_per_second_max": 1_000,
    "filter_cost_total_max": 1_000_000,
}


def values_of(limits: BrokerLimits) -> dict[str, int]:
    return {name: getattr(limits, name) for name in DEFAULTS}


def test_the_defaults() -> None:
    assert values_of(BrokerLimits()) == DEFAULTS
    assert SESSION_NEVER_EXPIRES_S == 4_294_967_295


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_limit_is_set_without_the_others(name: str) -> None:
    assert values_of(BrokerLimits(**{name: 7})) == {**DEFAULTS, name: 7}


def test_limits_in_order_reach_the_fields_of_that_order() -> None:
    assert list(values_of(BrokerLimits(*range(12))).values()) == list(range(12))
