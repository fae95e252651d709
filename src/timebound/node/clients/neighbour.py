"""Connections that come from another broker: their admission, and what they receive.

The handshake is that of any client; a peer that names itself a broker in CONNECT must be a configured
neighbour, logged in as the user configured for it.
"""

from __future__ import annotations

import logging

from timebound.errors import ProtocolError
from timebound.linking.codec import link_packet_size_max
from timebound.linking.link import NeighbourLink
from timebound.node.clients.handshake import Accepted, Refused
from timebound.node.clients.output import ConnectionOutput
from timebound.units import SECOND
from timebound.wire.packets import Packet
from timebound.wire.reasons import ReasonCode

logger = logging.getLogger("timebound.node")


def accept(connection: ConnectionOutput, accepted: Accepted, now_ns: int) -> None:
    """Make the connection a link, or turn it away."""
    mesh = connection.driver.mesh
    door = connection.door
    name = accepted.broker_name
    is_anonymous = door.listener.anonymous_allowed and door.passwords is None
    refusal = f"broker {name!r} is not a neighbour; this broker has none"
    if mesh is not None:
        refusal = mesh.admit(name, accepted.user, is_anonymous=is_anonymous)
    if mesh is None or refusal:
        connection.turn_away(Refused(ReasonCode.NOT_AUTHORIZED, refusal))
        return
    logger.info("broker %r connected as %r from %s", name, accepted.user, connection.peer)
    accepted.node_name = mesh.member.name
    accepted.own_packet_size_max = link_packet_size_max(connection.driver.limits.packet_size_max)
    connection.decoder.packet_size_max = accepted.own_packet_size_max
    link = mesh.make_link(
        name,
        connection,
        connection.number,
        connection.transport(),
        accepted.receive_maximum,
        accepted.packet_size_max,
    )
    silence_max_ns = accepted.keep_alive_s * SECOND * 3 // 2
    connection.open_link(link, accepted.connack(False, connection.version), silence_max_ns, now_ns)
    mesh.open(link)


def receive(connection: ConnectionOutput, link: NeighbourLink, packets: list[Packet], now_ns: int) -> None:
    """Take what the neighbour has sent."""
    try:
        link.receive(packets, now_ns)
        if connection.decoder.error is not None:
            raise connection.decoder.error
    except ProtocolError as error:
        connection.refuse(error)
    connection.driver.schedule()
