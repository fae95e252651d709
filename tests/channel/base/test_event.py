"""Events, and what they consist of."""

from __future__ import annotations

from timebound.channel.base.event import TOGETHER, Event


def test_plain_event_is_its_own_only_event_and_has_no_parts() -> None:
    event = Event("a", "s", 1, 10)

    assert event.parts == ()
    assert event.events == (event,)


def test_events_of_a_conjunction_are_its_parts() -> None:
    first, second = Event("a", "s", 1, 10), Event("b", "s", 2, 20)

    together = Event(TOGETHER, "c", None, 20, parts=(first, second))

    assert together.events == (first, second)


def test_payload_is_not_copied() -> None:
    payload = [1]

    assert Event("a", "s", payload, 10).payload is payload


def test_event_shows_its_payload_or_its_parts() -> None:
    plain = Event("a", "s", 1, 10)

    assert repr(plain) == "Event('a', source='s', payload=1)"
    assert (
        repr(Event(TOGETHER, "c", None, 20, parts=(plain,)))
        == f"Event('$together', source='c', parts=[{plain!r}])"
    )
