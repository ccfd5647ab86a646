"""Mirrors in a run: their order, and those that lie, hang, redirect, lack what they mirror or are no mirrors at all."""

from __future__ import annotations

import random
import threading
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.errors import Exit
from headwater.spec.records import Entry, Link
from headwater.sync.lists.entries import KEPT_RELATIONS, kept_links, links_of
from headwater.sync.transfer import work_queue as rules
from headwater.sync.transfer.work_queue import Mirrors
from headwater.transport.fetch import FailureKind, Fetch, Fetched, FetchFailure
from tests.support.copying import IMPATIENT, go, tree
from tests.support.fake_source import Handler, Reply, Site, Source, ln, redirect, reset, sha, url

MANY = 40


def listed(site: Site, *mirrors: str, count: int = MANY, check: bool = True, **more: Any) -> dict[str, bytes]:
    """Lists so many resources, each with a link for each of `mirrors` (a prefix of its name) in that order."""
    bodies = {f"r{number}": b"body %d" % number for number in range(count)}
    entries = []
    for name, body in bodies.items():
        links = "".join(ln("duplicate", mirror + name, pri=pri + 1) for pri, mirror in enumerate(mirrors))
        known: dict[str, Any] = {"hash": sha(body), "length": len(body)} if check else {}
        entries.append(url(site.uri(name), links=links, **known))
        site.source.pages[f"/set/resources/{name}"] = Reply(body)
    site.publish_list(entries)
    site.publish_changes(10.0)
    return bodies


def mirror(server: Source, bodies: dict[str, bytes], prefix: str = "/m/") -> None:
    for name, body in bodies.items():
        server.pages[prefix + name] = Reply(body)


def asked(server: Source, prefix: str) -> int:
    return sum(path.startswith(prefix) for path in server.requests())


def told(ran: Any) -> list[str]:
    return [notice.message for notice in ran.notices if notice.rule in ("DST-S2", "DST-F11")]


@pytest.mark.parametrize("way", ["on", "off"])
def test_mirrors_are_asked_before_the_source(way: Any, source: Source, site: Site, dest: Path) -> None:
    """DST-S2: by `pri`, then `loc`; `--mirrors off`: `loc` alone."""
    with Source() as other:
        bodies = listed(site, f"{other.base}/m/", f"{other.base}/second/")
        mirror(other, bodies)
        ran = go(source.base, dest, mirrors=way)
        assert (ran.status, tree(dest)) == (Exit.DONE, bodies)
        assert ran.one.from_mirrors == (MANY if way == "on" else 0)
        assert (asked(other, "/m/"), asked(other, "/second/")) == ((MANY, 0) if way == "on" else (0, 0))
        assert asked(source, "/set/resources/") == (0 if way == "on" else MANY)
        assert go(source.base, dest, mirrors=way, baseline=True).one.unchanged == MANY


def test_a_long_body_of_a_mirror_that_breaks_off_is_gone_on_with(source: Source, site: Site, dest: Path) -> None:
    """DST-S2, DST-F1: a mirror is not asked twice for nothing, but what has come of it is worth another request."""
    body = random.Random(5).randbytes(3_000_000)
    asked_for: list[str | None] = []

    def breaking_off(handler: Handler) -> Reply:
        wanted = handler.headers.get("Range")
        asked_for.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        fields = {"Content-Length": str(len(body) - start), "ETag": '"one"'}
        if start:
            fields["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        head = f"HTTP/1.1 {'206 P' if start else '200 OK'}\r\n" + "".join(f"{k}: {v}\r\n" for k, v in fields.items())
        return Reply(script=lambda one: one.send(f"{head}\r\n".encode() + body[start : start + 1_200_000]))

    with Source() as other:
        other.pages["/m/big"] = breaking_off
        site.publish_list(
            [url(site.uri("big"), hash=sha(body), length=len(body), links=ln("duplicate", f"{other.base}/m/big"))]
        )
        site.publish_changes(10.0)
        source.pages["/set/resources/big"] = Reply(body)
        ran = go(source.base, dest)
    assert (ran.status, ran.one.from_mirrors, tree(dest)) == (Exit.DONE, 1, {"big": body})
    assert asked_for == [None, "bytes=1200000-", "bytes=2400000-"]
    assert source.requests("/set/resources/big") == []


def test_the_rest_of_what_one_mirror_has_sent_is_asked_of_no_other(source: Source, site: Site, dest: Path) -> None:
    """DST-F11: a mirror that sends something else and breaks off makes no liar of the next one."""
    bodies = {f"big{number}": random.Random(number).randbytes(1_500_000) for number in range(10)}

    def breaking_off(handler: Handler) -> Reply:
        if handler.headers.get("Range"):
            return Reply(b"", 503)
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 1500000\r\n\r\n"
        return Reply(script=lambda one: one.send(head + b"x" * 1_200_000))

    def ranged(handler: Handler, body: bytes) -> Reply:
        if not (wanted := handler.headers.get("Range")):
            return Reply(body)
        start = int(wanted.removeprefix("bytes=").rstrip("-"))
        return Reply(body[start:], 206, {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"})

    with Source() as bad, Source() as honest:
        entries = []
        for name, body in bodies.items():
            bad.pages[f"/m/{name}"] = breaking_off
            honest.pages[f"/m/{name}"] = partial(ranged, body=body)
            links = "".join(ln("duplicate", f"{one.base}/m/{name}", pri=n) for n, one in enumerate((bad, honest), 1))
            entries.append(url(site.uri(name), hash=sha(body), length=len(body), links=links))
        site.publish_list(entries)
        site.publish_changes(10.0)
        ran = go(source.base, dest)
        assert (ran.status, ran.one.from_mirrors, tree(dest)) == (Exit.DONE, len(bodies), bodies)
        # the third loss gives it up: after each of the first two, one more may have begun
        assert asked(bad, "/m/") <= rules.UNPROVEN_AT_ONCE + 2
    assert asked(source, "/set/resources/") == 0
    assert [one.split("; ")[-1] for one in told(ran)] == ["it is not asked again in this run"]


@pytest.mark.parametrize(("trusted", "sent"), [(False, b"body 0"), (True, b"as the mirror has it")])
def test_without_hash_and_length_a_mirror_is_trusted_only_if_the_user_says_so(
    trusted: bool, sent: bytes, source: Source, site: Site, dest: Path
) -> None:
    with Source() as other:
        listed(site, f"{other.base}/m/", count=1, check=False)
        other.pages["/m/r0"] = Reply(b"as the mirror has it", headers={"ETag": '"theirs"'})
        assert go(source.base, dest, trust_mirrors=trusted).status == Exit.DONE
        assert tree(dest)["r0"] == sent
        source.forget()
        go(source.base, dest, baseline=True, mirrors="off")
        assert all(fields.get("If-None-Match") != '"theirs"' for _, fields in source.log)


def liar(_handler: Handler) -> Reply:
    return Reply(b"something else")


def elsewhere(handler: Handler) -> Reply:
    return redirect("/another/place")


def lacking(_handler: Handler) -> Reply:
    return Reply(b"", 404)


def busy(_handler: Handler) -> Reply:
    return Reply(b"", 503, {"Retry-After": "3600"})


BAD = {
    "lies": (liar, "sends something else"),
    "redirects elsewhere": (elsewhere, "sends something else"),
    "has nothing": (lacking, "has not sent"),
    "is busy for an hour": (busy, "has not sent"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_mirror_is_remembered_and_told_once(kind: str, source: Source, site: Site, dest: Path) -> None:
    """DST-F11: after a few of its answers nothing more is asked of it in the run, and every resource comes."""
    page, said = BAD[kind]
    with Source() as bad, Source() as good:
        bodies = listed(site, f"{bad.base}/m/", f"{good.base}/m/", count=3 * MANY)
        bad.pages |= dict.fromkeys((f"/m/{name}" for name in bodies), page)
        bad.pages["/another/place"] = Reply(b"a page that says sorry")
        mirror(good, bodies)
        ran = go(source.base, dest)
        assert (ran.status, tree(dest), ran.one.from_mirrors) == (Exit.DONE, bodies, len(bodies))
        assert asked(bad, "/m/") < len(bodies)
        assert asked(source, "/set/resources/") == 0
        assert len(told(ran)) == 1
        assert said in told(ran)[0]
        assert bad.base in told(ran)[0]


@pytest.mark.parametrize("kind", ["hangs", "closes the connection", "has no server"])
def test_a_dead_mirror_costs_the_run_one_time_out(kind: str, source: Source, site: Site, dest: Path) -> None:
    """DST-S2: not one for each of its resources; few are asked of a host that has not answered yet."""
    over = threading.Event()
    with Source() as dead:
        base = dead.base
        bodies = listed(site, f"{base}/m/", count=300)
        waiting = Reply(script=lambda _handler: over.wait(20))
        dead.pages |= dict.fromkeys((f"/m/{name}" for name in bodies), waiting if kind == "hangs" else reset())
        if kind == "has no server":
            dead.close()
        try:
            ran = go(source.base, dest, msgspec.structs.replace(IMPATIENT, stall_timeout_seconds=1))
        finally:
            over.set()
        assert (ran.status, tree(dest)) == (Exit.DONE, bodies)
        if kind == "hangs":  # else one fails before the next is sent
            assert asked(dead, "/m/") <= rules.UNPROVEN_AT_ONCE
        assert len(told(ran)) == 1
    assert ran.report is not None
    assert ran.report.seconds < 15


def test_a_mirror_that_is_behind_is_no_failure(source: Source, site: Site, dest: Path) -> None:
    """An old state does not fit: `loc` has the new one."""
    with Source() as other:
        bodies = listed(site, f"{other.base}/m/", count=2)
        mirror(other, {**bodies, "r1": b"old 01"})
        ran = go(source.base, dest)
        assert (ran.status, tree(dest)) == (Exit.DONE, bodies)


def test_an_unasked_304_of_a_mirror_confirms_nothing(source: Source, site: Site, dest: Path) -> None:
    listed(site, count=1)
    go(source.base, dest)
    with Source() as other:
        (dest / "r0").unlink()
        listed(site, f"{other.base}/m/", count=1)
        other.pages["/m/r0"] = Reply(b"", 304)
        assert go(source.base, dest, repair=True).status == Exit.DONE
        assert tree(dest)["r0"] == b"body 0"


@pytest.mark.parametrize(("count", "status"), [(1_000, Exit.DONE), (10_000, Exit.SOURCE)])
def test_ten_thousand_mirrors_on_one_entry(count: int, status: Exit, source: Source, site: Site, dest: Path) -> None:
    """They cost a bounded number of requests; an entry with more than 1,000 links is hostile, and its list unread."""
    links = "".join(ln("duplicate", f"{source.base}/m/{number}/r0", pri=1 + number % 9) for number in range(count))
    site.publish_list([url(site.uri("r0"), links=links, hash=sha(b"x"), length=1)])
    source.pages["/set/resources/r0"] = Reply(b"x")
    assert go(source.base, dest).status == status
    assert asked(source, "/m/") <= 8
    assert tree(dest) == ({} if status else {"r0": b"x"})


@pytest.mark.parametrize("pri", ["0", "text", "-1", "1000000", "", "7.5"])
def test_a_pri_that_is_none_counts_as_the_last(pri: str, source: Source, site: Site, dest: Path) -> None:
    """RS-LN-03, AMB-37: and the same number twice is the order of the document."""
    hrefs = [f"{source.base}/m/{name}" for name in ("odd", "plain", "second", "first", "also-first")]
    links = "".join(ln("duplicate", href, pri=told) for href, told in zip(hrefs, (pri, 999_999, 2, 1, 1), strict=True))
    site.publish_list([url(site.uri("r0"), links=links, hash=sha(b"x"), length=1)])
    source.pages["/set/resources/r0"] = Reply(b"x")
    assert go(source.base, dest).status == Exit.DONE
    order = [path.removeprefix("/m/") for path in source.requests() if path.startswith("/m/")]
    assert order == ["first", "also-first", "second", "odd", "plain"]


def test_links_that_cannot_be_asked_for_are_not_kept() -> None:
    """Other schemes, user names, control characters, `loc` itself, and the same address twice."""
    loc = "http://h.example/r"
    bad = ("ftp://m.example/r", "http://me:secret@m.example/r", "http://m.example/\r\nr", "http://[/r", loc)
    given = (*bad, "http://m.example/r", "http://m.example/r")
    kept = kept_links(Entry(loc=loc, links=tuple(Link(rel="duplicate", href=href) for href in given)))
    assert [link.href for link in links_of(kept, "duplicate")] == ["http://m.example/r"]
    many = tuple(Link(rel="duplicate", href=f"http://m.example/{number}") for number in range(10_000))
    assert len(links_of(kept_links(Entry(loc=loc, links=many)), "duplicate")) == KEPT_RELATIONS["duplicate"]


# what is learnt of mirrors


HOST, ONE = "http://m:80", "http://m/r"


def test_a_host_that_has_not_answered_gets_few_requests() -> None:
    mirrors = Mirrors()
    for _ in range(rules.UNPROVEN_AT_ONCE):
        assert mirrors.takes(HOST)
    assert mirrors.takes(HOST) is None
    mirrors.sent(ONE)
    assert mirrors.takes(HOST)


def test_a_host_that_has_answered_is_not_given_up_for_one_loss() -> None:
    mirrors = Mirrors()
    lost = Fetched(Fetch(ONE), failure=FetchFailure(FailureKind.STALLED, "too slow", passing=True))
    said: list[str] = []
    assert mirrors.takes(HOST)
    mirrors.sent(ONE)
    for number in range(3):
        assert mirrors.takes(HOST), number
        mirrors.failed(ONE, lost, lambda _rule, told, _where: said.append(told), mismatch=False)
    assert not mirrors.takes(HOST)
    assert len(said) == 1


def test_so_many_hosts_are_asked_and_no_more() -> None:
    """A list may name a mirror of its own for each resource."""
    mirrors = Mirrors()
    asked = [mirrors.takes(f"http://m{number}:80") for number in range(2 * rules.MOST_HOSTS)]
    assert asked.count(True) == rules.MOST_HOSTS


@pytest.mark.parametrize("between", ["nothing", "what is listed", "a 404"])
def test_a_host_that_lies_is_not_asked_for_long(between: str) -> None:
    """DST-F11: whatever it sends between; nor later, when a request that was under way brings what is listed."""
    mirrors = Mirrors()
    said: list[str] = []

    def failed(status: int, *, mismatch: bool) -> None:
        answer = Fetched(Fetch(ONE), status=status)
        mirrors.failed(ONE, answer, lambda rule, told, _where: said.append(f"{rule}: {told}"), mismatch=mismatch)

    mirrors.takes(HOST)
    for number in range(rules.MOST_LIES):
        assert mirrors.takes(HOST), number
        failed(200, mismatch=True)
        if between != "nothing" and number < rules.MOST_LIES - 1:
            assert mirrors.takes(HOST), number
            failed(404, mismatch=False) if between == "a 404" else mirrors.sent(ONE)
    mirrors.sent(ONE)
    assert not mirrors.takes(HOST)
    assert said == [f"DST-F11: the mirror {HOST} sends something else than listed; it is not asked again in this run"]


def test_a_mirror_that_lies_at_every_second_request_is_given_up(source: Source, site: Site, dest: Path) -> None:
    """DST-F11: what it sends rightly between counts nothing."""
    with Source() as other:
        bodies = listed(site, f"{other.base}/m/", count=10 * MANY)
        for number, (name, body) in enumerate(bodies.items()):
            other.pages[f"/m/{name}"] = Reply(b"something else" if number % 2 else body)
        ran = go(source.base, dest, msgspec.structs.replace(IMPATIENT, concurrency=4))
        assert (ran.status, tree(dest), len(told(ran))) == (Exit.DONE, bodies, 1)
        assert asked(other, "/m/") <= 2 * rules.MOST_LIES + 4
