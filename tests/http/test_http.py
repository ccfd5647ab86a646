"""Documents and resources over real sockets: what is sent, what is not sent again, and what is never sent."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import socket
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from headwater.errors import HeadwaterError
from headwater.http.responses import content_lines
from headwater.http.server import AddressInUse, ServerLimits, address_url, listen
from headwater.source.configured_source import utc_now
from headwater.spec.discovery import parse_link_header
from tests.support.documents import read_bytes
from tests.support.serving import Face, drain, face, request
from tests.support.waiting import DEADLINE, settle, settle_second, until

FILES = {
    b"plain.txt": b"hello\n",
    b"empty": b"",
    b"page.html": b"<p>hi</p>",
    b"deep/er/file.bin": bytes(range(256)) * 300,
    b"with space %41.txt": b"space",
    b"new\nline": b"newline",
    "é.txt".encode(): b"utf-8",
    b"\xff\xfe.dat": b"not utf-8",
    b"x" * 200: b"long",
    b"private.key": b"never to be seen",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files")
    for name, data in FILES.items():
        path = os.path.join(os.fsencode(root), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text("secret")
    (root / "escape").symlink_to(outside / "secret")
    (root / "folder-out").symlink_to(outside)
    (root / "inside").symlink_to(root / "plain.txt")
    os.mkfifo(root / "fifo")
    settle()  # files are older than a tick of the clock when they are read: their notes are trusted
    return root


@pytest.fixture(scope="module")
def server(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    with face(root, tmp_path_factory.mktemp("state"), exclude=("*.key",)) as running:
        settle_second()  # within the second of a publication dates prove nothing
        yield running


LIST = "/files/resourcelist.xml"


def test_everything_listed_is_served_as_listed(server: Face, root: Path) -> None:
    _, entries, warnings = read_bytes(server.get(LIST).body, server.url + LIST)
    assert not warnings
    assert len(entries) == len(FILES)  # all but the excluded one, and the link inside as a name of its own
    for entry in entries:
        answer = server.get(entry.loc.removeprefix(server.url))
        assert answer.status == 200
        digest = hashlib.sha256(answer.body).hexdigest()
        assert entry.hash is not None
        assert f"sha-256:{digest}" in entry.hash
        assert f"md5:{hashlib.md5(answer.body).hexdigest()}" in entry.hash
        assert len(answer.body) == entry.length == int(answer.headers["content-length"]), "RS-MD-08"
        assert answer.headers["etag"] == f'"{digest}"'
        assert answer.headers["content-type"] == entry.type
        assert entry.lastmod is not None
        assert parsedate_to_datetime(answer.headers["last-modified"]) == entry.lastmod.replace(microsecond=0)


def test_resources_lead_to_their_capability_list(server: Face) -> None:
    answer = server.get("/files/resources/plain.txt")
    (link,) = parse_link_header(answer.headers["link"], server.url)
    assert "resourcesync" in link.rel, "RS-DISC-03"
    assert link.href == f"{server.url}/files/capabilitylist.xml"
    assert server.get("/files/capabilitylist.xml").status == 200


def test_documents_carry_their_type_length_and_validators(server: Face) -> None:
    for target in ("/.well-known/resourcesync", "/files/capabilitylist.xml", LIST, "/files/changelist.xml"):
        answer = server.get(target)
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/xml; charset=utf-8", "AMB-13"
        assert int(answer.headers["content-length"]) == len(answer.body)
        assert answer.headers["etag"].startswith('"')
        assert answer.headers["vary"] == "Accept-Encoding"
        assert "content-encoding" not in answer.headers, "identity for those who do not ask"
        assert "link" not in answer.headers
        assert parsedate_to_datetime(answer.headers["last-modified"])
    assert server.get("/robots.txt").headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("target", [LIST, "/files/resources/plain.txt", "/.well-known/resourcesync"])
def test_conditional_requests(server: Face, target: str) -> None:
    whole = server.get(target)
    tag, date = whole.headers["etag"], whole.headers["last-modified"]
    for headers, status in (
        ({"If_None_Match": tag}, 304),
        ({"If_None_Match": f'"other", W/{tag}'}, 304),
        ({"If_None_Match": "*"}, 304),
        ({"If_None_Match": '"other"'}, 200),
        ({"If_Modified_Since": date}, 304),
        ({"If_Modified_Since": "Thu, 01 Jan 1970 00:00:00 GMT"}, 200),
        ({"If_Modified_Since": date, "If_None_Match": '"other"'}, 200),
        ({"If_Modified_Since": "nonsense"}, 200),
    ):
        answer = server.get(target, **headers)
        assert (answer.status, headers) == (status, headers)
        assert answer.headers["etag"] == tag
        assert answer.body == (whole.body if status == 200 else b"")
        if status == 304:
            assert "content-length" not in answer.headers
            assert {"etag", "cache-control"} <= set(answer.headers), "RFC 9110 15.4.5"


def test_gzip_is_another_representation_with_its_own_tag(server: Face) -> None:
    plain = server.get(LIST)
    coded = server.get(LIST, Accept_Encoding="gzip")
    assert coded.headers["content-encoding"] == "gzip"
    assert gzip.decompress(coded.body) == plain.body
    assert coded.headers["etag"] == plain.headers["etag"][:-1] + '-gzip"'
    assert int(coded.headers["content-length"]) == len(coded.body)
    assert server.get(LIST, Accept_Encoding="gzip", If_None_Match=coded.headers["etag"]).status == 304
    assert server.get(LIST, Accept_Encoding="gzip", If_None_Match=plain.headers["etag"]).status == 200
    assert server.get(LIST, If_None_Match=coded.headers["etag"]).status == 200
    assert server.get(LIST, Accept_Encoding="gzip;q=0").body == plain.body
    assert "content-encoding" not in server.get("/files/resources/plain.txt", Accept_Encoding="gzip").headers


@pytest.mark.parametrize("target", [LIST, "/files/resources/deep/er/file.bin", "/", "/health", "/nothing"])
@pytest.mark.parametrize("headers", [{}, {"Accept_Encoding": "gzip"}, {"Range": "bytes=2-5"}])
def test_head_is_get_without_the_body(server: Face, target: str, headers: dict[str, str]) -> None:
    get, head = server.get(target, **headers), server.get(target, "HEAD", **headers)
    assert head.body == b""
    for volatile in ("date",):
        get.headers.pop(volatile)
        head.headers.pop(volatile)
    assert (head.status, head.headers) == (get.status, get.headers)


@pytest.mark.parametrize("target", [LIST, "/files/resources/deep/er/file.bin"])
def test_ranges(server: Face, target: str) -> None:
    whole = server.get(target)
    size, tag = len(whole.body), whole.headers["etag"]
    for text, start, end in (
        ("0-0", 0, 1),
        ("0-", 0, size),
        ("5-9", 5, 10),
        (f"{size - 1}-", size - 1, size),
        ("-7", size - 7, size),
        (f"-{size + 5}", 0, size),
        (f"3-{size + 100}", 3, size),
    ):
        part = server.get(target, Range=f"bytes={text}")
        assert part.status == 206
        assert part.body == whole.body[start:end]
        assert part.headers["content-range"] == f"bytes {start}-{end - 1}/{size}"
        assert part.headers["etag"] == tag
    beyond = server.get(target, Range=f"bytes={size}-")
    assert (beyond.status, beyond.headers["content-range"]) == (416, f"bytes */{size}")
    for text in ("bytes=0-1,3-4", "bytes=9-2", "lines=1-2", "bytes=x"):
        assert server.get(target, Range=text).status == 200
    assert server.get(target, Range="bytes=0-3", If_Range=tag).status == 206
    assert server.get(target, Range="bytes=0-3", If_Range='"old"').status == 200
    assert server.get(target, Range="bytes=0-3", If_None_Match=tag).status == 304


def test_parts_of_the_gzip_form_are_of_its_octets(server: Face) -> None:
    whole = server.get(LIST, Accept_Encoding="gzip")
    part = server.get(LIST, Accept_Encoding="gzip", Range="bytes=10-19")
    assert (part.status, part.body) == (206, whole.body[10:20])
    assert part.headers["content-encoding"] == "gzip"


HOSTILE = [
    ("/files/resources/../state/catalog.sqlite", 404),
    ("/files/resources/%2e%2e/%2e%2e/etc/passwd", 404),
    ("/files/resources/..%2f..%2fetc%2fpasswd", 404),
    ("/files/resources/%252e%252e/etc/passwd", 404),
    ("/files/resources//etc/passwd", 404),
    ("/files/resources/plain.txt%00", 404),
    ("/files/resources/plain.txt/", 404),
    ("/files/resources/deep", 404),
    ("/files/resources/escape", 404),
    ("/files/resources/folder-out/secret", 404),
    ("/files/resources/fifo", 404),
    ("/files/resources/private.key", 404),
    ("/files/resources/privat%65.key", 404),
    ("/files/../../etc/passwd", 404),
    ("/catalog.sqlite", 404),
    ("/files/resources/%zz", 400),
    ("/files/resources/" + "a/" * 4000, 404),
    ("/" + "a" * 20_000, 414),
]


@pytest.mark.parametrize(("target", "status"), HOSTILE, ids=[case[0][:60] for case in HOSTILE])
def test_hostile_targets(server: Face, target: str, status: int) -> None:
    answer = server.get(target)
    assert answer.status == status
    assert b"secret" not in answer.body
    assert b"never" not in answer.body
    assert answer.headers["content-type"].startswith("text/plain")


def test_spellings_of_a_uri_mean_the_same_file(server: Face) -> None:
    assert server.get("/files/resources/pl%61in.txt").body == b"hello\n"
    assert server.get("/files/resources/%c3%a9.txt").body == b"utf-8"
    assert server.get("/files/resources/plain.txt?query=ignored").body == b"hello\n"


def test_other_methods_are_refused_and_their_bodies_not_waited_for(server: Face) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"):
        answer = server.get(LIST, method)
        assert answer.status == 405
        assert answer.headers["allow"] == "GET, HEAD"
    said = server.raw(b"POST /files/resourcelist.xml HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\nabc")
    assert said.startswith(b"HTTP/1.1 405")
    assert b"connection: close" in said


def test_body_of_a_get_is_ignored(server: Face) -> None:
    assert request(server.url, "/files/resources/plain.txt", body=b"surprise").body == b"hello\n"


@pytest.mark.parametrize(
    ("octets", "begins"),
    [
        (b"GET http://elsewhere.example/files/resources/plain.txt HTTP/1.1\r\nhost: x\r\n\r\n", b"HTTP/1.1 200"),
        (b"GET /files/resources/plain.txt HTTP/1.0\r\n\r\n", b"HTTP/1.1 200"),
        (b"GET * HTTP/1.1\r\nhost: x\r\n\r\n", b"HTTP/1.1 400"),
        (b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n", b"HTTP/1.1 40"),
        (b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n", b"HTTP/1.1 40"),
        (b"GET /\xff\xfe HTTP/1.1\r\nhost: x\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET /files/resources/\xc3\xa9.txt HTTP/1.1\r\nhost: x\r\n\r\n", b"HTTP/1.1 400"),
        (b"nonsense\r\n\r\n", b"HTTP/1.1 400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"HTTP/1.1 400"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 100_000 + b"\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 10_000 + b"\r\n", b"HTTP/1.1 400"),
        (b"GET /" + b"a" * 900_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", b"HTTP/1.1 400"),
    ],
)
def test_odd_requests(server: Face, octets: bytes, begins: bytes) -> None:
    with server.connect() as client:
        client.sendall(octets)
        assert client.recv(1 << 16).startswith(begins)
    assert server.get("/health").status == 200


def test_requests_may_be_pipelined(server: Face) -> None:
    one = b"GET /files/resources/plain.txt HTTP/1.1\r\nhost: x\r\n\r\n"
    last = b"GET /files/resources/plain.txt HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    said = server.raw(one * 500 + last)
    assert said.count(b"HTTP/1.1 200 OK") == 501


def test_health(server: Face) -> None:
    answer = server.get("/health")
    report = json.loads(answer.body)
    assert (answer.status, report["ready"], report["base_url"]) == (200, True, server.url)
    (one,) = report["sets"]
    assert (one["name"], one["resources"], one["ready"]) == ("files", len(FILES), True)
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("target", ["/", LIST, "/robots.txt", "/health", "/nothing"])
def test_nothing_in_our_own_pages_runs_and_no_other_page_has_them_in_itself(server: Face, target: str) -> None:
    guards = {"x-content-type-options": "nosniff", "x-frame-options": "DENY"}
    for headers in ({}, {"range": "bytes=0-3"}, {"range": "bytes=99999999-"}):
        answer = server.get(target, **headers)
        assert answer.headers.items() >= guards.items()
        assert answer.headers["content-security-policy"].startswith("default-src 'none';")
    assert "content-security-policy" not in server.get("/files/resources/plain.txt").headers, "that is somebody else's"


@pytest.mark.parametrize("target", ["/robots.txt", "/health", "/files/resources/plain.txt", "/nothing"])
def test_the_log_keeps_no_query(server: Face, target: str) -> None:
    """Whoever mistakes us for another server may send a secret in it."""
    for _ in range(2):  # the second is answered at once where that can be
        server.served.clear()
        server.get(f"{target}?access_token=secret&b=c")
        until(lambda: server.served, what="the record")
        assert server.served[0].target == f"{target}?"


def test_home_page_is_for_people_and_claims_no_set_for_itself(server: Face) -> None:
    page = server.get("/").body.decode()
    assert "files/capabilitylist.xml" in page
    assert 'rel="resourcesync"' not in page, "RS-DISC-04: the page is in no set"


def test_home_page_tells_the_name_of_a_set_beside_its_title(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    with face(tmp_path / "files", tmp_path / "state", name="a-name", title="A & B", publish=True) as running:
        assert "A &amp; B <code>a-name</code>" in running.get("/").body.decode()


def test_home_page_leads_to_the_document_about_the_source(tmp_path: Path, server: Face) -> None:
    (tmp_path / "files").mkdir()
    about = "https://example.org/about?a&b"
    with face(tmp_path / "files", tmp_path / "state", source_options={"describedby": about}) as running:
        assert '<a href="https://example.org/about?a&amp;b">About this source</a>' in running.get("/").body.decode()
    assert "About this source" not in server.get("/").body.decode(), "where the source has no such document"


def test_home_page_tells_where_packages_are_made(tmp_path: Path, server: Face) -> None:
    (tmp_path / "files").mkdir()
    assert f"packages on demand at <code>{server.url}/files/dump</code>" in server.get("/").body.decode()
    with face(tmp_path / "files", tmp_path / "state", on_demand=False) as running:
        assert "packages on demand" not in running.get("/").body.decode()


def test_home_page_names_its_parts_for_screen_readers(server: Face) -> None:
    page = server.get("/").body.decode()
    assert '<th scope="row">files</th>' in page, "the links of a row are read with the name of their set"
    assert page.count('<th scope="col"') == 4
    assert page.count("<main>") == page.count("</main>") == 1


def test_every_request_is_logged(server: Face) -> None:
    server.get("/files/resources/plain.txt?a=b")
    last = server.served[-1]
    assert (last.method, last.target, last.status, last.octets, last.complete) == (
        "GET",
        "/files/resources/plain.txt?",
        200,
        6,
        True,
    )


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (ValueError("odd"), 500, "ValueError: odd [HW-000]"),
        (OSError(errno.EINVAL, "odd"), 500, "OSError: [Errno 22] odd [HW-000]"),
        (OSError(errno.ENOSPC, "full"), 503, "full [HW-STO-01]"),
    ],
    ids=str,
)
def test_whatever_goes_wrong_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, told: str
) -> None:
    def fail() -> None:
        raise error

    heard: list[HeadwaterError | OSError] = []
    (tmp_path / "files").mkdir()
    with face(tmp_path / "files", tmp_path / "state") as running:
        monkeypatch.setattr(running.app, "_on_fault", heard.append)
        monkeypatch.setattr(running.app.precedence, "give_way", fail)
        assert running.get("/?fresh").status == status
        until(lambda: running.served)
        assert running.served[-1].status == status
    assert list(map(str, heard)) == [told]


# What changes while it is served


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Face]:
    root = tmp_path / "files"
    root.mkdir()
    (root / "a.txt").write_bytes(b"one")
    (root / "big.bin").write_bytes(os.urandom(3_000_000))
    settle()
    with face(root, tmp_path / "state") as running:
        yield running


def test_file_that_changed_since_the_scan_is_served_with_a_weak_tag(small: Face, tmp_path: Path) -> None:
    strong = small.get("/files/resources/a.txt").headers["etag"]
    (tmp_path / "files/a.txt").write_bytes(b"other")
    changed = small.get("/files/resources/a.txt", If_None_Match=strong)
    assert (changed.status, changed.body) == (200, b"other")
    assert changed.headers["etag"].startswith('W/"')
    assert small.get("/files/resources/a.txt", Range="bytes=0-1", If_Range=changed.headers["etag"]).status == 200
    settle()
    small.source.run_once()
    assert not small.get("/files/resources/a.txt").headers["etag"].startswith("W/")


def test_file_that_is_gone_or_closed_or_no_longer_a_file(small: Face, tmp_path: Path) -> None:
    path = tmp_path / "files/a.txt"
    path.unlink()
    assert small.get("/files/resources/a.txt").status == 404
    os.mkfifo(path)
    assert small.get("/files/resources/a.txt").status == 404
    path.unlink()
    path.symlink_to("/etc/hostname")
    assert small.get("/files/resources/a.txt").status == 404
    path.unlink()
    path.symlink_to(tmp_path / "files/big.bin")
    assert small.get("/files/resources/a.txt").headers["etag"].startswith("W/")


def test_what_has_come_to_lie_outside_is_not_served_even_in_the_state_that_was_listed(
    small: Face, tmp_path: Path
) -> None:
    """A folder that has moved out, with a link in its place: the file is the very one that was read inside."""
    folder = tmp_path / "files/folder"
    folder.mkdir()
    (folder / "file").write_text("once inside")
    settle()
    small.source.run_once()
    target = "/files/resources/folder/file"
    assert small.get(target).headers["etag"].startswith('"')
    folder.rename(tmp_path / "outside")
    assert small.get(target).status == 404
    folder.symlink_to(tmp_path / "outside")
    assert small.get(target).status == 404
    folder.unlink()
    (tmp_path / "files/elsewhere").mkdir()
    (tmp_path / "outside").rename(tmp_path / "files/elsewhere/folder")
    folder.symlink_to(tmp_path / "files/elsewhere/folder")
    assert small.get(target).body == b"once inside", "a link inside the folder may lead anywhere in it"


def test_the_state_of_a_command_is_not_served_by_a_link(tmp_path: Path) -> None:
    root = tmp_path / "files"
    root.mkdir()
    (root / "a").write_text("a")
    with face(root, root / "kept") as server:
        for secret in (root / "kept/lock", root / "kept/catalog.sqlite"):
            (root / "a").unlink()
            (root / "a").symlink_to(secret)
            assert server.get("/files/resources/a").status == 404


@pytest.mark.parametrize("linked", ["root", "above"])
def test_a_root_behind_a_link_is_where_the_link_leads_now(tmp_path: Path, linked: str) -> None:
    """Releases are switched so: by a link to the newest."""
    for release in ("1", "2"):
        (tmp_path / release / "files").mkdir(parents=True)
        (tmp_path / release / "files/a").write_text(f"release {release}")
    current = tmp_path / "current"
    below = Path() if linked == "root" else Path("files")
    current.symlink_to(tmp_path / "1" / ("files" if linked == "root" else ""))
    with face(current / below, tmp_path / "state") as server:
        assert server.get("/files/resources/a").body == b"release 1"
        (tmp_path / "new").symlink_to(tmp_path / "2" / ("files" if linked == "root" else ""))
        (tmp_path / "new").rename(current)
        assert server.get("/files/resources/a").body == b"release 2"
        (tmp_path / "2/files/a").unlink()
        (tmp_path / "2/files/a").symlink_to(tmp_path / "1/files/a")
        assert server.get("/files/resources/a").status == 404


def test_file_truncated_while_it_is_sent_cuts_the_connection(small: Face, tmp_path: Path) -> None:
    path = tmp_path / "files/big.bin"
    with path.open("r+b") as file:
        file.truncate(50_000_000)
    with small.connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.sendall(b"GET /files/resources/big.bin HTTP/1.1\r\nhost: x\r\n\r\n")
        received = client.recv(1000)
        assert b"content-length: 50000000" in received
        os.truncate(path, 1000)
        octets = len(received) + len(drain(client))
    assert octets < 50_000_000, "never padded"
    until(lambda: small.served and not small.served[-1].complete)


def test_file_rewritten_while_it_is_sent_is_not_passed_off_as_the_listed_one(small: Face, tmp_path: Path) -> None:
    path = tmp_path / "files/big.bin"
    path.write_bytes(bytes(20_000_000))
    settle()
    small.source.run_once()
    with small.connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.sendall(b"GET /files/resources/big.bin HTTP/1.1\r\nhost: x\r\n\r\n")
        received = client.recv(1000)
        assert b"etag: W/" not in received
        with path.open("r+b") as file:
            file.write(b"changed")
        octets = len(received) + len(drain(client))
    assert octets < 20_000_000


@pytest.mark.parametrize("octets", [5_000, 60_000])
def test_a_small_file_rewritten_as_it_is_opened_is_not_passed_off_either(
    octets: int, small: Face, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same length: either the answer is cut off, or it does not say that it is the listed state."""
    path = tmp_path / "files/small.bin"
    path.write_bytes(bytes(octets))
    settle()
    small.source.run_once()
    listed = small.get("/files/resources/small.bin")
    assert (listed.status, listed.body) == (200, bytes(octets))
    read = os.pread

    def rewritten(descriptor: int, size: int, start: int) -> bytes:
        if os.fstat(descriptor).st_size == octets and path.stat().st_ino == os.fstat(descriptor).st_ino:
            with path.open("r+b") as file:
                file.write(b"changed")
        return read(descriptor, size, start)

    monkeypatch.setattr(os, "pread", rewritten)
    with small.connect() as client:
        client.sendall(b"GET /files/resources/small.bin HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        head, _, body = drain(client).partition(b"\r\n\r\n")
    etag = listed.headers["etag"].encode()
    assert etag not in head or body != b"changed" + bytes(octets - 7)


def test_large_file_is_whole(small: Face, tmp_path: Path) -> None:
    assert small.get("/files/resources/big.bin").body == (tmp_path / "files/big.bin").read_bytes()


def test_slow_head_idle_connection_and_stalled_reader_are_given_up(tmp_path: Path) -> None:
    root = tmp_path / "files"
    root.mkdir()
    (root / "a.txt").write_bytes(b"one")
    (root / "big.bin").write_bytes(b"")
    os.truncate(root / "big.bin", 200_000_000)
    limits = ServerLimits(head_seconds=2, idle_seconds=2, stall_seconds=1)
    with face(root, tmp_path / "state", limits=limits) as server:
        began = time.monotonic()
        with (
            server.connect() as idle,
            server.connect() as stalled,
            server.connect() as slow,
            server.connect() as silent,
        ):
            idle.sendall(b"GET /files/resources/a.txt HTTP/1.1\r\nhost: x\r\n\r\n")
            stalled.sendall(b"GET /files/resources/big.bin HTTP/1.1\r\nhost: x\r\n\r\n")
            slow.sendall(b"GET / HTTP/1.1\r\nhost:")
            for client in (silent, slow):
                assert client.recv(100) == b""
            assert drain(idle).endswith(b"one")
            until(lambda: any(not one.complete and "big.bin" in one.target for one in server.served))
        assert time.monotonic() - began < DEADLINE / 4


def test_documents_follow_publications(small: Face, tmp_path: Path) -> None:
    before = small.get("/files/changelist.xml")
    (tmp_path / "files/new.txt").write_bytes(b"new")
    small.source.run_once()
    after = small.get("/files/changelist.xml", If_None_Match=before.headers["etag"])
    assert after.status == 200
    assert len(read_bytes(after.body)[1]) == 1
    assert after.headers["cache-control"] == "no-cache", "AMB-62"
    same_second = small.get("/files/changelist.xml", If_Modified_Since=before.headers["last-modified"])
    assert same_second.status == 200, "a date never hides a change within its second"


def test_closed_lists_may_be_kept_for_ever(tmp_path: Path) -> None:
    root = tmp_path / "files"
    root.mkdir()
    (root / "a").write_bytes(b"a")
    with face(root, tmp_path / "state", segment_seconds=0.001) as running:
        for number in range(2):
            (root / f"n{number}").write_bytes(b"n")
            running.source.run_once()
            running.source.publisher.publish("files", running.source.catalog.mark("files", utc_now()))
        lifetimes = [running.get(f"/files/changelist/0000{n}.xml").headers["cache-control"] for n in (0, 1)]
        assert lifetimes == ["public, max-age=31536000, immutable"] * 2
        last = running.source.catalog.segments("files")[-1].number
        assert running.get(f"/files/changelist/{last:05d}.xml").headers["cache-control"] == "no-cache"
        assert running.get("/files/changelist/open.xml").headers["cache-control"] == "no-cache"


def test_before_the_first_publication_nothing_is_shown(tmp_path: Path) -> None:
    root = tmp_path / "files"
    root.mkdir()
    (root / "a").write_bytes(b"a")
    with face(root, tmp_path / "state", publish=False) as running:
        for target in ("/.well-known/resourcesync", "/robots.txt", LIST, "/files/changelist.xml", "/files/resources/a"):
            answer = running.get(target)
            assert answer.status == 503
            assert int(answer.headers["retry-after"]) > 0
        health = running.get("/health")
        assert (health.status, json.loads(health.body)["ready"]) == (503, False)
        assert running.get("/nothing").status == 404
        assert "being prepared" in running.get("/").body.decode()
        running.source.run_once()
        assert running.get("/files/resources/a").status == 200
        assert running.get("/health").status == 200


def test_what_a_new_pattern_leaves_out_is_not_served_even_before_the_scan(tmp_path: Path) -> None:
    folder = tmp_path / "few"
    (folder / "sub").mkdir(parents=True)
    for name in ("a", "sub/b.key"):
        (folder / name).write_text(name)
    with face(folder, tmp_path / "state") as server:
        assert server.get("/files/resources/sub/b.key").status == 200
    with face(folder, tmp_path / "state", publish=False, exclude=("*.key",)) as server:
        server.source.publisher.publish("files", utc_now())
        assert server.get("/files/resources/a").status == 200
        assert server.get("/files/resources/sub/b.key").status == 404


def test_an_address_is_taken_once() -> None:
    with listen("127.0.0.1", 0) as held, pytest.raises(AddressInUse) as refused:
        listen("127.0.0.1", held.getsockname()[1])
    assert refused.value.exit_status == 6
    with pytest.raises(AddressInUse):
        listen("no.such.host.invalid", 0)


def test_ipv6(tmp_path: Path) -> None:
    try:
        listener = listen("::1", 0)
    except AddressInUse:
        pytest.skip("no IPv6 here")
    with listener:
        assert address_url(listener).startswith("http://[::1]:")


def test_a_media_type_cannot_add_a_line() -> None:
    assert content_lines("text/html", "gzip") == b"content-type: text/html\r\ncontent-encoding: gzip\r\n"
    assert content_lines("text/html\r\nset-cookie: a", "gzip\n") == b""
