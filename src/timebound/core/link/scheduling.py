"""Scheduling settings of a link: strategy, shares, and ε.

All sessions of a listener share them; they can be replaced while messages wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from timebound.core.link.budget import TurnBudget
from timebound.core.link.lane import check_shares
from timebound.core.link.queue import EPSILON, LinkQueue
from timebound.core.link.strategy.base import Strategy
from timebound.core.link.strategy.registry import DEFAULT_STRATEGY, STRATEGY_NAMES, kind_named, strategy_named
from timebound.core.values.delay import LinkDelay
from timebound.topics import check_filter, matches

# Messages without a time limit keep this share of an overloaded link.
UNTIMED_SHARE: Final = 0.05
# Every class costs time for each choice, and memory for each waiting session.
CLASSES_MAX: Final = 16
# Topics whose class is cached; a full cache is cleared.
_TOPICS_MAX: Final = 4_096


class Scheduling:
    """Settings from which the queue of a link is made.

    `shares` are classes of messages: a topic filter, and the least share of a full link for matching
    messages; if several match, the most specific one counts. `margin_ns` is the least delay assumed
    behind the link.
    """

    __slots__ = (
        "_lanes",
        "epsilon",
        "is_default",
        "margin_ns",
        "mix",
        "name",
        "shares",
        "untimed_share",
        "uses_priority",
    )

    def __init__(
        self,
        name: str = DEFAULT_STRATEGY,
        mix: float = -1.0,
        untimed_share: float = UNTIMED_SHARE,
        epsilon: float = EPSILON,
        shares: Sequence[tuple[str, float]] = (),
        margin_ns: int = 0,
    ) -> None:
        strategy_named(name, mix=mix)  # raises ValueError for what does not exist
        if not 0.0 <= untimed_share < 1.0:
            raise ValueError(f"untimed_share={untimed_share} is not between 0 and 1")
        if len(shares) > CLASSES_MAX:
            raise ValueError(f"{len(shares)} classes have a share; at most {CLASSES_MAX} are possible")
        check_shares([untimed_share, *[share for _, share in shares]])
        if margin_ns < 0:
            raise ValueError(f"margin_ns={margin_ns} is negative")
        self.name = name
        self.mix = mix
        self.margin_ns = margin_ns
        self.untimed_share = untimed_share
        self.epsilon = epsilon
        self.is_default = name == DEFAULT_STRATEGY
        self.uses_priority = kind_named(name).uses_priority
        self.shares: list[tuple[str, float]] = sorted(shares, key=_specificity)
        self._lanes: dict[str, int] = {}  # by topic

    def lane_of(self, topic: str) -> int:
        """Return the lane of a topic's class in queues made here; -1 = no class."""
        if not self.shares:
            return -1
        lane = self._lanes.get(topic)
        if lane is None:
            lane = -1
            for index, (topic_filter, _) in enumerate(self.shares):
                if matches(topic_filter, topic):
                    lane = index + 1
                    break
            if len(self._lanes) >= _TOPICS_MAX:
                self._lanes.clear()
            self._lanes[topic] = lane
        return lane

    def strategy(self) -> Strategy:
        return strategy_named(self.name, mix=self.mix)

    def lane_shares(self) -> list[float]:
        """Return the shares of all lanes: no class, each class, and no time limit."""
        return [0.0, *[share for _, share in self.shares], self.untimed_share]

    def make_queue(
        self,
        delay: LinkDelay,
        messages_max: int,
        bytes_max: int,
        now_ns: int,
        budget: TurnBudget | None = None,
    ) -> LinkQueue:
        """Return an empty queue with these settings; with a `budget` that it shares with others.

        The first lane is for messages in no class, the last for those that also have no time limit. The
        published strategies have one class of messages; the default reserves a share for the last lane.
        """
        shares = [0.0]
        if self.is_default or self.shares:
            shares = self.lane_shares()
            if not self.is_default:
                shares[-1] = 0.0
        return LinkQueue(
            self.strategy(),
            delay,
            origin_ns=now_ns,
            messages_max=messages_max,
            bytes_max=bytes_max,
            shares=shares,
            epsilon=self.epsilon,
            wants_fresh=True,
            budget=budget,
        )


def parse_share(text: str) -> tuple[str, float]:
    """Parse a class in the form of the configuration, such as `plant/+/alarm=20`, in percent.

    Raises:
        ValueError: the text does not have that form.
    """
    topic_filter, found, percent = text.rpartition("=")
    if not found or not percent.isascii() or not percent.isdigit() or not 1 <= int(percent) <= 90:
        raise ValueError(
            f"share {text!r} is not a topic filter with a percentage from 1 to 90, such as 'alarm/#=20'"
        )
    check_filter(topic_filter)
    return topic_filter, int(percent) / 100


def _specificity(share: tuple[str, float]) -> list[int]:
    """Return a sort key by which the most specific of several matching filters comes first."""
    return [2 if level == "#" else int(level == "+") for level in share[0].split("/")]


DEFAULT_SCHEDULING: Final = Scheduling()

__all__ = ["DEFAULT_SCHEDULING", "STRATEGY_NAMES", "Scheduling", "parse_share"]
