"""The fuzz target runs, is repeatable from its seed, and finds nothing in a short run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TARGET = Path(__file__).parents[2] / "fuzz" / "fuzz_decoder.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TARGET), *arguments], capture_output=True, text=True, timeout=50, check=False
    )


def test_short_run_from_a_seed_finds_nothing_and_repeats() -> None:
    first = run("--seed", "7", "--runs", "1000", "--seconds", "40")
    second = run("--seed", "7", "--runs", "1000", "--seconds", "40")

    assert first.returncode == 0, first.stdout + first.stderr
    assert "1000 runs" in first.stdout
    assert first.stdout == second.stdout


def test_new_seed_is_printed_so_that_a_run_can_be_repeated() -> None:
    result = run("--runs", "1")

    assert result.returncode == 0
    assert result.stdout.startswith("seed ")
