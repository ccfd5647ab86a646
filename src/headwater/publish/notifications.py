"""The payloads of notifications, as octets that are sent to hubs: of changes of a set (RS-CN), of documents (RS-FN).

A Framework Notification tells which documents are new, changed or gone: the difference between those of which somebody
was told and those that are there, by their names and digests.
"""

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from headwater.catalog.interface import Catalog
from headwater.publish import document_content
from headwater.publish.added_links import AddedLinks, EntryPlace
from headwater.publish.document_content import head_of, set_links
from headwater.publish.document_names import CAPABILITIES, CAPABILITY_LIST, NUMBER, RESOURCE_DUMP
from headwater.publish.site import (
    DESCRIPTION_PARTS,
    SOURCE_DESCRIPTION,
    Site,
    capability_list_name,
    source_description_name,
)
from headwater.publish.store_writer import render_document
from headwater.spec.kinds import Kind
from headwater.spec.records import ChangeKind, Entry, Link

PAYLOAD_OCTETS: Final = 1 << 20  # no payload of changes is longer


class ChangePayload(msgspec.Struct, frozen=True, kw_only=True):
    """A Change Notification as it is sent: it ends with the change `last`, of the time `until`."""

    last: int
    until: dt.datetime
    octets: bytes


def change_payload(
    site: Site,
    catalog: Catalog,
    name: str,
    from_: dt.datetime,
    *,
    after: int,
    last: int,
    most: int,
    most_octets: int = PAYLOAD_OCTETS,
) -> ChangePayload:
    """The notification of the changes that follow `after`, up to `last`, `most` of them at most, in order (RS-CN-09).

    Its `from` is where the one before ended, its `until` the time of its last change (RS-CN-05, RS-CN-07). The hub
    takes `most_octets`. Raises the catalog's faults.
    """
    settings, rows = site.settings(name), catalog.changes(name, after, min(most, last - after))
    added, links = AddedLinks(site, settings, catalog, has_patches=bool(settings.patch)), set_links(site, name, None)
    while True:
        until = rows[-1].at
        head = head_of(Kind.CHANGE_NOTIFICATION, links, from_=from_, until=until)
        linked = added.to(rows, EntryPlace.CHANGE_LIST)  # as in a Change List (RS-CN-10…14)
        entries = document_content.change_entries(linked, site.resource_prefix(name), site.profile)
        octets = b"".join(render_document(head, entries, site.profile))
        if len(octets) <= most_octets:
            return ChangePayload(last=rows[-1].seq, until=until, octets=octets)
        if len(rows) == 1:
            head = head_of(Kind.CHANGE_NOTIFICATION, links, from_=until, until=until)
            octets = b"".join(render_document(head, (), site.profile))
            return ChangePayload(last=rows[0].seq, until=until, octets=octets)
        rows = rows[: len(rows) // 2]


DESCRIPTION: Final = "description"  # the capability of a Source Description (RS-FN-06)
_NUMBER: Final = re.compile("[0-9]{5,}")
_DOCUMENTS: Final = {
    one.name: row
    for row in CAPABILITIES
    if row is CAPABILITY_LIST or row.is_listed
    for one in (row.top, row.parts)
    if one is not None
}
"""The rows of the table of capabilities, by the names of documents, and of the parts of those that may be indexes."""


class FrameworkDocument(msgspec.Struct, frozen=True):
    """A document of which a Framework Notification may tell; `index` is the name of the one that it is listed in."""

    name: str
    capability: str
    index: str | None = None


class DocumentChange(msgspec.Struct, frozen=True):
    """One entry."""

    document: FrameworkDocument
    kind: ChangeKind


def document_named(set_name: str, name: str) -> FrameworkDocument | None:
    """What the document `name` is to the channel of a set; None: it is not told of (RS-FN-06).

    The lists for old harvesters and Sitemaps are others' views of the set, and packages and archived documents are told
    of by the document that lists them.
    """
    if name == SOURCE_DESCRIPTION:
        return FrameworkDocument(name, DESCRIPTION)
    if name.startswith(DESCRIPTION_PARTS):
        return FrameworkDocument(name, DESCRIPTION, SOURCE_DESCRIPTION)
    folder, _, below = name.partition("/")
    if folder != set_name:
        return None
    row = _DOCUMENTS.get(_NUMBER.sub(NUMBER, below))
    if row is None:
        return None
    return FrameworkDocument(name, row.name, None if below == row.top.name else f"{set_name}/{row.top.name}")


def framework_documents(set_name: str, names: Iterable[str]) -> list[FrameworkDocument]:
    """Those of the documents of a set that are told of; no index is (RS-FN-09), its components are."""
    found = [one for one in (document_named(set_name, name) for name in names) if one is not None]
    indexes = {one.index for one in found}
    return [one for one in found if one.name not in indexes]


def document_changes(
    told: Mapping[str, str], there: Mapping[FrameworkDocument, str], set_name: str
) -> list[DocumentChange]:
    """What is to be told: `told` are the digests of the documents that were told of, `there` of those that are there.

    Of several new components of one index only the last is announced (RS-FN-11). Documents that are gone are told of by
    the Capability List, which does not name them any more; only its own end is an entry (RS-FN-08).
    """
    changes: list[DocumentChange] = []
    newest: dict[str, FrameworkDocument] = {}
    for one, digest in there.items():
        if one.name not in told and one.index is not None:
            newest[one.index] = one
        elif one.name not in told:
            changes.append(DocumentChange(one, ChangeKind.CREATED))
        elif told[one.name] != digest:
            is_another = one.capability == RESOURCE_DUMP.name
            changes.append(DocumentChange(one, ChangeKind.CREATED if is_another else ChangeKind.UPDATED))
    changes += [DocumentChange(one, ChangeKind.CREATED) for one in newest.values()]
    own = capability_list_name(set_name)
    if own in told and own not in {one.name for one in there}:
        changes.append(DocumentChange(FrameworkDocument(own, CAPABILITY_LIST.name), ChangeKind.DELETED))
    return changes


def framework_payload(
    site: Site, set_name: str, changes: Sequence[DocumentChange], changed_at: Callable[[str], dt.datetime | None]
) -> bytes:
    """The notification of these changes."""
    capabilities = {one.document.capability for one in changes}
    up: tuple[str, ...] = ()  # what is above all that has changed (RS-FN-04)
    if capabilities == {CAPABILITY_LIST.name}:
        is_ours = any(one.name == set_name for one in site.sets)
        up = (source_description_name(site, set_name) if is_ours else SOURCE_DESCRIPTION,)
    elif not capabilities & {CAPABILITY_LIST.name, DESCRIPTION}:
        up = (capability_list_name(set_name),)
    head = head_of(Kind.FRAMEWORK_NOTIFICATION, tuple(Link(rel="up", href=site.url(one)) for one in up))
    entries = [
        Entry(
            loc=site.url(one.document.name),
            capability=one.document.capability,
            change=one.kind,
            datetime=None if one.kind is ChangeKind.DELETED else changed_at(one.document.name),
            links=() if one.document.index is None else (Link(rel="index", href=site.url(one.document.index)),),
        )
        for one in changes
    ]
    return b"".join(render_document(head, entries, site.profile))
