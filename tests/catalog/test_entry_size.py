"""A weight is never less than the octets that the writer needs: pages and segments cut by it fit (RS-LIM-01)."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headwater.catalog.interface import Limits, Metadata, Unacceptable
from headwater.catalog.page_filling import URI_PREFIX_OCTETS, weight
from headwater.spec.kinds import Kind
from headwater.spec.records import ChangeKind, Document, Entry, Link
from headwater.spec.writer import DocumentWriter, Profile

NOW = dt.datetime(2026, 1, 1, 12, 30, 30, 123_456, tzinfo=dt.UTC)
PREFIX = "http://example.org/".ljust(URI_PREFIX_OCTETS, "p")
UP = (Link(rel="up", href="http://example.org/capabilitylist.xml"),)
LISTS = [
    (Document(kind=Kind.RESOURCE_LIST, capability="resourcelist", at=NOW, links=UP), Profile.V11),
    (Document(kind=Kind.CHANGE_LIST, capability="changelist", from_=NOW, links=UP), Profile.BOTH),
]
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]))
TYPES = st.none() | st.sampled_from(["application/pdf", "Text/HTML; charset=ü", "a&b/c&d", "odd"])
HASHES = st.none() | st.sampled_from(["md5:" + "0" * 32, "sha-256:" + "0" * 64, "md5:" + "0" * 32 + " crc32:1", "odd"])
CODINGS = st.none() | st.sampled_from(["gzip", "&" * 50, "not one"])
MOMENTS = st.datetimes(timezones=st.just(dt.UTC), min_value=dt.datetime(1000, 1, 1))
LENGTHS = st.integers(0, 2**63 - 1)
LINKS = st.builds(
    Link,
    rel=st.sampled_from(["describedby", "duplicate"]),
    href=TEXT.map(lambda text: "http://example.org/" + text),
    length=st.none() | LENGTHS,
    modified=st.none() | MOMENTS,
    pri=st.none() | st.integers(1, 999_999),
    type=TYPES,
    hash=HASHES,
    extra=st.lists(st.tuples(st.just("{http://example.org/ns}a"), TEXT), max_size=1).map(tuple),
)
METADATA = st.builds(
    Metadata,
    lastmod=st.none() | MOMENTS,
    hash=HASHES,
    length=st.none() | LENGTHS,
    type=TYPES,
    encoding=CODINGS,
    changefreq=st.none() | st.sampled_from(["always", "daily", "never"]),
    links=st.lists(LINKS, max_size=3).map(tuple),
)


URIS = TEXT | st.sampled_from(["?a=1&b=2&c=" + "&" * 300, "é" * 300, "a b" * 300, '<>"{}|^`\\' * 50, "%zz%2f"])


@given(uri=URIS, metadata=METADATA, change=st.sampled_from(ChangeKind))
def test_what_is_accepted_can_be_written_and_never_needs_more(uri: str, metadata: Metadata, change: ChangeKind) -> None:
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
            extra=metadata.extra,
        )
        writer = DocumentWriter(document, profile)
        writer.head()
        assert len(writer.entries([entry])) <= bound


@pytest.mark.parametrize("text", ["\0", "a\x1f", "\ud800", "\ufffe", "\uffff", "\x0b"])
def test_what_xml_cannot_hold(text: str) -> None:
    with pytest.raises(Unacceptable):
        weight("a", Metadata(type=f"text/{text}b"))


@pytest.mark.parametrize("text", ["md5:" + "0" * 31 + "\0", "sha-256:" + "\0" * 64, "md5: " + "0" * 31])
def test_what_only_looks_like_a_digest_is_refused(text: str) -> None:
    with pytest.raises(Unacceptable):
        weight("a", Metadata(hash=text))


def test_ordinary_resources_fill_a_page_by_count_not_by_octets() -> None:
    usual = Metadata(lastmod=NOW, hash="md5:" + "0" * 32 + " sha-256:" + "0" * 64, length=1, type="application/pdf")
    limits = Limits()
    assert weight("some/folder/of/a/collection/with-a-file-name.pdf", usual) * limits.page_entries < limits.page_octets
