"""Keys of a table, as its dataclass describes them."""

from __future__ import annotations

from dataclasses import MISSING, dataclass

import pytest

from timebound.toml.setting import (
    GIBIBYTE,
    KIBIBYTE,
    MEBIBYTE,
    UNLIMITED,
    KeySpec,
    format_size,
    setting,
    settings_of,
    toml_key,
)


@dataclass(frozen=True)
class Table:
    name: str = setting("text", MISSING, "required")
    wait_s: float = setting("duration", 1.5, "a while", maximum=60)
    keep_alive_s: int = setting("seconds", 5, "a while")
    mode: str = setting("choice", "a", "one of two", choices=("a", "b"))
    lines_s: int = setting("count", 3, "not a duration")
    inner: object = None  # a table of its own, no key


def test_keys_of_a_table_are_its_described_fields_in_order() -> None:
    assert list(settings_of(Table)) == ["name", "wait", "keep_alive", "mode", "lines_s"]


def test_each_key_leads_to_its_field_and_its_description() -> None:
    field, spec = settings_of(Table)["wait"]

    assert (field.name, field.default) == ("wait_s", 1.5)
    assert spec == KeySpec("duration", "a while", maximum=60)
    assert settings_of(Table)["mode"][1].choices == ("a", "b")


def test_field_is_required_where_its_default_is_missing() -> None:
    with pytest.raises(TypeError, match="name"):
        Table()  # type: ignore[call-arg]  # the mistake under test

    assert Table("x").wait_s == 1.5


@pytest.mark.parametrize(
    ("kind", "key"), [("duration", "wait"), ("seconds", "wait"), ("count", "wait_s"), ("size", "wait_s")]
)
def test_only_durations_lose_their_ending(kind: str, key: str) -> None:
    assert toml_key("wait_s", KeySpec(kind, "")) == key  # type: ignore[arg-type]  # one of the kinds


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0"),
        (1023, "1023"),
        (KIBIBYTE, "1KiB"),
        (1_500 * KIBIBYTE, "1500KiB"),
        (2 * MEBIBYTE, "2MiB"),
        (GIBIBYTE, "1GiB"),
        (GIBIBYTE + 1, "1073741825"),
    ],
)
def test_sizes_are_written_in_the_largest_whole_unit(size: int, text: str) -> None:
    assert format_size(size) == text


def test_number_without_a_maximum_is_not_limited() -> None:
    assert KeySpec("count", "").maximum == UNLIMITED
