"""The default strategy: gain per sending time, discounted by the time that a message can still wait.

    worth(t) = Σ gain·success·exp(-(time that is left)⁺ / K) / size

`gain` is price + penalty, the time left is what remains until sending it would be too late on
average, and K is `lookahead` times the mean sending time of a message. Why this one:
docs/decisions/0020-default-strategy.md.

Only the ratio between two messages matters, and while both can wait both grow by the same
factor, so the value is kept as ln(worth(t)·exp(-t/K)): it never grows, so an old value stays a
bound, and most messages are valued once. The logarithm also cannot overflow. It is exact to about
1e-10 of the value of a message; closer values are ordered as computed.

On a congested link, messages of more gain per byte are sent first regardless of their time
(`Entry.level`): they will be sent anyway, and should be sent while they are fresh, not when they can
wait no longer.
"""

from __future__ import annotations

import math
from typing import Final

from mypy_extensions import i64

from timebound.core.link.strategy.audience import LinkModel
from timebound.core.link.strategy.base import DECAYING, Strategy, StrategyKind, expected_gain
from timebound.core.link.strategy.entry import Entry

# In times of one message. Measured: 3 looks ahead too little under overload, 50 and more no longer
# distinguish which of two equal messages is urgent; from 10 to 50 all published settings are flat.
LOOKAHEAD: Final = 20.0
# How long a message without a time limit may wait before it becomes urgent.
PATIENCE_NS: Final = 1_000_000_000
# A message is urgent when it is about to lose this part of its gain.
LOSS: Final = 0.1
# The least K, for very fast links.
_AHEAD_NS_MIN: Final = 1_000.0
# A level counts as much as this many K of time: more than the difference of any two messages.
_LEVEL: Final = 1e7


class Worth(Strategy):
    """`lookahead` is K in times of one message; `patience_ns` the time limit of messages without one."""

    __slots__ = ("lookahead", "loss", "patience")

    def __init__(
        self, lookahead: float = LOOKAHEAD, patience_ns: int = PATIENCE_NS, loss: float = LOSS
    ) -> None:
        if not 0.0 < lookahead < math.inf:
            raise ValueError(f"lookahead={lookahead} is not a positive number")
        if patience_ns < 0:
            raise ValueError(f"patience_ns={patience_ns} is negative")
        super().__init__("worth", DECAYING, True, True)
        self.lookahead = lookahead
        self.patience = float(patience_ns)
        self.loss = loss

    def value(self, entry: Entry, now_ns: int, link: LinkModel) -> float:
        age = float(now_ns - entry.published_ns)
        gain = expected_gain(entry, age) / entry.size
        if gain <= 0.0:
            return -math.inf
        ahead = self.lookahead * link.first_ns
        if ahead < _AHEAD_NS_MIN:
            ahead = _AHEAD_NS_MIN
        start_by = self._start_by(entry, age) + float(entry.published_ns - link.origin_ns)
        value = math.log(gain) - start_by / ahead
        return value + _LEVEL * entry.level if link.is_congested else value

    def _start_by(self, entry: Entry, age: float) -> float:
        """Return the age at which the next noticeable loss begins, at least `age`; never falls with age."""
        terms = entry.audience.terms
        count: i64 = len(terms)
        entry.lost_below(age)
        index = entry.cursor
        while index < count and terms[index].allowed < age + entry.slowest:
            index += 1
        # Terms before `index` are being lost. Of the others, find the first whose loss is noticeable.
        keep = (1.0 - self.loss) * entry.audience.gains_from(index)
        while index < count and entry.audience.gains_from(index + 1) > keep:
            index += 1
        allowed = entry.timeout
        if index < count and terms[index].allowed < allowed:
            allowed = terms[index].allowed
        start_by = allowed - entry.slowest
        if allowed == math.inf:
            start_by = self.patience
            # Not before the limited terms, or their loss would make the rest urgent.
            limited = entry.audience.limited - entry.slowest
            if limited > start_by:
                start_by = limited
            # Its turn is deferred in steps that double, not continuously: between two steps the values
            # of untimed messages are constant, or every choice would have to compute all of them.
            step = start_by if start_by > 1.0 else 1.0
            while start_by < age:
                start_by += step
                step += step
            return start_by
        return start_by if start_by > age else age


KIND: Final = StrategyKind(
    "worth",
    "the largest gain per sending time, sooner the less it can wait",
    lambda mix: Worth(),
    order=80,
    is_default=True,
)
