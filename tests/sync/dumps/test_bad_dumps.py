"""Dumps that are all there is, and are damaged, hostile or in motion: nothing is lost, and nothing is claimed."""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.copying import DONE, FAILED, SOURCE, UNDETERMINED, check, go, tree
from tests.support.fake_dumps import Dumps, zipped
from tests.support.fake_source import Handler, Reply, at, document, truncated, url
from tests.sync.dumps.test_dumps_alone import hide_resources

Spoil = Callable[[Dumps, bytes], Reply]


def change_one(octets: bytes) -> bytes:
    """The same package with an octet other in its last member."""
    place = octets.index(b"body 5\n")
    return octets[:place] + b"B" + octets[place + 1 :]


def manifest_of(dumps: Dumps, manifest: bytes) -> Reply:
    return Reply(dumps.package(list(dumps.site.files)[3:], manifest=manifest, deflate=False))


def without_manifest(dumps: Dumps) -> Reply:
    return Reply(zipped([(dumps.path(name), body) for name, body in dumps.site.files.items()]))


SPOILT: dict[str, Spoil] = {
    "missing": lambda _dumps, _octets: Reply(status=404),
    "of another hash": lambda _dumps, octets: Reply(change_one(octets)),
    "longer": lambda _dumps, octets: Reply(octets + b"more"),
    "cut": lambda _dumps, octets: truncated(octets, 40),
    "cut in the manifest": lambda _dumps, octets: Reply(octets[:60]),
    "a web page": lambda _dumps, _octets: Reply(b"<html><body>Please log in</body></html>"),
    "refused": lambda _dumps, _octets: Reply(status=403),
}
"""What is at the address of a package in place of what is listed."""

UNUSABLE: dict[str, Callable[[Dumps], Reply]] = {
    "no manifest": without_manifest,
    "of the wrong kind": lambda dumps: manifest_of(dumps, dumps.manifest([], "changedump-manifest")),
    "a list": lambda dumps: manifest_of(dumps, dumps.manifest([], "resourcelist")),
    "not XML": lambda dumps: manifest_of(dumps, b"no XML at all"),
    "ending in the middle": lambda dumps: manifest_of(dumps, dumps.manifest(dumps.site.files)[:-30]),
}
"""Packages that are what is listed, and cannot be used."""


class Pipe(BytesIO):
    """What a ZIP file is written to without going back in it."""

    def tell(self) -> int:
        raise OSError


def of_unknown_sizes(dumps: Dumps) -> bytes:
    """A package whose members tell where they end only in the central directory: it has to be read from a file."""
    buffer = Pipe()
    with zipfile.ZipFile(buffer, "w") as made:
        for name, octets in [("manifest.xml", dumps.manifest(dumps.site.files))] + [
            (dumps.path(name), body) for name, body in dumps.site.files.items()
        ]:
            made.writestr(zipfile.ZipInfo(name), octets)
    return buffer.getvalue()


def two_packages(dumps: Dumps) -> bytes:
    """A Resource Dump of two packages; the octets of the second."""
    names = list(dumps.site.files)
    second = dumps.package(names[3:], deflate=False)
    dumps.publish_packages(dumps.package(names[:3]), second)
    dumps.site.publish_capabilities("resourcedump")
    return second


def test_whether_a_package_that_needs_a_file_fits_is_judged_once(
    dumps: Dumps, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DST-P6: one that does not fit on the disk is not fetched, which is told."""
    octets = of_unknown_sizes(dumps)
    dumps.publish_packages(octets)
    dumps.site.publish_capabilities("resourcedump")
    with monkeypatch.context() as full:
        full.setattr("os.statvfs", lambda _folder: SimpleNamespace(f_blocks=1, f_bavail=len(octets) - 1, f_frsize=1))
        ran = go(dumps.site.source.base, dest)
    assert ran.status == SOURCE
    assert "no room on the disk" in str(ran.one.fault)
    with monkeypatch.context() as judged_otherwise:
        judged_otherwise.setattr("shutil.disk_usage", lambda _folder: SimpleNamespace(total=1, used=1, free=0))
        assert go(dumps.site.source.base, dest).status == DONE
    assert tree(dest) == dumps.site.files


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_package_that_is_not_there(dumps: Dumps, dest: Path, spoil: Spoil, *, held: bool) -> None:
    """DST-P1: what the package would tell is not known, so nothing is deleted for it, and no audit is in sync."""
    site = dumps.site
    second = two_packages(dumps)
    if held:
        assert go(site.source.base, dest).status == DONE
        site.put("d0/f0.txt", b"a new state\n")
        names = list(site.files)
        second = dumps.package(names[3:], deflate=False)
        dumps.publish_packages(dumps.package(names[:3]), second)
        dumps.publish_dump([dumps.serve_package("q0.zip", dumps.package(names[:3])), dumps.entry("q1.zip", second)])
    site.source.pages["/set/q1.zip" if held else "/set/p1.zip"] = spoil(dumps, second)
    ran = go(site.source.base, dest)
    assert ran.status == SOURCE, ran.notices
    assert tree(dest) == {name: body for name, body in site.files.items() if held or name in list(site.files)[:3]}
    assert check(site.source.base, dest).exit_status in (UNDETERMINED, 1)


@pytest.mark.parametrize("made", UNUSABLE.values(), ids=UNUSABLE)
def test_a_package_that_cannot_be_used(dumps: Dumps, dest: Path, made: Callable[[Dumps], Reply]) -> None:
    """RS-RDM-01, DST-P2, DST-P7: without its manifest nobody knows what a package says."""
    site = dumps.site
    two_packages(dumps)
    assert go(site.source.base, dest).status == DONE
    reply = made(dumps)
    site.source.pages["/set/p2.zip"] = reply
    first = dumps.served("p0.zip").body
    dumps.publish_dump([dumps.entry("p0.zip", first), dumps.entry("p2.zip", reply.body)])
    ran = go(site.source.base, dest)
    assert ran.status == SOURCE, ran.notices
    assert tree(dest) == site.files
    assert check(site.source.base, dest).exit_status == UNDETERMINED


@pytest.mark.parametrize("made", UNUSABLE.values(), ids=UNUSABLE)
def test_a_change_package_that_cannot_be_used(dumps: Dumps, dest: Path, made: Callable[[Dumps], Reply]) -> None:
    """RS-CDM-01, DST-P7: the position stays before it."""
    site = dumps.site
    dumps.publish_change_packages(0, 100)
    site.publish_capabilities("changedump")
    assert go(site.source.base, dest).status == DONE
    before = tree(dest)
    reply = Reply(dumps.package()) if made is UNUSABLE["of the wrong kind"] else made(dumps)
    dumps.publish_change_packages(0, 100, 200)
    entries = [dumps.entry("c0.zip", dumps.served("c0.zip").body, at=None, **{"from": at(0), "until": at(100)})]
    entries.append(dumps.entry("bad.zip", reply.body, at=None, **{"from": at(100), "until": at(200)}))
    site.source.pages["/set/bad.zip"] = reply
    dumps.publish_dump(entries, kind="changedump", at=None, **{"from": at(0)})
    ran = go(site.source.base, dest)
    assert ran.status == SOURCE, ran.notices
    assert tree(dest) == before
    assert ran.one.position == at(100)


@pytest.mark.parametrize("what", ["package", "copy of the manifest"])
def test_addresses_outside_the_scope(dumps: Dumps, dest: Path, what: str) -> None:
    """DST-S12: neither a package nor its manifest is requested from another host."""
    site = dumps.site
    octets = dumps.package()
    entry = dumps.serve_package("p0.zip", octets)
    if what == "package":
        entry = entry.replace(f"<loc>{site.root}", "<loc>http://192.0.2.1")
    else:
        link = dumps.serve_contents("p0.xml", octets).replace(site.root, "http://192.0.2.1")
        entry = dumps.entry("p0.zip", octets, links=link)
    dumps.publish_dump([entry])
    site.publish_capabilities("resourcedump")
    ran = go(site.source.base, dest)
    assert ran.status == (SOURCE if what == "package" else DONE), ran.notices
    assert tree(dest) == ({} if what == "package" else site.files)


def test_the_manifest_inside_counts(dumps: Dumps, dest: Path) -> None:
    """DST-P2: of the copy beside the package nothing is taken."""
    site = dumps.site
    octets = dumps.package()
    dumps.serve_package("p0.zip", octets)
    other = dumps.package(list(site.files)[:2])
    dumps.publish_dump([dumps.entry("p0.zip", octets, links=dumps.serve_contents("p0.xml", other))])
    site.publish_capabilities("resourcedump")
    ran = go(site.source.base, dest)
    assert ran.status == DONE, ran.notices
    assert tree(dest) == site.files


@pytest.mark.parametrize("status", [404, 500])
def test_no_copy_of_the_manifest_beside_the_package(dumps: Dumps, dest: Path, status: int) -> None:
    site = dumps.site
    octets = dumps.package()
    dumps.serve_package("p0.zip", octets)
    links = dumps.serve_contents("p0.xml", octets)
    site.source.pages["/set/p0.xml"] = Reply(status=status)
    dumps.publish_dump([dumps.entry("p0.zip", octets, links=links)])
    site.publish_capabilities("resourcedump")
    ran = go(site.source.base, dest)
    assert ran.status == DONE, ran.notices
    assert tree(dest) == site.files


def test_a_package_that_is_gone_while_its_manifest_is_there(dumps: Dumps, dest: Path) -> None:
    """DST-P2: the copy beside it is not believed: nothing is known of what the package would have brought."""
    site = dumps.site
    octets = dumps.package()
    dumps.publish_dump([dumps.entry("p0.zip", octets, links=dumps.serve_contents("p0.xml", octets))])
    site.publish_capabilities("resourcedump")
    ran = go(site.source.base, dest)
    assert ran.status == SOURCE
    assert tree(dest) == {}
    assert check(site.source.base, dest).exit_status == UNDETERMINED


@pytest.mark.parametrize("by_itself", [True, False])
@pytest.mark.parametrize("path", ["/../../escaped.txt", "/missing.txt", "C:\\f.txt", None])
def test_entries_without_a_member(dumps: Dumps, dest: Path, path: str | None, *, by_itself: bool) -> None:
    """DST-P3, DST-P4, RS-RDM-05: the resource by itself, else it has failed."""
    site = dumps.site
    names = list(site.files)
    entries = [site.resource(name, path=path if name == names[0] else "/" + dumps.path(name)) for name in names]
    manifest = document(entries, links=site.up(), capability="resourcedump-manifest", at=at(100))
    dumps.publish_packages(dumps.package(names[1:], manifest=manifest))
    site.publish_capabilities("resourcedump")
    if not by_itself:
        hide_resources(dumps)
    ran = go(site.source.base, dest)
    assert ran.status == (DONE if by_itself else FAILED), ran.notices
    assert tree(dest) == {name: site.files[name] for name in (names if by_itself else names[1:])}
    assert not (dest.parent / "escaped.txt").exists()
    assert check(site.source.base, dest).exit_status == (DONE if by_itself else 1)


def test_members_that_are_not_what_the_manifest_says(dumps: Dumps, dest: Path) -> None:
    """DST-P5: held good files stay."""
    site = dumps.site
    two_packages(dumps)
    assert go(site.source.base, dest).status == DONE
    before = tree(dest)
    site.put("d0/f0.txt", b"the listed state\n")
    manifest = dumps.manifest(site.files)
    site.files["d0/f0.txt"] = b"another state\n\n\n"
    dumps.publish_packages(dumps.package(manifest=manifest))
    hide_resources(dumps)
    ran = go(site.source.base, dest)
    assert ran.status == FAILED
    assert tree(dest) == before
    assert check(site.source.base, dest).exit_status == 1


def test_a_dump_that_is_rewritten_while_it_is_read(dumps: Dumps, dest: Path) -> None:
    """DST-F13: its packages have new names by now; it is read again."""
    site = dumps.site
    two_packages(dumps)
    old = dumps.served("resourcedump.xml")
    del site.source.pages["/set/p1.zip"]

    def first_the_old(_handler: Handler) -> Reply:
        entry = dumps.serve_package("fresh.zip", dumps.package())
        site.clock += 1
        dumps.publish_dump([entry])
        return old

    site.source.pages["/set/resourcedump.xml"] = first_the_old
    ran = go(site.source.base, dest)
    assert ran.status == DONE, ran.notices
    assert tree(dest) == site.files


def test_a_change_dump_that_is_rewritten_while_it_is_read(dumps: Dumps, dest: Path) -> None:
    """DST-F13, AMB-63: a package that is gone is looked for once more, in the dump as it is by now."""
    site = dumps.site
    dumps.publish_change_packages(0, 100)
    site.publish_capabilities("changedump")
    old = dumps.served("changedump.xml")
    octets = dumps.served("c0.zip").body
    del site.source.pages["/set/c0.zip"]

    def first_the_old(_handler: Handler) -> Reply:
        dumps.serve_package("fresh.zip", octets)
        entry = dumps.entry("fresh.zip", octets, at=None, **{"from": at(0), "until": at(100)})
        dumps.publish_dump([entry], kind="changedump", at=None, **{"from": at(0)})
        return old

    site.source.pages["/set/changedump.xml"] = first_the_old
    ran = go(site.source.base, dest)
    assert ran.status == DONE, ran.notices
    assert tree(dest) == site.files


@pytest.mark.parametrize("kind", ["resourcedump", "changedump"])
def test_dst_f1_a_package_that_breaks_off_is_tried_again(dumps: Dumps, dest: Path, kind: str) -> None:
    """DST-F1: also where nothing tells that the rest is of the same state, and no resource can be had by itself."""
    name = {"resourcedump": "p0.zip", "changedump": "c0.zip"}[kind]
    dumps.publish_packages(dumps.package())
    dumps.publish_change_packages(0, 100)
    dumps.site.publish_capabilities(kind)
    hide_resources(dumps)
    octets = dumps.served(name).body
    tries = itertools.count(1)
    dumps.site.source.pages[f"/set/{name}"] = lambda _handler: (
        truncated(octets) if next(tries) % 2 else Reply(octets, etag=False)
    )
    ran = go(dumps.site.source.base, dest)
    assert ran.status == DONE, ran.notices
    assert tree(dest) == dumps.site.files
    assert next(tries) == 3, "it is fetched once for its manifest and its content"


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_change_package_that_is_not_there(dumps: Dumps, dest: Path, spoil: Spoil) -> None:
    """DST-D: the position stays before what was not read; when the package is there again, all is done."""
    site = dumps.site
    dumps.publish_change_packages(0, 100)
    site.publish_capabilities("changedump")
    assert go(site.source.base, dest).status == DONE
    before = tree(dest)
    site.drop("d1/f5.txt")
    site.put("last.txt", b"body 5\n")
    site.clock = 200.0
    dumps.publish_change_packages(0, 100, 200)
    good = dumps.served("c1.zip")
    site.source.pages["/set/c1.zip"] = spoil(dumps, good.body)
    ran = go(site.source.base, dest)
    assert ran.status == SOURCE, ran.notices
    assert tree(dest) == before
    site.source.pages["/set/c1.zip"] = good
    ran = go(site.source.base, dest)
    assert ran.status == DONE, ran.notices
    assert tree(dest) == site.files


def test_other_times_in_the_manifest_than_in_the_dump(dumps: Dumps, dest: Path) -> None:
    """DST-P8: told, and the manifest counts."""
    site = dumps.site
    octets = dumps.package()
    dumps.serve_package("p0.zip", octets)
    dumps.publish_dump([dumps.entry("p0.zip", octets, at=at(70))])
    site.publish_capabilities("resourcedump")
    ran = go(site.source.base, dest)
    assert (ran.status, ran.one.at) == (DONE, at(100))
    assert "DST-P8" in ran.rules()


def test_a_manifest_that_lists_foreign_resources(dumps: Dumps, dest: Path) -> None:
    """DST-S12: what the scope refuses is not fetched, not deleted, and the run says so."""
    site = dumps.site
    entries = [url("http://other.example/f.txt", hash="sha-256:00", path="/f.txt")]
    manifest = document(entries, links=site.up(), capability="resourcedump-manifest", at=at(100))
    dumps.publish_packages(zipped([("manifest.xml", manifest), ("f.txt", b"foreign")]))
    site.publish_capabilities("resourcedump")
    ran = go(site.source.base, dest)
    assert ran.status == FAILED
    assert tree(dest) == {}
    assert ran.one.refused == 1
