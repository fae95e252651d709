"""`[security]` and `[[acl]]`: what a file of rules says, and who is let in without any."""

from __future__ import annotations

from pathlib import Path

from tests.config.doubles import PATH, mistakes_of

from timebound.config.security import TO_LOG_IN, AclEntry, SecurityConfig
from timebound.core.values.access import AccessRule
from timebound.node.config import parse_config


def test_a_rule_allows_everything_on_its_topics_unless_it_says_otherwise() -> None:
    config = parse_config(
        "[[acl]]\nuser = 'ann'\nfilter = 'plant/#'\n"
        "[[acl]]\nuser = ''\nfilter = '%c/#'\naction = 'subscribe'\nallow = false\n",
        PATH,
    )

    assert config.security.rules == (
        AccessRule("ann", "all", "plant/#", True),
        AccessRule("", "subscribe", "%c/#", False),
    )
    entry = AclEntry("ann", "plant/#")
    assert (entry.action, entry.allow) == ("all", True)


def test_nobody_ends_the_session_of_another_user_unless_it_is_asked_for() -> None:
    assert not SecurityConfig().take_over_from_others
    assert parse_config("[security]\ntake_over_from_others = true", PATH).security.take_over_from_others


def test_rules_stand_in_one_place(tmp_path: Path) -> None:
    (tmp_path / "acl.txt").write_text("ann all plant/# allow\n")
    text = "[security]\nacl_file = 'acl.txt'\n[[acl]]\nuser = 'a'\nfilter = 'b'\n"

    assert any("security.acl_file: " in mistake for mistake in mistakes_of(text, tmp_path))


def test_a_listener_that_nobody_gets_in_at_is_answered_with_the_ways_in(tmp_path: Path) -> None:
    (mistake,) = mistakes_of("[[listeners]]\nhost = '0.0.0.0'\n", tmp_path)

    assert mistake.endswith(f"nobody could log in at '0.0.0.0': {TO_LOG_IN}")
