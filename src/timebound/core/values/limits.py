"""The limits that the core enforces; the configuration sets them and gives their reasons."""

from __future__ import annotations

from typing import Final

SESSION_NEVER_EXPIRES_S: Final = 0xFFFFFFFF  # MQTT 5, 3.1.2.11.2


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
        queue_bytes_per_client_max: int = 8 * 1024 * 1024,
        queue_messages_per_client_max: int = 100_000,
        queue_bytes_total_max: int = 512 * 1024 * 1024,
        outgoing_inflight_max: int = 1024,
        subscriptions_per_client_max: int = 100_000,
        retained_messages_max: int = 1_000_000,
        retained_bytes_max: int = 256 * 1024 * 1024,
        session_expiry_max_s: int = SESSION_NEVER_EXPIRES_S,
        will_delay_max_s: int = SESSION_NEVER_EXPIRES_S,
        filter_cost_per_client_max: int = 1_000_000_000,
        ticks_per_second_max: int = 1_000_000,
        filter_cost_total_max: int = 1_000_000_000,
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
