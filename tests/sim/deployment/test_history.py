"""Messages are told apart by their payload, or by a property where it is empty."""

from __future__ import annotations

from timebound.sim.deployment.history import (
    AskedSubscription,
    History,
    SentMessage,
    number_in,
    payload_of,
    properties_of,
)

SESSIONS = (("s", 1), ("t", 1), ("s", 2), ("s", 1))


def test_payload_has_the_number_and_at_least_the_size() -> None:
    payload = payload_of(17, 40, 500)

    assert len(payload) == 500
    assert number_in(payload, ()) == 17
    assert number_in(b"", (("id", "18"),)) == 18


def test_other_payloads_have_none() -> None:
    assert [number_in(text, ()) for text in (b"", b"no json", b"[1]", b'{"id": "x"}', b"{}")] == [0] * 5
    assert number_in(b"", (("id", "x"),)) == 0


def test_hash_depends_on_what_happened_and_on_the_order() -> None:
    one, other, third = History(), History(), History()
    for history in (one, other):
        history.note("a")
        history.count("b")
    third.count("b")
    third.note("a")

    assert one.digest() == other.digest()
    assert one.digest() != third.digest()


def test_messages_are_found_by_the_names_of_brokers() -> None:
    history = History()

    history.name("n1", 5, 3, 17)

    assert history.number_of("n1", 5, 3) == 17
    assert history.number_of("n1", 6, 3) == 0


def test_subscriptions_are_found_by_session_also_those_that_came_later() -> None:
    history = History()
    asked = [AskedSubscription(client, run, "n1", "a", 1, False, {}, 0) for client, run in SESSIONS]

    history.subscriptions += asked[:2]
    assert history.subscriptions_of("s", 1) == asked[:1]
    history.subscriptions += asked[2:]

    assert history.subscriptions_of("s", 1) == [asked[0], asked[3]]
    assert history.subscriptions_of("s", 2) == [asked[2]]
    assert history.subscriptions_of("x", 1) == []


def test_refused_message_promises_nothing() -> None:
    sent = SentMessage(1, "p", 1, "a", 1, False, False, 0, "", 0)
    assert not sent.is_promised()

    sent.acked_ns, sent.code = 5, 0x10
    assert sent.is_promised()
    sent.code = 0x97
    assert not sent.is_promised()


def test_terms_become_user_properties() -> None:
    assert properties_of({"name": "hot"}).user_properties == [("name", "hot")]
