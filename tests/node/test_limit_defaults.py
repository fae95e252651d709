"""The core and the configuration have the same defaults."""

from __future__ import annotations

from timebound.config.values import Limits
from timebound.core.values.limits import BrokerLimits
from timebound.node.server import _core_limits


def test_limits_that_nobody_set_are_those_of_the_core() -> None:
    configured, own = _core_limits(Limits()), BrokerLimits()

    for name in BrokerLimits.__slots__:
        assert getattr(configured, name) == getattr(own, name), name
