"""One value of a document: what each kind accepts, and what it answers to anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from timebound.toml.reader import WrongValue, read_value, shown
from timebound.toml.setting import NEVER_S, Setting

FOLDER = Path("/etc/timebound")


@pytest.mark.parametrize(
    ("raw", "setting", "expected"),
    [
        (True, Setting("switch", ""), True),
        (7, Setting("count", "", maximum=7), 7),
        ("4KiB", Setting("count", "", was_size=True), 4096),
        ("2MiB", Setting("size", ""), 2 << 20),
        (0.5, Setting("fraction", ""), 0.5),
        ("250ms", Setting("duration", ""), 0.25),
        ("2m", Setting("seconds", ""), 120),
        ("never", Setting("seconds", "", maximum=NEVER_S), NEVER_S),
        ("b", Setting("choice", "", choices=("a", "b")), "b"),
        (["a", "b"], Setting("texts", ""), ("a", "b")),
        ("tls/key.pem", Setting("path", ""), FOLDER / "tls/key.pem"),
        ("/key.pem", Setting("path", ""), Path("/key.pem")),
        ("n1", Setting("text", ""), "n1"),
    ],
)
def test_a_right_value_becomes_what_the_code_uses(raw: object, setting: Setting, expected: object) -> None:
    assert read_value(raw, setting, FOLDER) == expected


@pytest.mark.parametrize(
    ("raw", "setting", "message"),
    [
        (1, Setting("switch", ""), "must be true or false, not 1"),
        (True, Setting("count", ""), "must be a whole number at least 0, not true"),
        (8, Setting("count", "", maximum=7), "must be from 0 to 7, not 8"),
        ("4 kilobytes", Setting("size", ""), "'4 kilobytes' is not a size"),
        (float("nan"), Setting("fraction", ""), "must be from 0 to 1, not nan"),
        (30, Setting("duration", ""), 'must be a duration with a unit like "30s", not 30'),
        ("never", Setting("seconds", ""), "'never' is not a duration|unit"),
        ("1.5s", Setting("seconds", ""), "must be whole seconds, as MQTT sends them, not '1.5s'"),
        ("ebpd", Setting("choice", "", choices=("eb", "ebpc")), 'did you mean "ebpc"?'),
        ("a", Setting("texts", ""), "must be a list of strings"),
        ("", Setting("path", ""), "is empty; give a path or leave the key out"),
        ("a\0b", Setting("text", ""), "has a null character"),
    ],
)
def test_a_wrong_value_is_answered_with_what_would_be_right(
    raw: object, setting: Setting, message: str
) -> None:
    with pytest.raises(WrongValue) as caught:
        read_value(raw, setting, FOLDER)

    assert any(text in str(caught.value) for text in message.split("|"))


def test_a_long_value_is_shown_cut_short() -> None:
    assert shown("x" * 100) == "'" + "x" * 59 + "..."
