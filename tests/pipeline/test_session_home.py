"""Where Python workers find pyspark: installed and compiled, not in the archive that comes with Spark."""

from __future__ import annotations

from pathlib import Path

from timebound.pipeline.session import _home_without_archive


def test_the_home_of_spark_has_all_but_the_zipped_copy_of_pyspark(tmp_path: Path) -> None:
    home = _home_without_archive(tmp_path / "home")

    assert (home / "bin" / "spark-submit").is_file()
    assert any((home / "jars").glob("spark-core*.jar"))
    assert not (home / "python").exists()
