"""Reads the archives of a source by the standard alone, and asserts what has to hold of them and of what they list."""

from __future__ import annotations

import msgspec

from headwater.spec.kinds import Kind
from headwater.spec.records import Document, Entry
from tests.publish.dump_reader import Fetch, ReadPackage, href, read_named
from tests.support.published import BASE


class ArchivedDocument(msgspec.Struct):
    """What an archive lists: its entry, its head, and the entries of all that belongs to it."""

    entry: Entry
    head: Document
    entries: list[Entry]


def read_archives(fetch: Fetch, name: str = "files") -> dict[str, list[ArchivedDocument]]:
    """Every archive that the Capability List names, by its capability, read to the last package."""
    own = f"{BASE}/{name}/capabilitylist.xml"
    _, offered = read_named(fetch, own)
    names = [one.capability for one in offered]
    assert len(names) == len(set(names)), "RS-ARC-03"
    by_name = {str(one.capability): one.loc for one in offered}
    found = {}
    for capability, uri in by_name.items():
        if capability.endswith("-archive"):
            found[capability] = _archive(fetch, uri, capability, own)
            current = by_name[capability.removesuffix("-archive")]
            assert href(read_named(fetch, current)[0], "archives") == uri, "RS-ARC-05"
    return found


def _archive(fetch: Fetch, uri: str, capability: str, own: str) -> list[ArchivedDocument]:
    head, entries = read_named(fetch, uri)
    assert head.capability == capability, "RS-ARC-10"
    assert href(head, "up") == own, "RS-ARC-11"
    times = [entry.from_ or entry.at for entry in entries]
    assert times == sorted(times, key=str), "RS-ARC-17, RS-ARC-18"
    assert len({entry.loc for entry in entries}) == len(entries), "RS-ARC-13"
    return [_archived(fetch, entry, own) for entry in entries]


def _archived(fetch: Fetch, entry: Entry, own: str) -> ArchivedDocument:
    head, entries = read_named(fetch, entry.loc)
    assert (head.at, head.completed, head.from_) == (entry.at, entry.completed, entry.from_), "RS-ARC-27"
    assert head.until == entry.until, "RS-ARC-27"
    assert entry.from_ is None or entry.until is not None, "RS-ARC-26"
    assert href(head, "up") == own, "RS-ARC-08"
    assert head.link("index") is None, "RS-ARC-31"
    if head.kind is Kind.RESOURCE_LIST_INDEX:
        parts = [(part, *read_named(fetch, part.loc)) for part in entries]
        for part, page, _ in parts:
            assert (page.at, page.completed) == (part.at, part.completed), "RS-RLI-04"
            assert href(page, "index") == entry.loc, "RS-RL-05"
        assert head.at == min(part.at for part, _, _ in parts if part.at), "AMB-24"
        assert head.completed == max(part.completed for part, _, _ in parts if part.completed), "AMB-24"
        entries = [one for _, _, some in parts for one in some]
    elif head.kind in (Kind.CHANGE_DUMP, Kind.RESOURCE_DUMP):
        is_changes = head.kind is Kind.CHANGE_DUMP
        kind = Kind.CHANGE_DUMP_MANIFEST if is_changes else Kind.RESOURCE_DUMP_MANIFEST
        entries = [one for package in entries for one in ReadPackage(fetch, package, kind, own).entries]
    uris = [one.loc for one in entries]
    assert entry.at is None or len(uris) == len(set(uris)), "AMB-89"
    return ArchivedDocument(entry, head, entries)
