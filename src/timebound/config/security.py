"""`[security]` and `[[acl]]`: who may connect, and what they may do."""

# ruff: noqa: RUF009 - `setting` makes a dataclass field, it is no call for a default value.

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
