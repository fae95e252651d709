"""Settings: every word they know is understood by a run, and runs in other processes get the same values."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace

import pytest

from timebound.sim.kernel.draws import fixed
from timebound.sim.mesh.experiment import run
from timebound.sim.mesh.setting import (
    ARRIVALS,
    ESTIMATES,
    SAMPLINGS,
    TRUNCATIONS,
    LinkSetting,
    MeshSetting,
    PublisherSetting,
    SubscriptionSetting,
    TopologySetting,
)
from timebound.sim.papers.brokers.reading import DROPS, ROUTINGS, Reading
from timebound.sim.scenario.variation import pack
from timebound.terms import Terms
from timebound.units import MINUTE, SECOND

PLAIN = MeshSetting(
    topology=TopologySetting(kind="ring", brokers=4),
    links=LinkSetting(fixed(20), 5.0),
    publishers=(PublisherSetting(60.0, fixed(2_048), brokers=("b1",)),),
    subscriptions=(
        SubscriptionSetting(brokers=("b3",), terms=(Terms(deadline_ns=2 * SECOND, price=2.0, penalty=1.0),)),
    ),
    strategy="fifo",
    duration_ns=MINUTE,
)
VARIED = {
    **{f"routing {name}": replace(PLAIN, reading=Reading(routing=name)) for name in ROUTINGS},
    **{f"drops {name}": replace(PLAIN, reading=Reading(drops=name)) for name in DROPS},
    **{f"sampling {name}": replace(PLAIN, links=replace(PLAIN.links, sampling=name)) for name in SAMPLINGS},
    **{
        f"truncation {name}": replace(PLAIN, links=replace(PLAIN.links, truncation=name))
        for name in TRUNCATIONS
    },
    **{
        f"arrivals {name}": replace(PLAIN, publishers=(replace(PLAIN.publishers[0], arrivals=name),))
        for name in ARRIVALS
    },
    **{f"estimates {name}": replace(PLAIN, estimates=name) for name in ESTIMATES},
}


@pytest.mark.parametrize("name", VARIED)
def test_every_word_of_a_setting_runs_and_accounts_for_all(name: str) -> None:
    result = run(VARIED[name], 1)

    assert result.matched == result.in_time + result.late + sum(result.dropped.values())
    assert result.in_time > 0


def test_defaults_are_the_literal_reading_of_the_papers() -> None:
    assert (PLAIN.reading.routing, PLAIN.reading.drops, PLAIN.reading.lifetime) == ("tree", "hopeless", "all")
    assert (PLAIN.links.sampling, PLAIN.links.truncation) == ("message", "resample")
    assert (PLAIN.publishers[0].arrivals, PLAIN.publishers[0].link_costs) == ("poisson", False)


def test_a_setting_sent_to_another_process_gives_the_same_run() -> None:
    sent = pickle.loads(pack(PLAIN))

    assert replace(run(sent, 3), seconds=0.0) == replace(run(PLAIN, 3), seconds=0.0)


def test_a_setting_cannot_be_changed_in_place() -> None:
    with pytest.raises(FrozenInstanceError):
        PLAIN.strategy = "eb"  # type: ignore[misc]  # on purpose
