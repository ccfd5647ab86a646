"""Hosts whose names are not ASCII: looked up as IDNA has them, and compared in one form by all that compares hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater import SyncOptions
from headwater.sync.connection import Scope, bare_host, credentials_of, hosts_of, origin_of
from headwater.transport.access import SignInCredentials
from headwater.transport.fetch import FailureKind, Fetch, TransportOptions
from headwater.transport.scheduler import host_of, site_of, wire_uri
from headwater.transport.transport import Transport
from tests.support.copying import DONE, check, go, tree
from tests.support.fake_source import Site, Source
from tests.support.names_of_files import path_of

NAME, WIRE = "bücher.localhost", "xn--bcher-kva.localhost"
"""Below `localhost` every name is this machine (RFC 6761)."""

SAME = [
    "http://straße.example/x",
    "http://STRAßE.example/x",
    "http://stra%C3%9Fe.example/x",
    "http://xn--strae-oqa.example:80/x",
    "http://XN--STRAE-OQA.example/x",
]
OTHERS = ["http://strasse.example/x", "http://stra\u017fe.example/x", "http://stra.example/x"]


@pytest.mark.parametrize("uri", SAME)
def test_one_host_is_one_for_all_that_compare_hosts(uri: str) -> None:
    assert site_of(uri) == "http://xn--strae-oqa.example:80"
    assert host_of(site_of(uri) or "") == "xn--strae-oqa.example"
    assert origin_of(uri) == ("xn--strae-oqa.example", 0)
    scope = Scope(frozenset(), hosts_of(["Straße.example"]))
    assert scope.refusal(uri) is None
    assert bare_host("STRAßE.example:8080") == "xn--strae-oqa.example"


@pytest.mark.parametrize("uri", OTHERS)
def test_another_host_is_another(uri: str) -> None:
    assert site_of(uri) != site_of(SAME[0])
    assert origin_of(uri) != origin_of(SAME[0])
    assert Scope(frozenset(), hosts_of(["straße.example", "straße.example:80"])).refusal(uri) is not None


def test_hosts_with_a_port_are_named_too() -> None:
    scope = Scope(frozenset(), hosts_of(["Bücher.example:8080", "[::1]:81"]))
    assert scope.refusal("http://xn--bcher-kva.example:8080/") is None
    assert scope.refusal("http://bücher.example/") is not None
    assert scope.refusal("http://[::1]:81/") is None


@pytest.mark.parametrize(
    ("uri", "sent"),
    [
        ("http://bücher.example:8080/ä b?ö", "http://xn--bcher-kva.example:8080/%C3%A4%20b?%C3%B6"),
        ("http://Example.org/ä", "http://Example.org/%C3%A4"),
        ("http://bücher.example", "http://xn--bcher-kva.example"),
    ],
)
def test_what_is_sent(uri: str, sent: str) -> None:
    assert wire_uri(uri) == sent


def test_what_is_no_name_is_a_failure_of_its_own() -> None:
    with Transport(TransportOptions(retries=0)) as transport:
        failed = transport.one(Fetch("http://\u2603.example/")).failure
    assert failed is not None
    assert (failed.kind, "is no name of a host" in failed.text) == (FailureKind.PROTOCOL, True)


def test_secrets_follow_the_host_and_not_its_spelling(source: Source) -> None:
    port = source.port
    own = SignInCredentials(f"http://{NAME}:{port}/", "Bearer t")
    with Transport(TransportOptions(credentials=own, retries=0)) as transport:
        for host in (NAME, WIRE, NAME.upper(), "bucher.localhost", "bcher.localhost"):
            transport.one(Fetch(f"http://{host}:{port}/{len(source.log)}"))
    assert [headers.get("Authorization") for _, headers in source.log] == ["Bearer t"] * 3 + [None] * 2
    assert source.log[0][1]["Host"] == f"{WIRE}:{port}"


def test_netrc_names_hosts_as_people_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rc").write_text(f"machine strasse.example login a password b\nmachine {WIRE} login c password d\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "rc"))
    assert credentials_of(f"http://{NAME}/", SyncOptions()) is not None
    assert credentials_of("http://straße.example/", SyncOptions()) is None


def test_a_source_of_such_a_name_is_copied(source: Source, dest: Path) -> None:
    source.host = NAME
    site = Site(source)
    site.put("a", b"one")
    site.put("b", b"two")
    site.publish()
    entries = [site.resource("a"), site.resource("b").replace(NAME, WIRE)]
    site.publish_list(entries)
    site.publish_changes(site.clock, entries=[])
    ran = go(source.base, dest)
    assert (ran.status, ran.one.refused) == (DONE, 0)
    assert sorted(tree(dest).values()) == [b"one", b"two"]
    assert check(source.base, dest).verdict == "in sync"


def test_folders_of_such_hosts_are_not_one() -> None:
    found = {path_of(f"http://{host}/x", "http://other.example/") for host in ("bücher.x", "bcher.x", "b?cher.x")}
    assert b"xn--bcher-kva.x/x" in found
    assert len(found) == 3
