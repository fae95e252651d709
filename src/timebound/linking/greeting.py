"""How brokers introduce themselves in CONNECT and CONNACK: name, and version of the mesh protocol.

Both are User Properties. A broker that sends no version speaks version 0. Each side may use what the lower of
both versions has; what a peer sends beyond it is refused where MQTT has an answer, logged once, and ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from timebound.errors import ProtocolError
from timebound.linking.codec import BROKER_PROPERTY
from timebound.units import parse_count
from timebound.wire.reasons import ReasonCode

# Since version 1: unknown control topics are answered with a reason, unknown levels are passed over.
# Since version 2: figures of links are advertised, and unknown advertisements passed on.
# Since version 3: packs (`packs.py`).
MESH_VERSION: Final = 3
FIGURES_VERSION: Final = 2
PACK_VERSION: Final = 3
VERSION_PROPERTY: Final = "timebound-mesh"
_VERSION_MAX: Final = 65_535
_OURS: Final = "timebound-"  # how properties of a greeting begin


class Greeting:
    """What a broker says of itself."""

    __slots__ = ("name", "unknown", "version")

    def __init__(self, name: str, version: int = 0, unknown: tuple[str, ...] = ()) -> None:
        self.name = name  # empty: it is not a broker
        self.version = version
        self.unknown = unknown  # further properties, of later versions


def greeting_properties(name: str) -> list[tuple[str, str]]:
    """Return the User Properties by which a broker introduces itself."""
    return [(BROKER_PROPERTY, name), (VERSION_PROPERTY, str(MESH_VERSION))]


def read_greeting(user_properties: Iterable[tuple[str, str]]) -> Greeting:
    """Return what a peer says of itself.

    Raises:
        ProtocolError: its version is not a number.
    """
    values = dict(user_properties)
    text = values.get(VERSION_PROPERTY, "0")
    try:
        version = parse_count(text, 0, _VERSION_MAX)
    except ValueError as error:
        reason = f"property {VERSION_PROPERTY!r} is {text[:100]!r}: {error}"
        raise ProtocolError(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, reason) from error
    known = (BROKER_PROPERTY, VERSION_PROPERTY)
    unknown = tuple(name for name in values if name.startswith(_OURS) and name not in known)
    return Greeting(values.get(BROKER_PROPERTY, ""), version, unknown)
