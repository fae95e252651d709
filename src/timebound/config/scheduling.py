"""The scheduling of a listener or a link to a broker, from its configuration."""

from __future__ import annotations

from timebound.config.listeners import ListenerConfig
from timebound.config.mesh import NeighbourConfig
from timebound.core.link.queue import EPSILON
from timebound.core.link.scheduling import Scheduling, parse_share
from timebound.units import SECOND


def scheduling_of(config: ListenerConfig | NeighbourConfig) -> Scheduling:
    """Return the settings of the queues.

    Raises:
        ValueError: `shares` are malformed, or add up to more than 1.
        FilterError: one of them has an invalid topic filter.
    """
    percent = config.strategy_mix_percent
    return Scheduling(
        config.strategy,
        -1.0 if percent is None else percent / 100,
        config.untimed_share_percent / 100,
        config.epsilon if isinstance(config, ListenerConfig) else EPSILON,
        shares=[parse_share(share) for share in config.shares],
        margin_ns=int(config.margin_s * SECOND) if isinstance(config, ListenerConfig) else 0,
    )
