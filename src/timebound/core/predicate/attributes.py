"""What a content filter can ask of one message: its attributes, by name.

Attributes come from the user properties and from the fields of a JSON payload. Nothing is
read before a filter asks for it, and each name is looked up once per message, however many
filters ask; the payload is parsed at most once, and a payload that is not JSON has no fields.
"""

from __future__ import annotations

from typing import Final

from timebound.core.predicate.values import OBJECT, Property, read_json, read_set

# Where a name looks: user property then payload field; payload only; the topic.
BARE: Final = 0
PAYLOAD: Final = 1
TOPIC: Final = 2

# A payload beyond these is not searched for attributes: it holds up every other message of the broker.
# At both limits decoding takes 4 ms; each array and object costs as much as 40 bytes of anything else.
JSON_BYTES_MAX: Final = 256 * 1024
JSON_CONTAINERS_MAX: Final = 16_384
# An array with more elements is not a set: one of 4,096 takes up to 0.5 ms to make.
SET_MEMBERS_MAX: Final = 4_096
# An array index longer than this is beyond any array that fits into JSON_BYTES_MAX.
_INDEX_DIGITS_MAX: Final = 7

_NOT_YET: Final[object] = object()  # a name that was not looked up so far

UserProperties = tuple[tuple[str, str], ...]


class Name:
    """The name of an attribute as a filter writes it.

    `segments` is the way into the payload, `property_name` the user property that comes
    first for a bare name; `key` is the same for equal names and different for others.
    """

    __slots__ = ("key", "property_name", "segments", "source")

    def __init__(self, source: int, segments: tuple[str, ...], property_name: str = "") -> None:
        self.source = source
        self.segments = segments
        self.property_name = property_name
        self.key = _canonical(source, segments)

    def __repr__(self) -> str:
        return f"Name({self.key})"


def _canonical(source: int, segments: tuple[str, ...]) -> str:
    quoted = [f'"{segment.replace(chr(34), chr(34) * 2)}"' for segment in segments]
    prefix = "payload" if source == PAYLOAD else "$topic" if source == TOPIC else ""
    return ".".join([prefix, *quoted])


class Attributes:
    """The attributes of one message, read when asked for."""

    __slots__ = (
        "_decoded",
        "_decoded_is_ready",
        "_values",
        "payload",
        "searches",
        "topic",
        "user_properties",
        "verdicts",
    )

    def __init__(self, user_properties: UserProperties, payload: bytes, topic: str = "") -> None:
        self.user_properties = user_properties
        self.payload = payload
        self.topic = topic
        self._values: dict[str, object] = {}
        self.searches: dict[str, bool] = {}  # what was searched for, and whether it was found
        # Results of filters that were asked earlier, by their text; None for most messages.
        self.verdicts: dict[str, bool] | None = None
        self._decoded: object = None
        self._decoded_is_ready = False

    def value(self, name: Name) -> object:
        """Return the value of an attribute; None (NULL) if the message has no such attribute."""
        value = self._values.get(name.key, _NOT_YET)
        if value is _NOT_YET:
            value = self._resolve(name)
            self._values[name.key] = value
        return value

    def json(self) -> object:
        """Return the decoded payload; None if it is not JSON."""
        if not self._decoded_is_ready:
            if (
                0 < len(self.payload) <= JSON_BYTES_MAX
                and _containers_max(self.payload) <= JSON_CONTAINERS_MAX
            ):
                self._decoded = read_json(self.payload)
            self._decoded_is_ready = True
        return self._decoded

    def _resolve(self, name: Name) -> object:
        if name.source == TOPIC:
            return self.topic
        if name.source == BARE:
            for property_name, text in self.user_properties:
                if property_name == name.property_name:
                    return Property(text)
            # A bare name means a field of an object, never an index into an array.
            if not isinstance(self.json(), dict):
                return None
        found = self.json()
        for segment in name.segments:
            if found is None:
                return None
            found = _step(found, segment)
        if isinstance(found, dict):
            return OBJECT
        if isinstance(found, list):
            return read_set(found) if len(found) <= SET_MEMBERS_MAX else OBJECT
        return found


NO_ATTRIBUTES: Final = Attributes((), b"")


def _containers_max(payload: bytes) -> int:
    """Return an upper limit of arrays and objects in JSON: brackets within strings count as well."""
    return payload.count(b"[") + payload.count(b"{")


def _step(container: object, segment: str) -> object:
    """Take one step into the payload: a field of an object, or an element of an array."""
    if isinstance(container, dict):
        fields: dict[object, object] = container
        return fields.get(segment)
    if not isinstance(container, list):
        return None
    items: list[object] = container
    if len(segment) > _INDEX_DIGITS_MAX or not (segment.isascii() and segment.isdigit()):
        return None
    index = int(segment)
    return items[index] if index < len(items) else None
