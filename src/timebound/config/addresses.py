"""Addresses to listen on: how they are written, and whether two conflict.

Only `localhost` is resolved: a configuration means the same wherever it is checked.
"""

from __future__ import annotations

import ipaddress
from typing import Final

# `localhost` stands for both protocols.
_LOCALHOST: Final = ("127.0.0.1", "::1")
_EVERY: Final = {"0.0.0.0": 4, "::": 6}


def address_text(host: str, port: int) -> str:
    """Write an address as in URLs."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def hosts_meet(one: str, other: str) -> bool:
    """Whether both hosts cannot listen on the same port."""
    return any(_meet(first, second) for first in _addresses(one) for second in _addresses(other))


def _addresses(host: str) -> tuple[str, ...]:
    if host.lower() == "localhost":
        return _LOCALHOST
    try:
        return (str(ipaddress.ip_address(host)),)
    except ValueError:
        return (host.lower(),)


def _meet(one: str, other: str) -> bool:
    if one == other:
        return True
    # 0.0.0.0 takes a port on every IPv4 address, :: on every IPv6 address; neither meets the other.
    return _EVERY.get(one, 0) == _version(other) or _EVERY.get(other, 0) == _version(one)


def _version(host: str) -> int:
    """Return the IP version of an address; a name counts as IPv4, as most do."""
    return 6 if ":" in host else 4


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; a name counts only if it is `localhost`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_address(host: str) -> bool:
    """Whether a host is an IP address, or `localhost`, and no other name."""
    if host.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
