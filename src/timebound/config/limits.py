"""`[limits]`: every bound of the broker, its default and the reason for it."""

from __future__ import annotations

from dataclasses import dataclass

import timebound.core.values.limits as defaults
from timebound.core.predicate.predicate import LENGTH_MAX
from timebound.core.values.limits import MQTT_PACKET_BYTES_MAX
from timebound.toml.setting import GIBIBYTE, KIBIBYTE, MEBIBYTE, NEVER_S, setting


@dataclass(frozen=True, slots=True)
class Limits:
    """`[limits]`: every bound of the broker. Reaching one is answered and logged, never fatal."""

    connections_max: int = setting(
        "count", 20_000, "an idle connection costs up to 40 KB: at most 800 MB for all of them", minimum=1
    )
    connections_per_address_max: int = setting(
        "count", 0, "off (0), because many devices may share one address; set it on open networks"
    )
    sessions_max: int = setting(
        "count",
        100_000,
        "sessions, connected or not; each costs some kB until it expires",
        minimum=1,
    )
    packet_size_max: int = setting(
        "size",
        MEBIBYTE,
        "room for telemetry and small files; one packet does not delay others for long",
        minimum=128,
        maximum=MQTT_PACKET_BYTES_MAX,
    )
    packets_per_second_max: int = setting(
        "count",
        0,
        "per client; off (0), because clients differ by orders of magnitude",
    )
    subscriptions_per_client_max: int = setting(
        "count",
        defaults.SUBSCRIPTIONS_PER_CLIENT_MAX,
        "wildcards replace longer lists; one client must not fill the index",
        minimum=1,
    )
    topic_length_max: int = setting(
        "size",
        KIBIBYTE,
        "in UTF-8 bytes, for topic names and topic filters; longer ones are data in the wrong place",
        minimum=1,
        maximum=65_535,
    )
    topic_levels_max: int = setting(
        "count",
        64,
        "the topic tree is as deep as the longest topic; real hierarchies have under 20",
        minimum=1,
    )
    filter_length_max: int = setting(
        "count",
        LENGTH_MAX,
        "characters of a content filter (`where`), at most 4096; limits the cost of parsing one",
        minimum=1,
        was_size=True,
    )
    filter_cost_per_client_max: int = setting(
        "count",
        defaults.FILTER_COST_PER_CLIENT_MAX,
        "worst-case cost of all content filters of a client for one message, in plain tests of 0.3 "
        "us; a text search (`LIKE`, `CONTAINS`) counts 32 and more",
        minimum=1,
    )
    filter_cost_total_max: int = setting(
        "count",
        defaults.FILTER_COST_TOTAL_MAX,
        "the same for all clients together, equal searches counted once: many client ids must not "
        "stop the broker; a message tested by all takes 0.3 s, in steps at which only its publisher waits",
        minimum=1,
    )
    ticks_per_second_max: int = setting(
        "count",
        defaults.TICKS_PER_SECOND_MAX,
        "ticks of `every` and `watchdog`, of all subscriptions of a client; each is a message",
        minimum=1,
    )
    queue_bytes_per_client_max: int = setting(
        "size",
        defaults.QUEUE_BYTES_PER_CLIENT_MAX,
        "memory for a slow or absent reader, unacknowledged messages and bookkeeping included: "
        "about 25,000 small messages, 10,000 with a deadline",
        minimum=1,
    )
    queue_messages_per_client_max: int = setting(
        "count",
        defaults.QUEUE_MESSAGES_PER_CLIENT_MAX,
        "messages queued for one client; small ones reach `queue_bytes_per_client_max` first",
        minimum=1,
    )
    queue_bytes_total_max: int = setting(
        "size",
        defaults.QUEUE_BYTES_TOTAL_MAX,
        "the same for all clients together: many slow readers must not exhaust the memory",
        minimum=1,
    )
    inflight_max: int = setting(
        "count",
        1_024,
        "announced Receive Maximum: keeps a fast publisher busy over a long path, and limits its state here",
        minimum=1,
        maximum=65_535,
    )
    outgoing_inflight_max: int = setting(
        "count",
        defaults.OUTGOING_INFLIGHT_MAX,
        "unacknowledged messages to one client, unless it asks for fewer; the others wait where "
        "they can still be reordered",
        minimum=1,
        maximum=65_535,
    )
    topic_alias_max: int = setting(
        "count",
        64,
        "per connection and direction; costs at most 64 times `topic_length_max`; 0 turns aliases off",
        maximum=65_535,
    )
    keep_alive_max_s: int = setting(
        "seconds",
        0,
        "off (0s): clients choose, as on other brokers; otherwise MQTT 5 clients are told to use at"
        " most this",
        maximum=65_535,
    )
    connect_timeout_s: float = setting(
        "duration",
        10.0,
        "from accepting to CONNECT, TLS and WebSocket handshake included; slow links need seconds, "
        "idle sockets must not accumulate",
        minimum=1,
    )
    session_expiry_max_s: int = setting(
        "seconds",
        defaults.SESSION_EXPIRY_MAX_S,
        "a client absent for a month is gone; with `never`, sessions do not expire",
        maximum=NEVER_S,
    )
    retained_messages_max: int = setting(
        "count",
        defaults.RETAINED_MESSAGES_MAX,
        "one for each topic of a large installation; beyond it new topics are refused",
    )
    retained_bytes_max: int = setting(
        "size",
        defaults.RETAINED_BYTES_MAX,
        "memory of retained messages, with topics: about 250,000 small ones",
    )
    will_delay_max_s: int = setting(
        "seconds",
        defaults.WILL_DELAY_MAX_S,
        "a later will is too late to report that its client left",
        maximum=NEVER_S,
    )
    user_properties_max: int = setting("count", 64, "per packet; each may be tested by every content filter")
    write_buffer_bytes: int = setting(
        "size",
        64 * KIBIBYTE,
        "bytes handed to one connection's socket in advance; these can no longer be reordered or dropped",
        minimum=KIBIBYTE,
        maximum=GIBIBYTE,
    )


def core_limits(limits: Limits) -> defaults.BrokerLimits:
    """Return those of the limits that the core keeps itself."""
    return defaults.BrokerLimits(
        limits.queue_bytes_per_client_max,
        limits.queue_messages_per_client_max,
        limits.queue_bytes_total_max,
        limits.outgoing_inflight_max,
        limits.subscriptions_per_client_max,
        limits.retained_messages_max,
        limits.retained_bytes_max,
        limits.session_expiry_max_s,
        limits.will_delay_max_s,
        limits.filter_cost_per_client_max,
        limits.ticks_per_second_max,
        limits.filter_cost_total_max,
    )
