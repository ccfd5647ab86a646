"""The printed examples of Archives 0.9.1, as a source of the same documents writes them: equal as canonical XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import pytest

from headwater.publish.archives import archive_document, archived_name
from headwater.publish.document_content import capability_list
from headwater.publish.document_names import (
    CHANGE_LIST_ARCHIVE,
    RESOURCE_DUMP_ARCHIVE,
    RESOURCE_LIST_ARCHIVE,
    Capability,
)
from headwater.publish.publication_state import (
    Archived,
    ArchivedChangeList,
    ArchivedResourceDump,
    ArchivedResourceList,
)
from headwater.publish.site import SetSettings, Site
from headwater.spec.writer import write_document
from tests.support.documents import read_bytes

EXAMPLES = Path(__file__).parents[2] / "data" / "spec-examples" / "archives-0.9.1"
SITE = Site(
    base_url="http://example.com",
    sets=(SetSettings(name="dataset1", archive=True, dump=True, change_dump=True),),
)


def printed(name: str) -> bytes:
    return (EXAMPLES / f"archives_ex_{name}.xml").read_bytes()


def canonical(data: bytes) -> str:
    return ET.canonicalize(data.decode(), strip_text=True, rewrite_prefixes=True)


def archived(row: Capability, name: str) -> list[Archived]:
    """The documents of which an example tells."""
    found: list[Archived] = []
    for number, one in enumerate(read_bytes(printed(name))[1]):
        if one.from_ is not None:
            assert one.until is not None
            found.append(ArchivedChangeList(number=number, from_=one.from_, until=one.until, octets=0))
            continue
        assert one.at is not None
        times = {"at": one.at, "completed": one.completed or one.at}
        if row is RESOURCE_LIST_ARCHIVE:
            found.append(ArchivedResourceList(number=number, key="0" * 16, **times, pages=0, octets=0))
        else:
            found.append(ArchivedResourceDump(number=number, key="0" * 16, **times, pages=()))
    return found


def in_our_words(name: str, listed: Sequence[Archived]) -> bytes:
    """The example with our addresses; `lastmod` is an option that we do not use, `completed` one that we always do."""
    data = printed(name)
    _, entries, _ = read_bytes(data)
    root = ET.fromstring(data)
    for url, entry, one in zip(root.findall("{*}url"), entries, listed, strict=True):
        loc, md = url.find("{*}loc"), url.find("{*}md")
        assert loc is not None
        assert md is not None
        loc.text = SITE.url(archived_name("dataset1", one))
        for lastmod in url.findall("{*}lastmod"):
            url.remove(lastmod)
        if entry.at is not None:
            md.set("completed", md.get("completed") or md.attrib["at"])
    return ET.tostring(root)


@pytest.mark.parametrize(
    ("row", "name"), [(RESOURCE_LIST_ARCHIVE, "3_1"), (RESOURCE_DUMP_ARCHIVE, "4_1"), (CHANGE_LIST_ARCHIVE, "5_1")]
)
def test_a_source_writes_what_is_printed(row: Capability, name: str) -> None:
    """RS-ARC-10, RS-ARC-11, RS-ARC-13, RS-ARC-15, RS-ARC-16."""
    listed = archived(row, name)
    _, head, entries = archive_document(SITE, "dataset1", row, listed)
    written = b"".join(write_document(head, entries))
    assert canonical(written) == canonical(in_our_words(name, listed))


def test_the_capability_list_names_what_is_printed() -> None:
    """RS-ARC-01, RS-ARC-02, RS-ARC-03."""
    _, entries = capability_list(SITE, SITE.sets[0], with_later=True)
    _, wanted, _ = read_bytes(printed("2_1"))
    assert {one.capability for one in entries} == {one.capability for one in wanted}
    assert len(entries) == len(wanted)
