"""Where redirects, mirrors and names may lead: never out of scope, never inside (DST-S12, DST-F10, DST-5.3)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.errors import SourceFault
from headwater.sync.audit.auditor import audit
from headwater.sync.copy_status import copy_status
from headwater.sync.options import SyncOptions
from headwater.sync.run import open_transport
from headwater.transport.access import AddressGuard, Level, level_of, proxy_places
from headwater.transport.fetch import FailureKind, Fetch, TransportOptions
from headwater.transport.transport import Transport
from tests.support.copying import DONE, FAILED, IMPATIENT, SOURCE, UNDETERMINED, Ran, check, go, tree
from tests.support.fake_source import Reply, Site, Source, at, document, ln, redirect, sha, url
from tests.support.program import run_here
from tests.support.waiting import START

BODY = b"body 2\n"
PATH = "/set/resources/f2.txt"
SECRET = b"<secret>"
LATE = START + dt.timedelta(days=30)


@pytest.fixture
def other() -> Iterator[Source]:
    """Another host, which answers whatever it is asked."""
    with Source() as server:
        server.pages["/x"] = Reply(SECRET, modified=LATE)
        yield server


@pytest.fixture
def inside() -> Iterator[Source]:
    """A service at an address that stands for a private one."""
    with Source("127.0.0.2") as server:
        server.pages["/x"] = Reply(BODY, modified=LATE)
        yield server


def outside_in(address: str) -> Level:
    """127.0.0.1 stands for the public network, 127.0.0.2 for a private one."""
    return Level.PUBLIC if address == "127.0.0.1" else Level.PRIVATE


def from_outside(source: Source, *named: str) -> TransportOptions:
    return TransportOptions(retries=0, source=source.base, named_hosts=named, level_of=outside_in)


def reasons(ran: Ran) -> str:
    return " ".join([*(one.reason for one in ran.one.failures), ran.one.fault or ""])


def host_of(source: Source) -> str:
    return source.base.removeprefix("http://")


@pytest.mark.parametrize("hash_", [True, False], ids=["with a hash", "without"])
@pytest.mark.parametrize("hops", [1, 2])
def test_a_resource_is_not_asked_of_another_host(
    hash_: bool, hops: int, source: Source, other: Source, site: Site, dest: Path
) -> None:
    """A redirect out of the scope is a failure that names the host, and what is held of the resource stays."""
    entry = url(site.uri("f2.txt"), at(0), **({"hash": sha(BODY)} if hash_ else {}))
    site.publish_list([site.resource(name) for name in site.files if name != "f2.txt"] + [entry])
    source.pages[PATH] = redirect(f"{other.base}/x" if hops == 1 else f"{site.root}/hop")
    source.pages["/set/hop"] = redirect(f"{other.base}/x")
    ran = go(source.base, dest)
    assert (ran.status, ran.one.failed, ran.one.newer_than_listed) == (FAILED, 1, 0)
    assert f"--allow-host {host_of(other)}" in reasons(ran)
    assert other.requests() == []
    assert "f2.txt" not in tree(dest)
    other.pages["/x"] = Reply(BODY)
    ran = go(source.base, dest, allow_hosts=(host_of(other),))
    assert (ran.status, tree(dest)["f2.txt"]) == (DONE, BODY)


def test_octets_of_another_origin_are_never_newer(source: Source, other: Source, site: Site, dest: Path) -> None:
    """DST-5.3: what an allowed host sends with a late `Last-Modified` is not the resource in a newer state."""
    source.pages[PATH] = redirect(f"{other.base}/x")
    ran = go(source.base, dest, any_host=True)
    assert (ran.status, ran.one.failed, ran.one.newer_than_listed) == (FAILED, 1, 0)
    assert SECRET not in tree(dest).values()


def test_octets_of_a_mirror_are_never_newer(source: Source, site: Site, dest: Path) -> None:
    entry = url(site.uri("f2.txt"), at(0), ln("duplicate", f"{source.base}/mirror"), hash=sha(BODY))
    site.publish_list([site.resource(name) for name in site.files if name != "f2.txt"] + [entry])
    source.pages[PATH] = Reply(b"", 404)
    source.pages["/mirror"] = Reply(SECRET, modified=LATE)
    ran = go(source.base, dest)
    assert (ran.status, ran.one.newer_than_listed, "f2.txt" in tree(dest)) == (FAILED, 0, False)


def test_a_failure_out_of_the_scope_is_not_asked_again(source: Source, other: Source, site: Site, dest: Path) -> None:
    """What failed while its host was allowed is not fetched from there once it is not."""
    far = f"{other.base}/gone"
    site.publish_changes(10, entries=[url(far, change="created", datetime=at(20), hash=sha(BODY))])
    assert go(source.base, dest, any_host=True).one.failed == 1
    other.forget()
    assert go(source.base, dest).status == FAILED
    assert other.requests() == []


DOCUMENTS = ["resourcelist.xml", "changelist.xml"]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_list_is_not_read_from_another_host(name: str, source: Source, other: Source, site: Site, dest: Path) -> None:
    """Every hop of a document passes the scope, too; the message names the host."""
    other.pages[f"/{name}"] = source.pages[f"/set/{name}"]
    source.pages[f"/set/{name}"] = redirect(f"{other.base}/{name}", 301)
    ran = go(source.base, dest)
    assert ran.status == SOURCE
    assert f"--allow-host {host_of(other)}" in reasons(ran)
    assert other.requests() == []
    assert go(source.base, dest, allow_hosts=(host_of(other),)).status == DONE


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_list_on_another_host_is_asked_for_by_nobody(
    name: str, source: Source, other: Source, site: Site, dest: Path
) -> None:
    """Neither by a run nor by an audit, where a Capability List names it there; nor one that was allowed before."""
    other.pages[f"/{name}"] = source.pages[f"/set/{name}"]
    entries = [
        url(f"{other.base if one == name else site.root}/{one}", capability=one.removesuffix(".xml"))
        for one in DOCUMENTS
    ]
    site.serve("/set/capabilitylist.xml", document(entries, capability="capabilitylist"))
    assert go(source.base, dest, any_host=True).status == DONE
    other.forget()
    ran = go(source.base, dest)
    assert ran.status == SOURCE
    assert f"--allow-host {host_of(other)}" in reasons(ran)
    assert check(source.base, dest.parent).exit_status == UNDETERMINED
    assert other.requests() == []


def test_lists_that_are_asked_for_ahead_pass_the_scope_too(source: Source, other: Source, dest: Path) -> None:
    """The first requests of many sets are sent together."""
    names = ("one", "two", "three")
    sites = [Site(source, name) for name in names]
    for site in sites:
        site.put("f.txt", b"f")
        site.publish()
    sites[0].publish_description(*names)
    assert go(source.base, dest).status == DONE
    source.pages["/two/changelist.xml"] = redirect(f"{other.base}/x")
    ran = go(source.base, dest)
    assert ran.status == SOURCE
    assert ran.report is not None
    assert [one.fault is None for one in ran.report.sets] == [True, False, True]
    assert other.requests() == []


def test_a_component_is_not_read_from_another_host(source: Source, other: Source, site: Site, dest: Path) -> None:
    """Nor is one of an index; the list is then not whole."""
    assert go(source.base, dest).status == DONE
    part = source.pages["/set/resourcelist.xml"]
    other.pages["/part.xml"] = part
    source.pages["/set/part.xml"] = redirect(f"{other.base}/part.xml")
    index = document(
        [url(f"{site.root}/part.xml", tag="sitemap")],
        "sitemapindex", site.up(), capability="resourcelist", at=at(30),
    )  # fmt: skip
    site.serve("/set/resourcelist.xml", index)
    ran = go(source.base, dest, baseline=True)
    assert (ran.status, ran.one.deleted, len(tree(dest))) == (SOURCE, 0, 5)
    assert other.requests() == []


@pytest.mark.parametrize("start", ["", "/set/capabilitylist.xml"], ids=["by host", "by its Capability List"])
def test_a_source_that_redirects_altogether_is_followed(
    start: str, source: Source, other: Source, site: Site, dest: Path
) -> None:
    """DST-F10: where the documents of the source have moved for good, their host is the source's own."""

    def move() -> None:
        with source.lock:
            pages = dict(source.pages)
        for path, page in pages.items():
            if isinstance(page, Reply) and page.status == 200:
                other.pages[path] = Reply(page.body, headers=dict(page.headers))
                source.pages[path] = redirect(f"{other.base}{path}", 301)

    assert go(source.base + start, dest).status == DONE
    site.put("f2.txt", b"another")
    site.publish_changes(10)
    move()
    ran = go(source.base + start, dest)
    assert (ran.status, tree(dest)["f2.txt"]) == (DONE, b"another")
    assert go(source.base + start, dest).status == DONE
    assert check(source.base + start, dest).verdict == "in sync"


def test_the_first_address_may_redirect(source: Source, other: Source, site: Site, dest: Path) -> None:
    """Where the user's own address leads, the source is: another public host is no reason to refuse it."""
    other.pages["/.well-known/resourcesync"] = redirect(f"{source.base}/.well-known/resourcesync")
    assert go(other.base, dest).status == DONE
    assert len(tree(dest)) == 5


@pytest.mark.parametrize("status", [301, 302])
@pytest.mark.parametrize("start", ["", "/set/capabilitylist.xml"])
def test_a_permanent_redirect_of_the_address_is_told_once_and_stays_in_the_status(
    start: str, status: int, source: Source, other: Source, site: Site, dest: Path
) -> None:
    for path in ("/.well-known/resourcesync", "/set/capabilitylist.xml"):
        other.pages[path] = Reply(status=status, headers={"Location": source.base + path})
    address = f"{source.base}{start or '/'}" if status == 301 else None
    for told in ([f"the source has moved to {address}: use this address"] if address else [], []):
        ran = go(other.base + start, dest)
        assert (ran.status, copy_status(dest).moved_to) == (DONE, address)
        notices = [one.message.partition(", ")[0] for one in ran.notices if one.rule == "DST-F10"]
        assert notices == told
    assert ("use this address, the old one" in run_here("status", dest).stdout.decode()) == (status == 301)
    assert (go(source.base + start, dest).status, copy_status(dest).moved_to) == (DONE, None)


# addresses


LEVELS = [
    ("93.184.216.34", Level.PUBLIC),
    ("2606:2800:220:1::1", Level.PUBLIC),
    ("10.1.2.3", Level.PRIVATE),
    ("172.16.0.1", Level.PRIVATE),
    ("192.168.1.1", Level.PRIVATE),
    ("100.64.0.1", Level.PRIVATE),
    ("198.18.0.1", Level.PRIVATE),
    ("240.0.0.1", Level.PRIVATE),
    ("255.255.255.255", Level.PRIVATE),
    ("fc00::1", Level.PRIVATE),
    ("fec0::1", Level.PRIVATE),
    ("127.0.0.1", Level.LOCAL),
    ("127.1.2.3", Level.LOCAL),
    ("0.0.0.0", Level.LOCAL),
    ("0.1.2.3", Level.LOCAL),
    ("169.254.169.254", Level.LOCAL),
    ("224.0.0.1", Level.LOCAL),
    ("::1", Level.LOCAL),
    ("::", Level.LOCAL),
    ("fe80::1%eth0", Level.LOCAL),
    ("ff02::1", Level.LOCAL),
    ("::ffff:127.0.0.1", Level.LOCAL),
    ("::ffff:10.0.0.1", Level.PRIVATE),
    ("::ffff:93.184.216.34", Level.PUBLIC),
    ("::127.0.0.1", Level.LOCAL),
    ("2002:7f00:1::", Level.LOCAL),
    ("2002:a00:1::", Level.PRIVATE),
    ("64:ff9b::7f00:1", Level.LOCAL),
    ("64:ff9b::a9fe:a9fe", Level.LOCAL),
    ("64:ff9b::5db8:d822", Level.PUBLIC),
    ("64:ff9b:1::7f00:1", Level.PRIVATE),
    ("2001:0:4136:e378:8000:63bf:80ff:fffe", Level.LOCAL),
    ("192.0.2.1", Level.PRIVATE),
    ("2001:db8::1", Level.PRIVATE),
    ("172.32.0.1", Level.PUBLIC),
    ("100.128.0.1", Level.PUBLIC),
    ("169.253.0.1", Level.PUBLIC),
]


@pytest.mark.parametrize(("address", "level"), LEVELS)
def test_levels(address: str, level: Level) -> None:
    assert level_of(address) is level


def guard(
    *named: str, resolve: Callable[[str], list[str]] = lambda _: [], proxies: tuple[tuple[str, int], ...] = ()
) -> AddressGuard:
    return AddressGuard("source.example", named, resolve=resolve, proxies=lambda: proxies)


def test_a_public_source_leads_nowhere_inside() -> None:
    one = guard(resolve=lambda _: ["93.184.216.34"])
    assert one.objection("evil.example", "93.184.216.35", 80) is None
    for address in ("10.0.0.1", "127.0.0.1", "169.254.169.254", "::ffff:10.0.0.1"):
        assert "--allow-host evil.example" in (one.objection("evil.example", address, 80) or "")


def test_a_name_that_was_public_does_not_lead_inside_later() -> None:
    """DNS rebinding, of the source's own name as of one that was allowed."""
    one = guard("cdn.example")
    for host in ("source.example", "cdn.example"):
        assert one.objection(host, "93.184.216.34", 80) is None
        assert one.objection(host, "127.0.0.1", 80) is not None


def test_a_source_that_was_public_is_not_inside_in_a_later_run() -> None:
    """DNS rebinding between two runs; who names the host anew says that it has moved inside."""
    one = guard()
    assert one.objection("source.example", "93.184.216.34", 80) is None
    assert one.source_in_public == "source.example"
    later, other, named = guard(), guard(), guard("source.example")
    for again in (later, named):
        again.was_public("source.example")
    other.was_public("another.example")
    said = later.objection("source.example", "10.0.0.1", 80) or ""
    assert "had a public address before: --allow-host source.example" in said
    assert other.objection("source.example", "10.0.0.1", 80) is None
    assert named.objection("source.example", "10.0.0.1", 80) is None
    assert guard().source_in_public is None


def test_a_copy_remembers_that_its_source_was_public(source: Source, site: Site, dest: Path) -> None:
    """A name that leads inside by now is not asked, neither by a run nor by an audit, until the user says so."""
    assert go(source.base, dest, from_outside(source)).status == DONE
    source.forget()

    def inside_by_now(_address: str) -> Level:
        return Level.PRIVATE

    moved = TransportOptions(retries=0, source=source.base, level_of=inside_by_now)
    ran = go(source.base, dest, moved)
    assert ran.status == SOURCE
    assert source.requests() == []
    with Transport(moved) as wire, pytest.raises(SourceFault):
        audit(source.base, dest, transport=wire)
    assert source.requests() == []
    named = TransportOptions(retries=0, source=source.base, named_hosts=("127.0.0.1",), level_of=inside_by_now)
    assert go(source.base, dest, named).status == DONE
    assert source.requests() != []


def test_what_the_user_names_may_be_inside() -> None:
    one = guard("intranet.example", resolve=lambda _: ["93.184.216.34"])
    assert one.objection("intranet.example", "10.0.0.7", 80) is None
    assert one.objection("other.example", "10.0.0.7", 80) is not None


@pytest.mark.parametrize(
    ("own", "address", "allowed"),
    [
        ("10.0.0.1", "10.0.0.2", True),
        ("10.0.0.1", "192.168.0.2", True),
        ("10.0.0.1", "127.0.0.1", False),
        ("10.0.0.1", "169.254.169.254", False),
        ("127.0.0.1", "10.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", True),
    ],
)
def test_a_source_inside_leads_no_further_inside(own: str, address: str, allowed: bool) -> None:
    one = guard()
    assert one.objection("source.example", own, 80) is None
    assert (one.objection("other.example", address, 80) is None) is allowed


def test_a_proxy_may_be_inside() -> None:
    """By a proxy only an address that stands in the URI itself can be judged."""
    table = {"proxy.example": ["10.0.0.9"], "source.example": []}
    one = guard(resolve=lambda host: table.get(host, []), proxies=(("proxy.example", 3128),))
    assert one.objection("cdn.example", "10.0.0.9", 3128) is None
    assert one.objection("cdn.example", "10.0.0.9", 80) is not None
    assert one.literal_objection("cdn.example") is None
    for host in ("10.0.0.1", "127.1", "2130706433", "0x7f.1", "::1", "localhost", "a.localhost"):
        assert one.literal_objection(host) is not None
    assert guard().literal_objection("10.0.0.1") is None


@pytest.mark.parametrize("said", ["{}", "http://{}", "http://user:secret@{}"])
def test_a_proxy_inside_is_asked(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is written, and wherever it was said."""
    for name in ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert list(proxy_places(said.format("10.0.0.9:3128"))) == [("10.0.0.9", 3128)]
    monkeypatch.setenv("https_proxy", said.format("[fd00::9]:3128"))
    assert list(proxy_places()) == [("fd00::9", 3128)]
    monkeypatch.setenv("https_proxy", said.format("[fd00::9]"))
    assert list(proxy_places()) == [("fd00::9", 1080)]


def test_a_connection_by_a_proxy_inside_is_made(inside: Source) -> None:
    """The address that is connected to is the proxy's own; what stands in the URI itself is judged nevertheless."""
    inside.pages["http://93.184.216.34/x"] = Reply(BODY)
    proxy = f"127.0.0.2:{inside.port}"
    with Transport(TransportOptions(retries=0, source="http://93.184.216.34/", proxy=proxy)) as wire:
        assert wire.one(Fetch("http://93.184.216.34/x")).body == BODY
        for target in ("http://10.0.0.1/x", "http://2130706433/x", f"http://{proxy}/x"):
            failure = wire.one(Fetch(target)).failure
            assert failure is not None
            assert failure.kind is FailureKind.ADDRESS_REFUSED
    assert len(inside.requests()) == 1


@pytest.mark.parametrize("name", ["localhost", "any.localhost"])
def test_a_proxy_on_this_machine_lets_nothing_else_of_it_be_reached(
    name: str, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked for past the proxy is not at the proxy's place, though it is at its address."""
    source.pages["/x"] = Reply(BODY)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9/")
    with Transport(TransportOptions(retries=0, source="http://93.184.216.34/")) as wire:
        failure = wire.one(Fetch(f"http://{name}:{source.port}/x")).failure
    assert failure is not None
    assert (failure.kind, source.requests()) == (FailureKind.ADDRESS_REFUSED, [])


@pytest.mark.parametrize("way", ["mirror", "redirect", "redirected mirror"])
@pytest.mark.parametrize("name", ["127.0.0.2", "127.2"])
def test_nothing_leads_inside(way: str, name: str, source: Source, inside: Source, site: Site, dest: Path) -> None:
    """A mirror is exempt from the scope, not from this: what it sends would fit, and it is not even connected to."""
    target = f"http://{name}:{inside.port}/x"
    mirror = {"mirror": target, "redirected mirror": f"{source.base}/mirror"}.get(way, f"{source.base}/none")
    entry = url(site.uri("f2.txt"), at(0), ln("duplicate", mirror), hash=sha(BODY))
    site.publish_list([site.resource(name) for name in site.files if name != "f2.txt"] + [entry])
    source.pages[PATH] = redirect(target) if way == "redirect" else Reply(b"", 404)
    source.pages["/mirror"] = redirect(target)
    ran = go(source.base, dest, from_outside(source), any_host=True)
    assert (ran.status, ran.one.failed, "f2.txt" in tree(dest)) == (FAILED, 1, False)
    assert inside.requests() == []
    ran = go(source.base, dest, from_outside(source, name), any_host=True)
    assert (ran.status, tree(dest)["f2.txt"]) == (DONE, BODY)


def test_no_document_leads_inside(source: Source, inside: Source, site: Site, dest: Path) -> None:
    """Nor does anything that leads to the documents: links, `robots.txt`, redirects."""
    target = f"{inside.base}/x"
    page = f'<html><head><link rel="resourcesync" href="{target}"/></head></html>'.encode()
    source.pages["/page.html"] = Reply(
        page, headers={"Content-Type": "text/html", "Link": f'<{target}>; rel="resourcesync"'}
    )
    source.pages["/.well-known/resourcesync"] = redirect(target)
    source.pages["/robots.txt"] = Reply(f"Sitemap: {target}\n".encode())
    ran = go(f"{source.base}/page.html", dest, from_outside(source), any_host=True)
    assert ran.status == SOURCE
    assert inside.requests() == []


def test_the_command_knows_its_source(source: Source) -> None:
    """The bound goes by the address that the user gives; hosts that he allows may be anywhere."""
    options = SyncOptions(allow_hosts=("CDN.example:8080", "[fd00::1]:80", "fd00::2"))
    with open_transport(source.base, options, None) as wire:
        assert wire.options.source == source.base
        assert wire.options.named_hosts == ("cdn.example", "fd00::1", "fd00::2")
        assert wire.options.level_of is IMPATIENT.level_of is level_of
