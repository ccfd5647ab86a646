"""Strict writer: one row for each MUST that one document can break; each is refused with its rule."""

# ruff: noqa: E501  tables are read across

from __future__ import annotations

import datetime as dt
from itertools import product

import msgspec
import pytest

from headwater.errors import Exit
from headwater.spec import kinds as limits
from headwater.spec import reader, writer
from headwater.spec.kinds import PATCH, RS, Kind
from headwater.spec.records import ChangeKind, Document, Entry, Link
from headwater.spec.writer import DocumentWriter, Profile, WriteRefused, write_document
from tests.spec.test_serialisation import MD5, T1, T2, UP, A, head
from tests.support.documents import Read

NAIVE = dt.datetime(2024, 1, 2)
LATER = T2 + dt.timedelta(days=1)
UPDATED = Entry(loc=A, change=ChangeKind.UPDATED, datetime=T2)


def changed(kind: Kind, **fields: object) -> Document:
    return msgspec.structs.replace(head(kind), **fields)


HEADS = [
    ("RS-DOC-04", changed(Kind.RESOURCE_LIST, capability="changelist")),
    ("AMB-12", Document(kind=Kind.UNKNOWN, capability="strange")),
    ("AMB-12", Document(kind=Kind.SITEMAP)),
    ("RS-RL-01", changed(Kind.RESOURCE_LIST, at=None)),
    ("RS-RL-03", changed(Kind.RESOURCE_LIST, from_=T1)),
    ("RS-RL-03", changed(Kind.RESOURCE_LIST, until=T1)),
    ("RS-RL-04", changed(Kind.RESOURCE_LIST, links=())),
    ("RS-RLI-01", changed(Kind.RESOURCE_LIST_INDEX, at=None)),
    ("RS-RLI-02", changed(Kind.RESOURCE_LIST_INDEX, links=())),
    ("RS-RD-01", changed(Kind.RESOURCE_DUMP, at=None)),
    ("RS-RD-02", changed(Kind.RESOURCE_DUMP, links=())),
    ("RS-RDI-01", changed(Kind.RESOURCE_DUMP_INDEX, at=None)),
    ("RS-RDM-02", changed(Kind.RESOURCE_DUMP_MANIFEST, at=None)),
    ("RS-RDM-03", changed(Kind.RESOURCE_DUMP_MANIFEST, links=())),
    ("RS-CAP-02", changed(Kind.CAPABILITY_LIST, links=())),
    ("RS-CL-01", changed(Kind.CHANGE_LIST, from_=None)),
    ("RS-CL-02", changed(Kind.CHANGE_LIST, at=T1)),
    ("RS-CL-02", changed(Kind.CHANGE_LIST, completed=T1)),
    ("RS-CL-03", changed(Kind.CHANGE_LIST, links=())),
    ("RS-CLI-01", changed(Kind.CHANGE_LIST_INDEX, from_=None)),
    ("RS-CD-01", changed(Kind.CHANGE_DUMP, from_=None)),
    ("RS-CDI-01", changed(Kind.CHANGE_DUMP_INDEX, from_=None)),
    ("RS-CDM-02", changed(Kind.CHANGE_DUMP_MANIFEST, from_=None)),
    ("RS-CN-04", changed(Kind.CHANGE_NOTIFICATION, until=None)),
    ("RS-CN-04", changed(Kind.CHANGE_NOTIFICATION, from_=None)),
    ("RS-ARC-11", changed(Kind.CHANGE_LIST_ARCHIVE, links=())),
    ("RS-ARC-21", changed(Kind.CHANGE_LIST_ARCHIVE_INDEX, links=())),
    ("RS-SD-10", changed(Kind.SOURCE_DESCRIPTION, links=(UP,))),
    ("RS-TIME-07", changed(Kind.RESOURCE_LIST, at=T2, completed=T1)),
    ("RS-TIME-10", changed(Kind.CHANGE_LIST, from_=T2, until=T1)),
    ("RS-TIME-01", changed(Kind.RESOURCE_LIST, at=NAIVE)),
    ("RS-TIME-01", changed(Kind.RESOURCE_LIST, completed=NAIVE)),
    ("AMB-43", changed(Kind.RESOURCE_LIST, links=(UP, UP))),
    ("AMB-43", changed(Kind.RESOURCE_LIST, links=(UP, *[Link(rel="index", href=A)] * 2))),
    ("AMB-44", changed(Kind.RESOURCE_LIST_INDEX, links=(UP, Link(rel="index", href=A)))),
    ("AMB-44", changed(Kind.RESOURCE_DUMP_MANIFEST, links=(UP, Link(rel="index", href=A)))),
    ("RS-MD-10", changed(Kind.RESOURCE_LIST, links=(UP, Link(rel="via", href=A, path="/a")))),
    ("RS-LN-01", changed(Kind.RESOURCE_LIST, links=(UP, Link(rel="Via", href=A)))),
    ("AMB-07", changed(Kind.RESOURCE_LIST, links=(Link(rel="up", href="../up"),))),
    ("RS-DOC-13", changed(Kind.RESOURCE_LIST, extra=(("own", "1"),))),
]


@pytest.mark.parametrize(("rule", "document"), HEADS)
def test_heads_that_break_a_rule_are_refused(rule, document) -> None:
    with pytest.raises(WriteRefused) as refused:
        DocumentWriter(document).head()
    assert refused.value.rule == rule
    assert refused.value.exit_status is Exit.USAGE


def mirror(**fields: object) -> Entry:
    return Entry(loc=A, links=(Link(**({"rel": "duplicate", "href": A} | fields)),))  # type: ignore[arg-type]


ENTRIES = [
    ("AMB-07", Kind.RESOURCE_LIST, Entry(loc="a/b")),
    ("AMB-07", Kind.RESOURCE_LIST, Entry(loc="")),
    ("AMB-07", Kind.RESOURCE_LIST, Entry(loc="http:///a")),
    ("AMB-08", Kind.RESOURCE_LIST, Entry(loc=A + "\n")),
    ("AMB-08", Kind.RESOURCE_LIST, Entry(loc=A + "\0")),
    ("AMB-08", Kind.RESOURCE_LIST, Entry(loc=A + "\ud800")),
    ("RS-DOC-19", Kind.RESOURCE_LIST, Entry(loc=A + "a" * 8_192)),
    ("RS-DOC-15", Kind.RESOURCE_LIST, Entry(loc=A, changefreq="often")),
    ("RS-TIME-01", Kind.RESOURCE_LIST, Entry(loc=A, lastmod=NAIVE)),
    ("RS-MD-01", Kind.RESOURCE_LIST, Entry(loc=A, capability="resourcelist")),
    ("RS-MD-01", Kind.RESOURCE_LIST, Entry(loc=A, capability="")),
    ("RS-MD-02", Kind.RESOURCE_LIST, Entry(loc=A, change=ChangeKind.CREATED)),
    ("RS-MD-02", Kind.RESOURCE_LIST, Entry(loc=A, datetime=T1)),
    ("RS-MD-05", Kind.RESOURCE_LIST, Entry(loc=A, hash="0a")),
    ("RS-MD-05", Kind.RESOURCE_LIST, Entry(loc=A, hash="")),
    ("RS-MD-05", Kind.RESOURCE_LIST, Entry(loc=A, hash="MD5:" + "0a" * 16)),
    ("RS-MD-05", Kind.RESOURCE_LIST, Entry(loc=A, hash="md5:" + "0A" * 16)),
    ("RS-MD-05", Kind.RESOURCE_LIST, Entry(loc=A, hash="md5:" + "0g" * 16)),
    ("RS-MD-05", Kind.RESOURCE_LIST, Entry(loc=A, hash=f"{MD5}  {MD5}")),
    ("AMB-32", Kind.RESOURCE_LIST, Entry(loc=A, hash=f"{MD5} {MD5}")),
    ("RS-MD-09", Kind.RESOURCE_LIST, Entry(loc=A, length=-1)),
    ("RS-MD-10", Kind.RESOURCE_LIST, Entry(loc=A, path="/a")),
    ("RS-MD-10", Kind.RESOURCE_LIST, Entry(loc=A, path="")),
    ("RS-MD-10", Kind.RESOURCE_DUMP_MANIFEST, Entry(loc=A, path="a")),
    ("RS-MD-10", Kind.RESOURCE_DUMP_MANIFEST, Entry(loc=A, path="/a/")),
    ("RS-MD-10", Kind.RESOURCE_DUMP_MANIFEST, Entry(loc=A, path="/../a")),
    ("RS-DOC-19", Kind.RESOURCE_DUMP_MANIFEST, Entry(loc=A, path="/a\x01")),
    ("RS-MD-11", Kind.RESOURCE_LIST, Entry(loc=A, type="html")),
    ("RS-MD-11", Kind.RESOURCE_LIST, Entry(loc=A, type="")),
    ("RS-MD-11", Kind.RESOURCE_LIST, Entry(loc=A, type="text/ht ml")),
    ("AMB-39", Kind.RESOURCE_LIST, Entry(loc=A, encoding="gzip, br")),
    ("RS-LN-01", Kind.RESOURCE_LIST, mirror(rel="")),
    ("RS-LN-01", Kind.RESOURCE_LIST, mirror(rel="up index")),
    ("AMB-07", Kind.RESOURCE_LIST, mirror(href="")),
    ("RS-LN-03", Kind.RESOURCE_LIST, mirror(pri=0)),
    ("RS-LN-03", Kind.RESOURCE_LIST, mirror(pri=1_000_000)),
    ("RS-MD-10", Kind.RESOURCE_LIST, mirror(path="/a")),
    ("RS-TIME-01", Kind.RESOURCE_LIST, mirror(modified=NAIVE)),
    ("RS-DOC-12", Kind.RESOURCE_LIST, Entry(loc=A, extra=((f"{{{RS}}}length", "1"),))),
    ("RS-DOC-13", Kind.RESOURCE_LIST, Entry(loc=A, extra=(("length", "1"),))),
    ("RS-DOC-13", Kind.RESOURCE_LIST, Entry(loc=A, extra=(("{http://x/}a", "1"), ("{http://x/}a", "2")))),
    ("RS-REL-04", Kind.RESOURCE_LIST, mirror(rel=PATCH, type="a/b")),
    ("AMB-58", Kind.RESOURCE_LIST, Entry(loc=A, at=T1)),
    ("AMB-58", Kind.RESOURCE_LIST, Entry(loc=A, from_=T1)),
    ("AMB-58", Kind.CHANGE_LIST_INDEX, Entry(loc=A, at=T1)),
    ("AMB-58", Kind.RESOURCE_LIST_INDEX, Entry(loc=A, until=T1)),
    ("RS-TIME-07", Kind.RESOURCE_LIST_INDEX, Entry(loc=A, at=T2, completed=T1)),
    ("RS-TIME-10", Kind.CHANGE_LIST_INDEX, Entry(loc=A, from_=T2, until=T1)),
    ("RS-CAP-06", Kind.CAPABILITY_LIST, Entry(loc=A)),
    ("AMB-12", Kind.CAPABILITY_LIST, Entry(loc=A, capability="strange")),
    ("RS-SD-06", Kind.SOURCE_DESCRIPTION, Entry(loc=A, capability="resourcelist")),
    ("RS-RDM-05", Kind.RESOURCE_DUMP_MANIFEST, Entry(loc=A)),
    ("RS-CDM-05", Kind.CHANGE_DUMP_MANIFEST, Entry(loc=A, path="/a")),
    ("RS-CDM-06", Kind.CHANGE_DUMP_MANIFEST, UPDATED),
    ("RS-CL-07", Kind.CHANGE_LIST, Entry(loc=A, datetime=T1)),
    ("AMB-17", Kind.CHANGE_LIST, Entry(loc=A, change=ChangeKind.UPDATED)),
    ("RS-TIME-01", Kind.CHANGE_LIST, Entry(loc=A, change=ChangeKind.UPDATED, datetime=NAIVE)),
    ("RS-TIME-11", Kind.CHANGE_LIST, Entry(loc=A, change=ChangeKind.UPDATED, datetime=T1 - dt.timedelta(days=1))),
    ("RS-TIME-11", Kind.CHANGE_NOTIFICATION, Entry(loc=A, change=ChangeKind.UPDATED, datetime=LATER)),
    ("RS-REL-04", Kind.CHANGE_LIST, msgspec.structs.replace(UPDATED, links=(Link(rel=PATCH, href=A),))),
    ("RS-CDM-11", Kind.CHANGE_DUMP_MANIFEST, msgspec.structs.replace(UPDATED, path="/a", links=(Link(rel=PATCH, href=A, type="a/b"),))),
    ("RS-CN-12", Kind.CHANGE_NOTIFICATION, Entry(loc=A, datetime=T1)),
    ("RS-FN-06", Kind.FRAMEWORK_NOTIFICATION, Entry(loc=A, change=ChangeKind.UPDATED)),
    ("RS-FN-06", Kind.FRAMEWORK_NOTIFICATION, Entry(loc=A, capability="resourcelist")),
    ("RS-FN-08", Kind.FRAMEWORK_NOTIFICATION, Entry(loc=A, capability="resourcelist", change=ChangeKind.DELETED)),
    ("RS-FN-08", Kind.FRAMEWORK_NOTIFICATION, Entry(loc=A, capability="resourcedump", change=ChangeKind.UPDATED)),
]  # fmt: skip

SAME_RULE = {"RS-CDM-05": "RS-CL-07", "RS-CN-12": "RS-CL-07", "RS-DOC-12": "RS-DOC-13"}
"""Rules that say for one kind or one case what another says in general; the refusal names the general one."""

EITHER = {"RS-FN-06": {"RS-FN-06", "RS-CL-07"}}


@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize(("rule", "kind", "entry"), ENTRIES)
def test_entries_that_break_a_rule_are_refused(rule, kind, entry, others) -> None:
    good = [Entry(loc=A + str(n)) for n in range(others)] if kind is Kind.RESOURCE_LIST else []
    with pytest.raises(WriteRefused) as refused:
        list(write_document(head(kind), [*good, entry, *good]))
    assert refused.value.rule in EITHER.get(rule, {SAME_RULE.get(rule, rule)})


ORDERED = [
    ("RS-CL-05", Kind.CHANGE_LIST, [UPDATED, msgspec.structs.replace(UPDATED, datetime=T1)]),
    ("RS-CDM-03", Kind.CHANGE_DUMP_MANIFEST, [msgspec.structs.replace(UPDATED, path="/a"), msgspec.structs.replace(UPDATED, path="/b", datetime=T1)]),
    ("RS-CN-09", Kind.CHANGE_NOTIFICATION, [UPDATED, msgspec.structs.replace(UPDATED, datetime=T1)]),
    ("RS-CLI-02", Kind.CHANGE_LIST_INDEX, [Entry(loc=A, from_=T2), Entry(loc=A, from_=T1)]),
    ("RS-ARC-17", Kind.CHANGE_LIST_ARCHIVE, [Entry(loc=A, from_=T2), Entry(loc=A, from_=T1)]),
    ("RS-ARC-17", Kind.CHANGE_DUMP_ARCHIVE, [Entry(loc=A, from_=T2), Entry(loc=A, from_=T1)]),
    ("RS-CAP-05", Kind.CAPABILITY_LIST, [Entry(loc=A, capability="changelist")] * 2),
    ("RS-ARC-03", Kind.CAPABILITY_LIST, [Entry(loc=A, capability="changelist-archive")] * 2),
]  # fmt: skip

GENERAL = {"RS-CDM-03": "RS-CL-05", "RS-CN-09": "RS-CL-05", "RS-ARC-03": "RS-CAP-05"}


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("rule", "kind", "entries"), ORDERED)
def test_entries_in_the_wrong_order_are_refused(rule, kind, entries, together) -> None:
    document = DocumentWriter(head(kind), Profile.BOTH)
    if not together:
        document.entries(entries[:1])
    with pytest.raises(WriteRefused) as refused:
        document.entries(entries if together else entries[1:])
    assert refused.value.rule == GENERAL.get(rule, rule)


VIA = Link(rel="via", href=A)
SLOWLY = msgspec.structs.replace(UPDATED, links=(VIA,))
"""An entry that is looked at by itself: it has a link."""


@pytest.mark.parametrize("blocks", list(product([UPDATED, SLOWLY], repeat=3)))
def test_equal_times_are_in_order(blocks: tuple[Entry, ...]) -> None:
    """RS-CL-13: by whole columns and one by one, within a block and over blocks."""
    document = DocumentWriter(head(Kind.CHANGE_LIST))
    document.entries(list(blocks[:2]))
    document.entries([blocks[2]])
    parts = DocumentWriter(head(Kind.CHANGE_LIST_INDEX))
    parts.entries([Entry(loc=A, from_=T1, until=T2), Entry(loc=A, from_=T1)])


@pytest.mark.parametrize("one", [UPDATED, SLOWLY], ids=["columns", "one by one"])
@pytest.mark.parametrize(
    "moments",
    [(T2, LATER), (T1, T2, LATER), (T1 - dt.timedelta(days=1), T2)],
    ids=["the second too late", "the third too late", "the first too early"],
)
def test_every_time_of_a_block_lies_within_its_document(one: Entry, moments: tuple[dt.datetime, ...]) -> None:
    """RS-TIME-11: not only the first or the last of a block."""
    document = DocumentWriter(changed(Kind.CHANGE_LIST, from_=T1, until=T2))
    with pytest.raises(WriteRefused) as refused:
        document.entries([msgspec.structs.replace(one, datetime=moment) for moment in moments])
    assert refused.value.rule == "RS-TIME-11"


def test_a_moment_may_be_its_own_end() -> None:
    """RS-TIME-07, RS-TIME-10: `completed` may be `at`, and `until` `from`."""
    DocumentWriter(changed(Kind.RESOURCE_LIST, at=T1, completed=T1))
    DocumentWriter(changed(Kind.CHANGE_LIST, from_=T1, until=T1))


@pytest.mark.parametrize(("most", "is_told"), [(-1, True), (0, False)], ids=["one octet beyond", "exactly"])
def test_more_octets_than_a_document_may_have_are_told_once(
    monkeypatch: pytest.MonkeyPatch, most: int, is_told: bool
) -> None:
    """RS-LIM-02: read nevertheless."""
    data = b"".join(write_document(head(Kind.RESOURCE_LIST), [Entry(loc=A)] * 3))
    monkeypatch.setattr(reader, "DOCUMENT_OCTETS", len(data) + most)
    read = Read(data, pieces=[100] * (len(data) // 100 + 1))
    assert len(read.entries) == 3
    assert [one.rule for one in read.warnings] == ["RS-LIM-02"] * is_told


def test_too_many_entries_are_refused() -> None:
    document = DocumentWriter(head(Kind.RESOURCE_LIST))
    document.entries([Entry(loc=A)] * limits.DOCUMENT_ENTRIES)
    with pytest.raises(WriteRefused) as refused:
        document.entries([Entry(loc=A)])
    assert refused.value.rule == "RS-LIM-01"


def test_too_many_octets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "DOCUMENT_OCTETS", 2_000)
    with pytest.raises(WriteRefused) as refused:
        list(write_document(head(Kind.RESOURCE_LIST), [Entry(loc=A)] * 100))
    assert refused.value.rule == "RS-LIM-01"
    assert len(b"".join(write_document(head(Kind.RESOURCE_LIST), [Entry(loc=A)] * 20))) <= 2_000
