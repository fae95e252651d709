"""Where each key of a TOML document stands; shared with scenarios, so it lives in `timebound.toml_lines`."""

from __future__ import annotations

from timebound.toml_lines import KeyPath, key_lines

__all__ = ["KeyPath", "key_lines"]
