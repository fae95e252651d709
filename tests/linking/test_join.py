"""How a broker joins its mesh: with every key of its configuration."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from timebound.config.mesh import MeshConfig
from timebound.core.broker import Broker
from timebound.core.link.strategy.registry import DEFAULT_STRATEGY
from timebound.core.mesh.interest import WatchedIndex
from timebound.core.mesh.options import LATE, TREE
from timebound.core.values.access import AccessList
from timebound.core.values.limits import BrokerLimits
from timebound.linking.join import join_mesh
from timebound.linking.mesh import Mesh
from timebound.node.config import parse_config
from timebound.sim.deployment.timers import VirtualClock
from timebound.sim.kernel.kernel import Kernel
from timebound.units import MILLISECOND, SECOND

MESH_KEYS = """\
[mesh]
routing = "{routing}"
epsilon = 0.01
preference = 0.25
waiting_share = 0.75
thrift = 0.5
queue_messages_max = 123
queue_bytes_max = "456KiB"
grace = "1500ms"
forget_after = "2h"
"""


def joined(text: str) -> Mesh:
    """Join the mesh of a configuration, as the server does."""
    index = WatchedIndex()
    broker = Broker(BrokerLimits(), AccessList([]), False, index)
    return join_mesh(parse_config(text, Path("t.toml")), broker, index, VirtualClock(Kernel(), lambda: None))


@pytest.mark.parametrize(("routing", "expected"), [("late", LATE), ("single-path", TREE)])
def test_every_key_of_the_mesh_reaches_the_forwarder(routing: str, expected: int) -> None:
    options = joined(MESH_KEYS.format(routing=routing)).member.forwarder.options

    names = [name for name in dir(options) if not name.startswith("_") and name != "strategy"]
    assert {name: getattr(options, name) for name in names} == {
        "routing": expected,
        "epsilon": 0.01,
        "preference": 0.25,
        "waiting_share": 0.75,
        "thrift": 0.5,
        "is_thrifty": True,
        "messages_max": 123,
        "bytes_max": 456 * 1024,
        "grace_ns": 1_500 * MILLISECOND,
        "forget_after_ns": 7_200 * SECOND,
        # These have no key.
        "is_lossless": True,
        "keeps_order": True,
        "keeps_fresh": True,
        "send_cost": 0.0,
        "processing_ns": 0,
        "message_bytes": 0,
    }
    assert options.strategy.name == DEFAULT_STRATEGY


def test_no_key_of_the_mesh_is_left_out_above() -> None:
    keys = {line.split()[0] for line in MESH_KEYS.splitlines()[1:]}

    assert keys == {field.name.removesuffix("_s") for field in dataclasses.fields(MeshConfig)}
