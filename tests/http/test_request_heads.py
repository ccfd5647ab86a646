"""Heads of requests that a proxy before a server might read differently, or that are no requests (RFC 9112)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.http.documents import DocumentCache
from headwater.http.server import check_head
from tests.support.serving import Face, face
from tests.support.waiting import settle, settle_second

FOLLOWING = b"GET /files/resources/a.txt HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    folder = tmp_path_factory.mktemp("source")
    (folder / "files").mkdir()
    (folder / "files" / "a.txt").write_bytes(b"0123456789")
    settle()  # else its tag would stay weak
    with face(folder / "files", folder / "state") as running:
        yield running


BODY = b"POST /files/dump HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
REFUSED = {
    "HTTP/0.9": b"GET /health\r\n\r\n",
    "HTTP/2 in a head of HTTP/1": b"GET /health HTTP/2.0\r\nhost: x\r\n\r\n",
    "no Host": b"GET /health HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET /health HTTP/1.1\r\nhost: a\r\nHost: b\r\n\r\n",
    "two Hosts, HTTP/1.0": b"GET /health HTTP/1.0\r\nhost: a\r\nHost: b\r\n\r\n",
    "a Host of another kind": b"GET /health HTTP/1.1\r\nhost: a/b\r\n\r\n",
    "a list of Hosts": b"GET /health HTTP/1.1\r\nhost: a b\r\n\r\n",
    "both lengths": BODY + b"content-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nX",
    "two lengths": BODY + b"content-length: 0\r\ncontent-length: 5\r\n\r\n",
    "a length with a sign": BODY + b"content-length: +5\r\n\r\n12345",
    "a space before a colon": BODY + b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
    "chunks within a coding": BODY + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a coding within chunks": BODY + b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n",
    "a folded line": BODY + b"x: a\r\n transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "a size with a prefix": BODY + b"transfer-encoding: chunked\r\n\r\n0x0\r\n\r\n",
    "a line that ends early": BODY + b"x: a\rcontent-length: 5\r\ncontent-length: 0\r\n\r\n",
}


@pytest.mark.parametrize("asked", REFUSED.values(), ids=REFUSED)
def test_what_can_be_read_in_two_ways_is_refused_and_nothing_after_it_is_answered(served: Face, asked: bytes) -> None:
    said = served.raw(asked + FOLLOWING)
    assert said.startswith(b"HTTP/1.1 400")
    assert said.count(b"HTTP/1.1 ") == 1
    assert b"0123456789" not in said


@pytest.mark.parametrize("broken", ["no request", "two Hosts", "no Host"])
def test_what_is_no_request_is_not_refused_in_place_of_the_one_before(served: Face, broken: str) -> None:
    """RFC 9112 9.3.2: answers come in order, and whoever gets a 400 first takes it for that of the first request."""
    before = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    for count in (1, 3):
        said = served.raw(before * count + REFUSED.get(broken, b"no request\r\n\r\n") + FOLLOWING)
        assert said.count(b"HTTP/1.1 200 OK") == said.count(b"HTTP/1.1 ") == count


@pytest.mark.parametrize(
    "host", [b"", b"example.org", b"example.org:80", b"127.0.0.1:8000", b"[::1]:8000", b"a_b", b"xn--e1afmkfd.example:"]
)
def test_hosts_of_all_kinds_are_taken(host: bytes) -> None:
    check_head([(b"host", host), (b"transfer-encoding", b" Chunked")], "1.1")


def test_a_request_of_http_1_0_needs_no_host(served: Face) -> None:
    said = served.raw(b"GET /files/resources/a.txt HTTP/1.0\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 200")
    assert said.endswith(b"0123456789")


@pytest.mark.parametrize("where", ["/files/resources/a.txt", "/files/resourcelist.xml"])
def test_who_goes_on_with_a_part_gets_the_rest_of_that_version_alone(served: Face, where: str) -> None:
    """RFC 9110 13.1.1: `If-Match` that does not name what there is gets 412."""
    tag = served.get(where).headers["etag"]
    for names in (tag, "*", f'"other", {tag}'):
        assert served.get(where, If_Match=names, Range="bytes=2-3").status == 206
    for names in ('"other"', f"W/{tag}", "nonsense", ""):
        for method in ("GET", "HEAD"):
            refused = served.get(where, method, If_Match=names, Range="bytes=2-3")
            assert (refused.status, refused.headers["etag"]) == (412, tag)


@pytest.mark.parametrize("where", ["/files/resources/a.txt", "/files/resourcelist.xml"])
def test_who_wants_what_was_not_modified_since_gets_no_later_version(served: Face, where: str) -> None:
    """RFC 9110 13.1.4, 13.2.2: 412, also before a 304; with `If-Match` the date does not count."""
    settle_second()  # within it the `Last-Modified` of a document is the second before
    whole = served.get(where)
    tag, date, former = whole.headers["etag"], whole.headers["last-modified"], "Thu, 01 Jan 1970 00:00:00 GMT"
    for method in ("GET", "HEAD"):
        assert served.get(where, method, If_Unmodified_Since=date).status == 200
        assert served.get(where, method, If_Unmodified_Since="nonsense").status == 200
        assert served.get(where, method, If_Unmodified_Since=former, If_Match=tag).status == 200
        refused = served.get(where, method, If_Unmodified_Since=former, If_None_Match=tag)
        assert (refused.status, refused.headers["etag"]) == (412, tag)
    assert served.get(where, If_Match='"other"', If_None_Match=tag).status == 412


def test_a_document_that_is_published_meanwhile_is_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RFC 9110 13.1.1: between a look at it and its octets a later version may come, and it is not what was named."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_bytes(b"one")
    open_octets = DocumentCache.open

    with face(tmp_path / "files", tmp_path / "state") as running:

        def published_first(cache: DocumentCache, *asked: Any) -> Any:
            (tmp_path / "files" / "b.txt").write_bytes(b"two")
            running.source.run_once()
            return open_octets(cache, *asked)

        where = "/files/resourcelist.xml"
        tag = running.get(where, "HEAD").headers["etag"]
        monkeypatch.setattr(DocumentCache, "open", published_first)
        refused = running.get(where, If_Match=tag, Range="bytes=9-")
        assert refused.status == 412
        assert refused.headers["etag"] not in (tag, "")
