"""The policer of one flow: it separates messages within a contract from excess.

The generic cell rate algorithm (GCRA) in its virtual scheduling form: one due time, no queue, no timer.
"""

from __future__ import annotations

from typing import Final

from timebound.core.input.contract import Contract

# What happens to excess.
LOWER: Final = "lower"  # served in the cells of the lower topic
REFUSE: Final = "refuse"
EXCESS_MODES: Final = (LOWER, REFUSE)


class Gcra:
    """Generic cell rate algorithm for one contract; counts the excess.

    A message conforms if it comes no earlier than the contract allows after the conforming ones before it.
    Excess does not count against later messages.
    """

    __slots__ = (
        "_burst_ns",
        "_due_ns",
        "_early_ns",
        "_interval_ns",
        "_size",
        "excess",
        "guaranteed_ns",
        "mode",
    )

    def __init__(self, contract: Contract, *, mode: str = LOWER, jitter_ns: int = 0) -> None:
        if mode not in EXCESS_MODES:
            raise ValueError(f"excess mode {mode!r} is unknown; use lower or refuse")
        self.mode = mode
        self.excess = 0
        self.guaranteed_ns = 0  # longest wait of a conforming message; 0 = not known
        self._interval_ns = contract.interval_ns
        self._size = contract.size
        # Message n may come (n - σ) intervals after the first: σ - 1 intervals early.
        self._burst_ns = (contract.burst - 1) * contract.interval_ns
        self._early_ns = self._burst_ns + jitter_ns
        self._due_ns = 0

    def set_jitter(self, jitter_ns: int) -> None:
        """Tolerate messages that come up to `jitter_ns` early: sockets are read in batches."""
        self._early_ns = self._burst_ns + jitter_ns

    def conforms(self, size: int, now_ns: int) -> bool:
        """Whether a message of that size, arriving now, is within the contract; count it as excess if not."""
        if size > self._size or now_ns < self._due_ns - self._early_ns:
            self.excess += 1
            return False
        self._due_ns = max(self._due_ns, now_ns) + self._interval_ns
        return True
