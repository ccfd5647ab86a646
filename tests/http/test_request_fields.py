"""Conditions of requests: RFC 9110 as tables, and laws over what anybody may send."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.http.requests import accepts_gzip, is_fresh, wanted_span
from headwater.retry import http_second

TAG = b'"abc"'
SECOND = 1_700_000_000
DATE = formatdate(SECOND, usegmt=True).encode()
LATER = formatdate(SECOND + 1, usegmt=True).encode()
EARLIER = formatdate(SECOND - 1, usegmt=True).encode()


@pytest.mark.parametrize(
    ("none_match", "since", "fresh"),
    [
        (None, None, False),
        (b'"abc"', None, True),
        (b'W/"abc"', None, True),
        (b'"x", "abc"', None, True),
        (b'"x","y" , W/"abc"', None, True),
        (b' "abc" ', None, True),
        (b"*", None, True),
        (b'"abcd"', None, False),
        (b"abc", None, False),
        (b'"x, "abc"', None, True),  # what is malformed counts as absent
        (b"", None, False),
        (b'"x"', LATER, False),  # with a tag the date does not count
        (None, DATE, True),
        (None, LATER, True),
        (None, EARLIER, False),
        (None, b"yesterday", False),
        (None, b"Sun, 99 Nov 2023 99:99:99 GMT", False),
        (None, b"Tuesday, 14-Nov-23 22:13:20 GMT", True),  # RFC 850
        (None, b"Tue Nov 14 22:13:20 2023", True),  # asctime
        (None, b"\xff" * 30, False),
        (None, b"1" * 5000, False),
    ],
)
def test_freshness(none_match: bytes | None, since: bytes | None, fresh: bool) -> None:
    assert is_fresh(none_match, since, TAG, SECOND) is fresh


@pytest.mark.parametrize(("since", "fresh"), [(EARLIER, False), (DATE, True), (LATER, False)])
def test_a_file_that_came_to_an_older_date_is_not_fresh(since: bytes, fresh: bool) -> None:
    """What was held until `cp -p` put an older version in its place has a later date."""
    assert is_fresh(None, since, TAG, SECOND, is_exact=True) is fresh


def test_weak_tag_of_ours_is_compared_weakly() -> None:
    assert is_fresh(b'"abc"', None, b'W/"abc"', SECOND)


def test_a_date_proves_nothing_while_the_tag_is_weak() -> None:
    assert not is_fresh(None, LATER, b'W/"abc"', SECOND)


@pytest.mark.parametrize(
    ("range_", "span"),
    [
        (b"bytes=0-0", range(0, 1)),
        (b"bytes=0-99", range(0, 100)),
        (b"bytes=0-100", range(0, 100)),
        (b"bytes=99-", range(99, 100)),
        (b"bytes=-1", range(99, 100)),
        (b"bytes=-1000", range(0, 100)),
        (b"Bytes = 5 - 6", range(5, 7)),
        (b"bytes=100-", range(0)),
        (b"bytes=100-200", range(0)),
        (b"bytes=-0", range(0)),
        (b"bytes=5-4", None),
        (b"bytes=0-0,2-3", None),
        (b"bytes=", None),
        (b"bytes=-", None),
        (b"bytes=a-b", None),
        (b"lines=0-1", None),
        (b"bytes=0-99999999999999999999999999", None),
        (b"bytes=" + b"0-0," * 5000, None),
        (b"", None),
    ],
)
def test_ranges(range_: bytes, span: range | None) -> None:
    assert wanted_span(range_, None, TAG, 100) == span


@pytest.mark.parametrize(
    ("if_range", "tag", "taken"),
    [
        (TAG, TAG, True),
        (b'"other"', TAG, False),
        (b'W/"abc"', b'W/"abc"', False),  # RFC 9110 13.1.5: strong comparison
        (TAG, b'W/"abc"', False),
        (DATE, TAG, False),
    ],
)
def test_if_range(if_range: bytes, tag: bytes, taken: bool) -> None:
    assert (wanted_span(b"bytes=1-2", if_range, tag, 100) is not None) is taken


@given(st.binary(max_size=60), st.integers(0, 200))
def test_a_span_always_lies_inside(text: bytes, size: int) -> None:
    span = wanted_span(b"bytes=" + text, None, TAG, size)
    assert not span or 0 <= span.start < span.stop <= size


@pytest.mark.parametrize(
    ("header", "coded"),
    [
        (None, False),
        (b"", False),
        (b"identity", False),
        (b"gzip", True),
        (b"GZIP", True),
        (b"x-gzip", True),
        (b"gzip, deflate, br", True),
        (b"deflate", False),
        (b"gzip;q=0", False),
        (b"gzip;q=0.0", False),
        (b"gzip; q=0.001", True),
        (b"*", True),
        (b"*;q=0", False),
        (b"gzip;q=0, *", False),
        (b"identity, gzip;q=0.5", False),
        (b"identity;q=0.5, gzip;q=0.5", True),
        (b"gzip;q=2", False),
        (b"gzip;q=", False),
        (b"gzipx", False),
        (b"gzip;level=9", True),
        (b"gzip," * 5000, False),
        (b"\xff\xfe", False),
    ],
)
def test_gzip_is_sent_to_those_who_ask(header: bytes | None, coded: bool) -> None:
    assert accepts_gzip(header) is coded


@given(st.binary(max_size=80))
def test_no_octets_break_anything(text: bytes) -> None:
    is_fresh(text, None, TAG, SECOND)
    is_fresh(None, text, TAG, SECOND)
    span = wanted_span(text, text, TAG, 10)
    assert not span or 0 <= span.start < span.stop <= 10
    accepts_gzip(text)
    http_second(text.decode("latin-1"))
