"""A token bucket that may go into debt, and those of all who advertise flows.

The cost of a request is often known only afterwards, so it may exceed what is left; then nothing is allowed
until the debt is paid off. What one may ask for belongs to its user, or to its address where it is anonymous:
a new connection, or another client id, renews nothing.
"""

from __future__ import annotations

from typing import Final

from timebound.units import SECOND

# Users and addresses that are remembered, 0.5 KB each; beyond, the one that asked longest ago is forgotten.
REQUESTERS_MAX: Final = 10_000
# Of these, examined whenever another one is added, so that the table shrinks faster than it grows.
EXAMINED: Final = 2


class Allowance:
    """At most `burst` at once, refilled by `per_second`; full at first. The owner chooses the unit."""

    __slots__ = ("_at_ns", "_left", "burst", "per_second")

    def __init__(self, burst: float, per_second: float) -> None:
        self.burst = burst
        self.per_second = per_second
        self._left = burst
        self._at_ns = 0  # when `_left` was computed; 0 = still full

    def has_any(self, now_ns: int) -> bool:
        """Whether anything is left."""
        self._refill(now_ns)
        return self._left > 0

    def is_full(self, now_ns: int) -> bool:
        """Whether it is as if nothing had ever been taken."""
        self._refill(now_ns)
        return self._left >= self.burst

    def _refill(self, now_ns: int) -> None:
        if self._at_ns:
            gained = max(now_ns - self._at_ns, 0) * self.per_second / SECOND
            self._left = min(self._left + gained, self.burst)
        self._at_ns = now_ns

    def take(self, amount: float) -> None:
        self._left -= amount


class Requester:
    """A user, or an address: what it may still ask for, and the flows that it has."""

    __slots__ = ("allowance", "flows")

    def __init__(self, allowance: Allowance) -> None:
        self.allowance = allowance
        self.flows: set[tuple[str, str]] = set()  # by client and topic; never iterated

    def is_idle(self, now_ns: int) -> bool:
        """Whether nothing has to be remembered of it."""
        return not self.flows and self.allowance.is_full(now_ns)


class Requesters:
    """All who have asked lately, by name; first those who asked long ago."""

    __slots__ = ("_burst", "_per_second", "_table")

    def __init__(self, burst: float, per_second: float) -> None:
        self._burst = burst
        self._per_second = per_second
        self._table: dict[str, Requester] = {}

    def __len__(self) -> int:
        return len(self._table)

    def get(self, name: str, now_ns: int) -> Requester:
        """Return the requester of a name, new if it is not remembered."""
        known = self._table.pop(name, None)
        if known is None:
            self._age(now_ns)
            known = Requester(Allowance(self._burst, self._per_second))
        self._table[name] = known
        return known

    def known(self, name: str) -> Requester | None:
        """Return the requester of a name, if it is remembered."""
        return self._table.get(name)

    def _age(self, now_ns: int) -> None:
        """Forget some of the oldest that are idle; beyond the limit, the oldest without flows."""
        for name in _first(self._table, EXAMINED):
            requester = self._table.pop(name)
            if not requester.is_idle(now_ns):
                self._table[name] = requester
        if len(self._table) >= REQUESTERS_MAX:
            # The number of flows is limited, and so is how many are passed over.
            for name, requester in self._table.items():
                if not requester.flows:
                    del self._table[name]
                    return


def _first(table: dict[str, Requester], count: int) -> list[str]:
    return [name for name, _ in zip(table, range(count), strict=False)]
