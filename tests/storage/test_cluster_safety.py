"""What TLS to a cluster may end in: it is waited for what passes, and told what it was; real handshakes."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tools.engines.certificates import Authority, Certificate

from headwater.errors import Exit, UsageFault
from headwater.progress import Notice, Progress
from headwater.storage.cluster import Access, Cluster, ClusterUnreachable, ClusterUnsafe, Node, trusting

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
NAMES = ("DNS:localhost",)


@contextmanager
def door(context: ssl.SSLContext | None, *, cut: int = 0) -> Iterator[int]:
    """The port of a server that answers every request, by TLS if so told; it cuts off the first handshakes."""
    left = cut

    def answer(plain: socket.socket) -> None:
        nonlocal left
        if left:
            left -= 1
            plain.recv(1)
            return
        with context.wrap_socket(plain, server_side=True) if context else plain as connection:
            if connection.recv(65536):
                connection.sendall(ANSWER)

    def serve() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            with plain, suppress(OSError):
                plain.settimeout(10)
                answer(plain)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)  # wakes who waits for a connection
        thread.join()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


def side(certificate: Certificate, ask: Path | None = None) -> ssl.SSLContext:
    """The server's side; `ask`: whose certificates clients must show."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    if ask is not None:
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # in 1.3 it is said later, and lost when who says it hangs up
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(ask)
    return context


def asked(port: int, ca: Path | None, *, host: str = "localhost", patience: float = 30.0) -> list[Notice | Progress]:
    """What is told while one request is made."""
    told: list[Notice | Progress] = []
    way = Access(nodes=(Node(host, port),), tls=ca is not None, ca=None if ca is None else str(ca))
    cluster = Cluster(way, patience_seconds=patience, listener=told.append)
    try:
        assert cluster.ask("GET", "/x").body == "{}"
    finally:
        cluster.close()
    return told


def test_a_handshake_that_was_cut_off_is_tried_again(authority: Authority) -> None:
    with door(side(authority.issue(NAMES)), cut=2) as port:
        assert len(asked(port, authority.own.certificate)) == 2
    with door(side(authority.issue(NAMES)), cut=1000) as port, pytest.raises(ClusterUnreachable, match="no answer"):
        asked(port, authority.own.certificate, patience=0.5)


@pytest.mark.parametrize(
    ("days", "host", "trusted", "said"),
    [
        (-1, "localhost", "authority", "has expired"),
        (30, "127.0.0.1", "authority", "not valid for '127.0.0.1'"),
        (30, "localhost", "other", "unable to get local issuer certificate"),
    ],
    ids=["expired", "another name", "another authority"],
)
def test_a_certificate_that_is_not_to_be_trusted_is_said(
    authority: Authority, days: int, host: str, trusted: str, said: str
) -> None:
    ca = authority.own.certificate
    if trusted == "other":
        ca = Authority(ca.parent / "other").own.certificate
    server, words = side(authority.issue(NAMES, days=days)), f"certificate verify failed: .*{said}"
    with door(server) as port, pytest.raises(ClusterUnsafe, match=words) as fault:
        asked(port, ca, host=host, patience=0.3)
    assert "ca=FILE" in fault.value.todo
    assert fault.value.where == f"https://{host}:{port}/x"
    assert fault.value.exit_status == Exit.STORE


def test_of_several_nodes_one_that_is_not_to_be_trusted_is_told_and_passed_over(authority: Authority) -> None:
    ca = authority.own.certificate
    good, expired = side(authority.issue(NAMES)), side(authority.issue(NAMES, days=-1))
    with door(good) as one, door(expired) as other:
        told: list[Notice | Progress] = []
        way = Access(nodes=(Node("localhost", other), Node("localhost", one)), tls=True, ca=str(ca))
        cluster = Cluster(way, patience_seconds=60.0, listener=told.append)
        for _ in range(6):
            assert cluster.ask("GET", "/x").body == "{}"
        cluster.close()
    assert told
    for notice in told:
        assert isinstance(notice, Notice)
        assert notice.rule == ClusterUnsafe.code
        assert "certificate has expired" in notice.message
        assert notice.where == f"https://localhost:{other}/x"


def test_a_node_that_wants_a_certificate_of_ours_is_said(authority: Authority) -> None:
    ca = authority.own.certificate
    with door(side(authority.issue(NAMES), ask=ca)) as port, pytest.raises(ClusterUnreachable, match="no answer"):
        asked(port, ca, patience=0.3)


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_a_file_that_holds_no_certificate_is_named(tmp_path: Path, content: bytes | None) -> None:
    ca = tmp_path / "ca.pem"
    if content is not None:
        ca.write_bytes(content)
    with pytest.raises(UsageFault, match="no certificate can be read") as fault:
        asked(1, ca)
    assert fault.value.where == str(ca)


def test_without_a_file_the_authorities_of_the_machine_count(authority: Authority) -> None:
    assert trusting(None, str(authority.own.certificate)).cert_store_stats()["x509_ca"] > 0
    with door(side(authority.issue(NAMES))) as port:
        cluster = Cluster(Access(nodes=(Node("localhost", port),), tls=True), patience_seconds=0.3)
        with pytest.raises(ClusterUnsafe, match="certificate verify failed"):
            cluster.ask("GET", "/x")
        cluster.close()
