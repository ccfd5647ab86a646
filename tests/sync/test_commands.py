"""`sync`, `audit` and `explore` as people and programs use them: real processes against `headwater serve`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.documents import urlset
from tests.support.fake_source import Reply, Site, Source
from tests.support.program import run_here
from tests.support.waiting import until

pytestmark = pytest.mark.long(10)

NAMES = [
    b"plain.txt",
    b"a b/with space",
    b"a b/100%",
    b"a b/%41",
    b"a b/%41%",
    b"a b/new\nline",
    b"a b/q?x=1&y=2",
    b"a b/h#f",
    b"back\\slash",
    b"a b/\xff\xfe raw",
    "a b/ü/naïve.txt".encode(),
    "日本語/ファイル".encode(),
    b"x" * 255,
    b"semi;colon&amp;<tag>\"quote'",
    b"%uri",
    b".hidden",
    b"tab\t",
    b"+plus",
    b"~tilde",
    b"empty",
    b"[b]",
    b"colon:x",
    b"...",
    b"..a",
    b" lead and trail ",
    b"A",
    b"a",
    b"deep/" * 60 + b"end",
]


def headwater(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from headwater.cli import main; main()", *map(str, arguments)]


def run(*arguments: object, status: int = 0) -> str:
    done = run_here(*arguments)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout.decode()


def same_trees(one: Path, other: Path) -> str:
    """What `diff -r` finds, our state aside."""
    command = ["diff", "-r", "--exclude=.headwater", str(one), str(other)]
    return subprocess.run(command, capture_output=True, check=False).stdout.decode("utf-8", "replace")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    root = tmp_path / "files"
    for name in NAMES:
        path = os.fsencode(root) + b"/" + name
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b"" if name == b"empty" else name * 7)
    return root


@pytest.fixture
def served(files: Path, tmp_path: Path) -> Iterator[str]:
    command = headwater("serve", "--files", files, "--hidden", "--port", 0, "--state", tmp_path / "state")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        url = ""
        for line in process.stdout:
            if "http://" in line:
                url = "http://" + line.split("http://", 1)[1].split()[0].rstrip(".,/")
                break
        try:
            until(lambda: _answers(f"{url}/.well-known/resourcesync"))
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            process.stdout.read()
            process.wait(60)


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=60) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_a_served_folder_comes_back_whatever_its_names_hold(served: str, files: Path, tmp_path: Path) -> None:
    """The whole way: copy, change, copy again, audit; equal under `diff -r` each time."""
    copy = tmp_path / "copy"
    first = json.loads(run("sync", served, copy, "--json"))
    assert first["sets"][0]["created"] == len(NAMES)
    assert same_trees(files, copy) == ""
    assert "in sync" in run("audit", served, copy)
    os.unlink(os.fsencode(files) + b"/a b/new\nline")
    (files / "plain.txt").write_text("changed")
    (files / "a b" / "added").write_text("added")

    def followed() -> bool:
        run("sync", served, copy)
        return same_trees(files, copy) == ""

    until(followed)
    again = json.loads(run("sync", served, copy, "--json"))
    assert again["sets"][0]["process"] == "none"
    assert again["requests"] <= 3
    report = json.loads(run("audit", served, copy, "--json"))
    assert report["verdict"] == "in sync"
    (copy / "plain.txt").write_text("tampered")
    told = run("audit", served, copy, status=1)
    assert "different: plain.txt" in told
    assert "`headwater sync --repair` also what was lost or altered here" in told
    run("sync", served, copy, "--repair")
    assert same_trees(files, copy) == ""


def test_explore_shows_the_tree(source: Source, site: Site) -> None:
    shown = run("explore", source.base)
    for word in ("Source Description", "Capability List set", "Resource List", "Change List", "5 entries"):
        assert word in shown
    tree = json.loads(run("explore", source.base, "--json"))
    assert tree["sets"] == 1
    assert tree["tree"]["children"][0]["children"][0]["kind"] == "resource-list"
    del source.pages["/set/changelist.xml"]
    assert "cannot be read" in run("explore", source.base, status=1)
    run("explore", "http://127.0.0.1:1/", status=3)


def test_explore_takes_a_channel_that_has_told_nothing(source: Source, site: Site) -> None:
    """RS-NT-02: its topic is empty then; an empty list is a fault."""
    topic = f"{source.base}/set/changenotification.xml"
    source.pages["/set/changenotification.xml"] = Reply(b"")
    capabilities = source.pages["/set/capabilitylist.xml"]
    assert isinstance(capabilities, Reply)
    channel = f'<url><loc>{topic}</loc><rs:md capability="change-notification"/></url></urlset>'.encode()
    body = capabilities.body.replace(b"</urlset>", channel)
    source.pages["/set/capabilitylist.xml"] = Reply(body)
    shown = run("explore", source.base)
    assert "Change Notification  " in shown
    source.pages["/set/changelist.xml"] = Reply(b"")
    assert "the document is empty" in run("explore", source.base, status=1)


def test_a_copy_that_is_only_behind_is_in_sync_another_is_sent_to_sync(source: Source, site: Site, dest: Path) -> None:
    run("sync", source.base, dest)
    site.put("f0.txt", b"changed")
    site.publish_changes(10)
    told = run("audit", source.base, dest)
    assert "1 behind" in told
    assert "because 1 changed at the source after the last run, and nothing else is wrong" in told
    site.put("f1.txt", b"changed", change=False)
    site.publish_list()
    told = run("audit", source.base, dest, status=1)
    assert "`headwater sync` fetches what has changed at the source" in told
    run("sync", "--baseline", source.base, dest)
    assert "in sync" in run("audit", source.base, dest)


def test_the_plan_is_shown(source: Source, site: Site, dest: Path) -> None:
    shown = run("sync", source.base, dest, "--dry-run", "-v")
    assert "create f0.txt" in shown
    assert not dest.exists()
    plan = json.loads(run("sync", source.base, dest, "--dry-run", "--json"))["sets"][0]["plan"]
    assert {"action": "create", "uri": site.uri("f0.txt"), "path": "f0.txt"} in plan


def test_consent_is_a_share(source: Source, site: Site, dest: Path) -> None:
    run("sync", source.base, dest)
    for name in list(site.files):
        site.drop(name)
    site.publish_changes(10)
    held_back = run_here("sync", source.base, dest)
    assert held_back.returncode == 4
    assert b"--max-delete" in held_back.stderr
    run("sync", source.base, dest, "--max-delete", "nonsense", status=2)
    run("sync", source.base, dest, "--max-delete", "100%")
    assert [path.name for path in dest.iterdir()] == [".headwater"]


def test_errors_say_what_to_do(dest: Path) -> None:
    done = run_here("sync", "http://127.0.0.1:1/", dest)
    assert done.returncode == 3
    assert done.stdout == b""
    assert b"do:" in done.stderr
    assert b"code: HW-SYN-01" in done.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_following(number: int, status: int, source: Source, site: Site, dest: Path) -> None:
    """`--follow`: what changes is there soon; a signal ends it between runs."""
    with subprocess.Popen(
        headwater("sync", source.base, dest, "--follow", "0.2", "--json"), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["sets"][0]["created"] == 5
        site.put("later.txt", b"later")
        site.publish_changes(10)
        until(lambda: (dest / "later.txt").exists())
        process.send_signal(number)
        process.stdout.read()
        assert process.wait(60) == status


def hanging(site: Site) -> None:
    """From now on `f1.txt` begins and never ends."""
    site.put("f1.txt", b"never whole")
    site.publish_changes(10)

    def hang(handler) -> None:
        handler.send(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhalf")
        handler.connection.recv(1)

    site.source.pages["/set/resources/f1.txt"] = Reply(script=hang)


@pytest.mark.parametrize(
    ("number", "arguments", "status"),
    [
        (signal.SIGTERM, ("--follow", "0.2", "--json"), 0),
        (signal.SIGINT, ("--follow", "0.2"), 130),
        (signal.SIGINT, ("--json",), 130),
        (signal.SIGTERM, (), -signal.SIGTERM),
    ],
)
def test_a_signal_ends_a_transfer_that_hangs(
    number: int, arguments: tuple[str, ...], status: int, source: Source, site: Site, dest: Path
) -> None:
    """At once, with nothing half placed; the next run continues."""
    run("sync", source.base, dest)
    hanging(site)
    command = headwater("sync", source.base, dest, *arguments)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: len(source.requests("/set/resources/f1.txt")) == 2)
        began = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == status, err
    assert time.monotonic() - began < 15  # and not after the stall that a transfer is given a minute for
    assert "Traceback" not in err
    if arguments == ("--json",):
        assert json.loads(out)["exit_status"] == 130
    assert (dest / "f1.txt").read_bytes() == b"body 1\n"
    site.put("f1.txt", b"whole again")
    site.publish_changes(10)
    run("sync", source.base, dest)
    assert (dest / "f1.txt").read_bytes() == b"whole again"


def test_following_waits_as_long_as_the_source_asks(source: Source, site: Site, dest: Path) -> None:
    """DST-C6: `Retry-After` of a document that is polled; `--longest` does not shorten it."""
    run("sync", source.base, dest)
    source.pages["/set/changelist.xml"] = Reply(b"", 503, {"Retry-After": "3600"})
    source.forget()
    command = headwater("sync", source.base, dest, "--follow", "0.1", "--longest", "0.1", "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["retry_after_seconds"] == 3600
        asked = len(source.requests())
        time.sleep(1)  # ten polls, if it did not wait
        assert len(source.requests()) == asked
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (("sync", "{source}", "{dest}", "--set", "nonsense"), 2, "HW-SYN-06"),
        (("sync", "{source}", "{dest}", "--follow", "nonsense"), 2, "HW-USE-01"),
        (("sync", "{source}", "{dest}", "--longest", "5"), 2, "HW-USE-01"),
        (("sync", "http://127.0.0.1:1/", "{dest}"), 3, "HW-SYN-01"),
        (("sync", "{source}", "/proc/nowhere"), 6, "HW-SYN-10"),
        (("audit", "no address", "{dest}"), 2, "HW-USE-01"),
        (("audit", "{source}", "{dest}"), 2, "HW-SYN-13"),
        (("audit", "{source}", "{file}"), 2, "HW-SYN-13"),
        (("sync", "{source}", "{file}"), 2, "HW-SYN-13"),
        (("sync", "{source}", "{file}/below"), 2, "HW-SYN-13"),
        (("sync", "{dest}", "{source}"), 2, "HW-USE-01"),
        (("audit", "{dest}", "{source}"), 2, "HW-USE-01"),
        (("sync", "{source}", "{dest}", "--base", "nonsense"), 2, "HW-USE-01"),
        (("audit", "{source}", "{folder}", "--base", "ftp://example.org/"), 2, "HW-USE-01"),
        (("explore", "http://127.0.0.1:1/"), 3, "HW-SYN-01"),
        (("inspect", "nowhere.xml"), 2, "HW-USE-01"),
        (("inspect", "http://127.0.0.1:1/"), 3, "HW-SYN-01"),
        (("publish", "nowhere", "{dest}", "--base-url", "nonsense"), 2, None),
    ],
)
def test_a_program_learns_of_an_error_as_json(
    arguments: tuple[str, ...], status: int, code: str | None, source: Source, site: Site, dest: Path
) -> None:
    """One object on standard output, the same words on standard error."""
    (dest.parent / "file").write_bytes(b"")
    places = {"dest": dest, "file": dest.parent / "file", "folder": dest.parent}
    given = [one.format(source=source.base, **places) for one in arguments]
    done = run_here(*given, "--json")
    assert done.returncode == status, done.stderr
    said = json.loads(done.stdout)
    assert set(said) == {"error", "exit_status"}
    assert set(said["error"]) == {"code", "rule", "what", "where", "advice"}
    assert said["exit_status"] == status
    assert code in (None, said["error"]["code"])
    assert f"code: {said['error']['code']}" in done.stderr.decode()
    assert not [one for one in dest.rglob("*") if ".headwater" not in one.relative_to(dest).parts]


def test_what_is_told_to_a_person(source: Source, site: Site, dest: Path) -> None:
    """Words and not the program's own; one file is a file."""
    told = run("sync", source.base, dest, "--dry-run", "--include", "f0.txt").splitlines()[0]
    assert told == "set: would create 1, would fetch 7 B, 4 left out; 0 files held; compared with the Resource List"
    told = run("sync", source.base, dest, "--include", "f0.txt").splitlines()[0]
    assert (
        told == "set: 1 created, 4 left out; 1 file held; compared with the Resource List, then read the changes since"
    )
    assert run("sync", source.base, dest, "--include", "f0.txt").splitlines()[0] == "set: nothing to do; 1 file held"


def test_swapped_arguments_are_told(dest: Path) -> None:
    for url in (dest, "example.org"):
        done = run_here("sync", url, "https://example.org/")
        assert b"first comes URL, then DEST" in done.stderr


def test_an_object_that_has_begun_is_not_spoilt(tmp_path: Path) -> None:
    """`inspect --json` says what is wrong within its own object."""
    (tmp_path / "broken.xml").write_text("<urlset>")
    said = json.loads(run("inspect", tmp_path / "broken.xml", "--json", status=3))
    assert said["complete"] is False


def test_a_corrupt_state_is_named(source: Source, site: Site, dest: Path) -> None:
    """An audit reads a copy of the state; what is corrupt is the state."""
    run("sync", source.base, dest)
    state = dest / ".headwater" / "state.sqlite"
    for file in (dest / ".headwater").glob("state.sqlite*"):
        file.unlink()
    state.write_bytes(b"garbage" * 1000)
    for command in (("audit",), ("sync", "--dry-run")):
        said = json.loads(run(*command, source.base, dest, "--json", status=6))
        assert said["error"]["where"] == str(state)


def test_an_audit_changes_nothing(source: Source, site: Site, dest: Path) -> None:
    """DST-Q: neither files nor times nor state, also when a killed run has left its log behind."""
    run("sync", source.base, dest)
    (dest / "stray").write_bytes(b"x")
    (dest / "f1.txt").write_bytes(b"other!\n")
    os.unlink(dest / "f2.txt")

    def picture() -> list[tuple[str, int, int]]:
        return sorted((str(p), p.lstat().st_mtime_ns, p.lstat().st_size) for p in [dest, *dest.rglob("*")])

    before = picture()
    report = json.loads(run("audit", source.base, dest, "--json", status=1))
    assert picture() == before
    one = report["sets"][0]
    assert (one["same"], one["missing"], one["different"], one["extra"]) == (3, 1, 1, 1)
    assert {(f["verdict"], f["path"]) for f in one["findings"]} == {
        ("missing", "f2.txt"),
        ("different", "f1.txt"),
        ("extra", "stray"),
    }


def test_an_audit_of_a_copy_by_another_tool(source: Source, site: Site, dest: Path) -> None:
    dest.mkdir()
    for name, body in site.files.items():
        (dest / name).write_bytes(body)
    assert "in sync" in run("audit", source.base, dest)
    assert not (dest / ".headwater").exists()


def test_an_audit_that_cannot_be_sure(source: Source, site: Site, dest: Path) -> None:
    run("sync", source.base, dest)
    source.pages.pop("/set/changelist.xml")
    assert "undetermined" in run("audit", source.base, dest, status=5)
    site.publish_capabilities("changelist")
    site.publish_changes(10)
    run("audit", source.base, dest, status=5)


def test_what_changes_during_an_audit_is_no_finding(source: Source, site: Site, dest: Path) -> None:
    run("sync", source.base, dest)
    (dest / "f1.txt").write_bytes(b"one, new")
    listing = source.reply("/set/changelist.xml")
    site.put("f1.txt", b"one, new")
    site.publish_changes(10)
    changed = source.reply("/set/changelist.xml")
    asked = iter([listing])
    source.pages["/set/changelist.xml"] = lambda _handler: next(asked, changed)
    report = json.loads(run("audit", source.base, dest, "--json"))
    assert (report["sets"][0]["behind"], report["verdict"]) == (1, "in sync")
    shutil.rmtree(dest / ".headwater")  # of a mirror nobody knows how far it has come
    asked = iter([listing])
    report = json.loads(run("audit", source.base, dest, "--json", status=5))
    assert report["sets"][0]["changed_during_audit"] == 1
    assert "in sync" in run("audit", source.base, dest)


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys; from headwater.cli import run; run(['sync', '--help']); "
        "sys.exit(any(name in sys.modules for name in ('pycurl', 'apsw', 'msgspec', 'rich')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 0


def test_a_local_document_is_inspected_without_an_http_client(tmp_path: Path) -> None:
    (tmp_path / "list.xml").write_bytes(urlset(""))
    script = (
        "import sys; from headwater.cli import run; status = run(['inspect', sys.argv[1]]); "
        "sys.exit(status or 'pycurl' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "list.xml"], capture_output=True, check=False)
    assert done.returncode == 0
