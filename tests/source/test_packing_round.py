"""A run of `headwater publish` names no package that lacks what no change tells, however busy the folder is."""

from __future__ import annotations

import datetime as dt
import os
from itertools import count
from pathlib import Path

import pytest

from headwater.publish.rendering.dump_packer import PackResult
from headwater.publish.resource_dumps import packer
from headwater.publish.resource_dumps.packing import PackedPage, pack_page
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.dumps.packing_round import MORE_PAGES, MOST_SCANS, pack_round
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

    def busy(packing: object, plan: object, page: object) -> PackedPage:
        """Each page loses the octets of two files while it is packed."""
        for one in (0, 1):
            at = page.number * FILES + one  # type: ignore[attr-defined]
            (folder / f"{at:03}").write_bytes(b"new %d" % next(numbers))
        return pack_page(packing, plan, page)  # type: ignore[arg-type]

    one = SetConfig(files=str(folder), dump=True, dump_share=0.01)
    config = SourceConfig(state=str(tmp_path / "state"), base_url=BASE, sets=(one,), page_entries=FILES)
    if not is_first:
        with Source(config) as source:
            source.run_once()
        for number in range(PAGES):
            (folder / f"{number * FILES + 5:03}").write_bytes(b"other %d" % number)
    monkeypatch.setattr(packer, "pack_page", busy)
    with Source(config) as source:
        source.run_once()
    tree = Tree(tmp_path / "state" / "documents", BASE)
    assert _by_dump(tree) == tree.replayed() == tree.truth(folder), "the dump and the changes since (AMB-90)"
    assert next(numbers) <= 2 * (PAGES + MORE_PAGES), "the run ends"


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


def test_a_page_that_waits_in_vain_is_not_scanned_for_ever() -> None:
    waiting = PackResult(is_done=False, awaits_scan=True)
    left = [waiting] * 7 + [PackResult(is_done=True), waiting, PackResult(is_done=True), PackResult(is_done=False)]
    scans: list[int] = []
    pack_round(lambda *, at_once: left.pop(0), lambda: scans.append(len(left)), lambda: 2)
    assert not left
    assert len(scans) == MOST_SCANS + 1, "the next page has scans of its own"


def test_a_folder_that_never_rests_does_not_hold_the_run() -> None:
    packed = 0

    def pack(*, at_once: bool) -> PackResult:
        nonlocal packed
        packed += 1
        return PackResult(is_done=True, is_offered=packed > 10)

    pack_round(pack, lambda: None, lambda: 4)
    assert packed == 11, "a first dump is made whole"
