"""The limits that the core itself keeps, and their defaults; the configuration gives the reasons."""

from __future__ import annotations

from typing import Final

SESSION_NEVER_EXPIRES_S: Final = 0xFFFFFFFF  # MQTT 5, 3.1.2.11.2
# MQTT 5, 2.1.4: the largest remaining length, and the header before it.
MQTT_PACKET_BYTES_MAX: Final = 268_435_455 + 5
DAY_S: Final = 86_400
MEBIBYTE: Final = 1024 * 1024

# The defaults, of the configuration too.
QUEUE_BYTES_PER_CLIENT_MAX: Final = 16 * MEBIBYTE
QUEUE_MESSAGES_PER_CLIENT_MAX: Final = 100_000
QUEUE_BYTES_TOTAL_MAX: Final = 512 * MEBIBYTE
OUTGOING_INFLIGHT_MAX: Final = 1_024
SUBSCRIPTIONS_PER_CLIENT_MAX: Final = 1_000
RETAINED_MESSAGES_MAX: Final = 500_000
RETAINED_BYTES_MAX: Final = 256 * MEBIBYTE
SESSION_EXPIRY_MAX_S: Final = 30 * DAY_S
WILL_DELAY_MAX_S: Final = DAY_S
FILTER_COST_PER_CLIENT_MAX: Final = 10_000
FILTER_COST_TOTAL_MAX: Final = 1_000_000
TICKS_PER_SECOND_MAX: Final = 1_000


class BrokerLimits:
    """Upper limits of sessions and of the whole broker."""

    __slots__ = (
        "filter_cost_per_client_max",
        "filter_cost_total_max",
        "outgoing_inflight_max",
        "queue_bytes_per_client_max",
        "queue_bytes_total_max",
        "queue_messages_per_client_max",
        "retained_bytes_max",
        "retained_messages_max",
        "session_expiry_max_s",
        "subscriptions_per_client_max",
        "ticks_per_second_max",
        "will_delay_max_s",
    )

    def __init__(
        self,
        queue_bytes_per_client_max: int = QUEUE_BYTES_PER_CLIENT_MAX,
        queue_messages_per_client_max: int = QUEUE_MESSAGES_PER_CLIENT_MAX,
        queue_bytes_total_max: int = QUEUE_BYTES_TOTAL_MAX,
        outgoing_inflight_max: int = OUTGOING_INFLIGHT_MAX,
        subscriptions_per_client_max: int = SUBSCRIPTIONS_PER_CLIENT_MAX,
        retained_messages_max: int = RETAINED_MESSAGES_MAX,
        retained_bytes_max: int = RETAINED_BYTES_MAX,
        session_expiry_max_s: int = SESSION_EXPIRY_MAX_S,
        will_delay_max_s: int = WILL_DELAY_MAX_S,
        filter_cost_per_client_max: int = FILTER_COST_PER_CLIENT_MAX,
        ticks_per_second_max: int = TICKS_PER_SECOND_MAX,
        filter_cost_total_max: int = FILTER_COST_TOTAL_MAX,
    ) -> None:
        self.queue_bytes_per_client_max = queue_bytes_per_client_max
        self.queue_messages_per_client_max = queue_messages_per_client_max
        self.queue_bytes_total_max = queue_bytes_total_max
        self.outgoing_inflight_max = outgoing_inflight_max
        self.subscriptions_per_client_max = subscriptions_per_client_max
        self.retained_messages_max = retained_messages_max
        self.retained_bytes_max = retained_bytes_max
        self.session_expiry_max_s = session_expiry_max_s
        self.will_delay_max_s = will_delay_max_s
        self.filter_cost_per_client_max = filter_cost_per_client_max
        self.filter_cost_total_max = filter_cost_total_max
        self.ticks_per_second_max = ticks_per_second_max  # of one client's timers
