"""Retained messages: the last one of each topic, found again by filter.

The trie mirrors the topic levels, so a filter visits only what it can select. The store
is bounded in messages and bytes; a full store refuses the new message and changes nothing.
"""

from __future__ import annotations

from timebound.core.message import Message


class RetainedNode:
    """One topic level and what is retained at it."""

    __slots__ = ("children", "message")

    def __init__(self) -> None:
        self.children: dict[str, RetainedNode] = {}
        self.message: Message | None = None


class RetainedStore:
    """The retained message of every topic that has one."""

    __slots__ = ("_messages", "_root", "bytes_max", "messages_max", "size_bytes")

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages: dict[str, Message] = {}
        self._root = RetainedNode()
        self.size_bytes = 0
        self.messages_max = messages_max
        self.bytes_max = bytes_max

    def __len__(self) -> int:
        return len(self._messages)

    def get(self, topic: str) -> Message | None:
        return self._messages.get(topic)

    def put(self, message: Message) -> bool:
        """Retain a message in place of its predecessor; False, and no change, where it does not fit."""
        old = self._messages.get(message.topic)
        grown = message.size() - (old.size() if old is not None else 0)
        if old is None and len(self._messages) >= self.messages_max:
            return False
        if grown > 0 and self.size_bytes + grown > self.bytes_max:
            return False
        self._set(message, grown)
        return True

    def restore(self, message: Message) -> None:
        """Retain what an earlier run had: it was promised, even if the limits are lower now."""
        old = self._messages.get(message.topic)
        self._set(message, message.size() - (old.size() if old is not None else 0))

    def _set(self, message: Message, grown: int) -> None:
        self.size_bytes += grown
        self._messages[message.topic] = message
        node = self._root
        for level in message.topic.split("/"):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = RetainedNode()
            node = child
        node.message = message

    def remove(self, topic: str) -> bool:
        """Forget the topic's message; False if there was none."""
        message = self._messages.pop(topic, None)
        if message is None:
            return False
        self.size_bytes -= message.size()
        levels = topic.split("/")
        path = [self._root]
        for level in levels:
            path.append(path[-1].children[level])
        path[-1].message = None
        for depth in range(len(levels), 0, -1):
            if path[depth].children or path[depth].message is not None:
                break
            del path[depth - 1].children[levels[depth - 1]]
        return True

    def match(self, topic_filter: str) -> list[Message]:
        """The retained messages that an unshared filter selects, level by level in order of arrival."""
        found: list[Message] = []
        levels = topic_filter.split("/")
        is_open = levels[-1] == "#"
        if is_open:
            levels.pop()
        nodes = [self._root]
        # Level by level, not by recursion: a topic may have more levels than the stack has room.
        for level in levels:
            following: list[RetainedNode] = []
            for node in nodes:
                if level != "+":
                    exact = node.children.get(level)
                    if exact is not None:
                        following.append(exact)
                elif node is self._root:
                    # MQTT 5, 4.7.2: a leading wildcard never selects a topic that starts with $.
                    following += [child for name, child in node.children.items() if name[:1] != "$"]
                else:
                    following += node.children.values()
            nodes = following
        for node in nodes:
            if is_open:
                self._collect_all(node, found)
            elif node.message is not None:
                found.append(node.message)
        return found

    def _collect_all(self, node: RetainedNode, found: list[Message]) -> None:
        pending = [node]
        while pending:
            current = pending.pop()
            if current.message is not None:
                found.append(current.message)
            for name, child in reversed(current.children.items()):
                if current is not self._root or name[:1] != "$":
                    pending.append(child)

    def _check(self) -> None:
        """Raise AssertionError where the trie and the table disagree."""
        topics = [message.topic for message in self.match("#")]
        plain = [topic for topic in self._messages if not topic.startswith("$")]
        assert sorted(topics) == sorted(plain), "trie and table differ"
        assert self.size_bytes == sum(message.size() for message in self._messages.values())
