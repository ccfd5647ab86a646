"""What goes wrong with single resources: the rest goes through, nothing wrong is kept, everything is remembered.

DST-V, DST-S2, DST-S11, DST-S12, DST-F1, DST-F2, DST-F3, DST-F5, DST-F6, DST-F10, DST-F11, AMB-16.
"""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.copying import DONE, FAILED, go, is_clean, tree
from tests.support.documents import zeros_in_gzip
from tests.support.fake_source import (
    Page,
    Reply,
    Site,
    Source,
    at,
    coded,
    endless,
    ln,
    md,
    redirect,
    reset,
    sha,
    sometimes,
    truncated,
    url,
)
from tests.support.waiting import START

BODY = b"body 2\n"
PATH = "/set/resources/f2.txt"
OTHERS = {f"f{n}.txt": b"body %d\n" % n for n in (0, 1, 3, 4)}


def early() -> dict[str, str]:
    return {"Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}


FAILURES: dict[str, Callable[[], Reply]] = {
    "truncated body": lambda: truncated(BODY, 3),
    "wrong bytes, same length": lambda: Reply(b"bodx 2\n", headers=early()),
    "wrong length": lambda: Reply(b"body 2\nmore", headers=early()),
    "empty instead": lambda: Reply(b"", headers=early()),
    "404": lambda: Reply(b"<html>not here</html>", 404),
    "410": lambda: Reply(b"", 410),
    "403": lambda: Reply(b"", 403),
    "401": lambda: Reply(b"", 401),
    "500 for good": lambda: Reply(b"", 500),
    "503 for good": lambda: Reply(b"", 503),
    "429 with a long wait": lambda: Reply(b"", 429, {"Retry-After": "3600"}),
    "204": lambda: Reply(b"", 204),
    "206 nobody asked for": lambda: Reply(BODY, 206),
    "304 nobody asked for": lambda: Reply(b"", 304),
    "a redirect loop": lambda: redirect(PATH),
    "a redirect to nowhere": lambda: redirect("http://127.0.0.1:1/x"),
    "a redirect to a file": lambda: redirect("file:///etc/passwd"),
    "a redirect without a target": lambda: Reply(b"", 302),
    "connection reset": reset,
    "soft 404": lambda: Reply(b"<html>we are sorry</html>", headers=early() | {"Content-Type": "text/html"}),
    "endless body": endless,
    "not HTTP": lambda: Reply(script=lambda h: h.send(b"SSH-2.0-OpenSSH_9\r\n")),
    "damaged gzip": lambda: Reply(b"\x1f\x8b\x08garbage", headers=early() | {"Content-Encoding": "gzip"}),
    "unknown coding": lambda: Reply(b"zzz", headers=early() | {"Content-Encoding": "zstd"}),
}


@pytest.mark.parametrize("name", FAILURES)
def test_one_failure_is_remembered_and_stops_nothing(name: str, source: Source, site: Site, dest: Path) -> None:
    """DST-F6: the others go through, nothing half is left, the next run tries again and ends well."""
    good = source.pages[PATH]
    source.pages[PATH] = FAILURES[name]()
    ran = go(source.base, dest)
    assert ran.status == FAILED
    assert tree(dest) == OTHERS
    assert is_clean(dest)
    assert [failed.uri for failed in ran.one.failures] == [f"{source.base}{PATH}"]
    if name == "429 with a long wait":
        return
    source.pages[PATH] = good
    again = go(source.base, dest)
    assert again.status == DONE
    assert tree(dest) == OTHERS | {"f2.txt": BODY}
    assert again.one.failed == 0


@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_update_keeps_the_old_copy(name: str, source: Source, site: Site, dest: Path) -> None:
    """DST-V5, DST-5.3: a bad answer never replaces a good copy; the position moves all the same (DST-F6)."""
    assert go(source.base, dest).status == DONE
    site.put("f2.txt", b"better")
    site.put("f0.txt", b"other")
    site.publish_changes(since=10.0)
    source.pages[PATH] = FAILURES[name]()
    ran = go(source.base, dest)
    assert ran.status == FAILED
    assert tree(dest) == OTHERS | {"f2.txt": BODY, "f0.txt": b"other"}
    assert ran.one.position == at(site.clock)
    assert is_clean(dest)


def test_retry_after_is_waited_for_between_runs(source: Source, site: Site, dest: Path) -> None:
    """DST-F6: a single run tries every failure again, save where a Retry-After has not passed."""
    source.pages[PATH] = Reply(b"", 503, {"Retry-After": "3600"})
    assert go(source.base, dest).status == FAILED
    source.pages[PATH] = Reply(BODY)
    source.forget()
    assert go(source.base, dest).status == FAILED
    assert source.requests(PATH) == []


@pytest.mark.parametrize("first", [Reply(b"", 503), Reply(b"", 429, {"Retry-After": "0"}), reset(), truncated(BODY)])
def test_a_passing_failure_is_not_even_seen(first: Reply, source: Source, site: Site, dest: Path) -> None:
    """DST-F1."""
    source.pages[PATH] = sometimes(1, first, Reply(BODY))
    assert go(source.base, dest).status == DONE
    assert tree(dest) == OTHERS | {"f2.txt": BODY}


def test_a_stale_cache_is_passed_by(source: Source, site: Site, dest: Path) -> None:
    """DST-5.3: what differs is fetched again past all caches."""
    asked = []

    def cache(handler) -> Reply:
        asked.append(handler.headers.get("Cache-Control"))
        return Reply(BODY if asked[-1] == "no-cache" else b"old bytes", headers=early())

    source.pages[PATH] = cache
    assert go(source.base, dest).status == DONE
    assert tree(dest)["f2.txt"] == BODY
    assert asked == [None, "no-cache"]


# codings (AMB-16)


def listed(source: Source, site: Site, body: bytes, **more: Any) -> None:
    entries = [site.resource(name) for name in site.files if name != "f2.txt"]
    entries.append(url(site.uri("f2.txt"), at(0), hash=sha(body), length=len(body), **more))
    site.publish_list(entries)


def test_gzip_nobody_asked_for_is_taken_off(source: Source, site: Site, dest: Path) -> None:
    source.pages[PATH] = coded(BODY)
    assert go(source.base, dest).status == DONE
    assert tree(dest)["f2.txt"] == BODY
    assert is_clean(dest)


def test_gzip_that_the_hash_is_of_is_kept(source: Source, site: Site, dest: Path) -> None:
    packed = gzip.compress(BODY, mtime=0)
    listed(source, site, packed, encoding="gzip")
    source.pages[PATH] = coded(BODY)
    assert go(source.base, dest).status == DONE
    assert tree(dest)["f2.txt"] == packed


def test_gzip_without_anything_to_check_is_taken_off(source: Source, site: Site, dest: Path) -> None:
    site.publish_list([site.resource(n) for n in OTHERS] + [url(site.uri("f2.txt"))])
    source.pages[PATH] = coded(BODY)
    assert go(source.base, dest).status == DONE
    assert tree(dest)["f2.txt"] == BODY


NO_CODINGS = [
    "binary", "none", "utf-8", "UTF8", "ISO-8859-1", "us-ascii", "aws-chunked", "8bit", "identity", "", "zip", "base64",
    "text/plain", "application/json", "utf-8, aws-chunked", "null", "chunked",
]  # fmt: skip


@pytest.mark.parametrize("is_listed", [True, False], ids=["hash", "no hash"])
@pytest.mark.parametrize("name", NO_CODINGS)
def test_amb_98_a_coding_that_is_none_is_ignored(
    name: str, is_listed: bool, source: Source, site: Site, dest: Path
) -> None:
    """Alone, and beside a real one; what storage services were once given they send with every answer."""
    if not is_listed:
        site.publish_list([url(site.uri(one)) for one in site.files])
    source.pages[PATH] = Reply(BODY, headers=early() | {"Content-Encoding": name})
    packed = gzip.compress(BODY)
    source.pages[f"{PATH[:-6]}f0.txt"] = Reply(packed, headers=early() | {"Content-Encoding": f"{name},gzip"})
    site.files["f0.txt"] = BODY
    if is_listed:
        site.publish_list()
    assert go(source.base, dest).status == DONE
    assert tree(dest) == OTHERS | {"f2.txt": BODY, "f0.txt": BODY}


@pytest.mark.parametrize(
    ("header", "body"),
    [
        ("gzip, gzip", gzip.compress(gzip.compress(BODY))),
        ("gzip, gzip", gzip.compress(BODY)),
        ("x-gzip, aws-chunked", gzip.compress(BODY)),
        ("deflate, gzip", gzip.compress(zlib.compress(BODY))),
        ("utf-8,X-GZIP", gzip.compress(BODY)),
    ],
    ids=["twice", "once", "x-gzip", "deflate", "capitals"],
)
@pytest.mark.parametrize("is_listed", [True, False], ids=["hash", "no hash"])
def test_amb_98_several_codings_are_taken_off(
    header: str, body: bytes, is_listed: bool, source: Source, site: Site, dest: Path
) -> None:
    if not is_listed:
        site.publish_list([url(site.uri(one)) for one in site.files])
    source.pages[PATH] = Reply(body, headers=early() | {"Content-Encoding": header})
    assert go(source.base, dest).status == DONE
    assert tree(dest) == OTHERS | {"f2.txt": BODY}


@pytest.mark.parametrize("name", ["br", "zstd", "compress", "klingon", "gzip, br", "gzip, gzip, gzip"])
def test_amb_98_an_unknown_coding_is_named_unless_the_hash_proves_the_octets(
    name: str, source: Source, site: Site, dest: Path, tmp_path: Path
) -> None:
    source.pages[PATH] = Reply(BODY, headers=early() | {"Content-Encoding": name})
    assert go(source.base, dest).status == DONE
    assert tree(dest) == OTHERS | {"f2.txt": BODY}
    for entries in (None, [url(site.uri(one)) for one in site.files]):
        site.publish_list(entries)
        source.pages[PATH] = Reply(b"\x8b\x02\x80", headers=early() | {"Content-Encoding": name})
        ran = go(source.base, tmp_path / f"other{entries is None}")
        assert ran.status == FAILED
        assert f"content coding {name}: unknown" in ran.one.failures[0].reason


def test_a_gzip_bomb_is_a_failure(source: Source, site: Site, dest: Path) -> None:
    site.publish_list([site.resource(n) for n in OTHERS] + [url(site.uri("f2.txt"), length=100)])
    source.pages[PATH] = Reply(zeros_in_gzip(300), headers={"Content-Encoding": "gzip"} | early())
    assert go(source.base, dest).status == FAILED
    assert tree(dest) == OTHERS
    assert is_clean(dest)


def test_gzip_of_empty_members_is_a_failure(source: Source, site: Site, dest: Path) -> None:
    site.publish_list([site.resource(n) for n in OTHERS] + [url(site.uri("f2.txt"))])
    empty = gzip.compress(b"", mtime=0)
    source.pages[PATH] = Reply(empty * 200_001 + gzip.compress(BODY), headers={"Content-Encoding": "gzip"} | early())
    ran = go(source.base, dest)
    assert ran.status == FAILED
    assert "too many members" in ran.one.failures[0].reason
    source.pages[PATH] = Reply(empty * 1_000 + gzip.compress(BODY), headers={"Content-Encoding": "gzip"} | early())
    assert go(source.base, dest).status == DONE
    assert tree(dest)["f2.txt"] == BODY


# hashes


def with_hash(site: Site, value: str) -> None:
    entries = [site.resource(n) for n in OTHERS]
    entries.append(url(site.uri("f2.txt"), at(0), hash=value, length=len(BODY)))
    site.publish_list(entries)


MD5, SHA1 = hashlib.md5(BODY).hexdigest(), hashlib.sha1(BODY).hexdigest()
SHA256, SHA512 = hashlib.sha256(BODY).hexdigest(), hashlib.sha512(BODY).hexdigest()


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (f"md5:{MD5}", DONE),
        (f"MD5:{MD5.upper()}", DONE),
        (f"md5:{MD5}\n  sha-256:{SHA256}", DONE),
        (f"sha256:{SHA256}", DONE),
        (f"urn:sha1:{SHA1}", DONE),
        (MD5, DONE),
        (f"sha-512:{SHA512} md5:{'0' * 32}", DONE),  # the strongest decides
        (f"md5:{MD5} sha-256:{'0' * 64}", FAILED),  # never the weaker one that fits
        (f"sha-1:{SHA1} sha-256:{'0' * 64}", FAILED),
        (f"sha-256:{'0' * 64} sha-1:{SHA1}", FAILED),
        (f"sha-1:{'0' * 40} {sha(BODY)}", DONE),
        (f"{sha(BODY)} sha-256:{'0' * 64}", DONE),  # of two of one algorithm the first
        (f"sha-256:{'0' * 64} {sha(BODY)}", FAILED),
        ("whirlpool:abc", DONE),  # not verifiable is no failure
        ("sha-256:not-hex-at-all", DONE),
        ("", DONE),
    ],
)
def test_hashes(value: str, status: int, source: Source, site: Site, dest: Path) -> None:
    """DST-V1, AMB-28, AMB-32."""
    with_hash(site, value)
    source.pages[PATH] = Reply(BODY, headers=early())
    assert go(source.base, dest).status == status
    assert ("f2.txt" in tree(dest)) == (status == DONE)


# warnings


@pytest.mark.parametrize(
    ("listed", "sent", "told"),
    [
        ({"type": "text/plain"}, {"Content-Type": "text/html"}, True),
        ({"type": "text/plain"}, {"Content-Type": "TEXT/Plain; charset=utf-8"}, False),
        ({"type": "text/plain; charset=utf-8"}, {"Content-Type": "text/plain"}, False),
        ({"type": "text/plain"}, {}, False),
        ({"type": "application/xml"}, {"Content-Type": "text/xml"}, False),
        ({}, {"Content-Type": "text/html"}, False),
    ],
)
def test_another_media_type_is_told(
    listed: dict[str, str], sent: dict[str, str], told: bool, source: Source, site: Site, dest: Path
) -> None:
    """DST-V3: by type and subtype alone, and no failure."""
    site.publish_list([site.resource(n) for n in OTHERS] + [site.resource("f2.txt", **listed)])
    source.pages[PATH] = Reply(BODY, headers=sent)
    ran = go(source.base, dest)
    assert (ran.status, "DST-V3" in ran.rules(), tree(dest)["f2.txt"]) == (DONE, told, BODY)


ERROR_PAGE = b"<!DOCTYPE html><title>Database error</title>"
PAGES: dict[str, tuple[str, str | None, str | None, bool]] = {
    # name, media type that is listed, media type that was sent, whether it is taken
    "XML is listed": ("record/1", "application/xml", "text/html; charset=utf-8", False),
    "RDF/XML is listed": ("record/1", "application/rdf+xml; charset=utf-8", "Text/HTML", False),
    "Turtle is listed": ("record/1", "text/turtle", "text/html", False),
    "JSON-LD is listed": ("record/1", "application/ld+json", "text/html", False),
    "an image is listed": ("record/1.html", "image/png", "text/html", False),
    "an archive is listed": ("record/1", "application/zip", "text/html", False),
    "the name says PDF": ("paper.PDF", None, "text/html", False),
    "the name says XML, the type nothing": ("record.xml", "application/octet-stream", "text/html", False),
    "the name of a compressed file": ("data.nt.gz", None, "text/html", False),
    "HTML is listed": ("record.xml", "text/html", "text/html", True),
    "XHTML is listed": ("record/1", "application/xhtml+xml", "text/html", True),
    "plain text is listed": ("record/1", "text/plain", "text/html", True),
    "neither says anything": ("record/1", None, "text/html", True),
    "a page by its name": ("xml.html", None, "text/html", True),
    "a query that looks like a name": ("show?file=a.xml", None, "text/html", True),
    "XML was sent": ("record.xml", "application/xml", "text/xml", True),
    "no type was sent": ("record.xml", "application/xml", None, True),
}


@pytest.mark.parametrize("held", [False, True], ids=["at first", "as an update"])
@pytest.mark.parametrize(("name", "listed", "sent", "taken"), PAGES.values(), ids=PAGES)
def test_an_error_page_is_no_content(
    name: str, listed: str | None, sent: str | None, taken: bool, held: bool, source: Source, site: Site, dest: Path
) -> None:
    """AMB-94: where nothing listed verifies it; what is held stays, and the option takes it."""
    where = f"/set/resources/{name}"
    entry = {"hash": None, "length": None, "type": listed}
    site.files.clear()
    if held:
        site.put(name, b"<record/>")
        site.publish_list([site.resource(name, **entry)])
        assert go(source.base, dest).status == DONE
    site.put(name, ERROR_PAGE)
    site.publish_list([site.resource(name, **entry, lastmod=at(50))], when=60)
    source.pages[where] = Reply(ERROR_PAGE, headers={} if sent is None else {"Content-Type": sent})
    ran = go(source.base, dest, baseline=True)
    assert ran.status == (DONE if taken else FAILED)
    assert list(tree(dest).values()) == ([ERROR_PAGE] if taken else [b"<record/>"] if held else [])
    if not taken:
        assert "a page of HTML was sent" in ran.one.failures[0].reason
        assert go(source.base, dest, accept_html=True).status == DONE
        assert list(tree(dest).values()) == [ERROR_PAGE]


@pytest.mark.parametrize("more", [{"hash": sha(ERROR_PAGE)}, {"length": len(ERROR_PAGE)}], ids=["hash", "length"])
def test_what_a_list_verifies_may_be_a_page(more: dict[str, Any], source: Source, site: Site, dest: Path) -> None:
    """AMB-94: the source says itself that this is the resource."""
    site.put("a.xml", ERROR_PAGE)
    site.publish_list([site.resource("a.xml", **({"hash": None, "length": None, "type": "application/xml"} | more))])
    source.pages["/set/resources/a.xml"] = Reply(ERROR_PAGE, headers={"Content-Type": "text/html"})
    assert go(source.base, dest).status == DONE
    assert tree(dest)["a.xml"] == ERROR_PAGE


@pytest.mark.parametrize(
    ("modified", "told"),
    [
        (START, None),
        (START + dt.timedelta(seconds=1), "later"),
        (START - dt.timedelta(seconds=1), "older"),
        (None, None),
    ],
)
def test_another_time_is_told(
    modified: dt.datetime | None, told: str | None, source: Source, site: Site, dest: Path
) -> None:
    """DST-V4: at one-second precision, and no failure where the octets are those that are listed."""
    site.publish_list([site.resource("f2.txt")])
    source.pages[PATH] = Reply(BODY, modified=modified)
    ran = go(source.base, dest)
    assert ran.status == DONE
    said = [notice.message for notice in ran.notices if notice.rule == "DST-V4"]
    assert said == ([f"Last-Modified is {told} than the lastmod listed"] if told else [])


# mirrors


def mirrored(source: Source, site: Site, *mirrors: tuple[str, int | None], check: bool = True) -> None:
    links = "".join(
        ln("duplicate", href if ":" in href else f"{source.base}{href}", **({} if pri is None else {"pri": pri}))
        for href, pri in mirrors
    )
    known: dict[str, Any] = {"hash": sha(BODY), "length": len(BODY)} if check else {}
    site.publish_list([site.resource(n) for n in OTHERS] + [url(site.uri("f2.txt"), links=links, **known)])


def test_mirrors_stand_in_by_priority(source: Source, site: Site, dest: Path) -> None:
    """DST-S2."""
    mirrored(source, site, ("/m3", None), ("/m2", 5), ("/m1", 1), ("ftp://example.org/x", 1))
    source.pages[PATH] = Reply(b"", 404)
    source.pages["/m1"] = Reply(b"wrong", headers=early())
    source.pages["/m2"] = Reply(BODY)
    source.pages["/m3"] = Reply(BODY)
    source.forget()
    assert go(source.base, dest).status == DONE
    assert [path for path in source.requests() if path.startswith("/m")] == ["/m1", "/m2"]
    assert tree(dest)["f2.txt"] == BODY


def test_a_mirror_that_cannot_be_checked_is_not_used(source: Source, site: Site, dest: Path) -> None:
    mirrored(source, site, ("/m1", 1), check=False)
    source.pages[PATH] = Reply(b"", 404)
    source.pages["/m1"] = Reply(b"anything")
    assert go(source.base, dest).status == FAILED
    assert source.requests("/m1") == []


# redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed_and_the_name_stays(status: int, source: Source, site: Site, dest: Path) -> None:
    """DST-F10: identity stays the listed URI."""
    source.pages[PATH] = redirect("/elsewhere", status)
    source.pages["/elsewhere"] = Reply(BODY)
    assert go(source.base, dest).status == DONE
    assert tree(dest)["f2.txt"] == BODY


def test_a_token_stays_with_its_origin(source: Source, site: Site, dest: Path) -> None:
    """A token goes to one origin, also across redirects."""
    with Source() as other:
        other.pages["/x"] = Reply(BODY)
        source.pages[PATH] = redirect(f"{other.base}/x")
        from headwater.transport.access import SignInCredentials
        from headwater.transport.fetch import TransportOptions

        options = TransportOptions(retries=0, credentials=SignInCredentials(source.base, "Bearer secret"))
        assert go(source.base, dest, options, any_host=True).status == DONE
        assert other.requests() == ["/x"]
        assert all("Authorization" not in headers for _, headers in other.log)
        assert all(headers.get("Authorization") == "Bearer secret" for _, headers in source.log)


# what is listed


HOSTILE = [
    "file:///etc/passwd",
    "ftp://127.0.0.1/x",
    "javascript:alert(1)",
    "http://user:secret@127.0.0.1/x",
    "http://169.254.169.254/latest/meta-data",
    "http://other.example/x",
    "http://127.0.0.1:1/x",
    "http://[::1/x",
    "http:///x",
    "data:text/plain,hello",
    "http://127.0.0.1:99999/x",
    "x" * 40_000,
]


@pytest.mark.parametrize("loc", HOSTILE)
def test_refused_uris_are_not_asked_for(loc: str, source: Source, site: Site, dest: Path) -> None:
    """DST-S12: refused, counted, said, and no copy of all; the others go through."""
    site.publish_list([url(loc, hash=sha(BODY)), *(site.resource(n) for n in site.files)])
    ran = go(source.base, dest)
    assert ran.status == FAILED
    assert (ran.one.refused, ran.one.failed) == (1, 0)
    assert "DST-S12" in ran.rules()
    assert tree(dest) == OTHERS | {"f2.txt": BODY}


def test_a_name_in_a_uri_of_the_source_itself_is_refused(source: Source, site: Site, dest: Path) -> None:
    """DST-S12: refused before it is asked for, and not a failure of the source."""
    named = site.uri("f2.txt").replace("http://", "http://user:secret@")
    site.publish_list([*(site.resource(n) for n in OTHERS), url(named, hash=sha(BODY))])
    ran = go(source.base, dest)
    assert (ran.status, ran.one.refused, ran.one.failed) == (FAILED, 1, 0)
    assert source.requests(PATH) == []


def test_another_host_may_be_allowed(source: Source, site: Site, dest: Path) -> None:
    with Source() as other:
        other.pages["/far/x.txt"] = Reply(b"far")
        entries = [url(f"{other.base}/far/x.txt", hash=sha(b"far"))]
        site.publish_list(entries + [site.resource(n) for n in site.files])
        port = other.port
        ran = go(source.base, dest, allow_hosts=(f"127.0.0.1:{port}",))
        assert ran.status == DONE
        far = {name: body for name, body in tree(dest).items() if body == b"far"}
        assert far == {f"127.0.0.1_{port}/far/x.txt": b"far"}


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/x",
        "/%2e%2e/%2e%2e/x",
        "/..%2f..%2fx",
        "/a//b",
        "/a/./b",
        "/a/%00b",
        "/a/b/",
        "/a?x=../../y",
        "/a%2Fb",
        "/.headwater/state.sqlite",
        "/%uri/http%3A%2F%2Fx",
        "/CON",
        "/" + "n" * 300,
        "/" + "deep/" * 400 + "x",
        "/a%0Ab",
        "/%ff%fe",
        "/a%20b c",
        "/ünïcode",
        "/a\\..\\..\\b",
    ],
)
def test_hostile_paths_stay_inside(path: str, source: Source, site: Site, dest: Path) -> None:
    """Every URI gets its own file inside the folder, whatever it says."""

    def anything(handler) -> Reply | None:
        return Reply(BODY)

    site.publish_list([url(f"{site.root}/resources{path}", hash=sha(BODY)), *(site.resource(n) for n in OTHERS)])
    before = {str(p) for p in dest.parent.rglob("*")}

    class Anything(dict[str, Page]):
        def get(self, key, default=None):
            return dict.get(self, key) or (anything if "capab" not in key and "robots" not in key else None)

    source.pages = Anything(source.pages)
    ran = go(source.base, dest)
    assert ran.status == DONE, (ran.one.failures, ran.notices)
    found = tree(dest)
    assert sorted(found.values()) == sorted([*OTHERS.values(), BODY])
    assert ran.one.held == 5
    outside = {str(p) for p in dest.parent.rglob("*")} - before - {str(dest)}
    assert all(p.startswith(f"{dest}/") for p in outside)


def test_a_name_that_is_file_and_folder(source: Source, site: Site, dest: Path) -> None:
    for name in ("a", "a/b", "a/b/c"):
        site.put(name, name.encode())
    site.publish()
    assert go(source.base, dest).status == DONE
    found = tree(dest)
    assert len(found) == 8
    assert found["a/b/c"] == b"a/b/c"


def test_a_file_becomes_a_folder_and_back(source: Source, site: Site, dest: Path) -> None:
    site.put("x", b"file")
    site.publish()
    assert go(source.base, dest).status == DONE
    site.drop("x")
    site.put("x/y", b"below")
    site.publish_changes()
    assert go(source.base, dest).status == DONE
    assert tree(dest)["x/y"] == b"below"
    site.drop("x/y")
    site.put("x", b"again")
    site.publish_changes()
    assert go(source.base, dest).status == DONE
    assert tree(dest)["x"] == b"again"


def test_two_uris_that_decode_alike_get_two_files(source: Source, site: Site, dest: Path) -> None:
    site.publish_list(
        [url(f"{site.root}/resources/a+b", hash=sha(b"1")), url(f"{site.root}/resources/a%2Bb", hash=sha(b"2"))]
    )
    source.pages["/set/resources/a+b"] = Reply(b"1")
    source.pages["/set/resources/a%2Bb"] = Reply(b"2")
    assert go(source.base, dest).status == DONE
    assert sorted(tree(dest).values()) == [b"1", b"2"]


def test_links_inside_the_copy_are_not_followed(source: Source, site: Site, dest: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f1.txt").write_bytes(b"precious")
    dest.mkdir()
    (dest / "sub").symlink_to(outside)
    (dest / "f1.txt").symlink_to(outside / "f1.txt")
    site.put("sub/f.txt", b"inside")
    site.publish()
    go(source.base, dest)
    assert [path.name for path in outside.iterdir()] == ["f1.txt"]
    assert (outside / "f1.txt").read_bytes() == b"precious"
    assert (dest / "f1.txt").read_bytes() == b"body 1\n"
    assert not (dest / "f1.txt").is_symlink()


def test_unusable_entries_are_skipped(source: Source, site: Site, dest: Path) -> None:
    """DST-F5: no `loc`, bad numbers, bad times: the rest is copied, and the copy is not called complete."""
    broken = [
        "<url></url>",
        url(None, hash="md5:0"),
        f"<url><loc></loc>{md(length='5')}</url>",
        f"<url><loc>{site.uri('f9.txt')}</loc>{md(length='5')}{md(length='6')}</url>",
        url(site.uri("f2.txt"), "not a time", hash=sha(BODY), length="-7"),
    ]
    site.publish_list(broken + [site.resource(n) for n in OTHERS])
    ran = go(source.base, dest)
    assert (ran.status, ran.one.skipped, ran.one.failed) == (FAILED, 4, 0)
    assert tree(dest) == OTHERS | {"f2.txt": BODY}


@pytest.mark.parametrize("length", ["99999999999999999999999", "1e9", " 7 ", "+7", "abc"])
def test_strange_lengths(length: str, source: Source, site: Site, dest: Path) -> None:
    """AMB-33."""
    entry = url(site.uri("f2.txt"), hash=sha(BODY), length=length)
    site.publish_list([entry, *(site.resource(n) for n in OTHERS)])
    source.pages[PATH] = Reply(BODY, headers=early())
    ran = go(source.base, dest)
    assert ran.status in (DONE, FAILED)
    assert set(OTHERS) <= set(tree(dest))


def test_last_of_two_entries_counts(source: Source, site: Site, dest: Path) -> None:
    """AMB-89."""
    site.publish_list([url(site.uri("f2.txt"), hash=sha(b"old"))] + [site.resource(n) for n in site.files])
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert "AMB-89" in ran.rules()
    assert tree(dest)["f2.txt"] == BODY


@pytest.mark.parametrize("lastmod", ["9999-12-31T23:59:59Z", "0001-01-01", "1960-01-01T00:00:00Z", "2026", "2026-01"])
def test_strange_times_of_files(lastmod: str, source: Source, site: Site, dest: Path) -> None:
    site.publish_list([url(site.uri("f2.txt"), lastmod, hash=sha(BODY))])
    assert go(source.base, dest).status == DONE
    assert tree(dest) == {"f2.txt": BODY}
