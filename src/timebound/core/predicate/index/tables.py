"""The tables a content index files conjunctions in, each with its own way of looking up.

A table holds buckets of filings by key. What differs is which keys a value asks for: its own
(equality), all on one side of it (thresholds), the cells around it (intervals), its
beginnings or endings (affixes), or the pieces inside it (parts). Looking up yields
candidates in no promised order; the index puts them in order.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import Any, Final

from timebound.core.predicate.cost import Cost
from timebound.core.predicate.search import SEARCHED_LENGTH_MAX
from timebound.core.predicate.terms import Condition

# Keys in one chunk of a sorted list: moving half of them costs about as much as finding one.
CHUNK_MAX: Final = 1024
# Candidates for a message of benchmarks/content_matching.py: 404 with 1, 286 with 4, 264 with 8.
THRESHOLD_WEIGHT: Final = 8
# Intervals of width below 2**LEVEL_MIN share cells; narrower ones are rare enough.
LEVEL_MIN: Final = -60
# Beyond this a bound does not take part in cells, so that scaling it never overflows.
BOUND_MAX: Final = 2.0**900
ONLY_KEY: Final = 0  # the one bucket of a table that has no use for keys
# Length of the pieces by which a text is searched for many texts at once.
PART_LENGTH: Final = 3
# What looking for one part costs before the first character, and what cutting costs for each character,
# in steps of `str.find`: about 1 ns.
PART_CALL_STEPS: Final = 50
PART_STEPS: Final = 500


class IndexedKey:
    """One key in the index, and the cost of its filter.

    `stamp` is the last match it was found in, so it is found once.
    """

    __slots__ = ("cost", "filings", "key", "sequence", "stamp")

    def __init__(self, key: object, sequence: int, cost: Cost) -> None:
        self.key = key
        self.sequence = sequence
        self.cost = cost
        self.filings: tuple[Filing, ...] = ()
        self.stamp = 0


class Filing:
    """One conjunction of an entry, in one bucket. `rest` must hold too, unless it is None."""

    __slots__ = ("bucket_key", "entry", "place", "rest", "table")

    def __init__(
        self, entry: IndexedKey, rest: Condition | None, table: FilingTable, bucket_key: object
    ) -> None:
        self.entry = entry
        self.rest = rest
        self.table = table
        self.bucket_key = bucket_key
        self.place = 0


class IntervalFiling(Filing):
    """A filing in an IntervalTable, with its bounds rounded to doubles.

    Rounding keeps order, so a value between the true bounds is between these. They spare
    evaluating most of what a cell holds.
    """

    __slots__ = ("high", "low")

    def __init__(
        self,
        entry: IndexedKey,
        rest: Condition | None,
        table: FilingTable,
        bucket_key: object,
        *,
        low: float,
        high: float,
    ) -> None:
        super().__init__(entry, rest, table, bucket_key)
        self.low = low
        self.high = high


class FilingTable:
    """Buckets of filings by key; as it stands, a table for equality.

    `owner` is the key of the attribute's name, or empty.
    """

    __slots__ = ("buckets", "filings", "owner")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.buckets: dict[object, list[Filing]] = {}
        self.filings = 0

    def insert(self, filing: Filing) -> None:
        bucket = self.buckets.get(filing.bucket_key)
        if bucket is None:
            bucket = []
            self.buckets[filing.bucket_key] = bucket
            self.open_bucket(filing.bucket_key)
        filing.place = len(bucket)
        bucket.append(filing)
        self.filings += 1

    def remove(self, filing: Filing) -> None:
        """Take a filing out: the last of its bucket moves into its place."""
        bucket = self.buckets[filing.bucket_key]
        last = bucket.pop()
        if last is not filing:
            last.place = filing.place
            bucket[filing.place] = last
        if not bucket:
            del self.buckets[filing.bucket_key]
            self.close_bucket(filing.bucket_key)
        self.filings -= 1

    def open_bucket(self, key: object) -> None:
        """Take note of a new key."""

    def close_bucket(self, key: object) -> None:
        """Forget a key that has no filings left."""

    def candidates(self, key: object) -> int:
        """Estimate the candidates filed under this key."""
        bucket = self.buckets.get(key)
        return 0 if bucket is None else len(bucket)

    def collect_key(self, key: object, found: list[Filing]) -> None:
        bucket = self.buckets.get(key)
        if bucket is not None:
            found.extend(bucket)

    def _check(self) -> None:
        count = 0
        for key, bucket in self.buckets.items():
            assert bucket, f"empty bucket {key!r}"
            for place, filing in enumerate(bucket):
                assert filing.place == place, f"filing of {filing.entry.key!r} is misplaced"
                assert filing.table is self
                assert filing.bucket_key == key
            count += len(bucket)
        assert count == self.filings


class ThresholdTable(FilingTable):
    """Filings under `value operator key`, for one of `< <= > >=`; the keys are kept sorted.

    The keys stand in sorted chunks, so that inserting one among many moves few of them, and
    their buckets beside them: going through many, a look-up for each would double the time.
    """

    __slots__ = ("_chunk_buckets", "_chunks", "_lasts", "operator")

    def __init__(self, owner: str, operator: str) -> None:
        super().__init__(owner)
        self.operator = operator
        self._chunks: list[list[Any]] = []
        self._chunk_buckets: list[list[list[Filing]]] = []
        self._lasts: list[Any] = []  # the last key of each chunk

    def open_bucket(self, key: Any) -> None:
        bucket = self.buckets[key]
        if not self._chunks:
            self._chunks.append([key])
            self._chunk_buckets.append([bucket])
            self._lasts.append(key)
            return
        index = min(bisect_left(self._lasts, key), len(self._chunks) - 1)
        chunk = self._chunks[index]
        place = bisect_left(chunk, key)
        chunk.insert(place, key)
        self._chunk_buckets[index].insert(place, bucket)
        if len(chunk) > CHUNK_MAX:
            self._split(index)
        self._lasts[index] = chunk[-1]

    def _split(self, index: int) -> None:
        chunk, buckets = self._chunks[index], self._chunk_buckets[index]
        half = len(chunk) // 2
        self._chunks.insert(index + 1, chunk[half:])
        self._chunk_buckets.insert(index + 1, buckets[half:])
        self._lasts.insert(index + 1, chunk[-1])
        del chunk[half:]
        del buckets[half:]

    def close_bucket(self, key: Any) -> None:
        index = bisect_left(self._lasts, key)
        chunk = self._chunks[index]
        place = bisect_left(chunk, key)
        del chunk[place]
        del self._chunk_buckets[index][place]
        if chunk:
            self._lasts[index] = chunk[-1]
        else:
            del self._chunks[index]
            del self._chunk_buckets[index]
            del self._lasts[index]

    def candidates(self, key: object) -> int:
        # Every message with the attribute pays for a threshold, not only those that ask for
        # one key; so a bucket may be this much fuller before a threshold is better.
        return self.filings * THRESHOLD_WEIGHT

    def collect(self, value: Any, found: list[Filing]) -> None:
        """Find the filings whose threshold the value passes; costs what it finds."""
        wants_lower = self.operator[0] == ">"
        # `> key` holds for keys left of the value, `<= key` for those from it on.
        includes_equal = self.operator in (">=", "<")
        index = bisect_right(self._lasts, value) if includes_equal else bisect_left(self._lasts, value)
        passed = self._chunk_buckets[:index] if wants_lower else self._chunk_buckets[index + 1 :]
        if index < len(self._chunks):
            chunk, buckets = self._chunks[index], self._chunk_buckets[index]
            cut = bisect_right(chunk, value) if includes_equal else bisect_left(chunk, value)
            passed.append(buckets[:cut] if wants_lower else buckets[cut:])
        for buckets in passed:
            for bucket in buckets:
                found.extend(bucket)

    def _check(self) -> None:
        super()._check()
        keys = [key for chunk in self._chunks for key in chunk]
        assert keys == sorted(self.buckets)  # type: ignore[type-var]  # one table holds one ordered type
        assert self._lasts == [chunk[-1] for chunk in self._chunks]
        buckets = [bucket for row in self._chunk_buckets for bucket in row]
        assert len(buckets) == len(keys)
        assert all(self.buckets[key] is bucket for key, bucket in zip(keys, buckets, strict=True))


class IntervalTable(FilingTable):
    """Filings under intervals of numbers, by size and place.

    An interval narrower than 2**level is filed under the cell of that width in which it
    begins. A value then lies in the interval only if it is in that cell or the next, so one
    looks into two cells per level in use. About a third of what they hold has the value
    between its bounds.
    """

    __slots__ = ("_levels",)

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self._levels: dict[int, int] = {}  # level -> buckets of that level

    def open_bucket(self, key: object) -> None:
        assert isinstance(key, tuple)
        level: int = key[0]
        self._levels[level] = self._levels.get(level, 0) + 1

    def close_bucket(self, key: object) -> None:
        assert isinstance(key, tuple)
        level: int = key[0]
        self._levels[level] -= 1
        if self._levels[level] == 0:
            del self._levels[level]

    def collect(self, value: int | float, found: list[Filing]) -> None:
        if not -BOUND_MAX <= value <= BOUND_MAX:
            return
        place = float(value)
        for level in self._levels:
            cell = math.floor(math.ldexp(place, -level))
            self._collect_cell((level, cell), place, found)
            self._collect_cell((level, cell - 1), place, found)

    def _collect_cell(self, key: tuple[int, int], place: float, found: list[Filing]) -> None:
        bucket = self.buckets.get(key)
        if bucket is not None:
            for filing in bucket:
                assert isinstance(filing, IntervalFiling)
                if filing.low <= place <= filing.high:
                    found.append(filing)

    def candidates(self, key: object) -> int:
        return super().candidates(key) // 3

    def _check(self) -> None:
        super()._check()
        levels: dict[int, int] = {}
        for key in self.buckets:
            assert isinstance(key, tuple)
            levels[key[0]] = levels.get(key[0], 0) + 1
        assert levels == self._levels


def interval_cell(low: int | float, high: int | float) -> tuple[int, int] | None:
    """Return the key of an interval in an IntervalTable; None if it has to be filed otherwise.

    Rounding to doubles keeps order, and a difference of doubles never rounds below a power
    of two that it exceeds: so the value's cell is never more than one off.
    """
    if not (-BOUND_MAX <= low <= high <= BOUND_MAX):
        return None
    begin = float(low)
    level = max(math.frexp(float(high) - begin)[1], LEVEL_MIN)
    return level, math.floor(math.ldexp(begin, -level))


class AffixTable(FilingTable):
    """Filings under the beginnings, or endings, of texts: one look-up per length in use."""

    __slots__ = ("_at_end", "_lengths")

    def __init__(self, owner: str, *, at_end: bool) -> None:
        super().__init__(owner)
        self._at_end = at_end
        self._lengths: dict[int, int] = {}  # length -> buckets of that length

    def open_bucket(self, key: object) -> None:
        assert isinstance(key, str)
        self._lengths[len(key)] = self._lengths.get(len(key), 0) + 1

    def close_bucket(self, key: object) -> None:
        assert isinstance(key, str)
        self._lengths[len(key)] -= 1
        if self._lengths[len(key)] == 0:
            del self._lengths[len(key)]

    def collect(self, text: str, found: list[Filing]) -> None:
        for length in self._lengths:
            if length <= len(text):
                self.collect_key(text[len(text) - length :] if self._at_end else text[:length], found)

    def _check(self) -> None:
        super()._check()
        assert sum(self._lengths.values()) == len(self.buckets)


class PartTable(FilingTable):
    """Filings under a few characters of a text to be found inside another."""

    __slots__ = ()

    def best_part(self, needle: str) -> str:
        """Return the part of a text under which the fewest others are filed."""
        best = needle[:PART_LENGTH]
        fewest = self.candidates(best)
        for begin in range(1, len(needle) - PART_LENGTH + 1):
            if fewest == 0:
                break
            part = needle[begin : begin + PART_LENGTH]
            count = self.candidates(part)
            if count < fewest:
                best, fewest = part, count
        return best

    def steps(self, length: int) -> int:
        """Return what `collect` takes for a text of this length, in steps of about 1 ns."""
        return min(len(self.buckets) * (PART_CALL_STEPS + length), PART_STEPS * length)

    def collect(self, text: str, found: list[Filing]) -> None:
        if len(text) > SEARCHED_LENGTH_MAX:
            return  # nothing is looked for in it
        # Looking for a key costs a call and a step for each character; cutting the text into its parts
        # costs hundreds of steps for each.
        if self.steps(len(text)) < PART_STEPS * len(text):
            for key, bucket in self.buckets.items():
                assert isinstance(key, str)
                if key in text:
                    found.extend(bucket)
            return
        for length in range(PART_LENGTH + 1):
            parts = [text[begin : begin + length] for begin in range(len(text) - length + 1)]
            for part in dict.fromkeys(parts):
                self.collect_key(part, found)


class MemberTable(FilingTable):
    """Filings under one member that a set must have."""

    __slots__ = ()

    def collect(self, members: frozenset[object], found: list[Filing]) -> None:
        if len(members) > len(self.buckets):
            for key, bucket in self.buckets.items():
                if key in members:
                    found.extend(bucket)
            return
        # The order of a set does not matter here: the index sorts what it found.
        for member in members:
            self.collect_key(member, found)
