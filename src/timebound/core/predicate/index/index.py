"""Which of many content filters match a message, without asking each of them.

Every filter is split into conjunctions. Of a conjunction's conditions the one that promises
the fewest candidates is looked up in tables per attribute; the others are evaluated for the
candidates that remain. What promises the fewest depends on what is filed already: of many
filters `kind = 'temp' AND value BETWEEN ...` the first are filed under the kind and, once
that bucket is crowded, the others under their intervals.
"""

from __future__ import annotations

from typing import Final

from timebound.core.predicate.attributes import BARE
from timebound.core.predicate.index.attribute import AttributeTables, Place
from timebound.core.predicate.index.lookup import INTERVAL, Access, access_of, bound_of, interval_of
from timebound.core.predicate.index.tables import ONLY_KEY, Filing, FilingTable, IndexedKey, IntervalFiling
from timebound.core.predicate.predicate import Attributes, Conjunction, Name, Predicate
from timebound.core.predicate.terms import And, Condition
from timebound.core.predicate.values import TRUE

# Up to this many attribute names each is asked for; with more, the message's own names are
# looked up among them, so that a message does not pay for names it does not carry.
PROBE_ALL_MAX: Final = 16
# If more than one in this many entries match, going through all entries, which stand in
# order, is cheaper than sorting the ones that match.
IN_ORDER_SHARE: Final = 8
# Places that one filter may be filed in: as many as there can be values after one IN.
FILINGS_MAX: Final = 2_048


class ContentIndex:
    """Content filters by key; `match` finds the keys whose filter is TRUE for a message."""

    __slots__ = (
        "_always",
        "_attributes",
        "_by_field",
        "_by_property",
        "_entries",
        "_scanned",
        "_sequence",
        "_stamp",
        "cost",
    )

    def __init__(self) -> None:
        self._entries: dict[object, IndexedKey] = {}
        self._attributes: dict[str, AttributeTables] = {}  # by the name's key
        # The same tables by where a message would have the name: a user property, the first
        # field of the way into its payload, or always (the topic, the payload as a whole).
        self._by_property: dict[str, dict[str, AttributeTables]] = {}
        self._by_field: dict[str, dict[str, AttributeTables]] = {}
        self._always: dict[str, dict[str, AttributeTables]] = {}
        # Conjunctions that no look-up can find, such as `a IS NULL`.
        self._scanned = FilingTable("")
        self._sequence = 0
        self._stamp = 0
        self.cost = 0  # at most, for one message: in plain tests, equal searches counted for each filter

    def __len__(self) -> int:
        return len(self._entries)

    def insert(self, key: object, predicate: Predicate) -> None:
        """Add a filter; one that stood under the key before is replaced, and goes last."""
        if key in self._entries:
            self.remove(key)
        self._sequence += 1
        entry = IndexedKey(key, self._sequence, predicate.cost)
        conjunctions = predicate.conjunctions
        filings: list[Filing] = []
        self._entries[key] = entry
        self.cost += predicate.cost.most()
        try:
            for conjunction in conjunctions:
                # A lone conjunction is the filter: no need to build it anew.
                whole = predicate.root if len(conjunctions) == 1 else None
                self._file(entry, conjunction, whole, FILINGS_MAX // len(conjunctions), filings)
        except BaseException:
            entry.filings = tuple(filings)
            self.remove(key)
            raise
        entry.filings = tuple(filings)

    def remove(self, key: object) -> None:
        """Take a filter out.

        Raises:
            KeyError: there is none under this key.
        """
        entry = self._entries.pop(key)
        self.cost -= entry.cost.most()
        for filing in entry.filings:
            filing.table.remove(filing)
            if filing.table is not self._scanned:
                tables = self._attributes[filing.table.owner]
                tables.filings -= 1
                self._drop_unused(tables)
        # They point at each other: left so, they and their conditions would wait for the cycle collector,
        # which takes tens of milliseconds once there are many.
        entry.filings = ()

    def has(self, key: object) -> bool:
        return key in self._entries

    def keys(self) -> list[object]:
        """Return all keys, in order of insertion."""
        return list(self._entries)

    def match(self, attributes: Attributes) -> list[object]:
        """Return the keys whose filters are TRUE for a message, each once, in order of insertion."""
        found: list[Filing] = []
        for tables in self.asked_for(attributes):
            value = attributes.value(tables.name)
            if value is not None:
                tables.collect(value, found)
        self.collect_scanned(found)
        self._stamp += 1
        stamp = self._stamp
        matched: list[IndexedKey] = []
        for filing in found:
            # Most candidates fail, so the condition is looked at before the entry.
            rest = filing.rest
            if rest is None or rest.evaluate(attributes) == TRUE:
                entry = filing.entry
                if entry.stamp != stamp:
                    entry.stamp = stamp
                    matched.append(entry)
        if len(matched) * IN_ORDER_SHARE > len(self._entries):
            return [entry.key for entry in self._entries.values() if entry.stamp == stamp]
        return self.in_order(matched)

    def collect_scanned(self, found: list[Filing]) -> None:
        """Add the conjunctions that every message must be tested with."""
        self._scanned.collect_key(ONLY_KEY, found)

    def in_order(self, matched: list[IndexedKey]) -> list[object]:
        """Return the keys of entries, in order of insertion."""
        matched.sort(key=_sequence_of)
        return [entry.key for entry in matched]

    def holds(self, entry: IndexedKey) -> bool:
        """Whether an entry has not been removed or replaced."""
        return self._entries.get(entry.key) is entry

    # Filing a conjunction.

    def _file(
        self,
        entry: IndexedKey,
        conjunction: Conjunction,
        whole: Condition | None,
        places_max: int,
        filings: list[Filing],
    ) -> None:
        accesses: list[Access] = []
        for condition in conjunction:
            access = access_of(condition)
            if access is not None and len(access.values) <= places_max:
                accesses.append(access)
        if len(accesses) > 1:
            accesses += interval_of(accesses)
        best: Access | None = None
        places: list[Place] = []
        cost_min = 0
        looked_at: list[AttributeTables] = []
        for access in accesses:
            tables = self._tables(access.name)
            looked_at.append(tables)
            offered = tables.places(access)
            cost = access.kind + sum([table.candidates(key) for table, key in offered])
            if offered and (best is None or cost < cost_min):
                best, places, cost_min = access, offered, cost
        if best is None:
            places = [(self._scanned, ONLY_KEY)]
        rest = _rest(conjunction, best, whole)
        for table, key in places:
            filing = _filing(entry, rest, table, key, best)
            table.insert(filing)
            filings.append(filing)
        if best is not None:
            self._tables(best.name).filings += len(places)
        for tables in looked_at:
            self._drop_unused(tables)

    # Attribute names.

    def _tables(self, name: Name) -> AttributeTables:
        tables = self._attributes.get(name.key)
        if tables is None:
            tables = AttributeTables(name)
            self._attributes[name.key] = tables
            for group, head in self._groups(name):
                group.setdefault(head, {})[name.key] = tables
        return tables

    def _drop_unused(self, tables: AttributeTables) -> None:
        if tables.filings == 0:
            name = tables.name
            self._attributes.pop(name.key, None)
            for group, head in self._groups(name):
                if head in group:
                    group[head].pop(name.key, None)
                    if not group[head]:
                        del group[head]

    def _groups(self, name: Name) -> list[tuple[dict[str, dict[str, AttributeTables]], str]]:
        """Return the names under which a message may have an attribute."""
        if name.source == BARE:
            return [(self._by_property, name.property_name), (self._by_field, name.segments[0])]
        if not name.segments or name.segments[0].isdigit():
            return [(self._always, "")]
        return [(self._by_field, name.segments[0])]

    def asked_for(self, attributes: Attributes) -> list[AttributeTables]:
        """Return the tables of every attribute that the message may have; some may occur twice."""
        if len(self._attributes) <= PROBE_ALL_MAX:
            return list(self._attributes.values())
        asked: list[AttributeTables] = []
        if "" in self._always:
            asked += self._always[""].values()
        if self._by_property:
            for property_name, _ in attributes.user_properties:
                group = self._by_property.get(property_name)
                if group is not None:
                    asked += group.values()
        if self._by_field:
            fields = attributes.json()
            if isinstance(fields, dict):
                # Of the message's fields and the filters' names, the fewer are gone through.
                shorter = fields if len(fields) < len(self._by_field) else self._by_field
                for field in shorter:
                    if field in fields and field in self._by_field:
                        asked += self._by_field[field].values()
        return asked

    def _check(self) -> None:
        filed = 0
        sequence = 0
        assert self.cost == sum([entry.cost.most() for entry in self._entries.values()])
        for key, entry in self._entries.items():
            assert entry.key == key
            assert entry.sequence > sequence
            sequence = entry.sequence
            filed += len(entry.filings)
            for filing in entry.filings:
                assert filing.table.buckets[filing.bucket_key][filing.place] is filing
        self._scanned._check()
        count = self._scanned.filings
        for name_key, tables in self._attributes.items():
            assert tables.name.key == name_key
            assert tables.filings > 0
            for group, head in self._groups(tables.name):
                assert group[head][name_key] is tables
            tables._check()
            count += tables.filings
        assert count == filed
        for group in (self._by_property, self._by_field, self._always):
            for named in group.values():
                assert named
                assert all(self._attributes[name_key] is tables for name_key, tables in named.items())


def _sequence_of(entry: IndexedKey) -> int:
    return entry.sequence


def _filing(
    entry: IndexedKey, rest: Condition | None, table: FilingTable, key: object, access: Access | None
) -> Filing:
    if access is not None and access.kind == INTERVAL:
        low, high = bound_of(access.values[0]), bound_of(access.values[1])
        assert low is not None
        assert high is not None
        return IntervalFiling(entry, rest, table, key, low=float(low), high=float(high))
    return Filing(entry, rest, table, key)


def _rest(conjunction: Conjunction, access: Access | None, whole: Condition | None) -> Condition | None:
    """Return what remains to be evaluated of a conjunction that was found by an access."""
    if access is None or not access.is_exact:
        if whole is not None:
            return whole
        conditions = list(conjunction)
    else:
        conditions = [condition for condition in conjunction if condition is not access.condition]
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else And(tuple(conditions))
