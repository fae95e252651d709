"""The match of a message whose filters take long, in steps.

Between two steps other messages are matched, and filters come and go: what was removed does not match, what
was added is not asked. The result is that of `ContentIndex.match`, which does the same at once.
"""

from __future__ import annotations

from typing import Final

from timebound.core.predicate.attributes import Attributes
from timebound.core.predicate.cost import Cost
from timebound.core.predicate.index.attribute import AttributeTables
from timebound.core.predicate.index.index import ContentIndex
from timebound.core.predicate.index.tables import Filing, IndexedKey
from timebound.core.predicate.values import TRUE

# A plain test in the steps that tables count, and the candidates that are found in the time of one.
TEST_STEPS: Final = 300
CANDIDATES_PER_TEST: Final = 16


class GradualMatch:
    """A message and the filters of one index, which are asked one after the other."""

    __slots__ = ("_attributes", "_found", "_index", "_is_collected", "_matched", "_place", "_tables")

    def __init__(self, index: ContentIndex, attributes: Attributes) -> None:
        self._index = index
        self._attributes = attributes
        self._tables: list[AttributeTables] = index.asked_for(attributes)
        self._found: list[Filing] = []
        self._is_collected = False
        self._place = 0  # in `_found`
        self._matched: dict[IndexedKey, None] = {}

    def is_done(self) -> bool:
        return self._is_collected and self._place == len(self._found)

    def step(self, tests: int) -> int:
        """Ask filters for about so many plain tests; return how many of them are left."""
        while tests > 0 and self._tables:
            tests -= self._collect(self._tables.pop())
        if tests > 0 and not self._is_collected:
            self._is_collected = True
            self._index.collect_scanned(self._found)
        while tests > 0 and self._place < len(self._found):
            tests -= self._test(self._found[self._place])
            self._place += 1
        return tests

    def keys(self) -> list[object]:
        """Return the keys whose filters are TRUE, each once, in order of insertion."""
        assert self.is_done()
        return self._index.in_order([entry for entry in self._matched if self._index.holds(entry)])

    def _collect(self, tables: AttributeTables) -> int:
        before = len(self._found)
        value = self._attributes.value(tables.name)
        if value is None:
            return 1
        tables.collect(value, self._found)
        return 1 + tables.steps(value) // TEST_STEPS + (len(self._found) - before) // CANDIDATES_PER_TEST

    def _test(self, filing: Filing) -> int:
        entry = filing.entry
        rest = filing.rest
        if entry in self._matched:
            return 1
        searches = len(self._attributes.searches)
        if rest is None or rest.evaluate(self._attributes) == TRUE:
            self._matched[entry] = None
        return cost_since(entry.cost, self._attributes, searches)


def cost_since(cost: Cost, attributes: Attributes, searches: int) -> int:
    """Return what a filter took at most, if the message had been searched for so many texts before."""
    return 1 + (cost.each if len(attributes.searches) == searches else cost.most())
