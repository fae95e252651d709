"""Jobs at the entrance: one after the other, in small steps, and nothing is left of one that was given up."""

from __future__ import annotations

import pytest

from timebound.core.account.counters import Counters
from timebound.core.input.contract import Contract
from timebound.core.input.entrance import Entrance
from timebound.core.input.jobs import EntranceJob
from timebound.core.input.options import EntranceOptions
from timebound.core.input.publisher import Publisher
from timebound.core.input.steps import Steps
from timebound.units import MILLISECOND, SECOND

OPTIONS = EntranceOptions(quantum_ns=10_000, stall_ns_min=0, flows_per_client_max=200, flows_per_user_max=200)
FLOWS = 60


class Hall:
    """An entrance with a client that has flows, and one that asks for more."""

    def __init__(self, flows: int = FLOWS) -> None:
        self.entrance = Entrance(OPTIONS, Counters())
        self.press, self.asker = self.join("press"), self.join("asker")
        for number in range(flows):
            assert self.entrance.flows.advertise(self.press, contract("press", f"t/{number}"), 0).accepted
        self.decided: list[str] = []

    def join(self, name: str) -> Publisher:
        publisher = Publisher()
        publisher.source = name
        self.entrance.join(name, publisher)
        return publisher

    def ask(self, topic: str, **terms: int) -> EntranceJob:
        job = EntranceJob("asker")
        job.steps = self._asking(contract("asker", topic, **terms))
        self.entrance.jobs.add(job)
        return job

    def _asking(self, asked: Contract) -> Steps[None]:
        decision = yield from self.entrance.flows.advertising(self.asker, asked)
        self.decided.append(f"{asked.topic} {decision.accepted}")

    def work(self, steps_max: int = 1_000_000) -> int:
        """Take up to so many steps; return how many there were."""
        count = 0
        while len(self.entrance.jobs) > 0 and count < steps_max:
            self.entrance.jobs.step(0)
            count += 1
        return count

    def state(self) -> tuple[object, ...]:
        admission = self.entrance.flows.admission
        bounds = [(flow.client, flow.topic, bound.delay_ns) for flow, bound in admission.bounds()]
        topics = sorted(self.entrance.scheduler.topics)
        return admission.topics(), admission.flow_count(), bounds, topics, dict(self.asker.policers)


def contract(client: str, topic: str, **terms: int) -> Contract:
    return Contract(client, topic, **({"interval_ns": SECOND, "delay_ns": 100 * MILLISECOND} | terms))


def test_an_answer_takes_a_step_for_each_flow_at_least() -> None:
    hall = Hall()

    hall.ask("more")

    assert hall.work() > FLOWS
    assert hall.decided == ["more True"]


def test_jobs_wait_for_each_other() -> None:
    hall = Hall()
    jobs = [hall.ask(f"more/{number}") for number in range(3)]

    hall.work(FLOWS // 2)
    assert hall.decided == []
    hall.work()

    assert hall.decided == ["more/0 True", "more/1 True", "more/2 True"]
    assert all(job.is_done for job in jobs)


@pytest.mark.parametrize("terms", [{}, {"delay_ns": 4_300_000}, {"interval_ns": 100_000}, {"weight": 900}])
@pytest.mark.parametrize("steps", [0, 1, 20, FLOWS - 1])
def test_nothing_is_left_of_a_job_that_was_cancelled(terms: dict[str, int], steps: int) -> None:
    hall = Hall()
    before = hall.state()
    job = hall.ask("more", **terms)
    hall.work(steps)

    hall.entrance.jobs.cancel(job)

    assert job.is_done
    assert len(hall.entrance.jobs) == 0
    assert hall.state() == before
    hall.ask("other")
    hall.work()
    assert hall.decided == ["other True"]


def test_a_job_that_waits_is_cancelled_without_harm_to_the_one_before_it() -> None:
    hall = Hall()
    hall.ask("first")
    second = hall.ask("second")
    hall.work(FLOWS // 2)

    hall.entrance.jobs.cancel(second)
    hall.entrance.jobs.cancel(second)
    hall.work()

    assert hall.decided == ["first True"]


def test_what_a_job_is_changing_is_completed_though_nobody_waits_for_it() -> None:
    hall = Hall()
    flows = hall.entrance.flows
    flows.set_weight("alarm/#", 3, 0)
    job = EntranceJob("asker")
    job.steps = flows.removing_weight("alarm/#", hall.entrance.publishers.values())
    hall.entrance.jobs.add(job)
    hall.work(1)

    hall.entrance.jobs.cancel(job)
    hall.work()

    assert flows.weights() == {"#": 1}
    assert "\0alarm/#" not in hall.entrance.scheduler.topics


def test_an_error_ends_only_its_own_job() -> None:
    hall = Hall()
    before = hall.state()
    flows = hall.entrance.flows

    def failing() -> Steps[None]:
        steps = flows.advertising(hall.asker, contract("asker", "more"))
        for _ in range(10):
            yield next(steps)
        raise RuntimeError("a bug")

    job = EntranceJob("asker")
    job.steps = failing()
    hall.entrance.jobs.add(job)
    hall.ask("other")
    for _ in range(10):
        assert hall.entrance.jobs.step(0) is None
    assert hall.entrance.jobs.step(0) is job

    assert str(job.error) == "a bug"
    assert hall.state() == before
    hall.work()
    assert hall.decided == ["other True"]


def test_flows_of_a_client_that_left_are_released_one_in_each_step() -> None:
    hall = Hall()
    admission = hall.entrance.flows.admission

    hall.entrance.leave("press", hall.press)
    assert admission.flow_count() == FLOWS, "nothing is done before there is time"
    hall.work(1)
    assert admission.flow_count() == FLOWS - 1
    hall.work()

    assert admission.flow_count() == 0
    assert list(hall.entrance.scheduler.topics) == ["\0#"]
    assert hall.press.client_input.queues == {}


def test_a_client_that_connects_again_asks_after_its_flows_were_released() -> None:
    hall = Hall()
    hall.entrance.leave("press", hall.press)
    again = hall.join("press")
    job = EntranceJob("press")

    def asking() -> Steps[None]:
        decision = yield from hall.entrance.flows.advertising(again, contract("press", "t/0"))
        hall.decided.append(f"{decision.accepted}")

    job.steps = asking()
    hall.entrance.jobs.add(job)
    hall.work()

    assert hall.decided == ["True"]
    assert hall.entrance.flows.admission.flow_count() == 1
    assert list(again.policers) == ["t/0"]
