"""W3C Datetime: its six forms, what is forgiven, what is refused (RS-TIME-01…04, AMB-06, AMB-26)."""

from __future__ import annotations

import datetime as dt

import pytest

from headwater.spec.times import Coarse, Leniency, format_datetime, parse_datetime


def utc(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> dt.datetime:
    return dt.datetime(year, month, day, hour, minute, second, tzinfo=dt.UTC)


FORMS = [  # RS-TIME-03
    ("2024", utc(2024, 1, 1), utc(2025, 1, 1)),
    ("2024-12", utc(2024, 12, 1), utc(2025, 1, 1)),
    ("2024-02-29", utc(2024, 2, 29), utc(2024, 3, 1)),
    ("2024-01-02T03:04Z", utc(2024, 1, 2, 3, 4), utc(2024, 1, 2, 3, 5)),
    ("2024-01-02T03:04:05Z", utc(2024, 1, 2, 3, 4, 5), None),
    ("2024-01-02T03:04:05.1234567+02:30", utc(2024, 1, 2, 0, 34, 5).replace(microsecond=123_456), None),
    ("2024-01-02T03:04:05-02:30", utc(2024, 1, 2, 5, 34, 5), None),
    ("2016-12-31T23:59:60Z", utc(2017, 1, 1), None),
    ("9999-12-31T23:59Z", utc(9999, 12, 31, 23, 59), dt.datetime.max.replace(tzinfo=dt.UTC)),
    ("9999", utc(9999, 1, 1), dt.datetime.max.replace(tzinfo=dt.UTC)),
    ("0001-01-01T00:00:00Z", utc(1, 1, 1), None),
]


@pytest.mark.parametrize(("text", "moment", "until"), FORMS)
def test_forms(text, moment, until) -> None:
    read, forgiven = parse_datetime(text)
    assert (read, forgiven) == (moment, ())
    assert read.tzinfo is dt.UTC
    assert isinstance(read, Coarse) is (until is not None)
    if isinstance(read, Coarse):
        assert read.until == until


FORGIVEN = [
    ("2024-01-02T03:04:05", Leniency.NO_ZONE),
    ("2024-01-02T04:04:05+0100", Leniency.ODD_ZONE),
    ("2024-01-02t03:04:05Z", Leniency.LOWER_CASE),
    ("2024-01-02T03:04:05z", Leniency.LOWER_CASE),
    ("2024-01-02T03:04:05,0Z", Leniency.COMMA),
    ("2024-01-02 03:04:05Z", Leniency.SPACE),
]


@pytest.mark.parametrize(("text", "leniency"), FORGIVEN)
def test_what_is_forgiven(text, leniency) -> None:
    assert parse_datetime(text) == (utc(2024, 1, 2, 3, 4, 5), (leniency,))


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "24-01-02", "2024-1-2", "2024-13", "2024-02-30", "20240102", "2024-W01-1", "2024-01-02T"),
        *("2024-01-02T03Z", "2024-01-02T25:00:00Z", "2024-01-02T03:04:05+24:00", "2024-01-02T03:04:05+01:60"),
        *("2024-01-02T03:04:05 UTC", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"),
        *("9999-12-31T23:59:60Z", "٢٠٢٤"),
    ],
)
def test_what_is_refused(text) -> None:
    with pytest.raises(ValueError):
        parse_datetime(text)


def test_writing_needs_a_zone() -> None:
    with pytest.raises(ValueError):
        format_datetime(dt.datetime(2024, 1, 1))
    assert format_datetime(utc(2024, 1, 1)) == "2024-01-01T00:00:00Z"
    assert format_datetime(utc(2024, 1, 1).replace(microsecond=5)) == "2024-01-01T00:00:00.000005Z"
