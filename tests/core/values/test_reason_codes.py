"""The core's reason codes are those of the wire."""

from __future__ import annotations

from timebound.core.values import reason_codes
from timebound.wire.reasons import ReasonCode


def test_every_reason_code_has_the_number_of_its_name_on_the_wire() -> None:
    names = [name for name in vars(reason_codes) if name.isupper()]

    assert len(names) == 9
    assert {name: getattr(reason_codes, name) for name in names} == {
        name: int(ReasonCode[name]) for name in names
    }
