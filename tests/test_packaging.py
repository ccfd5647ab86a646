"""The files in packaging/: units that systemd takes, and web servers that serve a published tree as it is meant."""

from __future__ import annotations

import base64
import gzip
import hashlib
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import pytest

from headwater.aggregator.configuration import read_aggregation
from headwater.cli import run
from headwater.errors import Exit
from headwater.files.media_types import MEDIA_TYPES
from tests.interop.programs import web_server
from tests.notify.subscriber import Subscriber
from tests.source.replay import Tree
from tests.support.waiting import until

PACKAGING = Path(__file__).parents[1] / "packaging"
GUIDE = PACKAGING.parent / "docs" / "how-to" / "run-and-monitor-a-source.md"
"""The page for those who run it."""
UNITS = sorted((PACKAGING / "systemd").iterdir())
LISTS = ("/files/resourcelist.xml", "/files/changelist.xml", "/files/capabilitylist.xml")


def program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def test_the_container_is_made_of_what_there_is_and_its_source_is_sound() -> None:
    """What the recipe copies is in the repository and not ignored; `serve` takes the configuration beside it."""
    root, recipe = PACKAGING.parent, (PACKAGING / "oci" / "Containerfile").read_text("utf-8")
    kept = [line[1:] for line in (root / ".containerignore").read_text("utf-8").splitlines() if line.startswith("!")]
    copied = [one for line in re.findall(r"^COPY (?!--from)(.+) \S+$", recipe, re.MULTILINE) for one in line.split()]
    assert len(copied) > 5
    assert all((root / one).exists() and one.startswith(tuple(kept)) for one in copied)
    for name in ("source.toml", "sidecar.toml"):
        assert run(["check-config", str(PACKAGING / "oci" / name)]) == Exit.DONE
    assert read_aggregation(PACKAGING / "oci" / "aggregate.toml").publish is not None


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
        assert ("ExecReload=" in text) == (unit.name == "headwater-follow.service"), "only this one reads it again"
        command = re.search(r"^ExecStart=/opt/headwater/bin/headwater (.+)$", text, re.MULTILINE)
        assert command
        arguments = command[1].replace("$OPTIONS", "").replace("${SOURCE}", "http://x.example/").split()
        for option in (one for one in arguments if one.startswith("--")):
            reference = (PACKAGING.parent / "docs" / "reference" / "commands.md").read_text("utf-8")
            assert option in reference, f"{unit.name}: {option}"


def test_the_unit_that_publishes_can_make_hard_links() -> None:
    text = (PACKAGING / "systemd" / "headwater-publish.service").read_text("utf-8")
    ((files, to),) = re.findall(r"^ExecStart=.* --files (\S+) --to (\S+)", text, re.MULTILINE)
    (writable,) = re.findall(r"^ReadWritePaths=(\S+)$", text, re.MULTILINE)
    assert Path(to).is_relative_to(writable)
    assert Path(files).is_relative_to(writable), "each such path is a mount of its own, and no link leads out of it"


@pytest.mark.parametrize("name", ["headwater.service", "headwater-publish.service"])
def test_units_that_read_files_say_how_they_get_the_right(name: str) -> None:
    """The manual has the same line for a file beside the unit; what is no comment any more is taken by systemd."""
    text = (PACKAGING / "systemd" / name).read_text("utf-8")
    (group,) = re.findall(r"^#(SupplementaryGroups=\w+)$", text, re.MULTILINE)
    assert f"[Service]\n{group}\n" in GUIDE.read_text("utf-8")


def test_the_manual_names_every_file() -> None:
    manual = GUIDE.read_text("utf-8")
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
    text = text.replace("/etc/nginx/headwater.conf", str(base / "headwater"))
    user = "user root;" if os.geteuid() == 0 else ""
    paths = "".join(f"{name}_temp_path {base}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (base / "conf").write_text(
        f"{user} pid {base}/pid; error_log {base}/log; events {{}}\nhttp {{ {paths} access_log off;"
        f" types {{ text/xml xml; text/plain txt; application/gzip gz; }}\n{text}\n}}"
    )
    return ["-p", str(base), "-e", str(base / "log"), "-c", str(base / "conf"), "-g", "daemon off;"]


def apache2(text: str, base: Path, port: int) -> list[str]:
    text = re.sub(r"\n *SSL[^\n]*", "", text).replace("*:443", f"127.0.0.1:{port}")
    text = re.sub(r"\n    # (<|</|    )", r"\n    \1", text).replace(
        "/etc/apache2/headwater.htpasswd", f"{base}/htpasswd"
    )
    text = text.replace("/etc/apache2/headwater.conf", str(base / "headwater"))
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
    text = text.replace("\ndata.example.org {", f"\nhttp://127.0.0.1:{port} {{")
    text = text.replace("/etc/caddy/headwater.caddy", str(base / "headwater"))
    hashed = subprocess.run(
        ["caddy", "hash-password", "--plaintext", "password"], capture_output=True, text=True, check=True
    ).stdout.strip()
    text = re.sub(r"# (basicauth \{|\tNAME HASH|\})", r"\1", text).replace("NAME HASH", f"reader {hashed}")
    (base / "conf").write_text("{\n\tadmin off\n}\n" + text)
    return ["run", "--adapter", "caddyfile", "--config", str(base / "conf")]


SERVERS = {
    "nginx": (nginx, "nginx-static.conf", "nginx.conf"),
    "apache2": (apache2, "apache-static.conf", "apache.conf"),
    "caddy": (caddy, "Caddyfile", "Caddyfile"),
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
            return self.get("/robots.txt")[0] in (200, 404)
        except OSError:
            return False


@pytest.fixture(params=list(SERVERS))
def server(request: pytest.FixtureRequest) -> str:
    """A web server that is installed; nginx always is where everything is tested."""
    name = str(request.param)
    if program(name) is None and not (name == "nginx" and os.environ.get("HEADWATER_REQUIRE_ENGINES")):
        pytest.skip(f"{name} is not installed")
    return name


@contextmanager
def serving(name: str, state: Path, base: Path, port: int) -> Iterator[Client]:
    """The web server as packaging/ has it, with what `publish` wrote for it, behind a password."""
    arguments, file, written = SERVERS[name]
    base.mkdir()
    (base / "htpasswd").write_text(HTPASSWD)
    shutil.copy(state / written, base / "headwater")
    text = (PACKAGING / "web" / file).read_text("utf-8")
    with (base / "err").open("wb") as errors:
        running = subprocess.Popen([program(name) or name, *arguments(text, base, port)], stdout=errors, stderr=errors)
    try:
        client = Client(port)
        until(lambda: client.answers() or running.poll() is not None)
        assert running.poll() is None, (base / "err").read_text()
        yield client
    finally:
        running.terminate()
        running.wait(30)


def test_a_web_server_serves_a_published_tree_as_it_is_meant(server: str, tmp_path: Path) -> None:
    """Also a name that looks like another's compressed form."""
    files, out, port = tmp_path / "source", tmp_path / "out", free_port()
    files.mkdir()
    (files / "a.txt").write_bytes(b"not compressed\n" * 20)
    (files / "a.txt.gz").write_bytes(gzip.compress(b"another file"))
    (files / "b.xml").write_bytes(b"<x/>")
    publish = ["publish", "--files", str(files), "--set", "files", "--to", str(out)]
    assert run([*publish, "--base-url", f"http://127.0.0.1:{port}"]) == Exit.DONE
    with serving(server, out / ".headwater", tmp_path / "server", port) as client:
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
        copy, where = tmp_path / "copy", f"http://127.0.0.1:{port}/"
        assert run(["sync", "--user", "reader:password", where, str(copy), "--quiet"]) == Exit.DONE
        assert {one.name: one.read_bytes() for one in copy.iterdir() if one.is_file()} == {
            one.name: one.read_bytes() for one in (out / "files/resources").iterdir()
        }


ODD = (
    "m/1.pdf.xml",
    "m/1.xml",
    "m/[a]-b.dat",
    "m/deep/er/x.q+",
    "m/b-b.dat",
    "B.Q+",
    "a b.csv",
    "UPPER.XML",
    "no-extension",
    "two.tar.gz",
    "x.php",
    "i.shtml",
    "m.var",
    "page.html.en",
    "é.css",
    ".hid.txt",
)


def _copy_of_stated_types(folder: Path, stated: dict[str, str]) -> None:
    """A copy whose source states these media types of its resources: records of a push set as a static tree."""
    events = b""
    for name, kind in stated.items():
        body = name.encode()
        place = folder / "origin" / "typed" / "resources" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(body)
        one = {"path": name, "length": len(body), "sha-256": hashlib.sha256(body).hexdigest(), "type": kind}
        events += json.dumps(one).encode() + b"\n"
    with web_server(folder / "origin") as url:
        config = folder / "origin.toml"
        config.write_text(f'to = "origin"\nbase_url = "{url}"\n[[set]]\nname = "typed"\nfeed = "events"\n')
        (folder / "events").write_bytes(events)
        assert run(["ingest", "events", str(folder / "events"), "--config", str(config), "--set", "typed"]) == Exit.DONE
        assert run(["publish", str(config), "--quiet"]) == Exit.DONE
        assert run(["sync", url, str(folder / "copy"), "--quiet"]) == Exit.DONE


STATED = {
    "a/metadata.xml": "application/oai_dc+xml",
    "b/metadata.xml": "application/oai_dc+xml",
    "b/other.xml": "application/xml",
    "c.csv": "text/plain",
    "odd/one.txt": "text/x-one",
    "odd/two.txt": "text/x-one",
    'odd (x)/$1 "quoted\\.dat': "application/x-odd",
    "k/same.dat": "application/x-k",
    "l/same.dat": "application/x-l",
    "é/ü.dat": "application/x-k",
    "p.txt": "text/plain; charset=utf-8",
    "hostile.dat": 'text/x; a="; } location / { return 200; } #"',
}


def tree_of_odd_types(folder: Path, base_url: str, hub: str) -> list[tuple[str, str | None]]:
    """A static tree with names and types of all kinds: the path of each resource below its base URL, its type."""
    (folder / "files").mkdir()
    for name in (*ODD, *(f"f.{one}" for some in MEDIA_TYPES.values() for one in some.split())):
        (folder / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "files" / name).write_bytes(b"content of " + name.encode())
    (folder / "types").write_text("application/x-q q+ q2 # more\napplication/x-deep m/**/er/ *.[!t-z]?t\n")
    _copy_of_stated_types(folder, STATED)
    config = folder / "source.toml"
    config.write_text(
        f'state = "state"\nto = "out"\nbase_url = "{base_url}"\n[notify]\nhubs = ["{hub}/a%2Fb?it\'s=$1"]\n'
        '[[set]]\nfiles = "files"\nhidden = true\ntypes_file = "types"\n'
        'types = {"*.pdf.xml" = "application/x-m", "m/[abc]-*" = "text/x-c", "f.t*" = "text/x-t", "x.*" = "text/x-x"}\n'
        '[[set]]\nname = "copied"\ncopy = "copy"\n'
    )
    assert run(["publish", str(config), "--quiet"]) == Exit.DONE
    found = []
    for name in ("files", "copied"):
        for one in Tree(folder / "out", base_url, name).entries(f"{name}/resourcelist.xml"):
            found.append((one.loc.removeprefix(base_url), one.type))
    assert len(found) == len(ODD) + len(STATED) + sum(len(one.split()) for one in MEDIA_TYPES.values())
    return found


def test_media_types_that_are_served_are_those_of_the_lists(server: str, tmp_path: Path) -> None:
    """Of every extension that has one, of odd names, and of a copy whose source says other types than names do."""
    port, hub = free_port(), Subscriber()
    base_url = f"http://127.0.0.1:{port}/rs"
    listed = tree_of_odd_types(tmp_path, base_url, hub.url)
    hub.close()
    with serving(server, tmp_path / "state", tmp_path / "server", port) as client:
        for path, kind in listed:
            status, headers, _body = client.get(f"/rs{path}")
            assert (status, headers["content-type"]) == (200, kind), path
            assert headers["cache-control"] == "public, max-age=60, must-revalidate", path
        for topic in ("files/frameworknotification.xml", "copied/changenotification.xml"):
            status, headers, body = client.get(f"/rs/{topic}", Accept_Encoding="gzip")
            assert (status, headers["content-type"]) == (200, "application/xml")
            assert headers["cache-control"] == "no-cache"
            assert gzip.decompress(body) == (tmp_path / "out" / topic).read_bytes()
            links = f'<{base_url}/{topic}>; rel="self", <{hub.url}/a%2Fb?it%27s=%241>; rel="hub"'
            assert headers["link"] == links
        assert client.get("/rs/robots.txt")[1]["content-type"].split(";")[0] == "text/plain"
        assert client.get("/rs/files/resources/.headwater-tmp-1")[0] == 404


def test_caches_keep_static_documents_as_long_as_those_of_a_server(server: str, tmp_path: Path) -> None:
    """Those of a name that has a digest, a minute long what seldom changes, and the rest not unasked."""
    files, out, port = tmp_path / "source", tmp_path / "out", free_port()
    files.mkdir()
    (files / "a.json").write_bytes(b'{"a": [%s]}' % b",".join(b"%d" % one for one in range(500)))
    config = tmp_path / "source.toml"
    config.write_text(
        f'to = "out"\nbase_url = "http://127.0.0.1:{port}"\n[[set]]\nname = "files"\nfiles = "source"\n'
        "dump = true\nchange_dump = true\narchive = true\nsitemap = true\n"
    )
    assert run(["publish", "-q", str(config)]) == Exit.DONE
    (files / "b.txt").write_bytes(b"new")
    assert run(["publish", "-q", str(config)]) == Exit.DONE
    found: dict[str, set[str]] = {}
    with serving(server, out / ".headwater", tmp_path / "server", port) as client:
        documents = [str(one.relative_to(out)) for one in out.rglob("*") if one.is_file() and one.suffix != ".gz"]
        for path in (one for one in documents if ".headwater" not in one):
            status, headers, _body = client.get(f"/{path}", Accept_Encoding="gzip")
            assert status == 200, path
            name = re.sub(r"[0-9]{5}(-[0-9]{3})?-[0-9a-f]{16}", "DIGEST", path)
            found.setdefault(headers["cache-control"], set()).add(name)
    brief = {".well-known/resourcesync", "robots.txt", "files/capabilitylist.xml"}
    assert found["public, max-age=60, must-revalidate"] == {*brief, "files/resources/a.json", "files/resources/b.txt"}
    lasting = found["public, max-age=31536000, immutable"]
    assert lasting >= {"files/resourcedump/DIGEST.zip", "files/changedump/DIGEST.zip"}
    assert all("DIGEST" in one or one.startswith("files/archive/") for one in lasting)
    assert {*LISTS} - {f"/{one}" for one in brief} <= {f"/{one}" for one in found["no-cache"]}
    assert not any("DIGEST" in one for one in found["no-cache"])


def test_only_a_changed_setting_needs_a_reload_of_the_web_server(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config, files = tmp_path / "source.toml", tmp_path / "source"
    files.mkdir()
    (files / "a.xml").write_bytes(b"<x/>")
    text = 'to = "out"\nbase_url = "http://127.0.0.1"\n[[set]]\nfiles = "source"\n'

    def told(more: str) -> list[str]:
        config.write_text(text + more)
        assert run(["publish", "-q", str(config)]) == Exit.DONE
        said = capfd.readouterr()
        assert said.out == ""
        return said.err.splitlines()

    assert told("") == []
    types = 'types = { "*.pdf.xml" = "application/marcxml+xml" }\n'
    (line,) = told(types)
    assert "reload" in line
    assert str(tmp_path / "out/.headwater/nginx.conf") in line
    before = (tmp_path / "out/.headwater/nginx.conf").read_text()
    assert before.count("application/marcxml+xml") == 1
    for name in ("b.pdf.xml", "c.pdf.xml", "d.pdf.xml"):
        (files / name).write_bytes(b"<x/>")
    assert told(types + '[[set]]\nname = "more"\nfiles = "source"\n') == []
    assert (tmp_path / "out/.headwater/nginx.conf").read_text() == before


def test_what_apache_and_caddy_are_told_has_the_media_types_of_the_lists(tmp_path: Path) -> None:
    """Without these servers: sections and blocks are closed, and the last expression that fits a path has its type."""
    hub = Subscriber()
    listed = tree_of_odd_types(tmp_path, "http://127.0.0.1/rs", hub.url)
    hub.close()
    apache, caddyfile = ((tmp_path / "state" / name).read_text() for name in ("apache.conf", "Caddyfile"))
    assert re.findall(r"^</?(\w+)", apache, re.MULTILINE)[::2] == re.findall(r"^</(\w+)", apache, re.MULTILINE)
    lines = [one.rstrip() for one in caddyfile.splitlines()]
    assert sum(one.endswith(" {") for one in lines) == sum(one.strip() == "}" for one in lines)
    for octets, text in ((True, apache), (False, caddyfile.partition("# Documents lie")[0])):
        form = r'<LocationMatch "\^/rs(.*)\$">\s+ForceType "(.*)"' if octets else r"path_regexp `\^(.*)\$`\n.* \"(.*)\""
        told = [(re.sub(r"\\x\{(\w+)\}", lambda one: re.escape(chr(int(one[1], 16))), where), kind)
                for where, kind in re.findall(form, text)]  # fmt: skip
        assert len(told) > 100
        for path, kind in listed:
            name = unquote(path, "latin-1" if octets else "utf-8")  # one octet is one character to Apache
            fitting = ["application/octet-stream", *(one for where, one in told if re.fullmatch(where, name))]
            assert fitting[-1] == kind, path
