"""The papers' open questions: each answer by name, what it changes, and that runs still account for all."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from timebound.sim.mesh.experiment import run
from timebound.sim.mesh.setting import MeshSetting, TopologySetting
from timebound.sim.papers.readings import READINGS, read_as
from timebound.sim.papers.settings import paper_001, paper_002
from timebound.units import MINUTE


def small(setting: MeshSetting, minutes: int) -> MeshSetting:
    """A paper's setting on fewer brokers and for a short time."""
    return replace(setting, topology=TopologySetting(layers=(2, 2, 4, 4)), duration_ns=minutes * MINUTE)


@pytest.mark.parametrize("reading", [name for name in READINGS if name not in ("literal", "timeout")])
def test_every_reading_changes_the_outcome_and_still_accounts_for_all(reading: str) -> None:
    strategy = "remaining-lifetime" if reading in ("alive", "keep", "expired") else "eb"
    if reading == "late-second":
        strategy = "pc"  # the only one that looks at being sent second
    literal = small(paper_002("ssd", 30.0, strategy), minutes=6)

    plain = run(literal, 1)
    changed = run(read_as(literal, reading), 1)

    assert changed.matched == changed.in_time + changed.late + sum(changed.dropped.values())
    if reading != "clip":  # one draw in two hundred is clipped: too few for a short run
        assert (plain.in_time, plain.traffic) != (changed.in_time, changed.traffic)


def test_a_publishers_link_delays_less_where_messages_do_not_wait_for_each_other_there() -> None:
    literal = small(paper_002("psd", 15.0, "eb"), minutes=6)

    free, delayed, queued = (
        run(read_as(literal, name), 2).in_time for name in ("literal", "publisher-delay", "publisher-link")
    )

    assert free > delayed > queued > 0


def test_readings_can_be_joined_and_unknown_ones_are_refused() -> None:
    setting = read_as(paper_001(1.0, "mtep"), "periodic+timeout")

    assert setting.publishers[0].arrivals == "periodic"
    assert setting.publishers[0].timeout_ms is not None
    with pytest.raises(ValueError, match="reading 'sideways' is unknown"):
        read_as(setting, "sideways")


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("literal", []),
        ("match", ["reading"]),
        ("match-all", ["reading"]),
        ("expired", ["reading"]),
        ("keep", ["reading"]),
        ("alive", ["reading"]),
        ("publisher-link", ["publishers"]),
        ("publisher-delay", ["publishers"]),
        ("periodic", ["publishers"]),
        ("kilobyte", ["links"]),
        ("clip", ["links"]),
        ("late-second", ["message_bytes"]),
        ("mixed-sizes", ["publishers", "message_bytes"]),
        ("timeout", ["publishers"]),
    ],
)
def test_a_reading_changes_its_part_of_the_setting_only(name: str, changed: list[str]) -> None:
    literal = paper_002("ssd", 1.0, "eb")

    read = read_as(literal, name)

    found = [
        field.name
        for field in fields(MeshSetting)
        if getattr(read, field.name) != getattr(literal, field.name)
    ]
    assert found == changed
    assert len(READINGS) == 14


def test_a_timeout_is_added_only_where_there_is_none() -> None:
    with_timeout = paper_002("psd", 1.0, "eb")

    assert read_as(with_timeout, "timeout") == with_timeout
