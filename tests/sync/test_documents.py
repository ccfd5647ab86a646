"""What goes wrong with documents: finding the way in, lists and indexes, and what must never be deleted.

DST-A1…A7, DST-B1…B4, DST-F4, DST-F9, DST-F13, RS-DISC, AMB-02, AMB-10, AMB-14, AMB-65.
"""

# ruff: noqa: E501  tables are read across

from __future__ import annotations

import gzip
import json
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from headwater.cli import run
from headwater.files import file_copies
from headwater.sync.copy import destination_folder
from tests.support.copying import (
    DONE,
    FAILED,
    FINDINGS,
    SOURCE,
    STORE,
    UNDETERMINED,
    USAGE,
    Ran,
    check,
    go,
    is_clean,
    tree,
)
from tests.support.documents import zeros_in_gzip
from tests.support.failing import failing
from tests.support.fake_source import (
    Handler,
    Reply,
    Site,
    Source,
    at,
    document,
    endless,
    ln,
    redirect,
    sometimes,
    truncated,
    url,
)

ALL = {f"f{n}.txt": b"body %d\n" % n for n in range(5)}


# the way in


def test_every_document_is_a_way_in(source: Source, site: Site, tmp_path: Path) -> None:
    """DST-A1: Source Description, Capability List, Resource List, Change List, host."""
    ways = [
        "",
        "/",
        "/.well-known/resourcesync",
        "/set/capabilitylist.xml",
        "/set/resourcelist.xml",
        "/set/changelist.xml",
    ]
    for number, way in enumerate(ways):
        assert go(source.base + way, tmp_path / str(number)).status == DONE, way
        assert tree(tmp_path / str(number)) == ALL, way


def test_link_header(source: Source, site: Site, dest: Path) -> None:
    """RS-DISC-03."""
    link = f'<{site.root}/capabilitylist.xml>; rel="resourcesync"'
    source.pages["/page"] = Reply(b"%PDF-1.4", headers={"Link": link})
    assert go(f"{source.base}/page", dest).status == DONE
    assert tree(dest) == ALL


def test_link_element_relative(source: Source, site: Site, dest: Path) -> None:
    """RS-DISC-02."""
    page = b'<!DOCTYPE html><html><head><link rel="resourcesync" href="set/capabilitylist.xml"></head></html>'
    source.pages["/page.html"] = Reply(page, headers={"Content-Type": "text/html"})
    assert go(f"{source.base}/page.html", dest).status == DONE
    assert tree(dest) == ALL


def test_robots(source: Source, site: Site, dest: Path) -> None:
    """RS-DISC-05, RS-DISC-06: Sitemap lines lead to the Resource List, `up` to the rest."""
    del source.pages["/.well-known/resourcesync"]
    source.pages["/robots.txt"] = Reply(
        f"User-agent: *\nDisallow:\nsitemap: {site.root}/plain.xml\nSITEMAP: {site.root}/resourcelist.xml\n".encode()
    )
    source.pages["/set/plain.xml"] = Reply(document([url(site.uri("f0.txt"))]))
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert tree(dest) == ALL
    assert ran.one.capability_list == f"{site.root}/capabilitylist.xml"


def test_well_known_below_a_path(source: Source, site: Site, dest: Path) -> None:
    source.pages["/deep/x/.well-known/resourcesync"] = source.pages.pop("/.well-known/resourcesync")
    assert go(f"{source.base}/deep/x", dest).status == DONE
    assert tree(dest) == ALL


def test_well_known_redirects(source: Source, site: Site, dest: Path) -> None:
    """AMB-66."""
    source.pages["/sd.xml"] = source.pages["/.well-known/resourcesync"]
    source.pages["/.well-known/resourcesync"] = redirect("/sd.xml", 301)
    assert go(source.base, dest).status == DONE


def test_loops_of_up_end(source: Source, site: Site, dest: Path) -> None:
    """DST-A4."""
    body = document(
        [site.resource(n) for n in site.files],
        links=ln("up", f"{site.root}/b.xml"),
        capability="resourcelist",
        at=at(9),
    )
    source.pages["/set/a.xml"] = Reply(body)
    source.pages["/set/b.xml"] = Reply(
        document([], links=ln("up", f"{site.root}/a.xml"), capability="changelist", **{"from": at(9)})
    )
    assert go(f"{site.root}/a.xml", dest).status == DONE
    assert tree(dest) == ALL


def test_relative_uris_are_resolved_with_a_warning(source: Source, site: Site, dest: Path) -> None:
    """DST-A5, AMB-07."""
    entries = [url("resourcelist.xml", capability="resourcelist"), url("changelist.xml", capability="changelist")]
    site.serve("/set/capabilitylist.xml", document(entries, links=site.up(), capability="capabilitylist"))
    site.publish_list([url(f"resources/{name}") for name in site.files])
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert tree(dest) == ALL
    assert "AMB-07" in ran.rules()


def test_no_capability_in_a_description(source: Source, site: Site, dest: Path) -> None:
    """DST-A6, AMB-01."""
    site.serve(
        "/.well-known/resourcesync", document([url(f"{site.root}/capabilitylist.xml")], capability="description")
    )
    assert go(source.base, dest).status == DONE


def test_unknown_capabilities_are_ignored(source: Source, site: Site, dest: Path) -> None:
    """DST-A6, AMB-12; a source that adds dumps must not stop being copied (AGG-1)."""
    site.publish_capabilities(
        "resourcedump", "x-unknown", "changelist-archive", "resourcelist", "changelist", "changedump"
    )
    assert go(source.base, dest).status == DONE
    assert tree(dest) == ALL


def test_a_description_index(source: Source, site: Site, dest: Path) -> None:
    """AMB-53."""
    source.pages["/sd1.xml"] = source.pages["/.well-known/resourcesync"]
    body = document([url(f"{source.base}/sd1.xml", tag="sitemap")], "sitemapindex", capability="description")
    site.serve("/.well-known/resourcesync", body)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == ALL


def test_the_document_decides_what_it_is(source: Source, site: Site, dest: Path) -> None:
    """DST-A7: the entries are swapped."""
    entries = [
        url(f"{site.root}/resourcelist.xml", capability="changelist"),
        url(f"{site.root}/changelist.xml", capability="resourcelist"),
    ]
    site.serve("/set/capabilitylist.xml", document(entries, capability="capabilitylist"))
    ran = go(source.base, dest)
    assert "DST-A7" in ran.rules()


@pytest.mark.parametrize("later", [False, True], ids=["first run", "later run"])
def test_a_resource_list_that_says_it_is_something_else(later: bool, source: Source, site: Site, dest: Path) -> None:
    """DST-A7: what it tells is done as changes; that nothing was copied of what was there before is no success."""
    mislabelled = source.reply("/set/resourcelist.xml").body.replace(b'"resourcelist"', b'"changelist"')
    if later:
        assert go(source.base, dest).status == DONE
    source.pages["/set/resourcelist.xml"] = Reply(mislabelled)
    ran = go(source.base, dest, baseline=later)
    assert ran.status == SOURCE
    assert "DST-A7" in ran.rules()
    assert tree(dest) == (ALL if later else {})
    assert go(source.base, dest).status == (DONE if later else SOURCE)  # a baseline that was, or was never
    site.publish_list()
    assert go(source.base, dest).status == DONE
    assert tree(dest) == ALL


def test_a_plain_sitemap_only_on_request(source: Source, site: Site, dest: Path) -> None:
    """DST-A3."""
    source.pages["/plain.xml"] = Reply(document([url(site.uri(n), at(0)) for n in site.files]))
    del source.pages["/.well-known/resourcesync"]
    ran = go(f"{source.base}/plain.xml", dest)
    assert ran.status == SOURCE
    assert ran.error is not None
    assert ran.error.code == "HW-SYN-03"
    assert "--sitemap" in ran.error.todo
    assert go(f"{source.base}/plain.xml", dest, sitemap=True).status == DONE
    assert tree(dest) == ALL


NOTHING = {
    "nothing at all": lambda s: s.pages.clear(),
    "a page": lambda s: s.pages.update({"/.well-known/resourcesync": Reply(b"<html><body>Welcome</body></html>")}),
    "a torn document": lambda s: s.pages.update({"/.well-known/resourcesync": Reply(b"<?xml version='1.0'?><urlset")}),
    "a DTD": lambda s: s.pages.update(
        {
            "/.well-known/resourcesync": Reply(
                b'<!DOCTYPE urlset [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
                + document([], capability="description").partition(b"?>")[2]
            )
        }
    ),
    "an Atom feed": lambda s: s.pages.update(
        {"/.well-known/resourcesync": Reply(b'<feed xmlns="http://www.w3.org/2005/Atom"/>')}
    ),
    "no sets": lambda s: s.pages.update({"/.well-known/resourcesync": Reply(document([], capability="description"))}),
    "a loop of redirects": lambda s: s.pages.update(
        {"/.well-known/resourcesync": redirect("/.well-known/resourcesync")}
    ),
    "only dumps": lambda s: s.pages.update(
        {
            "/set/capabilitylist.xml": Reply(
                document([url(f"{s.base}/d.xml", capability="resourcedump")], capability="capabilitylist")
            )
        }
    ),
    "a server error": lambda s: s.pages.update({"/.well-known/resourcesync": Reply(b"", 500)}),
    "empty": lambda s: s.pages.update({"/.well-known/resourcesync": Reply(b"")}),
    "deep nesting": lambda s: s.pages.update({"/.well-known/resourcesync": Reply(b"<a>" * 100_000)}),
    "a gzip bomb": lambda s: s.pages.update({"/.well-known/resourcesync": Reply(zeros_in_gzip(200))}),
}


@pytest.mark.parametrize("name", NOTHING)
def test_what_is_no_source_ends_with_3(name: str, source: Source, site: Site, dest: Path) -> None:
    """Exit status 3: what, where, what to do; nothing is written but our state."""
    NOTHING[name](source)
    ran = go(source.base, dest)
    assert ran.status == SOURCE
    assert tree(dest) == {}
    assert ran.error.todo if ran.error is not None else _faults(ran)


def _faults(ran: Ran) -> list[object]:
    """What a report says of sets and documents that could not be read."""
    assert ran.report is not None
    return [*ran.report.faults, *(one.fault for one in ran.report.sets if one.fault is not None)]


def test_nobody_answers(dest: Path) -> None:
    ran = go("http://127.0.0.1:1/", dest)
    assert ran.status == SOURCE
    assert "127.0.0.1:1" in str(ran.error)


@pytest.mark.parametrize("address", ["ftp://x/", "file:///etc", "http://", "http://u:p@127.0.0.1/", "::"])
def test_addresses_that_cannot_be(address: str, dest: Path) -> None:
    assert go(address, dest).status == USAGE


# lists


def test_an_empty_list(source: Source, site: Site, dest: Path) -> None:
    """DST-B4: legal."""
    site.publish_list([])
    site.publish_changes(10.0, entries=[])
    assert go(source.base, dest).status == DONE
    assert tree(dest) == {}


BROKEN_LISTS = {
    "404": lambda body: Reply(b"", 404),
    "500": lambda body: Reply(b"", 500),
    "torn": lambda body: Reply(body[:-20]),
    "cut short": lambda body: truncated(body),
    "html": lambda body: Reply(b"<html></html>"),
    "dtd": lambda body: Reply(b"<!DOCTYPE x>" + body.partition(b"?>")[2]),
    "empty": lambda body: Reply(b""),
    "403": lambda body: Reply(b"", 403),
    "another root": lambda body: Reply(b'<x xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"/>'),
    "a capability list": lambda body: Reply(document([], capability="capabilitylist")),
}


@pytest.mark.parametrize("name", BROKEN_LISTS)
def test_a_broken_list_deletes_nothing(name: str, source: Source, site: Site, dest: Path) -> None:
    """DST-F4: keep the previous state; retry at the next poll."""
    assert go(source.base, dest).status == DONE
    page = source.reply("/set/resourcelist.xml")
    source.pages["/set/resourcelist.xml"] = BROKEN_LISTS[name](page.body)
    ran = go(source.base, dest, baseline=True)
    assert ran.status == SOURCE
    assert tree(dest) == ALL
    source.pages["/set/resourcelist.xml"] = page
    assert go(source.base, dest, baseline=True).status == DONE


XML = {"Content-Type": "text/xml"}
FORGIVEN = {
    "a blank line before the declaration": lambda body: Reply(b"\r\n\n" + body, headers=XML),
    "two byte order marks": lambda body: Reply(b"\xef\xbb\xbf\xef\xbb\xbf" + body, headers=XML),
    "capitals": lambda body: Reply(body.replace(b'capability="', b'capability="\n').replace(b"list\"", b"List\""), headers=XML),
    "all capitals": lambda body: Reply(body.replace(b"resourcelist\"", b"RESOURCELIST\"").replace(b"changelist\"", b"CHANGELIST\""), headers=XML),
    "https in the namespaces": lambda body: Reply(body.replace(b"http://www.", b"https://www."), headers=XML),
    "a slash at the end of a namespace": lambda body: Reply(body.replace(b"/0.9", b"/0.9/"), headers=XML),
    "a notice of PHP": lambda body: Reply(body + b"<br />\n<b>Notice</b>: Undefined index in x.php on line 3", headers=XML),
    "an element after the end": lambda body: Reply(body + b"<div>Powered by CMS</div>", headers=XML),
    "zeros after the end": lambda body: Reply(body + bytes(4_096), headers=XML),
    "more after gzip": lambda body: Reply(gzip.compress(body) + b"<!-- cached -->", headers=XML),
    "utf8": lambda body: Reply(declared(body, "utf8"), headers=XML),
    "a charset that is none": lambda body: Reply(body, headers={"Content-Type": "text/xml; charset=binary"}),
    "UTF-16": lambda body: Reply(declared(body, "UTF-16").decode().encode("utf-16"), headers=XML),
    "two rs:md": lambda body: Reply(body.replace(b" length=", b"/><rs:md length="), headers=XML),
    "a coding that is none": lambda body: Reply(body, headers=XML | {"Content-Encoding": "utf-8"}),
    "gzip and a coding that is none": lambda body: Reply(gzip.compress(body), headers=XML | {"Content-Encoding": "gzip, aws-chunked"}),
    "a coding that is not that of the octets": lambda body: Reply(body, headers=XML | {"Content-Encoding": "br"}),
    "gzip twice": lambda body: Reply(gzip.compress(gzip.compress(body)), headers=XML | {"Content-Encoding": "gzip, gzip"}),
}  # fmt: skip


def declared(body: bytes, encoding: str) -> bytes:
    """The document with a declaration of this encoding."""
    return f'<?xml version="1.0" encoding="{encoding}"?>'.encode() + body.partition(b"?>")[2]


@pytest.mark.parametrize("name", FORGIVEN)
def test_documents_with_an_oddity_are_read(name: str, source: Source, site: Site, dest: Path) -> None:
    """AMB-91, AMB-92, AMB-96, AMB-97, AMB-98: by a sync, by one that follows the changes, and by an audit."""
    for path in ("/.well-known/resourcesync", "/set/capabilitylist.xml", "/set/resourcelist.xml"):
        source.pages[path] = FORGIVEN[name](source.reply(path).body)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == ALL
    site.put("g.txt", b"g")
    site.drop("f2.txt")
    site.publish_changes(10)
    source.pages["/set/changelist.xml"] = FORGIVEN[name](source.reply("/set/changelist.xml").body)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == {name: body for name, body in ALL.items() if name != "f2.txt"} | {"g.txt": b"g"}
    assert check(source.base, dest).verdict == "in sync"


@pytest.mark.parametrize(
    ("encoding", "said", "charset"),
    [
        ("shift_jis", None, "Shift_JIS"),
        ("euc-jp", "utf-8", '"euc-jp"'),
        ("utf-8", None, None),
        ("utf-8-sig", "shift_jis", None),
        ("utf-8", "utf-8", "iso-8859-1"),
        ("utf-16-be", None, "utf-16"),
        ("gb18030", "gb2312", "GB18030"),
    ],
)
def test_names_in_other_letters_are_requested_as_they_are_meant(
    encoding: str, said: str | None, charset: str | None, source: Source, site: Site, dest: Path
) -> None:
    """AMB-96."""
    name = "日本"
    site.put("%E6%97%A5%E6%9C%AC.txt", b"n")
    site.publish_list()
    body = source.reply("/set/resourcelist.xml").body.partition(b"?>")[2]
    body = (f"<?xml version='1.0'{f' encoding={said!r}' if said else ''}?>").encode() + body
    headers = {"Content-Type": f"text/xml; charset={charset}" if charset else "text/xml"}
    text = body.decode().replace("%E6%97%A5%E6%9C%AC", name)
    source.pages["/set/resourcelist.xml"] = Reply(text.encode(encoding), headers=headers)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == ALL | {f"{name}.txt": b"n"}


def test_dst_f4_of_a_list_that_was_cut_off_nothing_is_taken(source: Source, site: Site, dest: Path) -> None:
    """The entries before the cut are no list; what is held stays, and the next run reads it again."""
    assert go(source.base, dest).status == DONE
    site.put("f0.txt", b"newer")
    site.publish_list()
    whole = source.reply("/set/resourcelist.xml").body
    source.pages["/set/resourcelist.xml"] = Reply(whole[: len(whole) // 2])
    assert go(source.base, dest, baseline=True).status == SOURCE
    assert tree(dest) == ALL
    source.pages["/set/resourcelist.xml"] = Reply(whole)
    assert go(source.base, dest, baseline=True).status == DONE
    assert tree(dest) == ALL | {"f0.txt": b"newer"}


def test_a_race_is_only_read_again(source: Source, site: Site, dest: Path) -> None:
    """DST-F4: a truncated document is an ordinary race."""
    page = source.reply("/set/resourcelist.xml")
    source.pages["/set/resourcelist.xml"] = sometimes(1, Reply(page.body[:-30]), page)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == ALL


def index(site: Site, *parts: str, when: float = 10.0, stated: dict[str, float | None] | None = None) -> None:
    times = {part: (stated or {}).get(part, when) for part in parts}
    entries = [
        url(f"{site.root}/{part}.xml", tag="sitemap", at=None if moment is None else at(moment))
        for part, moment in times.items()
    ]
    site.serve(
        "/set/resourcelist.xml",
        document(entries, "sitemapindex", links=site.up(), capability="resourcelist", at=at(when)),
    )


def part(site: Site, name: str, *names: str, when: float = 10.0) -> None:
    body = document([site.resource(n) for n in names], links=site.up(), capability="resourcelist", at=at(when))
    site.serve(f"/set/{name}.xml", body)


def indexed(site: Site, *, is_timed: bool = True) -> None:
    names = list(site.files)
    part(site, "z", *names[:2])
    part(site, "a", *names[2:])
    index(site, "z", "a", stated=None if is_timed else {"z": None, "a": None})


def test_an_index(source: Source, site: Site, dest: Path) -> None:
    indexed(site)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == ALL


@pytest.mark.parametrize("name", BROKEN_LISTS)
def test_a_missing_component_removes_nothing(name: str, source: Source, site: Site, dest: Path) -> None:
    """DST-B2: an incomplete baseline adds and updates, and removes nothing; the position stays."""
    indexed(site)
    assert go(source.base, dest).status == DONE
    before = go(source.base, dest).one.position
    site.put("f9.txt", b"nine", change=False)
    site.clock = 50
    part(site, "z", "f0.txt", "f9.txt", when=50)
    index(site, "z", "a", when=50)
    page = source.reply("/set/a.xml")
    source.pages["/set/a.xml"] = BROKEN_LISTS[name](page.body)
    ran = go(source.base, dest, baseline=True)
    assert ran.status == SOURCE
    assert tree(dest) == ALL | {"f9.txt": b"nine"}
    assert ran.one.position == before
    assert not ran.one.complete


def test_components_that_never_fit_their_index(source: Source, site: Site, dest: Path) -> None:
    """DST-F13: read again, a bounded number of times; without Change List it ends undetermined, nothing removed."""
    site.publish_capabilities("resourcelist")
    indexed(site)
    assert go(source.base, dest).status == DONE
    count = [100]

    def moving(_handler) -> Reply:
        count[0] += 1
        body = document(
            [url(f"{site.root}/z.xml", tag="sitemap")],
            "sitemapindex",
            capability="resourcelist",
            at=at(count[0]),
        )
        return Reply(body)

    source.pages["/set/resourcelist.xml"] = moving
    ran = go(source.base, dest, baseline=True)
    assert ran.status == UNDETERMINED
    assert tree(dest) == ALL


def test_a_change_list_closes_what_moved(source: Source, site: Site, dest: Path) -> None:
    """DST-F13: a Change List that starts at or before `at` closes what is left."""
    indexed(site)
    index(site, "z", "a", stated={"a": 7.0})
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert tree(dest) == ALL


def test_a_nested_index(source: Source, site: Site, dest: Path) -> None:
    """AMB-65: one extra level; a loop of indexes ends."""
    names = list(site.files)
    part(site, "z", *names)
    entries = [url(f"{site.root}/z.xml", tag="sitemap")]
    site.serve("/set/mid.xml", document(entries, "sitemapindex", capability="resourcelist", at=at(10)))
    index(site, "mid")
    assert go(source.base, dest).status == DONE
    assert tree(dest) == ALL


@pytest.mark.parametrize("fault", ["missing", "itself"])
def test_changes_are_done_though_a_part_of_the_list_cannot_be_read(
    fault: str, source: Source, site: Site, dest: Path
) -> None:
    """DST-C11: deletions and updates that are stated are done, in each run, which ends with 3 until all can be read."""
    indexed(site)
    names = [url(f"{site.root}/{name}.xml", tag="sitemap") for name in ("z", "a", "resourcelist")]
    broken = document(names, "sitemapindex", links=site.up(), capability="resourcelist", at=at(10))
    if fault == "itself":
        site.serve("/set/resourcelist.xml", broken)
    else:
        kept = source.pages.pop("/set/a.xml")
    site.put("f1.txt", b"one, then")
    site.publish_changes(10)
    ran = go(source.base, dest)
    assert ran.status == SOURCE
    assert tree(dest)["f1.txt"] == b"one, then"
    site.drop("f0.txt")
    site.put("new.txt", b"new")
    site.drop("f4.txt")  # which only the missing part lists
    site.publish_changes(10)
    for _ in range(2):
        ran = go(source.base, dest, max_delete=1.0)
        assert ran.status == SOURCE
        assert "f0.txt" not in tree(dest)
        assert tree(dest)["new.txt"] == b"new"
    if fault == "itself":
        index(site, "z", "a")
    else:
        source.pages["/set/a.xml"] = kept
    assert (go(source.base, dest, max_delete=1.0).status, tree(dest)) == (DONE, dict(site.files))
    assert go(source.base, dest).one.process == "none"


@pytest.mark.parametrize("capabilities", [("resourcelist",), ("resourcelist", "changelist")])
def test_lists_in_a_list_are_no_resources(
    capabilities: tuple[str, ...], source: Source, site: Site, dest: Path
) -> None:
    """AMB-93: the entries tell an index from a list, whatever the root element is."""
    site.publish_capabilities(*capabilities)
    indexed(site)
    wrong = {
        path: Reply(source.reply(path).body.replace(one, other), etag=False)
        for path, one, other in (
            ("/set/resourcelist.xml", b"sitemapindex", b"urlset"),
            ("/set/a.xml", b"urlset", b"sitemapindex"),
        )
    }
    source.pages |= wrong
    ran = go(source.base, dest)
    assert (ran.status, tree(dest)) == (DONE, ALL)
    assert "AMB-93" in ran.rules()
    assert check(source.base, dest).verdict == "in sync"


def test_a_list_among_resources_is_left_out(source: Source, site: Site, dest: Path) -> None:
    """AMB-93, DST-F5: it is not copied, and the run does not end as if all were well."""
    part(site, "z", "f0.txt")
    entries = [site.resource(name) for name in list(site.files)[1:]]
    site.publish_list([*entries, url(f"{site.root}/z.xml", tag="sitemap")], when=10)
    assert go(source.base, dest).status == FAILED
    assert set(tree(dest)) == set(ALL) - {"f0.txt"}


def test_an_index_that_lists_itself(source: Source, site: Site, dest: Path) -> None:
    index(site, "resourcelist")
    ran = go(source.base, dest)
    assert ran.status == SOURCE
    assert tree(dest) == {}


def test_gzipped_documents(source: Source, site: Site, dest: Path) -> None:
    """AMB-14: both `.xml.gz` and a content coding."""
    page = source.reply("/set/resourcelist.xml")
    packed = gzip.compress(page.body)
    source.pages["/set/resourcelist.xml"] = Reply(packed, headers={"Content-Encoding": "gzip"})
    assert go(source.base, dest).status == DONE
    source.pages["/set/resourcelist.xml"] = Reply(packed)
    assert go(source.base, dest, baseline=True).status == DONE
    assert tree(dest) == ALL


def test_prefixes_and_order_do_not_matter(source: Source, site: Site, dest: Path) -> None:
    """AMB-04: a prefix on the root element, the root's `rs:md` last."""
    entries = "".join(f"<s:url><s:loc>{site.uri(name)}</s:loc></s:url>" for name in site.files)
    body = (
        '<s:urlset xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9" '
        f'xmlns:x="http://www.openarchives.org/rs/terms/">{entries}<x:md capability="resourcelist" at="{at(10)}"/>'
        "</s:urlset>"
    )
    source.pages["/set/resourcelist.xml"] = Reply(body.encode())
    assert go(source.base, dest).status == DONE
    assert tree(dest) == ALL


# deletions


def many(source: Source, count: int) -> Site:
    site = Site(source)
    for number in range(count):
        site.put(f"n{number:03d}", b"%d" % number)
    site.clock = 1000
    return site.publish(since=1000)


@pytest.mark.parametrize(
    ("held", "gone", "consent", "allowed"),
    [
        (30, 6, None, True),
        (60, 13, None, False),
        (3, 3, None, False),
        (30, 15, 0.5, True),
        (30, 1, 0.0, False),
    ],
)
@pytest.mark.parametrize("way", ["baseline", "increment"])
def test_the_guard(way: str, held: int, gone: int, consent: float | None, allowed: bool, source, dest) -> None:
    """DST-B4, DST-F9: held back, said, exit status 4; remembered, and done with consent (all cases: `test_guard`)."""
    site = many(source, held)
    assert go(source.base, dest).status == DONE
    for name in list(site.files)[:gone]:
        site.drop(name)
    if way == "increment":
        site.publish_changes(1000)
    else:
        site.publish_list()
    ran = go(source.base, dest, baseline=way == "baseline", max_delete=consent)
    if allowed:
        assert ran.status == DONE
        assert len(tree(dest)) == held - gone
        return
    assert ran.status == FAILED
    assert ran.one.held_back == gone
    assert len(tree(dest)) == held
    assert "DST-B4" in ran.rules()
    assert go(source.base, dest).status == (DONE if consent == 0.0 else FAILED)
    done = go(source.base, dest, max_delete=1.0)
    assert done.status == DONE
    assert len(tree(dest)) == held - gone
    assert go(source.base, dest).status == DONE


@pytest.mark.parametrize(("gone", "consent", "status"), [(5, None, DONE), (20, None, FAILED), (20, 1.0, DONE)])
def test_the_guard_of_a_first_copy(gone: int, consent: float | None, status: int, source: Source, dest: Path) -> None:
    """What the run itself has just copied is held: changes since the list may delete a share of it."""
    site = many(source, 30)
    served = dict(source.pages)
    for name in list(site.files)[:gone]:
        site.drop(name)
    site.publish_changes(1000)
    source.pages |= {path: page for path, page in served.items() if "/resources/" in path}  # gone a little later
    ran = go(source.base, dest, max_delete=consent)
    assert ran.status == status
    assert len(tree(dest)) == (30 - gone if status == DONE else 30)


def test_what_was_held_back_is_not_let_go_by_what_came_since(source: Source, site: Site, dest: Path) -> None:
    """DST-B4: all files replaced by others are held back until somebody consents, in every run."""
    assert go(source.base, dest).status == DONE
    for n in range(5):
        site.drop(f"f{n}.txt")
        site.put(f"g{n}.txt", b"g%d" % n)
    site.publish_changes()
    for _ in range(3):
        ran = go(source.base, dest)
        assert (ran.status, ran.one.deleted, ran.one.held_back) == (FAILED, 0, 5)
        assert len(tree(dest)) == 10
    ran = go(source.base, dest, max_delete=0.5)
    assert (ran.status, ran.one.deleted, ran.one.held_back) == (DONE, 5, 0)
    site.drop("g0.txt")
    site.publish_changes()
    assert (go(source.base, dest).one.deleted, len(tree(dest))) == (1, 4)


def test_what_comes_back_is_not_deleted(source: Source, dest: Path) -> None:
    site = many(source, 3)
    go(source.base, dest)
    for name in list(site.files):
        site.drop(name)
    site.publish_changes(1000)
    assert go(source.base, dest).status == FAILED
    site.put("n001", b"1")
    site.publish_changes(1000)
    go(source.base, dest)
    assert go(source.base, dest, max_delete=1.0).status == DONE
    assert tree(dest) == {"n001": b"1"}


def test_no_delete_and_then_delete(source: Source, site: Site, dest: Path) -> None:
    """RS-DST-04: removing is the destination's choice, and it may change its mind."""
    go(source.base, dest)
    site.drop("f0.txt")
    site.publish_changes(10)
    assert go(source.base, dest, delete=False).status == DONE
    assert "f0.txt" in tree(dest)
    assert go(source.base, dest).status == DONE
    assert "f0.txt" not in tree(dest)


def test_strangers_files_are_left_alone(source: Source, site: Site, dest: Path) -> None:
    dest.mkdir()
    (dest / "own.txt").write_bytes(b"mine")
    assert go(source.base, dest).status == DONE
    for name in list(site.files)[1:]:
        site.drop(name)
    site.publish_list()
    assert go(source.base, dest, baseline=True, max_delete=1.0).status == DONE
    assert tree(dest) == {"own.txt": b"mine", "f0.txt": b"body 0\n"}


def test_empty_folders_go(source: Source, site: Site, dest: Path) -> None:
    site.put("a/b/c/x", b"x")
    site.publish()
    go(source.base, dest)
    site.drop("a/b/c/x")
    site.publish_changes()
    assert go(source.base, dest).status == DONE
    assert not (dest / "a").exists()


@pytest.mark.parametrize("odd", [None, "g5/a%20b", "g5/.hidden", "g5"])
def test_one_name_among_plain_ones(source: Source, site: Site, dest: Path, odd: str | None) -> None:
    """Where all names but one are plain, and where a file has the name of a folder."""
    for number in range(7):
        site.put(f"g{number}/x{number}", b"%d" % number)
    if odd:
        site.put(odd, b"odd")
    site.publish()
    assert go(source.base, dest).status == DONE
    expected = {unquote(name): body for name, body in site.files.items()}
    if odd == "g5":
        expected.pop("g5")
    held = tree(dest)
    assert {name: body for name, body in held.items() if not name.startswith("%uri/")} == expected
    assert sorted(held.values()) == sorted(site.files.values())
    assert go(source.base, dest).status == DONE
    assert tree(dest) == held


# the copy itself


def test_a_copy_is_adopted(source: Source, site: Site, dest: Path) -> None:
    """DST-4.3: skip what is there already."""
    dest.mkdir()
    for name, body in ALL.items():
        (dest / name).write_bytes(body if name != "f3.txt" else b"bady 3\n")
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert ran.one.adopted == 4
    assert tree(dest) == ALL
    assert [p for p in source.requests() if "resources/" in p] == ["/set/resources/f3.txt"]


def test_dry_run_writes_nothing(source: Source, site: Site, dest: Path) -> None:
    ran = go(source.base, dest, dry_run=True)
    assert ran.status == DONE
    assert not dest.exists()
    assert sorted(action.path for action in ran.one.plan) == sorted(ALL)
    assert go(source.base, dest).status == DONE
    site.drop("f0.txt")
    site.put("f1.txt", b"new")
    site.publish_changes(10)
    before = sorted((str(p), p.stat().st_mtime_ns) for p in dest.rglob("*"))
    ran = go(source.base, dest, dry_run=True)
    assert {(a.action, a.path) for a in ran.one.plan} == {("update", "f1.txt"), ("delete", "f0.txt")}
    assert sorted((str(p), p.stat().st_mtime_ns) for p in dest.rglob("*")) == before


def test_a_second_run_is_locked_out(source: Source, site: Site, dest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destination_folder, "WAIT_SECONDS", 0.05)
    home = destination_folder.DestinationFolder(dest)
    home.prepare()
    try:
        assert go(source.base, dest).status == STORE
    finally:
        home.release()
    assert go(source.base, dest).status == DONE


def test_another_source_is_refused(source: Source, site: Site, dest: Path) -> None:
    assert go(source.base, dest).status == DONE
    with Source() as other:
        Site(other).publish()
        ran = go(other.base, dest)
        assert ran.status == USAGE
        assert ran.error is not None
        assert ran.error.code == "HW-SYN-07"
        with failing("HW-SYN-07"):
            check(other.base, dest)
    assert tree(dest) == ALL
    assert check(source.base, dest).verdict == "in sync"


def test_a_file_is_no_destination(source: Source, site: Site, dest: Path) -> None:
    dest.write_bytes(b"")
    ran = go(source.base, dest)
    assert ran.error is not None
    assert (ran.status, ran.error.code) == (USAGE, "HW-SYN-13")
    assert dest.read_bytes() == b""


@pytest.mark.parametrize("where", [".headwater", ".headwater/tmp"])
def test_what_stands_in_the_way_of_the_state_is_told_and_stays(
    where: str, source: Source, site: Site, dest: Path
) -> None:
    (dest / where).parent.mkdir(parents=True)
    (dest / where).write_bytes(b"mine")
    ran = go(source.base, dest)
    assert ran.error is not None
    assert (ran.status, ran.error.code) == (USAGE, "HW-SYN-13")
    assert (dest / where).read_bytes() == b"mine"


def test_a_first_run_that_comes_to_nothing_leaves_nothing_behind(source: Source, site: Site, dest: Path) -> None:
    """No folder that was not there; nothing less than before; and what was ever copied stays."""
    deep = dest / "not" / "there"
    assert go(source.base, deep, sets=("nonsense",)).status == USAGE
    assert not dest.exists()
    dest.mkdir()
    (dest / "mine").write_bytes(b"mine")
    assert go(source.base, dest, sets=("nonsense",)).status == USAGE
    assert [path.name for path in dest.rglob("*")] == ["mine"]
    assert go(source.base, dest).status == DONE
    assert go(source.base, dest, sets=("nonsense",)).status == USAGE
    assert (dest / ".headwater" / "state.sqlite").exists()
    assert tree(dest) == ALL | {"mine": b"mine"}


@pytest.mark.parametrize("fault", ["nobody is there", "no ResourceSync"])
def test_a_first_run_that_failed_by_its_source_is_told_of(
    fault: str, source: Source, site: Site, dest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """DST-F4: who looks after many copies sees it; the folder is free for another source, and for the same."""
    url = source.base if fault == "no ResourceSync" else "http://127.0.0.1:1/"
    pages = dict(source.pages)
    source.pages.clear()
    for count in (1, 2):
        assert go(url, dest).status == SOURCE
        assert run(["status", str(dest), "--json"]) == SOURCE
        told = json.loads(capsys.readouterr().out)
        assert (told["last_run"]["exit_status"], told["last_run"]["fault_count"]) == (SOURCE, count)
        assert told["last_run"]["fault"]
        assert told["source"].rstrip("/") == url.rstrip("/")
    assert run(["audit", url, str(dest)]) == SOURCE
    source.pages.update(pages)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == ALL
    assert run(["status", str(dest)]) == DONE


@pytest.mark.parametrize("shared", [False, True], ids=["after a sound run", "after a run that found no room"])
def test_status_and_audit_of_a_full_disk_and_one_that_is_read_only(
    shared: bool,
    source: Source,
    site: Site,
    dest: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They write nothing there, nor need room for their own copy of the state, and say what is lacking."""
    if os.geteuid() != 0:
        pytest.skip("needs to mount")
    dest.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(dest)], check=False).returncode:
        pytest.skip("cannot mount here")
    copy = dest / "copy"
    try:
        assert go(source.base, copy).status == DONE
        with suppress(OSError), (dest / "fill").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        if shared:
            site.put("more.txt", bytes(100_000))
            site.publish()
            assert go(source.base, copy).status == STORE
        (dest / "tmp").mkdir(exist_ok=True)
        monkeypatch.setattr("tempfile.tempdir", str(dest))
        assert run(["status", str(copy)]) == STORE
        told = capsys.readouterr().out
        assert "no room: 0 B left" in told
        assert "5 files" in told
        assert run(["audit", source.base, str(copy)]) == (FINDINGS if shared else DONE)
        assert "not an error" not in capsys.readouterr().err
        monkeypatch.undo()
        (dest / "fill").unlink()
        subprocess.run(["mount", "-o", "remount,ro", str(dest)], check=True)
        assert run(["status", str(copy)]) == STORE
        assert "read-only" in capsys.readouterr().out
        assert run(["audit", source.base, str(copy)]) == (FINDINGS if shared else DONE)
    finally:
        subprocess.run(["umount", "-l", str(dest)], check=True)


def test_failures_of_a_first_run_are_remembered(source: Source, site: Site, dest: Path) -> None:
    """What could not be transferred is something: its clock runs (DST-F6)."""
    site.put("gone", b"gone")
    site.publish()
    del source.pages["/set/resources/gone"]
    assert go(source.base, dest, include=("gone",)).status == FAILED
    assert (dest / ".headwater" / "state.sqlite").exists()


def test_a_newer_state_is_left_alone(source: Source, site: Site, dest: Path) -> None:
    go(source.base, dest)
    import sqlite3

    with closing(sqlite3.connect(dest / ".headwater" / "state.sqlite")) as state, state:
        state.execute("PRAGMA user_version = 99")
    state.close()
    assert go(source.base, dest).status == STORE


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission(source: Source, site: Site, dest: Path) -> None:
    dest.mkdir(mode=0o500)
    assert go(source.base, dest).status == STORE


def test_a_full_disk(source: Source, site: Site, dest: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs to mount")
    dest.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(dest)], check=False).returncode:
        pytest.skip("cannot mount here")
    try:
        site.put("big", bytes(3 << 20))
        site.publish()
        assert go(source.base, dest).status == STORE
    finally:
        subprocess.run(["umount", str(dest)], check=True)


ROOM = 8 << 20


def _unlisted(site: Site, name: str, body: bytes) -> str:
    """The entry of a resource of which the list states nothing."""
    site.put(name, body)
    return url(site.uri(name))


def _without_end(site: Site) -> list[str]:
    site.source.pages["/set/resources/endless"] = endless()
    return [url(site.uri("endless"))]


def _many(site: Site) -> list[str]:
    return [_unlisted(site, f"m{number}", bytes([number]) * (3 << 20)) for number in range(10)]


def _small(site: Site) -> list[str]:
    return [_unlisted(site, f"s{number}", bytes([number % 256]) * 60_000) for number in range(400)]


def _stated(site: Site) -> list[str]:
    site.put("big", bytes(2 * ROOM))
    return [site.resource("big")]


def _in_gzip(site: Site) -> list[str]:
    site.source.pages["/set/resources/zeros"] = Reply(
        gzip.compress(bytes(4 * ROOM)), headers={"Content-Encoding": "gzip"}
    )
    return [url(site.uri("zeros"))]


def _give_disk(monkeypatch: pytest.MonkeyPatch, dest: Path, octets: int) -> None:
    """Let the copy lie on a disk of so many octets, which its files alone fill (not the state beside them)."""

    def free(_place: object) -> int:
        return octets - sum(path.stat().st_size for path in dest.rglob("*") if path.suffix[:7] != ".sqlite")

    monkeypatch.setattr(file_copies, "free_octets", free)


FILLING = [_without_end, _many, _small, _stated, _in_gzip]


@pytest.mark.parametrize("bound", ["keep_free", "max_total"])
@pytest.mark.parametrize("filling", FILLING)
def test_a_source_cannot_fill_the_disk(
    filling: Callable[[Site], list[str]],
    bound: str,
    source: Source,
    site: Site,
    dest: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy leaves room on its disk, and is no larger than it may be; what was begun is removed."""

    _give_disk(monkeypatch, dest, 10 * ROOM if bound == "keep_free" else 1 << 40)
    octets = ROOM if bound == "max_total" else 9 * ROOM
    entries = [site.resource(name) for name in site.files]
    site.publish()
    site.publish_list(entries + filling(site))
    source.forget()
    bounds: dict[str, Any] = {bound: octets}
    ran = go(source.base, dest, **bounds)
    assert (ran.status, ran.error and ran.error.code in ("HW-SYN-10", "HW-SYN-23")) == (STORE, True)
    assert sum(map(len, tree(dest).values())) <= ROOM + (2 << 20)
    assert "--keep-free" in str(ran.error and ran.error.todo)
    asked = [path for path in source.requests() if "/resources/big" in path]
    assert not asked
    again = go(source.base, dest, exclude=("endless", "m*", "s*", "big", "zeros"), **bounds)
    assert again.status == DONE, again
    assert is_clean(dest)


def test_what_is_replaced_or_deleted_makes_room(source: Source, site: Site, dest: Path) -> None:
    """The bound is on what the copy has in the end, not on what ever came."""
    for number in range(4):
        site.put(f"b{number}", bytes(2 << 20))
    since = site.clock
    site.publish(since=since)
    assert go(source.base, dest, max_total=ROOM + 1000).status == DONE
    for round_ in range(3):
        for number in range(4):
            site.put(f"b{number}", bytes([round_ + 1]) * (2 << 20))
        site.publish_changes(since)
        assert go(source.base, dest, max_total=ROOM + 1000).status == DONE
    site.drop("b0")
    site.publish_changes(since)
    assert go(source.base, dest, max_total=ROOM + 1000).status == DONE
    site.put("c", bytes(2 << 20))
    site.put("d", bytes(2 << 20))
    site.publish_changes(since)
    ran = go(source.base, dest, max_total=ROOM + 1000)
    assert (ran.status, ran.error and ran.error.code) == (STORE, "HW-SYN-23")


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("bound", ["keep_free", "max_total"])
def test_what_is_deleted_makes_room_for_what_comes(
    bound: str, is_known: bool, source: Source, site: Site, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one list: the deletions come first where nothing else has room; never where that is not enough."""

    _give_disk(monkeypatch, dest, 10 * ROOM if bound == "keep_free" else 1 << 40)
    octets = ROOM + (1 << 20)
    bounds: dict[str, Any] = {bound: octets if bound == "max_total" else 10 * ROOM - octets, "max_delete": 1.0}

    def ran() -> Ran:
        stated = {} if is_known else {"length": None, "hash": None}
        site.publish_list([site.resource(name, **stated) for name in site.files])
        return go(source.base, dest, baseline=True, **bounds)

    for number in range(4):
        site.put(f"b{number}", bytes(2 << 20))
    site.publish_capabilities("resourcelist")
    site.publish_description()
    assert ran().status == DONE
    before = tree(dest)
    site.drop("b0")
    for name in ("c", "d"):
        site.put(name, bytes(2 << 20))
    if is_known:
        assert ran().status == STORE
        assert tree(dest) == before
    site.drop("d")
    assert (ran().status, tree(dest)) == (DONE, site.files)


@pytest.mark.parametrize("repair", [True, False])
def test_a_lost_file_counts_once(repair: bool, source: Source, site: Site, dest: Path) -> None:
    """A copy that is as large as it may be gets its lost and its cut files back, and no more than it may have."""
    for number in range(4):
        site.put(f"b{number}", bytes([number]) * (2 << 20))
    site.publish(since=site.clock)
    bounds: dict[str, Any] = {"max_total": sum(map(len, site.files.values())), "keep_free": 0}
    assert go(source.base, dest, **bounds).status == DONE
    (dest / "b0").unlink()
    (dest / "b1").write_bytes(b"cut")
    (dest / "b2").write_bytes(bytes(5 << 20))
    ran = go(source.base, dest, repair=repair, baseline=not repair, **bounds)
    assert (ran.status, tree(dest)) == (DONE, site.files)
    site.put("more", b"1")
    site.publish()
    assert go(source.base, dest, baseline=True, **bounds).status == STORE


def test_without_an_option_a_copy_leaves_a_part_of_a_small_disk(source: Source, site: Site, dest: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs to mount")
    dest.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(dest)], check=False).returncode:
        pytest.skip("cannot mount here")
    try:
        site.publish()
        site.publish_list(_without_end(site))
        assert go(source.base, dest).status == STORE
        found = os.statvfs(dest)
        assert found.f_bavail * found.f_frsize >= 2 << 20
        site.publish_list([_unlisted(site, "m", bytes(39 << 20))])
        assert go(source.base, dest).status == STORE
        assert go(source.base, dest, keep_free=0).status == DONE
    finally:
        subprocess.run(["umount", str(dest)], check=True)


def test_a_vanished_file_comes_back_with_repair(source: Source, site: Site, dest: Path) -> None:
    go(source.base, dest)
    (dest / "f0.txt").unlink()
    (dest / "f1.txt").write_bytes(b"edited")
    assert check(source.base, dest).verdict == "not in sync"
    assert go(source.base, dest, repair=True).status == DONE
    assert tree(dest) == ALL
    assert check(source.base, dest).verdict == "in sync"


def test_a_baseline_sees_what_was_edited(source: Source, site: Site, dest: Path) -> None:
    go(source.base, dest)
    (dest / "f0.txt").unlink()
    (dest / "f1.txt").write_bytes(b"edited!")
    assert go(source.base, dest, baseline=True).status == DONE
    assert tree(dest) == ALL


# choice


def test_include_and_exclude(source: Source, site: Site, dest: Path) -> None:
    assert go(source.base, dest, include=("f[0-2]*",), exclude=("f1.txt",)).status == DONE
    assert set(tree(dest)) == {"f0.txt", "f2.txt"}
    assert check(source.base, dest).verdict == "in sync"
    assert go(source.base, dest).status == DONE
    assert tree(dest) == ALL


def test_filters_that_leave_out_all_are_told(source: Source, site: Site, dest: Path) -> None:
    """A pattern that was mistyped copies nothing, and all of that is in sync (DST-S12)."""
    for dry in (True, False):
        ran = go(source.base, dest, include=("g*",), dry_run=dry)
        assert ran.status == DONE
        assert any("leave out all" in one.message for one in ran.notices), ran.notices
    told = check(source.base, dest)
    assert (told.verdict, told.sets[0].reason) == ("in sync", "the filters leave out all that is listed")
    for number, (include, exclude) in enumerate([(("f0*",), ()), ((), ("f0*",)), ((), ())]):
        for dry in (True, False):
            ran = go(source.base, dest / str(number), dry_run=dry, include=include, exclude=exclude)
            assert not any("leave out all" in one.message for one in ran.notices), ran.notices
        assert check(source.base, dest / str(number)).sets[0].reason is None


def test_sets(source: Source, dest: Path, tmp_path: Path) -> None:
    one, two = Site(source, "one"), Site(source, "two")
    one.put("x", b"1")
    two.put("x", b"2")
    one.publish()
    two.publish()
    one.publish_description("one", "two")
    assert go(source.base, dest).status == DONE
    assert tree(dest) == {"one/x": b"1", "two/x": b"2"}
    assert check(source.base, dest).verdict == "in sync"
    other = tmp_path / "other"
    assert go(source.base, other, sets=("two",)).status == DONE
    assert tree(other) == {"two/x": b"2"}
    assert go(source.base, other, sets=("three",)).status == USAGE
    two.serve("/two/capabilitylist.xml", b"")
    one.put("y", b"y")
    one.publish_changes()
    go(source.base, dest)
    assert tree(dest)["one/y"] == b"y"


def test_one_broken_set_does_not_stop_the_others(source: Source, dest: Path) -> None:
    one, two = Site(source, "one"), Site(source, "two")
    one.put("x", b"1")
    one.publish()
    two.publish()
    del source.pages["/two/resourcelist.xml"]
    one.publish_description("two", "one", "three")
    ran = go(source.base, dest)
    assert ran.status == SOURCE
    assert tree(dest) == {"one/x": b"1"}


def test_a_base_of_ones_own(source: Source, site: Site, dest: Path) -> None:
    assert go(source.base, dest, base=f"{source.base}/").status == DONE
    assert set(tree(dest)) == {f"set/resources/{name}" for name in ALL}
    assert go(source.base, dest, base=f"{source.base}/set/").status == USAGE


def test_the_common_folder_is_the_base(source: Source, site: Site, dest: Path) -> None:
    entries = []
    for name in ("data/a/1", "data/b/2"):
        source.pages[f"/{name}"] = Reply(name.encode())
        entries.append(url(f"{source.base}/{name}"))
    site.publish_list(entries)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == {"a/1": b"data/a/1", "b/2": b"data/b/2"}


@pytest.mark.parametrize("name", ["resourcelist.xml", "changelist.xml"])
def test_a_304_that_nobody_asked_for_is_no_document(name: str, source: Source, site: Site, dest: Path) -> None:
    """DST-B1, DST-C1: an unconditional request that is answered "unchanged" has told nothing."""
    source.pages[f"/set/{name}"] = Reply(b"", 304)
    assert go(source.base, dest).status == SOURCE


def test_a_run_that_meets_its_deadline_goes_on_the_next_time(
    source: Source, site: Site, dest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was done by then holds, `status` says why it ended, and nothing is lost."""

    def drip(handler: Handler) -> None:
        handler.send(b"HTTP/1.1 200 OK\r\nContent-Length: 600\r\n\r\n")
        with suppress(OSError):
            for _ in range(60):
                time.sleep(0.5)
                handler.send(b"x" * 10)

    sound = source.pages["/set/resources/f2.txt"]
    source.pages["/set/resources/f2.txt"] = Reply(script=drip)
    began = time.monotonic()
    assert run(["sync", "--deadline", "2", source.base, str(dest)]) == SOURCE
    assert time.monotonic() - began < 15
    assert "the deadline of 2.00 s has passed" in capsys.readouterr().err
    assert run(["status", str(dest)]) == SOURCE
    assert "the deadline of 2.00 s has passed" in capsys.readouterr().out
    source.pages["/set/resources/f2.txt"] = sound
    source.forget()
    assert go(source.base, dest).status == DONE
    assert tree(dest) == ALL
    assert run(["status", str(dest)]) == DONE
