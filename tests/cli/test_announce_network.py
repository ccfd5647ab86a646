"""`headwater ingest … --to URL` over TLS and by proxies: whom it believes, and who is told what signs it in."""

from __future__ import annotations

import json
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tools.engines.certificates import Authority

from headwater.cli import run
from headwater.errors import Exit

SECRET = "s3cr3t-pass"  # a word that must be found nowhere
Heads = list[tuple[str, dict[str, str]]]


@pytest.fixture(autouse=True)
def nothing_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy or authority that the environment names."""
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.delenv("CURL_CA_BUNDLE", raising=False)


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    folder = tmp_path_factory.mktemp("authorities")
    return Authority(folder / "one"), Authority(folder / "two")


class Taker(BaseHTTPRequestHandler):
    """Takes every line, and notes the heads of requests."""

    heads: Heads

    def do_POST(self) -> None:
        self.heads.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        lines = self.rfile.read(int(self.headers["content-length"])).splitlines()
        body = json.dumps({"results": [{"line": n + 1, "status": 200, "seq": n + 1} for n in range(len(lines))]})
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is told."""


class Proxy(Taker):
    """A proxy: takes what is for a http server in its place, and connects with a https one."""

    def do_CONNECT(self) -> None:
        self.heads.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port))) as server:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=_pass_on, args=(server, self.connection), daemon=True)
            back.start()
            _pass_on(self.connection, server)
            back.join()
        self.close_connection = True


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while octets := one.recv(65536):
            other.sendall(octets)
        other.shutdown(socket.SHUT_WR)


@contextmanager
def serving(handler: type[Taker], authority: Authority | None = None) -> Iterator[tuple[int, Heads]]:
    heads: Heads = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Noting", (handler,), {"heads": heads}))
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if authority is not None:
        made = authority.issue(("IP:127.0.0.1",))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made.certificate, made.key)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server.server_port, heads
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def announced(tmp_path: Path, url: str, *options: str) -> int:
    (tmp_path / "a.ndjson").write_text('{"path": "a"}\n')
    return run(["ingest", "events", str(tmp_path / "a.ndjson"), "--to", url, "--token", SECRET, *options])


def test_an_authority_of_ones_own_is_believed(
    tmp_path: Path, authorities: tuple[Authority, Authority], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = authorities
    with serving(Taker, one) as (port, heads):
        url = f"https://127.0.0.1:{port}/s/changes"
        assert announced(tmp_path, url, "--ca", str(one.own.certificate)) == Exit.DONE
        assert [head["authorization"] for _, head in heads] == [f"Bearer {SECRET}"]
        for options in ([], ["--ca", str(two.own.certificate)]):
            capsys.readouterr()
            assert announced(tmp_path, url, *options) == Exit.SOURCE  # at once, and not after five minutes
            err = capsys.readouterr().err
            assert "the certificate of the server is not believed" in err
            assert "--ca" in err
            assert SECRET not in err
        assert len(heads) == 1


def test_the_authorities_of_the_environment_are_believed_as_by_sync(
    tmp_path: Path, authorities: tuple[Authority, Authority], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = authorities
    monkeypatch.setenv("CURL_CA_BUNDLE", str(one.own.certificate))
    for authority, options in ((one, []), (one, ["--ca", str(two.own.certificate)])):
        with serving(Taker, authority) as (port, _):
            assert announced(tmp_path, f"https://127.0.0.1:{port}/s/changes", *options) == Exit.DONE


def test_a_file_that_is_no_authority_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.pem").write_text("-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
    for file in (__file__, str(tmp_path / "broken.pem")):
        assert announced(tmp_path, "https://127.0.0.1:1/s/changes", "--ca", file) == Exit.USAGE
        assert "certificate" in capsys.readouterr().err


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_is_asked_and_each_is_told_its_own(
    scheme: str, tmp_path: Path, authorities: tuple[Authority, Authority], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = authorities[0]
    with ExitStack() as stack:
        port, heads = stack.enter_context(serving(Taker, own if scheme == "https" else None))
        proxy_port, asked = stack.enter_context(serving(Proxy))
        url = f"{scheme}://127.0.0.1:{port}/s/changes"
        options = ["--proxy", f"http://ben:p%40ss@127.0.0.1:{proxy_port}", "--ca", str(own.own.certificate)]
        assert announced(tmp_path, url, *options) == Exit.DONE
        ((target, told),) = asked
        assert told["proxy-authorization"] == "Basic YmVuOnBAc3M="
        if scheme == "http":
            assert target == url
            return
        assert target == f"127.0.0.1:{port}"
        assert "authorization" not in told  # within TLS, for the server alone
        ((path, head),) = heads
        assert (path, head["authorization"]) == ("/s/changes", f"Bearer {SECRET}")
        assert "proxy-authorization" not in head
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert announced(tmp_path, url, *options) == Exit.DONE
        assert (len(asked), len(heads)) == (1, 2)


def test_a_proxy_of_the_environment_is_asked_but_for_loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Proxy) as (port, asked), serving(Taker) as (own, heads):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        assert announced(tmp_path, "http://headwater.invalid/s/changes") == Exit.DONE
        assert [target for target, _ in asked] == ["http://headwater.invalid/s/changes"]
        assert announced(tmp_path, f"http://127.0.0.1:{own}/s/changes") == Exit.DONE
        assert (len(asked), len(heads)) == (1, 1)


@pytest.mark.parametrize("proxy", ["gopher://x", "socks5://anna:{}@127.0.0.1:1", "http://anna:{}@x:99999"])
def test_a_proxy_that_cannot_be_asked_is_refused_without_its_password(
    proxy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert announced(tmp_path, "http://127.0.0.1:1/s/changes", "--proxy", proxy.format(SECRET)) == Exit.USAGE
    err = capsys.readouterr().err
    assert "http://HOST:PORT" in err
    assert SECRET not in err


@pytest.mark.parametrize("option", ["--ca", "--proxy"])
def test_they_are_for_what_is_announced(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["events", os.devnull, "--state", str(tmp_path / "state"), "--set", "s", option, __file__]
    assert run(["ingest", *arguments]) == Exit.USAGE
    assert "--ca and --proxy go with --to" in capsys.readouterr().err
    assert not (tmp_path / "state").exists()
