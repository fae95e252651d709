"""`[data]`, `[trace]`, `[[journals]]` and `[flight]`: where they lie, who reads them, and mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from timebound.config.storage import DataConfig, FlightConfig, TraceConfig
from timebound.errors import ConfigError
from timebound.node.config import default_config, parse_config

PATH = Path("/etc/timebound/timebound.toml")


def mistake(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, PATH)
    return str(caught.value)


def test_without_journals_nothing_is_served() -> None:
    assert not default_config().flight_enabled


def test_a_journal_turns_the_service_on_and_has_limits() -> None:
    config = parse_config('[[journals]]\nname = "plant"\nfilter = "plant/#"\nage_max = "2h"\n', PATH)

    journal = config.journals[0]

    assert config.flight_enabled
    assert (journal.filter, journal.trace, journal.age_max_s, journal.bytes_max) == (
        "plant/#",
        False,
        7200.0,
        1 << 30,
    )


def test_the_service_can_be_on_without_a_journal() -> None:
    assert parse_config("[flight]\nenabled = true\n", PATH).flight_enabled


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[[journals]]\nfilter = "a"\n', "journals[0].name: is required"),
        ('[[journals]]\nname = "../up"\n', "must be 1 to 64 of"),
        ('[[journals]]\nname = ".hidden"\n', "not begin with '.'"),
        ('[[journals]]\nname = "a"\n[[journals]]\nname = "a"\n', "is already named 'a'"),
        ('[[journals]]\nname = "a"\nfilter = "a/#/b"\n', "has '#' before its last level"),
        ('[[journals]]\nname = "a"\nfilter = "$share/g/a"\n', "not to shared subscriptions"),
        ('[[journals]]\nname = "a"\ntrace = true\nfilter = "a"\n', "keeps all records"),
        ('[[journals]]\nname = "a"\nbytes_max = "1KiB"\n', "must be at least 1MiB"),
        ('[journals]\nname = "a"\n', "write [[journals]] above"),
        ('[[journals]]\nname = "a"\nfilters = "#"\n', "did you mean 'filter'?"),
        ('[[journals]]\nname = "a"\n[flight]\nhost = "0.0.0.0"\n', "flight: nobody could log in"),
        ('[[journals]]\nname = "a"\n[flight]\nhost = ""\n', "flight.host: is empty"),
        ('[flight.tls]\ncertificate = "a"\n', "flight.tls.key: is required"),
        (
            '[flight.tls]\ncertificate = "a"\nkey = "b"\nca = "c"\nidentity = "common_name"\n',
            "flight.tls.identity: is for listeners",
        ),
    ],
)
def test_a_mistake_is_explained_at_its_key(text: str, expected: str) -> None:
    assert expected in mistake(text)


def test_relative_folders_lie_beside_the_file_and_absolute_ones_where_they_say() -> None:
    config = parse_config("[data]\npath = 'store'\n[trace]\npath = '/var/trace'\n", PATH)

    assert (config.data.path, config.trace.path) == (PATH.parent / "store", Path("/var/trace"))
    assert (DataConfig().path, TraceConfig().path) == (Path("data"), Path("trace"))


def test_what_costs_disk_is_off_and_what_loses_messages_is_not_the_default() -> None:
    assert DataConfig().fsync
    assert not TraceConfig().enabled
    assert FlightConfig().enabled is None


def test_flight_is_open_to_programs_without_a_name_on_this_machine_alone() -> None:
    assert FlightConfig().anonymous_allowed
    assert not FlightConfig(allow_anonymous=False).anonymous_allowed
    assert not FlightConfig(host="0.0.0.0").anonymous_allowed
    assert FlightConfig(host="0.0.0.0", allow_anonymous=True).anonymous_allowed
