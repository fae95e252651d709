"""Rates, loads and brokers as people write them."""

from __future__ import annotations

import pytest

from timebound.demo.brokers import Contender
from timebound.demo.options import DEFAULT_STRATEGIES, contenders, parse_buffer, parse_loads, parse_rate


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [("1Mbit/s", 125_000), ("256 kbit/s", 32_000), ("64kB/s", 64_000), ("8000bit/s", 1_000), ("1MB/s", 1e6)],
)
def test_rates_are_read_with_their_unit(text: str, bytes_per_s: float) -> None:
    assert parse_rate(text) == bytes_per_s


@pytest.mark.parametrize("text", ["fast", "1Mbit", "", "Mbit/s", "-1Mbit/s", "1Gbit/s", "1kbit/s", "0Mbit/s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="rate"):
        parse_rate(text)


def test_loads_are_a_list() -> None:
    assert parse_loads("1.5,3") == [1.5, 3.0]


@pytest.mark.parametrize("text", ["", "1.5,", "0", "-1", "100", "x"])
def test_what_is_no_load_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="load"):
        parse_loads(text)


def test_a_buffer_is_a_time() -> None:
    assert parse_buffer("200ms") == 0.2


@pytest.mark.parametrize("text", ["", "200", "1ms", "1h", "-1s"])
def test_what_is_no_buffer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="buffer"):
        parse_buffer(text)


def test_brokers_are_ours_by_strategy_and_mosquitto_where_installed() -> None:
    found, note = contenders(DEFAULT_STRATEGIES)

    assert [one.label for one in found][:2] == ["timebound fifo", "timebound worth"]
    assert (found[-1] == Contender("mosquitto", "")) == (not note)


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match="strategy 'best' is unknown"):
        contenders("fifo,best")
