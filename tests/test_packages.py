"""What only some commands need is looked for before they begin."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from timebound.cli import main
from timebound.errors import ConfigError
from timebound.packages import install_command, missing, require

ROOT = Path(__file__).parents[1]
QUICK = str(ROOT / "scenarios" / "quick.toml")
# For commands that get as far as this they should not: it would take minutes.
LONG = ["--seeds", "1..1000"]


def test_installed_packages_are_required_in_silence() -> None:
    require("this test", "pytest")

    assert missing("pytest", "no_such_package") == ["no_such_package"]


def test_all_missing_packages_are_named_with_one_way_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("numpy", "pyspark", "matplotlib"):
        monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(ConfigError) as one:
        require("--plot", "matplotlib")
    with pytest.raises(ConfigError) as several:
        require("Spark", "numpy", "pyspark", key="trace")

    assert str(one.value) == (
        "--plot needs the package matplotlib; "
        "install it in a clone of the project with: pip install '.[plot]'"
    )
    assert str(several.value) == (
        "trace: Spark needs the packages numpy and pyspark; "
        "install them in a clone of the project with: pip install '.[spark]'"
    )


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("matplotlib", ["bench", "channel", "--plot", "plots"]),
        ("matplotlib", ["sim", "paper", "000", "--plot", "plots"]),
        ("matplotlib", ["sim", "paper", "002", "--plot", "plots", *LONG]),
        ("pyarrow", ["sim", "paper", "002", "--workers", "0", "--out", "results", *LONG]),
        ("pyarrow", ["sim", "run", QUICK, "--trace", "trace.parquet", *LONG]),
        ("pyarrow", ["report", "results"]),
        ("pyspark", ["sweep", QUICK]),
        ("pandas", ["sweep", QUICK]),
        ("numpy", ["pipeline", "run"]),
        ("pyspark", ["pipeline", "run"]),
        ("pyarrow", ["pipeline", "live", "--servers", "127.0.0.1:1"]),
        ("numpy", ["demo", "story"]),
        ("pyspark", ["demo", "story"]),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, list) else value,
)
def test_command_says_at_once_what_it_lacks(
    package: str,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("sys.argv", ["timebound", *command])
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SystemExit) as ended:
        main()

    said = " ".join(capsys.readouterr().err.split())
    assert ended.value.code == 2
    assert f"needs the package {package}; install it in a clone of the project with: pip install '.[" in said
    # Nothing was begun.
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["sweep", QUICK], ["pipeline", "run"], ["demo", "story"]])
def test_command_says_at_once_that_java_is_missing(
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("timebound.pipeline.spark.session.FOR_SPARK", ())
    monkeypatch.setattr("sys.argv", ["timebound", *command])
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    assert "which has no bin/java; install Java 17" in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


PAGES = [ROOT / "README.md", ROOT / "examples" / "timebound.toml", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_docs_install_extras_as_the_messages_say() -> None:
    known = {install_command(extra) for extra in ("plot", "spark", "trace")}

    shown = [found for page in PAGES for found in re.findall(r"pip install '[^']*'", page.read_text())]

    assert len(shown) > 5
    assert set(shown) <= known
