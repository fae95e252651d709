"""What a file states, as values that are compared."""

from __future__ import annotations

from timebound.channel.base.dependency import event
from timebound.channel.config.values import ChannelConfig, GatewayConfig, ModuleConfig, OperationConfig
from timebound.units import MILLISECOND


def test_operation_without_a_period_has_nothing_to_tell_the_scheduler() -> None:
    assert OperationConfig("o").operation() is None

    stated = OperationConfig("o", period_ns=20 * MILLISECOND, cost_ns=3 * MILLISECOND, criticality=2)
    operation = stated.operation()

    assert operation is not None
    assert (operation.name, operation.criticality) == ("o", 2)
    assert (operation.period_ns, operation.cost_ns) == (20 * MILLISECOND, 3 * MILLISECOND)
    assert stated.timing == (20 * MILLISECOND, 3 * MILLISECOND, 2)


def test_operations_are_compared_by_what_is_written() -> None:
    first = OperationConfig("o", depends_on="a", dependency=event("a"))
    second = OperationConfig("o", depends_on="a", dependency=event("a"))

    assert first.dependency is not second.dependency
    assert first == second
    assert first != OperationConfig("o", depends_on="b", dependency=first.dependency)


def test_operation_is_found_by_name() -> None:
    config = ChannelConfig(operations=(OperationConfig("a"), OperationConfig("b", queue_max=3)))

    assert config.operation("b") == OperationConfig("b", queue_max=3)
    assert config.operation("c") is None


def test_modules_differ_by_name_and_by_options() -> None:
    assert ModuleConfig("lanes", {"threads": 2}) == ModuleConfig("lanes", {"threads": 2})
    assert ModuleConfig("lanes", {"threads": 2}) != ModuleConfig("lanes")
    assert ModuleConfig("lanes") != ModuleConfig("reactive")


def test_gateways_are_told_apart_by_everything_they_state() -> None:
    gateways = {GatewayConfig("dial", ("h", 7)): 1, GatewayConfig("dial", ("h", 7), 3): 2}

    assert gateways[GatewayConfig("dial", ("h", 7))] == 1
    assert GatewayConfig("listen", ("h", 7)) not in gateways
