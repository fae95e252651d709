"""Everything a content index has filed under one attribute name.

Values of different types are never equal, so each type has its own tables; a user property
has no type and is looked up in every type it can be read as. Tables are made when something
is first filed in them: many attributes are only ever tested in one way.
"""

from __future__ import annotations

from timebound.core.predicate.attributes import Name
from timebound.core.predicate.index.lookup import (
    CONTAINS,
    EQUAL,
    INTERVAL,
    MEMBER,
    PREFIX,
    SUFFIX,
    THRESHOLD,
    Access,
    bound_of,
    member_key,
)
from timebound.core.predicate.index.tables import (
    ONLY_KEY,
    AffixTable,
    Filing,
    FilingTable,
    IntervalTable,
    MemberTable,
    PartTable,
    ThresholdTable,
    interval_cell,
)
from timebound.core.predicate.values import Moment, Property, read_moment

Place = tuple[FilingTable, object]  # a table, and the key of a bucket in it


class ValueTables:
    """Tables for the values of one type."""

    __slots__ = ("equal", "intervals", "thresholds")

    def __init__(self, owner: str) -> None:
        self.equal = FilingTable(owner)
        self.thresholds: list[ThresholdTable] = []
        self.intervals = IntervalTable(owner)

    def threshold(self, operator: str) -> ThresholdTable:
        for table in self.thresholds:
            if table.operator == operator:
                return table
        table = ThresholdTable(self.equal.owner, operator)
        self.thresholds.append(table)
        return table

    def collect(self, value: object, found: list[Filing]) -> None:
        self.equal.collect_key(value, found)
        for table in self.thresholds:
            table.collect(value, found)

    def collect_number(self, value: int | float, found: list[Filing]) -> None:
        self.collect(value, found)
        self.intervals.collect(value, found)

    def tables(self) -> list[FilingTable]:
        return [self.equal, self.intervals, *self.thresholds]


class TextTables(ValueTables):
    """Tables for texts, which also have beginnings, endings and parts."""

    __slots__ = ("parts", "prefixes", "suffixes")

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.prefixes = AffixTable(owner, at_end=False)
        self.suffixes = AffixTable(owner, at_end=True)
        self.parts = PartTable(owner)

    def collect_text(self, text: str, found: list[Filing]) -> None:
        self.collect(text, found)
        self.prefixes.collect(text, found)
        self.suffixes.collect(text, found)

    def tables(self) -> list[FilingTable]:
        return [self.equal, self.prefixes, self.suffixes, self.parts, *self.thresholds]


class AttributeTables:
    """The tables of one attribute; `filings` counts what is in them, `name` is the attribute."""

    __slots__ = ("_booleans", "_members", "_moments", "_numbers", "_present", "_texts", "filings", "name")

    def __init__(self, name: Name) -> None:
        self.name = name
        self.filings = 0
        self._numbers: ValueTables | None = None
        self._booleans: ValueTables | None = None
        self._moments: ValueTables | None = None
        self._texts: TextTables | None = None
        self._members: MemberTable | None = None
        self._present: FilingTable | None = None

    def places(self, access: Access) -> list[Place]:
        """Return where to file an access; empty if this kind of table cannot hold it."""
        if access.kind == EQUAL:
            return [(self._values_like(value).equal, _key(value)) for value in access.values]
        if access.kind == THRESHOLD:
            value = access.values[0]
            return [(self._values_like(value).threshold(access.operator), _key(value))]
        if access.kind == INTERVAL:
            return self._interval_places(access)
        if access.kind == PREFIX:
            return [(self._text_tables().prefixes, access.values[0])]
        if access.kind == SUFFIX:
            return [(self._text_tables().suffixes, access.values[0])]
        if access.kind == CONTAINS or access.kind == MEMBER:
            return self._member_places(access)
        if self._present is None:
            self._present = FilingTable(self.name.key)
        return [(self._present, ONLY_KEY)]

    def _interval_places(self, access: Access) -> list[Place]:
        low, high = bound_of(access.values[0]), bound_of(access.values[1])
        assert low is not None
        assert high is not None
        cell = interval_cell(low, high)
        return [] if cell is None else [(self._values_like(access.values[0]).intervals, cell)]

    def _member_places(self, access: Access) -> list[Place]:
        if self._members is None:
            self._members = MemberTable(self.name.key)
        places: list[Place] = [(self._members, member_key(access))]
        needle = access.values[0]
        if access.kind == CONTAINS and isinstance(needle, str):
            parts = self._text_tables().parts
            places.append((parts, parts.best_part(needle)))
        return places

    def _values_like(self, value: object) -> ValueTables:
        """Return the tables for values of this type."""
        if isinstance(value, str):
            return self._text_tables()
        if isinstance(value, bool):
            if self._booleans is None:
                self._booleans = ValueTables(self.name.key)
            return self._booleans
        if isinstance(value, Moment):
            if self._moments is None:
                self._moments = ValueTables(self.name.key)
            return self._moments
        if self._numbers is None:
            self._numbers = ValueTables(self.name.key)
        return self._numbers

    def _text_tables(self) -> TextTables:
        if self._texts is None:
            self._texts = TextTables(self.name.key)
        return self._texts

    def collect(self, value: object, found: list[Filing]) -> None:
        """Add every filing that a message with this value (not NULL) may match."""
        if self._present is not None:
            self._present.collect_key(ONLY_KEY, found)
        if isinstance(value, Property):
            self._collect_property(value, found)
        elif isinstance(value, str):
            self._collect_text(value, True, found)
        elif isinstance(value, bool):
            if self._booleans is not None:
                self._booleans.collect(value, found)
        elif isinstance(value, (int, float)):
            if self._numbers is not None:
                self._numbers.collect_number(value, found)
        elif isinstance(value, frozenset) and self._members is not None:
            self._members.collect(value, found)

    def steps(self, value: object) -> int:
        """Return about what `collect` takes for a value, besides what it finds, in steps of 1 ns."""
        if self._texts is None:
            return 0
        text = value.text if isinstance(value, Property) else value
        return self._texts.parts.steps(len(text)) if isinstance(text, str) else 0

    def _collect_property(self, value: Property, found: list[Filing]) -> None:
        members = None if self._members is None else value.members()
        if members is not None and self._members is not None:
            self._members.collect(members, found)
        # A property that writes a set has members instead of parts.
        self._collect_text(value.text, members is None, found)
        if self._numbers is not None:
            number = value.number()
            if number is not None:
                self._numbers.collect_number(number, found)
        if self._booleans is not None:
            boolean = value.boolean()
            if boolean is not None:
                self._booleans.collect(boolean, found)

    def _collect_text(self, text: str, has_parts: bool, found: list[Filing]) -> None:
        if self._texts is not None:
            self._texts.collect_text(text, found)
            if has_parts:
                self._texts.parts.collect(text, found)
        if self._moments is not None:
            moment = read_moment(text)
            if moment is not None:
                self._moments.collect_number(moment.epoch_ns, found)

    def _check(self) -> None:
        tables: list[FilingTable] = []
        for values in (self._numbers, self._booleans, self._moments, self._texts):
            if values is not None:
                tables += values.tables()
        if self._members is not None:
            tables.append(self._members)
        if self._present is not None:
            tables.append(self._present)
        for table in tables:
            table._check()
        assert sum([table.filings for table in tables]) == self.filings


def _key(value: object) -> object:
    return value.epoch_ns if isinstance(value, Moment) else value
