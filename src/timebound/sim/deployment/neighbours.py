"""Connections between simulated brokers: greeting, packets, keep-alive, and dialling again after a failure.

What is said on a link is `linking`; here its bytes go through a cable, as in `node/mesh`.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from timebound.config.mesh import NeighbourConfig
from timebound.core.mesh.message import Copy
from timebound.errors import ProtocolError
from timebound.linking.codec import link_packet_size_max
from timebound.linking.greeting import Greeting, greeting_properties, read_greeting
from timebound.linking.link import NeighbourLink
from timebound.linking.mesh import Mesh
from timebound.sim.deployment.host import Host, LinkTerms, Redialling
from timebound.sim.deployment.inlet import CopyQueue
from timebound.sim.deployment.links import Cable, PipeMeter
from timebound.units import MILLISECOND, SECOND
from timebound.wire.codec import Decoder, encode
from timebound.wire.packets import Connack, Connect, Disconnect, Packet
from timebound.wire.properties import Properties
from timebound.wire.reasons import ReasonCode

RETRY_NS_MIN: Final = 100 * MILLISECOND
RETRY_NS_MAX: Final = 5 * SECOND


class LinkEnd:
    """One side of a link to a neighbour, from the end of the handshake to the end of the connection."""

    def __init__(
        self,
        node: Host,
        greeting: Greeting,
        number: int,
        cable: Cable,
        decoder: Decoder,
        keep_alive_s: int,
        dialler: Redialling | None,
    ) -> None:
        self.node = node
        self.name = greeting.name
        self.number = number
        self.link: NeighbourLink | None = None
        self._cable = cable
        self._decoder = decoder
        self._keep_alive_ns = keep_alive_s * SECOND
        self._dialler = dialler  # of the side that opened the connection
        self._heard_ns = node.now_ns()
        self._pinged_ns = self._heard_ns
        self.is_closed = False
        self._copies: CopyQueue | None = None
        self._is_full = False  # copies wait outside the input queues
        cable.attach(self)

    def open(self, greeting: Greeting, granted: LinkTerms) -> None:
        """Begin the link."""
        mesh = self.node.mesh
        assert mesh is not None
        self.link = mesh.make_link(
            self.name,
            self,
            self.number,
            lambda _: PipeMeter(self._cable.out),
            granted.receive_maximum,
            granted.packet_size_max,
            is_dialled=self._dialler is not None,
            version=greeting.version,
        )
        self._copies = self.link.inlet = CopyQueue(
            self.number,
            self.name,
            self.link.session,
            self.node.intake,
            partial(self._take_copy, mesh, self.link),
            self._hold_reading,
        )
        mesh.open(self.link)

    def _take_copy(self, mesh: Mesh, link: NeighbourLink, copy: Copy, packet_id: int) -> None:
        mesh.on_copy(link, copy, packet_id, self.node.now_ns())

    def _hold_reading(self, is_full: bool) -> None:
        """Leave the cable unread while copies wait outside the input queues."""
        if is_full == self._is_full or self.is_closed:
            return
        self._is_full = is_full
        if is_full:
            self._cable.pause_reading()
            self.node.count("neighbour slowed")
        else:
            self._cable.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self.is_closed:
            return
        self.node.broker.counters.bytes_received += len(data)
        self._heard_ns = self.node.now_ns()
        self.take(self._decoder.feed(data))

    def take(self, packets: list[Packet]) -> None:
        """Pass packets to the link."""
        try:
            if self.link is not None:
                self.link.receive(packets, self.node.now_ns())
            if self._decoder.error is not None:
                raise self._decoder.error
        except ProtocolError as error:
            self.close(error.reason_code, str(error))
        self.node.clock.schedule()

    def write(self, data: bytes) -> None:
        self.node.broker.counters.bytes_sent += len(data)
        self._cable.write(data)

    def flush(self) -> None:
        """Write the confirmations that storage has released."""
        if self.link is not None:
            self.link.write_answers()

    def pause_writing(self) -> None:
        if self.link is not None:
            self.link.paused()

    def resume_writing(self) -> None:
        if self.link is not None and not self.is_closed:
            self.link.resumed(self.node.now_ns())
            self.node.clock.schedule()

    def connection_lost(self) -> None:
        self._leave()

    def close(self, reason_code: int, reason: str) -> None:
        """Close the connection with DISCONNECT."""
        if self.is_closed:
            return
        if self.link is not None:
            self.link.write_answers()
        code = ReasonCode.NORMAL_DISCONNECTION if self._dialler is not None else reason_code
        self.write(encode(Disconnect(code), 5))
        self._leave()
        self._cable.close()

    def _leave(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self.node.connections.pop(self.number, None)
        link, self.link = self.link, None
        if self._copies is not None:
            self._copies.end()
        if link is not None and self.node.mesh is not None:
            self.node.mesh.closed(link)
        if self._dialler is not None:
            self._dialler.again(is_failed=False)

    def patrol(self, now_ns: int) -> None:
        """Ping the neighbour, or give it up if it was silent too long; called about once a second."""
        is_silent = self._keep_alive_ns and now_ns - self._heard_ns > self._keep_alive_ns * 3 // 2
        if is_silent and not self._is_full:
            self.node.count("silent link given up")
            self.close(ReasonCode.KEEP_ALIVE_TIMEOUT, "silent for longer than the keep-alive allows")
        elif self._dialler is not None and now_ns - self._pinged_ns >= self._keep_alive_ns // 2:
            self._pinged_ns = now_ns
            if self.link is not None:
                self.link.ping()

    def die(self) -> None:
        """End with the process of the broker."""
        self.is_closed = True
        self._cable.die()


class Dialling:
    """Keeps the link to one neighbour open, from the side that has its address."""

    def __init__(self, node: Host, config: NeighbourConfig) -> None:
        self._node = node
        self._config = config
        self._retry_ns = RETRY_NS_MIN
        self._cable: Cable | None = None
        self._decoder: Decoder | None = None
        self._dialled_ns = 0

    def dial(self) -> None:
        """Open a connection, unless there is a link."""
        node, name = self._node, self._config.name
        mesh = node.mesh
        assert mesh is not None
        if name in mesh.links:
            self.again(is_failed=False)
            return
        cable = node.connect_to(name)
        if cable is None:
            self.again(is_failed=True)
            return
        size_max = link_packet_size_max(node.limits.packet_size_max)
        self._cable, self._decoder = cable, Decoder(5, is_server=False, packet_size_max=size_max)
        self._dialled_ns = node.now_ns()
        cable.attach(self)
        properties = Properties()
        properties.receive_maximum = node.limits.inflight_max
        properties.maximum_packet_size = size_max
        properties.user_properties += greeting_properties(mesh.member.name)
        packet = Connect(
            f"broker-{mesh.member.name}",
            keep_alive=self._config.keep_alive_s,
            username=self._config.user or None,
            properties=properties,
        )
        cable.write(encode(packet, 5))

    def again(self, *, is_failed: bool) -> None:
        """Dial again, later after each failure."""
        self._cable = None
        self._retry_ns = min(2 * self._retry_ns, RETRY_NS_MAX) if is_failed else RETRY_NS_MIN
        clock = self._node.clock
        clock.call_at_ns(clock.now_ns() + self._retry_ns, self.dial)

    def data_received(self, data: bytes) -> None:
        cable, decoder, mesh = self._cable, self._decoder, self._node.mesh
        assert cable is not None
        assert decoder is not None
        assert mesh is not None
        packets = decoder.feed(data)
        if not packets:
            return
        answer = packets[0]
        is_granted = isinstance(answer, Connack) and not answer.reason_code
        if not is_granted or mesh.gives_way(self._config.name):
            cable.close()
            self.again(is_failed=True)
            return
        assert isinstance(answer, Connack)
        properties = answer.properties
        keep_alive_s = properties.server_keep_alive or self._config.keep_alive_s
        granted = LinkTerms(
            keep_alive_s, properties.receive_maximum or 65_535, properties.maximum_packet_size or 0
        )
        greeting = read_greeting(properties.user_properties)
        self._cable = None
        self._node.open_link(greeting, cable, decoder, granted, packets[1:], self)

    def connection_lost(self) -> None:
        self.again(is_failed=True)

    def patrol(self, now_ns: int) -> None:
        """Give up a neighbour that does not answer; called about once a second."""
        cable = self._cable
        if cable is not None and now_ns - self._dialled_ns > self._config.keep_alive_s * SECOND * 3 // 2:
            cable.close()
            self.again(is_failed=True)

    def pause_writing(self) -> None:
        """Nothing more is written before the answer."""

    def resume_writing(self) -> None:
        """Nothing waits to be written."""

    def die(self) -> None:
        """End with the process of the broker."""
        if self._cable is not None:
            self._cable.die()
