"""What a person is told to do when a document cannot be fetched follows from what the network said."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tools.engines.certificates import Authority

from headwater import cli
from headwater.errors import Exit
from headwater.sync.connection import advice_for
from tests.support.fake_source import document


@contextmanager
def answering(status: int, certificate: Path | None = None, key: Path | None = None) -> Iterator[int]:
    """The port of a server that answers everything with this status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(status)

        def log_message(self, *_: object) -> None:
            """The test says what went wrong."""

    class Server(HTTPServer):
        def handle_error(self, *_: object) -> None:
            """A handshake that is given up is what is asked for."""

    with Server(("127.0.0.1", 0), Handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("status", [401, 403])
def test_who_must_say_who_asks_is_told_how(status: int, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(status) as port:
        assert cli.run(["explore", f"http://127.0.0.1:{port}/capabilitylist.xml"]) == Exit.SOURCE
    assert "--token or HEADWATER_TOKEN" in capsys.readouterr().err


def test_a_certificate_that_is_not_trusted_is_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Authority(tmp_path / "tls").issue(("DNS:localhost",))
    with answering(404, made.certificate, made.key) as port:
        assert cli.run(["explore", f"https://localhost:{port}/"]) == Exit.SOURCE
    assert "by --ca" in capsys.readouterr().err


def test_a_certificate_that_has_expired_is_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = Authority(tmp_path / "tls")
    made = authority.issue(("DNS:localhost",), days=-1)
    with answering(404, made.certificate, made.key) as port:
        address, own = f"https://localhost:{port}/", str(authority.own.certificate)
        assert cli.run(["explore", "--ca", own, address]) == Exit.SOURCE
    assert "must renew it" in capsys.readouterr().err


def test_an_answer_that_is_cut_where_tls_has_not_ended_is_not_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """DST-F1: without Content-Length nothing but the end of TLS tells that this is all."""
    authority = Authority(tmp_path / "tls")
    made = authority.issue(("DNS:localhost",))
    text = document([], capability="capabilitylist")

    def cut(server: socket.socket) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made.certificate, made.key)
        while True:
            try:
                connection = context.wrap_socket(server.accept()[0], server_side=True)
            except OSError:
                return
            while not connection.recv(1 << 16).endswith(b"\r\n\r\n"):
                pass
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n\r\n" + text)
            plain = socket.socket(fileno=connection.detach())
            plain.shutdown(socket.SHUT_RDWR)
            plain.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=cut, args=(server,))
        thread.start()
        address = f"https://localhost:{server.getsockname()[1]}/capabilitylist.xml"
        try:
            assert cli.run(["explore", "--ca", str(authority.own.certificate), address]) == Exit.SOURCE
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
    assert "the connection was cut, and TLS not ended" in capsys.readouterr().err


@pytest.mark.parametrize("code", ["HW-SYN-01", "HW-SYN-02"])
def test_a_source_that_is_not_ready_asks_to_come_back_later(code: str) -> None:
    told = advice_for(code, "no ResourceSync document was found: HTTP status 503", "http://example.org/")
    assert "asks to come back later" in told


def test_anything_else_is_the_address_or_the_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explore", "http://127.0.0.1:1/"]) == Exit.SOURCE
    assert "Check the address and the network" in capsys.readouterr().err
