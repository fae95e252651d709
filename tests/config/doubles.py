"""Mistakes of a configuration, as tests compare them."""

from __future__ import annotations

from pathlib import Path

from timebound.node.config import read_config

PATH = Path("/etc/timebound/timebound.toml")


def mistakes_of(text: str, folder: Path) -> list[str]:
    """Every mistake, with the name of the file alone in front."""
    path = folder / "t.toml"
    path.write_text(text, "utf-8")
    return [str(mistake).replace(f"{folder}/", "") for mistake in read_config(path)[1]]
