"""Where links that are added at rendering come from: a source for each kind of rule, which looks at many rows at once.

To add a kind of link takes a record in `publish/links/rules.py`, with its allowance, and a source here. Patches follow
from no rule but are made (`publish/patches.py`); theirs is in `publish/links/allowance.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import Protocol
from urllib.parse import urlsplit

from headwater.catalog.interface import Catalog, Change, Resource
from headwater.catalog.state import StateRow
from headwater.datasets.rows import PATCH_TYPE, patches_at, read_origin
from headwater.files.patterns import Selection
from headwater.publish.links.partners import DescribedRule, Variant, partner_links, partners, variants_of
from headwater.publish.links.rules import LinkRules, UrlRule
from headwater.publish.patches import patches_of
from headwater.publish.site import Site, dataset_patch_name
from headwater.spec.kinds import PATCH
from headwater.spec.records import Link
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
