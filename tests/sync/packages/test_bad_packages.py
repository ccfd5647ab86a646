"""Packages that are bad, gone, others, or cut: nothing wrong is placed, and single requests bring the rest."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import headwater.sync.packages.package_transfer  # noqa: F401  loaded before a test replaces what it imports
from headwater.errors import Exit
from headwater.files.file_copies import write_all
from headwater.spec.kinds import PATCH
from tests.support.copying import go
from tests.support.fake_dumps import Dumps, etag_of, zipped
from tests.support.fake_source import Handler, Reply, at, document, sha, url
from tests.sync.packages.test_package_transfer import COUNT, dumps, fetched, rows, tree, ways

__all__ = ["dumps"]


def is_whole(dumps: Dumps, dest: Path, rule: str | None = None, **options: Any) -> int:
    """A run by dumps brings everything, by whatever way, and tells of `rule`; how many came by packages."""
    ran = go(dumps.site.source.base, dest, **({"prefer": "dumps"} | options))
    assert ran.status == Exit.DONE, ran.notices
    assert tree(dest) == dumps.site.files
    if rule is not None:
        assert rule in ran.rules(), ran.notices
    assert not list((dest / ".headwater" / "tmp").iterdir())
    assert rows(dest)
    return sum(ways(ran).values())


def serve(dumps: Dumps, octets: bytes, **listed: object) -> None:
    """A Resource Dump of one package, listed as is said."""
    dumps.serve_package("p.zip", octets)
    dumps.publish_dump([dumps.entry("p.zip", octets, **listed)])
    dumps.publish("resourcedump")


def test_dst_p1_of_a_package_with_another_hash_nothing_is_used(dumps: Dumps, dest: Path) -> None:
    serve(dumps, dumps.package(), hash=sha(b"another"))
    assert is_whole(dumps, dest, "DST-P1") == 0
    assert len(fetched(dumps)) == COUNT + 1


@pytest.mark.parametrize("more", [-1, 1])
def test_dst_p1_a_package_of_another_length_is_not_even_read(dumps: Dumps, dest: Path, more: int) -> None:
    octets = dumps.package()
    serve(dumps, octets, length=len(octets) + more)
    assert is_whole(dumps, dest, "DST-P1") == 0


def without_hashes(dumps: Dumps) -> None:
    """Lists and manifests that say nothing by which a resource could be verified."""
    resource = dumps.site.resource
    dumps.site.resource = lambda name, **more: resource(name, **(more | {"hash": None, "length": None}))  # type: ignore[method-assign]
    dumps.site.publish_list()


def test_dst_p1_without_a_listed_hash_only_a_package_that_is_the_listed_one_counts(dumps: Dumps, dest: Path) -> None:
    without_hashes(dumps)
    serve(dumps, dumps.package(), hash=sha(b"another"))
    assert is_whole(dumps, dest, "DST-P1") == 0
    assert len(fetched(dumps)) == COUNT + 1


def test_dst_p1_without_a_listed_hash_a_package_is_verified_before_it_is_used(dumps: Dumps, dest: Path) -> None:
    without_hashes(dumps)
    serve(dumps, dumps.package())
    assert is_whole(dumps, dest) == COUNT + 1
    assert fetched(dumps) == []


def test_dst_p5_a_member_without_a_listed_hash_is_held_to_the_manifest(dumps: Dumps, dest: Path) -> None:
    manifest = dumps.manifest(dumps.site.files)
    without_hashes(dumps)
    right = dumps.site.files["d1/f1.txt"]
    dumps.site.files["d1/f1.txt"] = b"wrong"
    octets = dumps.package(manifest=manifest)
    dumps.site.files["d1/f1.txt"] = right
    serve(dumps, octets)
    assert is_whole(dumps, dest) == COUNT
    assert fetched(dumps) == ["/set/resources/d1/f1.txt"]


def test_dst_p5_a_member_that_is_not_what_is_listed_is_fetched_by_itself(dumps: Dumps, dest: Path) -> None:
    right = dumps.site.files["d1/f1.txt"]
    dumps.site.files["d1/f1.txt"] = b"an older state"
    octets = dumps.package()
    dumps.site.files["d1/f1.txt"] = right
    serve(dumps, octets)
    assert is_whole(dumps, dest) == COUNT
    assert fetched(dumps) == ["/set/resources/d1/f1.txt"]


def test_dst_p2_the_manifest_may_come_last_then_the_package_is_read_from_a_file(dumps: Dumps, dest: Path) -> None:
    serve(dumps, dumps.on_demand(dumps.site.uri(name) for name in dumps.site.files))
    assert is_whole(dumps, dest) == COUNT + 1


def test_dst_p4_missing_members_are_fetched_and_undeclared_ones_ignored(dumps: Dumps, dest: Path) -> None:
    names = list(dumps.site.files)
    serve(dumps, dumps.package(names[:-3], manifest=dumps.manifest(names)))
    assert is_whole(dumps, dest, "DST-P4") == COUNT - 2
    assert len(fetched(dumps)) == 3


def test_what_links_of_a_manifest_name_is_no_surplus(dumps: Dumps, dest: Path) -> None:
    """RS-CDM-11: patches are members that links of entries name."""
    names = list(dumps.site.files)
    links = "".join(f'<rs:ln rel="{PATCH}" href="{dumps.site.uri(n)}" path="/{dumps.path(n)}"/>' for n in names[:3])
    manifest = dumps.manifest(names[3:]).replace(b"</url>", links.encode() + b"</url>", 1)
    serve(dumps, dumps.package(names, manifest=manifest))
    ran = go(dumps.site.source.base, dest, prefer="dumps")
    assert tree(dest) == dumps.site.files
    assert "DST-P4" not in ran.rules(), ran.notices


def test_dst_p4_what_no_manifest_names_is_not_placed(dumps: Dumps, dest: Path) -> None:
    names = list(dumps.site.files)
    serve(dumps, dumps.package(names, manifest=dumps.manifest(names[3:])))
    assert is_whole(dumps, dest, "DST-P4") == COUNT - 2


@pytest.mark.parametrize("kind", ["changedump-manifest", "resourcelist"])
def test_dst_p7_a_manifest_of_another_kind_makes_the_package_unusable(dumps: Dumps, dest: Path, kind: str) -> None:
    serve(dumps, dumps.package(manifest=dumps.manifest(dumps.site.files, kind=kind)))
    assert is_whole(dumps, dest, "DST-P7") == 0


def test_dst_p6_a_manifest_with_no_end_of_entries_is_not_held(
    dumps: Dumps, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them may name one member: members are bounded by themselves."""
    monkeypatch.setattr("headwater.sync.packages.package_content.MOST_STATED_OCTETS", 1_000)
    serve(dumps, dumps.package())
    assert is_whole(dumps, dest, "DST-P6") == 0


def test_dst_p8_another_at_than_the_dump_gives_is_told(dumps: Dumps, dest: Path) -> None:
    serve(dumps, dumps.package(), at=at(3))
    assert is_whole(dumps, dest, "DST-P8") == COUNT + 1


def test_dst_p3_a_path_that_leads_out_is_left_out(dumps: Dumps, dest: Path) -> None:
    names = list(dumps.site.files)
    bad = dumps.site.resource(names[0], path="/../../escaped.txt")
    manifest = dumps.manifest(names[1:]).replace(b"</urlset>", bad.encode() + b"</urlset>")
    serve(dumps, dumps.package(names[1:], manifest=manifest))
    assert is_whole(dumps, dest, "DST-P3") == COUNT


PAGES = {
    "is an HTML page": Reply(b"<html>not found</html>", headers={"Content-Type": "text/html"}),
    "is gone": Reply(b"gone", 404),
    "breaks the server": Reply(b"oops", 500),
    "is forbidden": Reply(b"no", 403),
    "leads away": Reply(b"", 302, {"Location": "http://127.0.0.2:9/p.zip"}),
    "is empty": Reply(b""),
    "is packed again": Reply(b"PK", headers={"Content-Encoding": "gzip"}),
}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_package_that_cannot_be_had_costs_a_notice(dumps: Dumps, dest: Path, page: Reply) -> None:
    serve(dumps, dumps.package())
    dumps.site.source.pages["/set/p.zip"] = page
    ran = go(dumps.site.source.base, dest, prefer="dumps")
    assert (ran.status, tree(dest), ways(ran)) == (Exit.DONE, dumps.site.files, {"Resource Dump": 0})
    assert len([notice for notice in ran.notices if "package" in notice.message]) == 1
    assert ran.one.ways[0].fault


def test_a_package_in_another_scope_is_not_requested(dumps: Dumps, dest: Path) -> None:
    octets = dumps.package()
    dumps.publish_dump([url("http://127.0.0.2:9/p.zip", length=len(octets), hash=sha(octets))])
    dumps.publish("resourcedump")
    assert is_whole(dumps, dest, "DST-S12") == 0


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9, 0.999])
def test_of_a_package_that_is_cut_nothing_is_used(dumps: Dumps, dest: Path, share: float) -> None:
    octets = dumps.package()
    serve(dumps, octets[: int(len(octets) * share)], length=None, hash=None)
    assert is_whole(dumps, dest) == 0


def broken_off(
    octets: bytes, *, ranges: bool, etag: str | None = None, a_time: int | None = None
) -> Callable[[Handler], Reply]:
    """Answers that break off after three quarters of what is left; the fourth is whole. `a_time`: each of them breaks
    off after so many octets."""
    tries = itertools.count()

    def page(handler: Handler) -> Reply:
        start = 0
        if ranges and (asked := handler.headers.get("range")):
            start = int(asked.removeprefix("bytes=").rstrip("-"))
        rest = octets[start:]
        status = "206 Partial" if start else "200 OK"
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(rest)}\r\nETag: {etag or etag_of(octets)}\r\n"
        if start:
            head += f"Content-Range: bytes {start}-{len(octets) - 1}/{len(octets)}\r\n"
        cut = a_time or (len(rest) if next(tries) >= 3 else len(rest) * 3 // 4)
        return Reply(script=lambda one: one.send(head.encode() + b"\r\n" + rest[:cut]))

    return page


def test_a_package_that_breaks_off_is_gone_on_with_by_ranges(dumps: Dumps, dest: Path) -> None:
    octets = dumps.package(deflate=False)
    serve(dumps, octets)
    dumps.site.source.pages["/set/p.zip"] = broken_off(octets, ranges=True)
    assert is_whole(dumps, dest) == COUNT + 1
    assert (len(dumps.site.source.requests("/set/p.zip")), fetched(dumps)) == (4, [])


def test_dst_p1_a_package_that_was_gone_on_with_is_held_to_its_hash(dumps: Dumps, dest: Path) -> None:
    octets = dumps.package(deflate=False)
    serve(dumps, octets, hash=sha(b"another"))
    dumps.site.source.pages["/set/p.zip"] = broken_off(octets, ranges=True)
    assert is_whole(dumps, dest, "DST-P1") == 0
    assert len(dumps.site.source.requests("/set/p.zip")) == 4


def test_a_package_that_breaks_off_after_every_octet_is_given_up(dumps: Dumps, dest: Path) -> None:
    """What each answer brings has to be worth a request: a source could have a thousand of them wait else."""
    octets = dumps.package()
    serve(dumps, octets)
    dumps.site.source.pages["/set/p.zip"] = broken_off(octets, ranges=True, a_time=1)
    assert is_whole(dumps, dest, "DST-F1") == 0
    assert len(dumps.site.source.requests("/set/p.zip")) < 10


def test_a_package_that_breaks_off_and_cannot_be_gone_on_with_is_left(dumps: Dumps, dest: Path) -> None:
    octets = dumps.package(deflate=False)
    serve(dumps, octets)
    dumps.site.source.pages["/set/p.zip"] = broken_off(octets, ranges=False)
    assert is_whole(dumps, dest, "DST-F1") == 0


@pytest.mark.parametrize("by_list", [True, False])
def test_two_resources_of_the_same_octets_may_be_one_member(dumps: Dumps, dest: Path, by_list: bool) -> None:
    """RS-RDM-04, DST-P5: each entry names a member, and nothing forbids that two name the same."""
    names = list(dumps.site.files)
    dumps.site.put(names[1], dumps.site.files[names[0]])
    dumps.site.publish_list()
    entries = [dumps.site.resource(name, path=f"/{max(number, 1)}") for number, name in enumerate(names)]
    manifest = document(entries, links=dumps.site.up(), capability="resourcedump-manifest", at=at(dumps.site.clock))
    members = [(f"{number}", dumps.site.files[name]) for number, name in enumerate(names) if number]
    serve(dumps, zipped([("manifest.xml", manifest), *members]))
    if not by_list:
        dumps.site.publish_capabilities("resourcedump")
    ran = go(dumps.site.source.base, dest, prefer="dumps")
    assert (ran.status, ran.rules() & {"DST-P4"}, fetched(dumps)) == (Exit.DONE, set(), [])
    assert tree(dest) == dumps.site.files


@pytest.mark.parametrize("kind", ["changedump", "resourcelist"])
def test_dst_a7_a_dump_that_is_another_than_it_is_offered_as_is_told(dumps: Dumps, dest: Path, kind: str) -> None:
    octets = dumps.package()
    dumps.publish_dump([dumps.serve_package("p.zip", octets)], kind=kind)
    dumps.site.source.pages[f"/{dumps.site.name}/resourcedump.xml"] = dumps.served(f"{kind}.xml")
    dumps.site.publish_list()
    dumps.publish("resourcedump")
    assert is_whole(dumps, dest, "DST-A7") == 0


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("by_list", [True, False])
def test_amb_36_a_path_may_be_percent_encoded(dumps: Dumps, dest: Path, order: int, by_list: bool) -> None:
    """AMB-36: the literal name counts, then the decoded one; in the order of the manifest or not, listed or not."""
    # also where the literal one is not what is listed: then the resource is asked for
    names = list(dumps.site.files)
    paths = {name: f"a b/{number} é.txt" for number, name in enumerate(names)}
    entries = [dumps.site.resource(name, path="/" + quote(path)) for name, path in paths.items()]
    manifest = document(entries, links=dumps.site.up(), capability="resourcedump-manifest", at=at(dumps.site.clock))
    members = [(paths[name], dumps.site.files[name]) for name in names]
    members.append((quote(paths[names[0]]), b"of this name, and other octets"))
    serve(dumps, zipped([("manifest.xml", manifest), *members[::order]]))
    if not by_list:
        dumps.site.publish_capabilities("resourcedump")
    assert is_whole(dumps, dest) == len(names) - 1
    assert fetched(dumps) == [f"/set/resources/{names[0]}"]


def test_a_dump_that_cannot_be_read_is_passed_over(dumps: Dumps, dest: Path) -> None:
    dumps.site.serve("/set/resourcedump.xml", b"<html>")
    dumps.publish("resourcedump")
    assert is_whole(dumps, dest) == 0


# on demand

ANSWERS: dict[str, Callable[[Dumps, list[str]], Reply]] = {
    "is an HTML page": lambda dumps, uris: Reply(b"<html>", headers={"Content-Type": "text/html"}),
    "is not there": lambda dumps, uris: Reply(b"", 404),
    "is too much": lambda dumps, uris: Reply(b'{"limits": {"resources": 1}}', 413),
    "breaks the server": lambda dumps, uris: Reply(b"", 500),
    "is empty": lambda dumps, uris: Reply(b""),
    "holds nothing": lambda dumps, uris: Reply(zipped([("manifest.xml", dumps.manifest([]))])),
    "has no manifest": lambda dumps, uris: Reply(zipped([("a", b"a")])),
    "holds other things": lambda dumps, uris: Reply(zipped([("a", b"a"), ("manifest.xml", dumps.manifest([]))])),
    "is redirected to a GET": lambda dumps, uris: Reply(b"", 303, {"Location": dumps.site.root + "/p.zip"}),
}


@pytest.mark.parametrize("answered", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_on_demand_that_is_bad_leaves_all_to_single_requests(
    dumps: Dumps, dest: Path, answered: Callable[[Dumps, list[str]], Reply]
) -> None:
    links = dumps.offer_demand(lambda uris: answered(dumps, uris))
    dumps.site.publish_capabilities("resourcelist", "changelist", links=links)
    assert is_whole(dumps, dest) == 0
    assert len(fetched(dumps)) == COUNT + 1
    assert len(dumps.asked) <= 4 * 3  # with the repetitions of what may pass


def test_an_answer_on_demand_that_lacks_some_leaves_these(dumps: Dumps, dest: Path) -> None:
    links = dumps.offer_demand(lambda uris: Reply(dumps.on_demand(uris[1:]), etag=False))
    dumps.site.publish_capabilities("resourcelist", "changelist", links=links)
    assert is_whole(dumps, dest) == COUNT - 3


def test_an_answer_on_demand_cut_at_any_octet_does_no_harm(dumps: Dumps, tmp_path: Path) -> None:
    whole = len(dumps.on_demand([dumps.site.uri(name) for name in list(dumps.site.files)[:-1]]))
    for cut in range(0, whole, whole // 12):
        dumps.asked.clear()
        dest = tmp_path / str(cut)

        def answered(uris: list[str], cut: int = cut) -> Reply:
            octets = dumps.on_demand(uris)[:cut]
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            chunk = b"%x\r\n%s\r\n" % (len(octets), octets) if octets else b""
            return Reply(script=lambda one: one.send(head + chunk))

        links = dumps.offer_demand(answered, resources=1000)
        dumps.site.publish_capabilities("resourcelist", "changelist", links=links)
        is_whole(dumps, dest)


def test_an_answer_on_demand_that_never_ends_is_bounded(dumps: Dumps, dest: Path) -> None:
    def answered(uris: list[str]) -> Reply:
        head = b"HTTP/1.1 200 OK\r\n\r\n" + dumps.on_demand(uris)

        def script(handler: Handler) -> None:
            handler.send(head)
            for _ in range(10_000):
                handler.send(b"\0" * 65_536)

        return Reply(script=script)

    links = dumps.offer_demand(answered)
    dumps.site.publish_capabilities("resourcelist", "changelist", links=links)
    is_whole(dumps, dest)


def test_dst_p6_a_package_without_a_listed_length_may_not_fill_the_disk(
    dumps: Dumps, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is read from a file could go on until the disk is full, which would end the run."""
    octets = dumps.on_demand(map(dumps.site.uri, dumps.site.files))
    serve(dumps, octets, length=None)
    monkeypatch.setattr("headwater.sync.packages.dump_documents.free_octets", lambda _folder: len(octets))
    assert is_whole(dumps, dest, "DST-P6") == 0


@pytest.mark.parametrize("whole", [False, True])
def test_dst_p6_a_member_that_is_longer_than_listed_fills_no_disk(
    dumps: Dumps, dest: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """Not more of it is written than is listed, however much comes."""
    monkeypatch.setattr("headwater.sync.packages.package_transfer.LEAST_PREFERRED_SHARE", 0.0)
    written: list[int] = []

    def note(descriptor: int, octets: bytes) -> None:
        written.append(len(octets))
        write_all(descriptor, octets)

    monkeypatch.setattr("headwater.sync.copy.file_tree.write_sparse", note)
    right = dumps.site.files["d0/f0.txt"]
    dumps.site.files["d0/f0.txt"] = b"\0" * 4_000_000
    names = ["d0/f0.txt", *(name for name in dumps.site.files if name.startswith("d1"))]
    octets = dumps.on_demand(map(dumps.site.uri, names)) if whole else dumps.package(names, deflate=False)
    dumps.site.files["d0/f0.txt"] = right
    serve(dumps, octets)
    assert is_whole(dumps, dest) == len(names) - 1
    assert sum(written) < 100_000


@pytest.mark.parametrize("offered", ["package", "file", "demand"])
def test_dst_p6_what_is_larger_than_the_user_allows_comes_by_no_way(dumps: Dumps, dest: Path, offered: str) -> None:
    """`--max-size` holds for packages as for single requests, whose failure is the one that is told."""
    dumps.publish_packages(
        dumps.package() if offered == "package" else dumps.on_demand(map(dumps.site.uri, dumps.site.files))
    )
    dumps.publish(*(["resourcedump"] if offered != "demand" else []), demand=offered == "demand")
    ran = go(dumps.site.source.base, dest, prefer="dumps", largest=100)
    assert ran.status == Exit.TRANSFERS_FAILED
    assert tree(dest) == {name: body for name, body in dumps.site.files.items() if len(body) <= 100}
    assert sum(ways(ran).values()) == len(tree(dest))
