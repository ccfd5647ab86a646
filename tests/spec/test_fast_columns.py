"""Columns are checked and written as value by value: the same octets, or the same refusal."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.spec import fast_columns
from headwater.spec.kinds import UP, Kind
from headwater.spec.records import Document, Entry, Link
from headwater.spec.times import Coarse, parse_datetime
from headwater.spec.writer import WriteRefused, write_document
from tests.support.examples import examples

AT = dt.datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=dt.UTC)
MD5, SHA = "md5:" + "0a" * 16, "sha-256:" + "1b" * 32
COARSE = parse_datetime("2024-05")[0]
USUAL = Entry(loc="http://example.com/a", lastmod=AT, hash=f"{MD5} {SHA}")

LOCS = st.sampled_from(
    [
        "http://example.com/a",
        "https://example.com/b/c?x=1",
        "http://example.com/?a=1&b=2",
        "http://example.com/\N{LATIN SMALL LETTER E WITH ACUTE}",
        "http://example.com/a b",
        "http://example.com/a\nhttp://example.com/b",
        "http://example.com/a\n",
        "http://example.com/" + "x" * 2_100,
        "http://example.com/" + "x" * 9_000,
        "http://example.com/\x01",
        "http://example.com/\ud800",
        "relative",
        "",
    ]
)
HASHES = st.sampled_from(
    [
        None,
        MD5,
        SHA,
        f"{MD5} {SHA}",
        f"{SHA} {MD5}",
        f"{MD5} {MD5}",
        MD5.upper(),
        MD5 + "\n",
        "md5:" + "g" * 32,
        "md5:" + "\N{LATIN SMALL LETTER E WITH ACUTE}" * 32,
        "sha-256:" + "1b" * 31 + "1",
        "",
    ]
)
TIMES = st.sampled_from(
    [
        None,
        AT,
        AT.replace(microsecond=0),
        AT.replace(year=1),
        AT.astimezone(dt.timezone(dt.timedelta(hours=5))),
        AT.replace(tzinfo=dt.timezone.utc),  # noqa: UP017 - the same zone by its other name
        AT.replace(tzinfo=dt.timezone(dt.timedelta())),
        AT.replace(tzinfo=None),
        COARSE,
    ]
)
entries = st.builds(Entry, loc=LOCS, lastmod=TIMES, hash=HASHES)


def written(block: list[Entry], *, fast: bool) -> bytes | tuple[str, str | None]:
    head = Document(kind=Kind.RESOURCE_LIST, at=AT, links=(Link(rel=UP, href="http://example.com/up"),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_columns, "IS_ON", fast)
        try:
            return b"".join(write_document(head, block))
        except WriteRefused as refused:
            return refused.what, refused.rule


@settings(max_examples=examples(300))
@given(st.lists(entries | st.just(USUAL), min_size=1, max_size=6))
def test_columns_are_written_as_values_are(block: list[Entry]) -> None:
    assert written(block, fast=True) == written(block, fast=False)


def test_usual_columns_are_taken_whole() -> None:
    """Else the comparison would compare one way with itself."""
    assert isinstance(COARSE, Coarse)
    assert fast_columns.are_plain_uris([USUAL.loc] * 3)
    assert fast_columns.are_right_digests([USUAL.hash or ""] * 3)
    assert fast_columns.written_moments([AT] * 3) == ["2026-01-02T03:04:05.678901Z"] * 3
