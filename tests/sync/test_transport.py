"""The transport against real sockets: one table of what servers do, and what is made of each."""

import gc
import hashlib
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tools.engines.certificates import Authority

from headwater.transport.access import Level, SignInCredentials, level_of
from headwater.transport.fetch import DeadlineMet, FailureKind, Fetch, TransportOptions
from headwater.transport.transport import StreamBroken, Transport
from tests.support.scripted_server import Behaviour, Request, answer, scripted
from tests.support.waiting import Clock, until

BODY = bytes(range(256)) * 16
BIG = os.urandom(3_000_000)


def options(clock: Clock | None = None, **changes) -> TransportOptions:
    settings: dict[str, Any] = {
        "chance": lambda: 0.5,
        "retries": 2,
        "stall_timeout_seconds": 60,  # a machine that stands still for a second is no server that stalls
        "connect_timeout_seconds": 60.0,
    }
    if clock:
        settings |= {"monotonic": clock.seconds, "sleep": clock.sleep, "time_of_day": lambda: clock.now.timestamp()}
    return TransportOptions(**(settings | changes))


def close_after(data: bytes) -> Behaviour:
    def behave(_request, connection: socket.socket) -> None:
        connection.sendall(data)

    return behave


def hold(_request, connection: socket.socket) -> None:
    connection.recv(1)  # until the client gives up


def trickle(_request, connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        connection.sendall(b"x")
        time.sleep(0.2)


def endless(start: bytes, block: bytes) -> Behaviour:
    def behave(_request, connection: socket.socket) -> None:
        connection.sendall(start)
        while True:
            connection.sendall(block)

    return behave


def chunked(*blocks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(block), block) for block in blocks) + end


@dataclass
class Case:
    """What a server sends for /x; what comes of fetching it, and how many requests that took."""

    name: str
    sends: Behaviour
    status: int = 200
    failure: FailureKind | None = None
    body: bytes | None = None
    requests: int = 1
    more: dict[str, Behaviour] = field(default_factory=dict)
    max_octets: int = 1_000_000_000
    retries: int = 2


OK = b"HTTP/1.1 200 OK\r\n"
CASES = [
    Case("small body", answer(BODY), body=BODY),
    Case("large body", answer(BIG), body=BIG),
    Case("empty body", answer(b""), body=b""),
    Case("204", b"HTTP/1.1 204 No Content\r\n\r\n", status=204, body=b""),
    Case("chunked", chunked(BODY, BODY[:7]), body=BODY + BODY[:7]),
    Case("chunked and trailers", chunked(BODY, end=b"0\r\nX-Late: 1\r\n\r\n"), body=BODY),
    Case("no length, ended by closing", close_after(OK + b"\r\n" + BODY), body=BODY),
    Case("interim answer first", b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" + answer(BODY), body=BODY),
    Case("content coding is left alone", answer(b"\x1f\x8bzip", Content_Encoding="gzip"), body=b"\x1f\x8bzip"),
    Case(
        "length short by one",
        close_after(OK + b"Content-Length: 4097\r\n\r\n" + BODY),
        failure=FailureKind.TRUNCATED,
        requests=3,
    ),
    Case("chunks cut", close_after(chunked(BODY, end=b"")), failure=FailureKind.TRUNCATED, requests=3),
    Case(
        "chunk size is nonsense", close_after(chunked(BODY, end=b"zz\r\n")), failure=FailureKind.TRUNCATED, requests=3
    ),
    Case(
        "large length short",
        close_after(OK + b"Content-Length: 3000001\r\n\r\n" + BIG),
        failure=FailureKind.TRUNCATED,
        requests=3,
    ),
    Case("closes without an answer", close_after(b""), status=0, failure=FailureKind.TRUNCATED, requests=3),
    Case("not HTTP", close_after(b"SSH-2.0-OpenSSH_9.2\r\n"), status=0, failure=FailureKind.PROTOCOL),
    Case("never answers", hold, status=0, failure=FailureKind.STALLED, retries=0),
    Case("trickles", trickle, failure=FailureKind.STALLED, retries=0),
    Case("exactly the bound", answer(BODY), body=BODY, max_octets=4096),
    Case("declared one too large", answer(BODY + b"x"), failure=FailureKind.TOO_LARGE, max_octets=4096),
    Case("declared far too large", answer(BIG), failure=FailureKind.TOO_LARGE, max_octets=100_000),
    Case("endless", endless(OK + b"\r\n", BIG), failure=FailureKind.TOO_LARGE, max_octets=5_000_000),
    Case("endless small bound", endless(OK + b"\r\n", BODY), failure=FailureKind.TOO_LARGE, max_octets=100),
    Case("endless header lines", endless(OK, b"X-A: b\r\n" * 100), status=0, failure=FailureKind.TOO_LARGE),
    Case("endless header line", endless(OK + b"X-A: ", b"b" * 10_000), status=200, failure=FailureKind.TOO_LARGE),
    Case(
        "endless interim answers",
        endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 50),
        status=0,
        failure=FailureKind.TOO_LARGE,
    ),
    Case(
        "many header lines",
        close_after(OK + b"X-A: b\r\n" * 600 + b"Content-Length: 0\r\n\r\n"),
        status=0,
        failure=FailureKind.TOO_LARGE,
    ),
    Case("404", answer(b"no", "404 Not Found"), status=404, body=b"no"),
    Case("410", answer(b"", "410 Gone"), status=410, body=b""),
    Case("401 is final", answer(b"", "401 Unauthorized"), status=401, body=b""),
    Case("403 is final", answer(b"", "403 Forbidden"), status=403, body=b""),
    Case("304", b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n', status=304, body=b""),
    Case("endless error page", endless(b"HTTP/1.1 404 Not Found\r\n\r\n", BIG), status=404),
    Case("408 is tried again", answer(b"", "408 Request Timeout"), status=408, body=b"", requests=3),
    Case("425 is tried again", answer(b"", "425 Too Early"), status=425, body=b"", requests=3),
    Case("429 is tried again", answer(b"", "429 Too Many Requests"), status=429, body=b"", requests=3),
    Case("500 is tried again", answer(b"", "500 Oops"), status=500, body=b"", requests=3),
    Case("503 is tried again", answer(b"", "503 Busy"), status=503, body=b"", requests=3),
    Case("redirect", answer(b"", "302 Found", Location="/y"), body=BODY, requests=2, more={"/y": answer(BODY)}),
    Case("redirect without a place", answer(b"", "302 Found"), status=302, body=b""),
    Case(
        "redirect loop",
        answer(b"", "301 Moved", Location="/x"),
        status=301,
        failure=FailureKind.REDIRECT_REFUSED,
        requests=11,
    ),
    Case(
        "redirect to a file",
        answer(b"", "302 Found", Location="file:///etc/passwd"),
        status=302,
        failure=FailureKind.REDIRECT_REFUSED,
    ),
    Case(
        "redirect to gopher",
        answer(b"", "302 Found", Location="gopher://127.0.0.1/"),
        status=302,
        failure=FailureKind.REDIRECT_REFUSED,
    ),
    Case(
        "redirect to nonsense",
        answer(b"", "302 Found", Location="http://[::1"),
        status=302,
        failure=FailureKind.REDIRECT_REFUSED,
    ),
    Case(
        "redirect with a huge text",
        endless(b"HTTP/1.1 302 Found\r\nContent-Length: 999999999999\r\nLocation: /y\r\n\r\n", BIG),
        body=BODY,
        requests=2,
        more={"/y": answer(BODY)},
    ),
]


@pytest.mark.parametrize("way", ["memory", "file", "stream"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_servers_do(case: Case, way: str, tmp_path) -> None:
    into = str(tmp_path / "body") if way == "file" else None
    with (
        scripted({"/x": case.sends, **case.more}) as server,
        Transport(
            options(
                first_backoff_seconds=0.01,
                retries=case.retries,
                stall_timeout_seconds=1 if case.failure is FailureKind.STALLED else 60,
            )
        ) as transport,
    ):
        fetch = Fetch(
            server.base + "/x", into=into, algorithms=("sha-256", "md5"), max_octets=case.max_octets, key="mine"
        )
        if way == "stream":
            check_stream(case, transport, fetch)
        else:
            check(case, transport.one(fetch), tmp_path / "body", way)
        handed_on = way == "stream" and case.failure and case.status == 200  # and so cannot be repeated
        assert len(server.received) == (1 if handed_on else case.requests)
        assert os.listdir(tmp_path) == (
            ["body"] if way == "file" and case.failure is None and case.status < 300 else []
        )


def check(case: Case, fetched, path, way: str) -> None:
    assert fetched.fetch.key == "mine"
    assert (fetched.failure.kind if fetched.failure else None) == case.failure, fetched.failure
    assert fetched.status == case.status
    assert fetched.ok is (case.failure is None and case.status < 300)
    if case.body is not None:
        found = path.read_bytes() if way == "file" and fetched.ok else fetched.body
        assert found == case.body
        assert fetched.octets == len(case.body)
    if fetched.ok:
        assert fetched.digests == digests(case.body)
    elif case.failure:
        assert fetched.digests == {}


def digests(body: bytes | None) -> dict[str, str]:
    assert body is not None
    return {"sha-256": hashlib.sha256(body).hexdigest(), "md5": hashlib.md5(body).hexdigest()}


def check_stream(case: Case, transport: Transport, fetch: Fetch) -> None:
    with transport.stream(fetch) as (stream, chunks):
        assert stream.status == case.status
        if case.failure is None:
            received = b"".join(chunks) or stream.body
            if case.body is not None:
                assert received == case.body
            if case.status < 300:
                assert stream.octets == len(received)
                assert stream.digests == digests(case.body)
            return
        if stream.failure is None:
            with pytest.raises(StreamBroken) as raised:
                list(chunks)
            assert raised.value.exit_status == 3
        assert stream.failure is not None
        assert stream.failure.kind == case.failure


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with Transport(options(first_backoff_seconds=0.01)) as transport:
        fetched = transport.one(Fetch(f"http://127.0.0.1:{port}/"))
    assert fetched.failure is not None
    assert (fetched.status, fetched.failure.kind, fetched.tries) == (0, FailureKind.CONNECT, 3)
    assert not re.search(r"\d ms", fetched.failure.text)  # one cause has one text


@pytest.mark.parametrize(
    "uri", ["", "x", "ftp://127.0.0.1/", "file:///etc/passwd", "http://", "http://u:p@127.0.0.1/", "http:/a"]
)
def test_what_is_no_address_fails_at_once(uri: str) -> None:
    with Transport(options()) as transport:
        fetched = transport.one(Fetch(uri))
    assert fetched.failure is not None
    assert fetched.failure.kind == FailureKind.PROTOCOL


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        ("/%aa%AA%9f#x", "/%aa%AA%9f"),
        ("?%aa", "/?%aa"),
        ("/a%7Eb%2fc%2F~", "/a%7Eb%2fc%2F~"),
        ("/a/../b/./c", "/a/../b/./c"),
        ("/a//b", "/a//b"),
        ("/%2e%2e/x", "/%2e%2e/x"),
        ("/a?b=c&d=%20#fragment", "/a?b=c&d=%20"),
        ("?q", "/?q"),
        ('/{curly}[1-2]|^`"<>\\', '/{curly}[1-2]|^`"<>\\'),
        ("/ü b", "/%C3%BC%20b"),
        ("/a\r\nX-Evil: 1", "/a%0D%0AX-Evil:%201"),
    ],
)
def test_a_uri_is_sent_as_it_is_given(target: str, sent: str) -> None:
    with scripted({sent: answer(b"ok")}) as server, Transport(options()) as transport:
        transport.one(Fetch(server.base + target))
        assert server.targets() == [sent]


def test_default_request_is_plain() -> None:
    with scripted({"/": answer()}) as server, Transport(options()) as transport:
        transport.one(Fetch(server.base + "/"))
        headers = server.received[0].headers
    assert set(headers) == {"host", "user-agent", "accept", "accept-encoding"}
    assert headers["accept-encoding"] == "identity"
    assert headers["user-agent"].startswith("headwater/")


def test_headers_of_the_caller_are_sent_once_and_not_kept() -> None:
    conditional = (("If-None-Match", '"a"'), ("Accept-Encoding", "gzip"))
    with scripted({"/": answer()}) as server, Transport(options(concurrency=1)) as transport:
        transport.one(Fetch(server.base + "/", headers=conditional))
        transport.one(Fetch(server.base + "/"))
        first, second = (request.headers for request in server.received)
    assert (first["if-none-match"], first["accept-encoding"]) == ('"a"', "gzip")
    assert (second.get("if-none-match"), second["accept-encoding"]) == (None, "identity")


@pytest.mark.parametrize("header", [("X", "a\r\nY: b"), ("X\r\nY", "a"), ("X", "a\0")])
def test_no_header_smuggles_another(header: tuple[str, str]) -> None:
    with scripted({"/": answer()}) as server, Transport(options()) as transport:
        fetched = transport.one(Fetch(server.base + "/", headers=(header,)))
        assert fetched.failure is not None
        assert server.received == []
        assert transport.one(Fetch(server.base + "/")).ok


def test_head_and_get_share_a_handle() -> None:
    with scripted(
        {"/": lambda request, _: answer(b"body") if request.method == "GET" else answer(b"", Content_Length="4")}
    ) as server:
        with Transport(options(concurrency=1)) as transport:
            kinds = [
                transport.one(Fetch(server.base + "/", method=method)) for method in ("HEAD", "GET", "HEAD", "GET")
            ]
        assert [fetched.body for fetched in kinds] == [b"", b"body", b"", b"body"]
        assert {request.connection for request in server.received} == {1}
    assert kinds[0].headers["content-length"] == "4"


def test_other_methods_are_refused() -> None:
    with scripted({}) as server, Transport(options()) as transport:
        assert transport.one(Fetch(server.base, method="DELETE")).failure is not None
        assert server.received == []


def post(uri: str, body: bytes = b"{}", **more: Any) -> Fetch:
    return Fetch(uri, (("Content-Type", "application/json"),), method="POST", body=body, **more)


def test_a_post_sends_its_body_at_once_and_the_handle_gets_again() -> None:
    long = b"x" * 3_000_000
    script = {"/": lambda request, _: answer(request.method.encode() + b" %d" % len(request.body))}
    with scripted(script) as server, Transport(options(concurrency=1)) as transport:
        asked = [post(server.base + "/", long), Fetch(server.base + "/"), post(server.base + "/", b"")]
        assert [transport.one(fetch).body for fetch in asked] == [b"POST 3000000", b"GET 0", b"POST 0"]
    assert server.received[0].body == long
    assert "expect" not in server.received[0].headers
    assert server.received[0].headers["content-type"] == "application/json"
    assert "content-type" not in server.received[1].headers


def test_a_post_after_a_head_is_a_post() -> None:
    with scripted({"/": answer(b"")}) as server, Transport(options(concurrency=1)) as transport:
        for fetch in (Fetch(server.base + "/", method="HEAD"), post(server.base + "/", b"body")):
            assert transport.one(fetch).ok
        assert [(request.method, request.body) for request in server.received] == [("HEAD", b""), ("POST", b"body")]


@pytest.mark.parametrize(("method", "body"), [("GET", b"x"), ("POST", None), ("HEAD", b"")])
def test_a_post_alone_has_a_body(method: str, body: bytes | None) -> None:
    with scripted({}) as server, Transport(options()) as transport:
        assert transport.one(Fetch(server.base, method=method, body=body)).failure is not None
        assert server.received == []


@pytest.mark.parametrize(
    ("status", "sent"), [(301, ["POST", "POST"]), (302, ["POST", "POST"]), (303, ["POST"]), (308, ["POST", "POST"])]
)
def test_dst_f10_a_post_stays_one_where_it_is_redirected(status: int, sent: list[str]) -> None:
    script = {"/": answer(b"", f"{status} There", Location="/there"), "/there": answer(b"found")}
    with scripted(script) as server, Transport(options()) as transport:
        fetched = transport.one(post(server.base + "/", b"body"))
        assert [request.method for request in server.received] == sent
        assert {request.body for request in server.received} == {b"body"}
        assert fetched.ok == (len(sent) == 2)


def test_dst_f1_a_post_is_tried_again_with_its_body() -> None:
    failed: list[int] = []

    def once(request: Any, _connection: socket.socket) -> bytes:
        failed.append(1)
        return answer(b"", "503 Busy") if len(failed) == 1 else answer(request.body)

    with scripted({"/": once}) as server, Transport(options(Clock())) as transport:
        assert transport.one(post(server.base + "/", b"again")).body == b"again"


def test_headers_are_lower_case_joined_and_unfolded() -> None:
    sent = OK + b"LINK: <a>\r\nLink: <b>\r\nX-Fold: one\r\n two\r\nX-Latin: \xe9\r\nContent-Length: 0\r\n\r\n"
    with scripted({"/": sent}) as server, Transport(options()) as transport:
        headers = transport.one(Fetch(server.base + "/")).headers
    assert headers == {"link": "<a>, <b>", "x-fold": "one two", "x-latin": "é", "content-length": "0"}


def test_connections_are_kept() -> None:
    with scripted({"/": answer(BODY)}) as server, Transport(options(concurrency=4)) as transport:
        assert all(fetched.ok for fetched in transport.many(Fetch(server.base + "/") for _ in range(100)))
        assert len({request.connection for request in server.received}) <= 4


@pytest.mark.parametrize("left", [b"octets beyond the length of the answer before", b"HTTP/0.9 \0"])
def test_dst_f1_what_an_answer_left_on_its_connection_spoils_no_other(left: bytes) -> None:
    def behave(request: Any, _connection: socket.socket) -> bytes:
        return (left if request.connection == 1 else b"") + answer(BODY)

    script: dict[str, Behaviour] = {"/first": answer(b"short"), "/next": behave}
    with scripted(script) as server, Transport(options(Clock(), concurrency=1)) as transport:
        assert transport.one(Fetch(server.base + "/first")).ok
        assert transport.one(Fetch(server.base + "/next")).body == BODY
        assert [request.connection for request in server.received] == [1, 1, 2]


def test_what_is_not_http_on_a_connection_of_its_own_is_not_tried_again() -> None:
    with scripted({"/": b"SSH-2.0-OpenSSH_9.2\r\n"}) as server, Transport(options(Clock())) as transport:
        failure = transport.one(Fetch(server.base + "/")).failure
        assert failure is not None
        assert (failure.kind, failure.passing, len(server.received)) == (FailureKind.PROTOCOL, False, 1)


# -- redirects and credentials


def test_permanent_redirects_are_reported_up_to_the_first_passing_one() -> None:
    script: dict[str, Behaviour] = {
        "/a": answer(b"", "301 Moved", Location="/b"),
        "/b": answer(b"", "308 Moved", Location="/c"),
        "/c": answer(b"", "302 Found", Location="/d"),
        "/d": answer(b"", "301 Moved", Location="/e"),
        "/e": answer(b"end"),
        "/t": answer(b"", "307 Elsewhere", Location="/a"),
    }
    with scripted(script) as server, Transport(options()) as transport:
        moved = transport.one(Fetch(server.base + "/a"))
        passing = transport.one(Fetch(server.base + "/t"))
        assert (moved.body, moved.uri, moved.moved_to) == (b"end", server.base + "/e", server.base + "/c")
        assert (passing.body, passing.moved_to) == (b"end", None)


def test_dst_f10_https_is_never_left_for_http() -> None:
    from headwater.transport.fetch import FetchFailure
    from headwater.transport.scheduler import redirect_target

    assert isinstance(redirect_target("https://a/", "http://a/", 0), FetchFailure)
    assert redirect_target("https://a/", "https://b/", 0) == "https://b/"
    assert redirect_target("http://a/", "https://a/x", 0) == "https://a/x"
    assert redirect_target("HTTPS://a/x/y", "../z", 9) == "HTTPS://a/z"
    assert isinstance(redirect_target("http://a/", "/b", 10), FetchFailure)


def test_credentials_go_to_their_origin_only() -> None:
    with (
        scripted({"/own": answer()}) as other,
        scripted({"/a": answer(b"", "302 Found", Location=other.base + "/own")}) as own,
    ):
        settings = options(
            concurrency=1, credentials=SignInCredentials(own.base.upper() + "/anything", "Bearer secret")
        )
        with Transport(settings) as transport:
            transport.one(Fetch(other.base + "/own"))
            transport.one(Fetch(own.base + "/a"))
            transport.one(Fetch(other.base + "/own"))
        assert own.received[0].headers["authorization"] == "Bearer secret"
        assert ["authorization" in request.headers for request in other.received] == [False, False, False]


def test_secret_headers_of_a_fetch_stay_with_its_origin() -> None:
    with scripted({"/own": answer()}) as other, scripted({}) as own:
        own.script["/a"] = answer(b"", "302 Found", Location="/b")
        own.script["/b"] = answer(b"", "302 Found", Location=other.base + "/own")
        headers = (("Authorization", "Basic x"), ("Cookie", "a=b"), ("X-Plain", "1"))
        with Transport(options()) as transport:
            transport.one(Fetch(own.base + "/a", headers=headers))
        assert [request.headers.get("cookie") for request in own.received] == ["a=b", "a=b"]
        assert other.received[0].headers.keys() & {"authorization", "cookie", "x-plain"} == {"x-plain"}


def test_a_proxy_of_the_environment_is_not_used_for_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted({}) as proxy, scripted({"/": answer(b"direct")}) as server:
        monkeypatch.setenv("http_proxy", proxy.base)
        monkeypatch.setenv("no_proxy", "example.org")
        proxy.script["http://headwater.example/"] = answer(b"by proxy")
        with Transport(options()) as transport:
            assert transport.one(Fetch(server.base + "/")).body == b"direct"
            assert transport.one(Fetch("http://headwater.example/")).body == b"by proxy"


def test_tls_is_verified_and_never_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue(["IP:127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    with scripted({"/": answer(b"open")}) as plain, scripted({"/": answer(b"safe")}, tls=context) as safe:
        safe.script["/down"] = answer(b"", "302 Found", Location=plain.base + "/")
        plain.script["/up"] = answer(b"", "302 Found", Location=safe.base + "/")
        with Transport(options()) as transport:
            unknown = transport.one(Fetch(safe.base + "/"))
        monkeypatch.setenv("CURL_CA_BUNDLE", str(authority.own.certificate))
        with Transport(options()) as transport:
            trusted = transport.one(Fetch(plain.base + "/up"))
            down = transport.one(Fetch(safe.base + "/down"))
        assert [request.target for request in plain.received] == ["/up"]
    assert unknown.failure is not None
    assert unknown.failure.kind == FailureKind.TLS
    assert trusted.body == b"safe"
    assert down.failure is not None
    assert down.failure.kind == FailureKind.REDIRECT_REFUSED


# -- politeness


def test_dst_f1_tries_wait_longer_each_time_and_end() -> None:
    clock = Clock()
    with scripted({"/": answer(b"", "500 Oops")}) as server, Transport(options(clock, retries=4)) as transport:
        fetched = transport.one(Fetch(server.base + "/"))
    assert (fetched.status, fetched.tries, len(server.received)) == (500, 5, 5)
    assert clock.slept == pytest.approx([0.5, 1.0, 2.0, 4.0], abs=0.01)


@pytest.mark.parametrize("value", ["7", "Thu, 01 Jan 2026 00:00:07 GMT"])
def test_dst_f1_retry_after_is_honoured(value: str) -> None:
    clock = Clock()
    turns = iter([answer(b"", "503 Busy", Retry_After=value), answer(b"ok")])
    with scripted({"/": lambda *_: next(turns)}) as server, Transport(options(clock)) as transport:
        assert transport.one(Fetch(server.base + "/")).body == b"ok"
    assert sum(clock.slept) == pytest.approx(7, abs=0.01)


def test_a_wait_that_is_too_long_is_given_back() -> None:
    clock = Clock()
    with scripted({"/": answer(b"", "429 Slow", Retry_After="3600")}) as server, Transport(options(clock)) as transport:
        fetched = transport.one(Fetch(server.base + "/"))
        assert len(server.received) == 1
    assert (fetched.status, fetched.retry_after_seconds, clock.slept) == (429, 3600.0, [])


def test_a_busy_host_is_left_alone_and_another_is_not() -> None:
    clock = Clock()
    turns = iter([answer(b"", "503 Busy", Retry_After="30"), answer(b"a"), answer(b"b")])
    with (
        scripted({"/": lambda *_: next(turns)}) as busy,
        scripted({"/": answer(b"free")}) as free,
        Transport(options(clock, per_host=1)) as transport,
    ):
        fetches = [Fetch(busy.base + "/", key=1), Fetch(busy.base + "/", key=2), Fetch(free.base + "/", key=3)]
        order = [fetched.fetch.key for fetched in transport.many(fetches)]
    assert order[0] == 3
    assert sum(clock.slept) == pytest.approx(30, abs=0.1)


def test_a_rate_spreads_the_requests() -> None:
    clock = Clock()
    with scripted({"/": answer(b"x")}) as server, Transport(options(clock, rate_per_second=2.0)) as transport:
        assert len(list(transport.many(Fetch(server.base + "/") for _ in range(7)))) == 7
    assert sum(clock.slept) == pytest.approx(3.0, abs=0.1)


def test_a_host_that_is_overloaded_gets_fewer_at_a_time() -> None:
    serving = threading.Semaphore(4)

    def four_at_most(*_):
        if not serving.acquire(blocking=False):
            return answer(b"", "503 Busy")
        try:
            time.sleep(0.005)
            return answer(b"ok")
        finally:
            serving.release()

    with scripted({"/": four_at_most}) as server:
        with Transport(options(retries=8, first_backoff_seconds=0.02)) as transport:
            results = list(transport.many(Fetch(server.base + "/") for _ in range(200)))
        assert [fetched.status for fetched in results] == [200] * 200


def test_concurrency_is_never_exceeded() -> None:
    def slow(*_):
        time.sleep(0.01)
        return answer(b"ok")

    with scripted({"/": slow}) as server, Transport(options(concurrency=5)) as transport:
        assert len(list(transport.many(Fetch(server.base + "/") for _ in range(50)))) == 50
        assert 2 <= server.busiest <= 5


# -- many, stream, interruption


def test_many_pulls_lazily_and_outcomes_may_lead_to_more() -> None:
    waiting = [1]
    pulled = 0

    def feed(base: str):
        nonlocal pulled
        while True:
            if waiting:
                pulled += 1
                yield Fetch(f"{base}/{waiting.pop()}")
            else:
                yield None

    with scripted({f"/{n}": answer(str(n).encode()) for n in range(64)}) as server, Transport(options()) as transport:
        seen = []
        for fetched in transport.many(feed(server.base)):
            number = int(fetched.body)
            seen.append(number)
            waiting.extend(child for child in (2 * number, 2 * number + 1) if child < 64)
    assert sorted(seen) == list(range(1, 64))


def test_many_takes_no_more_than_is_asked_for() -> None:
    pulled = 0

    def feed(base: str):
        nonlocal pulled
        for number in range(1, 10_001):
            pulled = number
            yield Fetch(base + "/")

    with scripted({"/": answer(b"x")}) as server, Transport(options(concurrency=8)) as transport:
        results = transport.many(feed(server.base))
        for _ in range(20):
            next(results)
        assert pulled <= 20 + 8
        results.close()
        assert transport.one(Fetch(server.base + "/")).ok


def test_many_calls_may_run_inside_each_other() -> None:
    with scripted({"/": answer(BODY), "/in": answer(b"in")}) as server, Transport(options(concurrency=4)) as transport:
        inner = [
            (outer.body, transport.one(Fetch(server.base + "/in")).body)
            for outer in transport.many(Fetch(server.base + "/") for _ in range(20))
        ]
    assert inner == [(BODY, b"in")] * 20


def test_nothing_to_fetch_is_nothing() -> None:
    with Transport() as transport:
        assert list(transport.many([])) == []
        assert list(transport.many([None])) == []


def test_a_file_that_exists_is_never_written_over(tmp_path) -> None:
    path = tmp_path / "there"
    path.write_bytes(b"mine")
    for body in (b"small", BIG):
        with scripted({"/": answer(body)}) as server, Transport(options()) as transport:
            fetched = transport.one(Fetch(server.base + "/", into=str(path), max_octets=10_000_000))
        assert fetched.failure is not None
        assert fetched.failure.kind == FailureKind.STORE
        assert path.read_bytes() == b"mine"


def test_a_full_disk_is_a_fault_of_the_store() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    from headwater.files.file_copies import write_all

    descriptor = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(OSError):
            write_all(descriptor, b"x")
    finally:
        os.close(descriptor)


def test_a_missing_folder_is_a_fault_of_the_store(tmp_path) -> None:
    with scripted({"/": answer(BIG), "/s": answer(b"s")}) as server, Transport(options()) as transport:
        for target in ("/", "/s"):
            into = str(tmp_path / "none" / "x")
            fetched = transport.one(Fetch(server.base + target, into=into, max_octets=10_000_000))
            assert fetched.failure is not None
            assert fetched.failure.kind == FailureKind.STORE
            assert "No such file" in fetched.failure.text


def test_a_stream_waits_for_its_reader_in_bounded_memory() -> None:
    block = os.urandom(1 << 20)
    sent = 0

    def large(_request, connection: socket.socket) -> None:
        nonlocal sent
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (200 << 20))
        for _ in range(200):
            connection.sendall(block)
            sent += 1

    with scripted({"/": large}) as server, Transport(options(stall_timeout_seconds=1)) as transport:
        tracemalloc.start()
        with transport.stream(Fetch(server.base + "/", max_octets=1 << 40)) as (_, chunks):
            first = len(next(chunks))
            time.sleep(1.5)  # longer than the stall timeout: a pause of ours is no stall of theirs
            assert sent < 40
            assert first + sum(map(len, chunks)) == 200 << 20
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 8 << 20


def test_a_stream_may_be_left_early_and_others_go_on() -> None:
    with scripted({"/big": answer(BIG), "/": answer(b"x")}) as server, Transport(options()) as transport:
        with transport.stream(Fetch(server.base + "/big", max_octets=1 << 30)) as (_, chunks):
            next(chunks)
            assert transport.one(Fetch(server.base + "/")).ok
        assert transport.one(Fetch(server.base + "/big", max_octets=1 << 30)).body == BIG


def test_a_stream_that_is_collected_as_garbage_while_others_come_in_is_given_up() -> None:
    """libcurl lets no transfer go while it calls back, which is when the collector may run."""

    def at_work(address: str) -> Level:
        gc.collect()
        return level_of(address)

    def leave_in_a_cycle(transport: Transport, uri: str) -> weakref.ref[Any]:
        class Reader:
            chunks: Iterator[bytes]

        def read() -> Iterator[bytes]:
            with transport.stream(Fetch(uri, max_octets=1 << 30)) as (_, chunks):
                yield from chunks

        reader = Reader()
        reader.chunks = read()
        next(reader.chunks)
        reader.cycle = reader  # type: ignore[attr-defined]
        return weakref.ref(reader)

    with (
        scripted({"/big": answer(BIG), "/": answer(b"x", Connection="close")}) as server,
        Transport(options(level_of=at_work, source=server.base)) as transport,
    ):
        for _ in range(3):
            transport.one(Fetch(server.base + "/"))  # its connection is closed: the next one looks at its address
            gc.disable()
            try:
                left = leave_in_a_cycle(transport, server.base + "/big")
                assert left() is not None
                assert transport.one(Fetch(server.base + "/")).ok
                assert left() is None
            finally:
                gc.enable()
        assert transport.one(Fetch(server.base + "/big", max_octets=1 << 30)).body == BIG


def test_leaving_early_leaves_no_file(tmp_path) -> None:
    with scripted({"/": endless(OK + b"\r\n", BIG), "/s": answer(b"s")}) as server, Transport(options()) as transport:
        fetches = [Fetch(server.base + "/", into=str(tmp_path / "half"), max_octets=1 << 40), Fetch(server.base + "/s")]
        results = transport.many(fetches)
        assert next(results).body == b"s"
        until(lambda: transport.one(Fetch(server.base + "/s")).ok and (tmp_path / "half").exists())
        results.close()
        assert os.listdir(tmp_path) == []


def test_an_interrupt_ends_it_and_leaves_no_file(tmp_path) -> None:
    code = """
import sys
from headwater.transport.transport import *
try:
    with Transport() as transport:
        fetches = [Fetch(sys.argv[1] + "/", into=f"{sys.argv[2]}/{n}", max_octets=1 << 50) for n in range(8)]
        list(transport.many(fetches))
except KeyboardInterrupt:
    sys.exit(130)
"""
    with scripted({"/": endless(OK + b"\r\n", BODY)}) as server:
        process = subprocess.Popen([sys.executable, "-c", code, server.base, str(tmp_path)], stderr=subprocess.PIPE)
        until(lambda: len(os.listdir(tmp_path)) == 8)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    assert os.listdir(tmp_path) == []


def drip(octets: int, pause: float, seconds: float) -> Behaviour:
    """So many octets after each pause, for so long, and then the end of a sound answer."""

    def behave(_request: Request, connection: socket.socket) -> bytes | None:
        times = int(seconds / pause)
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {octets * times}\r\n\r\n".encode())
        with suppress(OSError):
            for _ in range(times):
                time.sleep(pause)
                connection.sendall(b"x" * octets)
        return None

    return behave


@pytest.mark.parametrize("octets", [5, 20, 80])
def test_a_document_that_drips_is_given_up(octets: int) -> None:
    """DST-F1: 50, 200 and 800 octets a second are no stall, and no way to keep a run and its lock."""
    with scripted({"/": drip(octets, 0.1, 12)}) as server:
        with Transport(options(stall_timeout_seconds=1, retries=0)) as transport:
            began = time.monotonic()
            done = transport.one(Fetch(f"{server.base}/"))
        assert done.failure is not None
        assert done.failure.kind is FailureKind.STALLED
        assert done.failure.text == "sent less than 1,024 octets a second for 1 s"
        assert time.monotonic() - began < 9


def test_a_file_may_come_slowly(tmp_path: Path) -> None:
    """It has a length or a hash, and somebody who waits for it: only silence ends it."""
    with scripted({"/": drip(20, 0.1, 4)}) as server, Transport(options(stall_timeout_seconds=1)) as transport:
        done = transport.one(Fetch(f"{server.base}/", into=str(tmp_path / "file")))
    assert done.ok
    assert (tmp_path / "file").stat().st_size == 800


@pytest.mark.parametrize("into", [None, "file"])
def test_a_deadline_ends_what_is_under_way(into: str | None, tmp_path: Path) -> None:
    file = None if into is None else str(tmp_path / into)
    with scripted({"/": drip(2_000, 0.1, 30)}) as server, Transport(options(deadline_seconds=1)) as transport:
        began = time.monotonic()
        with pytest.raises(DeadlineMet, match="the deadline of 1"):
            transport.one(Fetch(f"{server.base}/", into=file))
        assert time.monotonic() - began < 5
    assert list(tmp_path.iterdir()) == []
