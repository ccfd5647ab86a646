"""Packages made on demand, on a real socket: what is asked for comes, whole, and nothing else is taken for it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import io
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from headwater.catalog.content import ContentReader, NoContent, OpenContent, RecordedResource
from headwater.catalog.interface import Resource
from headwater.errors import StoreFault
from headwater.http import dump_endpoint as endpoint
from headwater.http.dump_endpoint import DumpTimes
from headwater.http.metrics import kind_of
from headwater.http.server import ServerLimits
from headwater.library import publish_folder
from headwater.packages.faults import PackageLimits
from headwater.packages.member_paths import MemberNames
from headwater.packages.zip_reader import read_directory
from headwater.publish.package_builder import ResourcePaths
from headwater.source.config import SetConfig, SourceConfig
from headwater.spec.extensions import DumpLimits, dump_offer
from headwater.spec.records import AbsenceReason
from tests.support.documents import read_bytes
from tests.support.serving import Answer, Face, drain, face, request
from tests.support.waiting import DEADLINE, until

pytestmark = pytest.mark.long(10)

JSON = {"content-type": "application/json"}


def ask(url: str, body: object, headers: Mapping[str, str] = JSON) -> Answer:
    """Ask for a package of the set `files`."""
    octets = body if isinstance(body, bytes) else json.dumps(body).encode()
    return request(url, "/files/dump", "POST", headers, octets)


def streamed(octets: bytes) -> list[str]:
    """The names that our own reader of packages finds, in the order of the file."""
    return [member.name for member in read_directory(io.BytesIO(octets), PackageLimits()).members]


class Unpacked:
    """A package as any program reads it, held against its manifest."""

    def __init__(self, octets: bytes) -> None:
        with zipfile.ZipFile(io.BytesIO(octets)) as package:
            names = package.namelist()
            assert names[-1] == "manifest.xml"
            members = {"/" + name: package.read(name) for name in names}  # which compares the CRC of each
        assert len(members) == len(names)
        document, entries, warnings = read_bytes(members.pop("/manifest.xml"))
        assert not warnings
        assert document.capability == "resourcedump-manifest"
        self.document = document
        self.absent = {one.uri: one.reason for one in document.absent}
        self.content = {one.loc: members.pop(one.path or "") for one in entries}
        self.undeclared = members
        for one in entries:
            content = self.content[one.loc]
            assert one.length == len(content)
            assert f"sha-256:{hashlib.sha256(content).hexdigest()}" in (one.hash or "")


FILES = {
    "a.txt": b"one\n" * 100,
    "b/c d.bin": bytes(range(256)) * 9,
    "b/C D.bin": b"another file, but for its case",
    "b/ü%.txt": b"x",
    "empty": b"",
    "odd/\n": b"a line end",
    "odd/\ufffe": b"nothing that XML could hold",
    "odd/back\\slash": b"\\",
    "odd/c:": b"a drive",
    os.fsdecode(b"odd/\xff"): b"no UTF-8",
    "odd/.hidden": b".",
    "odd/trailing. ": b" ",
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    folder = tmp_path_factory.mktemp("source")
    for name, content in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    with face(folder, tmp_path_factory.mktemp("state"), hidden=True) as running:
        yield running


def listed(running: Face) -> dict[str, bytes]:
    """What the Resource List names, with the octets that a GET has."""
    _, entries, _ = read_bytes(request(running.url, "/files/resourcelist.xml").body)
    return {one.loc: request(running.url, one.loc.removeprefix(running.url)).body for one in entries}


def test_resources_by_uri(running: Face) -> None:
    """RS-RDM-01…05, RS-MD-10."""
    wanted = listed(running)
    assert sorted(wanted.values()) == sorted(FILES.values())
    answer = ask(running.url, {"uris": list(wanted)})
    assert (answer.status, answer.headers["content-type"]) == (200, "application/zip")
    assert "content-length" not in answer.headers
    package = Unpacked(answer.body)
    assert package.content == wanted
    assert list(package.content) == list(wanted)
    assert len(streamed(answer.body)) == len(FILES) + 1, "names that differ by case alone would be refused"
    assert (package.absent, package.undeclared) == ({}, {})
    up = package.document.link("up")
    assert up is not None
    assert up.href == f"{running.url}/files/capabilitylist.xml"


@pytest.mark.parametrize(("asked", "is_deflated"), [({}, True), ({"deflate": True}, True), ({"deflate": False}, False)])
def test_a_client_on_a_fast_line_may_do_without_deflating(
    running: Face, asked: Mapping[str, bool], is_deflated: bool
) -> None:
    answer = ask(running.url, {"page": 0, **asked})
    assert Unpacked(answer.body).content == listed(running)
    assert len(streamed(answer.body)) == len(FILES) + 1
    with zipfile.ZipFile(io.BytesIO(answer.body)) as package:
        shrunk = {one.filename for one in package.infolist() if one.compress_size < one.file_size}
    assert bool(shrunk) == ({"resources/a.txt", "manifest.xml"} <= shrunk) == is_deflated


PATHS = {
    "a/b.txt": "/resources/a/b.txt",
    "a%20b": "/resources/a b",
    "%C3%BC": "/resources/ü",
    ".a": "/resources/.a",
    "a%25b": "/resources/a%25b",
    "a%2Fb": "/resources/a%2Fb",
    "a%5Cb": "/resources/a%5Cb",
    "%FF": "/resources/%FF",
    "%EF%BF%BE": "/resources/%EF%BF%BE",
    "..%2F": "/resources/..%2F",
    "a%3Ab": "/resources/a%3Ab",
}


@pytest.mark.parametrize("uri", PATHS)
def test_paths(uri: str) -> None:
    """RS-MD-10, DST-P3."""
    assert ResourcePaths().take(uri) == PATHS[uri]


def test_paths_that_no_file_system_holds_side_by_side() -> None:
    paths = ResourcePaths()
    taken = [paths.take(uri) for uri in ("a", "A", "b", "b/c", "d/e", "D", "%C3%BC", "u%CC%88", "..", "x//y", "x")]
    assert taken[0] == "/resources/a"
    assert len(set(taken)) == len(taken)
    names = MemberNames()
    for path in taken:
        names.add(path[1:])


def test_the_offer_and_the_limits(running: Face) -> None:
    document, entries, warnings = read_bytes(request(running.url, "/files/capabilitylist.xml").body)
    offer = dump_offer(document)
    assert offer is not None
    assert offer.href == f"{running.url}/files/dump"
    answer = request(running.url, "/files/dump", "OPTIONS")
    assert (answer.status, answer.headers["allow"], answer.headers["accept-post"]) == (
        200,
        "POST, OPTIONS",
        "application/json",
    )
    limits = DumpLimits(**json.loads(answer.body)["limits"])
    assert limits == offer.limits
    assert [one.capability for one in entries] == ["resourcelist", "changelist"]
    assert not warnings


def test_what_the_set_does_not_hold_is_named(running: Face) -> None:
    uri = f"{running.url}/files/resources/a.txt"
    absent = {
        f"{running.url}/files/resources/none": AbsenceReason.UNKNOWN,
        f"{running.url}/files/resources/../b/x": AbsenceReason.UNKNOWN,
        f"{running.url}/other/resources/a.txt": AbsenceReason.ELSEWHERE,
        "https://example.org/a.txt": AbsenceReason.ELSEWHERE,
    }
    package = Unpacked(ask(running.url, {"uris": [*absent, uri]}).body)
    assert package.content == {uri: FILES["a.txt"]}
    assert package.absent == absent


def since(moment: str) -> dict[str, str]:
    return {"since": moment}


REFUSED = {
    "no JSON": (b"{", 400, "HW-SRV-06"),
    "nothing": (b"", 400, "HW-SRV-06"),
    "not UTF-8": (b'{"uris":["http://a.example/\xff"]}', 400, "HW-SRV-06"),
    "no object": (b"[]", 400, "HW-SRV-06"),
    "deep": (b'{"uris":' + b"[" * 100_000, 400, "HW-SRV-06"),
    "deep and whole": (b'{"uris":' + b"[" * 50_000 + b"]" * 50_000 + b"}", 400, "HW-SRV-06"),
    "no key": ({}, 400, "HW-SRV-06"),
    "an unknown key": ({"uris": ["http://a.example/"], "limit": 1}, 400, "HW-SRV-06"),
    "two keys": ({"uris": ["http://a.example/"], "page": 0}, 400, "HW-SRV-06"),
    "no choice of deflating": ({"page": 0, "deflate": "no"}, 400, "HW-SRV-06"),
    "deflating alone": ({"deflate": False}, 400, "HW-SRV-06"),
    "no URIs": ({"uris": []}, 400, "HW-SRV-06"),
    "a URI that is none": ({"uris": ["a.txt"]}, 400, "HW-SRV-06"),
    "a URI that is no address": ({"uris": ["urn:x:a.txt"]}, 400, "HW-SRV-06"),
    "a URI with a line end": ({"uris": ["http://a.example/\n"]}, 400, "HW-SRV-06"),
    "a URI that is too long": ({"uris": ["http://a.example/" + "a" * 9_000]}, 400, "HW-SRV-06"),
    "a URI that is no text": ({"uris": [1]}, 400, "HW-SRV-06"),
    "null": ({"uris": None}, 400, "HW-SRV-06"),
    "a URI twice": ({"uris": ["http://a.example/"] * 2}, 400, "HW-SRV-06"),
    "too many URIs": ({"uris": [f"http://a.example/{n}" for n in range(5)]}, 413, "HW-SRV-07"),
    "a page that is too large": ({"page": 0}, 413, "HW-SRV-07"),
    "too many changes": (since("2026-01-01T00:00:00Z"), 410, "HW-SRV-08"),
    "a page that is not there": ({"page": 7}, 404, "HW-SRV-11"),
    "a page before the first": ({"page": -1}, 404, "HW-SRV-11"),
    "a page beyond numbers": (b'{"page":' + b"9" * 40 + b"}", 404, "HW-SRV-11"),
    "a page in halves": (b'{"page":0.5}', 400, "HW-SRV-06"),
    "half a character": (b'{"uris":["http://a.example/\\ud800"]}', 400, "HW-SRV-06"),
    "a page that is no number": ({"page": "0"}, 400, "HW-SRV-06"),
    "since no time": (since("yesterday"), 400, "HW-SRV-06"),
    "since a day": (since("2026-01-01"), 400, "HW-SRV-06"),
    "since a time without a zone": (since("2026-01-01T00:00:00"), 400, "HW-SRV-06"),
    "since a time that is none": (since("2026-02-30T00:00:00Z"), 400, "HW-SRV-06"),
    "since the future": (since("2999-01-01T00:00:00Z"), 400, "HW-SRV-06"),
    "since before anything is known": (since("1999-01-01T00:00:00Z"), 410, "HW-SRV-08"),
}


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    """A source with five resources that gives four at a time."""
    folder = tmp_path_factory.mktemp("source")
    for number in range(5):
        (folder / f"{number}.txt").write_text(f"resource {number}")
    limits = {"on_demand_resources": 4, "on_demand_octets": 30, "on_demand_requests": 1}
    with face(folder, tmp_path_factory.mktemp("state"), source_options=limits) as narrow:
        yield narrow


@pytest.mark.parametrize("case", REFUSED)
def test_refused(narrow: Face, case: str) -> None:
    body, status, code = REFUSED[case]
    answer = ask(narrow.url, body)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json"), answer.body
    told = json.loads(answer.body)
    assert told["error"]["code"] == code
    assert told["error"]["advice"]
    assert told["limits"] == {"resources": 4, "octets": 30, "requests": 1}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/xml"}, 415),
        ({}, 415),
        ({"content-type": "application/json", "content-encoding": "gzip"}, 415),
        ({"content-type": "application/json; charset=utf-8"}, 404),
        ({"content-type": "APPLICATION/JSON", "content-encoding": "identity"}, 404),
    ],
)
def test_media_types(narrow: Face, headers: dict[str, str], status: int) -> None:
    assert ask(narrow.url, {"page": 9}, headers).status == status


def test_a_body_that_is_too_long_is_not_read(narrow: Face) -> None:
    head = f"POST /files/dump HTTP/1.1\r\nhost: {narrow.url[7:]}\r\ncontent-type: application/json\r\n"
    said = narrow.raw(f"{head}content-length: {1 << 30}\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 413")
    chunk = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))
    narrow.served.clear()
    with narrow.connect() as client, contextlib.suppress(OSError):  # the server ends before everything is sent
        client.sendall(f"{head}transfer-encoding: chunked\r\n\r\n".encode() + chunk * 17)
    until(lambda: [one.status for one in narrow.served] == [413], what="the refusal")


def partly(running: Face, octets: int) -> socket.socket:
    """A client that has sent so many octets of a body, and more are to come."""
    head = f"POST /files/dump HTTP/1.1\r\nhost: {running.url[7:]}\r\ncontent-type: application/json\r\n"
    client = running.connect()
    before = running.dumps._body_octets
    client.sendall(f"{head}content-length: 999999\r\n\r\n".encode() + b" " * octets)
    until(lambda: running.dumps._body_octets == before + octets, what="the octets")
    return client


def test_bodies_that_come_slowly_keep_no_one_from_a_package(narrow: Face) -> None:
    """Only who has asked takes one of the places."""
    uri = f"{narrow.url}/files/resources/0.txt"
    with contextlib.ExitStack() as slow:
        for _ in range(10):
            slow.enter_context(partly(narrow, 10))
        assert list(Unpacked(ask(narrow.url, {"uris": [uri]}).body).content) == [uri]
    until(lambda: narrow.dumps._body_octets == 0, what="the end of the bodies")


def test_a_body_that_does_not_come_is_given_up(narrow: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow.dumps, "_times", DumpTimes(first_seconds=0.2, body_octets_per_second=1 << 20))
    with partly(narrow, 10) as client:
        said = drain(client)
    assert said.startswith(b"HTTP/1.1 408")
    assert b"HW-SRV-12" in said
    assert narrow.dumps._body_octets == 0


def test_how_long_a_body_may_take() -> None:
    """A trickle ends soon; what comes at a usual rate has its time, up to a bound."""
    times = DumpTimes(first_seconds=10, body_octets_per_second=1_000, body_seconds=60)
    assert [times.for_body(octets) for octets in (0, 1_000, 20_000, 1 << 30)] == [10, 11, 30, 60]


def test_the_octets_of_all_bodies_are_bounded(narrow: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "BODIES_OCTETS", 1_000)
    body = {"uris": [f"{narrow.url}/files/resources/0.txt"]}
    with partly(narrow, 990):
        refused = ask(narrow.url, body)
        assert (refused.status, refused.headers["retry-after"]) == (503, "2")
    until(lambda: narrow.dumps._body_octets == 0, what="the end of the body")
    assert ask(narrow.url, body).status == 200


def test_who_has_got_a_package_may_ask_for_the_next_at_once(narrow: Face) -> None:
    """Of packages that are made at a time there is one: its place is free before its end is seen."""
    wanted = {"uris": [f"{narrow.url}/files/resources/1.txt"]}
    assert {ask(narrow.url, wanted).status for _ in range(100)} == {200}


def test_http_1_0_is_refused(narrow: Face) -> None:
    body = b'{"page":0}'
    head = b"POST /files/dump HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    assert narrow.raw(head + body).partition(b"\r\n")[0].split()[1] == b"505"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_other_methods(narrow: Face, method: str) -> None:
    answer = narrow.get("/files/dump", method)
    assert (answer.status, answer.headers["allow"]) == (405, "POST, OPTIONS")


def test_what_goes_beyond_the_octets_is_named(narrow: Face) -> None:
    uris = [f"{narrow.url}/files/resources/{number}.txt" for number in range(4)]
    package = Unpacked(ask(narrow.url, {"uris": uris}).body)
    assert package.content == {uris[0]: b"resource 0", uris[1]: b"resource 1", uris[2]: b"resource 2"}
    assert package.absent == {uris[3]: AbsenceReason.LIMIT}


def test_a_page(running: Face) -> None:
    package = Unpacked(ask(running.url, {"page": 0}).body)
    assert package.content == listed(running)
    assert package.absent == {}


def test_changes_since_a_moment(tmp_path: Path) -> None:
    """What changed after it, as it is now; what is not there any more is named."""
    (folder := tmp_path / "source").mkdir()
    for name in ("kept", "updated", "deleted"):
        (folder / name).write_text(name)
    with face(folder, tmp_path / "state", max_delete=1.0) as running:
        moment = read_bytes(request(running.url, "/files/changelist.xml").body)[0].from_
        assert moment is not None
        asked = since(moment.isoformat().replace("+00:00", "Z"))
        package = Unpacked(ask(running.url, asked).body)
        assert (package.content, package.absent) == ({}, {})
        (folder / "updated").write_text("once")
        (folder / "passing").write_text("created and deleted")
        running.source.run_once()
        (folder / "updated").write_text("and again")
        (folder / "created").write_text("new")
        (folder / "deleted").unlink()
        (folder / "passing").unlink()
        running.source.run_once()
        base = f"{running.url}/files/resources"
        package = Unpacked(ask(running.url, asked).body)
        assert package.content == {f"{base}/updated": b"and again", f"{base}/created": b"new"}
        deleted = AbsenceReason.DELETED
        assert package.absent == {f"{base}/deleted": deleted, f"{base}/passing": deleted}
        last = running.source.catalog.changes("files")[-1].at
        assert package.document.at == last
        after = since(last.isoformat().replace("+00:00", "Z"))
        assert Unpacked(ask(running.url, after).body).content == {}
        middle = running.source.catalog.changes("files")[1].at
        limited = Unpacked(ask(running.url, since(middle.isoformat().replace("+00:00", "Z"))).body)
        assert f"{base}/created" in limited.content


def test_a_set_that_makes_none(tmp_path: Path) -> None:
    (folder := tmp_path / "source").mkdir()
    (folder / "a").write_text("a")
    with face(folder, tmp_path / "state", on_demand=False) as running:
        document, _, _ = read_bytes(running.get("/files/capabilitylist.xml").body)
        assert dump_offer(document) is None
        assert ask(running.url, {"page": 0}).status == 405
        assert running.get("/files/dump").status == 404
        unknown = request(running.url, "/none/dump", "POST", JSON, b'{"page":0}')
        assert (unknown.status, unknown.headers["connection"]) == (404, "close")
        assert b"on demand" not in running.get("/").body
    with face(folder, tmp_path / "state") as running:
        document, _, _ = read_bytes(running.get("/files/capabilitylist.xml").body)
        assert dump_offer(document) is not None, "a list that lies there from before is written anew"
        assert f"{running.url}/files/dump".encode() in running.get("/").body


def test_no_package_before_the_set_is_published(tmp_path: Path) -> None:
    (folder := tmp_path / "source").mkdir()
    with face(folder, tmp_path / "state", publish=False) as running:
        answer = ask(running.url, {"page": 0})
        assert (answer.status, "retry-after" in answer.headers) == (503, True)


STATES = ["changed", "changed and as long", "vanished", "unreadable", "a link", "a folder"]


@pytest.mark.parametrize("state", STATES)
def test_what_is_not_as_it_was_recorded_is_left_out(tmp_path: Path, state: str) -> None:
    (folder := tmp_path / "source").mkdir()
    (folder / "a").write_text("as it was")
    (folder / "b").write_text("beside it")
    with face(folder, tmp_path / "state", watch=False) as running:
        alter(folder / "a", state)
        a, b = (f"{running.url}/files/resources/{name}" for name in "ab")
        package = Unpacked(ask(running.url, {"uris": [a, b]}).body)
        assert package.content == {b: b"beside it"}
        assert package.absent[a] in (AbsenceReason.CHANGED, AbsenceReason.GONE, AbsenceReason.UNREADABLE)
        assert package.undeclared == {}


def alter(file: Path, state: str) -> None:
    if state == "changed":
        file.write_text("as it is now")
        return
    if state == "changed and as long":
        file.write_text("AS IT WAS")
        return
    file.unlink()
    if state == "a link":
        file.symlink_to("/etc/hostname")
    elif state == "a folder":
        file.mkdir()
    elif state == "unreadable":
        os.mkfifo(file)


# -- while it is sent -----------------------------------------------------------------------------------------------


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def post(url: str, body: object, client: str = "") -> bytes:
    """A request, of a `client` that a proxy names."""
    octets = json.dumps(body).encode()
    head = f"POST /files/dump HTTP/1.1\r\nhost: {url[7:]}\r\ncontent-type: application/json\r\n"
    head += f"x-forwarded-for: {client}\r\n" if client else ""
    return f"{head}content-length: {len(octets)}\r\n\r\n".encode() + octets


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    """A source with more octets than sockets and pipes take up by themselves, one package at a time."""
    folder = tmp_path_factory.mktemp("source")
    for number in range(24):
        (folder / f"{number:02d}.bin").write_bytes(random.Random(number).randbytes(1 << 20))
    (folder / "large.bin").write_bytes(random.Random(99).randbytes(12 << 20))
    with face(folder, tmp_path_factory.mktemp("state"), source_options={"on_demand_requests": 1}) as large:
        yield large


def test_large_resources(large: Face) -> None:
    package = Unpacked(ask(large.url, {"page": 0}).body)
    assert package.content == listed(large)


def test_a_client_that_goes_away_frees_everything(large: Face) -> None:
    """Its place, its thread's work, and the file that was open; the answer counts as cut short."""
    Unpacked(ask(large.url, {"page": 0}).body)  # what is opened for good is open
    before = descriptors()
    for _ in range(3):
        large.served.clear()
        client = large.connect()
        client.sendall(post(large.url, {"page": 0}))
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        busy = ask(large.url, {"page": 0})
        assert (busy.status, json.loads(busy.body)["error"]["code"]) == (503, "HW-SRV-10")
        assert "retry-after" in busy.headers
        client.close()
        until(lambda: cut_short(large) == 1, what="the end of the answer")
    until(lambda: descriptors() <= before, what="the descriptors of before")
    Unpacked(ask(large.url, {"page": 0}).body)


def cut_short(running: Face) -> int:
    return sum(one.status == 200 and not one.complete for one in running.served)


def test_a_client_that_reads_nothing_is_given_up(tmp_path: Path) -> None:
    (folder := tmp_path / "source").mkdir()
    for number in range(3):
        (folder / f"{number}.bin").write_bytes(random.Random(number).randbytes(16 << 20))
    limits = ServerLimits(stall_seconds=0.3)
    with face(folder, tmp_path / "state", limits=limits, source_options={"on_demand_requests": 1}) as running:
        before = descriptors()
        with running.connect() as client:
            client.sendall(post(running.url, {"page": 0}))
            until(lambda: cut_short(running) == 1, what="the end of the answer")
            assert descriptors() <= before + 1
            received = drain(client)
        assert b"PK\x05\x06" not in received
        assert not received.endswith(b"0\r\n\r\n")
        assert ask(running.url, {"uris": [f"{running.url}/files/resources/none"]}).status == 200


def test_a_slow_client_gets_all(large: Face) -> None:
    whole = io.BytesIO()
    with large.connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        client.sendall(post(large.url, {"page": 0}))
        response = http.client.HTTPResponse(client)
        response.begin()
        while block := response.read(1 << 16):
            whole.write(block)
    assert Unpacked(whole.getvalue()).content == listed(large)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    """A source that makes four packages at a time, two of them for one client, larger than sockets take."""
    folder = tmp_path_factory.mktemp("source")
    (folder / "small.txt").write_text("small")
    (folder / "large.bin").write_bytes(random.Random(1).randbytes(24 << 20))
    with face(folder, tmp_path_factory.mktemp("state"), source_options={"on_demand_requests": 4}) as four:
        yield four


@contextlib.contextmanager
def slow_readers(running: Face, clients: Iterable[str]) -> Iterator[list[int]]:
    """Clients that ask for large packages and read nothing of them but the status, which they have been told."""
    with contextlib.ExitStack() as stack:
        told = []
        for name in clients:
            client = stack.enter_context(running.connect())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
            client.sendall(post(running.url, {"page": 0}, name))
            told.append(int(client.recv(12)[9:12]))
        yield told


@pytest.mark.parametrize(
    ("clients", "statuses"),
    [
        pytest.param(["192.0.2.1"] * 10, [200] * 2 + [503] * 8, id="ten of one client"),
        pytest.param(["2001:db8::1", "2001:db8::2", "2001:db8::3"], [200, 200, 503], id="of one network"),
        pytest.param(["198.51.100.9, 192.0.2.1"] * 3, [200, 200, 503], id="whom a client invents in front"),
    ],
)
def test_a_fast_client_gets_a_package_while_slow_ones_read(four: Face, clients: list[str], statuses: list[int]) -> None:
    """One client has a share, also behind a proxy."""
    wanted = {"uris": [f"{four.url}/files/resources/small.txt"]}
    four.served.clear()
    with slow_readers(four, clients) as told:
        assert told == statuses
        fast = [JSON | {"x-forwarded-for": name} for name in ("192.0.2.77", "192.0.2.77")]
        assert [ask(four.url, wanted, headers).status for headers in fast] == [200] * 2
        assert cut_short(four) == 0
    until(lambda: four.dumps._places.taken == 0, what="the end of all")


def test_who_reads_too_slowly_is_cut(four: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    """What we need to make a block does not count, nor what is waited for a reader that goes on at the least speed."""
    for least, is_cut in ((1 << 30, True), (1, False)):
        four.served.clear()
        monkeypatch.setattr(four.dumps, "_times", DumpTimes(judged_seconds=0.2, least_octets_per_second=least))
        with four.connect() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
            client.sendall(post(four.url, {"page": 0}).replace(b"host:", b"connection: close\r\nhost:", 1))
            time.sleep(0.5)
            assert (b"PK\x05\x06" in drain(client)) != is_cut
        until(lambda: four.served, what="the end")
        assert four.served[0].complete != is_cut


class Altering:
    """A content reader whose resources change, vanish or fail while they are read."""

    def __init__(self, reader: ContentReader, act: Callable[[str, int], None]) -> None:
        self._reader = reader
        self._act = act

    def open(self, set_name: str, resource: RecordedResource) -> OpenContent | NoContent:
        content = self._reader.open(set_name, resource)
        return content if isinstance(content, NoContent) else AlteringContent(content, resource.uri, self._act)


class AlteringContent:
    def __init__(self, content: OpenContent, uri: str, act: Callable[[str, int], None]) -> None:
        self._content, self._uri, self._act = content, uri, act
        self.octets, self.is_vouched = content.octets, content.is_vouched

    def read(self, start: int, octets: int) -> bytes:
        self._act(self._uri, start)
        return self._content.read(start, octets)

    def is_unchanged(self) -> bool:
        return self._content.is_unchanged()

    def close(self) -> None:
        self._content.close()


@pytest.mark.parametrize("how", ["truncated", "written over", "unreadable"])
def test_a_large_resource_that_changes_midway_is_not_named(tmp_path: Path, how: str) -> None:
    """Its member ends with what came, so that the package stays whole; nothing says that it is the resource."""
    (folder := tmp_path / "source").mkdir()
    (folder / "a.bin").write_bytes(b"a" * (3 << 20))
    (folder / "b.txt").write_text("beside it")

    def act(uri: str, start: int) -> None:
        if uri != "a.bin" or start < 1 << 20:
            return
        if how == "unreadable":
            raise OSError(errno.EIO, "broken disk")
        with (folder / "a.bin").open("r+b") as file:
            if how == "truncated":
                file.truncate(1 << 20)
            else:
                file.seek(5 << 19)
                file.write(b"b")

    with face(folder, tmp_path / "state", watch=False) as running:
        a, b = (f"{running.url}/files/resources/{name}" for name in ("a.bin", "b.txt"))
        running.dumps._contents = Altering(running.source.contents, act)
        package = Unpacked(ask(running.url, {"uris": [a, b]}).body)
        assert package.content == {b: b"beside it"}
        reason = AbsenceReason.UNREADABLE if how == "unreadable" else AbsenceReason.CHANGED
        assert package.absent == {a: reason}
        assert list(package.undeclared) == ["/resources/a.bin"]


def test_a_fault_midway_cuts_the_connection(tmp_path: Path) -> None:
    """No last chunk and no central directory: nobody takes it for whole."""
    (folder := tmp_path / "source").mkdir()
    for number in range(600):
        (folder / f"{number:03d}").write_bytes(random.Random(number).randbytes(2_000))

    def act(uri: str, _start: int) -> None:
        if uri == "500":
            raise StoreFault("the catalog is away", code="HW-STO-12")

    with face(folder, tmp_path / "state", watch=False) as running:
        running.dumps._contents = Altering(running.source.contents, act)
        received = running.raw(post(running.url, {"page": 0}))
        assert received.startswith(b"HTTP/1.1 200")
        assert b"PK\x03\x04" in received
        assert b"PK\x05\x06" not in received
        assert not received.endswith(b"0\r\n\r\n")
        assert cut_short(running) == 1
        running.dumps._contents = running.source.contents
        assert len(Unpacked(ask(running.url, {"page": 0}).body).content) == 600


def test_fifty_thousand_small_resources(tmp_path: Path) -> None:
    """Simulated ones, by a process of its own; read by `unzip` as well, where there is one."""
    command = ["simulate", "--resources", "50000", "--rate", "0", "--size", "500", "--port", "0", "--json", "--quiet"]
    command += ["--hash", "sha-256"]
    process = subprocess.Popen(
        [sys.executable, "-m", "headwater", *command, "--state", str(tmp_path / "state")], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        (name,) = (one.loc for one in read_bytes(request(url, "/.well-known/resourcesync").body)[1])
        offer = dump_offer(read_bytes(request(url, name.removeprefix(url)).body)[0])
        assert offer is not None
        answer = request(url, offer.href.removeprefix(url), "POST", JSON, b'{"page":0}')
        package = Unpacked(answer.body)
        assert len(package.content) == 50_000
        assert package.absent == {}
        if unzip := shutil.which("unzip"):
            (tmp_path / "package.zip").write_bytes(answer.body)
            subprocess.run([unzip, "-tqq", str(tmp_path / "package.zip")], check=True)
    finally:
        process.terminate()
        process.communicate()


def test_static_files_offer_nothing(tmp_path: Path) -> None:
    """Any web server has them, and makes nothing."""
    (folder := tmp_path / "source").mkdir()
    (folder / "a").write_text("a")
    publish_folder(folder, to=tmp_path / "out", base_url="http://127.0.0.1:1/x")
    document, _, _ = read_bytes((tmp_path / "out" / "files" / "capabilitylist.xml").read_bytes())
    assert dump_offer(document) is None


@pytest.mark.parametrize(
    ("settings", "offers"),
    [
        (SetConfig(files="a folder"), True),
        (SetConfig(files="a folder", on_demand=False), False),
        (SetConfig(files="a folder", resource_base="https://files.example.org/"), False),
        (SetConfig(feed="events"), False),
        (SetConfig(feed="events", resource_root="a folder"), True),
        (SetConfig(feed="events", resource_root="a folder", resource_base="https://files.example.org/"), False),
    ],
)
def test_which_sets_make_packages(settings: SetConfig, offers: bool) -> None:
    """Those whose octets this server has, at their URLs."""
    config = SourceConfig(state="state", sets=(settings,))
    assert (config.site("http://127.0.0.1").sets[0].dumps is not None) == offers
    if settings.resource_root is None or settings.resource_base is not None:  # else it cannot be a static tree
        assert msgspec.structs.replace(config, to="a tree").site("http://127.0.0.1").sets[0].dumps is None


def test_a_catalog_that_is_reached_by_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked in threads, many URIs at a time: whoever asks for a document meanwhile does not wait."""
    (folder := tmp_path / "source").mkdir()
    for number in range(600):
        (folder / f"{number:03d}").write_text(f"resource {number}")
    with face(folder, tmp_path / "state", watch=False) as running:
        catalog, asked, may_go_on = running.source.catalog, [], threading.Event()
        get = catalog.get

        def slow_get(name: str, uris: Sequence[str]) -> dict[str, Resource]:
            asked.append(len(uris))
            assert threading.current_thread().name.startswith("headwater-dump")
            assert may_go_on.wait(DEADLINE)
            return get(name, uris)

        monkeypatch.setattr(catalog, "get", slow_get)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(ask, running.url, {"page": 0})
            until(lambda: bool(asked), what="the first look-up")
            assert request(running.url, "/files/capabilitylist.xml").status == 200
            may_go_on.set()
            assert len(Unpacked(answer.result().body).content) == 600
        assert sum(asked) == 600
        assert len(asked) == 3


def test_access_log_and_metrics(running: Face) -> None:
    running.served.clear()
    octets = len(ask(running.url, {"page": 0}).body)
    until(lambda: bool(running.served), what="the record")
    (record,) = running.served
    assert (record.method, record.target, record.status, record.octets) == ("POST", "/files/dump", 200, octets)
    assert record.complete
    assert kind_of(record.target) == "dump"
