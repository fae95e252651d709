"""What the filters of many subscriptions cost for one message at worst: of a client, and of the broker.

Each subscription adds what is evaluated for it alone; a search of a text is made once for a message, so
it counts once for all subscriptions with the same content filter (`predicate/cost.py`).
"""

from __future__ import annotations

from timebound.core.values.subscription import Subscription


class FilterCosts:
    """A sum over subscriptions, in plain tests; what changes it changes the sum of its `whole`, too."""

    __slots__ = ("_texts", "_whole", "total")

    def __init__(self, whole: FilterCosts | None = None) -> None:
        self.total = 0
        self._whole = whole
        self._texts: dict[str, int] = {}  # of content filters, and how many subscriptions have them

    def count(self, subscription: Subscription, change: int) -> None:
        """Follow a subscription that comes (1) or goes (-1)."""
        self.total += change * subscription.parts_cost
        predicate = subscription.predicate
        if predicate is not None:
            self.total += change * predicate.cost.each
            before = self._texts.get(predicate.text, 0)
            after = before + change
            if after:
                self._texts[predicate.text] = after
            else:
                del self._texts[predicate.text]
            if before == 0 or after == 0:
                self.total += change * predicate.cost.shared
        if self._whole is not None:
            self._whole.count(subscription, change)

    def whole_total(self) -> int:
        """What it is a part of, in all; its own sum if it is a part of nothing."""
        return self.total if self._whole is None else self._whole.total

    def _check(self, subscriptions: list[Subscription]) -> None:
        """Raise AssertionError where this is not the sum over these subscriptions."""
        predicates = [one.predicate for one in subscriptions if one.predicate is not None]
        shared = {predicate.text: predicate.cost.shared for predicate in predicates}
        each = sum([predicate.cost.each for predicate in predicates])
        assert self.total == sum([one.parts_cost for one in subscriptions]) + each + sum(shared.values())
        assert sum(self._texts.values()) == len(predicates)
