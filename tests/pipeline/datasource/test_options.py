from __future__ import annotations

import pytest

from timebound.errors import ConfigError
from timebound.pipeline.datasource.options import Options, parse_options

SERVER = "127.0.0.1:8815"


def test_one_server_is_all_that_is_needed() -> None:
    assert parse_options({"servers": SERVER}) == Options((SERVER,))


def test_names_may_be_written_in_any_case() -> None:
    options = parse_options(
        {
            "SERVERS": f"{SERVER}, other:1",
            "startingoffsets": f'{{"{SERVER}": 5, "other:1": "latest"}}',
            "MaxRowsPerBatch": "10",
            "retryTimeout": "250ms",
            "CAFILE": "ca.pem",
            "checkpointLocation": "/somewhere",
        }
    )

    assert options.servers == (SERVER, "other:1")
    assert options.starting == {SERVER: 5, "other:1": "latest"}
    assert (options.rows_per_batch, options.retry_timeout_s, options.tls) == (10, 0.25, True)


def test_the_old_name_of_the_certificates_is_still_read() -> None:
    old = parse_options({"servers": SERVER, "tlsCa": "ca.pem"})

    assert old == parse_options({"servers": SERVER, "caFile": "ca.pem"})
    with pytest.raises(ConfigError, match="the old name of 'cafile', which is given too"):
        parse_options({"servers": SERVER, "tlsCa": "ca.pem", "caFile": "ca.pem"})


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(parse_options({"servers": SERVER, "user": "a", "password": "secret"}))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "option 'servers': is required"),
        ({"servers": "localhost"}, "'localhost' is not a \"host:port\""),
        ({"servers": "a:1,a:1"}, "names a server twice"),
        ({"server": SERVER}, "option 'server': unknown option; did you mean 'servers'?"),
        ({"servers": SERVER, "colour": "red"}, "known are servers, topic,"),
        ({"servers": SERVER, "gaps": "skip"}, "option 'gaps': must be one of error, row, not 'skip'"),
        ({"servers": SERVER, "kind": "rows"}, "must be one of messages, trace"),
        ({"servers": SERVER, "startingOffsets": "soon"}, '\'soon\' is not "earliest", "latest" or JSON'),
        (
            {"servers": SERVER, "startingOffsets": '{"b:1": 1}'},
            "names 'b:1', which is not one of the servers",
        ),
        ({"servers": SERVER, "startingOffsets": "{}"}, f"has no offset for {SERVER}"),
        ({"servers": SERVER, "endingOffsets": f'{{"{SERVER}": -1}}'}, "-1 is not an offset of"),
        ({"servers": SERVER, "maxRowsPerBatch": "0"}, "must be a whole number above 0, not '0'"),
        ({"servers": SERVER, "tls": "yes"}, "must be true or false, not 'yes'"),
        ({"servers": SERVER, "retryTimeout": "30"}, "'30' is not a duration"),
        ({"servers": SERVER, "password": "x"}, "is given without a user"),
    ],
)
def test_a_wrong_option_is_explained(given: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options(given)

    assert expected in str(caught.value)
