"""Adds links to rows of the catalog on their way into a document, as far as the document has room (RS-LIM-01)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

import msgspec

from headwater.catalog.entry_size import URI_PREFIX_OCTETS, link_octets
from headwater.catalog.interface import Catalog, Change, Limits, Resource
from headwater.publish.links.allowance import ROOM
from headwater.publish.links.link_sources import (
    ChangeListLinks,
    EntryPlace,
    Links,
    LinkSource,
    OriginLinks,
    dataset_patch_links,
    link_sources,
    patch_links,
)
from headwater.publish.links.rules import NO_RULES
from headwater.publish.site import SetSettings, Site
from headwater.spec.checks import escape
from headwater.spec.records import ChangeKind, Link

Row = TypeVar("Row", Resource, Change)

ROWS_AT_ONCE = 1_000
"""So many rows are looked at together: sources may have to ask the catalog for others."""


class LinkRoom:
    """What links may still add to one document: `octets`, of which `used` are taken."""

    def __init__(self, octets: int) -> None:
        self.octets = octets
        self.used = 0

    def take(self, octets: int) -> bool:
        """Take so much, where there is as much."""
        if self.used + octets > self.octets:
            return False
        self.used += octets
        return True


class AddedLinks:
    """What a set's settings and its patches add to its entries; without them all stays as it is, at no cost."""

    def __init__(self, site: Site, settings: SetSettings, catalog: Catalog, *, has_patches: bool = False) -> None:
        self.is_on = settings.links != NO_RULES or has_patches or settings.dataset
        if self.is_on:
            prefix, name = site.resource_prefix(settings.name), settings.name
            self._margin = URI_PREFIX_OCTETS - len(escape(prefix))
            self._sources: tuple[LinkSource, ...] = link_sources(settings.links, name, prefix, catalog)
            if has_patches:
                self._sources += (ChangeListLinks(partial(patch_links, site, name, catalog)),)
            if settings.dataset:
                self._sources += (
                    ChangeListLinks(partial(dataset_patch_links, site, name, catalog)),
                    OriginLinks(name, catalog),
                )
        self._segment_octets = settings.segment_octets

    def room(self, weight: int, count: int) -> LinkRoom:
        """The room of a document whose `count` entries weigh so much without added links."""
        return LinkRoom(ROOM - weight + (count * self._margin if self.is_on else 0))

    def open_room(self, weight: int, count: int, used: int, limits: Limits) -> LinkRoom | None:
        """The room of an open Change List, in which links take `used` octets already and to which changes will come.

        None: so many have come that it has to be rendered anew, with fewer links.
        """
        room = self.room(max(weight, min(limits.segment_octets, self._segment_octets)), count)
        if used > self.room(weight, count).octets:
            return None
        room.used = used
        return room

    def to(self, rows: Iterable[Row], place: EntryPlace, room: LinkRoom) -> Iterator[Row]:
        """The rows, with their links; those that a row has itself come first, and none comes twice.

        A deletion has none. Links for which there is no room are left out.
        """
        if not self.is_on:
            yield from rows
            return
        remaining = iter(rows)
        while batch := list(islice(remaining, ROWS_AT_ONCE)):
            yield from self._linked(batch, place, room)

    def _linked(self, rows: list[Row], place: EntryPlace, room: LinkRoom) -> Iterator[Row]:
        living = [row for row in rows if not is_deletion(row)]
        columns = [source.links(living, place) for source in self._sources]
        added = iter(zip(*columns, strict=True) if columns else ((),) * len(living))
        for row in rows:
            yield row if is_deletion(row) else _with(row, next(added), room)


def is_deletion(row: Resource | Change) -> bool:
    """Whether the row says that a resource is no longer there."""
    return isinstance(row, Change) and row.change is ChangeKind.DELETED


def _with(row: Row, added: Sequence[Links], room: LinkRoom) -> Row:
    links = _links(row.metadata.links, added, room)
    return (
        row if not links else msgspec.structs.replace(row, metadata=msgspec.structs.replace(row.metadata, links=links))
    )


def _links(own: Links, added: Sequence[Links], room: LinkRoom) -> Links:
    """All links of a row; none where nothing comes to its own."""
    known = {(link.rel, link.href) for link in own}
    fresh: list[Link] = []
    for link in (link for links in added for link in links):
        if (link.rel, link.href) not in known and room.take(link_octets(link)):
            known.add((link.rel, link.href))
            fresh.append(link)
    return (*own, *fresh) if fresh else ()
