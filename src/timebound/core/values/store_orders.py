"""Orders for storage, and the snapshot that is read after a restart.

The broker collects orders; the shell takes them once per turn, writes them in this order in one
transaction, and reports to the broker when they are on disk. Applying a list twice gives the same
state: every order is a put or a drop by key.
"""

from __future__ import annotations

from timebound.core.values.message import Delivery, Message
from timebound.core.values.subscription import Subscription


class Will:
    """A message to publish when a client disconnects without DISCONNECT.

    `due_ns` is 0 while its client is connected, and the time of publication afterwards.
    `user` is the client's: its right to publish is checked again when the will is due.
    """

    __slots__ = ("client_id", "delay_s", "due_ns", "message", "user")

    def __init__(
        self, client_id: str, message: Message, delay_s: int, due_ns: int = 0, user: str = ""
    ) -> None:
        self.client_id = client_id
        self.message = message
        self.delay_s = delay_s
        self.due_ns = due_ns
        self.user = user


class StoreOrder:
    """Base class of all orders."""

    __slots__ = ()


class PutSession(StoreOrder):
    """Store a durable session; `ended_ns` is 0 while its client is connected."""

    __slots__ = ("client_id", "ended_ns", "expiry_interval_s", "user")

    def __init__(self, client_id: str, expiry_interval_s: int, ended_ns: int, user: str) -> None:
        self.client_id = client_id
        self.expiry_interval_s = expiry_interval_s
        self.ended_ns = ended_ns
        self.user = user


class DropSession(StoreOrder):
    """Delete a session with its subscriptions, deliveries and inbound packet ids (not its will)."""

    __slots__ = ("client_id",)

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id


class PutSubscription(StoreOrder):
    __slots__ = ("subscription",)

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription


class DropSubscription(StoreOrder):
    __slots__ = ("client_id", "name", "topic_filter")

    def __init__(self, client_id: str, topic_filter: str, name: str = "") -> None:
        self.client_id = client_id
        self.topic_filter = topic_filter
        self.name = name


class PutMessage(StoreOrder):
    """Store a message that stored deliveries refer to, under `message.sequence`."""

    __slots__ = ("message",)

    def __init__(self, message: Message) -> None:
        self.message = message


class DropMessage(StoreOrder):
    __slots__ = ("sequence",)

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence


class PutDelivery(StoreOrder):
    """Store a delivery under (client_id, sequence), with its present values."""

    __slots__ = (
        "client_id",
        "message_sequence",
        "packet_id",
        "qos",
        "retain",
        "sequence",
        "state",
        "subscription_ids",
    )

    def __init__(self, client_id: str, delivery: Delivery) -> None:
        self.client_id = client_id
        self.sequence = delivery.sequence
        self.message_sequence = delivery.message.sequence
        self.qos = delivery.qos
        self.retain = delivery.retain
        self.subscription_ids = delivery.subscription_ids
        self.packet_id = delivery.packet_id
        self.state = delivery.state


class DropDelivery(StoreOrder):
    __slots__ = ("client_id", "sequence")

    def __init__(self, client_id: str, sequence: int) -> None:
        self.client_id = client_id
        self.sequence = sequence


class PutInbound(StoreOrder):
    """Store the packet id of a QoS 2 message that was received and not yet released."""

    __slots__ = ("client_id", "packet_id")

    def __init__(self, client_id: str, packet_id: int) -> None:
        self.client_id = client_id
        self.packet_id = packet_id


class DropInbound(StoreOrder):
    __slots__ = ("client_id", "packet_id")

    def __init__(self, client_id: str, packet_id: int) -> None:
        self.client_id = client_id
        self.packet_id = packet_id


class PutOffset(StoreOrder):
    """Record that the rows of a journal before an offset belong to what this transaction stores."""

    __slots__ = ("journal", "offset")

    def __init__(self, journal: str, offset: int) -> None:
        self.journal = journal
        self.offset = offset


class PutRetained(StoreOrder):
    """Store a message as the retained one of its topic."""

    __slots__ = ("message",)

    def __init__(self, message: Message) -> None:
        self.message = message


class DropRetained(StoreOrder):
    __slots__ = ("topic",)

    def __init__(self, topic: str) -> None:
        self.topic = topic


class PutWill(StoreOrder):
    """Store the will of a client, with its present values."""

    __slots__ = ("client_id", "delay_s", "due_ns", "message", "user")

    def __init__(self, will: Will) -> None:
        self.client_id = will.client_id
        self.message = will.message
        self.delay_s = will.delay_s
        self.due_ns = will.due_ns
        self.user = will.user


class DropWill(StoreOrder):
    __slots__ = ("client_id",)

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id


class StoredSession:
    """One session as read from storage; `deliveries` in the order of their sequence."""

    __slots__ = (
        "client_id",
        "deliveries",
        "ended_ns",
        "expiry_interval_s",
        "inbound",
        "subscriptions",
        "user",
    )

    def __init__(self, client_id: str, expiry_interval_s: int, ended_ns: int, user: str) -> None:
        self.client_id = client_id
        self.expiry_interval_s = expiry_interval_s
        self.ended_ns = ended_ns
        self.user = user
        self.subscriptions: list[Subscription] = []
        self.deliveries: list[Delivery] = []
        self.inbound: list[int] = []


class Snapshot:
    """The contents of storage, read once at start.

    `sequence_max` is the largest message sequence ever stored: new messages continue after it.
    `offsets` has for each journal the offset from which rows belong to nothing stored.
    """

    __slots__ = ("offsets", "retained", "sequence_max", "sessions", "wills")

    def __init__(self) -> None:
        self.sessions: list[StoredSession] = []
        self.retained: list[Message] = []
        self.wills: list[Will] = []
        self.offsets: dict[str, int] = {}
        self.sequence_max = 0

    def publishers(self) -> set[str]:
        """Return the clients whose messages may be repeated: those with a session or a will."""
        return {session.client_id for session in self.sessions} | {will.client_id for will in self.wills}
