"""`[security]` and `[[acl]]`: who may connect, and what they may do."""

# ruff: noqa: RUF009 - `setting` makes a dataclass field, not a call for a default value.

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Final, Literal

from timebound.core.values.access import AccessRule
from timebound.toml.setting import setting

# What lets clients in on a listener.
TO_LOG_IN: Final = 'set security.password_file, tls.identity = "common_name", or allow_anonymous = true'


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
