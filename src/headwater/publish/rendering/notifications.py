"""The payload of a Change Notification: some changes of a set as the octets that are sent to hubs (RS-CN).

It is as long as many hubs take at most: of what does not fit, the next notification tells. A change whose entry alone
is longer is told of by a gap between intervals: it sends subscribers to the Change List, which has all of it.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

import msgspec

from headwater.catalog.interface import Catalog, Change
from headwater.publish.links.added_links import AddedLinks, LinkRoom
from headwater.publish.links.link_sources import EntryPlace
from headwater.publish.rendering import documents
from headwater.publish.site import Site
from headwater.publish.store_writer import render_document
from headwater.spec.records import Entry

PAYLOAD_OCTETS: Final = 1 << 20
"""No payload is longer."""
_LINK_OCTETS: Final = PAYLOAD_OCTETS // 2


class ChangePayload(msgspec.Struct, frozen=True, kw_only=True):
    """A Change Notification as it is sent: it ends with the change `last`, of the time `until`."""

    last: int
    until: dt.datetime
    octets: bytes


class ToTell(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a set that follow `after`, up to `last`, `most` of them at most.

    `from_` is where the interval of the notification before ended. The hub takes `most_octets`.
    """

    name: str
    after: int
    last: int
    most: int
    from_: dt.datetime
    most_octets: int = PAYLOAD_OCTETS


def change_payload(site: Site, catalog: Catalog, told: ToTell) -> ChangePayload:
    """The notification of changes, in order (RS-CN-09).

    Its `from` is where the one before ended, its `until` the time of its last change (RS-CN-05, RS-CN-07).
    Raises the catalog's faults.
    """
    name = told.name
    rows = catalog.changes(name, told.after, min(told.most, told.last - told.after))
    while True:
        until = rows[-1].at
        head = documents.change_notification(site, name, told.from_, until)
        octets = b"".join(render_document(head, _entries(site, catalog, name, rows), site.profile))
        if len(octets) <= told.most_octets:
            return ChangePayload(last=rows[-1].seq, until=until, octets=octets)
        if len(rows) == 1:
            head = documents.change_notification(site, name, until, until)
            octets = b"".join(render_document(head, (), site.profile))
            return ChangePayload(last=rows[0].seq, until=until, octets=octets)
        rows = rows[: len(rows) // 2]


def _entries(site: Site, catalog: Catalog, name: str, rows: list[Change]) -> list[Entry]:
    """The entries as a Change List has them, with the links of the set's rules and to patches (RS-CN-10…14)."""
    settings = site.settings(name)
    added = AddedLinks(site, settings, catalog, has_patches=bool(settings.patch))
    linked = added.to(rows, EntryPlace.CHANGE_LIST, LinkRoom(_LINK_OCTETS))
    return list(documents.change_entries(linked, site.resource_prefix(name), site.profile))
