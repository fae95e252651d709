"""What a refusal tells the caller."""

from __future__ import annotations

import pytest

from timebound.client.refusals import NotTimebound, PublishRefused, SubscribeRefused, explain
from timebound.errors import PublishError, SubscribeError


def test_reason_is_the_code_its_standard_words_and_those_of_the_server() -> None:
    assert explain(0x87, "only for ann") == "0x87 not authorized: only for ann"
    assert explain(0x97, "") == "0x97 quota exceeded"


def test_refused_message_carries_topic_code_and_words() -> None:
    refused = PublishRefused("a/b", 0x97, "no room")

    assert str(refused) == "message on 'a/b' was refused (0x97 quota exceeded: no room)"
    assert (refused.topic, refused.reason_code, refused.reason_string) == ("a/b", 0x97, "no room")
    assert isinstance(refused, PublishError)


@pytest.mark.parametrize(
    ("reason_string", "position"),
    [
        ("property 'where': expected a value at character 8: 'value >> 90'", 7),
        ("not at characters you may use", None),
        ("", None),
    ],
)
def test_refused_subscription_points_into_the_content_filter(
    reason_string: str, position: int | None
) -> None:
    refused = SubscribeRefused("a/#", 0x83, reason_string)

    assert refused.position == position
    assert refused.topic_filter == "a/#"
    assert isinstance(refused, SubscribeError)


def test_server_that_is_not_timebound_is_named_with_the_request() -> None:
    refused = NotTimebound("$timebound/advertise/a")

    assert "not a Timebound broker" in str(refused)
    assert "'$timebound/advertise/a'" in str(refused)
    assert refused.topic == "$timebound/advertise/a"
