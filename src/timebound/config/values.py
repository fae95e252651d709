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
        "certificates in PEM that client certificates must descend from; none: they are not asked for",
    )
    require_client_certificate: bool = setting(
        "switch", False, "turn away clients without a certificate during the handshake; needs `ca`"
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

    name: str = setting("text", "", "how logs and mistakes call it; empty: made from kind, host and port")
    host: str = setting(
        "text", "127.0.0.1", "only this machine can reach it until the configuration says otherwise"
    )
    port: int = setting(
        "count", 1883, "the port registered for MQTT; 0 takes a free one (for tests)", maximum=65_535
    )
    kind: Literal["tcp", "websocket"] = setting(
        "choice",
        "tcp",
        "MQTT straight over TCP, or inside WebSocket frames for browsers",
        choices=("tcp", "websocket"),
    )
    path: str = setting(
        "text", "/mqtt", "the path of the WebSocket endpoint that client libraries use by default"
    )
    origins: tuple[str, ...] = setting(
        "texts",
        (),
        "web origins whose pages may connect; with none, browsers are refused and other clients served, "
        "because any page could otherwise reach a broker on its visitor's machine; `*` is any",
    )
    tls: TlsConfig | None = None
    allow_anonymous: bool | None = setting(
        "switch",
        None,
        "let clients in without a user name; left out: only if `host` is a loopback address, "
        "so that nothing is open to a network by accident",
    )

    strategy: str = strategy_setting("a link of this listener")
    strategy_mix_percent: int | None = mix_setting()
    untimed_share_percent: int = untimed_share_setting()
    shares: tuple[str, ...] = shares_setting()
    link_bytes_per_second: int = setting(
        "size",
        0,
        "the speed of links where it is known: sessions with time limits are never sent more; "
        "0: it is measured",
    )
    epsilon: float = epsilon_setting(
        EPSILON, "what is all but hopeless should not take a link's time from others"
    )
    margin_s: float = setting(
        "duration",
        0.0,
        "time that what had to wait is taken to spend behind the link, in buffers that nothing reports; "
        "acknowledgements of QoS 1 and 2 measure it, and the larger counts",
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
        "a folder that can be seen, copied and deleted; relative to the configuration file",
    )
    fsync: bool = setting(
        "switch",
        True,
        "an acknowledged message then survives a power cut; without it, only the end of the process",
    )


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    """`[security]`: who may connect and what they may do; `rules` are the `[[acl]]` entries."""

    password_file: Path | None = setting(
        "path",
        None,
        "users and their passwords, made by `timebound passwd`; without it nobody can prove a user name, "
        "and names that clients give are ignored",
    )
    acl_file: Path | None = setting(
        "path", None, "a file of access rules, one a line; use either this or `[[acl]]`, not both"
    )
    anonymous_user: str = setting("text", "", "the user name that access rules see for clients without one")
    take_over_from_others: bool = setting(
        "switch",
        False,
        "whether a client with another user's client id ends that user's session and gets an empty one; "
        "otherwise it is refused (0x87)",
    )
    rules: tuple[AccessRule, ...] = ()


@dataclass(frozen=True, slots=True)
class AclEntry:
    """`[[acl]]`: one access rule; the first that applies decides."""

    user: str = setting("text", MISSING, 'a user name; "*" for every client, "" for those without a name')
    filter: str = setting(
        "text", MISSING, "a topic filter; `%u` becomes the user name in it and `%c` the client id"
    )
    action: Literal["publish", "subscribe", "all"] = setting(
        "choice",
        "all",
        "most rules are about a topic, whatever is done with it",
        choices=("publish", "subscribe", "all"),
    )
    allow: bool = setting("switch", True, "with any rule present all else is denied, so most rules allow")


@dataclass(frozen=True, slots=True)
class WeightEntry:
    """`[[weights]]`: how often messages of some topics are taken from the input queues."""

    topic: str = setting(
        "text", MISSING, "a topic filter; of several that match a topic, the most specific one counts"
    )
    weight: int = setting(
        "count", MISSING, "turns in a cycle; relative to all others", minimum=1, maximum=WEIGHT_MAX
    )


@dataclass(frozen=True, slots=True)
class InputConfig:
    """`[input]`: in which order messages are taken in, and what is promised to advertised flows."""

    default_weight: int = setting(
        "count", 1, "of topics that no `[[weights]]` names", minimum=1, maximum=WEIGHT_MAX
    )
    quantum_bytes: int = setting(
        "size",
        KIBIBYTE,
        "a larger message takes several turns, so that others go on between; most telemetry takes one",
        minimum=64,
        maximum=MEBIBYTE,
    )
    queue_quanta_max: int = setting(
        "count",
        256,
        "what may wait of one client before its socket is left unread; "
        "what stays in the socket costs no memory, and no time of others",
        minimum=16,
        maximum=65_536,
    )
    turn_s: float = setting(
        "duration",
        0.001,
        "messages are taken in for so long before sockets are read and written again; "
        "a longer turn costs delay, a shorter one throughput",
    )
    order: Literal["paper", "even"] = setting(
        "choice", EVEN, "of the turns in a cycle; `even` is never worse: docs/bounds.md", choices=ORDERS
    )
    reserved_percent: int = setting(
        "count",
        50,
        "of the measured service rate: what advertised flows may be promised in all; "
        "the rest stays for everyone else",
        maximum=95,
    )
    excess: Literal["lower", "refuse"] = setting(
        "choice",
        LOWER,
        "what a flow sends beyond its advertisement waits with messages that have none, or is refused",
        choices=EXCESS_MODES,
    )
    flows_max: int = setting(
        "count",
        200,
        "advertised flows; every answer looks at all of them, a refusal of 200 takes about 3 ms",
        maximum=1_000,
    )
    flows_per_client_max: int = setting("count", 50, "of one client, so that none takes all", maximum=1_000)
    advertisements_per_second_max: int = setting(
        "count",
        10,
        "of one client, beyond `flows_per_client_max` at once; each makes the broker look at every flow",
        minimum=1,
    )
    advertising_percent_max: int = setting(
        "count",
        10,
        "of the processor's time for answers to advertisements and weights, of all clients",
        minimum=1,
        maximum=100,
    )
    quantum_time_s: float = setting(
        "duration", 0.0, "how long one turn of one message takes at most; 0s: it is measured all the time"
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

    enabled: bool = setting("switch", False, "off, because it takes disk; needs the package `pyarrow`")
    path: Path = setting(
        "path", Path("trace"), "a folder with a folder for each day and node; relative to this file"
    )
    file_bytes_max: int = setting(
        "size", 64 * MEBIBYTE, "a file is closed at this size; smaller ones cost Spark time", minimum=KIBIBYTE
    )
    file_age_max_s: float = setting(
        "duration",
        60.0,
        "a file is closed at this age; until then readers do not see it, and a loss of power loses it",
        minimum=1,
    )
    disk_bytes_max: int = setting(
        "size", 4 * GIBIBYTE, "for all files together; the oldest are removed beyond it", minimum=MEBIBYTE
    )


@dataclass(frozen=True, slots=True)
class JournalConfig:
    """`[[journals]]`: messages kept on disk with offsets, for programs that read them in ranges."""

    name: str = setting(
        "text", MISSING, "how readers call it, and the name of its folder; letters, digits, `.`, `_`, `-`"
    )
    filter: str = setting("text", "#", "the topic filter of the messages it keeps")
    trace: bool = setting(
        "switch",
        False,
        "it keeps the records of the trace instead: what became of each matched (message, subscription)",
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
        "switch", None, "left out: if there is a journal; needs the package `pyarrow`"
    )
    host: str = setting("text", "127.0.0.1", "only this machine, until the configuration says otherwise")
    port: int = setting(
        "count", 8815, "the port most Flight programs use; 0 takes a free one", maximum=65_535
    )
    allow_anonymous: bool | None = setting(
        "switch", None, "serve programs without a user name; left out: only if `host` is a loopback address"
    )
    staged_bytes_max: int = setting(
        "size",
        GIBIBYTE,
        "rows that were handed in and not published yet, of all programs; they wait on disk",
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

    ca: Path = setting("path", MISSING, "certificates in PEM that the neighbour's must descend from")
    certificate: Path | None = setting(
        "path", None, "this broker's own certificate in PEM, if the neighbour asks for one; needs `key`"
    )
    key: Path | None = setting("path", None, "the private key that belongs to `certificate`, in PEM")


@dataclass(frozen=True, slots=True)
class NeighbourConfig:
    """`[[neighbours]]`: a broker that this one is linked with."""

    name: str = setting("text", MISSING, "its `node_name`; whoever calls itself otherwise is refused")
    host: str = setting("text", "", "where it listens; empty: it opens the link, this broker waits for it")
    port: int = setting("count", 1883, "of its listener for brokers", minimum=1, maximum=65_535)
    user: str = setting("text", "", "the user name that this broker gives there")
    password_file: Path | None = setting(
        "path", None, "a file that holds the password for `user` and nothing else"
    )
    accept_user: str = setting(
        "text",
        "",
        "the user name that the neighbour must log in with here; empty: its `name`, or none on a listener "
        "where clients need none either",
    )
    link_bytes_per_second: int = setting(
        "size",
        0,
        "the speed of the link where it is known: it is never sent more; 0: it is measured from the start",
    )
    keep_alive_s: int = setting(
        "seconds",
        5,
        "a link that is silent for one and a half times as long is down",
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
        "`late`: a message waits for every link that leads nearer, and the best one that is free takes it; "
        "`single-path`: it takes the path of smallest mean delay, as the papers have it",
        choices=("late", "single-path"),
    )
    epsilon: float = epsilon_setting(
        MESH_EPSILON, "it queues at later brokers too, so less than the default is hardly ever kept"
    )
    preference: float = setting(
        "fraction",
        PREFERENCE,
        "of `late`: a link leaves a message to another one that promises more than 1 / this much of its own "
        "worth; 0: the first free link takes it",
    )
    waiting_share: float = setting(
        "fraction",
        WAITING_SHARE,
        "the part counted on of the waiting times that neighbours report; what is urgent waits less "
        "than the mean",
    )
    thrift: float = setting(
        "fraction",
        THRIFT,
        "how soon a message worth little is given up before a congested way; off (0), because it costs "
        "earnings on many meshes: docs/decisions/0055-send-cost.md",
        most=100.0,
    )
    queue_messages_max: int = setting(
        "count",
        10_000,
        "of one link, for messages with a time limit and for those without: beyond it the former are dropped "
        "by worth, and publishers of the latter wait",
        minimum=1,
        maximum=1_000_000,
    )
    queue_bytes_max: int = setting(
        "size", 32 * MEBIBYTE, "as `queue_messages_max`, in bytes", minimum=KIBIBYTE, maximum=GIBIBYTE
    )
    grace_s: float = setting(
        "duration",
        30.0,
        "QoS 1 and 2 messages wait for so long for a broker that cannot be reached; a link that fails is "
        "opened again within 5 s",
    )


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """`[metrics]`: figures for Prometheus over HTTP, at `/metrics`."""

    host: str = setting("text", "127.0.0.1", "figures tell about clients and topics; only this machine asks")
    port: int = setting("count", 0, "0: off; nothing listens that was not asked for", maximum=65_535)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """`[log]`: what the broker writes to standard error."""

    level: Literal["debug", "info", "warning", "error"] = setting(
        "choice",
        "info",
        "connections, refusals and limits, but no messages",
        choices=("debug", "info", "warning", "error"),
    )
    format: Literal["text", "json"] = setting(
        "choice", "text", "lines for people, or one JSON object a line for programs", choices=("text", "json")
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """`[limits]`: every bound of the broker. Reaching one is answered and logged, never fatal."""

    connections_max: int = setting(
        "count", 20_000, "an idle connection costs up to 40 KB: at most 800 MB for all of them", minimum=1
    )
    connections_per_address_max: int = setting(
        "count", 0, "off (0), because many devices may stand behind one address; set it on open networks"
    )
    sessions_max: int = setting(
        "count",
        100_000,
        "sessions, connected or not: one that outlasts its client costs some kB for as long as it lasts",
        minimum=1,
    )
    packet_size_max: int = setting(
        "size",
        MEBIBYTE,
        "room for any telemetry and small files, while one packet does not hold up the others for long",
        minimum=128,
        maximum=MQTT_PACKET_BYTES_MAX,
    )
    packets_per_second_max: int = setting(
        "count",
        0,
        "off (0), because what a client should send differs by orders of magnitude; counted per client",
    )
    subscriptions_per_client_max: int = setting(
        "count",
        defaults.SUBSCRIPTIONS_PER_CLIENT_MAX,
        "wildcards replace longer lists; a client cannot fill the index alone",
        minimum=1,
    )
    topic_length_max: int = setting(
        "size",
        KIBIBYTE,
        "in UTF-8 bytes, for topic names and topic filters; longer ones are data put into the wrong place",
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
        "characters of a content filter (`where`), which never has more than 4096; "
        "bounds what one filter costs to parse",
        minimum=1,
        was_size=True,
    )
    filter_cost_per_client_max: int = setting(
        "count",
        defaults.FILTER_COST_PER_CLIENT_MAX,
        "what all content filters of a client cost for one message at worst, in plain tests of 0.3 us; "
        "a search of a text (`LIKE`, `CONTAINS`) counts 32 and more",
        minimum=1,
    )
    filter_cost_total_max: int = setting(
        "count",
        defaults.FILTER_COST_TOTAL_MAX,
        "the same for all clients together, equal searches once: many client ids must not stop the broker; "
        "a message that meets them all takes 0.3 s",
        minimum=1,
    )
    ticks_per_second_max: int = setting(
        "count",
        defaults.TICKS_PER_SECOND_MAX,
        "`every` and `watchdog` of all subscriptions of a client; each tick is a message of the broker's",
        minimum=1,
    )
    queue_bytes_per_client_max: int = setting(
        "size",
        defaults.QUEUE_BYTES_PER_CLIENT_MAX,
        "memory that a slow or absent reader costs, bookkeeping and what it has not acknowledged included: "
        "about 25,000 small messages, 10,000 with a deadline",
        minimum=1,
    )
    queue_messages_per_client_max: int = setting(
        "count",
        defaults.QUEUE_MESSAGES_PER_CLIENT_MAX,
        "messages that wait for one client; small ones reach `queue_bytes_per_client_max` before",
        minimum=1,
    )
    queue_bytes_total_max: int = setting(
        "size",
        defaults.QUEUE_BYTES_TOTAL_MAX,
        "the same for all clients together: many slow readers must not use up the machine",
        minimum=1,
    )
    inflight_max: int = setting(
        "count",
        1_024,
        "Receive Maximum that is announced: keeps a fast publisher busy over a long path, "
        "and bounds its state here",
        minimum=1,
        maximum=65_535,
    )
    outgoing_inflight_max: int = setting(
        "count",
        defaults.OUTGOING_INFLIGHT_MAX,
        "unacknowledged messages to one client, if it asks for no smaller number; "
        "the others wait where they can still be reordered",
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
        "off (0s): clients choose, as they may on any broker; "
        "otherwise MQTT 5 clients are told to use at most this",
        maximum=65_535,
    )
    connect_timeout_s: float = setting(
        "duration",
        10.0,
        "from accepting to CONNECT, TLS and WebSocket handshake included; "
        "slow links need seconds, idle sockets must not collect",
        minimum=1,
    )
    session_expiry_max_s: int = setting(
        "seconds",
        defaults.SESSION_EXPIRY_MAX_S,
        "a client that stays away for a month is gone; `never` lets sessions live for ever",
        maximum=NEVER_S,
    )
    retained_messages_max: int = setting(
        "count",
        defaults.RETAINED_MESSAGES_MAX,
        "one for each topic of a large installation; new topics are refused beyond, known ones are not",
    )
    retained_bytes_max: int = setting(
        "size",
        defaults.RETAINED_BYTES_MAX,
        "memory that they cost, with their topics: about 250,000 small messages",
    )
    will_delay_max_s: int = setting(
        "seconds",
        defaults.WILL_DELAY_MAX_S,
        "a will that waits longer no longer tells that its client went away",
        maximum=NEVER_S,
    )
    user_properties_max: int = setting(
        "count", 64, "in one packet; each is an object and may be tested by every content filter"
    )
    write_buffer_bytes: int = setting(
        "size",
        64 * KIBIBYTE,
        "handed to one connection's socket ahead of its sending; "
        "what is beyond recall cannot be reordered or dropped",
        minimum=KIBIBYTE,
        maximum=GIBIBYTE,
    )


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration of one broker."""

    node_name: str = setting(
        "text", "timebound", "tells brokers apart in logs, `$SYS` and records; letters, digits, `.`, `_`, `-`"
    )
    sys_interval_s: float = setting(
        "duration", 10.0, "how often `$SYS` is published; as other brokers do; 0s turns it off"
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
