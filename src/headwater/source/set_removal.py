"""Takes a set out of a source that nobody publishes meanwhile: what names it, its files, its versions, its records.

The records in the catalog go last. So the work may be killed at any moment: the set is still known then, and the next
removal does what is left. From the first step on the set counts as never published, so that nothing names it any more.
"""

import os
import shutil
from contextlib import closing
from pathlib import Path

from headwater.catalog.interface import Catalog
from headwater.datasets.dataset_folder import DatasetFolder
from headwater.publish.change_dump import needed_versions
from headwater.publish.site_documents import SiteDocuments
from headwater.publish.store_writer import changes_between
from headwater.source.configured_source import OAI, VERSIONS, utc_now
from headwater.spec.records import sha256_of
from headwater.storage.folder_store import write_faults
from headwater.versions.history import History
from headwater.versions.retention import GRACE, DigestSet, VersionRetention, collect, needed_digests
from headwater.versions.store import VersionStore


def set_size(catalog: Catalog, name: str, state: Path, documents: Path) -> dict[str, str | int]:
    """What is there of a set, by names that JSON has. Raises UnknownSet and the catalog's StoreFaults."""
    held = catalog.state(name)
    walks = [os.walk(one) for one in _folders(name, state, documents)]
    octets = [os.lstat(os.path.join(above, one)).st_size for walk in walks for above, _, some in walk for one in some]
    counts = {"resources": held.count, "changes": held.last_seq, "files": len(octets), "octets": sum(octets)}
    return {"set": name, **counts}


def remove_set(catalog: Catalog, name: str, state: Path, documents: Path, others: SiteDocuments | None) -> int:
    """Remove the set; how many versions went. `others` names the other sets; None: nothing is named there.

    Raises UnknownSet, and the faults of catalog, documents and versions.
    """
    catalog.note(name, b"")
    if others is not None:
        others.publish_site()
    for folder in filter(Path.is_dir, _folders(name, state, documents)):
        with write_faults(folder):
            shutil.rmtree(folder)
    kept, digests = state / VERSIONS, list[str]()
    if kept.is_dir():
        changes = changes_between(catalog, name, 0, catalog.state(name).last_seq)
        digests += (*needed_digests(History(catalog, name)), *(sha256_of(one.metadata.hash) for one in changes))
    catalog.drop(name)
    if not digests:
        return 0
    with closing(VersionStore(kept)) as store:
        asked_at = utc_now() + GRACE  # nobody is about to record a change that names one of them
        freed, needed = DigestSet(filter(None, digests)), needed_versions(catalog)
        return collect(store, VersionRetention(), needed, asked_at, freed=freed).removed


def _folders(name: str, state: Path, documents: Path) -> tuple[Path, ...]:
    return documents / name, DatasetFolder(state, name).path, state / OAI / name
