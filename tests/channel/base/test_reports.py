"""Reports in the log."""

from __future__ import annotations

import logging

import pytest

from timebound.channel.base.reports import Kind, Report, write_to_log


@pytest.mark.parametrize("kind", Kind)
def test_everything_but_a_notice_is_a_warning(kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "timebound.channel"):
        write_to_log(Report(kind, "c", "happened"))

    (record,) = caplog.records
    assert record.levelno == (logging.INFO if kind is Kind.NOTICE else logging.WARNING)
    assert record.getMessage() == "consumer 'c': happened"


def test_report_of_the_channel_itself_names_no_consumer(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "timebound.channel"):
        write_to_log(Report(Kind.NOTICE, "", "100 % done"))

    assert [record.getMessage() for record in caplog.records] == ["100 % done"]


def test_error_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    error = RuntimeError("no thanks")

    write_to_log(Report(Kind.FAILED, "c", "raised", error))

    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is error
