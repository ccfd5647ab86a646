"""The links of an RDF dataset: of each change to its patch alone (TIM-A1, TIM-A2), of the dataset to its origin."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.catalog.interface import Catalog, Change, Resource
from headwater.datasets.rows import PATCH_TYPE, patches_at, read_origin
from headwater.publish.datasets.names import dataset_patch_name
from headwater.publish.links.link_sources import EntryPlace
from headwater.publish.site import Site
from headwater.spec.namespaces import PATCH
from headwater.spec.records import Link


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
