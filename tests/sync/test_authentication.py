"""Who asks: told to one origin by any of its ways, shown nowhere, and what a person is told who is not let in."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tools.engines.certificates import Authority

from headwater import SyncOptions, cli, sync_folder
from headwater.errors import Exit, UsageFault
from headwater.sync.connection import credentials_of
from headwater.transport.access import challenged
from headwater.transport.fetch import TransportOptions
from tests.support.copying import DONE, tree
from tests.support.fake_source import Reply, Site, Source, redirect
from tests.support.scripted_server import Behaviour, Request, answer, scripted

SECRET = "s3cr3t-pass"  # a word that must be found nowhere
BASIC = "Basic " + base64.b64encode(f"anna:{SECRET}".encode()).decode()


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No name, password or file of the machine's own."""
    for name in ("HEADWATER_TOKEN", "HEADWATER_USER", "HEADWATER_PASSWORD", "NETRC", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def said(source: Source, name: str = "Authorization") -> set[str | None]:
    return {headers.get(name) for _, headers in source.log}


WAYS = {
    "--user NAME:PASSWORD": (["--user", f"anna:{SECRET}"], {}, ""),
    "--user and HEADWATER_PASSWORD": (["--user", "anna"], {"HEADWATER_PASSWORD": SECRET}, ""),
    "HEADWATER_USER and HEADWATER_PASSWORD": ([], {"HEADWATER_USER": "anna", "HEADWATER_PASSWORD": SECRET}, ""),
    "HEADWATER_USER with both": ([], {"HEADWATER_USER": f"anna:{SECRET}"}, ""),
    "netrc": ([], {}, f"machine other login x password y\nmachine 127.0.0.1\n  login anna\n  password {SECRET}\n"),
    "--header": (["--header", f"Authorization: {BASIC}"], {}, ""),
    "--user before netrc": (["--user", f"anna:{SECRET}"], {}, "machine 127.0.0.1 login x password y\n"),
    "--user before a token of the environment": (["--user", f"anna:{SECRET}"], {"HEADWATER_TOKEN": "t"}, ""),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_tells_the_same(
    way: str, source: Source, site: Site, dest: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options, environment, netrc = WAYS[way]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if netrc:
        (tmp_path / "home" / ".netrc").write_text(netrc)
    assert cli.run(["sync", *options, source.base, str(dest)]) == DONE
    assert said(source) == {BASIC}
    for path in (dest / ".headwater").rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()


def test_a_file_of_headers(source: Source, site: Site, dest: Path, tmp_path: Path) -> None:
    (tmp_path / "headers").write_text(f"X-Key: {SECRET}\n\nCookie: a=b\n")
    assert cli.run(["sync", "--header", f"@{tmp_path}/headers", source.base, str(dest)]) == DONE
    assert (said(source, "X-Key"), said(source, "Cookie")) == ({SECRET}, {"a=b"})


@pytest.mark.parametrize("command", ["sync", "audit", "explore", "inspect"])
def test_every_command_can_say_who_asks(
    command: str, source: Source, site: Site, dest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dest.mkdir()
    target = f"{source.base}/set/resourcelist.xml" if command == "inspect" else source.base
    folder = [str(dest)] if command in ("sync", "audit") else []
    cli.run(
        [
            command,
            "--user",
            f"anna:{SECRET}",
            "--timeout",
            "60",
            "--rate",
            "1000",
            "--concurrency",
            "3",
            target,
            *folder,
        ]
    )
    assert said(source) == {BASIC}
    assert SECRET not in "".join(capsys.readouterr())


def test_netrc_speaks_for_the_host_alone(source: Source, site: Site, dest: Path, tmp_path: Path, monkeypatch) -> None:
    """Neither its `default` nor other machines, and where NETRC says; a broken file matters only if it is about us."""
    for text, expected in (
        (f"machine elsewhere login anna password {SECRET}\ndefault login anna password {SECRET}\n", {None}),
        ("machine elsewhere nonsense\n", {None}),
        (f"machine 127.0.0.1 login anna password {SECRET}\n", {BASIC}),
    ):
        source.forget()
        (tmp_path / "rc").write_text(text)
        monkeypatch.setenv("NETRC", str(tmp_path / "rc"))
        assert cli.run(["explore", source.base]) == DONE
        assert said(source) == expected
    (tmp_path / "rc").write_text(f"machine 127.0.0.1 logn {SECRET}\n")
    with pytest.raises(UsageFault) as caught:
        credentials_of(source.base, SyncOptions())
    assert SECRET not in str(caught.value) + caught.value.todo
    assert credentials_of(source.base, SyncOptions(netrc=False)) is None


def test_no_other_origin_is_told(source: Source, site: Site, dest: Path) -> None:
    """Not where a resource or a document is redirected to, not a mirror, not another host that is allowed."""
    with Source() as other:
        body = site.files["f1.txt"]
        other.pages["/x"] = other.pages["/mirror"] = other.pages["/listed"] = Reply(body)
        source.pages["/set/resources/f1.txt"] = redirect(f"{other.base}/x")
        source.pages["/set/resources/f2.txt"] = Reply(b"", 404)
        entries = [site.resource(name) for name in site.files]
        link = f'<rs:ln rel="duplicate" href="{other.base}/mirror"/></url>'
        entries[2] = site.resource("f1.txt").replace("f1.txt", "f2.txt").replace("</url>", link)
        entries.append(site.resource("f1.txt").replace(f"{site.root}/resources/f1.txt", f"{other.base}/listed"))
        site.publish_list(entries)
        options = SyncOptions(
            user="anna",
            password=SECRET,
            headers=(("X-Key", SECRET), ("Cookie", SECRET)),
            any_host=True,
            base=f"{site.root}/resources/",
        )
        sync_folder(source.base, dest, options)
        assert {path for path, _ in other.log} == {"/x", "/mirror", "/listed"}
        assert said(other) | said(other, "X-Key") | said(other, "Cookie") == {None}
        assert said(source) == {BASIC}
        assert said(source, "X-Key") == {SECRET}


EACH_WAY = ["--token or HEADWATER_TOKEN", "--user or HEADWATER_USER", "--header"]
CHALLENGES = [
    ({"WWW-Authenticate": 'Basic realm="x"'}, [], 401, ["requires authentication", "asks for: basic."]),
    ({"WWW-Authenticate": 'Bearer realm="x", error="y"'}, [], 401, ["requires authentication", "asks for: bearer."]),
    ({"WWW-Authenticate": 'Basic realm="x", Bearer'}, [], 401, ["asks for: basic, bearer."]),
    ({"WWW-Authenticate": 'Digest realm="x", nonce="y"'}, [], 401, ["asks for: digest."]),
    ({}, [], 401, []),
    ({}, [], 403, ["HTTP status 403"]),
    ({}, ["--token", SECRET], 401, ["the credentials given did not give access"]),
    ({"WWW-Authenticate": "Basic"}, ["--token", SECRET], 401, ["the credentials given did not", "asks for: basic."]),
    ({}, ["--user", f"anna:{SECRET}"], 403, ["the credentials given did not give access"]),
    ({}, ["--header", f"X-Key: {SECRET}"], 401, ["the credentials given did not give access"]),
]


@pytest.mark.parametrize(("headers", "options", "status", "told"), CHALLENGES)
@pytest.mark.parametrize("command", ["sync", "inspect"])
def test_who_is_not_let_in_is_told_why(
    command: str, headers, options, status, told, source: Source, dest: Path, capsys
) -> None:
    """The cause in the first line, once; what to do follows from what the server asks for and what it was given."""
    source.pages = dict.fromkeys(
        ["/", "/.well-known/resourcesync", "/robots.txt", "/x.xml"], Reply(b"", status, dict(headers))
    )
    folder = [str(dest)] if command == "sync" else []
    target = source.base if command == "sync" else f"{source.base}/x.xml"
    assert cli.run([command, *options, target, *folder]) == Exit.SOURCE
    out, err = capsys.readouterr()
    assert SECRET not in out + err
    for text in (*told, *EACH_WAY):
        assert text in err
    first = err.splitlines()[0]
    assert f"HTTP status {status}" in first
    assert err.count("HTTP status") == 1
    assert len(first) < 120


def test_what_is_withheld_after_a_redirect_is_told(source: Source, dest: Path, capsys) -> None:
    with Source() as other:
        other.pages["/.well-known/resourcesync"] = Reply(b"", 401, {"WWW-Authenticate": "Basic"})
        source.pages["/.well-known/resourcesync"] = redirect(f"{other.base}/.well-known/resourcesync", 301)
        assert cli.run(["sync", "--token", SECRET, "--any-host", source.base, str(dest)]) == Exit.SOURCE
        err = capsys.readouterr().err
        assert f"no credentials are sent to {other.base}/.well-known/resourcesync" in err.splitlines()[0]
        assert "give that address" in err
        assert SECRET not in err


def test_a_resource_elsewhere_that_wants_to_know_who_asks_is_told(source: Source, site: Site, dest: Path) -> None:
    """DST-F2: it is the origin, and not the token, that is wrong."""
    with Source() as other:
        other.pages["/x"] = Reply(b"", 401, {"WWW-Authenticate": "Bearer"})
        source.pages["/set/resources/f1.txt"] = redirect(f"{other.base}/x")
        source.pages["/set/resources/f2.txt"] = Reply(b"", 401, {"WWW-Authenticate": "Bearer"})
        report = sync_folder(source.base, dest, SyncOptions(authorization="Bearer t", any_host=True))
    reasons = {failed.uri[-6:]: failed.reason for failed in report.sets[0].failures}
    assert reasons == {
        "f1.txt": "HTTP status 401; credentials are sent to the origin of the source's address only",
        "f2.txt": "HTTP status 401",
    }


def test_one_cause_is_told_once(source: Source, dest: Path, capsys) -> None:
    assert cli.run(["sync", source.base, str(dest)]) == Exit.SOURCE
    err = capsys.readouterr().err
    assert err.count("HTTP status 404") == 1
    assert err.splitlines()[0] == "error: no ResourceSync document was found: HTTP status 404"
    assert err.splitlines()[1].startswith(f"  where: {source.base}/.well-known/resourcesync, {source.base}/")


WRONG = [
    (["--token", "t", "--user", "a:b"], "exclude each other"),
    (["--user", "anna"], "without a password"),
    (["--header", "nonsense"], "--header is"),
    (["--header", "Range: bytes=0-9"], "cannot be set"),
    (["--header", f"Bad Name: {SECRET}"], "letters, digits and hyphens"),
    (["--header", f"X-Key: {SECRET}\x01"], "cannot be sent"),
    (["--header", "@/nowhere"], "cannot be read"),
    (["--token", f"{SECRET}\n"], "cannot be sent"),
    (["--key", __file__], "a key needs a certificate"),
    (["--cert", "/nowhere"], "does not exist"),
    (["--proxy", f"gopher://anna:{SECRET}@x"], "a proxy is named"),
    (["--proxy", f"http://anna:{SECRET}@x:99999"], "a proxy is named"),
]


@pytest.mark.parametrize(("options", "told"), WRONG)
def test_what_cannot_be_meant_is_refused(options: list[str], told: str, capsys) -> None:
    assert cli.run(["explore", *options, "http://127.0.0.1:1/"]) == Exit.USAGE
    err = capsys.readouterr().err
    assert told in err
    assert SECRET not in err


def test_nothing_shows_a_secret() -> None:
    options = SyncOptions(
        authorization=None, user="anna", password=SECRET, headers=(("X-Key", SECRET),), proxy=f"http://x:{SECRET}@y"
    )
    assert SECRET not in repr(options)
    assert "user='anna'" in repr(options)
    settings = TransportOptions(proxy=f"http://x:{SECRET}@y", credentials=credentials_of("http://h/", options))
    assert SECRET not in repr(settings)
    credentials = settings.credentials
    assert SECRET not in repr(credentials)
    assert base64.b64encode(f"anna:{SECRET}".encode()).decode() not in f"{credentials!r} {credentials}"
    with pytest.raises(UsageFault) as caught:
        SyncOptions(password=[SECRET])  # type: ignore[arg-type]
    assert SECRET not in str(caught.value)
    for wrong in ({"user": "a:b", "password": SECRET}, {"password": SECRET}, {"user": "a", "password": f"{SECRET}\n"}):
        with pytest.raises(UsageFault) as caught:
            credentials_of("http://h/", SyncOptions(**wrong))  # type: ignore[arg-type]
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "proxy", ["http://anna:{}@[nowhere", "nonsense://anna:{}@x:1", "anna:{}@127.0.0.1:1", "http://a:{}@127.0.0.1:1"]
)
def test_a_proxy_of_the_environment_that_fails_is_told_without_its_password(proxy: str, monkeypatch, capsys) -> None:
    monkeypatch.setenv("http_proxy", proxy.format(SECRET))
    assert cli.run(["inspect", "http://headwater.invalid/x.xml"]) == Exit.SOURCE
    err = capsys.readouterr().err
    assert SECRET not in err
    assert "anna" not in err


@pytest.mark.parametrize(
    ("value", "schemes"),
    [
        (None, ()),
        ("", ()),
        ('Basic realm="a, Bearer b"', ("basic", "bearer")),  # a quoted comma: at worst one way too many is named
        ("Basic", ("basic",)),
        ('Digest nonce="x", realm="y"', ("digest",)),
        ('Basic realm="x", Bearer scope="y"', ("basic", "bearer")),
        ("Negotiate, NTLM", ("negotiate", "ntlm")),
    ],
)
def test_challenges_are_read(value, schemes) -> None:
    assert challenged(value) == schemes


# TLS


def context(made, authority: Authority | None = None) -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(made.certificate, made.key)
    if authority is not None:
        found.verify_mode = ssl.CERT_OPTIONAL
        found.load_verify_locations(authority.own.certificate)
    return found


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    folder = tmp_path_factory.mktemp("authorities")
    return Authority(folder / "one"), Authority(folder / "two")


def test_an_authority_is_believed_beside_those_of_the_machine(authorities, monkeypatch, capsys) -> None:
    one, two = authorities
    monkeypatch.setenv("CURL_CA_BUNDLE", str(one.own.certificate))
    page: dict[str, Behaviour] = {"/x.xml": answer(b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'/>")}
    for authority, options, status in (
        (one, [], DONE),
        (two, [], Exit.SOURCE),
        (two, ["--ca", str(two.own.certificate)], DONE),
        (one, ["--ca", str(two.own.certificate)], DONE),
    ):
        with scripted(page, context(authority.issue(("IP:127.0.0.1",)))) as server:
            assert cli.run(["inspect", *options, f"{server.base}/x.xml"]) == status, capsys.readouterr()


def test_a_file_that_is_no_authority_is_refused(authorities, capsys) -> None:
    for file in (__file__, str(authorities[0].issue(("IP:127.0.0.1",), file="key").key)):
        assert cli.run(["inspect", "--ca", file, "https://127.0.0.1:1/"]) == Exit.USAGE
        assert "no certificate in PEM form" in capsys.readouterr().err


def test_a_client_certificate_is_shown_to_its_origin_alone(authorities, capsys) -> None:
    one, _ = authorities
    made, mine = one.issue(("IP:127.0.0.1",)), one.issue(("DNS:anna",), file="anna")
    seen: list[tuple[str, bool]] = []

    def probe(name: str, sent: bytes):
        def behave(_request: Request, connection: socket.socket) -> bytes:
            assert isinstance(connection, ssl.SSLSocket)
            seen.append((name, connection.getpeercert(binary_form=True) is not None))
            return sent

        return behave

    page = answer(b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'/>")
    with scripted({}, context(made, one)) as other, scripted({}, context(made, one)) as own:
        other.script["/x.xml"] = probe("other", page)
        own.script["/x.xml"] = probe("own", answer(b"", "302 Found", Location=f"{other.base}/x.xml"))
        own.script["/y.xml"] = probe("own", page)
        options = ["--ca", str(one.own.certificate), "--cert", str(mine.certificate), "--key", str(mine.key)]
        for name in ("x.xml", "y.xml"):
            assert cli.run(["inspect", *options, f"{own.base}/{name}"]) == DONE, capsys.readouterr()
        assert cli.run(["inspect", *options[:2], f"{own.base}/y.xml"]) == DONE
    assert seen == [("own", True), ("other", False), ("own", True), ("own", False)]


def test_files_that_are_no_client_certificate_are_told(authorities, capsys) -> None:
    one, _ = authorities
    with scripted({}, context(one.issue(("IP:127.0.0.1",)))) as server:
        options = ["--ca", str(one.own.certificate), "--cert", __file__]
        assert cli.run(["inspect", *options, f"{server.base}/x.xml"]) == Exit.SOURCE
    assert "--cert and --key" in capsys.readouterr().err


# proxies


@contextmanager
def proxy(asked: list[str]) -> Iterator[int]:
    """A proxy for http that notes the heads of requests and passes everything on, one request a connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(client: socket.socket) -> None:
        with client, suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(65536) or b"\r\n\r\n"
            asked.append(head.decode("latin-1"))
            method, target, rest = head.split(b" ", 2)
            host, _, path = target.removeprefix(b"http://").partition(b"/")
            name, _, port = host.decode().partition(":")
            with socket.create_connection((name, int(port))) as server:
                server.sendall(method + b" /" + path + b" " + rest.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
                while block := server.recv(65536):
                    client.sendall(block)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_a_proxy_is_asked_for_everything(source: Source, site: Site, dest: Path, monkeypatch) -> None:
    asked: list[str] = []
    site.put("sm%c3%a4ll", b"as it is written")
    site.publish()
    with proxy(asked) as port:
        options = ["--proxy", f"http://ben:{SECRET}@127.0.0.1:{port}", "--token", "t"]
        assert cli.run(["sync", *options, source.base, str(dest)]) == DONE
        assert len(asked) == len(source.log)
        assert all(head.split(" ")[1].startswith(source.base) for head in asked)
        assert all("Proxy-Authorization: Basic" in head for head in asked)
        assert said(source) == {"Bearer t"}
        assert len(tree(dest)) == 6
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        before = len(asked)
        assert cli.run(["sync", *options, source.base, str(dest)]) == DONE
        assert len(asked) == before
