"""Earnings and bills of one small trace, computed by hand."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.jobs.small_trace import ROWS
from tests.pipeline.traces import SPARK_TIMEOUT_S

from timebound.pipeline.jobs.earnings import bills, earnings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(SPARK_TIMEOUT_S)]


@pytest.fixture(scope="module")
def billed(cubed: DataFrame) -> dict[tuple[str, datetime.date], Any]:
    """Bills by subscriber and day."""
    return {(one["subscriber"], one["day"]): one for one in bills(cubed).collect()}


def test_earnings_are_exact_by_hour_and_subscriber(cubed: DataFrame) -> None:
    found = {(one["node"], one["hour"].hour, one["subscriber"]): one for one in earnings(cubed).collect()}

    first = found["n1", 8, "s"]
    assert (first["in_time"], first["late"], first["dropped"]) == (5, 1, 2)
    assert (first["earned_micro"], first["paid_micro"]) == (4_000_002, 250_008)
    assert first["net_micro"] == 3_749_994
    assert found["n1", 9, "s"]["earned_micro"] == 1_000_000
    assert found["n1", 8, "u"]["earned_micro"] == 3_000_000


def test_bills_have_a_line_for_each_subscriber_and_day(billed: dict[Any, Any]) -> None:
    day = datetime.date(2027, 1, 15)
    assert set(billed) == {("s", day), ("u", day), ("u", day + datetime.timedelta(1))}
    assert (billed["s", day]["price_micro"], billed["s", day]["penalty_micro"]) == (5_000_002, 250_008)
    assert billed["s", day]["amount_micro"] == 4_749_994
    assert sum(one["price_micro"] for one in billed.values()) == 9_000_002


def test_earnings_and_bills_are_the_sums_of_the_rows(cubed: DataFrame, billed: dict[Any, Any]) -> None:
    earned = sum(one["price_micro"] for one in ROWS if one["outcome"] == "in_time")
    paid = sum(one["penalty_micro"] for one in ROWS if one["outcome"] != "in_time")
    hours = earnings(cubed).collect()

    assert sum(one["earned_micro"] for one in hours) == earned
    assert sum(one["paid_micro"] for one in hours) == paid
    assert sum(one["amount_micro"] for one in billed.values()) == earned - paid
    pairs = [one["in_time"] + one["late"] + one["dropped"] for one in billed.values()]
    assert sum(pairs) == len(ROWS)
