"""A source of ours copied by lists, by dumps, on demand and in any mixture: the same copy, the same state, in sync."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.copying import DONE, check, go, tree
from tests.support.serving import face
from tests.support.waiting import settle_second, until
from tests.sync.packages.test_package_transfer import rows, ways

pytestmark = pytest.mark.long

NAMES = [f"d{number % 3}/f{number}.txt" for number in range(40)]
ODD = ["empty", "a b.txt", "é/ü.txt", "100%.txt", "twice/one", "twice/two", "deep/er/est/file", "large.bin"]


def body(name: str, version: int = 0) -> bytes:
    if name == "large.bin":
        return os.urandom(1) * 1_500_000
    return {"empty": b"", "twice/one": b"the same", "twice/two": b"the same"}.get(name, f"{name} {version}\n".encode())


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    for name in [*NAMES, *ODD]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body(name))
    return folder


OFFERS: dict[str, dict[str, Any]] = {
    "lists": {"on_demand": False},
    "dumps": {"dump": True, "change_dump": True, "on_demand": False},
    "on demand": {},
    "all": {"dump": True, "change_dump": True},
}


@pytest.mark.parametrize("offered", OFFERS.values(), ids=OFFERS)
def test_every_way_gives_the_same(files: Path, tmp_path: Path, offered: dict[str, Any]) -> None:
    with face(files, tmp_path / "state", **offered) as running:
        copies = {prefer: tmp_path / prefer for prefer in ("lists", "dumps", "auto")}

        def all_are_the_same() -> dict[str, dict[str, int]]:
            taken: dict[str, dict[str, int]] = {}
            for prefer, dest in copies.items():
                ran = go(running.url, dest, prefer=prefer)
                assert ran.status == DONE, ran
                assert not ran.one.failed
                taken[prefer] = ways(ran)
                assert tree(dest) == tree(files)
                assert rows(dest) == rows(copies["lists"])
                assert check(running.url, dest).verdict == "in sync"
            return taken

        first = all_are_the_same()
        for name in (*NAMES[:15], "é/ü.txt", "new/file"):
            (files / name).parent.mkdir(exist_ok=True)
            (files / name).write_bytes(body(name, 1))
        (files / "twice/one").unlink()
        running.source.run_once()
        second = all_are_the_same()
    assert first["lists"] == second["lists"] == {}
    if offered.get("dump"):
        assert first["dumps"]["Resource Dump"] == len(NAMES) + len(ODD)
        assert second["dumps"]["Change Dump"] == 17
    elif offered.get("on_demand", True):
        assert first["dumps"] == {"on demand": len(NAMES) + len(ODD) - 1}
        assert second["dumps"] == {"on demand": 17}
    else:
        assert first == second == {"lists": {}, "dumps": {}, "auto": {}}


def test_what_is_newer_than_listed_is_not_fetched_by_a_package_again(files: Path, tmp_path: Path) -> None:
    """Changed since the Resource List: a request has brought it before the Change List tells of it (DST-5.3)."""
    dest = tmp_path / "copy"
    changed = NAMES[:30]
    with face(files, tmp_path / "state", rescan_seconds=0.2) as running:
        settle_second()  # `Last-Modified` has whole seconds
        for name in changed:
            (files / name).write_bytes(body(name, 1))
        running.source.start()
        try:
            until(lambda: running.get("/files/changelist.xml").body.count(b"<loc>") == len(changed))
            ran = go(running.url, dest, prefer="dumps")
        finally:
            running.source.stop()
        assert (ran.status, tree(dest)) == (DONE, tree(files))
        assert ways(ran) == {"on demand": len(NAMES) + len(ODD) - len(changed) - 1}  # large.bin comes by itself
        assert check(running.url, dest).verdict == "in sync"


def test_a_copy_begun_one_way_is_gone_on_with_another(files: Path, tmp_path: Path) -> None:
    dest = tmp_path / "copy"
    with face(files, tmp_path / "state", dump=True) as running:
        for prefer, include in (("lists", ("d0/*",)), ("auto", ("d0/*", "d1/*")), ("dumps", ())):
            assert go(running.url, dest, prefer=prefer, include=include).status == DONE
        assert tree(dest) == tree(files)
        (dest / "d0" / "f0.txt").write_bytes(b"damaged")
        (dest / "large.bin").unlink()
        ran = go(running.url, dest, prefer="dumps", repair=True)
        assert (ran.status, tree(dest)) == (DONE, tree(files))
        assert check(running.url, dest).verdict == "in sync"
