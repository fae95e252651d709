"""The core and the configuration have the same defaults."""

from __future__ import annotations

from dataclasses import fields

from timebound.config.values import Limits
from timebound.core.values.limits import BrokerLimits
from timebound.node.server import _core_limits


def test_limits_that_nobody_set_are_those_of_the_core() -> None:
    configured, own = _core_limits(Limits()), BrokerLimits()
    shared = [field.name for field in fields(Limits) if hasattr(own, field.name)]

    assert len(shared) == 12
    for name in shared:
        assert getattr(configured, name) == getattr(own, name), name
