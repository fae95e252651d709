"""One value of a document: what each kind accepts, and what it answers to anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from timebound.toml.reader import WrongValue, read_value, shown
from timebound.toml.setting import NEVER_S, KeySpec

FOLDER = Path("/etc/timebound")


@pytest.mark.parametrize(
    ("raw", "setting", "expected"),
    [
        (True, KeySpec("switch", ""), True),
        (7, KeySpec("count", "", maximum=7), 7),
        ("4KiB", KeySpec("count", "", was_size=True), 4096),
        ("2MiB", KeySpec("size", ""), 2 << 20),
        (0.5, KeySpec("fraction", ""), 0.5),
        ("250ms", KeySpec("duration", ""), 0.25),
        ("2m", KeySpec("seconds", ""), 120),
        ("never", KeySpec("seconds", "", maximum=NEVER_S), NEVER_S),
        ("b", KeySpec("choice", "", choices=("a", "b")), "b"),
        (["a", "b"], KeySpec("texts", ""), ("a", "b")),
        ("tls/key.pem", KeySpec("path", ""), FOLDER / "tls/key.pem"),
        ("/key.pem", KeySpec("path", ""), Path("/key.pem")),
        ("n1", KeySpec("text", ""), "n1"),
    ],
)
def test_a_right_value_becomes_what_the_code_uses(raw: object, setting: KeySpec, expected: object) -> None:
    assert read_value(raw, setting, FOLDER) == expected


@pytest.mark.parametrize(
    ("raw", "setting", "message"),
    [
        (1, KeySpec("switch", ""), "must be true or false, not 1"),
        (True, KeySpec("count", ""), "must be a whole number at least 0, not true"),
        (8, KeySpec("count", "", maximum=7), "must be from 0 to 7, not 8"),
        ("4 kilobytes", KeySpec("size", ""), "'4 kilobytes' is not a size"),
        (float("nan"), KeySpec("fraction", ""), "must be from 0 to 1, not nan"),
        (30, KeySpec("duration", ""), 'must be a duration with a unit like "30s", not 30'),
        ("never", KeySpec("seconds", ""), "'never' is not a duration|unit"),
        ("1.5s", KeySpec("seconds", ""), "must be whole seconds, as MQTT sends them, not '1.5s'"),
        ("ebpd", KeySpec("choice", "", choices=("eb", "ebpc")), 'did you mean "ebpc"?'),
        ("a", KeySpec("texts", ""), "must be a list of strings"),
        ("", KeySpec("path", ""), "is empty; give a path or leave the key out"),
        ("a\0b", KeySpec("text", ""), "contains a null character"),
    ],
)
def test_a_wrong_value_is_answered_with_what_would_be_right(
    raw: object, setting: KeySpec, message: str
) -> None:
    with pytest.raises(WrongValue) as caught:
        read_value(raw, setting, FOLDER)

    assert any(text in str(caught.value) for text in message.split("|"))


def test_a_long_value_is_shown_cut_short() -> None:
    assert shown("x" * 100) == "'" + "x" * 59 + "..."
