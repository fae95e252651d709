"""The configuration as typed values: every key, its default, its range and the reason for it.

This is the one place where a key is described. The reader (`reader.py`) takes the
ranges from here, and a test compares `docs/configuration.md` with it row by row. Nothing here
touches a file.

It is long because all keys stand in it: one place to look at, and nothing here but their description.
"""

# ruff: noqa: RUF009 - `setting` makes a dataclass field, it is no call for a default value.

from __future__ import annotations

import ipaddress
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import timebound.core.values.limits as defaults
from timebound.config.renames import ConfigNotice
from timebound.core.input.cells import EVEN, ORDERS, WEIGHT_MAX
from timebound.core.input.policer import EXCESS_MODES, LOWER
from timebound.core.link.queue import EPSILON
from timebound.core.link.strategy.registry import DEFAULT_STRATEGY, STRATEGY_NAMES
from timebound.core.mesh.options import MESH_EPSILON, PREFERENCE, THRIFT, WAITING_SHARE
from timebound.core.predicate.predicate import LENGTH_MAX
from timebound.core.values.access import AccessRule
from timebound.toml.setting import setting

# What a value is made of; `config_reader.py` has one function for each.
Kind = Literal[
    "text", "path", "switch", "count", "size", "duration", "seconds", "choice", "texts", "fraction"
]

KIBIBYTE: Final = 1024
MEBIBYTE: Final = defaults.MEBIBYTE
GIBIBYTE: Final = 1024 * MEBIBYTE
DAY_S: Final = defaults.DAY_S
# MQTT 5, 2.1.4: the largest remaining length, and the header before it.
MQTT_PACKET_BYTES_MAX: Final = 268_435_455 + 5
# MQTT 5, 3.1.2.11.2: this session expiry interval means "never".
NEVER_S: Final = defaults.SESSION_NEVER_EXPIRES_S
UNLIMITED: Final = 1 << 53
# What lets clients in on a listener.
TO_LOG_IN: Final = 'set security.password_file, tls.identity = "common_name", or allow_anonymous = true'


# Listeners and links to brokers have these alike.


def strategy_setting(link: str) -> Any:
    reason = (
        f"which waiting message goes next when {link} cannot carry all in time; "
        "docs/scheduling.md compares them"
    )
    return setting("choice", DEFAULT_STRATEGY, reason, choices=STRATEGY_NAMES)


def mix_setting() -> Any:
    return setting(
        "count",
        None,
        "of a strategy that mixes two aims: the part of the first, r of `ebpc` and w of `mtep`; "
        "left out: the strategy's own",
        maximum=100,
    )


def epsilon_setting(default: float, why: str) -> Any:
    reason = f"ε: a message with no more than this chance to arrive in time is dropped; {why}"
    return setting("fraction", default, reason, least=0.000_001, most=0.5)


def untimed_share_setting() -> Any:
    return setting(
        "count",
        5,
        "of a link that has more to send than it can: what messages without a time limit keep, "
        "so that they never starve",
        maximum=90,
    )


def shares_setting() -> Any:
    return setting(
        "texts",
        (),
        "classes of messages by topic, like `plant/+/alarm=20`: the least percent of a full link that "
        "each keeps, so that none starves; of several that match a topic, the most specific one counts",
    )


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """`[listeners.tls]`: how one listener encrypts, and whether certificates name users."""

    certificate: Path = setting(
        "path", MISSING, "the server's certificate chain in PEM; clients cannot verify the broker without it"
    )
    key: Path = setting("path", MISSING, "the private key that belongs to `certificate`, in PEM")
    ca: Path | None = setting(
        "path",
        None,
        "CA certificates in PEM for client certificates; without it none are requested",
    )
    require_client_certificate: bool = setting(
        "switch", False, "refuse clients without a certificate during the handshake; needs `ca`"
    )
    identity: Literal["none", "common_name"] = setting(
        "choice",
        "none",
        "`common_name` takes the user name from the client certificate, so no password is needed; needs `ca`",
        choices=("none", "common_name"),
    )


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """`[[listeners]]`: one address to accept connections on."""

    name: str = setting("text", "", "name in logs and errors; empty = made from kind, host and port")
    host: str = setting("text", "127.0.0.1", "the default is reachable from this machine only")
    port: int = setting(
        "count", 1883, "the port registered for MQTT; 0 = a free port (for tests)", maximum=65_535
    )
    kind: Literal["tcp", "websocket"] = setting(
        "choice",
        "tcp",
        "MQTT directly over TCP, or in WebSocket frames for browsers",
        choices=("tcp", "websocket"),
    )
    path: str = setting(
        "text", "/mqtt", "path of the WebSocket endpoint; the default is that of most client libraries"
    )
    origins: tuple[str, ...] = setting(
        "texts",
        (),
        "web origins whose pages may connect; if empty, browsers are refused and other clients "
        "served, because any page could otherwise reach a broker on its visitor's machine; `*` = "
        "any",
    )
    tls: TlsConfig | None = None
    allow_anonymous: bool | None = setting(
        "switch",
        None,
        "accept clients without a user name; default: only if `host` is a loopback address, so that"
        " nothing is open to a network by accident",
    )

    strategy: str = strategy_setting("a link of this listener")
    strategy_mix_percent: int | None = mix_setting()
    untimed_share_percent: int = untimed_share_setting()
    shares: tuple[str, ...] = shares_setting()
    link_bytes_per_second: int = setting(
        "size",
        0,
        "speed of the links if known: sessions with time limits are never sent more; 0 = measured",
    )
    epsilon: float = epsilon_setting(
        EPSILON, "what is all but hopeless should not take a link's time from others"
    )
    margin_s: float = setting(
        "duration",
        0.0,
        "assumed delay in hidden buffers behind the link, for messages that had to wait; "
        "acknowledgements of QoS 1 and 2 measure it, and the larger value counts",
        maximum=3_600,
    )

    @property
    def anonymous_allowed(self) -> bool:
        """Whether clients without a user name get in here, with the default resolved."""
        if self.allow_anonymous is None:
            return is_loopback(self.host)
        return self.allow_anonymous

    @property
    def label(self) -> str:
        """The name to show people."""
        return self.name or f"{self.kind} {self.host}:{self.port}"

    def allows_origin(self, origin: str | None) -> bool:
        """Whether a WebSocket request with this Origin header (None: it has none) is served."""
        return origin is None or "*" in self.origins or origin in self.origins


@dataclass(frozen=True, slots=True)
class DataConfig:
    """`[data]`: where the broker keeps what must survive a restart."""

    path: Path = setting(
        "path",
        Path("data"),
        "folder of the broker's data; relative to the configuration file",
    )
    fsync: bool = setting(
        "switch",
        True,
        "acknowledged messages survive a power cut; without it, only the end of the process",
    )


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    """`[security]`: who may connect and what they may do; `rules` are the `[[acl]]` entries."""

    password_file: Path | None = setting(
        "path",
        None,
        "users and their passwords, made by `timebound passwd`; without it, supplied user names are ignored",
    )
    acl_file: Path | None = setting(
        "path", None, "file of access rules, one per line; use either this or `[[acl]]`, not both"
    )
    anonymous_user: str = setting("text", "", "user name in access rules for clients without one")
    take_over_from_others: bool = setting(
        "switch",
        False,
        "a client with another user's client id ends that user's session and gets an empty one; "
        "otherwise it is refused (0x87)",
    )
    rules: tuple[AccessRule, ...] = ()


@dataclass(frozen=True, slots=True)
class AclEntry:
    """`[[acl]]`: one access rule; the first that applies decides."""

    user: str = setting("text", MISSING, 'a user name; "*" = every client, "" = clients without a name')
    filter: str = setting(
        "text", MISSING, "a topic filter; `%u` stands for the user name and `%c` for the client id"
    )
    action: Literal["publish", "subscribe", "all"] = setting(
        "choice",
        "all",
        "most rules are for publishing and subscribing alike",
        choices=("publish", "subscribe", "all"),
    )
    allow: bool = setting(
        "switch", True, "allow or deny; with any rule present all else is denied, so most rules allow"
    )


@dataclass(frozen=True, slots=True)
class WeightEntry:
    """`[[weights]]`: how often messages of some topics are taken from the input queues."""

    topic: str = setting(
        "text", MISSING, "a topic filter; of several that match a topic, the most specific one counts"
    )
    weight: int = setting(
        "count", MISSING, "turns per cycle, relative to all others", minimum=1, maximum=WEIGHT_MAX
    )


@dataclass(frozen=True, slots=True)
class InputConfig:
    """`[input]`: in which order messages are taken in, and what is promised to advertised flows."""

    default_weight: int = setting(
        "count", 1, "weight of topics without an entry in `[[weights]]`", minimum=1, maximum=WEIGHT_MAX
    )
    quantum_bytes: int = setting(
        "size",
        KIBIBYTE,
        "a larger message takes several turns, so that others get turns in between; most telemetry takes one",
        minimum=64,
        maximum=MEBIBYTE,
    )
    queue_quanta_max: int = setting(
        "count",
        256,
        "input of one client that may wait before its socket is left unread; bytes in the socket "
        "cost no memory, and no time of others",
        minimum=16,
        maximum=65_536,
    )
    turn_s: float = setting(
        "duration",
        0.001,
        "time spent on input before sockets are polled again; a longer turn costs delay, a shorter "
        "one throughput",
    )
    order: Literal["paper", "even"] = setting(
        "choice", EVEN, "order of the turns in a cycle; `even` is never worse: docs/bounds.md", choices=ORDERS
    )
    reserved_percent: int = setting(
        "count",
        50,
        "share of the measured service rate that guarantees of advertised flows may use; the rest "
        "stays for everyone else",
        maximum=95,
    )
    excess: Literal["lower", "refuse"] = setting(
        "choice",
        LOWER,
        "messages beyond an advertisement are queued with those of no flow, or refused",
        choices=EXCESS_MODES,
    )
    flows_max: int = setting(
        "count",
        200,
        "advertised flows; each answer checks all of them, a refusal with 200 takes about 3 ms",
        maximum=1_000,
    )
    flows_per_client_max: int = setting(
        "count", 50, "advertised flows of one client, so that none takes all", maximum=1_000
    )
    advertisements_per_second_max: int = setting(
        "count",
        10,
        "of one client, beyond `flows_per_client_max` at once; the broker checks every flow for each",
        minimum=1,
    )
    advertising_percent_max: int = setting(
        "count",
        10,
        "share of the processor for answers to advertisements and weights, of all clients",
        minimum=1,
        maximum=100,
    )
    quantum_time_s: float = setting(
        "duration", 0.0, "longest time of one turn of one message; 0s = measured continuously"
    )
    stall_allowance_s: float = setting(
        "duration",
        0.02,
        "allowance for scheduling stalls of the machine; added to every delay bound. Longer stalls count "
        "once they were measured; a few milliseconds do where the broker has a processor to itself",
    )
    weights: tuple[WeightEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceConfig:
    """`[trace]`: one record for every matched (message, subscription), as Parquet files."""

    enabled: bool = setting("switch", False, "off, because it needs disk space; needs the package `pyarrow`")
    path: Path = setting(
        "path", Path("trace"), "folder of the trace, with one folder per day and node; relative to this file"
    )
    file_bytes_max: int = setting(
        "size",
        64 * MEBIBYTE,
        "a file is closed at this size; smaller files slow Spark down",
        minimum=KIBIBYTE,
    )
    file_age_max_s: float = setting(
        "duration",
        60.0,
        "a file is closed at this age; until then readers do not see it, and a power cut loses it",
        minimum=1,
    )
    disk_bytes_max: int = setting(
        "size", 4 * GIBIBYTE, "limit for all files; beyond it the oldest are removed", minimum=MEBIBYTE
    )


@dataclass(frozen=True, slots=True)
class JournalConfig:
    """`[[journals]]`: messages kept on disk with offsets, for programs that read them in ranges."""

    name: str = setting(
        "text", MISSING, "name for readers, and of its folder; letters, digits, `.`, `_`, `-`"
    )
    filter: str = setting("text", "#", "topic filter of the messages it keeps")
    trace: bool = setting(
        "switch",
        False,
        "keep the records of the trace instead: the outcome of each matched (message, subscription)",
    )
    bytes_max: int = setting(
        "size", GIBIBYTE, "on disk; beyond it the oldest segment is removed", minimum=MEBIBYTE
    )
    age_max_s: float = setting(
        "duration", 7.0 * DAY_S, "what is older is removed, segment by segment", minimum=1
    )


@dataclass(frozen=True, slots=True)
class FlightConfig:
    """`[flight]`: where journals are read and rows published, over Arrow Flight."""

    enabled: bool | None = setting(
        "switch", None, "default: on if there is a journal; needs the package `pyarrow`"
    )
    host: str = setting("text", "127.0.0.1", "the default is reachable from this machine only")
    port: int = setting("count", 8815, "the port most Flight programs use; 0 = a free port", maximum=65_535)
    allow_anonymous: bool | None = setting(
        "switch", None, "serve programs without a user name; default: only if `host` is a loopback address"
    )
    staged_bytes_max: int = setting(
        "size",
        GIBIBYTE,
        "limit for rows that wait on disk to be published, of all programs",
        minimum=MEBIBYTE,
    )
    tls: TlsConfig | None = None

    @property
    def anonymous_allowed(self) -> bool:
        """Whether programs without a user name are served, with the default resolved."""
        return is_loopback(self.host) if self.allow_anonymous is None else self.allow_anonymous


@dataclass(frozen=True, slots=True)
class NeighbourTlsConfig:
    """`[neighbours.tls]`: how the link to a neighbour is encrypted, when this broker opens it."""

    ca: Path = setting("path", MISSING, "CA certificates in PEM for the neighbour's certificate")
    certificate: Path | None = setting(
        "path", None, "this broker's own certificate in PEM, if the neighbour asks for one; needs `key`"
    )
    key: Path | None = setting("path", None, "the private key that belongs to `certificate`, in PEM")


@dataclass(frozen=True, slots=True)
class NeighbourConfig:
    """`[[neighbours]]`: a broker that this one is linked with."""

    name: str = setting("text", MISSING, "its `node_name`; a broker with another name is refused")
    host: str = setting("text", "", "host of its listener; empty = the neighbour opens the link")
    port: int = setting("count", 1883, "port of its listener for brokers", minimum=1, maximum=65_535)
    user: str = setting("text", "", "user name of this broker there")
    password_file: Path | None = setting("path", None, "file with the password for `user` and nothing else")
    accept_user: str = setting(
        "text",
        "",
        "user name that the neighbour must log in with here; empty = its `name`, or none on a "
        "listener that accepts anonymous clients",
    )
    link_bytes_per_second: int = setting(
        "size",
        0,
        "the speed of the link where it is known: it is never sent more; 0: it is measured from the start",
    )
    keep_alive_s: int = setting(
        "seconds",
        5,
        "a link is down after 1.5 times this time of silence",
        minimum=1,
        maximum=65_535,
    )
    strategy: str = strategy_setting("this link")
    strategy_mix_percent: int | None = mix_setting()
    untimed_share_percent: int = untimed_share_setting()
    shares: tuple[str, ...] = shares_setting()
    tls: NeighbourTlsConfig | None = None


@dataclass(frozen=True, slots=True)
class MeshConfig:
    """`[mesh]`: how this broker decides about messages for other brokers; the same for all its links."""

    routing: Literal["late", "single-path"] = setting(
        "choice",
        "late",
        "`late`: a message is queued for every link that leads nearer, and the best free one sends "
        "it; `single-path`: it takes the path of smallest mean delay, as in the papers",
        choices=("late", "single-path"),
    )
    epsilon: float = epsilon_setting(
        MESH_EPSILON, "it queues at later brokers too, so less than the default is hardly ever kept"
    )
    preference: float = setting(
        "fraction",
        PREFERENCE,
        "for `late`: a link leaves a message to another one whose expected worth is more than 1 / "
        "this times its own; 0 = the first free link sends it",
    )
    waiting_share: float = setting(
        "fraction",
        WAITING_SHARE,
        "share of the queueing delays reported by neighbours that is counted; urgent messages wait "
        "less than the mean",
    )
    thrift: float = setting(
        "fraction",
        THRIFT,
        "how early a message of little worth is dropped before a congested path; off (0), because "
        "it costs earnings on many meshes: docs/decisions/0055-send-cost.md",
        most=100.0,
    )
    queue_messages_max: int = setting(
        "count",
        10_000,
        "queue of one link, for messages with a time limit and for those without: beyond it the "
        "former are dropped by worth, and publishers of the latter wait",
        minimum=1,
        maximum=1_000_000,
    )
    queue_bytes_max: int = setting(
        "size", 32 * MEBIBYTE, "like `queue_messages_max`, in bytes", minimum=KIBIBYTE, maximum=GIBIBYTE
    )
    grace_s: float = setting(
        "duration",
        30.0,
        "how long QoS 1 and 2 messages wait for a broker that cannot be reached; a failed link is "
        "opened again within 5 s",
    )


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """`[metrics]`: figures for Prometheus over HTTP, at `/metrics`."""

    host: str = setting(
        "text",
        "127.0.0.1",
        "metrics reveal clients and topics; the default is reachable from this machine only",
    )
    port: int = setting("count", 0, "0 = off; nothing listens unless configured", maximum=65_535)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """`[log]`: what the broker writes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = setting(
        "choice",
        "info",
        "`info` shows connections, refusals and limits, but no messages",
        choices=("debug", "info", "warning", "error"),
    )
    format: Literal["text", "json"] = setting(
        "choice",
        "text",
        "lines for people, or one JSON object per line for programs",
        choices=("text", "json"),
    )


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
        "stop the broker; a message tested by all takes 0.3 s",
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
        "a will that comes later no longer tells that its client went away",
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


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration of one broker."""

    node_name: str = setting(
        "text", "timebound", "name of this broker in logs, `$SYS` and records; letters, digits, `.`, `_`, `-`"
    )
    sys_interval_s: float = setting(
        "duration", 10.0, "interval of publishing `$SYS`, as on other brokers; 0s = off"
    )
    data: DataConfig = DataConfig()
    listeners: tuple[ListenerConfig, ...] = (ListenerConfig(),)
    security: SecurityConfig = SecurityConfig()
    limits: Limits = Limits()
    input: InputConfig = InputConfig()
    trace: TraceConfig = TraceConfig()
    journals: tuple[JournalConfig, ...] = ()
    flight: FlightConfig = FlightConfig()
    neighbours: tuple[NeighbourConfig, ...] = ()
    mesh: MeshConfig = MeshConfig()
    metrics: MetricsConfig = MetricsConfig()
    log: LogConfig = LogConfig()
    # What should be changed in the file, though it can be used; no part of what it says.
    notices: tuple[ConfigNotice, ...] = field(default=(), compare=False)

    @property
    def flight_enabled(self) -> bool:
        """Whether journals are served, with the default resolved."""
        return bool(self.journals) if self.flight.enabled is None else self.flight.enabled

    def lets_somebody_in(self, listener: ListenerConfig) -> bool:
        """Whether any client could log in there."""
        if listener.anonymous_allowed or self.security.password_file is not None:
            return True
        return listener.tls is not None and listener.tls.identity != "none"


# Tables of the file by their TOML name.
TABLES: Final[tuple[tuple[str, type], ...]] = (
    ("", Config),
    ("data", DataConfig),
    ("listeners", ListenerConfig),
    ("listeners.tls", TlsConfig),
    ("security", SecurityConfig),
    ("acl", AclEntry),
    ("limits", Limits),
    ("input", InputConfig),
    ("weights", WeightEntry),
    ("trace", TraceConfig),
    ("journals", JournalConfig),
    ("flight", FlightConfig),
    ("flight.tls", TlsConfig),
    ("neighbours", NeighbourConfig),
    ("neighbours.tls", NeighbourTlsConfig),
    ("mesh", MeshConfig),
    ("metrics", MetricsConfig),
    ("log", LogConfig),
)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; a name counts only if it is `localhost`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
