"""Small functions for sweeps, found by their path as the simulator's are."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

RESULTS = (("area", "float64"), ("name", "string"), ("process", "int64"))


def open_rectangles(context: bytes) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    unit = context.decode()

    def run_row(values: Mapping[str, Any]) -> dict[str, Any]:
        if values["width"] == 13:
            raise ValueError("13 is no width")
        area = values["width"] * values["height"]
        return {"area": area, "name": f"{area:g} {unit}", "process": os.getpid()}

    return run_row
