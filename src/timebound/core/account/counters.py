"""Counters of one broker, for metrics, `$SYS` topics and tests."""

from __future__ import annotations

from typing import Final

from timebound.core.account.account import Account
from timebound.records import Reason

ALERTS_MAX: Final = 100


class Counters:
    """Totals since start. The shell only reads them, except for those that it alone can count (bytes)."""

    __slots__ = (
        "alerts",
        "bytes_received",
        "bytes_sent",
        "connections_refused",
        "connections_total",
        "faults",
        "long_messages",
        "messages_received",
        "messages_sent",
        "refused",
        "retained_refused",
        "tls_failures",
    )

    def __init__(self) -> None:
        self.long_messages = 0  # with content filters, many copies, or copies to rank
        self.messages_received = 0
        self.messages_sent = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.connections_total = 0
        self.connections_refused = 0
        self.tls_failures = 0  # handshakes that failed, and connections ended by broken encryption
        self.faults = 0  # internal errors, each of which ended one connection or request
        self.refused: dict[str, int] = {reason.value: 0 for reason in Reason}  # messages, before matching
        self.retained_refused = 0  # messages delivered, but not retained because of a limit
        self.alerts: list[str] = []

    def alert(self, text: str) -> None:
        """Leave a line for the shell's log about a limit that was reached; at most ALERTS_MAX a turn."""
        if len(self.alerts) < ALERTS_MAX:
            self.alerts.append(text)

    def refuse(self, reason: Reason) -> None:
        """Count a message refused before it matched a subscription; drops are in the account."""
        self.refused[reason.value] += 1


class Statistics:
    """The counters and sums of a broker at one moment."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "connected",
        "connections_refused",
        "connections_total",
        "dropped",
        "faults",
        "filter_cost",
        "inflight",
        "messages_received",
        "messages_sent",
        "queued_bytes",
        "queued_messages",
        "refused",
        "retained_bytes",
        "retained_messages",
        "retained_refused",
        "sessions",
        "subscriptions",
        "tls_failures",
    )

    def __init__(self, counters: Counters, account: Account) -> None:
        self.messages_received = counters.messages_received
        self.messages_sent = counters.messages_sent
        self.bytes_received = counters.bytes_received
        self.bytes_sent = counters.bytes_sent
        self.connections_total = counters.connections_total
        self.connections_refused = counters.connections_refused
        self.tls_failures = counters.tls_failures
        self.faults = counters.faults
        self.refused = sum(counters.refused.values())
        # Pairs not delivered and messages refused. Only `not_authorized` is used for both: new access rules
        # drop waiting copies; `refused` and the account tell them apart.
        self.dropped = {reason: count + account.dropped[reason] for reason, count in counters.refused.items()}
        self.retained_refused = counters.retained_refused
        self.sessions = 0
        self.connected = 0
        self.subscriptions = 0
        self.filter_cost = 0
        self.retained_messages = 0
        self.retained_bytes = 0
        self.queued_messages = 0
        self.queued_bytes = 0
        self.inflight = 0
