"""`headwater inspect`: files, standard input and URLs; for people, as one object, as lines; faults are always said."""

from __future__ import annotations

import gzip
import http.server
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from headwater.cli import run
from tests.support.documents import CHANGES, EXAMPLES, LIST, url, urlset

CHANGE_LIST = EXAMPLES / "core-1.1" / "resourcesync_ex_19.xml"


def inspect(*arguments: str | Path, octets: bytes = b"") -> tuple[int, str, str]:
    """Exit status, standard output and standard error of the command, run in this process."""
    given, out, err = io.BytesIO(octets), io.BytesIO(), io.BytesIO()
    with (
        mock.patch.object(sys, "stdin", io.TextIOWrapper(given)),
        mock.patch.object(sys, "stdout", io.TextIOWrapper(out, "utf-8", write_through=True)),
        mock.patch.object(sys, "stderr", io.TextIOWrapper(err, "utf-8", write_through=True)),
    ):
        status = run(["inspect", *map(str, arguments)])
        return status, out.getvalue().decode(), err.getvalue().decode()


def test_one_object() -> None:
    status, out, err = inspect(CHANGE_LIST, "--json")
    assert (status, err) == (0, "")
    shown = json.loads(out)
    assert shown["kind"] == "change-list"
    assert shown["capability"] == "changelist"
    assert shown["version"] == "1.1"
    assert shown["attributes"] == {"from": "2013-01-03T00:00:00Z"}
    assert shown["links"] == [{"rel": "up", "href": "http://example.com/dataset1/capabilitylist.xml"}]
    assert shown["entries"][2] == {
        "loc": "http://example.com/res3.tiff",
        "change": "deleted",
        "datetime": "2013-01-03T18:00:00Z",
    }
    assert (shown["entry_count"], shown["skipped_count"], shown["warnings"], shown["complete"]) == (4, 0, [], True)


def test_lines() -> None:
    status, out, _ = inspect(CHANGE_LIST, "--ndjson")
    assert status == 0
    assert [json.loads(line)["loc"] for line in out.splitlines()] == [
        f"http://example.com/{name}" for name in ("res1.html", "res2.pdf", "res3.tiff", "res2.pdf")
    ]


def test_for_people() -> None:
    status, out, _ = inspect(CHANGE_LIST)
    assert status == 0
    for words in ("Change List", "2013-01-03T00:00:00Z", "http://example.com/res3.tiff", "deleted", "4 entries"):
        assert words in out


def test_only_the_first_entries_without_all(tmp_path: Path) -> None:
    path = tmp_path / "list.xml"
    path.write_bytes(urlset("".join(url("", f"http://example.com/{n:03}") for n in range(100))))
    status, out, _ = inspect(path)
    assert status == 0
    assert out.count("http://example.com/0") == 20
    assert "80 more; --all shows all" in out
    assert inspect(path, "--all")[1].count("http://example.com/0") == 100


@pytest.mark.parametrize(
    "name", ["resourcesync_ex_7", "resourcesync_ex_13", "resourcesync_ex_15", "resourcesync_ex_22"]
)
def test_standard_input_and_gzip(name: str) -> None:
    octets = (EXAMPLES / "core-1.1" / f"{name}.xml").read_bytes()
    status, out, _ = inspect("-", "--json", octets=gzip.compress(octets))
    assert status == 0
    assert json.loads(out)["entry_count"] == len(json.loads(out)["entries"]) > 0


def test_warnings_name_their_rules() -> None:
    octets = urlset(url('<rs:md length="x" x:own="1" xmlns:x="http://e.com/x"/><lastmod>2024-05</lastmod>', "rel"))
    status, out, _ = inspect("-", "--json", "--base", "http://example.com/dir/", octets=octets)
    shown = json.loads(out)
    assert status == 0
    assert [(one["rule"], one["count"], one["examples"]) for one in shown["warnings"]] == [
        ("AMB-07", 1, ["rel"]),
        ("AMB-33", 1, ["x"]),
    ]
    assert shown["entries"] == [
        {"loc": "http://example.com/dir/rel", "lastmod": "2024-05", "extra": {"{http://e.com/x}own": "1"}}
    ]
    for form in ((), ("--ndjson",)):
        status, out, err = inspect("-", *form, octets=octets)
        assert "[AMB-33]" in (err if form else out)


@pytest.mark.parametrize(
    ("octets", "code", "rule"),
    [
        (b"", "HW-DOC-03", "AMB-10"),
        (b"<html>", "HW-DOC-07", "RS-DOC-01"),
        (b"<!doctype html>\n<title>Not here</title>", "HW-DOC-07", "RS-DOC-01"),
        (b"\n<!-- a page -->\n<HTML lang=en>", "HW-DOC-07", "RS-DOC-01"),
        (b"<!--" + b"-->" * 300 + b"<", "HW-DOC-02", "AMB-10"),
        (b"Not found", "HW-DOC-02", "AMB-10"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "HW-DOC-06", "AMB-10"),
        (urlset(url("") * 3)[:-20], "HW-DOC-04", "AMB-10"),
    ],
)
@pytest.mark.parametrize("form", ["", "--json", "--ndjson"])
def test_faults_end_in_status_3(octets: bytes, code: str, rule: str, form: str) -> None:
    status, out, err = inspect("-", *([form] if form else []), octets=octets)
    assert status == 3
    for words in ("error: ", "where: -", f"code: {code} ({rule})", "do: "):
        assert words in err
    if form == "--json":
        shown = json.loads(out)
        assert shown["complete"] is False
        assert (shown["fault"]["code"], shown["fault"]["rule"]) == (code, rule)
    elif form:
        assert all(json.loads(line)["loc"] for line in out.splitlines())
    else:
        assert ("before the fault" in out) == (code == "HW-DOC-04")  # nothing is said of what nothing was read of


def test_no_such_file_is_a_usage_error(tmp_path: Path) -> None:
    for path, what in ((tmp_path / "none.xml", "there is no such file"), (tmp_path, "this is a folder, not a file")):
        status, out, err = inspect(path, "--json")
        assert (status, json.loads(out)["error"]["what"]) == (2, what)
        assert what in err


def test_the_forms_exclude_each_other() -> None:
    assert inspect(CHANGE_LIST, "--json", "--ndjson")[0] == 2


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/dir/list.xml")
            self.end_headers()
            return
        self.send_response(200 if self.path == "/dir/list.xml" else 404)
        self.end_headers()
        self.wfile.write(urlset(url("", "r1")))

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_urls_are_read_and_relative_ones_resolved_where_they_lead(site: str) -> None:
    status, out, _ = inspect(f"{site}/moved", "--json")
    assert status == 0
    shown = json.loads(out)
    assert shown["target"] == f"{site}/dir/list.xml"
    assert shown["entries"] == [{"loc": f"{site}/dir/r1"}]


def test_unreachable_urls_end_in_status_3(site: str) -> None:
    status, out, err = inspect(f"{site}/none", "--json")
    assert (status, json.loads(out)["exit_status"]) == (3, 3)
    assert "404" in err
    assert site in err


def test_a_large_list_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "list.xml"
    with path.open("wb") as file:
        file.write(urlset("", LIST)[:-11])
        for n in range(100):
            file.write(
                "".join(
                    url("<rs:md length='1'/>" if n % 9 else "", f"http://e.com/{n}/{m}") for m in range(1_000)
                ).encode()
            )
        file.write(b"</urlset>")
    # VmHWM, not ru_maxrss: the latter keeps what the parent had when it forked
    code = (
        "import sys\nfrom headwater.cli import main\n"
        "try: main()\n"
        "except SystemExit as end:\n"
        "    peak = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "    print(end.code, peak, file=sys.stderr)"
    )
    for form in ("--json", "--ndjson", "--all"):
        with open(os.devnull, "wb") as nowhere:
            done = subprocess.run(
                [sys.executable, "-c", code, "inspect", str(path), form],
                stdout=nowhere,
                stderr=subprocess.PIPE,
                timeout=60,
            )
        status, peak_kib = done.stderr.split()[-2:]
        assert int(status) == 0
        assert int(peak_kib) < 64 * 1024, form


def test_hostile_text_cannot_steer_the_terminal() -> None:
    octets = urlset(url('<rs:md type="a/\N{RIGHT-TO-LEFT OVERRIDE}b"/>', "http://example.com/\x9b31m"), CHANGES)
    status, out, _ = inspect("-", octets=octets)
    assert status == 0
    assert "\x9b" not in out
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in out
