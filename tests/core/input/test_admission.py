"""Admission: every accepted flow keeps its promise, every refusal says what would fit.

What becomes of promises over random histories is in test_admission_histories.py.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timebound.core.input.admission import CHANGES_MAX, SEARCH_MAX, AdmissionControl
from timebound.core.input.bounds import UNBOUNDED
from timebound.core.input.cells import ORDERS
from timebound.core.input.contract import Contract
from timebound.core.input.steps import finish

from .admission_doubles import MS, QUANTUM, admission, altered, contract, terms


class TestAdvertise:
    def test_first_flow_is_admitted_with_its_bound(self) -> None:
        decision = admission().advertise(contract("c", "t", weight=3), now_ns=0)

        # It just misses its only poll: one quantum lost, one served.
        assert decision.accepted
        assert (decision.bound_ns, decision.weight, decision.slot) == (2 * QUANTUM, 3, 0)
        assert decision.reason == "flow 't' of client 'c' waits at most 0.002 ms"

    def test_flow_over_its_delay_is_refused_with_a_weight_that_fits(self) -> None:
        plan = admission()
        plan.add_background("rest", 10, 4)

        asked = contract("c", "t", weight=1, delay_ns=10 * QUANTUM)
        decision = plan.advertise(asked, now_ns=0)

        # Ten cells of four quanta, its own, and the missed one.
        assert not decision.accepted
        assert (decision.bound_ns, decision.limit_ns) == (42 * QUANTUM, 10 * QUANTUM)
        assert decision.counter_offer.weight == 5
        assert decision.reason == (
            "flow 't' of client 'c' would wait up to 0.042 ms, longer than its 0.010 ms; "
            "a weight of 5 would fit"
        )
        assert plan.weight("t") == 0

    def test_flow_over_its_share_is_refused_with_a_period_that_fits(self) -> None:
        plan = admission()
        plan.add_background("rest", 1, 3)

        decision = plan.advertise(contract("c", "t", interval_ns=2 * QUANTUM), now_ns=0)

        assert decision.bound_ns == UNBOUNDED
        assert 4 * QUANTUM < decision.counter_offer.interval_ns < 4.01 * QUANTUM
        assert (
            "sends 500000 messages/s, but its share, which must be larger, would be 250000" in decision.reason
        )
        assert "a period of 0.005 ms or a weight of 4 would fit" in decision.reason

    def test_flow_that_would_break_anothers_promise_is_refused_and_names_it(self) -> None:
        plan = admission()
        plan.advertise(contract("old", "a", weight=1, delay_ns=6 * QUANTUM), now_ns=0)

        decision = plan.advertise(contract("new", "b", weight=9), now_ns=0)

        assert (decision.broken_client, decision.broken_topic) == ("old", "a")
        assert decision.counter_offer.weight == 4
        assert decision.counter_offer.interval_ns == 0

    def test_refused_again_advertisement_keeps_the_old_contract(self) -> None:
        plan = admission()
        plan.add_background("rest", 1, 3)
        kept = contract("c", "t")
        plan.advertise(kept, now_ns=0)

        assert not plan.advertise(contract("c", "t", interval_ns=1), now_ns=0).accepted

        assert plan.contract("c", "t") is kept

    def test_contract_without_delay_gets_the_default(self) -> None:
        plan = admission(delay_default_ns=4 * QUANTUM)
        plan.advertise(contract("a", "t"), now_ns=0)
        plan.advertise(contract("b", "t"), now_ns=0)
        plan.advertise(contract("c", "t"), now_ns=0)

        assert not plan.advertise(contract("d", "t"), now_ns=0).accepted

    def test_message_of_several_quanta_needs_as_many_cells(self) -> None:
        plan = admission()
        plan.add_background("rest", 1, 1)

        decision = plan.advertise(contract("c", "t", size=250), now_ns=0)

        assert decision.bound_ns == (1 + 3 * 2) * QUANTUM

    def test_jitter_counts_as_messages_that_come_together(self) -> None:
        calm, jittery = admission(), admission(jitter_ns=MS)
        for plan in (calm, jittery):
            plan.add_background("rest", 1, 1)

        bounds = [plan.advertise(contract("c", "t"), now_ns=0).bound_ns for plan in (calm, jittery)]

        assert bounds == [3 * QUANTUM, 5 * QUANTUM]

    def test_weight_of_a_topic_rises_and_stays_until_the_last_flow_is_gone(self) -> None:
        plan = admission()
        plan.advertise(contract("a", "t", weight=2), now_ns=0)
        plan.advertise(contract("b", "t", weight=5), now_ns=0)

        plan.unadvertise("b", "t", now_ns=0)
        assert plan.weight("t") == 5
        plan.unadvertise("a", "t", now_ns=0)
        assert plan.weight("t") == 0

    def test_table_of_flows_is_limited(self) -> None:
        plan = admission(flows_max=1)
        plan.advertise(contract("a", "t"), now_ns=0)

        decision = plan.advertise(contract("b", "t"), now_ns=0)

        assert decision.reason == "flow 't' of client 'b' exceeds the limit of flows (flows_max=1)"
        assert plan.advertise(contract("a", "t", burst=2), now_ns=0).accepted

    def test_few_weights_change_at_a_time(self) -> None:
        # Each layout that still counts makes every answer longer: a hundred took a third of a second.
        plan = admission()
        for number in range(CHANGES_MAX + 1):
            assert plan.advertise(contract("c", str(number), interval_ns=1_000 * MS), now_ns=0).accepted
        for number in range(CHANGES_MAX):
            raised = contract("c", str(number), weight=2, interval_ns=1_000 * MS)
            assert plan.advertise(raised, now_ns=0).accepted
        last = contract("c", str(CHANGES_MAX), weight=2, interval_ns=1_000 * MS)

        decision = plan.advertise(last, now_ns=0)
        assert not decision.accepted
        assert decision.reason.startswith(
            f"flow '{CHANGES_MAX}' of client 'c' cannot raise its topic's weight"
        )

        for name in plan.unsettled():
            plan.settle(name, 0)
        assert plan.advertise(last, now_ns=1_000 * MS).accepted

    def test_background_that_would_break_a_promise_is_refused(self) -> None:
        plan = admission()
        plan.advertise(contract("c", "t", delay_ns=5 * QUANTUM), now_ns=0)

        decision = plan.add_background("rest", 1, 4)

        assert not decision.accepted
        assert decision.reason == "flow 't' of client 'c' would wait up to 0.006 ms, longer than its 0.005 ms"
        assert plan.add_background("rest", 1, 3).accepted


class TestNearAShare:
    """A flow at its share has a busy period without end; an answer must not take as long."""

    @pytest.mark.parametrize("flows", [1, 5, 60])
    @pytest.mark.parametrize("weight", [1, 3, 200])
    @pytest.mark.parametrize("above_ns", [0, 1, 2, 1000])
    def test_answer_at_exactly_the_share_takes_little_work(
        self, flows: int, weight: int, above_ns: int
    ) -> None:
        plan = admission(jitter_ns=4 * MS)
        plan.add_background("rest", 2, 1)
        for number in range(flows):
            other = contract(str(number), str(number % 20), interval_ns=MS, delay_ns=100 * MS)
            assert plan.advertise(other, now_ns=0).accepted
        cycle = 2 + weight + flows
        share_ns = cycle * QUANTUM // weight
        asked = contract("c", "t", interval_ns=share_ns + above_ns, weight=weight)

        decision = plan.advertise(asked, now_ns=0)

        assert decision.accepted == (asked.interval_ns * weight > cycle * QUANTUM)
        assert plan.work < 150_000  # cells and flows; a few milliseconds uncompiled
        if not decision.accepted:
            assert share_ns < decision.counter_offer.interval_ns <= 1.002 * share_ns + 1

    def test_longest_cycle_is_answered_with_little_work(self) -> None:
        plan = admission()
        for number in range(256):
            plan.add_background(str(number), 1023 - number, 1)

        asked = contract("c", "t", interval_ns=10_000 * MS, weight=1, delay_ns=200 * MS)
        refused = plan.advertise(asked, now_ns=0)

        # All cells of all others, and a quantum: 229,000 cells are not laid out, so it is no less than that.
        assert not refused.accepted
        assert refused.bound_ns >= (sum(range(768, 1024)) + 2) * QUANTUM
        assert plan.work < 150_000
        offered = contract(
            "c", "t", interval_ns=10_000 * MS, weight=refused.counter_offer.weight, delay_ns=200 * MS
        )
        assert plan.advertise(offered, now_ns=0).accepted

    def test_search_that_ends_too_early_does_not_say_that_nothing_fits(self) -> None:
        plan = admission()
        for number in range(15):
            plan.add_background(str(number), 1000 + number, 1)
        victim = contract("v", "v", interval_ns=1_000 * MS, weight=500)
        bound_ns = plan.advertise(victim, now_ns=0).bound_ns
        assert plan.advertise(altered(victim, delay_ns=bound_ns), now_ns=0).accepted

        refused = plan.advertise(contract("c", "t", interval_ns=1_000 * MS, weight=500), now_ns=0)

        assert SEARCH_MAX < plan.work < 2 * SEARCH_MAX
        assert not refused.accepted
        assert refused.reason.endswith("; no other period or weight that fits was found in time")

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(st.tuples(st.integers(1, 9), st.integers(10, 90), st.integers(0, 60)), max_size=5),
        st.integers(1, 9),
        st.integers(1, 60_000),
        st.integers(1, 3),
        st.integers(0, 60),
    )
    def test_offer_is_accepted_when_taken_and_nothing_much_nearer_is(
        self, others: list[tuple[int, int, int]], weight: int, interval_ns: int, burst: int, delay: int
    ) -> None:
        def planned() -> AdmissionControl:
            plan = AdmissionControl(quantum_ns=QUANTUM, quantum_bytes=100, reserved=0.8)
            plan.add_background("rest", 2, 1)
            for number, (other_weight, interval, other_delay) in enumerate(others):
                terms = {"interval_ns": interval * QUANTUM, "delay_ns": other_delay * QUANTUM}
                plan.advertise(contract("o", str(number), weight=other_weight, **terms), now_ns=0)
            return plan

        def is_accepted(interval_ns: int, weight: int) -> bool:
            terms = {"burst": burst, "delay_ns": delay * QUANTUM}
            asked = contract("c", "t", interval_ns=interval_ns, weight=weight, **terms)
            return planned().advertise(asked, now_ns=0).accepted

        terms = {"burst": burst, "delay_ns": delay * QUANTUM}
        asked = contract("c", "t", interval_ns=interval_ns, weight=weight, **terms)
        decision = planned().advertise(asked, now_ns=0)

        offer = decision.counter_offer
        if offer.interval_ns:
            assert is_accepted(offer.interval_ns, weight)
            assert not is_accepted(max(interval_ns, int(offer.interval_ns * 0.99) - 2), weight)
        if offer.weight:
            assert is_accepted(interval_ns, offer.weight)
            nearer = offer.weight - 1 if offer.weight > weight else offer.weight + 1
            assert not is_accepted(interval_ns, nearer)
        if not decision.accepted and not offer.interval_ns and decision.broken_client != "o":
            assert not is_accepted(1 << 60, weight)


class TestChangingWeights:
    def test_old_cells_count_until_the_scheduler_has_changed_and_all_who_met_them_are_through(self) -> None:
        plan = admission()
        plan.add_background("rest", 6, 1)
        assert plan.advertise(contract("a", "t", weight=1, delay_ns=8 * QUANTUM), now_ns=0).accepted
        assert finish(plan.setting_background("rest", 1, now_ns=0)).accepted
        late = contract("b", "u", weight=4)

        assert not plan.advertise(late, now_ns=MS).accepted
        plan.settle("rest", now_ns=MS)
        assert not plan.advertise(late, now_ns=MS + 8 * QUANTUM - 1).accepted
        assert plan.advertise(late, now_ns=MS + 8 * QUANTUM).accepted

    def test_flow_that_raises_the_weight_must_leave_others_their_promise_in_the_old_cells(self) -> None:
        """Of weight 2, client a alone waits 5 quanta; with b in its cells 6, until there are more of them."""
        for promised, is_accepted in ((5, False), (6, True)):
            plan = admission()
            plan.add_background("rest", 6, 1)
            tight = contract("a", "t", weight=2, delay_ns=promised * QUANTUM)
            assert plan.advertise(tight, now_ns=0).accepted

            decision = plan.advertise(contract("b", "t", weight=12), now_ns=0)

            assert decision.accepted == is_accepted
            assert decision.broken_client == ("" if is_accepted else "a")

    def test_change_that_is_taken_back_before_it_counted_leaves_nothing_behind(self) -> None:
        plan = admission()
        slot = plan.add_background("rest", 6, 1).slot
        finish(plan.setting_background("rest", 1, now_ns=0))

        again = finish(plan.setting_background("rest", 6, now_ns=0))

        assert (again.weight, again.slot) == (6, slot)
        assert plan.unsettled() == []

    def test_down_and_up_again_counts_all_three(self) -> None:
        plan = admission()
        plan.add_background("rest", 6, 1)
        assert plan.advertise(contract("a", "t", weight=1, delay_ns=9 * QUANTUM), now_ns=0).accepted
        finish(plan.setting_background("rest", 1, now_ns=0))
        plan.settle("rest", now_ns=0)

        # Six cells that somebody may have met, and four to come, are too many; alone they are not.
        assert not finish(plan.setting_background("rest", 4, now_ns=1)).accepted
        assert finish(plan.setting_background("rest", 4, now_ns=9 * QUANTUM)).accepted

    def test_slot_of_old_cells_is_not_given_to_another_topic(self) -> None:
        plan = admission()
        plan.add_background("rest", 6, 1)
        finish(plan.setting_background("rest", 2, now_ns=0))

        assert plan.add_background("other", 6, 1).slot == 1


class TestGivingBack:
    def full(self) -> AdmissionControl:
        plan = admission()
        for client in "abc":
            assert plan.advertise(contract(client, "t", delay_ns=4 * QUANTUM), now_ns=0).accepted
        return plan

    def test_capacity_returns_once_nobody_can_have_waited_for_it(self) -> None:
        plan = self.full()

        assert plan.unadvertise("a", "t", now_ns=100)

        late = contract("d", "t", delay_ns=4 * QUANTUM)
        assert not plan.advertise(late, now_ns=100 + 4 * QUANTUM - 1).accepted
        assert plan.advertise(late, now_ns=100 + 4 * QUANTUM).accepted

    def test_capacity_returns_at_once_when_nobody_else_was_promised_anything(self) -> None:
        plan = admission()
        plan.advertise(contract("a", "t", delay_ns=2 * QUANTUM), now_ns=0)
        plan.unadvertise("a", "t", now_ns=5)

        assert plan.advertise(contract("b", "t", delay_ns=2 * QUANTUM), now_ns=5).accepted

    def test_client_that_leaves_gives_back_all_its_flows(self) -> None:
        plan = admission()
        for topic in "xy":
            plan.advertise(contract("a", topic), now_ns=0)
        plan.advertise(contract("b", "y"), now_ns=0)

        for topic in "xy":
            plan.unadvertise("a", topic, now_ns=0)

        assert [flow.client for flow, _ in plan.bounds()] == ["b"]

    def test_unknown_flow_gives_nothing_back(self) -> None:
        assert not admission().unadvertise("nobody", "t", now_ns=0)

    def test_slower_quantum_names_the_flows_it_breaks(self) -> None:
        plan = self.full()

        assert finish(plan.measuring(QUANTUM, plan.outside_ns)) == []
        assert [flow.client for flow in finish(plan.measuring(QUANTUM + 1, plan.outside_ns))] == [
            "a",
            "b",
            "c",
        ]


def test_flows_get_no_more_than_what_is_reserved_for_them() -> None:
    admission = AdmissionControl(quantum_ns=100, quantum_bytes=64, reserved=0.5)
    assert admission.advertise(Contract("a", "t", interval_ns=250, weight=10), 0).accepted

    refused = admission.advertise(Contract("b", "u", interval_ns=500, weight=10), 0)
    assert not refused.accepted
    assert 1_000 <= refused.counter_offer.interval_ns <= 1_001  # fractions are floats
    assert "10.0% of the 50% reserved for flows is left" in refused.reason
    offered_ns = refused.counter_offer.interval_ns
    assert admission.advertise(Contract("b", "u", interval_ns=offered_ns, weight=10), 0).accepted
    # Its own share does not count against a flow that is advertised again.
    assert admission.advertise(Contract("a", "t", interval_ns=251, weight=10), 0).accepted


def test_time_outside_the_queues_is_part_of_every_bound() -> None:
    inside = AdmissionControl(quantum_ns=100, quantum_bytes=64)
    outside = AdmissionControl(quantum_ns=100, quantum_bytes=64, outside_ns=5_000)
    contract = Contract("a", "t", interval_ns=10_000, delay_ns=5_100)

    bound_ns = inside.advertise(contract, 0).bound_ns
    refused = outside.advertise(contract, 0)

    assert bound_ns <= 5_100
    assert not refused.accepted
    assert refused.bound_ns == bound_ns + 5_000


def test_capacity_of_a_background_returns_once_nobody_can_have_waited_for_it() -> None:
    for change in ("remove", "lower"):
        plan = admission()
        plan.add_background("rest", 1, 1)
        plan.add_background("noise", 5, 1)
        promised = 8 * QUANTUM
        assert plan.advertise(contract("a", "t", weight=1, delay_ns=promised), now_ns=0).accepted
        late = contract("b", "u", weight=4)
        assert not plan.advertise(late, now_ns=0).accepted

        if change == "remove":
            plan.remove_background("noise", now_ns=100)
            assert [name for name, _, _ in plan.topics()] == ["rest", "t"]
        else:
            assert finish(plan.setting_background("noise", 1, now_ns=0)).accepted
            assert plan.unsettled() == ["noise"]
            plan.settle("noise", now_ns=100)

        assert not plan.advertise(late, now_ns=100).accepted
        assert plan.advertise(late, now_ns=100 + promised).accepted


def test_weight_that_heals_a_broken_promise_is_accepted_and_one_that_makes_it_worse_is_not() -> None:
    plan = admission()
    plan.add_background("rest", 8, 1)
    assert plan.advertise(contract("a", "t", weight=1, delay_ns=12 * QUANTUM), now_ns=0).accepted
    assert len(finish(plan.measuring(4 * QUANTUM, plan.outside_ns))) == 1

    assert not finish(plan.setting_background("rest", 9, 0)).accepted
    assert finish(plan.setting_background("rest", 4, 0)).accepted  # still broken, but less
    assert len(finish(plan.measuring(4 * QUANTUM, plan.outside_ns))) == 1
    assert finish(plan.setting_background("rest", 1, MS)).accepted
    assert not plan.advertise(contract("b", "u", weight=1), now_ns=2 * MS).accepted
    assert finish(plan.measuring(4 * QUANTUM, plan.outside_ns)) == []


def test_background_that_is_not_planned_cannot_be_removed() -> None:
    with pytest.raises(ValueError, match="'noise' is not planned"):
        admission().remove_background("noise", 0)


@given(
    st.sampled_from(ORDERS),
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 3)), min_size=1, max_size=4),
    terms,
)
def test_removed_background_makes_no_bound_longer(
    order: str, backgrounds: list[tuple[int, int]], asked: dict[str, int]
) -> None:
    plan = admission(order)
    for number, (weight, quanta) in enumerate(backgrounds):
        plan.add_background(str(number), weight, quanta)
    if not plan.advertise(contract("a", "t", **asked), now_ns=0).accepted:
        return
    [(_, before)] = plan.bounds()

    plan.remove_background("0", now_ns=0)

    [(_, after)] = plan.bounds()
    assert after.delay_ns != UNBOUNDED
    assert after.delay_ns <= before.delay_ns


def test_background_weight_changes_only_if_every_promise_holds() -> None:
    admission = AdmissionControl(quantum_ns=100, quantum_bytes=64)
    admission.add_background("rest", 1, 1)
    assert admission.advertise(Contract("a", "t", interval_ns=100_000, delay_ns=500), 0).accepted

    assert finish(admission.setting_background("rest", 2, 0)).accepted
    refused = finish(admission.setting_background("rest", 100, 0))

    assert not refused.accepted
    assert refused.broken_topic == "t"
    assert ("rest", 2, 1) in admission.topics()
    with pytest.raises(ValueError, match="not planned"):
        finish(admission.setting_background("other", 2, 0))
