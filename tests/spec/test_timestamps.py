"""Times as whole microseconds: there and back without loss, in order, and never without a zone."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.spec.times import from_microseconds, from_optional, to_microseconds

zones = st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=5, minutes=45)), dt.timezone(dt.timedelta(hours=-11))])
moments = st.datetimes(min_value=dt.datetime(2, 1, 1), max_value=dt.datetime(9998, 12, 30), timezones=zones)


@given(moments, moments)
def test_nothing_is_lost_and_the_order_stays(one: dt.datetime, other: dt.datetime) -> None:
    assert from_microseconds(to_microseconds(one)) == one
    assert (to_microseconds(one) < to_microseconds(other)) == (one < other)


@pytest.mark.parametrize(
    ("moment", "microseconds"),
    [
        (dt.datetime(1970, 1, 1, tzinfo=dt.UTC), 0),
        (dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC), -1),
        (dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), 0),
        (dt.datetime(2026, 11, 21, 16, 29, 29, 5, tzinfo=dt.UTC), 1_795_278_569_000_005),
    ],
)
def test_known_moments(moment: dt.datetime, microseconds: int) -> None:
    assert to_microseconds(moment) == microseconds
    assert from_optional(microseconds) == moment
    assert from_optional(None) is None


def test_a_time_without_a_zone_is_none() -> None:
    with pytest.raises(ValueError, match="without a zone"):
        to_microseconds(dt.datetime(2026, 1, 1))


def test_a_time_beyond_the_calendar_is_none() -> None:
    with pytest.raises(OverflowError):
        from_microseconds(1 << 62)
