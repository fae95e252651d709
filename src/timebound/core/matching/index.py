"""The subscription index: which subscriptions select a message, here and at other brokers.

A trie of topic levels finds the filters that match a topic; the result is cached per topic as a
`Match` until a subscription changes. Content filters and the turn of a shared group are not cached: filters
are evaluated once for each message, and its `Selected` has the result for all who ask.

Long, since trie, match and selection call each other inside one compiled module: every message passes here.
"""

from __future__ import annotations

from typing import Any, Final, cast

from timebound.core.predicate.index.index import ContentIndex
from timebound.core.predicate.predicate import Attributes, Predicate
from timebound.core.values.message import Message
from timebound.core.values.subscription import Subscription
from timebound.core.values.trace_columns import TraceHint
from timebound.topics import has_wildcard, split_share

# Cached matches; a publisher that invents topics must not fill the memory. At about 300 bytes
# a match this is some 30 MB; a full cache is cleared.
MATCHES_MAX: Final = 100_000
# Shared, since most topics are wanted at no other broker.
_NO_SUBSCRIPTIONS: Final[list[Subscription]] = []

# None: it is not known whose filter it was.
FilterErrors = list[tuple[Subscription | None, Exception]]
NO_ERRORS: Final[FilterErrors] = []


class SharedGroup:
    """The members of `$share/NAME/FILTER`; each message goes to one of them, in turn.

    A client is one member, with as many subscriptions as it has names.
    """

    __slots__ = ("members", "name", "named", "turn")

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[str, Subscription] = {}  # by client and name
        self.named = 0  # those with a name
        self.turn = 0

    def candidates(self, attributes: Attributes | None, errors: FilterErrors) -> list[Subscription]:
        """Return the members that select the message, beginning with the one whose turn it is.

        The first of the highest QoS stands for a client with several subscriptions; see
        `subscriptions_of`. Filters that raise are added to `errors`.
        """
        wanted = evaluate_each(list(self.members.values()), attributes, errors)
        if not wanted:
            return wanted
        if self.named:
            by_client: dict[str, Subscription] = {}
            for one in wanted:
                known = by_client.get(one.client_id)
                if known is None or one.qos > known.qos:
                    by_client[one.client_id] = one
            wanted = list(by_client.values())
        self.turn += 1
        start = self.turn % len(wanted)
        return wanted[start:] + wanted[:start]

    def subscriptions_of(self, chosen: Subscription, attributes: Attributes | None) -> list[Subscription]:
        """Return the subscriptions of a chosen member that select the message, as `candidates` found them."""
        if not self.named:
            return [chosen]
        of_client = [one for one in self.members.values() if one.client_id == chosen.client_id]
        return evaluate_each(of_client, attributes, [])

    def insert(self, subscription: Subscription) -> None:
        assert subscription.member not in self.members
        self.members[subscription.member] = subscription
        if subscription.terms.name:
            self.named += 1

    def remove(self, subscription: Subscription) -> None:
        del self.members[subscription.member]
        if subscription.terms.name:
            self.named -= 1

    def predicates(self) -> list[Predicate]:
        """Return the content filters of all members."""
        return [one.predicate for one in self.members.values() if one.predicate is not None]


def _selects(subscription: Subscription, attributes: Attributes | None) -> bool:
    predicate = subscription.predicate
    if predicate is None:
        return True
    if attributes is None:
        return False
    if attributes.verdicts is not None and predicate.text in attributes.verdicts:
        return attributes.verdicts[predicate.text]
    return predicate.matches(attributes)


class TrieLeaf:
    """Everything subscribed under one topic filter; `content` also holds filters of other brokers."""

    __slots__ = ("content", "groups", "plain", "remote")

    def __init__(self) -> None:
        self.plain: dict[str, Subscription] = {}
        self.remote: dict[str, Subscription] | None = None  # of other brokers' clients, made when needed
        self.content: ContentIndex = ContentIndex()
        self.groups: dict[str, SharedGroup] = {}

    def is_empty(self) -> bool:
        return not self.plain and not self.remote and not len(self.content) and not self.groups

    def size(self) -> int:
        count = len(self.plain) + len(self.content)
        if self.remote is not None:
            count += len(self.remote)
        for group in self.groups.values():
            count += len(group.members)
        return count

    def subscriptions(self) -> list[Subscription]:
        """Return those of this broker's clients."""
        found = list(self.plain.values())
        found += [one for one in cast(list[Subscription], self.content.keys()) if not one.home]
        for group in self.groups.values():
            found += group.members.values()
        return found


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
    """The subscriptions that a topic selects: `plain` here, `remote` at other brokers.

    `is_simple`: `plain` has all of this broker, and no session twice. `cost`: what its content filters take
    for a message at most, in plain tests.
    """

    __slots__ = (
        "by_home",
        "contents",
        "cost",
        "groups",
        "is_simple",
        "needs_attributes",
        "plain",
        "predicates",
        "remote",
        "topic",
        "trace_hint",
    )

    def __init__(self, topic: str, leaves: list[TrieLeaf]) -> None:
        self.topic = topic
        self.plain: list[Subscription] = []
        self.remote = _NO_SUBSCRIPTIONS
        self.by_home: list[Any] | None = None  # `remote` as the mesh groups it, once known
        self.contents: list[ContentIndex] = []
        self.groups: list[SharedGroup] = []
        self.trace_hint = TraceHint()
        for leaf in leaves:
            self.plain.extend(leaf.plain.values())
            self.groups.extend(leaf.groups.values())
            if leaf.remote is not None:
                self.remote = [*self.remote, *leaf.remote.values()]
            if len(leaf.content):
                self.contents.append(leaf.content)
        names = {subscription.client_id for subscription in self.plain}
        self.is_simple = not self.contents and not self.groups and len(names) == len(self.plain)
        self.predicates = [one for group in self.groups for one in group.predicates()]  # of shared groups
        self.needs_attributes = bool(self.contents) or bool(self.predicates)
        self.cost: int = sum([content.cost for content in self.contents])
        self.cost += sum([one.cost.most() for one in self.predicates])

    def has_any(self) -> bool:
        """Whether a subscription of this broker may select a message of the topic."""
        return bool(self.plain) or bool(self.contents) or bool(self.groups)

    def has_remote(self) -> bool:
        """Whether a subscription of another broker may select a message of the topic."""
        return bool(self.remote) or bool(self.contents)


class Selected:
    """The unshared subscriptions that select one message: `local` of this broker, `remote` of others.

    A filter that raises selects nothing, and is in `errors`.
    """

    __slots__ = ("attributes", "errors", "local", "message", "remote")

    def __init__(self, match: Match, message: Message) -> None:
        self.message = message
        self.attributes: Attributes | None = None
        self.local = match.plain
        self.remote = match.remote
        self.errors = NO_ERRORS
        if match.needs_attributes:
            self.attributes = attributes_of(message)
            if match.contents:
                self.local = list(match.plain)
                self.remote = list(match.remote)

    def evaluate(self, contents: list[ContentIndex]) -> None:
        """Ask the content filters."""
        attributes = self.attributes
        if attributes is None:
            return
        for content in contents:
            try:
                found = content.match(attributes)
            except Exception as error:
                self.evaluate_alone(content, attributes, error)
                continue
            self.add(found)

    def add(self, found: list[object]) -> None:
        """Add subscriptions whose content filters hold."""
        for subscription in cast(list[Subscription], found):
            (self.remote if subscription.home else self.local).append(subscription)

    def evaluate_alone(self, content: ContentIndex, attributes: Attributes, error: Exception) -> None:
        """Ask each filter alone, since `error` was raised: to find out by which."""
        errors: FilterErrors = []
        found = evaluate_each(cast(list[Subscription], content.keys()), attributes, errors)
        self.errors = [*self.errors, *(errors or [(None, error)])]
        self.add(cast(list[object], found))


class SubscriptionIndex:
    """All subscriptions that a broker knows, by topic filter: of its clients, and of other brokers'.

    Its length counts those of its clients.
    """

    __slots__ = ("_count", "_last", "_matches", "_remote_count", "_root", "_selection")

    def __init__(self) -> None:
        self._root = TrieNode()
        self._matches: dict[str, Match] = {}
        self._last: Match | None = None  # of these, the last that was asked for
        self._count = 0
        self._remote_count = 0
        self._selection: Selected | None = None  # of the message that is being distributed

    def __len__(self) -> int:
        return self._count - self._remote_count

    def insert(self, subscription: Subscription) -> None:
        """Add a subscription; an earlier one of the same session, filter and name must be removed first."""
        group_name, topic_filter = split_share(subscription.topic_filter)
        leaf = self._make_leaf(topic_filter)
        before = leaf.size()
        try:
            if group_name:
                group = leaf.groups.get(group_name)
                if group is None:
                    group = leaf.groups[group_name] = SharedGroup(group_name)
                group.insert(subscription)
            elif subscription.predicate is not None:
                leaf.content.insert(subscription, subscription.predicate)
            elif subscription.home:
                if leaf.remote is None:
                    leaf.remote = {}
                assert subscription.client_id not in leaf.remote
                leaf.remote[subscription.client_id] = subscription
            else:
                assert subscription.member not in leaf.plain
                leaf.plain[subscription.member] = subscription
        finally:
            self._settle(subscription, topic_filter, leaf, before)

    def remove(self, subscription: Subscription) -> bool:
        """Remove a subscription; False if this object is not in the index."""
        if not self.has(subscription):
            return False
        group_name, topic_filter = split_share(subscription.topic_filter)
        leaf = self._find_leaf(topic_filter)
        assert leaf is not None
        before = leaf.size()
        try:
            if group_name:
                group = leaf.groups[group_name]
                group.remove(subscription)
                if not group.members:
                    del leaf.groups[group_name]
            elif subscription.predicate is not None:
                leaf.content.remove(subscription)
            elif leaf.remote is not None and subscription.home:
                del leaf.remote[subscription.client_id]
            else:
                del leaf.plain[subscription.member]
        finally:
            self._settle(subscription, topic_filter, leaf, before)
        return True

    def _settle(self, subscription: Subscription, topic_filter: str, leaf: TrieLeaf, before: int) -> None:
        """Update counts, matches and trie after a change of a leaf, also after an error."""
        change = leaf.size() - before
        self._count += change
        if subscription.home:
            self._remote_count += change
        self._selection = None
        self._forget_matches(topic_filter)
        if leaf.is_empty():
            self._prune(self._path(topic_filter), topic_filter)

    def has(self, subscription: Subscription) -> bool:
        """Whether this object is in the index."""
        group_name, topic_filter = split_share(subscription.topic_filter)
        leaf = self._find_leaf(topic_filter)
        if leaf is None:
            return False
        if group_name:
            group = leaf.groups.get(group_name)
            return group is not None and group.members.get(subscription.member) is subscription
        if subscription.predicate is not None:
            return leaf.content.has(subscription)
        if subscription.home:
            return leaf.remote is not None and leaf.remote.get(subscription.client_id) is subscription
        return leaf.plain.get(subscription.member) is subscription

    def shared_group(self, topic_filter: str) -> SharedGroup | None:
        """Return the group of a filter `$share/NAME/FILTER`; None if it has no members."""
        group_name, plain_filter = split_share(topic_filter)
        leaf = self._find_leaf(plain_filter)
        return None if leaf is None else leaf.groups.get(group_name)

    def has_below(self, level: str) -> bool:
        """Whether a filter begins with this level; leading wildcards do not match `$` topics (4.7.2)."""
        return level in self._root.children

    def match(self, topic: str) -> Match:
        """Return the match of a topic, from the cache or computed now."""
        if self._last is not None and self._last.topic is topic:
            return self._last
        match = self._matches.get(topic)
        if match is None:
            if len(self._matches) >= MATCHES_MAX:
                self._matches.clear()
            match = Match(topic, self._find_leaves(topic))
            self._matches[topic] = match
        self._last = match
        return match

    def select(self, message: Message) -> Selected:
        """Return what selects a message, with content filters applied; computed once for the same message."""
        selection = self._selection
        if selection is None or selection.message is not message:
            match = self.match(message.topic)
            selection = Selected(match, message)
            selection.evaluate(match.contents)
            self._selection = selection
        return selection

    def put_selection(self, selection: Selected) -> None:
        """Take a selection that was computed in steps, without subscriptions that have ended since."""
        selection.local = [one for one in selection.local if self.has(one)]
        selection.remote = [one for one in selection.remote if self.has(one)]
        self._selection = selection

    def end_selection(self) -> FilterErrors:
        """Release the message of the last selection, and its decoded payload; return filters that raised."""
        selection = self._selection
        if selection is None:
            return NO_ERRORS
        self._selection = None
        return selection.errors

    def clear_matches(self) -> None:
        """Empty the cache of matches."""
        self._last = None
        self._matches.clear()

    def _forget_matches(self, topic_filter: str) -> None:
        self._last = None
        if has_wildcard(topic_filter):
            self._matches.clear()
        else:
            self._matches.pop(topic_filter, None)

    def _find_leaves(self, topic: str) -> list[TrieLeaf]:
        leaves: list[TrieLeaf] = []
        nodes = [self._root]
        # MQTT 5, 4.7.2: a leading wildcard never selects a topic that starts with $.
        wild = not topic.startswith("$")
        for level in topic.split("/"):
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

    def _find_leaf(self, topic_filter: str) -> TrieLeaf | None:
        """Return the leaf of a filter; None if nothing is subscribed under it."""
        node = self._root
        for level in topic_filter.split("/"):
            if level == "#":
                return node.rest
            child = node.any_level if level == "+" else node.children.get(level)
            if child is None:
                return None
            node = child
        return node.leaf

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

    def subscriptions(self) -> list[Subscription]:
        """Return all subscriptions of this broker's clients, in no particular order."""
        found: list[Subscription] = []
        pending = [self._root]
        while pending:
            node = pending.pop()
            for leaf in (node.leaf, node.rest):
                if leaf is not None:
                    found += leaf.subscriptions()
            pending.extend(node.children.values())
            if node.any_level is not None:
                pending.append(node.any_level)
        return found

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
                    count += leaf.size()
            pending.extend(node.children.values())
            if node.any_level is not None:
                pending.append(node.any_level)
        assert count == self._count, "the count of subscriptions is wrong"


def attributes_of(message: Message) -> Attributes:
    """Return what content filters can ask of a message; its payload is decoded when one does."""
    return Attributes(message.user_properties, message.payload, message.topic)


def evaluate_each(
    subscriptions: list[Subscription], attributes: Attributes | None, errors: FilterErrors
) -> list[Subscription]:
    """Return the subscriptions whose filter holds; one that raises does not, and is added to `errors`."""
    found: list[Subscription] = []
    for subscription in subscriptions:
        try:
            if _selects(subscription, attributes):
                found.append(subscription)
        except Exception as error:
            errors.append((subscription, error))
    return found
