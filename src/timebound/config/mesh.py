"""`[[neighbours]]` and `[mesh]`: links to other brokers, and decisions about messages for them."""

# ruff: noqa: RUF009 - `setting` makes a dataclass field, not a call for a default value.

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Literal

from timebound.config.output import (
    epsilon_setting,
    mix_setting,
    shares_setting,
    strategy_setting,
    untimed_share_setting,
)
from timebound.config.tls import NeighbourTlsConfig
from timebound.core.mesh.options import MESH_EPSILON, PREFERENCE, THRIFT, WAITING_SHARE
from timebound.toml.setting import GIBIBYTE, KIBIBYTE, MEBIBYTE, setting


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
    export: tuple[str, ...] = setting(
        "texts", (), "filters of the topics that may go to the neighbour; empty = all"
    )
    import_: tuple[str, ...] = setting(
        "texts", (), "filters of the topics that may come from the neighbour; empty = all"
    )
    origins: tuple[str, ...] = setting(
        "texts",
        (),
        "brokers whose messages, links and subscriptions the neighbour may pass on, beside its own; "
        "empty = any",
    )
    tls: NeighbourTlsConfig | None = None

    @property
    def accepted_user(self) -> str:
        """The user name that the neighbour must log in with, with the default resolved."""
        return self.accept_user or self.name


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
        MESH_EPSILON, "messages with smaller chances rarely arrive: they also wait at later brokers"
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
    forget_after_s: float = setting(
        "duration",
        3_600.0,
        "how long the links and subscriptions of a broker that is gone are remembered; of one that is only "
        "cut off, 24 times as long; 0 = for ever",
    )
