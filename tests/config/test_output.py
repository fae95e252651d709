"""Keys of listeners and links alike: the same names, ranges and defaults in both tables."""

from __future__ import annotations

import pytest

from timebound.config.listeners import ListenerConfig
from timebound.config.mesh import MeshConfig, NeighbourConfig
from timebound.config.output import epsilon_setting, strategy_setting
from timebound.core.link.strategy.registry import DEFAULT_STRATEGY, STRATEGY_NAMES
from timebound.toml.setting import settings_of

SHARED = ("strategy", "strategy_mix_percent", "untimed_share_percent", "shares")


@pytest.mark.parametrize("key", SHARED)
def test_listeners_and_links_have_the_key_with_the_same_default_and_range(key: str) -> None:
    of_listener, of_link = settings_of(ListenerConfig)[key], settings_of(NeighbourConfig)[key]

    assert of_listener[0].default == of_link[0].default
    for part in ("kind", "minimum", "maximum", "choices"):
        assert getattr(of_listener[1], part) == getattr(of_link[1], part)


def test_every_strategy_can_be_chosen_and_its_reason_names_the_link() -> None:
    described = strategy_setting("the cable").metadata["setting"]

    assert described.choices == STRATEGY_NAMES
    assert strategy_setting("the cable").default == DEFAULT_STRATEGY
    assert "when the cable cannot carry all in time" in described.reason


def test_epsilon_is_a_chance_above_none_and_at_most_even() -> None:
    described = epsilon_setting(0.1, "because").metadata["setting"]

    assert (described.least, described.most) == (0.000_001, 0.5)
    assert described.reason.endswith("; because")
    for table in (ListenerConfig, MeshConfig):
        assert settings_of(table)["epsilon"][1].most == 0.5
