"""Retained messages: the last one of each topic, found by filter.

The trie follows the topic levels, so a filter visits only nodes that it can match. The store
is bounded in messages and bytes; a full store refuses a new message without a change. The
broker's own messages (`$SYS`) are few and do not count against the limits.
"""

from __future__ import annotations

from typing import Final

from timebound.core.values.message import Message, copy_cost

SYS_PREFIX: Final = "$SYS/"
# Memory of one level of the trie: its node, with a table of its children. Measured: 250 to 400 bytes.
NODE_COST: Final = 320

WALK_STEPS_MAX: Final = 1 << 60  # all at once


class RetainedNode:
    """One topic level and its retained message."""

    __slots__ = ("children", "message")

    def __init__(self) -> None:
        self.children: dict[str, RetainedNode] = {}
        self.message: Message | None = None


class Branch:
    """Nodes that a walk visits one after the other, all `depth` levels below the root."""

    __slots__ = ("depth", "next", "nodes")

    def __init__(self, nodes: list[RetainedNode], depth: int) -> None:
        self.nodes = nodes
        self.depth = depth
        self.next = 0


class RetainedWalk:
    """A search for the messages that a filter selects, in steps.

    Messages may change between steps: one that is removed before the walk reaches it is not found; one that
    is added may be.
    """

    __slots__ = ("_branches", "_is_open", "_levels", "_root")

    def __init__(self, root: RetainedNode, topic_filter: str) -> None:
        self._root = root
        self._levels = topic_filter.split("/")
        self._is_open = self._levels[-1] == "#"
        if self._is_open:
            self._levels.pop()
        # No recursion: a topic may have more levels than the stack allows.
        self._branches = [Branch([root], 0)]

    def is_over(self) -> bool:
        return not self._branches

    def take(self, steps_max: int) -> list[Message]:
        """Return the messages of the next `steps_max` nodes; `is_over` tells whether there are more."""
        found: list[Message] = []
        steps = 0
        while self._branches and steps < steps_max:
            branch = self._branches[-1]
            if branch.next == len(branch.nodes):
                self._branches.pop()
                continue
            node = branch.nodes[branch.next]
            branch.next += 1
            steps += 1
            if branch.depth < len(self._levels):
                below = self._below(node, self._levels[branch.depth])
                if below:
                    self._branches.append(Branch(below, branch.depth + 1))
                continue
            if node.message is not None:
                found.append(node.message)
            if self._is_open and node.children:
                self._branches.append(Branch(self._below(node, "+"), branch.depth))
        return found

    def _below(self, node: RetainedNode, level: str) -> list[RetainedNode]:
        if level != "+":
            child = node.children.get(level)
            return [] if child is None else [child]
        if node is self._root:
            # MQTT 5, 4.7.2: a leading wildcard never selects a topic that starts with $.
            return [child for name, child in node.children.items() if name[:1] != "$"]
        return list(node.children.values())


class RetainedStore:
    """The retained message of every topic that has one."""

    __slots__ = ("_messages", "_own", "_root", "bytes_max", "messages_max", "size_bytes")

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages: dict[str, Message] = {}
        self._root = RetainedNode()
        self._own = 0  # messages of the broker itself
        self.size_bytes = 0  # of clients' messages, with the nodes of the trie
        self.messages_max = messages_max
        self.bytes_max = bytes_max

    def __len__(self) -> int:
        """Return the number of messages of clients."""
        return len(self._messages) - self._own

    def get(self, topic: str) -> Message | None:
        return self._messages.get(topic)

    def put(self, message: Message) -> bool:
        """Retain a message in place of the last of its topic; False, without a change, if it does not fit."""
        if not _is_own(message):
            old = self._messages.get(message.topic)
            is_new = old is None or _is_own(old)
            if is_new and len(self) >= self.messages_max:
                return False
            freed = _cost(old) if old is not None else 0
            grown = _cost(message) - freed + self._missing_cost(message.topic)
            if grown > 0 and self.size_bytes + grown > self.bytes_max:
                return False
        self.restore(message)
        return True

    def restore(self, message: Message) -> None:
        """Retain a message of an earlier run, even if the limits are lower now."""
        old = self._messages.get(message.topic)
        # Computed first: an error must not leave table, trie and sums different.
        cost, own = _cost(message), int(_is_own(message))
        if old is not None:
            cost -= _cost(old)
            own -= _is_own(old)
        node_cost = _node_cost(message.topic)
        self.size_bytes += cost
        self._own += own
        self._messages[message.topic] = message
        node = self._root
        for level in message.topic.split("/"):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = RetainedNode()
                self.size_bytes += node_cost
            node = child
        node.message = message

    def _missing_cost(self, topic: str) -> int:
        """Return the cost of the nodes that a topic would add to the trie."""
        levels = topic.split("/")
        node = self._root
        for depth, level in enumerate(levels):
            child = node.children.get(level)
            if child is None:
                return (len(levels) - depth) * _node_cost(topic)
            node = child
        return 0

    def remove(self, topic: str) -> bool:
        """Remove the message of a topic; False if there is none."""
        message = self._messages.get(topic)
        if message is None:
            return False
        cost, own, node_cost = _cost(message), int(_is_own(message)), _node_cost(topic)
        levels = topic.split("/")
        path = [self._root]
        for level in levels:
            path.append(path[-1].children[level])
        # Nothing was changed so far, as an error must not leave half of a message.
        del self._messages[topic]
        self.size_bytes -= cost
        self._own -= own
        path[-1].message = None
        for depth in range(len(levels), 0, -1):
            if path[depth].children or path[depth].message is not None:
                break
            del path[depth - 1].children[levels[depth - 1]]
            self.size_bytes -= node_cost
        return True

    def match(self, topic_filter: str) -> list[Message]:
        """Return the messages that an unshared filter selects, level by level in order of arrival."""
        return self.walk(topic_filter).take(WALK_STEPS_MAX)

    def walk(self, topic_filter: str) -> RetainedWalk:
        """Begin to search for what an unshared filter selects, in steps."""
        return RetainedWalk(self._root, topic_filter)

    def _check(self) -> None:
        """Assert that the trie and the table agree."""
        topics = [message.topic for message in self.match("#")]
        plain = [topic for topic in self._messages if not topic.startswith("$")]
        assert sorted(topics) == sorted(plain), "trie and table differ"
        cost = sum(_cost(message) for message in self._messages.values())
        assert self.size_bytes == cost + self._count_nodes() * NODE_COST
        assert self._own == sum(_is_own(message) for message in self._messages.values())

    def _count_nodes(self) -> int:
        pending = [child for level, child in self._root.children.items() if f"{level}/" != SYS_PREFIX]
        count = len(pending)
        while pending:
            children = pending.pop().children
            count += len(children)
            pending += children.values()
        return count


def _is_own(message: Message) -> bool:
    """Whether the broker itself published it; messages of clients on `$SYS` name their publisher."""
    return not message.publisher and message.topic.startswith(SYS_PREFIX)


def _cost(message: Message) -> int:
    return 0 if _is_own(message) else copy_cost(message.size())


def _node_cost(topic: str) -> int:
    return 0 if topic.startswith(SYS_PREFIX) else NODE_COST
