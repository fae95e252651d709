"""How a broker becomes a member of the mesh that its configuration describes."""

from __future__ import annotations

from timebound.config.values import Config
from timebound.core.broker import Broker
from timebound.core.link.strategy.registry import DEFAULT_STRATEGY, strategy_named
from timebound.core.mesh.account import MeshAccount
from timebound.core.mesh.interest import WatchedIndex
from timebound.core.mesh.member import Member
from timebound.core.mesh.options import LATE, TREE, MeshOptions
from timebound.linking.mesh import Clock, Mesh
from timebound.units import SECOND


def join_mesh(config: Config, broker: Broker, index: WatchedIndex, clock: Clock) -> Mesh:
    """Make a broker a member of the mesh of its configuration; `index` is the broker's own."""
    options = MeshOptions(
        strategy_named(DEFAULT_STRATEGY),
        routing=LATE if config.mesh.routing == "late" else TREE,
        epsilon=config.mesh.epsilon,
        preference=config.mesh.preference,
        waiting_share=config.mesh.waiting_share,
        thrift=config.mesh.thrift,
        messages_max=config.mesh.queue_messages_max,
        bytes_max=config.mesh.queue_bytes_max,
        is_lossless=True,
        keeps_fresh=True,
        grace_ns=int(config.mesh.grace_s * SECOND),
        forget_after_ns=int(config.mesh.forget_after_s * SECOND),
    )
    account = MeshAccount(pairs=broker.account)
    if not broker.account.trace.started_ns:
        broker.identify(config.node_name, clock.now_ns())
    member = Member(config.node_name, options, index, account, broker.account.trace.started_ns)
    return Mesh(member, broker, config.neighbours, clock, config.limits.packet_size_max)
