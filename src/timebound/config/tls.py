"""How connections are encrypted: `[listeners.tls]`, `[flight.tls]` and `[neighbours.tls]`."""

# ruff: noqa: RUF009 - `setting` makes a dataclass field, not a call for a default value.

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Literal

from timebound.toml.setting import setting


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """`[listeners.tls]`: how one listener encrypts, and whether certificates name users."""

    certificate: Path = setting(
        "path", MISSING, "the server's certificate chain in PEM; clients cannot verify the broker without it"
    )
    key: Path = setting("path", MISSING, "the private key that belongs to `certificate`, in PEM")
    ca: Path | None = setting(
        "path",
        None,
        "CA certificates in PEM for client certificates; without it none are requested",
    )
    require_client_certificate: bool = setting(
        "switch", False, "refuse clients without a certificate during the handshake; needs `ca`"
    )
    identity: Literal["none", "common_name"] = setting(
        "choice",
        "none",
        "`common_name` takes the user name from the client certificate, so no password is needed; needs `ca`",
        choices=("none", "common_name"),
    )


@dataclass(frozen=True, slots=True)
class NeighbourTlsConfig:
    """`[neighbours.tls]`: how the link to a neighbour is encrypted, when this broker opens it."""

    ca: Path = setting("path", MISSING, "CA certificates in PEM for the neighbour's certificate")
    certificate: Path | None = setting(
        "path", None, "this broker's own certificate in PEM, if the neighbour asks for one; needs `key`"
    )
    key: Path | None = setting("path", None, "the private key that belongs to `certificate`, in PEM")
