"""What may cross the link to one neighbour: topics in either direction, and the brokers it may speak for."""

from __future__ import annotations

from typing import Final

from timebound.core.mesh.message import Copy
from timebound.topics import matches


class Border:
    """The filters of a link; without any, everything may cross.

    `exports` are the topics that may go to the neighbour, `imports` those that may come from it. Copies and
    advertisements of brokers that are not among `origins` are refused; the neighbour is always among them.
    """

    __slots__ = ("_exports", "_imports", "_origins", "is_open")

    def __init__(
        self,
        neighbour: str,
        *,
        exports: tuple[str, ...] = (),
        imports: tuple[str, ...] = (),
        origins: tuple[str, ...] = (),
    ) -> None:
        self._exports = exports
        self._imports = imports
        self._origins = frozenset((*origins, neighbour)) if origins else frozenset()
        self.is_open = not exports  # nothing has to be asked before a copy is sent

    def lets_out(self, topic: str) -> bool:
        """Whether messages on a topic may go to the neighbour."""
        return self.is_open or _is_among(self._exports, topic)

    def lets_in(self, copy: Copy) -> bool:
        """Whether a copy may come from the neighbour."""
        if self._imports and not _is_among(self._imports, copy.what.message.topic):
            return False
        return self.may_speak_for(copy.what.origin)

    def may_speak_for(self, broker: str) -> bool:
        """Whether the neighbour may pass on what another broker says, or says itself."""
        return not self._origins or broker in self._origins


def _is_among(filters: tuple[str, ...], topic: str) -> bool:
    return any([matches(one, topic) for one in filters])


OPEN_BORDER: Final = Border("")
