"""The product's own strategy: value per sending time, discounted by how long it can still wait.

    worth(t) = Σ gain·success·exp(-(time that is left)⁺ / K) / size

`gain` is price + penalty, the time left is what remains until sending it would be too late on
average, and K is `lookahead` times the mean sending time of a message. Why this one:
docs/decisions/0020-default-strategy.md.

Between two messages only the ratio counts, and while both can wait both grow by the same
factor, so the value is kept as ln(worth(t)·exp(-t/K)): that never grows, an old one is a bound
for ever, and most messages need no second look. The logarithm also cannot overflow. It is good
to about 1e-10 of a message's value; values closer than that count as they come out.

On a link that does not carry all it is offered, what is worth more goes first whatever its time
(`Entry.level`): it will be sent anyway, and should be while it is fresh instead of when it can wait no
longer.
"""

from __future__ import annotations

import math
from typing import Final

from mypy_extensions import i64

from timebound.core.link.strategy.audience import LinkModel
from timebound.core.link.strategy.base import DECAYING, Strategy, StrategyKind, expected_gain
from timebound.core.link.strategy.entry import Entry

# In times of one message. Measured: 3 is too short-sighted under overload, 50 and more no longer see
# which of two equals is urgent; from 10 to 50 all published settings are flat.
LOOKAHEAD: Final = 20.0
# How long a message without any limit is content to wait.
PATIENCE_NS: Final = 1_000_000_000
# The part of its gain that a message must be about to lose before that makes it urgent.
LOSS: Final = 0.1
# K of a link so fast that its messages take no time.
_AHEAD_NS_MIN: Final = 1_000.0
# A level of worth counts as much as this many K of time: more than any two messages differ by.
_LEVEL: Final = 1e7


class Worth(Strategy):
    """`lookahead` is K in times of one message; `patience_ns` the time limit of what has none."""

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
        """The age at which the next noticeable loss sets in, or this age if it has; never falls with age."""
        terms = entry.audience.terms
        count: i64 = len(terms)
        entry.lost_below(age)
        index = entry.cursor
        while index < count and terms[index].allowed < age + entry.slowest:
            index += 1
        # Terms before `index` are going or gone. Of the others, find the one whose loss is noticed.
        keep = (1.0 - self.loss) * entry.audience.gains_from(index)
        while index < count and entry.audience.gains_from(index + 1) > keep:
            index += 1
        allowed = entry.timeout
        if index < count and terms[index].allowed < allowed:
            allowed = terms[index].allowed
        start_by = allowed - entry.slowest
        if allowed == math.inf:
            start_by = self.patience
            # Not before what is limited and comes first, else a loss would make the rest urgent.
            limited = entry.audience.limited - entry.slowest
            if limited > start_by:
                start_by = limited
            # Its turn is put off by steps that double, not by each moment: between two steps the value
            # of all that is patient stands still, or every choice would have to value all of it anew.
            step = start_by if start_by > 1.0 else 1.0
            while start_by < age:
                start_by += step
                step += step
            return start_by
        return start_by if start_by > age else age


KIND: Final = StrategyKind(
    "worth",
    "the most at stake for its sending time, sooner the less it can wait",
    lambda mix: Worth(),
    order=80,
)
