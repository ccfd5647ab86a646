"""The link of each change of an RDF dataset to its patch: the only link of the entry (TIM-A1, TIM-A2)."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.catalog.interface import Catalog, Change, Resource
from headwater.datasets.rows import PATCH_TYPE, patches_at
from headwater.publish.datasets.names import dataset_patch_name
from headwater.publish.links.link_sources import EntryPlace, Links
from headwater.publish.site import Site
from headwater.spec.namespaces import PATCH
from headwater.spec.records import Link


class DatasetPatchLinks:
    """Gives changes in Change Lists the links to their patches; the first one leads from nothing (TIM-A3)."""

    def __init__(self, site: Site, name: str, catalog: Catalog) -> None:
        self._site = site
        self._name = name
        self._catalog = catalog

    def links(self, rows: Sequence[Resource] | Sequence[Change], place: EntryPlace) -> Sequence[Links]:
        """Hash and length of a link are those of the patch (TIM-A15)."""
        if place is not EntryPlace.CHANGE_LIST:
            return [()] * len(rows)
        changes = [row for row in rows if isinstance(row, Change)]
        patches = patches_at(self._catalog, self._name, [one.seq for one in changes])
        return [
            self._of(one, patches[one.seq].sha256, patches[one.seq].octets) if one.seq in patches else ()
            for one in changes
        ]

    def _of(self, change: Change, sha256: str, octets: int) -> Links:
        return (
            Link(
                rel=PATCH,
                href=self._site.url(dataset_patch_name(self._name, change.seq, sha256)),
                hash=f"sha-256:{sha256}",
                length=octets,
                modified=change.at,
                type=PATCH_TYPE,
            ),
        )
