"""The version, and whether the hot modules are compiled."""

from __future__ import annotations

import re
from pathlib import Path

from timebound.core import broker
from timebound.version import VERSION, is_compiled

ROOT = Path(__file__).parents[1]


def test_package_is_built_with_this_version() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")

    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)
    assert 'version = { attr = "timebound.version.VERSION" }' in project


def test_compiled_is_what_runs_from_no_python_file() -> None:
    assert is_compiled() == (Path(str(broker.__file__)).suffix != ".py")
