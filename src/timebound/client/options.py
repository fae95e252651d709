"""The options of a client, checked once: address, identity, limits; and its CONNECT packet."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from timebound.client.values import U32_MAX
from timebound.client.will import Will
from timebound.wire import packets
from timebound.wire.primitives import encode_string
from timebound.wire.properties import Properties

PORT: Final = 1883
PORT_TLS: Final = 8883
U16_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    """The server's address, and the user that a URL may name."""

    host: str
    port: int
    is_tls: bool
    username: str | None
    password: str | None


def parse_address(host: str, port: int | None, is_tls: bool) -> Address:
    """Read a host name or a URL `mqtt://user:password@host:port` (`mqtts` for TLS).

    Raises:
        ValueError: another scheme, no host, a path, or a port out of range.
    """
    username: str | None = None
    password: str | None = None
    if "://" in host:
        url = host
        parts = urlsplit(url)
        if parts.scheme not in ("mqtt", "mqtts"):
            raise ValueError(f"scheme of {_shown(url)} is {parts.scheme!r}; it must be mqtt or mqtts")
        if not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueError(f"URL {_shown(url)} must be like mqtt://user:password@host:port")
        is_tls = is_tls or parts.scheme == "mqtts"
        host = parts.hostname
        port = parts.port if parts.port is not None else port
        username = None if parts.username is None else unquote(parts.username)
        password = None if parts.password is None else unquote(parts.password)
    if port is None:
        port = PORT_TLS if is_tls else PORT
    if not host or not 1 <= port <= U16_MAX:
        raise ValueError(f"address {host!r} with port {port} is invalid; the port must be 1 to {U16_MAX}")
    return Address(host, port, is_tls, username, password)


def _shown(url: str) -> str:
    """Return a URL for an error text, without its user and password."""
    return repr(url.rpartition("@")[2])


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """All options of a client."""

    address: Address
    client_id: str
    username: str | None
    password: bytes | None
    tls: ssl.SSLContext | None
    keep_alive: int  # seconds; 0 turns it off
    clean_start: bool
    session_expiry_s: int
    will: Will | None
    version: int
    reconnect: bool
    reconnect_delay_s_max: float
    connect_timeout_s: float
    operation_timeout_s: float  # limit of an operation, reconnecting included
    receive_maximum: int
    maximum_packet_size: int  # 0 = no limit
    topic_alias_maximum: int

    def check(self) -> None:
        """Refuse what CONNECT cannot carry.

        Raises:
            ValueError: with the option, its value and what is allowed.
        """
        if self.version not in (4, 5):
            raise ValueError(f"version is {self.version!r}; it must be 5 (MQTT 5) or 4 (MQTT 3.1.1)")
        _check_range("keep_alive", self.keep_alive, 0, U16_MAX)
        _check_range("receive_maximum", self.receive_maximum, 1, U16_MAX)
        _check_range("maximum_packet_size", self.maximum_packet_size, 0, U32_MAX)
        _check_range("topic_alias_maximum", self.topic_alias_maximum, 0, U16_MAX)
        encode_string(self.client_id)
        if self.version == 4:
            if self.password is not None and self.username is None:
                raise ValueError("a password needs a user name in MQTT 3.1.1")
            if not self.client_id and not self.clean_start:
                raise ValueError("client_id is empty; MQTT 3.1.1 needs one to resume a session")
        if self.will is not None:
            self.will.to_packet(self.version)

    @property
    def keeps_session(self) -> bool:
        """Whether the server is asked to keep the session between connections."""
        return self.session_expiry_s > 0 if self.version == 5 else not self.clean_start

    def connect_packet(self, client_id: str, *, is_first: bool) -> packets.Connect:
        """Return the CONNECT; from the second on, it resumes a session that is kept."""
        properties = Properties()
        if self.version == 5:
            properties.session_expiry_interval = self.session_expiry_s or None
            properties.receive_maximum = self.receive_maximum
            properties.maximum_packet_size = self.maximum_packet_size or None
            properties.topic_alias_maximum = self.topic_alias_maximum or None
        clean_start = self.clean_start if is_first else not self.keeps_session
        return packets.Connect(
            client_id,
            self.version,
            clean_start,
            self.keep_alive,
            self.username,
            self.password,
            None if self.will is None else self.will.to_packet(self.version),
            properties,
        )


def _check_range(name: str, value: int, lowest: int, highest: int) -> None:
    if not lowest <= value <= highest:
        raise ValueError(f"{name} is {value!r}; it must be {lowest} to {highest}")
