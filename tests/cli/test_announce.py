"""`headwater ingest … --to URL`: announced to a server elsewhere, in batches that are taken once whatever breaks."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headwater.cli import run
from headwater.cli.ingest import CHANGES, DOCUMENTS, address
from headwater.errors import Exit
from headwater.http.ingest import IngestLimits
from headwater.ingest.push.feed import Line
from headwater.ingest.push.http_sender import (
    BATCH_LINES,
    BATCH_OCTETS,
    AnnouncementServer,
    Sender,
    Unanswered,
    batches,
)
from tests.http.announcing import OTHER, TOKEN, PushServer, serving
from tests.support.failing import failing
from tests.support.push_set import change, resource
from tests.support.waiting import DEADLINE, until


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[PushServer]:
    with serving(tmp_path / "state", IngestLimits()) as made:
        yield made


def written(path: Path, *values: object) -> str:
    path.write_bytes(b"".join(one if isinstance(one, bytes) else json.dumps(one).encode() + b"\n" for one in values))
    return str(path)


def told(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object], str]:
    status = run(["ingest", *arguments, "--json"])
    said = capfd.readouterr()
    return status, json.loads(said.out) if said.out else {}, said.err


def test_events_of_files_are_announced_once_under_a_key(
    fed: PushServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    many = [{"path": f"{number}", "change": "updated"} for number in range(2 * BATCH_LINES + 10)]
    first = written(tmp_path / "a.ndjson", *many[:1_500], b"\n", {"bad": 1})
    second = str(tmp_path / "b.ndjson.gz")
    Path(second).write_bytes(gzip.compress(b"".join(json.dumps(one).encode() + b"\n" for one in many[1_500:])))
    arguments = ["events", first, second, "--to", fed.url, "--set", "s", "--token", TOKEN, "--key", "run"]
    for _ in range(2):
        status, counts, err = told(capfd, *arguments)
        assert (status, counts["lines"], counts["taken"], counts["rejected"]) == (4, 2_011, 2_010, 1)
        assert "line 1502" in err
        assert len(fed.log()) == 2_010
    status, counts, _ = told(capfd, *arguments[:-2])  # without the key it is announced anew
    assert counts["key"] != "run"
    assert len(fed.log()) == 2 * 2_010


def test_documents_are_announced_however_they_lie_in_a_file(
    fed: PushServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hits = [{"_id": f"{n}", "_type": "resource", "_source": resource(f"{n}", 1)} for n in range(3)]
    answer = json.dumps({"hits": {"hits": hits}}, indent=2).encode()
    changes = "\n".join(json.dumps(change(f"{n}", "created", 1), indent=1) for n in range(3)).encode()
    name = written(tmp_path / "d.json", answer + b"\n" + changes)
    status, counts, _ = told(capfd, "dit", name, "--to", fed.url, "--token", OTHER)
    assert (status, counts["lines"], counts["rejected"]) == (0, 6, 0)
    assert sorted(fed.log("d")) == [("created", f"{n}") for n in range(3)]


def test_lines_that_are_too_long_or_expand_too_much_are_refused_alone(
    fed: PushServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A hole in a file is octets of zero: as gzip they expand more than a server bears."""
    hole = b"\0" * 1_000_000 + b"\n"
    name = written(tmp_path / "a.ndjson", {"path": "a"}, {"path": "b" * (1 << 20)}, hole, hole, {"path": "c"})
    status, counts, err = told(capfd, "events", name, "--to", fed.url, "--set", "s", "--token", TOKEN)
    assert (status, counts["lines"], counts["taken"], counts["rejected"]) == (4, 5, 2, 3)
    assert "the line is too long (line 2) [HW-ING-43]" in err
    assert fed.log() == [("created", "a"), ("created", "c")]


def test_a_load_is_announced_and_opened(fed: PushServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = written(tmp_path / "a.ndjson", {"path": "a"}, {"path": "b"})
    to = ["--to", f"{fed.url}/s/changes", "--token", TOKEN, "--load"]
    assert told(capfd, "events", name, *to, "--keep-loading")[0] == 0
    assert not fed.source.push_sets.by_set["s"].is_open
    assert told(capfd, "events", name, *to)[0] == 0
    assert fed.log() == []
    status, _, err = told(capfd, "events", name, *to)
    assert (status, "409" in err, "HW-ING-58" in err) == (2, True, True)


WRONG = [
    (["--to", "URL"], "HW-ING-57"),  # of which set?
    (["--to", "URL/s"], "/s/changes if it is the set's own"),
    (["--to", "URL/s/changes", "--token", ""], "a token"),
    (["--to", "URL/s/changes", "--token", "w" * 32], "401"),
    (["--to", "URL/none/changes", "--token", TOKEN], "404"),
    (["--to", "ftp://x/s/changes", "--token", TOKEN], "HW-ING-57"),
    (["--to", "URL/s/changes", "--token", TOKEN, "--dry-run"], "--dry-run"),
    ([], "--set NAME"),
]


@pytest.mark.parametrize(("options", "words"), WRONG, ids=str)
def test_what_cannot_be_announced_is_said(
    fed: PushServer, tmp_path: Path, capfd: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    name = written(tmp_path / "a.ndjson", {"path": "a"})
    status, _, err = told(capfd, "events", name, *(one.replace("URL", fed.url) for one in options))
    assert status == 2
    assert words in err


def test_a_state_that_is_in_use_names_the_way(
    fed: PushServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name = written(tmp_path / "a.ndjson", {"path": "a"})
    status, _, err = told(capfd, "events", name, "--set", "s", "--state", str(tmp_path / "state"))
    assert status == 6
    assert "HW-OWN-01" in err
    assert "--to URL" in err


@pytest.mark.parametrize("kind", ["events", "dit"])
def test_a_file_for_the_other_command_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str) -> None:
    lines = [{"path": f"{n}", "change": "created"} if kind == "dit" else resource(f"{n}", 1) for n in range(200)]
    name = written(tmp_path / "a.ndjson", *lines)
    state = str(tmp_path / "own")
    status, _, err = told(capfd, kind, name, "--set", "s", "--state", state, "--url-prefix", "http://e.org/")
    assert status == 4
    assert f"`headwater ingest {'events' if kind == 'dit' else 'dit'}`" in err
    assert len(err.splitlines()) < 30


class Faulty:
    """A server that answers by a script, then as one that has taken everything; None breaks the connection."""

    def __init__(self, *script: tuple[int, dict[str, str], object] | None) -> None:
        self.script = list(script)
        self.keys: list[str | None] = []
        faulty = self

        class Handler(BaseHTTPRequestHandler):
            disable_nagle_algorithm = True
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:  # the name that http.server calls
                body = self.rfile.read(int(self.headers["content-length"]))
                faulty.keys.append(self.headers.get("idempotency-key"))
                answer = faulty.script.pop(0) if faulty.script else (200, {}, {"results": []})
                if answer is None:
                    self.close_connection = True
                    return
                status, fields, said = answer
                text = json.dumps(said).encode()
                self.send_response(status)
                for name, value in {**fields, "content-length": str(len(text))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text if body is not None else b"")

            def log_message(self, *_: object) -> None:
                """The test says what went wrong."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/s/changes"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


UNDER_WAY = {"error": {"what": "under way", "code": "HW-ING-53"}}


def test_a_batch_is_tried_again_under_its_key_and_as_the_server_wishes() -> None:
    script: list[tuple[int, dict[str, str], object] | None] = [
        (503, {"retry-after": "7"}, {}),
        None,
        (500, {}, {}),
        (409, {}, UNDER_WAY),
        (429, {"retry-after": "3"}, {}),
    ]
    waits: list[float] = []
    with (
        closing(Faulty(*script)) as server,
        closing(Sender(AnnouncementServer(url=server.url, token=TOKEN), "run", sleep=waits.append)) as sender,
    ):
        for _ in range(2):
            assert sender.send([Line(1, b"{}")]) == []
        assert server.keys == ["run.1"] * 6 + ["run.2"]
    assert (waits[0], waits[4], len(waits)) == (7.0, 3.0, 5)


@pytest.mark.parametrize("status", [301, 308, 400, 401, 403, 404, 409, 413, 415, 422])
def test_what_does_not_pass_is_not_tried_again(status: int) -> None:
    """A redirect neither: the token is for the address that was given."""
    with closing(Faulty((status, {"location": "http://127.0.0.1:9/"}, {}))) as server:
        with (
            closing(Sender(AnnouncementServer(url=server.url, token=TOKEN), None)) as sender,
            failing("HW-ING-58", match=str(status)),
        ):
            sender.send([Line(1, b"{}")])
        assert server.keys == [None]


def test_a_server_that_does_not_come_back_is_given_up_and_the_key_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.ingest.push.http_sender.PATIENCE_SECONDS", 0.0)
    name = written(tmp_path / "a.ndjson", {"path": "a"})
    to = ["--to", "http://127.0.0.1:9/s/changes", "--token", TOKEN]
    status, _, err = told(capfd, "events", name, *to, "--key", "mine")
    assert status == Unanswered.exit_status
    assert "--key mine" in err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, Exit.INTERRUPTED)])
def test_who_ends_it_is_told_the_key(tmp_path: Path, number: signal.Signals, status: int) -> None:
    """A scheduler ends by SIGTERM what a person ends by Ctrl-C: both may want to go on."""
    busy: tuple[int, dict[str, str], object] = (503, {"retry-after": "60"}, {})
    with closing(Faulty(*[busy] * 9)) as server:
        command = [sys.executable, "-m", "headwater", "ingest", "events", written(tmp_path / "a.ndjson", {"path": "a"})]
        command += ["--to", server.url, "--token", TOKEN, "--key", "mine"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            until(lambda: server.keys, what="the first request")
            process.send_signal(number)
            _, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == status
    assert "0 lines: 0 taken" in err
    assert "Run the same command again with --key mine" in err


def test_batches_are_of_bounded_size() -> None:
    lines = [Line(number, b"x" * 10) for number in range(2 * BATCH_LINES + 1)]
    assert [len(one) for one in batches(lines)] == [BATCH_LINES, BATCH_LINES, 1]
    large = [Line(number, b"x" * (BATCH_OCTETS // 3)) for number in range(7)]
    assert [len(one) for one in batches(large)] == [3, 3, 1]
    assert list(batches([])) == []


def test_addresses_that_take_announcements() -> None:
    assert address("http://h/s/changes/", CHANGES, None) == "http://h/s/changes"
    assert address("http://h/base", CHANGES, "s") == "http://h/base/s/changes"
    assert (
        address("http://h", DOCUMENTS, None) == address("http://h/ingest/dit", DOCUMENTS, "s") == "http://h/ingest/dit"
    )
    with failing("HW-ING-57"):
        address("http://h/s", CHANGES, None)
