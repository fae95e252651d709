"""The checker of losses notices an acknowledged message that never came, and asks for a reason that fits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.sim.deployment.plans import (
    FAR,
    LINK,
    PUBLISHER,
    TWO,
    act,
    calm,
    judge,
    plan,
    publish,
    run,
    subscribe,
)

from timebound.records import Outcome
from timebound.sim.deployment.checkers.losses import Losses
from timebound.sim.deployment.deployment import Deployment
from timebound.sim.deployment.history import TracedOutcome

LOST = "s never got 2 of p on 'a/x' by 'a/#' (without a record)"


def without_second() -> Deployment:
    """Message 2, of QoS 1, was acknowledged and did not arrive."""
    deployment = calm(Losses())
    assert judge(deployment, Losses()) == []
    assert deployment.history.counts["promises checked"] == 8  # messages 2, 3, 5, 6, judged twice
    history = deployment.history
    history.arrivals = [one for one in history.arrivals if one.number != 2]
    return deployment


def test_message_that_never_came_is_noticed() -> None:
    assert judge(without_second(), Losses()) == [LOST]


@pytest.mark.parametrize(
    ("reason", "name", "value"),
    [
        ("timed_out", "timeout_ns", 5),
        ("hopeless", "timeout_ns", 5),
        ("expired", "expiry_s", 1),
        ("replaced", "timeout_ns", 5),
    ],
)
def test_reason_must_fit_what_was_asked_for(reason: str, name: str, value: int) -> None:
    deployment = without_second()
    record = TracedOutcome("n1", 1, 2, "s", "a/#", Outcome.DROPPED.value, reason)
    deployment.history.outcomes.append(record)
    assert judge(deployment, Losses()) == [LOST.replace("without a record", reason)]

    setattr(deployment.history.messages[2], name, value)

    assert judge(deployment, Losses()) == []


def test_without_an_acknowledgement_nothing_is_promised() -> None:
    deployment = without_second()

    deployment.history.messages[2].acked_ns = -1

    assert judge(deployment, Losses()) == []


def test_refusal_promises_nothing() -> None:
    deployment = without_second()

    deployment.history.messages[2].code = 0x97

    assert judge(deployment, Losses()) == []


def test_subscription_that_a_later_subscribe_may_have_replaced_promises_nothing() -> None:
    deployment = without_second()
    [asked] = [one for one in deployment.history.subscriptions if one.client == "s"]

    asked.ended_ns = deployment.history.messages[2].sent_ns + 1

    assert judge(deployment, Losses()) == []


def test_crash_of_another_broker_excuses_only_its_own_messages() -> None:
    deployment = without_second()
    history = deployment.history
    sent = history.messages[2]
    history.crashes.append((sent.sent_ns + 1, "n2"))
    assert judge(deployment, Losses()) == [LOST]

    sent.taken = [("n2", 1, sent.sent_ns)]

    assert judge(deployment, Losses()) == []


def test_run_that_is_not_settled_is_checked_only_if_nothing_is_left() -> None:
    deployment = without_second()
    deployment.plan = replace(deployment.plan, is_settled=False)
    assert judge(deployment, Losses()) == [LOST]

    deployment._refusing.add(frozenset(("n1", "n2")))

    assert judge(deployment, Losses()) == []


def test_a_link_that_was_away_excuses_a_drop_between_brokers_unless_it_was_mended() -> None:
    late = replace(
        plan(
            subscribe(1, "a/#", who="s"),
            publish(12, 1, qos=1),
            act(40, "cut", "n1-n2"),
            act(41, "mend", "n1-n2"),
            clients=(PUBLISHER, FAR),
            configs=TWO,
            links=LINK,
        ),
        is_settled=False,
    )
    deployment = run(late, Losses())
    assert judge(deployment, Losses()) == []
    deployment.history.arrivals.clear()
    record = TracedOutcome("n1", 1, 1, "s", "a/#", Outcome.DROPPED.value, "disconnected")
    deployment.history.outcomes.append(record)

    assert judge(deployment, Losses()) == []
    deployment.plan = replace(late, is_settled=True)
    assert judge(deployment, Losses()) == ["s never got 1 of p on 'a/x' by 'a/#' (disconnected)"]
