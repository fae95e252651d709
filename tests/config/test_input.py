"""`[input]` and `[[weights]]`: what is read, and how a broker without them starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.config.doubles import PATH, mistakes_of

from timebound.config.input import InputConfig, WeightEntry, entrance_options
from timebound.core.input.cells import WEIGHT_MAX
from timebound.core.input.options import EntranceOptions
from timebound.node.config import parse_config


def test_weights_keep_their_order_and_durations_are_read_in_seconds() -> None:
    found = parse_config(
        "[input]\nturn = '2ms'\nstall_allowance = '5ms'\nexcess = 'refuse'\n"
        "[[weights]]\ntopic = 'log/#'\nweight = 1\n[[weights]]\ntopic = 'alarm/#'\nweight = 10\n",
        PATH,
    ).input

    assert (found.turn_s, found.stall_allowance_s, found.excess) == (0.002, 0.005, "refuse")
    assert found.weights == (WeightEntry("log/#", 1), WeightEntry("alarm/#", 10))


def test_defaults_are_those_of_the_core() -> None:
    assert entrance_options(InputConfig()) == EntranceOptions()


def test_options_of_the_core_are_what_the_table_says() -> None:
    config = InputConfig(
        turn_s=0.003,
        stall_allowance_s=0.005,
        quantum_time_s=0.00002,
        excess="refuse",
        flows_max=7,
        weights=(WeightEntry("alarm/#", 10),),
    )

    assert entrance_options(config, 12_345) == EntranceOptions(
        round_ns_min=6_000_000,
        stall_ns_min=5_000_000,
        quantum_ns=20_000,
        is_quantum_fixed=True,
        excess="refuse",
        flows_max=7,
        weights=(("alarm/#", 10),),
    )
    assert entrance_options(InputConfig(), 12_345) == EntranceOptions(quantum_ns=12_345)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"[[weights]]\ntopic = 'a'\nweight = {WEIGHT_MAX + 1}",
            f"t.toml:3: weights[0].weight: must be from 1 to {WEIGHT_MAX}, not {WEIGHT_MAX + 1}",
        ),
        ("[[weights]]\ntopic = 'a'", "t.toml:1: weights[0].weight: is required"),
        ("[input]\nreserved_percent = 96", "t.toml:2: input.reserved_percent: must be from 0 to 95, not 96"),
        (
            "[input]\norder = 'odd'",
            't.toml:2: input.order: must be one of "paper", "even", not \'odd\'',
        ),
    ],
)
def test_a_mistake_is_named_with_its_range(tmp_path: Path, text: str, expected: str) -> None:
    assert mistakes_of(text, tmp_path) == [expected]
