"""`headwater publish CONFIG`, killed as a kernel does at one step of publishing a dataset: for tests, as a process."""

from __future__ import annotations

import sys
from typing import Any

from headwater import cli
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.datasets.dataset_folder import DatasetFolder
from headwater.publish.change_lists import ChangeLists
from headwater.publish.publisher import Publisher
from headwater.publish.resource_lists import ResourceLists
from headwater.publish.store_writer import StoreWriter
from headwater.source import published_dataset as intake
from headwater.source.published_dataset import PublishedDataset
from tests.source.killed_publication import killing

STEPS = {
    "the set was opened": (SqliteCatalog, "open", lambda *_: True, False),
    "the dataset was read": (PublishedDataset, "_read", lambda *_: True, False),
    "the patch was made": (PublishedDataset, "_write", lambda *_: True, False),
    "the patch was proved": (PublishedDataset, "_prove", lambda *_: True, False),
    "the patch was placed": (DatasetFolder, "place", lambda _self, _made, to: to.suffix == ".nqud", False),
    "the dataset was placed": (DatasetFolder, "place", lambda _self, _made, to: to.suffix == ".nq", False),
    "the change was recorded": (PublishedDataset, "_record", lambda *_: True, False),
    "the state before was removed": (PublishedDataset, "_take", lambda *_: True, False),
    "the patch is about to be stored": (StoreWriter, "blocks", lambda _self, name, *_: "/patch/" in name, True),
    "the patch was stored": (StoreWriter, "blocks", lambda _self, name, *_: "/patch/" in name, False),
    "the dataset was stored": (StoreWriter, "blocks", lambda _self, name, *_: name.endswith("dataset.nq"), False),
    "the description was stored": (StoreWriter, "blocks", lambda _self, name, *_: name.endswith(".ttl"), False),
    "the Change List was written": (ChangeLists, "_write", lambda *_: True, False),
    "the Resource List was written": (ResourceLists, "publish", lambda *_: True, False),
    "the publication is about to be noted": (Publisher, "_note", lambda *_: True, True),
    "the publication was noted": (Publisher, "_note", lambda *_: True, False),
}
"""Class, method, when, and whether it is before the method."""


def set_up(step: str) -> None:
    """Have the process end at this step."""
    home, name, when, is_before = STEPS[step]
    method: Any = killing(getattr(home, name), when, is_before=is_before)
    setattr(home, name, method)


if __name__ == "__main__":
    intake.SETTLED_SECONDS = -1.0  # type: ignore[misc]
    if sys.argv[1] in STEPS:
        set_up(sys.argv[1])
    sys.exit(cli.run(sys.argv[2:]))
