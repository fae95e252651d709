"""The worst-case cost of filters for one message, summed over subscriptions of a client or of the broker.

Each subscription adds what is evaluated for it alone; a text is searched once for a message, so that
cost counts once for all subscriptions with the same content filter (`predicate/cost.py`).
"""

from __future__ import annotations

from timebound.core.values.subscription import Subscription


class FilterCosts:
    """A sum over subscriptions, in plain tests; every change is also applied to `whole`."""

    __slots__ = ("_texts", "_whole", "total")

    def __init__(self, whole: FilterCosts | None = None) -> None:
        self.total = 0
        self._whole = whole
        self._texts: dict[str, int] = {}  # number of subscriptions for each content filter

    def count(self, subscription: Subscription, change: int) -> None:
        """Add (1) or remove (-1) the cost of a subscription."""
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
        """Return the sum of `whole`; its own sum if there is none."""
        return self.total if self._whole is None else self._whole.total

    def _check(self, subscriptions: list[Subscription]) -> None:
        """Assert that this is the sum over these subscriptions."""
        predicates = [one.predicate for one in subscriptions if one.predicate is not None]
        shared = {predicate.text: predicate.cost.shared for predicate in predicates}
        each = sum([predicate.cost.each for predicate in predicates])
        assert self.total == sum([one.parts_cost for one in subscriptions]) + each + sum(shared.values())
        assert sum(self._texts.values()) == len(predicates)
