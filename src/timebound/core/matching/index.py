"""The subscription index: which subscriptions select a message.

A trie of topic levels finds the filters that match a topic; the result is cached per topic as a
`Match` until a subscription changes. Content filters and the turn of a shared group are not cached:
they are evaluated for each message.
"""

from __future__ import annotations

from typing import Final, cast

from timebound.core.predicate.index.index import ContentIndex
from timebound.core.predicate.predicate import Attributes
from timebound.core.values.subscription import Subscription
from timebound.core.values.trace_columns import TraceHint
from timebound.topics import has_wildcard, split_share

# Cached matches; a publisher that invents topics must not fill the memory. At about 300 bytes
# a match this is some 30 MB; a full cache is cleared.
MATCHES_MAX: Final = 100_000


class SharedGroup:
    """The members of `$share/NAME/FILTER`; each message goes to one of them, in turn."""

    __slots__ = ("members", "name", "turn")

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[str, Subscription] = {}
        self.turn = 0

    def candidates(self, attributes: Attributes | None) -> list[Subscription]:
        """Return the members that select the message, beginning with the one whose turn it is."""
        wanted = [
            subscription
            for subscription in self.members.values()
            if subscription.predicate is None
            or (attributes is not None and subscription.predicate.matches(attributes))
        ]
        if not wanted:
            return wanted
        self.turn += 1
        start = self.turn % len(wanted)
        return wanted[start:] + wanted[:start]

    def has_predicate(self) -> bool:
        return any(subscription.predicate is not None for subscription in self.members.values())


class TrieLeaf:
    """Everything subscribed under one topic filter."""

    __slots__ = ("content", "groups", "plain")

    def __init__(self) -> None:
        self.plain: dict[str, Subscription] = {}
        self.content: ContentIndex = ContentIndex()
        self.groups: dict[str, SharedGroup] = {}

    def is_empty(self) -> bool:
        return not self.plain and not len(self.content) and not self.groups

    def size(self) -> int:
        count = len(self.plain) + len(self.content)
        for group in self.groups.values():
            count += len(group.members)
        return count


class TrieNode:
    """One level of the trie. `leaf` ends a filter here; `rest` ends one with `#` here."""

    __slots__ = ("any_level", "children", "leaf", "rest")

    def __init__(self) -> None:
        self.children: dict[str, TrieNode] = {}
        self.any_level: TrieNode | None = None
        self.leaf: TrieLeaf | None = None
        self.rest: TrieLeaf | None = None

    def is_empty(self) -> bool:
        return not self.children and self.any_level is None and self.leaf is None and self.rest is None


class Match:
    """The subscriptions that a topic selects.

    `is_simple`: `plain` has all of them, and no session twice.
    """

    __slots__ = ("contents", "groups", "is_simple", "needs_attributes", "plain", "trace_hint")

    def __init__(self, leaves: list[TrieLeaf]) -> None:
        self.plain: list[Subscription] = []
        self.contents: list[ContentIndex] = []
        self.groups: list[SharedGroup] = []
        self.trace_hint = TraceHint()
        for leaf in leaves:
            self.plain.extend(leaf.plain.values())
            self.groups.extend(leaf.groups.values())
            if len(leaf.content):
                self.contents.append(leaf.content)
        names = {subscription.client_id for subscription in self.plain}
        self.is_simple = not self.contents and not self.groups and len(names) == len(self.plain)
        self.needs_attributes = bool(self.contents) or any(group.has_predicate() for group in self.groups)

    def has_any(self) -> bool:
        return bool(self.plain) or bool(self.contents) or bool(self.groups)

    def select(self, attributes: Attributes | None) -> list[Subscription]:
        """Return all unshared subscriptions that select the message, with content filters applied."""
        if attributes is None or not self.contents:
            return self.plain
        selected = list(self.plain)
        for content in self.contents:
            selected.extend(cast(list[Subscription], content.match(attributes)))
        return selected


class SubscriptionIndex:
    """All subscriptions of the broker, by topic filter."""

    __slots__ = ("_count", "_matches", "_root")

    def __init__(self) -> None:
        self._root = TrieNode()
        self._matches: dict[str, Match] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def insert(self, subscription: Subscription) -> None:
        """Add a subscription; an earlier one of the same session and filter must be removed first."""
        group_name, topic_filter = split_share(subscription.topic_filter)
        leaf = self._make_leaf(topic_filter)
        before = leaf.size()
        try:
            if group_name:
                group = leaf.groups.get(group_name)
                if group is None:
                    group = leaf.groups[group_name] = SharedGroup(group_name)
                assert subscription.client_id not in group.members
                group.members[subscription.client_id] = subscription
            elif subscription.predicate is not None:
                leaf.content.insert(subscription, subscription.predicate)
            else:
                assert subscription.client_id not in leaf.plain
                leaf.plain[subscription.client_id] = subscription
        finally:
            self._settle(topic_filter, leaf, before)

    def remove(self, subscription: Subscription) -> bool:
        """Remove a subscription; False if this object is not in the index."""
        if not self.has(subscription):
            return False
        group_name, topic_filter = split_share(subscription.topic_filter)
        path = self._path(topic_filter)
        leaf = path[-1].rest if topic_filter.endswith("#") else path[-1].leaf
        assert leaf is not None
        before = leaf.size()
        try:
            if group_name:
                group = leaf.groups[group_name]
                del group.members[subscription.client_id]
                if not group.members:
                    del leaf.groups[group_name]
            elif subscription.predicate is not None:
                leaf.content.remove(subscription)
            else:
                del leaf.plain[subscription.client_id]
        finally:
            self._settle(topic_filter, leaf, before)
        return True

    def _settle(self, topic_filter: str, leaf: TrieLeaf, before: int) -> None:
        """Update count, matches and trie after a change of a leaf, also after an error."""
        self._count += leaf.size() - before
        self._forget_matches(topic_filter)
        if leaf.is_empty():
            self._prune(self._path(topic_filter), topic_filter)

    def has(self, subscription: Subscription) -> bool:
        """Whether this object is in the index."""
        group_name, topic_filter = split_share(subscription.topic_filter)
        node: TrieNode | None = self._root
        for level in topic_filter.split("/"):
            if node is None or level == "#":
                break
            node = node.any_level if level == "+" else node.children.get(level)
        if node is None:
            return False
        leaf = node.rest if topic_filter.endswith("#") else node.leaf
        if leaf is None:
            return False
        if group_name:
            group = leaf.groups.get(group_name)
            return group is not None and group.members.get(subscription.client_id) is subscription
        if subscription.predicate is not None:
            return leaf.content.has(subscription)
        return leaf.plain.get(subscription.client_id) is subscription

    def shared_group(self, topic_filter: str) -> SharedGroup | None:
        """Return the group of a filter `$share/NAME/FILTER`; None if it has no members."""
        group_name, plain_filter = split_share(topic_filter)
        node = self._root
        for level in plain_filter.split("/"):
            if level == "#":
                break
            child = node.any_level if level == "+" else node.children.get(level)
            if child is None:
                return None
            node = child
        leaf = node.rest if plain_filter.endswith("#") else node.leaf
        return None if leaf is None else leaf.groups.get(group_name)

    def has_below(self, level: str) -> bool:
        """Whether a filter begins with this level; leading wildcards do not match `$` topics (4.7.2)."""
        return level in self._root.children

    def match(self, topic: str) -> Match:
        """Return the match of a topic, from the cache or computed now."""
        match = self._matches.get(topic)
        if match is None:
            if len(self._matches) >= MATCHES_MAX:
                self._matches.clear()
            match = Match(self._find_leaves(topic))
            self._matches[topic] = match
        return match

    def clear_matches(self) -> None:
        """Empty the cache of matches."""
        self._matches.clear()

    def _forget_matches(self, topic_filter: str) -> None:
        if has_wildcard(topic_filter):
            self._matches.clear()
        else:
            self._matches.pop(topic_filter, None)

    def _find_leaves(self, topic: str) -> list[TrieLeaf]:
        leaves: list[TrieLeaf] = []
        nodes = [self._root]
        levels = topic.split("/")
        # MQTT 5, 4.7.2: a leading wildcard never selects a topic that starts with $.
        wild = not topic.startswith("$")
        for level in levels:
            following: list[TrieNode] = []
            for node in nodes:
                if wild and node.rest is not None:
                    leaves.append(node.rest)
                child = node.children.get(level)
                if child is not None:
                    following.append(child)
                if wild and node.any_level is not None:
                    following.append(node.any_level)
            nodes = following
            wild = True
        for node in nodes:
            if node.leaf is not None:
                leaves.append(node.leaf)
            if node.rest is not None:  # "a/#" selects "a" too (4.7.1.2)
                leaves.append(node.rest)
        return leaves

    def _make_leaf(self, topic_filter: str) -> TrieLeaf:
        node = self._root
        for level in topic_filter.split("/"):
            if level == "#":
                if node.rest is None:
                    node.rest = TrieLeaf()
                return node.rest
            if level == "+":
                if node.any_level is None:
                    node.any_level = TrieNode()
                node = node.any_level
            else:
                child = node.children.get(level)
                if child is None:
                    child = node.children[level] = TrieNode()
                node = child
        if node.leaf is None:
            node.leaf = TrieLeaf()
        return node.leaf

    def _path(self, topic_filter: str) -> list[TrieNode]:
        """Return the nodes from the root to the one that holds the filter's leaf."""
        path = [self._root]
        for level in topic_filter.split("/"):
            node = path[-1]
            if level == "#":
                break
            child = node.any_level if level == "+" else node.children.get(level)
            assert child is not None
            path.append(child)
        return path

    def _prune(self, path: list[TrieNode], topic_filter: str) -> None:
        levels = topic_filter.split("/")
        if levels[-1] == "#":
            path[-1].rest = None
        else:
            path[-1].leaf = None
        for depth in range(len(path) - 1, 0, -1):
            if not path[depth].is_empty():
                return
            level = levels[depth - 1]
            if level == "+":
                path[depth - 1].any_level = None
            else:
                del path[depth - 1].children[level]

    def _check(self) -> None:
        """Assert that the structure is consistent."""
        count = 0
        pending = [self._root]
        while pending:
            node = pending.pop()
            assert node is self._root or not node.is_empty(), "an empty node was left in the trie"
            for leaf in (node.leaf, node.rest):
                if leaf is not None:
                    assert not leaf.is_empty(), "an empty leaf was left in the trie"
                    count += len(leaf.plain) + len(leaf.content)
                    count += sum(len(group.members) for group in leaf.groups.values())
            pending.extend(node.children.values())
            if node.any_level is not None:
                pending.append(node.any_level)
        assert count == self._count, "the count of subscriptions is wrong"
