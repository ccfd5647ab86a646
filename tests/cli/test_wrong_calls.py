"""Calls as people mistype them: each is answered with what is wrong and what to do, and nothing is made."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from tools.engines.certificates import Authority

from headwater.cli.shared_options import SourceAddress
from headwater.errors import Exit
from tests.support.copying import IMPATIENT, go
from tests.support.program import run_here

CALLS = [
    ("sync photos copy", "'photos' is a path on this machine, and no address"),
    ("sync ./photos copy", "is a path on this machine"),
    ("explore photos/a.txt", "is a path on this machine"),
    ("sync ftp://example.org/ copy", "must be an http or https address"),
    ("sync http://example.org:99999/ copy", "a port up to 65535"),
    ("sync http://ann:secret@example.org/ copy", "Give it by --user."),
    ("serve photos", "publish it with --files photos"),
    ("publish photos", "publish it with --files photos"),
    ("serve --files photos --port 80000", "80000 is not between 0 and 65535"),
    ("sync http://127.0.0.1:1/ copy --follow 0", "'0' is less than 0.1 seconds"),
    ("publish --files photos --to photos/a.txt --base-url http://example.org", "is a file, and a folder is needed"),
    ("publish --files photos --to out --state photos/a.txt --base-url http://x.example", "a folder is needed"),
    ("versions photos", "this folder is not the state of a source"),
]

AT_ONCE = msgspec.structs.replace(IMPATIENT, retries=0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.txt").write_text("a")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    return tmp_path


def test_what_is_wrong_is_said(here: Path) -> None:
    for call, said in CALLS:
        done = run_here(*call.split())
        assert (done.returncode, said in done.stderr.decode()) == (Exit.USAGE, True), (call, done.stderr.decode())
        assert b"secret" not in done.stderr
    assert os.listdir(here) == ["photos"]


def test_a_folder_named_like_the_host_is_no_path(here: Path) -> None:
    """`wget -r` makes such folders, and the copy is often made beside them."""
    (here / "127.0.0.1:1").mkdir()
    assert SourceAddress().convert("127.0.0.1:1", None, None) == "127.0.0.1:1"


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that answers each connection so; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def work() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.settimeout(30)
                    answer(client)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def plain(client: socket.socket) -> None:
    client.recv(4096)
    client.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def test_https_and_http_are_told_apart(tmp_path: Path) -> None:
    """Whoever mixes them up is told which letters to change, and not what a library thinks of a version number."""
    authority = Authority(tmp_path)
    made = authority.issue(["DNS:localhost"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)

    def with_tls(client: socket.socket) -> None:
        try:
            context.wrap_socket(client, server_side=True)
        except OSError:
            return

    for answer, scheme, said in (
        (plain, "https", "http://"),
        (plain, "http", "https://"),
        (with_tls, "http", "https://"),
    ):
        with answering(answer) as port:
            error = go(f"{scheme}://127.0.0.1:{port}/", tmp_path / "copy", AT_ONCE).error
        assert error is not None
        assert error.exit_status == Exit.SOURCE
        assert f"egin the address with {said}" in error.todo
        assert "SSL routines" not in error.what
