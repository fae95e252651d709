"""Settings of the two papers on bounded delay (docs/reproduction.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from timebound.core.link.strategy.registry import DEFAULT_STRATEGY
from timebound.core.mesh.options import MESH_EPSILON, PREFERENCE, WAITING_SHARE
from timebound.sim.kernel.draws import choice, fixed, uniform
from timebound.sim.mesh.setting import (
    LinkSetting,
    MeshSetting,
    PublisherSetting,
    SubscriptionSetting,
    TopologySetting,
)
from timebound.terms import DEFAULT_TERMS, Terms
from timebound.units import HOUR, MILLISECOND, SECOND

SIZE_BYTES: Final = 50 * 1_024
# Thrift in the tables of docs/reproduction.md. Off in a broker by default (docs/decisions/0055).
PAPER_THRIFT: Final = 1.0


def paper_002(scenario: str, rate: float, strategy: str, mix: float = -1.0) -> MeshSetting:
    """Return 32 brokers in four layers, 4 publishers, 160 subscribers; `psd` or `ssd`."""
    is_psd = scenario == "psd"
    terms = (
        (DEFAULT_TERMS,)
        if is_psd
        else tuple(
            Terms(deadline_ns=limit_s * SECOND, price=price)
            for limit_s, price in ((10, 3.0), (30, 2.0), (60, 1.0))
        )
    )
    return MeshSetting(
        topology=TopologySetting(layers=(4, 4, 8, 16), parents=2),
        links=LinkSetting(uniform(50, 100), 20.0),
        publishers=(
            PublisherSetting(
                rate,
                fixed(SIZE_BYTES),
                attributes=(("a1", uniform(0, 10)), ("a2", uniform(0, 10))),
                timeout_ms=uniform(10_000, 30_000) if is_psd else None,
            ),
        ),
        subscriptions=(
            SubscriptionSetting(
                count=10,
                where="a1 < {x1} AND a2 < {x2}",
                draws=(("x1", uniform(0, 10)), ("x2", uniform(0, 10))),
                terms=terms,
            ),
        ),
        strategy=strategy,
        mix=mix,
        epsilon=0.0005,
        duration_ns=2 * HOUR,
        processing_ns=2 * MILLISECOND,
        message_bytes=SIZE_BYTES,
        keeps_order=False,
        keeps_fresh=False,
    )


def paper_001(rate: float, strategy: str, mix: float = -1.0) -> MeshSetting:
    """Return 128 brokers in six layers, 40 publishers, 640 subscribers."""
    names = ("a1", "a2", "a3", "a4")
    terms = tuple(
        Terms(deadline_ns=seconds * SECOND, price=price, penalty=penalty)
        for seconds, price, penalty in (
            (20, 3.0, 0.3),
            (24, 2.5, 0.25),
            (30, 2.0, 0.2),
            (40, 1.5, 0.15),
            (60, 1.0, 0.1),
        )
    )
    return MeshSetting(
        topology=TopologySetting(layers=(4, 4, 8, 16, 32, 64), parents=2),
        links=LinkSetting(uniform(40, 80), 20.0),
        publishers=(
            PublisherSetting(
                rate,
                fixed(SIZE_BYTES),
                count=10,
                attributes=tuple((name, uniform(0, 10)) for name in names),
                priority=choice(1, 2, 3, 4, 5),
                connection_ns=20 * MILLISECOND,
            ),
        ),
        subscriptions=(
            SubscriptionSetting(
                count=10,
                where=" AND ".join(f"{name} < {{x{name}}}" for name in names),
                draws=tuple((f"x{name}", uniform(0, 10)) for name in names),
                terms=terms,
                last_mile_ns=20 * MILLISECOND,
            ),
        ),
        strategy=strategy,
        mix=mix,
        epsilon=0.04,
        duration_ns=2 * HOUR,
        processing_ns=2 * MILLISECOND,
        message_bytes=SIZE_BYTES,
        keeps_order=False,
        keeps_fresh=False,
    )


def product(setting: MeshSetting) -> MeshSetting:
    """Return the same deployment with the product's own routing, strategy and limits."""
    return replace(
        setting,
        strategy=DEFAULT_STRATEGY,
        epsilon=MESH_EPSILON,
        preference=PREFERENCE,
        waiting_share=WAITING_SHARE,
        thrift=PAPER_THRIFT,
        reading=replace(setting.reading, routing="late"),
    )
