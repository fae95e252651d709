"""Nodes of a mesh under virtual time: everything is the node's own but the clock and the wires."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from timebound.config.mesh import NeighbourConfig
from timebound.core.broker import Broker
from timebound.core.mesh.account import MeshAccount
from timebound.core.mesh.interest import WatchedIndex
from timebound.core.mesh.member import Member
from timebound.core.mesh.message import Copy
from timebound.core.mesh.options import MeshOptions
from timebound.core.sessions.durability import Batch
from timebound.core.values.access import AccessList
from timebound.core.values.limits import BrokerLimits
from timebound.linking import codec as mesh_codec
from timebound.linking.link import NeighbourLink
from timebound.linking.mesh import Mesh
from timebound.sim.deployment.timers import Call, VirtualClock
from timebound.sim.kernel.kernel import Kernel
from timebound.version import is_compiled
from timebound.wire.codec import Decoder
from timebound.wire.packets import Packet, Publish

NEEDS_PLAIN = pytest.mark.skipif(is_compiled(), reason="functions of compiled classes cannot be replaced")
SECOND = 1_000_000_000
BYTES_MAX = 1 << 30
# Numbers of connections, as a driver would count them; clients of the tests have other ones.
NEAR, FAR = 1_000_001, 1_000_002


class MemoryWire:
    """One direction of a connection: a copy takes as long as its link's rate says, and then the latency."""

    def __init__(self, nodes: VirtualNodes, source: str, target: str, rate: int, *, to_server: bool) -> None:
        self.nodes = nodes
        self.source = source
        self.target = target
        self.rate = rate
        self.peer: NeighbourLink | None = None
        self.is_cut = False
        self._decoder = Decoder(5, is_server=to_server)

    def write(self, data: bytes) -> None:
        kernel = self.nodes.kernel
        for packet in self._decoder.feed(data):
            duration_ns = 0
            if isinstance(packet, Publish) and not packet.topic.startswith(mesh_codec.PREFIX):
                duration_ns = self.nodes.note_copy(self, packet)
            arrives_ns = kernel.now_ns + duration_ns + self.nodes.latency_ns
            kernel.schedule(arrives_ns, Call(self._arrival(packet)))
        assert self._decoder.error is None, self._decoder.error

    def _arrival(self, packet: Packet) -> Callable[[], None]:
        def arrive() -> None:
            if not self.is_cut:
                assert self.peer is not None
                self.peer.receive([packet], self.nodes.kernel.now_ns)
                self.nodes.nodes[self.target].clock.schedule()

        return arrive

    def close(self, reason_code: int, reason: str) -> None:
        self.is_cut = True


class VirtualNode:
    """One broker with its mesh, as `server.py` puts them together."""

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        neighbours: tuple[NeighbourConfig, ...],
        options: MeshOptions,
        *,
        is_durable: bool = False,
    ) -> None:
        index = WatchedIndex()
        self.clock = VirtualClock(kernel, self.turn)
        self.broker = Broker(BrokerLimits(), AccessList([]), is_durable, index)
        self.account = MeshAccount(is_tracing=True, pairs=self.broker.account)
        self.member = Member(name, options, index, self.account, 1)
        self.mesh = Mesh(self.member, self.broker, neighbours, self.clock)
        self.arrived: list[tuple[int, str, int]] = []  # when, to which client, published when
        self.unstored: list[Batch] = []  # handed to storage, which commits when the test says so

    def turn(self) -> None:
        """A turn as the driver takes it."""
        now_ns = self.clock.now_ns()
        self.mesh.turn()
        links = {id(link.session): link for link in self.mesh.links.values()}
        for session in self.broker.take_ready():
            link = links.get(id(session))
            if link is not None:
                link.write_answers()
                continue
            for delivery in self.broker.take_deliveries(session, BYTES_MAX, now_ns):
                self.arrived.append((now_ns, session.client_id, delivery.message.published_ns))
        batch = self.broker.take_batch()
        if batch is not None:
            self.unstored.append(batch)

    def commit(self) -> None:
        """Storage has written everything it was handed."""
        batches, self.unstored = self.unstored, []
        for batch in batches:
            self.broker.committed(batch)
        self.turn()


class SentCopy:
    """A copy as it was seen on a wire."""

    def __init__(self, time_ns: int, source: str, target: str, copy: Copy, published_ns: int) -> None:
        self.published_ns = published_ns
        self.time_ns = time_ns
        self.source = source
        self.target = target
        self.copy = copy


class VirtualNodes:
    """Nodes that are linked both ways; `rates` gives bytes a second of each direction."""

    def __init__(
        self,
        rates: dict[tuple[str, str], int],
        options: MeshOptions,
        latency_ns: int,
        durable: tuple[str, ...] = (),
    ) -> None:
        self.kernel = Kernel()
        self.latency_ns = latency_ns
        self.rates = rates
        self.sent: list[SentCopy] = []
        self.nodes: dict[str, VirtualNode] = {}
        self.wires: dict[tuple[str, str], MemoryWire] = {}
        for name in sorted({source for source, _ in rates}):
            neighbours = tuple(
                NeighbourConfig(name=target, link_bytes_per_second=rate, strategy=options.strategy.name)
                for (source, target), rate in rates.items()
                if source == name
            )
            self.nodes[name] = VirtualNode(self.kernel, name, neighbours, options, is_durable=name in durable)
        for source, target in rates:
            if source < target:
                self.join(source, target)

    def join(self, source: str, target: str) -> None:
        """Open a link; the source is the side that dialled."""
        out = MemoryWire(self, source, target, self.rates[(source, target)], to_server=True)
        back = MemoryWire(self, target, source, self.rates[(target, source)], to_server=False)
        near = self.nodes[source].mesh.make_link(target, out, NEAR, is_dialled=True)
        far = self.nodes[target].mesh.make_link(source, back, FAR)
        out.peer, back.peer = far, near
        self.wires[(source, target)], self.wires[(target, source)] = out, back
        self.nodes[source].mesh.open(near)
        self.nodes[target].mesh.open(far)

    def cut(self, source: str, target: str) -> None:
        """Both ends see their connection end; what was on the wires is lost."""
        for end, other in ((source, target), (target, source)):
            self.wires[(end, other)].is_cut = True
            mesh = self.nodes[end].mesh
            mesh.closed(mesh.links[other])

    def note_copy(self, wire: MemoryWire, packet: Publish) -> int:
        """Note a copy that is being sent; gives how long that takes."""
        again = Publish(
            packet.topic,
            packet.payload,
            user_properties=packet.user_properties,
            passed_on=packet.passed_on,
            message_expiry_interval=packet.message_expiry_interval,
        )
        copy = mesh_codec.decode_copy(again, self.kernel.now_ns)
        duration_ns = int(copy.what.size_bytes * SECOND / wire.rate)
        # The age on the wire is that on arrival.
        published_ns = copy.what.message.published_ns + duration_ns + self.latency_ns
        self.sent.append(SentCopy(self.kernel.now_ns, wire.source, wire.target, copy, published_ns))
        return duration_ns
