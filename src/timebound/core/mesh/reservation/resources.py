"""What is reserved on one link: held for requests that are under way, then committed.

Requests of one flow share a link: messages of the flow pass it once, so the largest amount counts. What is
held and not committed expires.
"""

from __future__ import annotations

from typing import Final

NEVER_NS: Final = (1 << 63) - 1


class FlowShare:
    """What one flow has on a link: the committed amount, and what requests hold beside it."""

    __slots__ = ("committed", "held")

    def __init__(self) -> None:
        self.committed = 0
        self.held: dict[str, tuple[int, int]] = {}  # by request: amount, and when it expires

    def amount(self) -> int:
        return max([self.committed, *[amount for amount, _ in self.held.values()]])


class LinkResources:
    """The reservations on one link; amounts are in bytes per second, or any other unit."""

    __slots__ = ("_flows", "capacity", "reserved")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.reserved = 0
        self._flows: dict[str, FlowShare] = {}

    @property
    def free(self) -> int:
        return self.capacity - self.reserved

    def amount(self, flow: str) -> int:
        """Return what a flow has, held or committed."""
        share = self._flows.get(flow)
        return 0 if share is None else share.amount()

    def committed(self, flow: str) -> int:
        share = self._flows.get(flow)
        return 0 if share is None else share.committed

    def flows(self) -> list[str]:
        return sorted(self._flows)

    def has_room(self, flow: str, amount: int) -> bool:
        """Whether a flow can have this amount, with what it has already."""
        return amount - self.amount(flow) <= self.free

    def hold(self, flow: str, request: str, amount: int, until_ns: int = NEVER_NS) -> bool:
        """Hold an amount for a request until it is committed; return False if there is no room."""
        if not self.has_room(flow, amount):
            return False
        share = self._flows.setdefault(flow, FlowShare())
        before = share.amount()
        share.held[request] = (amount, until_ns)
        self._changed(flow, share, before)
        return True

    def commit(self, flow: str, request: str, amount: int) -> bool:
        """Commit what a request holds; return False if that has expired and there is no room any more."""
        share = self._flows.get(flow)
        if (share is None or request not in share.held) and not self.hold(flow, request, amount):
            return False
        share = self._flows[flow]
        before = share.amount()
        held, _ = share.held.pop(request)
        share.committed = max(share.committed, held)
        self._changed(flow, share, before)
        return True

    def release_held(self, flow: str, request: str) -> None:
        """Release what a request holds, if it does."""
        share = self._flows.get(flow)
        if share is not None and request in share.held:
            before = share.amount()
            del share.held[request]
            self._changed(flow, share, before)

    def release(self, flow: str) -> None:
        """Release what a flow has committed; what requests hold stays."""
        share = self._flows.get(flow)
        if share is not None:
            before = share.amount()
            share.committed = 0
            self._changed(flow, share, before)

    def expire(self, now_ns: int) -> list[tuple[str, str]]:
        """Release what was held for too long; return flows and requests."""
        due = [
            (flow, request)
            for flow, share in self._flows.items()
            for request, (_, until_ns) in share.held.items()
            if until_ns <= now_ns
        ]
        for flow, request in due:
            self.release_held(flow, request)
        return due

    def _changed(self, flow: str, share: FlowShare, before: int) -> None:
        now = share.amount()
        self.reserved += now - before
        if not now and not share.held:
            del self._flows[flow]
