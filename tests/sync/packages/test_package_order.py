"""Members in any order: the manifest says of which resource each is, and who places it makes no difference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.errors import Exit
from tests.support.copying import go
from tests.support.fake_dumps import Dumps, zipped
from tests.sync.packages.test_package_transfer import COUNT, dumps, fetched, rows, tree, ways

__all__ = ["dumps"]

Package = Callable[[Dumps, list[str]], bytes]


@pytest.fixture(params=["run", "process"], autouse=True)
def placed_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who places: the run itself, or the process beside it."""
    if request.param == "process":
        monkeypatch.setattr("headwater.sync.packages.package_content.PROCESS_FROM", 1)
        monkeypatch.setattr("headwater.processes.pool.processors", lambda: 2)


def members(dumps: Dumps, names: list[str], order: list[str]) -> bytes:
    """A package of `order` whose manifest has `names`."""
    files = [(dumps.path(name), dumps.site.files[name]) for name in order]
    return zipped([("manifest.xml", dumps.manifest(names)), *files])


def with_another(dumps: Dumps, names: list[str]) -> bytes:
    """With a member in the middle that no entry names."""
    files = [(dumps.path(name), dumps.site.files[name]) for name in names]
    return zipped([("manifest.xml", dumps.manifest(names)), *files[:9], ("more", b"?"), *files[9:]])


PACKAGES: dict[str, tuple[Package, int]] = {
    "in order": (lambda dumps, names: dumps.package(names), COUNT + 1),
    "the last ones alone": (lambda dumps, names: dumps.package(names[20:]), COUNT + 1 - 20),
    "a gap": (lambda dumps, names: dumps.package([*names[:5], *names[9:]]), COUNT + 1 - 4),
    "turned": (lambda dumps, names: dumps.package(names[::-1]), COUNT + 1),
    "two exchanged": (lambda dumps, names: members(dumps, names, [*names[:7], names[8], names[7], *names[9:]]), 31),
    "one missing": (lambda dumps, names: members(dumps, names, [*names[:7], *names[8:]]), COUNT),
    "the last missing": (lambda dumps, names: members(dumps, names, names[:20]), 20),
    "another one": (with_another, COUNT + 1),
    "the same twice": (lambda dumps, names: members(dumps, [*names, names[3]], names), COUNT + 1),
}


@pytest.mark.parametrize(("package", "count"), PACKAGES.values(), ids=PACKAGES)
def test_whatever_the_order_the_copy_is_the_same(
    dumps: Dumps, dest: Path, tmp_path: Path, package: Package, count: int
) -> None:
    """DST-P2, DST-P4: what a package brings is placed, what it does not bring is asked for, nothing stays noted."""
    octets = package(dumps, sorted(dumps.site.files))
    dumps.publish_packages(octets)
    dumps.publish("resourcedump")
    ran = go(dumps.site.source.base, dest, prefer="dumps")
    assert ran.status == Exit.DONE, ran.notices
    assert tree(dest) == dumps.site.files
    assert ways(ran) == {"Resource Dump": count}
    assert len(fetched(dumps)) == COUNT + 1 - count
    plain = tmp_path / "plain"
    assert go(dumps.site.source.base, plain, prefer="lists").status == Exit.DONE
    assert rows(dest) == rows(plain)


BROKEN: dict[str, tuple[Callable[[bytes], bytes], str | None]] = {
    "it ends in the middle": (lambda text: text[: len(text) * 2 // 3], "AMB-10"),
    "it is no XML from the middle on": (lambda text: text[: len(text) // 2] + b"<<" + text[len(text) // 2 :], "AMB-10"),
    "it goes on after its end": (lambda text: text + b"<more/>", None),  # AMB-92
}


@pytest.mark.parametrize(("broken", "rule"), BROKEN.values(), ids=BROKEN)
def test_dst_p2_a_manifest_that_breaks_after_its_first_entries(
    dumps: Dumps, dest: Path, broken: Callable[[bytes], bytes], rule: str | None
) -> None:
    """Nothing of the package is used, all is asked for, and the fault is told."""
    names = list(dumps.site.files)
    dumps.publish_packages(dumps.package(manifest=broken(dumps.manifest(names))))
    dumps.publish("resourcedump")
    ran = go(dumps.site.source.base, dest, prefer="dumps")
    assert ran.status == Exit.DONE
    assert tree(dest) == dumps.site.files
    assert rule is None or rule in ran.rules(), ran.notices
    assert rows(dest)
    assert not list((dest / ".headwater" / "tmp").iterdir())


@pytest.mark.parametrize("at", [1, 12, COUNT])
def test_dst_p1_resources_without_a_hash_come_from_a_package_that_was_verified(
    dumps: Dumps, dest: Path, at: int
) -> None:
    """DST-P5: they come from a package that was verified as a whole, whenever the manifest names them."""
    names = list(dumps.site.files)
    resource = dumps.site.resource
    dumps.site.resource = lambda name, **more: resource(  # type: ignore[method-assign]
        name, **(more | ({"hash": None} if name == names[at] else {}))
    )
    dumps.site.publish_list()
    dumps.publish_packages(dumps.package())
    dumps.publish("resourcedump")
    ran = go(dumps.site.source.base, dest, prefer="dumps")
    assert (ran.status, ways(ran)) == (Exit.DONE, {"Resource Dump": COUNT + 1}), ran.notices
    assert tree(dest) == dumps.site.files
    assert fetched(dumps) == []


@pytest.mark.parametrize("where", [0, 1, 2])
def test_what_is_wrong_with_a_package_is_told_of_that_package(dumps: Dumps, dest: Path, where: int) -> None:
    """DST-P5: the members before it are placed, and those of the packages behind it."""
    names = sorted(dumps.site.files, key=lambda name: name == "large.bin")
    packages = [dumps.package(names[start : start + 10], deflate=False) for start in (0, 10, 20)]
    wrong = names[where * 10 + 9]
    body = dumps.site.files[wrong]
    packages[where] = packages[where].replace(body, body[::-1])
    dumps.publish_packages(*packages)
    dumps.publish("resourcedump")
    ran = go(dumps.site.source.base, dest, prefer="dumps")
    assert ran.status == Exit.DONE, ran.notices
    assert tree(dest) == dumps.site.files
    told = [notice.where for notice in ran.notices if str(notice.where).endswith(".zip")]
    assert told == [f"{dumps.site.root}/p{where}.zip"]
    (way,) = ran.one.ways
    assert (way.resources, way.packages) == (COUNT - 1, 3)
    assert way.fault is not None
    assert set(fetched(dumps)) == {"/set/resources/large.bin", f"/set/resources/{wrong}"}
    assert rows(dest)
