"""The way out to one receiver: what a subscriber's session and a link to another broker have in common.

An outlet numbers what it sends by packet id, keeps it until the receiver confirms it, and stops at the
receiver's Receive Maximum. Before that, copies compete in one `LinkQueue`, which knows the delay of the link
and drops early what cannot arrive; `DueList` wakes the outlet for the next drop. `Session` and `MeshLink` are
outlets, and decide what a copy is and what becomes of it when the connection is lost.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, Generic, TypeVar

from timebound.core.link.queue import LinkQueue
from timebound.core.link.scheduling import DEFAULT_SCHEDULING
from timebound.core.link.strategy.entry import NEVER_NS, Entry
from timebound.core.values.delay import START_MEAN_S_PER_KB, START_VARIATION, LinkDelay
from timebound.records import Reason

PACKET_ID_MAX: Final = 65_535
# The delay of a link that has not been measured yet.
START_DELAY: Final = LinkDelay(START_MEAN_S_PER_KB, (START_VARIATION * START_MEAN_S_PER_KB) ** 2)

Item = TypeVar("Item")  # what is sent: a delivery to a client, a copy to a broker


class Outlet(Generic[Item]):
    """The output state of one receiver.

    `inflight` holds what was sent and not confirmed, oldest first, by packet id; `send_quota` is how much
    more of it the receiver's Receive Maximum allows.
    """

    __slots__ = (
        "delay",
        "due_ns",
        "due_number",
        "inflight",
        "is_touched",
        "last_packet_id",
        "receive_maximum",
        "scheduled",
        "scheduled_ns",
        "scheduling",
        "send_quota",
    )

    def __init__(self) -> None:
        self.inflight: dict[int, Item] = {}
        self.last_packet_id = 0
        self.receive_maximum = PACKET_ID_MAX
        self.send_quota = PACKET_ID_MAX
        self.scheduling = DEFAULT_SCHEDULING
        self.delay = START_DELAY  # of its link, as last measured or configured
        self.scheduled: LinkQueue | None = None
        self.scheduled_ns = 0  # when the next copy to leave `scheduled` would begin to be sent
        self.due_ns = NEVER_NS  # these three belong to `DueList`
        self.due_number = 0
        self.is_touched = False

    @abstractmethod
    def owner(self) -> tuple[str, int]:
        """Return the name of the receiver, for errors, and the number of its connection; 0 = none."""

    # --- packet ids and the window ------------------------------------------------------

    def next_packet_id(self) -> int:
        """Return a packet id that nothing in flight uses; the quota leaves at least one."""
        packet_id = self.last_packet_id
        while True:
            packet_id = packet_id % PACKET_ID_MAX + 1
            if packet_id not in self.inflight:
                self.last_packet_id = packet_id
                return packet_id

    def start(self, item: Item) -> int:
        """Put an item in flight; return its packet id. The quota must not be used up."""
        packet_id = self.next_packet_id()
        self.inflight[packet_id] = item
        self.send_quota -= 1
        return packet_id

    def confirm(self, packet_id: int) -> None:
        """Take an item out of flight: it has arrived, or was not sent after all."""
        del self.inflight[packet_id]
        if self.send_quota < self.receive_maximum:
            self.send_quota += 1

    def open_window(self, receive_maximum: int, taken: int = 0) -> None:
        """Start over on a new connection, on which `taken` packet ids already count."""
        self.receive_maximum = receive_maximum
        self.send_quota = receive_maximum - taken

    def unanswered(self) -> list[Item]:
        """Return what was sent and may not have arrived, oldest first."""
        return list(self.inflight.values())

    # --- the queue ----------------------------------------------------------------------

    def competing(self) -> int:
        """Return the number of copies that compete for the link."""
        return len(self.scheduled) if self.scheduled is not None else 0

    def next_drop_ns(self) -> int:
        """Return when the next waiting copy has to be dropped if nothing else happens; NEVER_NS = never."""
        if self.scheduled is None:
            return NEVER_NS
        drop_ns = self.scheduled.next_wakeup_ns()
        return NEVER_NS if drop_ns is None else drop_ns

    def _check(self) -> None:
        """Assert that the outlet is consistent."""
        assert self.send_quota <= self.receive_maximum, "the quota exceeds the Receive Maximum"
        for packet_id in self.inflight:
            assert 1 <= packet_id <= PACKET_ID_MAX, "a packet id is out of range"
        if self.scheduled is not None:
            self.scheduled._check()


def time_of_drop(entry: Entry, now_ns: int) -> int:
    """Return the time of a drop: for what is late or hopeless, the moment at which it became so.

    It may be noticed later than that. It is never dated before the entry was queued.
    """
    reason = entry.reason
    if (reason == Reason.HOPELESS or reason == Reason.TIMED_OUT) and entry.drop_ns < now_ns:
        return entry.drop_ns if entry.drop_ns > entry.pushed_ns else entry.pushed_ns
    return now_ns
