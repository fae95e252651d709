"""The public names: they exist, they are all, and asking for the package alone loads little.

Public imports are `timebound`, `timebound.channel` (tests/channel/test_footprint.py) and `pyspark_timebound`.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

import timebound

PUBLIC = ["Client", "Message", "Subscription", "Will"]


def test_the_public_names_are_these() -> None:
    assert sorted(timebound.__all__) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_there_and_says_what_it_is(name: str) -> None:
    assert getattr(timebound, name).__doc__
    assert name in dir(timebound)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Brocker'"):
        timebound.Brocker  # noqa: B018 - the look-up is the test


def test_spark_finds_the_data_source_by_its_module() -> None:
    pytest.importorskip("pyspark")

    from pyspark_timebound import DefaultSource
    from timebound.pipeline.datasource.source import TimeboundDataSource

    assert issubclass(DefaultSource, TimeboundDataSource)
    assert DefaultSource.name() == "timebound"
    assert DefaultSource.__doc__


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, timebound; print(*[name for name in sys.modules if name.startswith('timebound')])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )

    assert result.stdout.split() == ["timebound"]
