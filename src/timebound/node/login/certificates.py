"""Users by their client certificates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def common_name(certificate: Mapping[str, Any] | None) -> str:
    """Return the common name in a verified certificate, as `ssl` describes it; empty if there is none."""
    for part in (certificate or {}).get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""
