"""What clients sent, asked for and got in one run: the checkers compare it with what a broker promises.

Times are the kernel's. A message is told apart by the number in its payload, which no broker reads; the names
that brokers give are joined to it where it is published.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field

from timebound.core.values.access import AccessList
from timebound.wire.properties import Properties

ID_PROPERTY = "id"  # of messages without payload
ERROR_MIN = 0x80


@dataclass(eq=False)
class SentMessage:
    """A message of a client, from when it was first sent."""

    number: int
    client: str
    run: int  # of its client's session
    topic: str
    qos: int
    retain: bool
    is_empty: bool
    sent_ns: int
    kind: str  # user property `kind`; empty if it has none
    level: int  # `level` in its payload
    timeout_ns: int = 0
    expiry_s: int = -1
    priority: int = 0
    is_will: bool = False
    place: int = 0  # in the order of sending
    properties: tuple[tuple[str, str], ...] = ()  # User Properties
    is_resent: bool = False
    acked_ns: int = -1  # when its publisher saw PUBACK or PUBREC
    code: int = -1
    taken: list[tuple[str, int, int]] = field(default_factory=list)  # node, its life, time

    def is_promised(self) -> bool:
        """Whether its publisher may rely on it."""
        return self.acked_ns >= 0 and self.code < ERROR_MIN

    def flow(self) -> tuple[str, str, int, int, int, int]:
        """Return what is equal for messages that keep their order."""
        return (self.client, self.topic, self.qos, self.timeout_ns, self.expiry_s, self.priority)


@dataclass(eq=False)
class AskedSubscription:
    """A subscription of a client's session, from SUBSCRIBE to its end."""

    client: str
    run: int
    node: str
    topic_filter: str
    qos: int
    no_local: bool
    terms: dict[str, str]
    asked_ns: int
    retain_handling: int = 0
    granted_ns: int = -1
    code: int = -1
    ended_ns: int = -1  # replaced, unsubscribed, or its session is gone

    def is_granted(self) -> bool:
        return self.granted_ns >= 0 and self.code < ERROR_MIN


@dataclass(eq=False)
class Received:
    """A PUBLISH that a client got."""

    client: str
    run: int
    connection: int
    node: str
    topic: str
    qos: int
    retain: bool
    dup: bool
    time_ns: int
    number: int  # of the message; 0 if it is the broker's own
    is_new: bool  # not one that QoS 2 tells apart as sent again
    group: str  # of a correlation


@dataclass(eq=False)
class TracedOutcome:
    """A record of some broker's trace."""

    node: str
    life: int
    number: int  # of the message; 0 if it is the broker's own
    client: str
    topic_filter: str
    outcome: str
    reason: str
    queued_late_ns: int = 0  # how long after its publication it was queued


class History:
    """Everything that the checkers may ask about, and a hash of it."""

    def __init__(self) -> None:
        self.messages: dict[int, SentMessage] = {}
        self.requests: list[SentMessage] = []  # to brokers themselves
        self.subscriptions: list[AskedSubscription] = []
        self.arrivals: list[Received] = []
        self.outcomes: list[TracedOutcome] = []
        self.crashes: list[tuple[int, str]] = []  # when, and which node
        self.rules: list[tuple[int, str, AccessList]] = []  # when a node got others, and which
        self.connections: dict[tuple[str, int], int] = {}  # when clients began them, by client and number
        self.quiet_ns = 0  # when the script was over, and everything mended
        self.faults: list[int] = []  # times at which any link or node failed or came back
        self.runs: dict[str, int] = {}  # the last session of each client
        self.run_ends: dict[tuple[str, int], int] = {}  # when a client's session was seen to be gone
        # Sessions of which their clients cannot tell whether they are new: the answer to a CONNECT was lost.
        self.unsure: set[tuple[str, int]] = set()  # only asked, never iterated
        self.counts: Counter[str] = Counter()
        self._names: dict[tuple[str, int, int], int] = {}  # of messages, as brokers call them
        self._by_session: dict[tuple[str, int], list[AskedSubscription]] = {}
        self._sorted = 0  # subscriptions that are in `_by_session`
        self._hash = hashlib.sha256()

    def subscriptions_of(self, client: str, run: int) -> list[AskedSubscription]:
        """Return what a client's session asked for, in order."""
        for one in self.subscriptions[self._sorted :]:
            self._by_session.setdefault((one.client, one.run), []).append(one)
        self._sorted = len(self.subscriptions)
        return self._by_session.get((client, run), [])

    def count(self, what: str) -> None:
        self.counts[what] += 1
        self._hash.update(what.encode())

    def note(self, *values: object) -> None:
        """Add something that happened to the hash."""
        self._hash.update(repr(values).encode())

    def digest(self) -> str:
        return self._hash.hexdigest()

    def name(self, origin: str, started_ns: int, number: int, message: int) -> None:
        """Remember what a broker calls a message."""
        self._names[origin, started_ns, number] = message

    def number_of(self, origin: str, started_ns: int, number: int) -> int:
        """Return the number of a message by its name; 0 if it is a broker's own."""
        return self._names.get((origin, started_ns, number), 0)


def payload_of(number: int, level: int, size: int) -> bytes:
    """Return a payload that tells messages apart, of at least some size."""
    return json.dumps({"id": number, "level": level}).encode().ljust(size)


def number_in(payload: bytes, user_properties: tuple[tuple[str, str], ...]) -> int:
    """Return the number of a message by its payload, or its property if it has none; 0 for other ones."""
    if not payload:
        text = dict(user_properties).get(ID_PROPERTY, "0")
        return int(text) if text.isdigit() else 0
    try:
        found = json.loads(payload)
    except ValueError:
        return 0
    number = found.get("id", 0) if isinstance(found, dict) else 0
    return number if isinstance(number, int) else 0


def properties_of(terms: dict[str, str]) -> Properties:
    """Return packet properties with some user properties."""
    properties = Properties()
    properties.user_properties += list(terms.items())
    return properties
