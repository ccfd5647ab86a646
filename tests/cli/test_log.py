"""The log of a server: every line of JSON has the same keys, whatever it is about; a person's line is one line."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from headwater.cli import server_log
from headwater.cli.server_log import ServerLog, open_log
from headwater.errors import StoreFault
from headwater.http.responses import AccessRecord
from headwater.progress import Notice, Progress, of_set
from headwater.source.set_health import Publication
from tests.support.failing import failing
from tests.support.serving import Process, request
from tests.support.waiting import until

KEYS = ["time", "level", "event", "code", "set", "message", "fields"]
SERVED = AccessRecord("::1", "GET", "/s/\x1b[2J?q=\n", 200, 9, 0.0012, False)
NEWS = Publication(name="s", is_first=False, resources=1_000, first=7, last=7)


def said(as_json: bool) -> list[str]:
    stream = io.StringIO()
    log = ServerLog(stream, as_json=as_json)
    log.served(SERVED)
    log.published(NEWS)
    of_set(log.progress, "s")(Notice("HW-ING-11", "a link", "x\ny"))
    log.progress(Notice("HW-PUB-11", "elsewhere"))
    log.progress(Progress("scan", 1))
    log.fault(StoreFault("full", where="disk"))
    log.fault(OSError(5, "I/O"))
    log.event("stopped", "Stopped", after=3)
    return stream.getvalue().splitlines()


def test_json_has_the_same_keys_in_every_line() -> None:
    lines = [json.loads(line) for line in said(True)]
    assert [list(line) for line in lines] == [KEYS] * 7
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in lines)
    assert [(line["level"], line["event"], line["code"], line["set"]) for line in lines] == [
        ("info", "request", None, None),
        ("info", "published", None, "s"),
        ("warning", "notice", "HW-ING-11", "s"),
        ("warning", "notice", "HW-PUB-11", None),
        ("error", "fault", "HW-STO-01", None),
        ("error", "fault", "HW-SRV-02", None),
        ("info", "stopped", None, None),
    ]
    assert lines[0]["message"] == f"GET {SERVED.target} 200"
    assert lines[0]["fields"] == {
        "client": "::1",
        "method": "GET",
        "target": SERVED.target,
        "status": 200,
        "octets": 9,
        "seconds": 0.0012,
        "complete": False,
    }
    assert lines[1]["fields"] == {"resources": 1_000, "changes": 1, "first": False}
    assert lines[2]["fields"] == {"where": "x\ny"}
    assert lines[-1]["fields"] == {"after": 3}


def test_text_is_one_line_each_that_steers_no_terminal() -> None:
    lines = said(False)
    assert len(lines) == 7
    assert all(line.isprintable() for line in lines)
    assert lines[0].endswith('::1 "GET /s/\\x1b[2J?q=\\n" 200 9 1.2ms cut short')
    assert lines[1].endswith("s: published 1 change")
    assert lines[2].endswith("a link (x\\ny) [HW-ING-11]")
    assert lines[4].endswith("fault: full (disk) [HW-STO-01]")


@pytest.mark.parametrize(("options", "config"), [(("--log-format", "json"), ""), ((), 'log_format = "json"')])
def test_notices_of_a_server_say_which_set(tmp_path: Path, options: tuple[str, ...], config: str) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "out").symlink_to("/etc/hostname")
    (tmp_path / "source.toml").write_text(
        f'{config}\nstate = "state"\nport = 0\n[[set]]\nname = "s"\nfiles = "files"\n'
    )
    with Process(str(tmp_path / "source.toml"), *options) as process:
        url = process.listening()
        until(lambda: request(url, "/health").status == 200)
        _, told = process.stop()
    lines = [json.loads(line) for line in told.splitlines()]
    assert {tuple(line) for line in lines} == {tuple(KEYS)}
    assert [line["set"] for line in lines if line["event"] in ("notice", "published")] == ["s", "s"]


def test_a_log_file_that_was_rotated_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Renamed or removed: no line is lost, and none goes to two files; and one that cannot be opened is told."""
    monkeypatch.setattr(server_log, "LOOK_SECONDS", -1.0)
    path = tmp_path / "log"
    path.write_text("before\n")
    log = open_log(None, str(path))
    log.event("stopped", "one")
    path.rename(tmp_path / "log.1")
    log.event("stopped", "two")
    path.unlink()
    log.event("stopped", "three")
    assert [line.split()[-1] for line in (tmp_path / "log.1").read_text().splitlines()] == ["before", "one"]
    assert [line.split()[-1] for line in path.read_text().splitlines()] == ["three"]
    with failing("HW-STO-01", match="cannot be written"):
        open_log(None, str(tmp_path))
    assert isinstance(log._stream, server_log.LogFile)
    log._stream._file.close()  # left to the collector, it fails whichever test runs by then


@pytest.mark.parametrize("by", ["option", "file"])
def test_every_process_of_a_server_logs_into_the_file(tmp_path: Path, by: str) -> None:
    """Also after the file was rotated, whether SIGHUP comes or not; the log is never published."""
    (tmp_path / "files").mkdir()
    log = tmp_path / "files" / "log"
    key = 'log_file = "files/log"' if by == "file" else ""
    config = tmp_path / "source.toml"
    config.write_text(f'{key}\nstate = "state"\nport = 0\n[[set]]\nname = "s"\nfiles = "files"\n')
    options = [] if by == "file" else ["--log-file", str(log)]
    with Process(str(config), "--workers", "2", *options) as process:
        url = process.listening()
        until(lambda: request(url, "/health").status == 200)
        log.rename(tmp_path / "old")
        seen = 0

        def is_in_both() -> bool:
            nonlocal seen
            seen += 1
            request(url, f"/none/{seen}")
            return log.exists() and log.read_text().count("/none/") > 10

        until(is_in_both)
        if by == "file":
            assert request(url, "/s/resources/log").status == 404
        _, told = process.stop()
    both = (tmp_path / "old").read_text() + log.read_text()
    assert sorted(int(one) for one in re.findall(r"/none/(\d+)", both)) == list(range(1, seen + 1))
    assert "Stopped" in log.read_text()
    assert told == ""


def test_a_node_that_is_away_fills_no_log_and_other_notices_are_all_told() -> None:
    stream = io.StringIO()
    log = ServerLog(stream, as_json=False)
    for number in range(50):
        log.progress(Notice("HW-CLU-02", "no answer; trying again", f"http://search/{number}"))
        log.progress(Notice("HW-ING-22", "a file changed while it was read", f"f{number}"))
    assert stream.getvalue().count("HW-CLU-02") == 1
    assert stream.getvalue().count("HW-ING-22") == 50
