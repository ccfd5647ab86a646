"""The files in packaging/: units that systemd takes, and web servers that serve a published tree as it is meant."""

from __future__ import annotations

import base64
import gzip
import hashlib
import http.client
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.cli import run
from headwater.errors import Exit
from tests.support.waiting import until

PACKAGING = Path(__file__).parents[1] / "packaging"
UNITS = sorted((PACKAGING / "systemd").iterdir())
LISTS = ("/files/resourcelist.xml", "/files/changelist.xml", "/files/capabilitylist.xml")


def program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@pytest.mark.skipif(program("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        text = unit.read_text("utf-8").replace("/opt/headwater/bin/headwater", "/bin/true")
        (tmp_path / unit.name.replace("@", "@one")).write_text(text.replace("User=headwater", "User=root"))
    paths = [str(one) for one in tmp_path.iterdir()]
    done = subprocess.run(["systemd-analyze", "verify", *paths], capture_output=True, text=True, check=False)
    about = [line for line in done.stderr.splitlines() if "headwater" in line]
    assert (done.returncode, about) == (0, []), done.stderr


def test_units_are_hardened_and_timers_make_up_for_what_was_missed() -> None:
    for unit in UNITS:
        text = unit.read_text("utf-8")
        if unit.suffix == ".timer":
            assert "Persistent=true" in text
            assert unit.with_suffix(".service") in UNITS
            continue
        for line in (
            "NoNewPrivileges=true",
            "ProtectSystem=strict",
            "CapabilityBoundingSet=",
            "PrivateTmp=true",
            "ProtectProc=invisible",
            "SystemCallFilter=@system-service",
            "MemoryDenyWriteExecute=true",
            "MemoryMax=4G",
        ):
            assert line in text.splitlines(), unit.name
        assert ("RestartForceExitStatus=SIGHUP" in text) == ("Type=oneshot" not in text), "no reload, and no end by it"
        assert "ExecReload=" not in text
        command = re.search(r"^ExecStart=/opt/headwater/bin/headwater (.+)$", text, re.MULTILINE)
        assert command
        arguments = command[1].replace("$OPTIONS", "").replace("${SOURCE}", "http://x.example/").split()
        for option in (one for one in arguments if one.startswith("--")):
            reference = (PACKAGING.parent / "docs" / "reference.md").read_text("utf-8")
            assert option in reference, f"{unit.name}: {option}"


def test_the_unit_that_publishes_can_make_hard_links() -> None:
    text = (PACKAGING / "systemd" / "headwater-publish.service").read_text("utf-8")
    ((files, to),) = re.findall(r"^ExecStart=.* --files (\S+) --to (\S+)", text, re.MULTILINE)
    (writable,) = re.findall(r"^ReadWritePaths=(\S+)$", text, re.MULTILINE)
    assert Path(to).is_relative_to(writable)
    assert Path(files).is_relative_to(writable), "each such path is a mount of its own, and no link leads out of it"


def test_the_manual_names_every_file() -> None:
    manual = (PACKAGING.parent / "docs" / "operations.md").read_text("utf-8")
    listed = (PACKAGING / "README.md").read_text("utf-8")
    for unit in UNITS:
        assert unit.name in manual
        assert unit.stem in listed
    for file in (PACKAGING / "web").iterdir():
        assert file.name in listed


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def nginx(text: str, base: Path, port: int) -> list[str]:
    text = re.sub(r"\n *ssl_certificate[^\n]*", "", text).replace("listen 443 ssl", f"listen 127.0.0.1:{port}")
    text = text.replace("# auth_basic", "auth_basic").replace("/etc/nginx/headwater.htpasswd", f"{base}/htpasswd")
    user = "user root;" if os.geteuid() == 0 else ""
    paths = "".join(f"{name}_temp_path {base}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (base / "conf").write_text(
        f"{user} pid {base}/pid; error_log {base}/log; events {{}}\nhttp {{ {paths} access_log off;"
        f" types {{ text/xml xml; text/plain txt; application/gzip gz; }}\n{text}\n}}"
    )
    return ["-p", str(base), "-e", str(base / "log"), "-c", str(base / "conf"), "-g", "daemon off;"]


def apache2(text: str, base: Path, port: int) -> list[str]:
    text = re.sub(r"\n *SSL[^\n]*", "", text).replace("*:443", f"127.0.0.1:{port}")
    text = text.replace("Require all granted", "").replace("# Require", "Require").replace("# Auth", "Auth")
    text = text.replace("/etc/apache2/headwater.htpasswd", f"{base}/htpasswd")
    modules = ("mpm_event", "authn_core", "authn_file", "authz_core", "authz_user", "auth_basic", "mime", "alias",
               "headers", "rewrite")  # fmt: skip
    folder = "/usr/lib/apache2/modules"
    loads = "".join(f"LoadModule {one}_module {folder}/mod_{one}.so\n" for one in modules)
    (base / "mime").write_text("text/xml xml\ntext/plain txt\napplication/gzip gz\n")
    (base / "conf").write_text(
        f"{loads}ServerName localhost\nServerRoot {base}\nPidFile {base}/pid\nErrorLog {base}/log\n"
        f"TypesConfig {base}/mime\nListen 127.0.0.1:{port}\n{text}\n"
    )
    return ["-f", str(base / "conf"), "-DFOREGROUND"]


def caddy(text: str, base: Path, port: int) -> list[str]:
    text = text.replace("data.example.org {", f"http://127.0.0.1:{port} {{")
    hashed = subprocess.run(
        ["caddy", "hash-password", "--plaintext", "password"], capture_output=True, text=True, check=True
    ).stdout.strip()
    text = re.sub(r"# (basicauth \{|\tNAME HASH|\})", r"\1", text).replace("NAME HASH", f"reader {hashed}")
    (base / "conf").write_text("{\n\tadmin off\n}\n" + text)
    return ["run", "--adapter", "caddyfile", "--config", str(base / "conf")]


SERVERS = {
    "nginx": (nginx, "nginx-static.conf"),
    "apache2": (apache2, "apache-static.conf"),
    "caddy": (caddy, "Caddyfile"),
}
HTPASSWD = f"reader:{{SHA}}{base64.b64encode(hashlib.sha1(b'password').digest()).decode()}\n"
PASSWORD = "cmVhZGVyOnBhc3N3b3Jk"


class Client:
    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", path, headers={"Authorization": f"Basic {PASSWORD}"} | named)
        answer = connection.getresponse()
        found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        connection.close()
        return found

    def answers(self) -> bool:
        try:
            return self.get("/robots.txt")[0] == 200
        except OSError:
            return False


@pytest.fixture(params=list(SERVERS))
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Client, Path]]:
    """A published tree, with a name that looks like another's compressed form, behind a web server and a password."""
    name = request.param
    command = program(name)
    if command is None:
        pytest.skip(f"{name} is not installed")
    arguments, file = SERVERS[name]
    port = free_port()
    files, out, base = tmp_path / "source", tmp_path / "out", tmp_path / "server"
    for folder in (files, base):
        folder.mkdir()
    (files / "a.txt").write_bytes(b"not compressed\n" * 20)
    (files / "a.txt.gz").write_bytes(gzip.compress(b"another file"))
    (files / "b.xml").write_bytes(b"<x/>")
    publish = ["publish", "--files", str(files), "--set", "files", "--to", str(out)]
    assert run([*publish, "--base-url", f"http://127.0.0.1:{port}"]) == Exit.DONE
    (base / "htpasswd").write_text(HTPASSWD)
    text = (PACKAGING / "web" / file).read_text("utf-8").replace("/srv/headwater", str(out))
    with (base / "err").open("wb") as errors:
        running = subprocess.Popen([command, *arguments(text, base, port)], stdout=errors, stderr=errors)
    try:
        client = Client(port)
        until(lambda: client.answers() or running.poll() is not None)
        assert running.poll() is None, (base / "err").read_text()
        yield client, out
    finally:
        running.terminate()
        running.wait(30)


def test_a_web_server_serves_a_published_tree_as_it_is_meant(served: tuple[Client, Path], tmp_path: Path) -> None:
    client, out = served
    for path in ("/.well-known/resourcesync", *LISTS):
        status, headers, body = client.get(path)
        assert (status, headers["content-type"].split(";")[0]) == (200, "application/xml"), path
        assert "content-encoding" not in headers
        assert body == (out / path[1:]).read_bytes()
        status, headers, coded = client.get(path, Accept_Encoding="gzip")
        assert (status, headers.get("content-encoding")) == (200, "gzip"), path
        assert headers["content-type"].split(";")[0] == "application/xml", path
        assert headers["vary"].lower() == "accept-encoding"
        assert coded == (out / f"{path[1:]}.gz").read_bytes()
        assert gzip.decompress(coded) == body
        assert client.get(path, If_None_Match=headers["etag"], Accept_Encoding="gzip")[0] == 304
    for path in ("a.txt", "a.txt.gz", "b.xml"):
        status, headers, body = client.get(f"/files/resources/{path}", Accept_Encoding="gzip")
        assert (status, body) == (200, (out / "files/resources" / path).read_bytes())
        assert "content-encoding" not in headers, path
    state = [one.relative_to(out) for one in (out / ".headwater").rglob("*")]
    assert len(state) > 1
    for hidden in ("", *map(str, state)):
        path = f"/{hidden or '.headwater/'}"
        for spelt in (path, path.replace(".h", "%2eh"), f"/files/..{path}", f"/files/../{path}"):
            assert client.get(spelt)[0] in (400, 403, 404), spelt
    assert client.get("/files/changelist.xml", Authorization="Basic bm9ib2R5Om5vdGhpbmc=")[0] == 401
    copy = tmp_path / "copy"
    where = f"http://127.0.0.1:{client.port}/"
    assert run(["sync", "--user", "reader:password", where, str(copy), "--quiet"]) == Exit.DONE
    assert {one.name: one.read_bytes() for one in copy.iterdir() if one.is_file()} == {
        one.name: one.read_bytes() for one in (out / "files/resources").iterdir()
    }
