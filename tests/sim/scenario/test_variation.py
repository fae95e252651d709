"""What a sweep may vary, and that the varied key and no other changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebound.errors import ConfigError
from timebound.sim.kernel.draws import fixed
from timebound.sim.mesh.experiment import run
from timebound.sim.mesh.setting import MeshSetting
from timebound.sim.scenario.scenario import load_scenario
from timebound.sim.scenario.variation import KEYS, RESULTS, VALUES_MAX, open_runs, pack, parse_variation, vary
from timebound.units import MINUTE, SECOND

QUICK = Path(__file__).parents[3] / "scenarios" / "quick.toml"


@pytest.fixture(scope="module")
def setting() -> MeshSetting:
    return replace(load_scenario(QUICK).setting, duration_ns=MINUTE)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("rate=1..4", (1.0, 2.0, 3.0, 4.0)),
        ("rate=0.5", (0.5,)),
        ("loss=0..0.3:0.1", (0.0, 0.1, 0.2, 0.3)),
        ("size_kb=1,10,50..100:25", (1.0, 10.0, 50.0, 75.0, 100.0)),
        ("rate=2,1,2", (2.0, 1.0)),
        ("strategy=eb,fifo", ("eb", "fifo")),
        ("publishers=1..3", (1, 2, 3)),
    ],
)
def test_values_are_read_in_order_and_once(text: str, values: tuple[object, ...]) -> None:
    assert parse_variation(text).values == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rat=1..4", "'rat' cannot be varied; did you mean 'rate'?"),
        ("zzz=1", "known are rate, load"),
        ("rate", "write it like rate=1..15"),
        ("=3", "write it like rate=1..15"),
        ("rate=", "rate cannot be ''"),
        ("rate=4..1", "rate=4..1 is an empty range"),
        ("rate=1..4:0", "has the step 0; expected more than 0"),
        ("rate=a..b", "rate cannot be 'a'"),
        ("rate=nan", "rate cannot be 'nan'"),
        ("rate=0", "rate cannot be 0; expected at least"),
        ("loss=1", "loss cannot be 1; expected 0 to 0.99"),
        ("publishers=1.5", "expected a whole number"),
        (f"rate=1..{VALUES_MAX + 1}", f"at most {VALUES_MAX} are allowed"),
        ("strategy=best", "strategy cannot be 'best'; choose from"),
        ("strategy=eb,,fifo", "strategy cannot be ''"),
    ],
)
def test_what_cannot_be_varied_is_explained(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_variation(text)

    assert message in str(caught.value)


@given(first=st.integers(1, 50), count=st.integers(1, 40), tenths=st.integers(1, 30))
def test_a_range_has_its_ends_and_even_steps(first: int, count: int, tenths: int) -> None:
    step = tenths / 10
    last = first + (count - 1) * step

    values = parse_variation(f"rate={first}..{last}:{step}").values

    assert len(values) == count
    assert values[-1] == pytest.approx(last)


@pytest.mark.parametrize("name", KEYS)
def test_every_key_changes_the_setting(name: str, setting: MeshSetting) -> None:
    key = KEYS[name]
    values = key.words or (int(max(key.least, 1)) + 1 if key.is_whole else max(key.least, 0.125),)

    changed = [vary(setting, {name: value}) for value in values]

    assert any(pack(one) != pack(setting) for one in changed)


def test_keys_mean_what_they_say(setting: MeshSetting) -> None:
    changed = vary(
        setting, {"load": 2.0, "size_kb": 3.0, "deadline_s": 1.5, "timeout_s": 4.0, "seed": 7, "minutes": 2.0}
    )

    [publisher], [subscription] = changed.publishers, changed.subscriptions
    assert publisher.rate_per_minute == 2 * setting.publishers[0].rate_per_minute
    assert (publisher.size_bytes.numbers, publisher.timeout_ms and publisher.timeout_ms.numbers) == (
        fixed(3 * 1_024).numbers,
        (4_000.0,),
    )
    assert {terms.deadline_ns for terms in subscription.terms} == {1.5 * SECOND}
    assert changed.duration_ns == 2 * MINUTE


def test_a_row_gives_what_the_simulator_gives(setting: MeshSetting) -> None:
    run_row = open_runs(pack(setting))

    found = run_row({"rate": 60.0, "strategy": "fifo", "seed": 3})

    result = run(vary(setting, {"rate": 60.0, "strategy": "fifo"}), 3)
    assert set(found) == {name for name, _ in RESULTS}
    assert (found["matched"], found["earning"]) == (result.matched, result.earning)
    assert found["matched"] == found["in_time"] + found["late"] + found["dropped"]


def test_the_old_name_of_the_mix_can_be_varied() -> None:
    assert parse_variation("weight=0.2,0.4") == parse_variation("mix=0.2,0.4")
