"""A weight is never less than the octets that the writer needs: pages and segments cut by it fit (RS-LIM-01)."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headwater.catalog.interface import Limits, Metadata, Unacceptable
from headwater.catalog.weights import URI_PREFIX_OCTETS, text_octets, weight
from headwater.spec.kinds import Kind
from headwater.spec.records import Change, Document, Entry, Link
from headwater.spec.writer import DocumentWriter, Profile, WriteRefused

NOW = dt.datetime(2026, 1, 1, 12, 30, 30, 123_456, tzinfo=dt.UTC)
PREFIX = "http://example.org/".ljust(URI_PREFIX_OCTETS, "p")
UP = (Link(rel="up", href="http://example.org/capabilitylist.xml"),)
LISTS = [
    (Document(kind=Kind.RESOURCE_LIST, capability="resourcelist", at=NOW, links=UP), Profile.V11),
    (Document(kind=Kind.CHANGE_LIST, capability="changelist", from_=NOW, links=UP), Profile.BOTH),
]
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cn"], exclude_characters="\ufffe\uffff"))
WORDS = st.none() | TEXT | st.sampled_from(["&<>\"'" * 9, "\t\n\r", "é" * 9, "\U0001f600", "application/pdf"])
MOMENTS = st.datetimes(timezones=st.just(dt.UTC), min_value=dt.datetime(1000, 1, 1))
LENGTHS = st.integers(0, 2**63 - 1)
LINKS = st.builds(
    Link,
    rel=st.sampled_from(["describedby", "duplicate"]),
    href=TEXT.map(lambda text: "http://example.org/" + text),
    length=st.none() | LENGTHS,
    modified=st.none() | MOMENTS,
    pri=st.none() | st.integers(1, 999_999),
    type=WORDS,
    path=st.none() | TEXT.map(lambda text: "/" + text),
    hash=WORDS,
    extra=st.lists(st.tuples(st.just("{http://example.org/ns}a"), TEXT), max_size=1).map(tuple),
)
METADATA = st.builds(
    Metadata,
    lastmod=st.none() | MOMENTS,
    hash=WORDS | st.just("md5:" + "0" * 32 + " sha-256:" + "0" * 64),
    length=st.none() | LENGTHS,
    type=WORDS,
    encoding=WORDS,
    changefreq=st.none() | st.sampled_from(["always", "daily", "never"]),
    links=st.lists(LINKS, max_size=3).map(tuple),
)


@given(uri=TEXT, metadata=METADATA, change=st.sampled_from(Change))
def test_the_writer_never_needs_more(uri: str, metadata: Metadata, change: Change) -> None:
    try:
        bound = weight(uri, metadata)
    except Unacceptable:
        assume(False)
    for document, profile in LISTS:
        history = document.kind is Kind.CHANGE_LIST
        entry = Entry(
            loc=PREFIX + uri,
            lastmod=metadata.lastmod,
            changefreq=metadata.changefreq,
            change=change if history else None,
            datetime=NOW if history else None,
            encoding=metadata.encoding,
            hash=metadata.hash,
            length=metadata.length,
            type=metadata.type,
            links=metadata.links,
        )
        writer = DocumentWriter(document, profile)
        writer.head()
        try:
            written = writer.entries([entry])
        except WriteRefused:
            continue
        assert len(written) <= bound


@pytest.mark.parametrize("text", ["a", "é", "\U0001f600", "&", "<>\"'", "\t\n\r", "a&\u20ac"])
def test_text_octets(text: str) -> None:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;").replace("\n", "&#10;")
    assert text_octets(text) >= len(escaped.encode())


@pytest.mark.parametrize("text", ["\0", "a\x1f", "\ud800", "\ufffe", "\uffff", "\x0b"])
def test_what_xml_cannot_hold(text: str) -> None:
    with pytest.raises(Unacceptable):
        text_octets(text)


def test_ordinary_resources_fill_a_page_by_count_not_by_octets() -> None:
    usual = Metadata(lastmod=NOW, hash="md5:" + "0" * 32 + " sha-256:" + "0" * 64, length=1, type="application/pdf")
    limits = Limits()
    assert weight("some/folder/of/a/collection/with-a-file-name.pdf", usual) * limits.page_entries < limits.page_octets
