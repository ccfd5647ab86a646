"""What packages lack because files changed while they were packed, the changes of the next run tell."""

from __future__ import annotations

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
from headwater.spec.records import ChangeKind
from tests.publish.dump_reader import ReadPackage, read_named
from tests.source.replay import Tree

BASE = "http://example.org"
PAGES, FILES = 6, 10


@pytest.mark.parametrize("is_first", [True, False])
def test_the_next_run_tells_of_files_that_changed_while_they_were_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_first: bool
) -> None:
    """AMB-90: whoever has read such a dump comes to the truth by the changes since its `at`."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(PAGES * FILES):
        (folder / f"{number:03}").write_bytes(b"old %d" % number)
    numbers = count()
    read_page, pack_resources = SqliteCatalog.page, Publisher.pack_resources
    is_packing = False

    def packing(publisher: Publisher, name: str) -> PackResult:
        nonlocal is_packing
        is_packing = True
        try:
            return pack_resources(publisher, name)
        finally:
            is_packing = False

    def busy(catalog: SqliteCatalog, name: str, number: int) -> Iterable[Resource]:
        """Of each page two files change after it was read to be packed, and one goes."""
        rows = list(read_page(catalog, name, number))
        for one in (0, 1) if is_packing else ():
            (folder / f"{number * FILES + one:03}").write_bytes(b"new %d" % next(numbers))
        if is_packing:
            (folder / f"{number * FILES + 2:03}").unlink(missing_ok=True)
        return rows

    one = SetConfig(files=str(folder), dump=True, dump_share=0.01)
    config = SourceConfig(state=str(tmp_path / "state"), base_url=BASE, sets=(one,), page_entries=FILES)
    if not is_first:
        with Source(config) as source:
            source.run_once()
        for number in range(PAGES):
            (folder / f"{number * FILES + 5:03}").write_bytes(b"other %d" % number)
    tree = Tree(tmp_path / "state" / "documents", BASE)
    with monkeypatch.context() as patched:
        patched.setattr(SqliteCatalog, "page", busy)
        patched.setattr(Publisher, "pack_resources", packing)
        with Source(config) as source:
            source.run_once()
    assert next(numbers) == 2 * PAGES, "each page is packed once"
    dump = _Dump(tree)
    assert dump.with_changes() != tree.truth(folder), "the packages lack what has changed"
    with Source(config) as source:
        source.run_once()
    assert dump.with_changes() == _Dump(tree).with_changes() == tree.replayed() == tree.truth(folder)


class _Dump:
    """The Resource Dump as it is now in a tree."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        head, entries = read_named(self._fetch, f"{BASE}/files/resourcedump.xml")
        assert head.at is not None
        above, self._at = f"{BASE}/files/capabilitylist.xml", head.at
        packages = (ReadPackage(self._fetch, one, Kind.RESOURCE_DUMP_MANIFEST, above) for one in entries)
        self._packed = {one.loc: one.hash for package in packages for one in package.entries}

    def _fetch(self, url: str) -> bytes | None:
        path = self._tree.root / url.removeprefix(BASE + "/")
        return path.read_bytes() if os.path.exists(path) else None

    def with_changes(self) -> dict[str, str | None]:
        """What a destination has that reads it, and then the changes since its `at`."""
        state = dict(self._packed)
        for change in self._tree.changes():
            assert change.datetime is not None
            if change.datetime > self._at:
                state[change.loc] = change.hash
                if change.change is ChangeKind.DELETED:
                    del state[change.loc]
        return state
