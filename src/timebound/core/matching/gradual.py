"""Messages whose content filters take long: they are matched in steps, and those of other publishers go on.

Filters are asked about such a message for `TESTS_PER_STEP` plain tests at a time. Later messages of its
publisher wait behind it, so their order stays. Publishers take turns, one step each: who publishes what is
expensive waits, nobody else does.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from timebound.core.matching.index import Match, Selected
from timebound.core.predicate.index.gradual import GradualMatch, cost_since
from timebound.core.predicate.predicate import Attributes
from timebound.core.values.message import Message

# Plain tests in one step, which is at most one for each turn: 1 to 2 ms. A message that needs no more is
# matched at once.
TESTS_PER_STEP: Final = 5_000
# Bytes of JSON that are decoded in the time of a plain test.
JSON_BYTES_PER_TEST: Final = 20
# Messages of the broker itself that wait; further ones are matched at once. Those of clients are limited by
# what is read: their sockets wait.
OWN_WAITING_MAX: Final = 1_000


class GradualSelection:
    """The selection of one message, computed in steps."""

    __slots__ = ("_contents", "_current", "_groups", "_selected", "match", "message")

    def __init__(self, match: Match, message: Message) -> None:
        self.match = match
        self.message = message
        self._selected: Selected | None = None
        self._contents = list(match.contents)  # still to be asked
        self._groups = list(match.predicates)  # of shared groups, likewise
        self._current: GradualMatch | None = None

    def step(self) -> bool:
        """Ask some filters; return whether all have been asked."""
        tests = TESTS_PER_STEP
        if self._selected is None:
            self._selected = Selected(self.match, self.message)
            tests -= len(self.message.payload) // JSON_BYTES_PER_TEST
        attributes = self._selected.attributes
        if attributes is None:
            return True
        tests = self._ask_contents(self._selected, attributes, tests)
        while tests > 0 and self._groups:
            tests -= self._ask_group(attributes)
        return self._current is None and not self._contents and not self._groups

    def selected(self) -> Selected:
        """Return the selection; all filters have been asked."""
        assert self._selected is not None
        return self._selected

    def _ask_contents(self, selected: Selected, attributes: Attributes, tests: int) -> int:
        while tests > 0 and (self._current is not None or self._contents):
            content = self._contents[0]
            try:
                if self._current is None:
                    self._current = GradualMatch(content, attributes)
                tests = self._current.step(tests)
                if not self._current.is_done():
                    continue
                found = self._current.keys()
            except Exception as error:
                selected.evaluate_alone(content, attributes, error)
            else:
                selected.add(found)
            self._current = None
            self._contents.pop(0)
        return tests

    def _ask_group(self, attributes: Attributes) -> int:
        """Ask one filter of a shared group, and note the result where the group looks for it."""
        predicate = self._groups.pop()
        if attributes.verdicts is None:
            attributes.verdicts = {}
        if predicate.text in attributes.verdicts:
            return 1
        searches = len(attributes.searches)
        try:
            attributes.verdicts[predicate.text] = predicate.matches(attributes)
        except Exception:  # is raised again, and noted, when the group is asked
            return predicate.cost.most()
        return cost_since(predicate.cost, attributes, searches)


class HeldMessage:
    """A message that is being matched, or waits behind one of the same publisher.

    `homes` is what its acknowledgement waits for: its own name, until it has been matched.
    """

    __slots__ = ("error", "homes", "is_copy", "name", "packet_id", "selection")

    def __init__(self, selection: GradualSelection) -> None:
        self.selection = selection
        self.error: Exception | None = None  # it could not be matched or distributed, and is lost
        self.is_copy = False  # from another broker
        self.name = f"matching {selection.message.sequence}"
        self.homes = [self.name]
        self.packet_id = 0  # of a QoS 2 message, to be stored when it has been matched


class Gradual:
    """All messages that are matched in steps, by publisher."""

    __slots__ = ("_publishers", "names")

    def __init__(self) -> None:
        self._publishers: dict[str, deque[HeldMessage]] = {}  # whose turn it is comes first
        self.names: dict[str, int] = {}  # of all messages, as the full homes of a mesh are named

    def __len__(self) -> int:
        return len(self.names)

    def hold(self, match: Match, message: Message) -> GradualSelection | HeldMessage | None:
        """Begin to match a message.

        Return its complete selection; what to wait for; or None if it has to be matched at once.
        """
        waiting = self._publishers.get(message.publisher)
        if waiting is None and match.cost <= TESTS_PER_STEP:
            return None
        selection = GradualSelection(match, message)
        if waiting is None:
            if selection.step():
                return selection
            waiting = self._publishers[message.publisher] = deque()
        elif not message.publisher and len(waiting) >= OWN_WAITING_MAX:
            return None
        held = HeldMessage(selection)
        waiting.append(held)
        self.names[held.name] = 1
        return held

    def last(self, publisher: str) -> HeldMessage | None:
        """Return the last message of a publisher that is held."""
        waiting = self._publishers.get(publisher)
        return waiting[-1] if waiting else None

    def step(self) -> HeldMessage | None:
        """Do one step for the publisher whose turn it is; return its message if that has been matched."""
        publisher = next(iter(self._publishers), None)
        if publisher is None:
            return None
        waiting = self._publishers.pop(publisher)
        held = waiting[0]
        try:
            is_done = held.selection.step()
        except Exception as error:  # the message is lost, but holds up no other
            held.error = error
            is_done = True
        if is_done:
            return self._release(publisher, waiting)
        self._publishers[publisher] = waiting
        return None

    def _release(self, publisher: str, waiting: deque[HeldMessage]) -> HeldMessage:
        held = waiting.popleft()
        if waiting:
            self._publishers[publisher] = waiting
        del self.names[held.name]
        held.homes.clear()
        return held

    def _check(self) -> None:
        assert all(self._publishers.values()), "a publisher without messages is kept"
        names = [held.name for waiting in self._publishers.values() for held in waiting]
        assert sorted(names) == sorted(self.names)
