"""What a scenario takes from live configurations: links, listeners, and who may log in there."""

from __future__ import annotations

from pathlib import Path

import pytest

from timebound.config.listeners import ListenerConfig
from timebound.config.mesh import NeighbourConfig
from timebound.config.security import SecurityConfig
from timebound.config.values import Config
from timebound.errors import ConfigError
from timebound.sim.scenario.live import links_of, listener_number, login_note

CONFIGS = (
    Config(node_name="near", neighbours=(NeighbourConfig(name="far", host="10.0.0.2"),)),
    Config(node_name="far", neighbours=(NeighbourConfig(name="near"),)),
)
LOCAL = ListenerConfig(name="desk")
OPEN = ListenerConfig(host="0.0.0.0", port=1884)
ALONE = Config(node_name="near", listeners=(OPEN, LOCAL))
GUARDED = Config(node_name="near", listeners=(OPEN,), security=SecurityConfig(password_file=Path("users")))


def test_neighbours_are_linked_once() -> None:
    assert links_of(CONFIGS) == (("far", "near"),)


@pytest.mark.parametrize(
    ("configs", "text"),
    [
        (CONFIGS[:1], "neighbour 'far' of 'near' is not among the configurations"),
        ((CONFIGS[0], Config(node_name="far")), "'far' would refuse 'near', which is not its neighbour"),
        ((CONFIGS[0], CONFIGS[0]), "two configurations have the same node_name"),
    ],
)
def test_configurations_must_fit_together(configs: tuple[Config, ...], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        links_of(configs)


def test_listeners_are_found_by_their_labels() -> None:
    assert [listener_number(ALONE, label) for label in ("", "tcp 0.0.0.0:1884", "desk")] == [0, 0, 1]
    with pytest.raises(ValueError, match=r"'near' has no listener 'field'; it has tcp 0\.0\.0\.0:1884, desk"):
        listener_number(ALONE, "field")


def test_logins_that_a_network_would_treat_otherwise_are_noted() -> None:
    assert login_note(ALONE, LOCAL, "") == ""
    assert login_note(GUARDED, OPEN, "anna") == ""
    assert login_note(ALONE, OPEN, "") == (
        "listener 'tcp 0.0.0.0:1884' of 'near' requires a user name; set `user`, these count as anonymous"
    )
    assert login_note(ALONE, LOCAL, "anna") == (
        "user 'anna' counts as anonymous, since 'near' has no password file"
    )
