"""The link of each change of an RDF dataset to its patch: the only link of the entry (TIM-A1, TIM-A2)."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.catalog.interface import Catalog, Change
from headwater.datasets.rows import PATCH_TYPE, patches_at
from headwater.publish.datasets.names import dataset_patch_name
from headwater.publish.site import Site
from headwater.spec.namespaces import PATCH
from headwater.spec.records import Link


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
