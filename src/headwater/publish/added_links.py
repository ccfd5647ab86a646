"""Adds links to rows of the catalog on their way into a document, as far as the document has room (RS-LIM-01).

There is a source of links for each kind of rule, which looks at many rows at once. Patches follow from no rule but are
made (`publish/patches.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from itertools import islice
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from headwater.catalog.entry_size import URI_PREFIX_OCTETS, link_octets
from headwater.catalog.interface import Catalog, Change, Limits, Resource
from headwater.catalog.state import StateRow
from headwater.datasets.rows import PATCH_TYPE, patches_at, read_origin
from headwater.files.patterns import Selection
from headwater.publish.link_rules import (
    NO_RULES,
    ROOM,
    DescribedRule,
    LinkRules,
    UrlRule,
    Variant,
    partner_links,
    partners,
    variants_of,
)
from headwater.publish.patches import patches_of
from headwater.publish.site import SetSettings, Site, dataset_patch_name
from headwater.spec.checks import escape
from headwater.spec.kinds import PATCH
from headwater.spec.records import ChangeKind, Link
from headwater.spec.times import to_microseconds
from headwater.versions.history import row_key, state_of, time_text

Links = tuple[Link, ...]
_URIS = 1_000
_LONGEST_TYPE = 100


class EntryPlace(Enum):
    """The kind of document that an entry stands in; manifests of packages made on demand are RESOURCE_DUMP_MANIFEST."""

    RESOURCE_LIST = auto()
    RESOURCE_DUMP_MANIFEST = auto()
    CHANGE_LIST = auto()
    CHANGE_DUMP_MANIFEST = auto()


class LinkSource(Protocol):
    """Gives rows links by one kind of rule."""

    def links(self, rows: Sequence[Resource] | Sequence[Change], place: EntryPlace) -> Sequence[Links]:
        """The links of each row, in the order of the rows; none is a deletion, and in lists of changes all are changes.

        It raises nothing but the faults of what it looks into.
        """
        ...


def link_sources(rules: LinkRules, name: str, prefix: str, catalog: Catalog) -> tuple[LinkSource, ...]:
    """The sources that the rules of the set `name` ask for; its relative URIs are below `prefix`."""
    sources: list[LinkSource] = []
    if rules.urls:
        sources.append(UrlLinks(rules.urls, prefix))
    if rules.described or rules.variants:
        sources.append(PartnerLinks(rules, name, prefix, catalog))
    if rules.mementos:
        sources.append(MementoLinks(rules.mementos, name, catalog))
    return tuple(sources)


class UrlLinks:
    """Links by patterns of URLs: mirrors, collections, origins, whatever relation."""

    def __init__(self, rules: Sequence[UrlRule], prefix: str) -> None:
        self._rules = [(rule, Selection(rule.match)) for rule in rules]
        self._prefix = prefix

    def links(self, rows: Sequence[Resource] | Sequence[Change], place: EntryPlace) -> Sequence[Links]:
        """The same in every place."""
        return [self._of(row.uri) for row in rows]

    def _of(self, uri: str) -> Links:
        path = path_of(uri)
        whole = uri if "://" in uri else self._prefix + uri
        return tuple(rule.link(path, whole) for rule, selection in self._rules if selection.takes(path.encode()))


class MementoLinks:
    """Links from changes to the states that they have left (RS-REL-08), where the octets of these are kept."""

    def __init__(self, base: str, name: str, catalog: Catalog) -> None:
        self._base = base
        self._name = name
        self._catalog = catalog

    def links(self, rows: Sequence[Resource] | Sequence[Change], place: EntryPlace) -> Sequence[Links]:
        """For changes in lists alone: packages have the octets."""
        if place is not EntryPlace.CHANGE_LIST:
            return [()] * len(rows)
        keys = [row_key(one.uri, to_microseconds(one.at)) if isinstance(one, Change) else ("", "") for one in rows]
        found = self._catalog.rows(self._name, [key for key in keys if key[0]])
        return [self._of(rows[number], found.get(key)) for number, key in enumerate(keys)]

    def _of(self, one: Resource | Change, row: StateRow | None) -> Links:
        state = None if row is None else state_of(row)
        if state is None or not state.is_kept or "://" in one.uri:
            return ()
        kind = one.metadata.type
        return (
            Link(
                rel="memento",
                href=f"{self._base}/{time_text(state.at_us)}/{one.uri}",
                modified=state.at,
                hash=f"sha-256:{state.digest}",
                length=state.length,
                type=kind if kind is not None and len(kind) <= _LONGEST_TYPE else None,
            ),
        )


class PartnerLinks:
    """Links between resources of one set that belong together by their names, while they are there."""

    def __init__(self, rules: LinkRules, name: str, prefix: str, catalog: Catalog) -> None:
        self._described: tuple[DescribedRule, ...] = rules.described
        self._variants: tuple[Variant, ...] = variants_of(rules.variants)
        self._name = name
        self._prefix = prefix
        self._catalog = catalog

    def links(self, rows: Sequence[Resource] | Sequence[Change], place: EntryPlace) -> Sequence[Links]:
        """As the catalog is at this moment, the same in every place."""
        described, variants = self._described, self._variants
        uris = list(dict.fromkeys(uri for row in rows for uri in partners(described, variants, row.uri)))
        there: dict[str, Resource] = {}
        for start in range(0, len(uris), _URIS):
            there |= self._catalog.get(self._name, uris[start : start + _URIS])
        return [partner_links(described, variants, row, there, self._absolute) for row in rows]

    def _absolute(self, uri: str) -> str:
        return self._prefix + uri


class ChangeListLinks:
    """Links of changes in Change Lists alone, one for each change that `links_of` has one for, by its number."""

    def __init__(self, links_of: Callable[[Sequence[Change]], Mapping[int, Link]]) -> None:
        self._links_of = links_of

    def links(self, rows: Sequence[Resource] | Sequence[Change], place: EntryPlace) -> Sequence[Links]:
        """As they are noted at this moment."""
        if place is not EntryPlace.CHANGE_LIST:
            return [()] * len(rows)
        changes = [row for row in rows if isinstance(row, Change)]
        found = self._links_of(changes)
        return [(found[one.seq],) if one.seq in found else () for one in changes]


def patch_links(site: Site, name: str, catalog: Catalog, changes: Sequence[Change]) -> dict[int, Link]:
    """The links of updates to their patches (RS-REL-04); packages have the patches themselves."""
    patches = patches_of(catalog, name, changes)
    return {one.seq: patches[one.seq].link(site, name, one) for one in changes if one.seq in patches}


def partner_finder(rules: LinkRules) -> Callable[[str], Iterable[str]] | None:
    """Finds the URIs whose links a change of a resource may change; None where no rule is about others."""
    if not rules.described and not rules.variants:
        return None
    return partial(partners, rules.described, variants_of(rules.variants))


def path_of(uri: str) -> str:
    """The path of a resource below the set's folder; of one whose URI is absolute, its whole path."""
    return urlsplit(uri).path.lstrip("/") if "://" in uri else uri


class OriginLinks:
    """The `via` of a republished dataset (DST-S9), in the Resource List alone: a change has one link (TIM-A2)."""

    def __init__(self, name: str, catalog: Catalog) -> None:
        self._name = name
        self._catalog = catalog

    def links(self, rows: Sequence[Resource] | Sequence[Change], place: EntryPlace) -> Sequence[tuple[Link, ...]]:
        """As it is noted at this moment."""
        origin = read_origin(self._catalog, self._name) if place is EntryPlace.RESOURCE_LIST else None
        return [() if origin is None else (origin,)] * len(rows)


def dataset_patch_links(site: Site, name: str, catalog: Catalog, changes: Sequence[Change]) -> dict[int, Link]:
    """The links of changes to their patches, by the numbers of the changes; the first leads from nothing (TIM-A3).

    Hash and length are those of the patch (TIM-A15).
    """
    patches = patches_at(catalog, name, [one.seq for one in changes])
    return {
        one.seq: Link(
            rel=PATCH,
            href=site.url(dataset_patch_name(name, one.seq, patches[one.seq].sha256)),
            hash=f"sha-256:{patches[one.seq].sha256}",
            length=patches[one.seq].octets,
            modified=one.at,
            type=PATCH_TYPE,
        )
        for one in changes
        if one.seq in patches
    }


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
