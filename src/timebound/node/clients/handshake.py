"""Decisions about CONNECT: who the client is, whether it is admitted, and its CONNACK.

What needs no clock and no files is decided in `serving/connect.py`. Checking a password costs tens of
milliseconds by design, so it runs in a thread and the answer is delivered on the loop.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from timebound.config.listeners import ListenerConfig
from timebound.config.scheduling import scheduling_of
from timebound.config.values import Config
from timebound.core.link.outlet import START_DELAY
from timebound.core.values.access import AccessList
from timebound.core.values.delay import link_of_rate
from timebound.node.driver import Driver
from timebound.node.login.certificates import common_name
from timebound.node.login.logins import Logins, Question
from timebound.node.login.passwords import PasswordFile
from timebound.node.login.queue import source_of
from timebound.serving.connect import Accepted as Accepted
from timebound.serving.connect import Refused as Refused
from timebound.serving.connect import accept, check_form
from timebound.wire.packets import Connect
from timebound.wire.reasons import ReasonCode


class Door:
    """One listener as the handshake sees it: who is admitted, and how many."""

    def __init__(
        self,
        listener: ListenerConfig,
        config: Config,
        driver: Driver,
        access: AccessList,
        passwords: PasswordFile | None,
        logins: Logins,
    ) -> None:
        self.name = listener.label
        self.listener = listener
        self.config = config
        self.limits = config.limits
        self.driver = driver
        self.access = access
        self.passwords = passwords
        self.logins = logins
        self.scheduling = scheduling_of(listener)
        rate = listener.link_bytes_per_second
        self.delay = link_of_rate(rate) if rate else START_DELAY
        self._addresses: dict[int, str] = {}  # of the connections that entered, by number
        self._by_address: dict[str, int] = {}  # how many of them each address has

    def enter(self, number: int, peer: str) -> bool:
        """Count a new connection; return False if there are too many even to wait for its CONNECT."""
        address = address_of(peer)
        self._addresses[number] = address
        count = self._by_address.get(address, 0) + 1
        self._by_address[address] = count
        limit = self.limits.connections_per_address_max
        if limit and count > limit:
            return False
        # Connections before CONNECT get as much room again, so that a full broker can still tell
        # clients that it is full.
        return len(self.driver.connections) < 2 * self.limits.connections_max

    def leave(self, number: int) -> None:
        """Forget a connection that has ended; it may be called again after an error."""
        address = self._addresses.pop(number, None)
        if address is None:
            return
        count = self._by_address.get(address, 0) - 1
        if count > 0:
            self._by_address[address] = count
        else:
            self._by_address.pop(address, None)


def address_of(peer: str) -> str:
    """Return the address of a peer without its port."""
    return peer.rpartition(":")[0]


def source_of_client(door: Door, user: str, peer: str) -> str:
    """Return for whom the requests of a client count: its user, or its address where it is anonymous."""
    if user != door.config.security.anonymous_user:
        return f"user {user}"
    return source_of(address_of(peer))


def decide(packet: Connect, door: Door, transport: Any) -> Accepted | Refused | None:
    """Accept or refuse a CONNECT; return None if a password has to be checked first."""
    refused = _check_form(packet, door)
    if refused is not None:
        return refused
    certificate_user = _certificate_user(door, transport)
    if certificate_user:
        return _accept(packet, door, certificate_user)
    if packet.username is None:
        if not door.listener.anonymous_allowed:
            return Refused(ReasonCode.NOT_AUTHORIZED, "a user name is required")
        return _accept(packet, door, door.config.security.anonymous_user)
    if door.passwords is None:
        if door.listener.anonymous_allowed:
            # As other brokers do. The name is not verified, so access rules must not see it.
            return _accept(packet, door, door.config.security.anonymous_user)
        return Refused(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "no password file is configured")
    if door.passwords.check_nowait(packet.username, packet.password or b""):
        return _accept(packet, door, packet.username)
    return None


def decide_with_password(
    packet: Connect, door: Door, peer: str, answer: Callable[[Connect, Accepted | Refused], None]
) -> None:
    """Check the password in a thread, then call `answer` on the loop."""
    passwords = door.passwords
    name = packet.username
    assert passwords is not None
    assert name is not None

    def finish(code: int, reason: str) -> None:
        if code != ReasonCode.SUCCESS:
            answer(packet, Refused(code, reason))
        else:
            # Others may have connected meanwhile and reached the limit.
            answer(packet, _check_form(packet, door) or _accept(packet, door, name))

    door.logins.ask(address_of(peer), Question(passwords, name, packet.password or b"", finish))


def _check_form(packet: Connect, door: Door) -> Refused | None:
    return check_form(packet, door.driver.broker, door.limits, door.driver.authenticated)


def _accept(packet: Connect, door: Door, user: str) -> Accepted | Refused:
    return accept(
        packet,
        packet.client_id or f"auto-{secrets.token_hex(10)}",
        user,
        broker=door.driver.broker,
        access=door.access,
        limits=door.limits,
        takes_over_from_others=door.config.security.take_over_from_others,
        now_ns=door.driver.now_ns(),
    )


def _certificate_user(door: Door, transport: Any) -> str:
    tls = door.listener.tls
    if tls is None or tls.identity != "common_name":
        return ""
    return common_name(transport.get_extra_info("peercert"))
