"""Messages, and their deliveries to sessions.

A `Message` is created once, from a publisher's packet, and shared by all receivers; only its
caches change afterwards. A `Delivery` is one copy for one session: it has what differs between
receivers, and the state of its acknowledgement.

Nothing here refers to what leads back to it (`acyclic`), so the garbage collector need not know of it. That,
and the memory of the last one used again (`free_list_len`), saves a tenth of a message's instructions.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from timebound.core.values.subscription import NO_USER_PROPERTIES, Subscription, UserProperties
from timebound.core.values.trace_columns import TraceHint

# States of a delivery. QoS 0 is sent from QUEUED; QoS 1 ends from SENT; QoS 2 from RELEASED.
QUEUED: Final = 0  # waits in the session's queue
SENT: Final = 1  # handed to the connection, awaiting PUBACK or PUBREC
RELEASED: Final = 2  # PUBREC received, awaiting PUBCOMP
GONE: Final = 3  # dropped; it may keep its place in a queue for a while

# Memory of a copy besides its bytes: message, delivery, encoded packet, list items. Measured as RSS for
# copies that share nothing: 530 bytes compiled, 660 in plain Python.
COPY_COST: Final = 576
# Additional memory of a scheduled copy (`link/strategy/entry.py`): 620 bytes compiled, 1,000 plain.
ENTRY_COST: Final = 704
# The encoded packet of a larger message is not kept: it would take as much memory as the message.
FRAME_KEPT_MAX: Final = 16 * 1024


@mypyc_attr(acyclic=True)
class MessageName:
    """The name of a message that was not published here since this broker started."""

    __slots__ = ("number", "origin", "started_ns")

    def __init__(self, origin: str, started_ns: int, number: int) -> None:
        self.origin = origin  # broker where it was published
        self.started_ns = started_ns  # when that had started; 0 = an earlier start, not known
        self.number = number


@mypyc_attr(acyclic=True, free_list_len=1)
class Message:
    """One published message.

    `properties` holds the encoded properties that a server forwards unaltered and in order; the
    core never reads them. In `frame_v4` and `frame_v5` the shell keeps the encoded packet of a
    plain QoS 0 delivery; the core never reads them either.
    """

    __slots__ = (
        "expires_ns",
        "frame_v4",
        "frame_v5",
        "hops",
        "is_repeated",
        "name",
        "payload",
        "priority",
        "promised_ns",
        "properties",
        "published_ns",
        "publisher",
        "qos",
        "retain",
        "sequence",
        "stored_copies",
        "timeout_ns",
        "topic",
        "trace_hint",
        "user_properties",
    )

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        retain: bool,
        published_ns: int,
        publisher: str = "",
        properties: bytes = b"",
        user_properties: UserProperties = NO_USER_PROPERTIES,
        expires_ns: int = 0,
        timeout_ns: int = 0,
        priority: int = 0,
        sequence: int = 0,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.published_ns = published_ns
        self.publisher = publisher  # client id, for No Local and the account
        self.properties = properties
        self.user_properties = user_properties
        self.expires_ns = expires_ns  # absolute; 0 = never (Message Expiry Interval)
        self.timeout_ns = timeout_ns  # from publication; 0 = none (property `timeout`)
        self.priority = priority  # 0..9
        self.sequence = sequence  # order of arrival at this broker, unique
        self.promised_ns = 0  # delay bound of its flow at this broker; 0 = none
        self.hops = 0  # brokers passed before this one
        self.name: MessageName | None = None  # None: this broker, its start, and `sequence`
        self.is_repeated = False  # sent again: an earlier run of the broker may have had it
        self.stored_copies = 0  # its deliveries that are in storage
        self.frame_v4 = b""
        self.frame_v5 = b""
        self.trace_hint: TraceHint | None = None  # of its topic, for the trace; set by the distribution

    def is_expired(self, now_ns: int) -> bool:
        return 0 < self.expires_ns <= now_ns

    def lifetime_ns(self) -> int:
        """Return how long after publication it is valid: the smaller of timeout and expiry; 0 = no limit."""
        if not self.expires_ns:
            return self.timeout_ns
        expiry_ns = max(self.expires_ns - self.published_ns, 1)
        return min(self.timeout_ns, expiry_ns) if self.timeout_ns else expiry_ns

    def allowed_ns(self, subscription: Subscription | None) -> int:
        """Return allowed(s,m) of the model: the tighter of timeout and deadline; 0 = neither."""
        if subscription is None or not subscription.deadline_ns:
            return self.timeout_ns
        if not self.timeout_ns:
            return subscription.deadline_ns
        return min(self.timeout_ns, subscription.deadline_ns)

    def size(self) -> int:
        """Return the approximate size on a link in bytes."""
        return len(self.topic) + len(self.payload) + len(self.properties) + 8


@mypyc_attr(acyclic=True, free_list_len=1)
class Delivery:
    """One copy of a message for one session.

    `subscription` is the one that matched; if several of the session did, `others` has the rest.
    It is None for a copy from storage whose subscription no longer exists.
    """

    __slots__ = (
        "dup",
        "group",
        "is_settled",
        "link",
        "message",
        "offered_ns",
        "others",
        "packet_id",
        "qos",
        "retain",
        "sent_ns",
        "sequence",
        "state",
        "stored",
        "subscription",
        "subscription_ids",
    )

    def __init__(
        self,
        message: Message,
        qos: int,
        retain: bool,
        subscription_ids: tuple[int, ...] = (),
        sequence: int = 0,
        packet_id: int = 0,
        state: int = QUEUED,
        subscription: Subscription | None = None,
        offered_ns: int = 0,
    ) -> None:
        self.message = message
        self.qos = qos
        self.retain = retain
        self.subscription_ids = subscription_ids
        self.sequence = sequence  # order inside the session; the key in storage
        self.packet_id = packet_id  # 0 = none yet
        self.state = state
        self.dup = False
        self.stored = False
        self.is_settled = False  # its outcome is in the account
        self.subscription = subscription
        self.others: tuple[Subscription, ...] = ()
        self.group = ""  # its number among messages delivered together, such as 7:1/2
        self.link = ""  # link to another broker, if it is forwarded; otherwise the session's own
        self.offered_ns = offered_ns  # when it was queued here
        self.sent_ns = 0  # when it was handed to the connection; 0 = not yet


# Takes the place of the message of a copy that is gone: its memory is no longer counted.
NO_MESSAGE: Final = Message("", b"", 0, False, 0)


def copy_cost(size: i64) -> i64:
    """Return what a copy of a message of this size counts in limits: about its memory, in bytes."""
    # Half of the size is for the encoded packet, which not every message has and all copies share.
    return size + (size >> 1) + COPY_COST if size <= FRAME_KEPT_MAX else size + COPY_COST
