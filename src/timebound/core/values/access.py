"""Access rules: who may publish and subscribe to which topics.

Rules are read from top to bottom, and the first that applies decides. For a publication, that is
the first rule whose filter matches the topic. A subscription asks for many topics at once, so an
`allow` rule applies only if its filter covers all of them, and a `deny` rule as soon as it
overlaps one: a client may receive everything that it may subscribe to.

If no rule applies, the default is to deny if there are rules, and to allow if there are none; for
topics that begin with `$` see `_default_publish` and `_default_subscribe`. The reasons are in
`docs/decisions/0005-configuration-and-security.md`.
"""

from __future__ import annotations

from typing import Final

from timebound.errors import ConfigError, FilterError
from timebound.topics import FINDINGS, REQUESTS, reserved_fault

PUBLISH: Final = "publish"
SUBSCRIBE: Final = "subscribe"
ALL: Final = "all"
ANYONE: Final = "*"
ANONYMOUS: Final = ""

# Most clients repeat a few topics. Beyond these limits decisions are not cached: 20,000 clients
# that fill their caches with the longest topics take less than a gigabyte.
CACHED_TOPICS_MAX: Final = 128
CACHED_TOPIC_LENGTH_MAX: Final = 256
# Clients cached for `AccessList.may_...`; the node keeps one `ClientAccess` per connection.
CACHED_CLIENTS_MAX: Final = 1_024

_SHARE_PREFIX: Final = "$share/"
_OPENINGS: Final = REQUESTS + FINDINGS


class AccessRule:
    """One rule; `user` is a name, ANYONE or ANONYMOUS; `%u` and `%c` in the filter are replaced.

    Raises:
        FilterError: the topic filter is invalid, or begins with `$share/`.
    """

    __slots__ = ("action", "allow", "topic_filter", "user")

    def __init__(self, user: str, action: str, topic_filter: str, allow: bool) -> None:
        assert action in (PUBLISH, SUBSCRIBE, ALL)
        check_rule_filter(topic_filter)
        self.user = user
        self.action = action
        self.topic_filter = topic_filter
        self.allow = allow

    def _key(self) -> tuple[str, str, str, bool]:
        return (self.user, self.action, self.topic_filter, self.allow)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccessRule) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return (
            f"AccessRule(user={self.user!r}, action={self.action!r}, "
            f"topic_filter={self.topic_filter!r}, allow={self.allow!r})"
        )


class _Pattern:
    """A topic filter in levels; `open_end` stands for a final `#`, which is not in `levels`.

    A lone `#` becomes `+/#`, which matches the same topics: no topic has zero levels.
    """

    __slots__ = ("levels", "open_end")

    def __init__(self, topic_filter: str) -> None:
        levels = topic_filter.split("/")
        self.open_end = levels[-1] == "#"
        if self.open_end:
            levels.pop()
            if not levels:
                levels.append("+")
        self.levels: list[str] = levels

    def covers(self, other: _Pattern) -> bool:
        count = len(self.levels)
        if self.open_end:
            if count > len(other.levels):
                return False
        elif other.open_end or count != len(other.levels):
            return False
        for index in range(count):
            mine = self.levels[index]
            theirs = other.levels[index]
            if mine == "+":
                # MQTT 5, 4.7.2: a leading wildcard does not match topics that begin with $.
                if index == 0 and theirs[:1] == "$":
                    return False
            elif mine != theirs:
                return False
        return True

    def overlaps(self, other: _Pattern) -> bool:
        """Whether there is a topic that both match."""
        mine_count = len(self.levels)
        their_count = len(other.levels)
        if mine_count < their_count and not self.open_end:
            return False
        if their_count < mine_count and not other.open_end:
            return False
        for index in range(min(mine_count, their_count)):
            mine = self.levels[index]
            theirs = other.levels[index]
            if mine == theirs:
                continue
            if mine != "+" and theirs != "+":
                return False
            if index == 0 and (mine[:1] == "$" or theirs[:1] == "$"):
                return False
        return True


class _FilledRule:
    """The filter of a rule with the names of one client, split into levels."""

    __slots__ = ("allow", "pattern")

    def __init__(self, allow: bool, pattern: _Pattern) -> None:
        self.allow = allow
        self.pattern = pattern


def covers(filter_a: str, filter_b: str) -> bool:
    """Whether `filter_a` matches every topic that `filter_b` matches.

    A topic is a filter without wildcards, so this also tests whether a filter matches a topic.
    """
    return _Pattern(filter_a).covers(_Pattern(filter_b))


class ClientAccess:
    """The rights of one client. The node makes one per connection and calls it directly."""

    __slots__ = ("_allowed", "_has_rules", "_publish_cache", "_publish_rules", "_subscribe_rules")

    def __init__(self, rules: list[AccessRule], user: str, client_id: str) -> None:
        self._allowed: str | None = None  # the last topic it was allowed to publish to
        self._has_rules = len(rules) > 0
        self._publish_cache: dict[str, bool] = {}
        self._publish_rules: list[_FilledRule] = []
        self._subscribe_rules: list[_FilledRule] = []
        for rule in rules:
            if rule.user != ANYONE and rule.user != user:
                continue
            topic_filter = _fill(rule, user, client_id)
            if topic_filter is None:
                continue
            filled = _FilledRule(rule.allow, _Pattern(topic_filter))
            if rule.action != SUBSCRIBE:
                self._publish_rules.append(filled)
            if rule.action != PUBLISH:
                self._subscribe_rules.append(filled)

    def may_publish(self, topic: str) -> bool:
        """Whether a message to this topic is accepted; also used for wills."""
        # Publishers repeat topics, and equal ones are one object (`wire/publish.py`).
        if topic is self._allowed:
            return True
        is_allowed = self._may_publish(topic)
        if is_allowed and len(topic) <= CACHED_TOPIC_LENGTH_MAX:
            self._allowed = topic
        return is_allowed

    def _may_publish(self, topic: str) -> bool:
        if not self._has_rules:
            return topic[:1] != "$" or _default_publish(topic, False)
        cached = self._publish_cache.get(topic)
        if cached is not None:
            return cached
        decided = self._decide_publish(topic)
        if len(topic) <= CACHED_TOPIC_LENGTH_MAX:
            if len(self._publish_cache) >= CACHED_TOPICS_MAX:
                self._publish_cache.clear()
            self._publish_cache[topic] = decided
        return decided

    def may_subscribe(self, topic_filter: str) -> bool:
        """Whether a subscription is accepted; for `$share/group/filter` the filter counts."""
        if topic_filter.startswith(_SHARE_PREFIX):
            end = topic_filter.find("/", len(_SHARE_PREFIX))
            if end < 0 or end + 1 == len(topic_filter):
                return False
            topic_filter = topic_filter[end + 1 :]
        asked = _Pattern(topic_filter)
        for rule in self._subscribe_rules:
            if rule.allow:
                if rule.pattern.covers(asked):
                    return True
            elif rule.pattern.overlaps(asked):
                return False
        return _default_subscribe(asked, self._has_rules)

    def _decide_publish(self, topic: str) -> bool:
        if reserved_fault(topic, _OPENINGS):
            return False
        asked = _Pattern(topic)
        for rule in self._publish_rules:
            if rule.pattern.covers(asked):
                return rule.allow
        return _default_publish(topic, True)


class AccessList:
    """All rules of a broker, in their order."""

    __slots__ = ("_clients", "_rules")

    def __init__(self, rules: list[AccessRule]) -> None:
        self._rules = list(rules)
        self._clients: dict[tuple[str, str], ClientAccess] = {}

    def for_client(self, user: str, client_id: str) -> ClientAccess:
        """Return the rights of one client; ANONYMOUS is the user of a client without a name."""
        return ClientAccess(self._rules, user, client_id)

    def may_publish(self, user: str, client_id: str, topic: str) -> bool:
        return self._remembered(user, client_id).may_publish(topic)

    def may_subscribe(self, user: str, client_id: str, topic_filter: str) -> bool:
        return self._remembered(user, client_id).may_subscribe(topic_filter)

    def _remembered(self, user: str, client_id: str) -> ClientAccess:
        key = (user, client_id)
        found = self._clients.get(key)
        if found is None:
            if len(self._clients) >= CACHED_CLIENTS_MAX:
                self._clients.clear()
            found = self.for_client(user, client_id)
            self._clients[key] = found
        return found


_SYS: Final = _Pattern("$SYS/#")


def _default_publish(topic: str, has_rules: bool) -> bool:
    # Topics that begin with $ belong to the server (MQTT 5, 4.7.2), except requests and findings.
    # Advertising a flow is checked by its topic; changing settings of the broker, or the model of
    # a client's link, needs a rule as soon as there are any.
    if topic[:1] == "$" and not topic.startswith(_OPENINGS):
        return False
    return not has_rules or topic.startswith("$timebound/advertise/")


def _default_subscribe(asked: _Pattern, has_rules: bool) -> bool:
    return not has_rules or _SYS.covers(asked)


def _fill(rule: AccessRule, user: str, client_id: str) -> str | None:
    """Replace `%u` and `%c`; return None if the rule does not apply to this client.

    A name that is empty or contains `/`, `+` or `#` could match unintended topics. With such a name an
    `allow` rule is ignored, and a `deny` rule ends with `#` at the first such level, so that it denies
    at least what was intended.
    """
    filled: list[str] = []
    for level in rule.topic_filter.split("/"):
        if ("%u" in level and not _is_plain(user)) or ("%c" in level and not _is_plain(client_id)):
            if rule.allow:
                return None
            filled.append("#")
            break
        filled.append(_fill_level(level, user, client_id))
    return "/".join(filled)


def _fill_level(level: str, user: str, client_id: str) -> str:
    # In one pass: a user called `%c` is not a placeholder.
    parts: list[str] = []
    start = 0
    while True:
        at = level.find("%", start)
        if at < 0:
            parts.append(level[start:])
            return "".join(parts)
        parts.append(level[start:at])
        mark = level[at : at + 2]
        if mark == "%u":
            parts.append(user)
        elif mark == "%c":
            parts.append(client_id)
        else:
            parts.append(mark)
        start = at + 2


def _is_plain(name: str) -> bool:
    return name != "" and "/" not in name and "+" not in name and "#" not in name and "\0" not in name


def check_rule_filter(topic_filter: str) -> None:
    """Check that a rule can use a topic filter.

    Raises:
        FilterError: the filter is invalid; the message tells why, `position` where.
    """
    if topic_filter == "":
        raise FilterError("topic filter is empty; '#' stands for every topic")
    if topic_filter.startswith(_SHARE_PREFIX):
        raise FilterError(
            f"topic filter {topic_filter!r} begins with '$share/'; write only the filter after the group name"
        )
    levels = topic_filter.split("/")
    position = 0
    for index in range(len(levels)):
        level = levels[index]
        if "#" in level and (level != "#" or index + 1 != len(levels)):
            raise FilterError(f"topic filter {topic_filter!r} has '#' before its end", position=position)
        if "+" in level and level != "+":
            raise FilterError(
                f"topic filter {topic_filter!r} has '+' beside other characters of a level", position=position
            )
        if "\0" in level:
            raise FilterError(f"topic filter {topic_filter!r} has a null character", position=position)
        position += len(level) + 1


def read_access_rules(text: str, path: str = "") -> tuple[list[AccessRule], list[ConfigError]]:
    """Read the rules of an ACL file; return them and all mistakes, for `timebound check`."""
    rules: list[AccessRule] = []
    mistakes: list[ConfigError] = []
    number = 0
    for line in text.split("\n"):
        number += 1
        stripped = line.strip()
        # Only whole lines are comments: '#' is also a wildcard.
        if stripped == "" or stripped.startswith("#"):
            continue
        try:
            rules.append(_parse_rule(stripped, path, number))
        except ConfigError as exc:
            mistakes.append(exc)
    return rules, mistakes


def _parse_rule(line: str, path: str, number: int) -> AccessRule:
    """Parse `allow|deny user NAME|anyone|anonymous publish|subscribe|all FILTER`."""
    verdict, rest = _take_word(line)
    if verdict not in ("allow", "deny"):
        raise ConfigError(f"expected 'allow' or 'deny', found {verdict!r}", path=path, line=number)
    user, rest = _take_user(rest, path, number)
    action, topic_filter = _take_word(rest)
    if action not in (PUBLISH, SUBSCRIBE, ALL):
        raise ConfigError(
            f"expected 'publish', 'subscribe' or 'all', found {action!r}", path=path, line=number
        )
    try:
        # Topics may contain spaces: the filter is the rest of the line.
        return AccessRule(user, action, topic_filter, verdict == "allow")
    except FilterError as exc:
        raise ConfigError(str(exc), path=path, line=number) from exc


def _take_user(text: str, path: str, number: int) -> tuple[str, str]:
    who, rest = _take_word(text)
    if who == "anyone":
        return ANYONE, rest
    if who == "anonymous":
        return ANONYMOUS, rest
    if who != "user":
        raise ConfigError(
            f"expected 'user NAME', 'anyone' or 'anonymous', found {who!r}", path=path, line=number
        )
    user, rest = _take_word(rest)
    if user == ANYONE:
        raise ConfigError(
            "'user *' is not a user name; write 'anyone' for every client", path=path, line=number
        )
    return user, rest


def _take_word(text: str) -> tuple[str, str]:
    parts = text.split(None, 1)
    if not parts:
        return "", ""
    return parts[0], parts[1] if len(parts) > 1 else ""
