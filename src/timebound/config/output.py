"""Keys that listeners and links to brokers have alike: how waiting messages are chosen."""

from __future__ import annotations

from typing import Any

from timebound.core.link.strategy.registry import DEFAULT_STRATEGY, STRATEGY_NAMES
from timebound.toml.setting import setting


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
        "share of the first aim in a strategy that mixes two (r of `ebpc`, w of `mtep`); "
        "default: the strategy's own",
        maximum=100,
    )


def epsilon_setting(default: float, why: str) -> Any:
    reason = f"ε: messages whose chance of arriving in time is at or below this are dropped; {why}"
    return setting("fraction", default, reason, least=0.000_001, most=0.5)


def untimed_share_setting() -> Any:
    return setting(
        "count",
        5,
        "share of a full link kept for messages without a time limit, so that they never starve",
        maximum=90,
    )


def shares_setting() -> Any:
    return setting(
        "texts",
        (),
        "classes of messages by topic, like `plant/+/alarm=20`: the least percent of a full link that "
        "each keeps, so that none starves; of several that match a topic, the most specific one counts",
    )
