"""Messages that a journal has but storage does not: their publishers send them again after a crash.

Journals are synced before storage is written. A crash in between leaves rows whose packet ids are lost, so
a QoS 2 message arrives and is delivered once more, as it must be; but the journal must not add it again.
Storage records the offset up to which rows belong to its contents; later ones are expected to be repeated.
A repeated message has the DUP flag, or is a stored will; the first message of a publisher that is not
repeated ends the expectation, because clients resend before they send new messages (MQTT 5, 4.4 and 4.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from timebound.core.values.message import Message
from timebound.core.values.subscription import UserProperties

if TYPE_CHECKING:
    from timebound.node.journal.log import JournalLog

# Maximum of rows to examine: more cannot have waited for storage.
TAIL_ROWS_MAX: Final = 200_000
REPEATED_QOS: Final = 2

# The number of a journal, and the contents of a row.
_Key = tuple[int, str, bytes, bool, UserProperties]


class Repeats:
    """Messages that publishers are expected to send again."""

    def __init__(self) -> None:
        self._expected: dict[str, dict[_Key, int]] = {}

    def is_empty(self) -> bool:
        return not self._expected

    def expect(self, journal: int, log: JournalLog, start: int, publishers: set[str]) -> None:
        """Expect the messages of a journal from an offset on, if they are from these publishers."""
        for row in _rows(log, start):
            if row["qos"] == REPEATED_QOS and row["publisher"] in publishers:
                properties = tuple((pair["name"], pair["value"]) for pair in row["properties"] or ())
                key = (journal, row["topic"], row["payload"], row["retain"], properties)
                expected = self._expected.setdefault(row["publisher"], {})
                expected[key] = expected.get(key, 0) + 1

    def has(self, journal: int, message: Message) -> bool:
        """Whether a journal already has a QoS 2 message; it is then expected once less."""
        expected = self._expected.get(message.publisher)
        if expected is None:
            return False
        if not message.is_repeated:
            del self._expected[message.publisher]
            return False
        key = (journal, message.topic, message.payload, message.retain, message.user_properties)
        count = expected.pop(key, 0)
        if count > 1:
            expected[key] = count - 1
        if not expected:
            del self._expected[message.publisher]
        return count > 0


def _rows(log: JournalLog, start: int) -> Iterator[dict[str, Any]]:
    import pyarrow.compute as pc

    end = log.next_offset
    for _, _, batch in log.read(max(start, end - TAIL_ROWS_MAX), end):
        if batch is not None:
            rows: Iterable[dict[str, Any]] = batch.filter(pc.equal(batch["qos"], REPEATED_QOS)).to_pylist()
            yield from rows
