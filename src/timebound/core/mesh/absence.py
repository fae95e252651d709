"""Brokers that cannot be reached: which of them are gone, and what they said is forgotten when.

A broker is *gone* when no broker has a link to it: it has crashed, or was taken away. It is *cut off* when
others that cannot be reached either still have links to it: it may be well, behind a link that failed. What a
broker that is gone said is forgotten after a time; of one that is cut off it is kept much longer.
"""

from __future__ import annotations

from typing import Final

from timebound.core.mesh.flooding import Replica

# What brokers that are cut off said is kept this many times longer than that of those that are gone: both
# ends of their links may be gone for good, and nobody is left to say so.
CUT_OFF_TIMES: Final = 24


class Absence:
    """Since when each broker has been out of reach, as one broker sees it."""

    __slots__ = ("_forget_after_ns", "_replica", "_since_ns")

    def __init__(self, replica: Replica, forget_after_ns: int) -> None:
        self._replica = replica
        self._forget_after_ns = forget_after_ns  # 0 = never
        self._since_ns: dict[str, int] = {}  # by broker

    def patrol(self, now_ns: int) -> list[str]:
        """Look who is out of reach; forget and return those who were for too long. About once a second."""
        replica = self._replica
        reached = replica.link_state.tree(replica.name).parents
        absent = [owner for owner in replica.owners() if owner != replica.name and owner not in reached]
        self._since_ns = {owner: self._since_ns.get(owner, now_ns) for owner in absent}
        if not self._forget_after_ns:
            return []
        due = [owner for owner in absent if now_ns - self._since_ns[owner] >= self._limit_ns(owner)]
        for owner in due:
            replica.forget(owner)
            del self._since_ns[owner]
        return due

    def _limit_ns(self, owner: str) -> int:
        if self._replica.link_state.has_link_to(owner):
            return self._forget_after_ns * CUT_OFF_TIMES
        return self._forget_after_ns

    def gone(self) -> list[str]:
        """Return the brokers that are gone, by name."""
        link_state = self._replica.link_state
        return sorted([owner for owner in self._since_ns if not link_state.has_link_to(owner)])

    def cut_off(self) -> list[str]:
        """Return the brokers that are cut off, by name."""
        link_state = self._replica.link_state
        return sorted([owner for owner in self._since_ns if link_state.has_link_to(owner)])

    def since_ns(self, broker: str) -> int:
        """Return since when a broker has been out of reach; 0 if it is not."""
        return self._since_ns.get(broker, 0)
