"""The checker of shared subscriptions notices what no member got, and what two members got."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.sim.deployment.plans import act, judge, numbers, plan, publish, run, subscribe

from timebound.records import Outcome
from timebound.sim.deployment.checkers.shared import Shared
from timebound.sim.deployment.deployment import Deployment
from timebound.sim.deployment.history import TracedOutcome
from timebound.sim.deployment.script import Action, ClientSetting

GROUP = "$share/g/a/#"
LOST = "nobody of '$share/g/a/#' at n1 got 2 of p on 'a/x' (without a record)"
PUBLISHER = ClientSetting("p", "n1")
MEMBERS = (ClientSetting("m1", "n1"), ClientSetting("m2", "n1"))


def shared(*actions: Action, qos: int = 1) -> Deployment:
    """Two members, and four messages that one or the other gets."""
    asked = [subscribe(1, GROUP, who=one.name) for one in MEMBERS]
    messages = [publish(2 + number / 10, number, qos=qos) for number in range(1, 5)]
    wanted = plan(*asked, *messages, *actions, clients=(PUBLISHER, *MEMBERS))
    deployment = run(wanted, Shared())
    assert sorted(numbers(deployment, "m1") + numbers(deployment, "m2")) == [1, 2, 3, 4]
    assert not deployment.failures, deployment.failures
    return deployment


def without_second() -> Deployment:
    deployment = shared()
    history = deployment.history
    assert history.counts["group promises checked"] == 0  # all came
    history.arrivals = [one for one in history.arrivals if one.number != 2]
    history.outcomes = [one for one in history.outcomes if one.number != 2]
    return deployment


def test_message_that_no_member_got_is_noticed() -> None:
    deployment = without_second()

    assert judge(deployment, Shared()) == [LOST]
    assert deployment.history.counts["group promises checked"] == 1


def test_run_that_is_not_settled_is_checked_only_if_nothing_is_left() -> None:
    deployment = without_second()
    deployment.plan = replace(deployment.plan, is_settled=False)
    assert judge(deployment, Shared()) == [LOST]

    deployment.nodes["n1"].crash()

    assert judge(deployment, Shared()) == []


@pytest.mark.parametrize("client", ["m1", "$share/g"])
def test_reason_must_fit_what_was_asked_for(client: str) -> None:
    deployment = without_second()
    topic_filter = GROUP if client == "m1" else "a/#"
    record = TracedOutcome("n1", 1, 2, client, topic_filter, Outcome.DROPPED.value, "timed_out")
    deployment.history.outcomes.append(record)
    assert judge(deployment, Shared()) == [LOST.replace("without a record", "timed_out")]

    deployment.history.messages[2].timeout_ns = 5

    assert judge(deployment, Shared()) == []


def test_what_a_session_took_along_is_excused_for_qos_2_alone() -> None:
    deployment = without_second()
    record = TracedOutcome("n1", 1, 2, "m1", GROUP, Outcome.DROPPED.value, "session_expired")
    deployment.history.outcomes.append(record)
    assert judge(deployment, Shared()) == [LOST.replace("without a record", "session_expired")]

    deployment.history.messages[2].qos = 2

    assert judge(deployment, Shared()) == []


@pytest.mark.parametrize("change", ["QoS 0", "correlate", "refused", "empty", "crash"])
def test_nothing_is_promised_where_a_member_may_have_taken_it_along(change: str) -> None:
    deployment = without_second()
    history = deployment.history
    asked = next(one for one in history.subscriptions if one.client == "m1")
    if change == "QoS 0":
        asked.code = 0
    elif change == "correlate":
        asked.terms["correlate"] = "all(a/x, a/y)"
    elif change == "empty":
        history.messages[2].is_empty = True
        deployment.clients["m2"].setting = replace(MEMBERS[1], version=4)
    elif change == "refused":
        history.messages[2].code = 0x97
    else:
        history.crashes.append((history.messages[2].sent_ns + 1, "n1"))
        deployment.clients["m1"].setting = replace(MEMBERS[0], expiry_s=0)

    assert judge(deployment, Shared()) == []


def test_copy_that_a_member_selects_otherwise_is_not_the_groups() -> None:
    deployment = shared()
    history = deployment.history
    taker = next(one.client for one in history.arrivals if one.number == 2)
    asked = next(one for one in history.subscriptions if one.client == taker)
    history.subscriptions.append(replace(asked, topic_filter="a/x"))
    assert judge(deployment, Shared()) == []

    history.outcomes = [one for one in history.outcomes if one.number != 2]

    assert judge(deployment, Shared()) == [LOST]


def test_qos_2_message_that_two_members_got_is_noticed() -> None:
    deployment = shared(qos=2)
    first = next(one for one in deployment.history.arrivals if one.number == 1)
    other = "m2" if first.client == "m1" else "m1"

    deployment.history.arrivals.append(replace(first, client=other))

    assert judge(deployment, Shared()) == ["m1, m2 all got QoS 2 message 1 by '$share/g/a/#'"]


def test_copies_of_a_member_that_leaves_are_delivered_to_the_other() -> None:
    deployment = shared(act(2.15, "vanish", "m1"), act(2.6, "connect", "m1"))

    assert judge(deployment, Shared()) == []
