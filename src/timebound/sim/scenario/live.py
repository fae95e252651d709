"""What a scenario takes from live configurations: brokers, their links, and where clients connect."""

from __future__ import annotations

from timebound.config.listeners import ListenerConfig
from timebound.config.values import Config
from timebound.errors import ConfigError


def links_of(configs: tuple[Config, ...]) -> tuple[tuple[str, str], ...]:
    """Return the links between brokers of live configurations.

    Raises:
        ConfigError: two have one name, or a neighbour is missing or does not know the broker.
    """
    by_name = {config.node_name: config for config in configs}
    if len(by_name) < len(configs):
        raise ConfigError("two configurations have the same node_name", key="node_name")
    links: dict[tuple[str, str], None] = {}
    for config in configs:
        for neighbour in config.neighbours:
            other = by_name.get(neighbour.name)
            if other is None:
                text = f"neighbour {neighbour.name!r} of {config.node_name!r} is not among the configurations"
                raise ConfigError(text, key="neighbours")
            if config.node_name not in [one.name for one in other.neighbours]:
                text = f"{neighbour.name!r} would refuse {config.node_name!r}, which is not its neighbour"
                raise ConfigError(text, key="neighbours")
            first, second = sorted((config.node_name, neighbour.name))
            links[first, second] = None
    return tuple(links)


def listener_number(config: Config, label: str) -> int:
    """Return the place of a listener by its label; without a label, the first.

    Raises:
        ValueError: the broker has no such listener.
    """
    labels = [one.label for one in config.listeners]
    if not label:
        return 0
    if label not in labels:
        raise ValueError(f"{config.node_name!r} has no listener {label!r}; it has {', '.join(labels)}")
    return labels.index(label)


def login_note(config: Config, listener: ListenerConfig, user: str) -> str:
    """Return how a client of this user name is treated otherwise than on a network; empty if it is not.

    Passwords and certificates are not simulated: every client that names a user counts as that user.
    """
    if user and config.security.password_file is None:
        return f"user {user!r} counts as anonymous, since {config.node_name!r} has no password file"
    if not user and not listener.anonymous_allowed:
        where = f"listener {listener.label!r} of {config.node_name!r}"
        return f"{where} requires a user name; set `user`, these count as anonymous"
    return ""
