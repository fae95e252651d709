"""Retained messages: the last one of each topic, found again by filter.

The trie mirrors the topic levels, so a filter visits only what it can select. The store
is bounded in messages and bytes; a full store refuses the new message and changes nothing.
The broker's own figures (`$SYS`) are few by themselves: they take no room from clients.
"""

from __future__ import annotations

from typing import Final

from timebound.core.values.message import Message, copy_cost

SYS_PREFIX: Final = "$SYS/"
# What a level of the trie takes: its node, with a table of those below. Measured: 250 to 400 bytes.
NODE_COST: Final = 320

WALK_STEPS_MAX: Final = 1 << 60  # all at once


class RetainedNode:
    """One topic level and what is retained at it."""

    __slots__ = ("children", "message")

    def __init__(self) -> None:
        self.children: dict[str, RetainedNode] = {}
        self.message: Message | None = None


class Branch:
    """Nodes of a walk that are gone through one after the other, all `depth` levels below the root."""

    __slots__ = ("depth", "next", "nodes")

    def __init__(self, nodes: list[RetainedNode], depth: int) -> None:
        self.nodes = nodes
        self.depth = depth
        self.next = 0


class RetainedWalk:
    """What a filter selects, found a part at a time.

    Messages may come and go meanwhile: what is gone before the walk gets there is not found, and of
    what comes, some is.
    """

    __slots__ = ("_branches", "_is_open", "_levels", "_root")

    def __init__(self, root: RetainedNode, topic_filter: str) -> None:
        self._root = root
        self._levels = topic_filter.split("/")
        self._is_open = self._levels[-1] == "#"
        if self._is_open:
            self._levels.pop()
        # Not by recursion: a topic may have more levels than the stack has room.
        self._branches = [Branch([root], 0)]

    def is_over(self) -> bool:
        return not self._branches

    def take(self, steps_max: int) -> list[Message]:
        """What the next nodes hold, `steps_max` of them at most; the walk may be over then."""
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
        self._own = 0  # of the broker itself
        self.size_bytes = 0  # of clients, with the nodes of the trie
        self.messages_max = messages_max
        self.bytes_max = bytes_max

    def __len__(self) -> int:
        """Messages of clients."""
        return len(self._messages) - self._own

    def get(self, topic: str) -> Message | None:
        return self._messages.get(topic)

    def put(self, message: Message) -> bool:
        """Retain a message in place of its predecessor; False, and no change, where it does not fit."""
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
        """Retain what an earlier run had: it was promised, even if the limits are lower now."""
        old = self._messages.get(message.topic)
        if old is not None:
            self._subtract(old)
        self.size_bytes += _cost(message)
        self._own += _is_own(message)
        self._messages[message.topic] = message
        node = self._root
        node_cost = _node_cost(message.topic)
        for level in message.topic.split("/"):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = RetainedNode()
                self.size_bytes += node_cost
            node = child
        node.message = message

    def _missing_cost(self, topic: str) -> int:
        """What the nodes cost that the trie lacks for a topic."""
        levels = topic.split("/")
        node = self._root
        for depth, level in enumerate(levels):
            child = node.children.get(level)
            if child is None:
                return (len(levels) - depth) * _node_cost(topic)
            node = child
        return 0

    def _subtract(self, message: Message) -> None:
        self.size_bytes -= _cost(message)
        self._own -= _is_own(message)

    def remove(self, topic: str) -> bool:
        """Forget the topic's message; False if there was none."""
        message = self._messages.pop(topic, None)
        if message is None:
            return False
        self._subtract(message)
        levels = topic.split("/")
        path = [self._root]
        for level in levels:
            path.append(path[-1].children[level])
        path[-1].message = None
        for depth in range(len(levels), 0, -1):
            if path[depth].children or path[depth].message is not None:
                break
            del path[depth - 1].children[levels[depth - 1]]
            self.size_bytes -= _node_cost(topic)
        return True

    def match(self, topic_filter: str) -> list[Message]:
        """The retained messages that an unshared filter selects, level by level in order of arrival."""
        return self.walk(topic_filter).take(WALK_STEPS_MAX)

    def walk(self, topic_filter: str) -> RetainedWalk:
        """Begin to find what an unshared filter selects, a part at a time."""
        return RetainedWalk(self._root, topic_filter)

    def _check(self) -> None:
        """Raise AssertionError where the trie and the table disagree."""
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
    """Whether the broker itself has published it; a client that may write to `$SYS` is named."""
    return not message.publisher and message.topic.startswith(SYS_PREFIX)


def _cost(message: Message) -> int:
    return 0 if _is_own(message) else copy_cost(message.size())


def _node_cost(topic: str) -> int:
    return 0 if topic.startswith(SYS_PREFIX) else NODE_COST
