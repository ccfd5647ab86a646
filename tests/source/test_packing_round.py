"""A run of `headwater publish` names no package that lacks what no change tells, however busy the folder is."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable
from itertools import count
from pathlib import Path

import pytest

from headwater.catalog.interface import Resource
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.publish.package_builder import PackResult
from headwater.publish.publisher import Publisher
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.source import Source
from headwater.spec.kinds import Kind
from headwater.spec.records import ChangeKind, Entry
from tests.publish.dump_reader import ReadPackage, read_named
from tests.source.replay import Tree

BASE = "http://example.org"
PAGES, FILES = 6, 10


@pytest.mark.parametrize("is_first", [True, False])
def test_files_that_change_while_any_page_is_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_first: bool
) -> None:
    """Scans were counted over all pages: from the fourth on, pages were named without what had changed meanwhile."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(PAGES * FILES):
        (folder / f"{number:03}").write_bytes(b"old %d" % number)
    numbers = count()

    read_page, pack_resources = SqliteCatalog.page, Publisher.pack_resources
    is_packing = False

    def packing(publisher: Publisher, name: str, *, at_once: bool = False) -> PackResult:
        nonlocal is_packing
        is_packing = True
        try:
            return pack_resources(publisher, name, at_once=at_once)
        finally:
            is_packing = False

    def busy(catalog: SqliteCatalog, name: str, number: int) -> Iterable[Resource]:
        """Each page loses the octets of two files after it was read to be packed."""
        rows = list(read_page(catalog, name, number))
        for one in (0, 1) if is_packing else ():
            at = number * FILES + one
            (folder / f"{at:03}").write_bytes(b"new %d" % next(numbers))
        return rows

    one = SetConfig(files=str(folder), dump=True, dump_share=0.01)
    config = SourceConfig(state=str(tmp_path / "state"), base_url=BASE, sets=(one,), page_entries=FILES)
    if not is_first:
        with Source(config) as source:
            source.run_once()
        for number in range(PAGES):
            (folder / f"{number * FILES + 5:03}").write_bytes(b"other %d" % number)
    monkeypatch.setattr(SqliteCatalog, "page", busy)
    monkeypatch.setattr(Publisher, "pack_resources", packing)
    with Source(config) as source:
        source.run_once()
    tree = Tree(tmp_path / "state" / "documents", BASE)
    assert _by_dump(tree) == tree.replayed() == tree.truth(folder), "the dump and the changes since (AMB-90)"
    assert next(numbers) <= 4 * (PAGES + 2) * 2, "the run ends"


def _by_dump(tree: Tree) -> dict[str, str | None]:
    """What a destination has that reads the Resource Dump, and then the changes since its `at`."""

    def fetch(url: str) -> bytes | None:
        path = tree.root / url.removeprefix(BASE + "/")
        return path.read_bytes() if os.path.exists(path) else None

    head, entries = read_named(fetch, f"{BASE}/files/resourcedump.xml")
    state: dict[str, str | None] = {}
    for entry in entries:
        above = f"{BASE}/files/capabilitylist.xml"
        for one in ReadPackage(fetch, entry, Kind.RESOURCE_DUMP_MANIFEST, above).entries:
            state[one.loc] = one.hash
    assert head.at is not None
    for change in tree.changes():
        if _since(change) > head.at:
            state[change.loc] = change.hash
            if change.change is ChangeKind.DELETED:
                del state[change.loc]
    return state


def _since(change: Entry) -> dt.datetime:
    assert change.datetime is not None
    return change.datetime
