"""Adds links to rows of the catalog on their way into a document, as far as the document has room (RS-LIM-01).

There is a source of links for each kind of rule, which looks at many rows at once. Patches follow from no rule but are
made (`publish/patches.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from itertools import islice
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from headwater.catalog.interface import Catalog, Change, Resource
from headwater.catalog.page_filling import link_octets, weight
from headwater.datasets.rows import PATCH_TYPE, patches_at, read_origin
from headwater.files.patterns import Selection
from headwater.publish.link_rules import (
    NO_RULES,
    ROOM,
    LinkRules,
    UrlRule,
    partner_links,
    partners,
    variants_of,
)
from headwater.publish.patches import patch_link, patches_of
from headwater.publish.site import SetSettings, Site, dataset_patch_name
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


Row = TypeVar("Row", Resource, Change)
Rows = Sequence[Resource] | Sequence[Change]
LinkSource = Callable[[Rows, EntryPlace], Sequence[Links]]
"""Gives rows their links by one kind of rule, in the order of the rows; none is a deletion, and in lists of changes all
are changes. It raises nothing but the faults of what it looks into."""


def url_links(rules: Sequence[UrlRule], prefix: str) -> LinkSource:
    """Links by patterns of URLs: mirrors, collections, origins, whatever relation; the same in every place."""
    selected = [(rule, Selection(rule.match)) for rule in rules]

    def links(rows: Rows, _place: EntryPlace) -> Sequence[Links]:
        return [_of(row.uri) for row in rows]

    def _of(uri: str) -> Links:
        path = path_of(uri)
        whole = uri if "://" in uri else prefix + uri
        return tuple(rule.link(path, whole) for rule, selection in selected if selection.takes(path.encode()))

    return links


def partner_links_of(rules: LinkRules, name: str, prefix: str, catalog: Catalog) -> LinkSource:
    """Links between resources of one set that belong together by their names, while they are there."""
    described, variants = rules.described, variants_of(rules.variants)

    def links(rows: Rows, _place: EntryPlace) -> Sequence[Links]:
        uris = list(dict.fromkeys(uri for row in rows for uri in partners(described, variants, row.uri)))
        there: dict[str, Resource] = {}
        for start in range(0, len(uris), _URIS):
            there |= catalog.get(name, uris[start : start + _URIS])
        return [partner_links(described, variants, row, there, lambda uri: prefix + uri) for row in rows]

    return links


def change_list_links(links_of: Callable[[Sequence[Change]], Mapping[int, Link]]) -> LinkSource:
    """Links of changes in Change Lists alone, since packages have what they lead to: one for each change that
    `links_of` has one for, by its number."""

    def links(rows: Rows, place: EntryPlace) -> Sequence[Links]:
        if place is not EntryPlace.CHANGE_LIST:
            return [()] * len(rows)
        changes = [row for row in rows if isinstance(row, Change)]
        found = links_of(changes)
        return [(found[one.seq],) if one.seq in found else () for one in changes]

    return links


def origin_links(name: str, catalog: Catalog) -> LinkSource:
    """The `via` of a republished dataset (DST-S9), in the Resource List alone: a change has one link (TIM-A2)."""

    def links(rows: Rows, place: EntryPlace) -> Sequence[Links]:
        origin = read_origin(catalog, name) if place is EntryPlace.RESOURCE_LIST else None
        return [() if origin is None else (origin,)] * len(rows)

    return links


def memento_links(base: str, name: str, catalog: Catalog, changes: Sequence[Change]) -> dict[int, Link]:
    """The links from changes to the states that they have left (RS-REL-08), where the octets of these are kept."""
    keys = {one.seq: row_key(one.uri, to_microseconds(one.at)) for one in changes if "://" not in one.uri}
    rows = catalog.rows(name, list(keys.values()))
    found: dict[int, Link] = {}
    for one in changes:
        row = rows.get(keys[one.seq]) if one.seq in keys else None
        if row is None or not (state := state_of(row)).is_kept:
            continue
        kind = one.metadata.type
        found[one.seq] = Link(
            rel="memento",
            href=f"{base}/{time_text(state.at_us)}/{one.uri}",
            modified=state.at,
            hash=f"sha-256:{state.digest}",
            length=state.length,
            type=kind if kind is not None and len(kind) <= _LONGEST_TYPE else None,
        )
    return found


def patch_links(site: Site, name: str, catalog: Catalog, changes: Sequence[Change]) -> dict[int, Link]:
    """The links of updates to their patches (RS-REL-04)."""
    patches = patches_of(catalog, name, changes)
    return {one.seq: patches[one.seq].link(site, name, one) for one in changes if one.seq in patches}


def dataset_patch_links(site: Site, name: str, catalog: Catalog, changes: Sequence[Change]) -> dict[int, Link]:
    """The links of changes of a dataset to their patches; the first leads from nothing (TIM-A3)."""
    patches = patches_at(catalog, name, [one.seq for one in changes])
    named = ((one, patches[one.seq]) for one in changes if one.seq in patches)
    return {
        one.seq: patch_link(
            site.url(dataset_patch_name(name, one.seq, patch.sha256)), patch.sha256, patch.octets, one, PATCH_TYPE
        )
        for one, patch in named
    }


def partner_finder(rules: LinkRules) -> Callable[[str], Iterable[str]] | None:
    """Finds the URIs whose links a change of a resource may change; None where no rule is about others."""
    if not rules.described and not rules.variants:
        return None
    return partial(partners, rules.described, variants_of(rules.variants))


def path_of(uri: str) -> str:
    """The path of a resource below the set's folder; of one whose URI is absolute, its whole path."""
    return urlsplit(uri).path.lstrip("/") if "://" in uri else uri


ROWS_AT_ONCE = 1_000
"""So many rows are looked at together: sources may have to ask the catalog for others."""


class AddedLinks:
    """What a set's settings and its patches add to its entries; without them all stays as it is, at no cost."""

    def __init__(self, site: Site, settings: SetSettings, catalog: Catalog, *, has_patches: bool = False) -> None:
        rules, name, prefix = settings.links, settings.name, site.resource_prefix(settings.name)
        self.is_on = rules != NO_RULES or has_patches or settings.dataset
        self._most_links = rules.links_of_entry + (has_patches or settings.dataset)
        self._sources: list[LinkSource] = []
        if rules.urls:
            self._sources.append(url_links(rules.urls, prefix))
        if rules.described or rules.variants:
            self._sources.append(partner_links_of(rules, name, prefix, catalog))
        if rules.mementos:
            self._sources.append(change_list_links(partial(memento_links, rules.mementos, name, catalog)))
        if has_patches:
            self._sources.append(change_list_links(partial(patch_links, site, name, catalog)))
        if settings.dataset:
            self._sources.append(change_list_links(partial(dataset_patch_links, site, name, catalog)))
            self._sources.append(origin_links(name, catalog))

    def to(self, rows: Iterable[Row], place: EntryPlace, octets: int = 0) -> Iterator[Row]:
        """The rows of a document, with their links; those that a row has itself come first, and none comes twice.

        A deletion has none. `octets` is the weight of all rows of the document: where that is more than is allowed by
        the rules, because it was filled before they came, each row has fewer links (RS-LIM-01).
        """
        if not self.is_on:
            yield from rows
            return
        share = min(self._most_links, ROOM / max(octets, 1) - 1)
        remaining = iter(rows)
        while batch := list(islice(remaining, ROWS_AT_ONCE)):
            yield from self._linked(batch, place, share)

    def _linked(self, rows: list[Row], place: EntryPlace, share: float) -> Iterator[Row]:
        living = [row for row in rows if not is_deletion(row)]
        columns = [source(living, place) for source in self._sources]
        added = iter(zip(*columns, strict=True) if columns else ((),) * len(living))
        for row in rows:
            yield row if is_deletion(row) else _with(row, next(added), share)


def is_deletion(row: Resource | Change) -> bool:
    """Whether the row says that a resource is no longer there."""
    return isinstance(row, Change) and row.change is ChangeKind.DELETED


def _with(row: Row, added: Sequence[Links], share: float) -> Row:
    """The row with its links, which take `share` times its weight at most."""
    if not any(added):
        return row
    own: Links = row.metadata.links
    known = {(link.rel, link.href) for link in own}
    fresh: list[Link] = []
    room = int(share * weight(row.uri, row.metadata))
    for link in (link for links in added for link in links):
        if (link.rel, link.href) not in known and (octets := link_octets(link)) <= room:
            room -= octets
            known.add((link.rel, link.href))
            fresh.append(link)
    if not fresh:
        return row
    return msgspec.structs.replace(row, metadata=msgspec.structs.replace(row.metadata, links=(*own, *fresh)))
