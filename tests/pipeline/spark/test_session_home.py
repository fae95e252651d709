"""Where Python workers find pyspark, installed and compiled, and where Java looks for classes first."""

from __future__ import annotations

import os
from pathlib import Path

import pyspark

from timebound.pipeline.spark.session import _CLASSES_FIRST, _class_path, _own_home


def test_the_home_of_spark_has_all_but_what_only_costs(tmp_path: Path) -> None:
    home = _own_home(tmp_path / "home")

    assert (home / "bin" / "spark-submit").is_file()
    assert not (home / "python").exists()
    package = {path.name for path in (Path(pyspark.__file__).parent / "jars").iterdir()}
    [left_out] = package - {path.name for path in (home / "jars").iterdir()}
    assert left_out.startswith("spark-mllib_")


def test_the_files_of_most_classes_are_searched_first(tmp_path: Path) -> None:
    home = _own_home(tmp_path / "home")

    found = [Path(path).name for path in _class_path(home / "jars").split(os.pathsep)]

    # A name that a newer Spark no longer has would be missed in silence.
    assert len(found) == len(_CLASSES_FIRST)
    assert all(file.startswith(name) for file, name in zip(found, _CLASSES_FIRST, strict=True))


def test_without_these_files_nothing_is_put_first(tmp_path: Path) -> None:
    assert _class_path(tmp_path) == ""
