"""Reading of the snapshot that a broker starts with, and removal of unreachable rows.

Reading is exact with two exceptions. A subscription whose terms this program no longer understands is
skipped with a warning, and kept in the file. Times in the future come from a clock that has since been set
back; they are set to now, or sessions and messages would outlive their expiry by the clock's error.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from typing import Any, Final, Protocol

from timebound.core.values.message import Delivery, Message
from timebound.core.values.store_orders import Snapshot, StoredSession, Will
from timebound.core.values.subscription import NO_USER_PROPERTIES, Subscription, UserProperties
from timebound.errors import FilterError, ProtocolError
from timebound.node.storage.names import Starts
from timebound.node.storage.plan import (
    COUNTER,
    DELIVERY,
    INBOUND,
    MESSAGE,
    OFFSET_PREFIX,
    RETAINED,
    SESSION,
    SUBSCRIPTION,
    WILL,
    Marks,
    StoredTable,
)

log = logging.getLogger(__name__)


class MakeSubscription(Protocol):
    """Makes a subscription of its stored values, as `to_subscription` does."""

    def __call__(
        self,
        *,
        client_id: str,
        topic_filter: str,
        qos: int,
        no_local: bool,
        retain_as_published: bool,
        retain_handling: int,
        identifier: int,
        user_properties: UserProperties,
    ) -> Subscription: ...


NS_PER_S: Final = 1_000_000_000
_EXPIRES: Final = 9  # the place of `expires_ns` among the columns of a message

# Steps of a sweep, in this order: later ones remove what earlier ones left without an owner.
_SWEEPS: Final = (
    ("subscriptions without session", "subscription", "client_id NOT IN (SELECT client_id FROM session)"),
    ("packet ids without session", "inbound", "client_id NOT IN (SELECT client_id FROM session)"),
    ("deliveries without session", "delivery", "client_id NOT IN (SELECT client_id FROM session)"),
    ("deliveries without message", "delivery", "message_sequence NOT IN (SELECT sequence FROM message)"),
    ("messages without delivery", "message", "sequence NOT IN (SELECT message_sequence FROM delivery)"),
)


def sweep(connection: sqlite3.Connection) -> None:
    """Remove rows that no session can reach; called before anything is read or written."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for name, table, condition in _SWEEPS:
            count = connection.execute(f"DELETE FROM {table} WHERE {condition}").rowcount
            if count:
                log.info("removed %d %s", count, name)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def read_snapshot(
    connection: sqlite3.Connection, marks: Marks, make_subscription: MakeSubscription, now_ns: int
) -> Snapshot:
    """Read everything that a broker starts with."""
    snapshot = Snapshot()
    snapshot.sequence_max = marks.message
    sessions: dict[str, StoredSession] = {}
    for client_id, expiry_interval_s, ended_ns, user in _select(connection, SESSION):
        ended_ns = min(ended_ns, now_ns)
        sessions[client_id] = StoredSession(client_id, expiry_interval_s, ended_ns, user)
    snapshot.sessions = list(sessions.values())
    _read_subscriptions(connection, sessions, make_subscription)
    starts = Starts.read(connection)
    _read_deliveries(connection, sessions, starts, now_ns)
    for client_id, packet_id in _select(connection, INBOUND):
        if client_id in sessions:
            sessions[client_id].inbound.append(packet_id)
    for name, value in _select(connection, COUNTER):
        if name.startswith(OFFSET_PREFIX):
            snapshot.offsets[name.removeprefix(OFFSET_PREFIX)] = value
    snapshot.retained = [_message(row, starts, now_ns) for row in _select(connection, RETAINED)]
    for client_id, delay_s, due_ns, user, *row in _select(connection, WILL):
        due_ns = min(due_ns, now_ns + delay_s * NS_PER_S)
        message = _message(row, starts, now_ns)
        message.name = None  # it is not published yet
        message.expires_ns = row[_EXPIRES]  # relative to its publication, so independent of the clock
        snapshot.wills.append(Will(client_id, message, delay_s, due_ns, user))
    return snapshot


def _select(connection: sqlite3.Connection, table: StoredTable) -> sqlite3.Cursor:
    """Read a whole table in the order of its key, so that equal files give equal snapshots."""
    order = ", ".join((*table.of, table.key))
    return connection.execute(f"SELECT {table.columns} FROM {table.name} ORDER BY {order}")


def _read_subscriptions(
    connection: sqlite3.Connection,
    sessions: dict[str, StoredSession],
    make_subscription: MakeSubscription,
) -> None:
    for row in _select(connection, SUBSCRIPTION):
        client_id, _, topic_filter, qos, no_local, as_published, handling, identifier, text = row
        if client_id not in sessions:
            continue
        try:
            subscription = make_subscription(
                client_id=client_id,
                topic_filter=topic_filter,
                qos=qos,
                no_local=bool(no_local),
                retain_as_published=bool(as_published),
                retain_handling=handling,
                identifier=identifier,
                user_properties=_user_properties(text),
            )
        except (FilterError, ProtocolError) as exc:
            log.warning("subscription of '%s' to '%s' is skipped: %s", client_id, topic_filter, exc)
            continue
        sessions[client_id].subscriptions.append(subscription)


def _read_deliveries(
    connection: sqlite3.Connection, sessions: dict[str, StoredSession], starts: Starts, now_ns: int
) -> None:
    messages = {row[0]: _message(row, starts, now_ns) for row in _select(connection, MESSAGE)}
    for client_id, sequence, message_sequence, qos, retain, ids, packet_id, state in _select(
        connection, DELIVERY
    ):
        message = messages.get(message_sequence)
        if message is None or client_id not in sessions:
            continue
        subscription_ids = tuple(map(int, ids.split()))
        delivery = Delivery(message, qos, bool(retain), subscription_ids, sequence, packet_id, state)
        delivery.stored = True
        message.stored_copies += 1
        sessions[client_id].deliveries.append(delivery)


def _message(row: Any, starts: Starts, now_ns: int) -> Message:
    """Rebuild a message from the columns that every table with messages has."""
    (sequence, topic, payload, qos, retain, published_ns, publisher, properties) = row[:8]
    (user_properties, expires_ns, timeout_ns, priority, name) = row[8:]
    ahead_ns = max(0, published_ns - now_ns)
    message = Message(
        topic,
        payload,
        qos,
        bool(retain),
        published_ns - ahead_ns,
        publisher,
        properties,
        _user_properties(user_properties),
        expires_ns - ahead_ns if expires_ns else 0,
        timeout_ns,
        priority,
        sequence,
    )
    message.name = starts.name_of(sequence, name)
    return message


def _user_properties(text: str) -> UserProperties:
    if not text:
        return NO_USER_PROPERTIES
    return tuple((name, value) for name, value in json.loads(text))
