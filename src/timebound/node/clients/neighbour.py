"""Connections that come from another broker: their admission, and the hand-over of their transport.

The handshake is that of any client; a peer that names itself a broker in CONNECT must be a configured
neighbour, logged in as the user configured for it. `mesh/connection.py` handles what follows.
"""

from __future__ import annotations

import logging

from timebound.errors import ProtocolError
from timebound.linking.codec import link_packet_size_max
from timebound.linking.greeting import Greeting, read_greeting
from timebound.linking.mesh import Mesh
from timebound.node.clients.handshake import Accepted, Refused
from timebound.node.clients.output import ConnectionOutput
from timebound.node.mesh.connection import Handshake, LinkConnection
from timebound.units import SECOND
from timebound.wire.packets import Packet
from timebound.wire.reasons import ReasonCode

logger = logging.getLogger("timebound.node")


def accept(connection: ConnectionOutput, accepted: Accepted, packets: list[Packet]) -> None:
    """Turn the connection into a link, or refuse it; `packets` came after CONNECT."""
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
    try:
        greeting = read_greeting(accepted.user_properties)
    except ProtocolError as error:
        connection.turn_away(Refused(error.reason_code, str(error)))
        return
    logger.info("broker %r connected as %r from %s", name, accepted.user, connection.peer)
    _hand_over(connection, mesh, accepted, greeting, packets)


def _hand_over(
    connection: ConnectionOutput, mesh: Mesh, accepted: Accepted, greeting: Greeting, packets: list[Packet]
) -> None:
    accepted.node_name = mesh.member.name
    accepted.own_packet_size_max = link_packet_size_max(connection.driver.limits.packet_size_max)
    connection.decoder.packet_size_max = accepted.own_packet_size_max
    door, number = connection.door, connection.number
    handshake = Handshake(
        greeting,
        number,
        connection.release_transport(),
        connection.decoder,
        keep_alive_ns=accepted.keep_alive_s * SECOND,
        receive_maximum=accepted.receive_maximum,
        packet_size_max=accepted.packet_size_max,
        is_dialled=False,
    )
    link = LinkConnection(connection.driver, mesh, handshake, lambda _: door.leave(number))
    link.write(accepted.connack(False, connection.version))
    link.start(handshake, packets)
