"""Adds links to rows of the catalog on their way into a document, as far as the document has room (RS-LIM-01).

Many rows are looked at together. Patches follow from no rule but are made (`publish/patches.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import islice
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from headwater.catalog.interface import Catalog, Change, Resource
from headwater.catalog.page_filling import link_octets, weight
from headwater.datasets.rows import patches_at, read_origin
from headwater.files.patterns import Selection
from headwater.publish.link_rules import MOST_CONTENTS, NO_RULES, ROOM, partner_links, partners, variants_of
from headwater.publish.patches import patch_link, patches_of
from headwater.publish.site import SetSettings, Site, dataset_patch_name
from headwater.rdf import N_QUADS_DIFF
from headwater.spec.records import ChangeKind, Link
from headwater.spec.times import to_microseconds
from headwater.versions.history import row_key, state_of, time_text

Links = tuple[Link, ...]
_URIS = 1_000
_LONGEST_TYPE = 100
ROWS_AT_ONCE = 1_000  # so many rows are looked at together: sources may have to ask the catalog for others


class EntryPlace(Enum):
    """The kind of document that an entry stands in; manifests of packages made on demand are RESOURCE_DUMP_MANIFEST."""

    RESOURCE_LIST = auto()
    RESOURCE_DUMP_MANIFEST = auto()
    CHANGE_LIST = auto()
    CHANGE_DUMP_MANIFEST = auto()


Row = TypeVar("Row", Resource, Change)


def path_of(uri: str) -> str:
    """The path of a resource below the set's folder; of one whose URI is absolute, its whole path."""
    return urlsplit(uri).path.lstrip("/") if "://" in uri else uri


class AddedLinks:
    """What a set's settings and its patches add to its entries; without them all stays as it is, at no cost."""

    def __init__(self, site: Site, settings: SetSettings, catalog: Catalog, *, has_patches: bool = False) -> None:
        self._rules = rules = settings.links
        self.is_on = rules != NO_RULES or has_patches or settings.dataset
        self._most_links = rules.links_of_entry + (has_patches or settings.dataset)
        self._selected = [(rule, Selection(rule.match)) for rule in rules.urls]
        self._variants = variants_of(rules.variants)
        self._site, self._settings, self._catalog, self._has_patches = site, settings, catalog, has_patches
        self._prefix = site.resource_prefix(settings.name)

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
            living = [row for row in batch if not is_deletion(row)]
            columns = [self._resource_links(living, place)]
            changes = [row for row in living if isinstance(row, Change)]
            if place is EntryPlace.CHANGE_LIST:  # packages have what these lead to
                columns += [[found.get(one.seq, ()) for one in changes] for found in self._change_links(changes)]
            added = iter(zip(*columns, strict=True))
            for row in batch:
                yield row if is_deletion(row) else _with(row, [one for some in next(added) for one in some], share)

    def _resource_links(self, rows: Sequence[Resource | Change], place: EntryPlace) -> list[Links]:
        """The links by rules about resources: by patterns of URLs, and to those with fitting names that are there.

        In a Resource List a republished dataset has `via` (DST-S9); a change has one link (TIM-A2).
        """
        described, name, catalog = self._rules.described, self._settings.name, self._catalog
        is_list = self._settings.dataset and place is EntryPlace.RESOURCE_LIST
        origin = read_origin(catalog, name) if is_list else None
        there: dict[str, Resource] = {}
        if described or self._variants:
            uris = list(dict.fromkeys(uri for row in rows for uri in partners(described, self._variants, row.uri)))
            for start in range(0, len(uris), _URIS):
                there |= catalog.get(name, uris[start : start + _URIS])
        found: list[Links] = []
        for row in rows:
            path, whole = path_of(row.uri), row.uri if "://" in row.uri else self._prefix + row.uri
            links = [rule.link(path, whole) for rule, selection in self._selected if selection.takes(path.encode())]
            links += partner_links(described, self._variants, row, there, self._prefix, self._fitting)
            found.append((*links, *(() if origin is None else (origin,))))
        return found

    def _fitting(self, start: str, fits: Callable[[str], bool]) -> list[str]:
        """The first of the set's URIs that begin so and fit, MOST_CONTENTS of them or a few more."""
        found, after, limit = list[str](), start, 2 * MOST_CONTENTS
        while len(found) < MOST_CONTENTS and (rows := self._catalog.memos(self._settings.name, after, limit)):
            below = [uri for uri, _memo in rows if uri.startswith(start)]
            found += filter(fits, below)
            if len(below) < len(rows):
                break
            after, limit = rows[-1][0], min(8 * limit, _URIS)
        return found

    def _change_links(self, changes: Sequence[Change]) -> Iterator[dict[int, Links]]:
        """The links of changes, by their numbers: to the states that they have left (RS-REL-08) where the octets of
        these are kept, and to patches (RS-REL-04); the first of a dataset leads from nothing (TIM-A3)."""
        site, name, catalog, base = self._site, self._settings.name, self._catalog, self._rules.mementos
        if base:
            keys = {one.seq: row_key(one.uri, to_microseconds(one.at)) for one in changes if "://" not in one.uri}
            rows = catalog.rows(name, list(keys.values()))
            mementos: dict[int, Links] = {}
            for one in changes:
                row = rows.get(keys[one.seq]) if one.seq in keys else None
                if row is None or not (state := state_of(row)).is_kept:
                    continue
                kind = one.metadata.type
                memento = Link(
                    rel="memento",
                    href=f"{base}/{time_text(state.at_us)}/{one.uri}",
                    modified=state.at,
                    hash=f"sha-256:{state.digest}",
                    length=state.length,
                    type=kind if kind is not None and len(kind) <= _LONGEST_TYPE else None,
                )
                mementos[one.seq] = (memento,)
            yield mementos
        if self._has_patches:
            made = patches_of(catalog, name, changes)
            yield {one.seq: (made[one.seq].link(site, name, one),) for one in changes if one.seq in made}
        if self._settings.dataset:
            kept = patches_at(catalog, name, [one.seq for one in changes])
            links: dict[int, Links] = {}
            for one in changes:
                if (patch := kept.get(one.seq)) is not None:
                    href = site.url(dataset_patch_name(name, one.seq, patch.sha256))
                    links[one.seq] = (patch_link(href, patch.sha256, patch.octets, one, N_QUADS_DIFF),)
            yield links


def is_deletion(row: Resource | Change) -> bool:
    """Whether the row says that a resource is no longer there."""
    return isinstance(row, Change) and row.change is ChangeKind.DELETED


def _with(row: Row, added: Sequence[Link], share: float) -> Row:
    """The row with its links, which take `share` times its weight at most."""
    if not added:
        return row
    own: Links = row.metadata.links
    known = {(link.rel, link.href) for link in own}
    fresh: list[Link] = []
    room = int(share * weight(row.uri, row.metadata))
    for link in added:
        if (link.rel, link.href) not in known and (octets := link_octets(link)) <= room:
            room -= octets
            known.add((link.rel, link.href))
            fresh.append(link)
    if not fresh:
        return row
    return msgspec.structs.replace(row, metadata=msgspec.structs.replace(row.metadata, links=(*own, *fresh)))
