from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from timebound.node.flight import publish as flight_publish
from timebound.node.flight.publish import Progress, publish_schema


def test_a_batch_is_done_once_noted_and_so_is_every_one_before_it(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "p.db")

    progress.note("", "q", 3, 10, is_done=True)

    assert progress.rows_done("", "q", 2) is None
    assert progress.rows_done("", "q", 3) is None
    assert progress.rows_done("", "q", 4) == 0
    assert progress.rows_done("other", "q", 3) == 0
    progress.close()


def test_a_batch_that_was_interrupted_goes_on_at_its_row_after_a_restart(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "p.db")
    progress.note("", "q", 3, 2000, is_done=False)
    progress.close()

    again = Progress(tmp_path / "p.db")

    assert again.rows_done("", "q", 3) == 2000
    again.close()


def test_the_oldest_queries_are_forgotten_beyond_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight_publish, "QUERIES_MAX", 10)
    progress = Progress(tmp_path / "p.db")

    for number in range(12):
        progress.note("", f"q{number}", 0, 1, is_done=True)

    assert progress.rows_done("", "q0", 0) == 0
    assert progress.rows_done("", "q11", 0) is None
    progress.close()


def test_columns_to_publish_are_put_in_order() -> None:
    given = pa.schema([("payload", pa.string()), ("qos", pa.int32()), ("topic", pa.string())])

    assert publish_schema(given).names == ["topic", "payload", "qos"]
