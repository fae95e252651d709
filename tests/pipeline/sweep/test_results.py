"""The folder of a sweep: written whole, read back as it was, and summed up."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from timebound.errors import ConfigError
from timebound.pipeline.sweep.results import (
    INFO_FILE,
    Figure,
    Printed,
    SweepInfo,
    default_figures,
    read_results,
    summarise,
    write_results,
)

TABLE = pa.table(
    {
        "rate": [1.0, 1.0, 2.0, 2.0, 2.0],
        "strategy": ["eb", "eb", "eb", "fifo", "fifo"],
        "seed": [1, 2, 1, 1, 2],
        "earning": [10.0, 14.0, 5.0, 7.0, None],
        "error": ["", "", "", "", "ValueError: no"],
    }
)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    figure = Figure("Figure 6", "rate", "messages", ("strategy",), ("earning",), {"rate": 2.0})
    printed = Printed("Figure 6", "earning of eb", "earning", "eb", "", 2.0, 6.0, 5.0)
    info = SweepInfo(
        "made", ("rate", "strategy"), ("earning",), 5, 1, 2.5, 4.5, 2, "made", (figure,), (printed,)
    )

    write_results(tmp_path / "deep" / "out", TABLE, info)

    table, read = read_results(tmp_path / "deep" / "out")
    assert table.equals(TABLE)
    assert read == info
    assert sorted(path.name for path in (tmp_path / "deep" / "out").iterdir()) == [
        "runs.parquet",
        "sweep.json",
    ]


def test_damaged_or_missing_results_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_results(tmp_path)

    (tmp_path / INFO_FILE).write_text("{}")
    with pytest.raises(ConfigError, match=f"{tmp_path}: .*cannot be read"):
        read_results(tmp_path)


def test_points_hold_mean_and_deviation_and_leave_failures_out() -> None:
    points = summarise(TABLE, ("rate", "strategy"), ("earning",))

    assert [(point.values, point.runs) for point in points] == [
        ({"rate": 1.0, "strategy": "eb"}, 2),
        ({"rate": 2.0, "strategy": "eb"}, 1),
        ({"rate": 2.0, "strategy": "fifo"}, 1),
    ]
    assert points[0].means == {"earning": 12.0}
    assert points[0].deviations["earning"] == pytest.approx(8**0.5)
    assert points[1].deviations == {"earning": 0.0}


def test_a_picture_runs_along_the_number_with_most_values() -> None:
    [figure] = default_figures(TABLE, {"strategy": "order", "rate": "messages"}, ("earning",))

    assert (figure.x, figure.x_label, figure.series) == ("rate", "messages", ("strategy",))


def test_texts_alone_have_no_picture() -> None:
    assert default_figures(TABLE, {"strategy": "order"}, ("earning",)) == ()
