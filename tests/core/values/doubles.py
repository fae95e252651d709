"""Access rules from text, where the first mistake is enough."""

from __future__ import annotations

from timebound.core.values.access import AccessRule, read_access_rules


def parse_access_rules(text: str, path: str = "") -> list[AccessRule]:
    """Read the rules of an ACL file.

    Raises:
        ConfigError: the first line that is wrong, with its number.
    """
    rules, mistakes = read_access_rules(text, path)
    if mistakes:
        raise mistakes[0]
    return rules
