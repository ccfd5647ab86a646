"""`headwater rdf`: what it writes, its statuses, and that a failure leaves nothing behind."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rdf.datasets import GENID, statement
from tests.support.program import run_here
from tests.support.waiting import DEADLINE, until

A, B, C = statement(1), statement(2), statement(3)
NODE = b'<http://e.org/a> <http://e.org/p> _:b .\n_:b <http://e.org/q> "1" .\n'


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "old.nq").write_bytes(B + A)
    (tmp_path / "new.ttl").write_text('@prefix e: <http://example.org/> . e:s2 e:p "v" . e:s3 e:p "v" .')
    (tmp_path / "node.nq").write_bytes(NODE)
    (tmp_path / "bad.nq").write_bytes(A + b"nonsense\n")
    (tmp_path / "bad.nqud").write_bytes(b"+" + C + b"+nonsense\n")
    return tmp_path


def test_a_patch_is_made_applied_and_undone(files: Path) -> None:
    made = run_here("rdf", "diff", files / "old.nq", files / "new.ttl", "-o", files / "p.nqud.gz")
    assert (made.returncode, made.stdout) == (0, b"")
    assert b"1 statement removed, 1 added" in made.stderr
    patch = gzip.decompress((files / "p.nqud.gz").read_bytes())
    assert patch == b"-" + A + b"+" + C
    done = run_here("rdf", "apply", "-", files / "p.nqud.gz", octets=(files / "old.nq").read_bytes())
    assert (done.returncode, done.stdout) == (0, B + C)
    undone = run_here("rdf", "inverse", "-", octets=patch)
    assert (undone.returncode, undone.stdout) == (0, b"-" + C + b"+" + A)
    composed = run_here("rdf", "compose", files / "p.nqud.gz", "-", octets=undone.stdout)
    assert (composed.returncode, composed.stdout) == (0, b"-" + C + b"+" + A)


@pytest.mark.parametrize("name", ["old.nq", "new.ttl"])
@pytest.mark.parametrize("base", ["nope", "/a", "http://e.org/a b", ""])
def test_a_base_that_is_no_iri_is_a_usage_error(files: Path, name: str, base: str) -> None:
    done = run_here("rdf", "canonical", files / name, "--base", base)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"--base" in done.stderr


def test_the_hash_is_of_what_canonical_writes(files: Path) -> None:
    for name in ("old.nq", "new.ttl", "node.nq"):
        written = run_here("rdf", "canonical", files / name)
        assert written.returncode == 0
        told = run_here("rdf", "hash", files / name)
        assert told.stdout.decode().strip() == hashlib.sha256(written.stdout).hexdigest()
        assert json.loads(run_here("rdf", "hash", "--json", files / name).stdout) == {
            "quads": 2,
            "octets": len(written.stdout),
            "sha256": hashlib.sha256(written.stdout).hexdigest(),
        }


def test_several_files_are_one_dataset(files: Path) -> None:
    assert run_here("rdf", "canonical", files / "old.nq", files / "new.ttl").stdout == A + B + C


def test_blank_nodes_are_treated_as_told(files: Path) -> None:
    refused = run_here("rdf", "diff", "/dev/null", files / "node.nq")
    assert (refused.returncode, refused.stdout) == (3, b"")
    assert b"HW-RDF-04 (NQUD-A6)" in refused.stderr
    replaced = run_here("rdf", "diff", "/dev/null", files / "node.nq", "--blank-nodes", "iris", "--genid", GENID)
    assert replaced.returncode == 0
    assert replaced.stdout.count(GENID.encode()) == 2
    kept = run_here("rdf", "diff", "/dev/null", files / "node.nq", "--blank-nodes", "keep")
    assert kept.stdout == b"".join(b"+" + line for line in NODE.splitlines(keepends=True))
    assert run_here("rdf", "hash", files / "node.nq", "--blank-nodes", "iris").returncode == 2
    assert run_here("rdf", "hash", files / "node.nq", "--blank-nodes", "iris", "--genid", "a b").returncode == 2
    patch = files / "node.nqud"
    patch.write_bytes(kept.stdout)
    assert run_here("rdf", "apply", "/dev/null", patch).stdout == NODE
    assert run_here("rdf", "apply", "/dev/null", patch, "--refuse-blank-nodes").returncode == 3


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["canonical", "bad.nq"], 3),
        (["hash", "bad.nq"], 3),
        (["diff", "old.nq", "bad.nq"], 3),
        (["apply", "old.nq", "bad.nqud"], 3),
        (["apply", "bad.nq", "node.nq"], 3),
        (["inverse", "bad.nqud"], 3),
        (["canonical", "missing.nq"], 2),
        (["diff", "old.nq", "missing.nq"], 2),
        (["check", "missing.nq"], 2),
        (["diff", "-", "-"], 2),
        (["apply", "-", "-"], 2),
        (["canonical", "bad.txt"], 2),
    ],
)
def test_a_failure_leaves_nothing_behind(arguments: list[str], status: int, files: Path) -> None:
    (files / "bad.txt").write_bytes(A)
    named = [arguments[0], *(one if one == "-" else str(files / one) for one in arguments[1:])]
    before = sorted(path.name for path in files.iterdir())
    done = run_here("rdf", *named)
    assert (done.returncode, done.stdout) == (status, b""), done.stderr
    if arguments[0] not in {"hash", "check"}:
        (files / "out").write_bytes(b"as before")
        done = run_here("rdf", *named, "-o", files / "out")
        assert (done.returncode, done.stdout) == (status, b"")
        assert (files / "out").read_bytes() == b"as before"
        (files / "out").unlink()
    assert sorted(path.name for path in files.iterdir()) == before


def test_a_fault_of_standard_input_is_told_as_one(files: Path) -> None:
    for arguments in (["apply", "/dev/null", "-"], ["inverse", "-"], ["canonical", "-"], ["diff", "/dev/null", "-"]):
        done = run_here("rdf", *arguments, octets=b"+nonsense\n")
        assert (done.returncode, done.stdout) == (3, b"")
        assert b"where: standard input\n" in done.stderr, arguments


def test_lenient_skips_malformed_lines_and_says_so(files: Path) -> None:
    done = run_here("rdf", "apply", files / "old.nq", files / "bad.nqud", "--lenient")
    assert (done.returncode, done.stdout) == (0, A + B + C)
    assert b"1 malformed line skipped" in done.stderr


def test_check_tells_each_line_and_its_status_is_1(files: Path) -> None:
    (files / "both.nqud").write_bytes(b"+" + A + b"-" + A + b"+" + B + b"+" + B + b"+" + NODE)
    done = run_here("rdf", "check", files / "bad.nqud")
    assert done.returncode == 1
    assert b"problem: [NQUD-A3] line 2: " in done.stdout
    assert b"1 statement, 1 problem" in done.stdout
    found = json.loads(run_here("rdf", "check", "--json", files / "both.nqud").stdout)
    assert (found["statements"], found["problems"]) == (5, 0)
    assert [one["rule"] for one in found["findings"]] == ["NQUD-02", "NQUD-A6", "NQUD-A4", "NQUD-A4"]
    (files / "bad.nq").write_bytes(A + b"nonsense\n" + B + b"<x> <y> <z> .\n" + b'<http://a/> <http://b/> "\xff" .\n')
    found = json.loads(run_here("rdf", "check", "--json", files / "bad.nq").stdout)
    assert [one["line"] for one in found["findings"]] == [2, 4, 5]
    assert found["statements"] == 2
    assert run_here("rdf", "check", files / "old.nq").returncode == 0
    (files / "bad.ttl").write_bytes(A + b"nonsense\n" + B)
    assert b"nothing after this problem was checked" in run_here("rdf", "check", files / "bad.ttl").stdout
    context = run_here("rdf", "check", "--patch", "-", octets=b"@@ 1 @@\n " + A + b"+" + B + b"# 1\n\n")
    assert (context.returncode, b"[NQUD-02] 2 lines begin with neither + nor -" in context.stdout) == (0, True)
    patch = run_here("rdf", "check", "--patch", "-", octets=b"+" + A)
    assert (patch.returncode, patch.stdout) == (0, b"1 statement, 0 problems\n")


def test_a_difference_is_not_offered_with_canonical_labels(files: Path) -> None:
    done = run_here("rdf", "diff", "--blank-nodes", "canonical", files / "old.nq", files / "node.nq")
    assert (done.returncode, b"'refuse', 'iris', 'keep'" in done.stderr) == (2, True)
    refused = run_here("rdf", "diff", files / "old.nq", files / "node.nq")
    assert b"--blank-nodes iris --genid https://HOST/.well-known/genid/" in refused.stderr


def test_a_summary_needs_a_file_for_the_result(files: Path) -> None:
    assert run_here("rdf", "diff", "--json", files / "old.nq", files / "new.ttl").returncode == 2
    done = run_here("rdf", "diff", "--json", "-o", files / "p", files / "old.nq", files / "new.ttl")
    assert json.loads(done.stdout) == {"removed": 1, "added": 1}
    done = run_here("rdf", "apply", "--json", "-o", files / "o", files / "old.nq", files / "p")
    found = json.loads(done.stdout)
    assert (found["added"], found["removed"], found["dataset"]["quads"]) == (1, 1, 2)


def test_a_dataset_that_is_given_as_patch_is_told_of_nqud_02(files: Path) -> None:
    done = run_here("rdf", "apply", files / "old.nq", files / "node.nq")
    assert (done.returncode, done.stdout) == (0, A + B)
    assert b"note: no line of what was given as patch begins with + or -" in done.stderr
    checked = run_here("rdf", "check", "--patch", files / "old.nq")
    assert checked.returncode == 0
    assert b"warning: [NQUD-02] no line begins with + or -" in checked.stdout


@pytest.mark.parametrize("command", ["canonical", "diff"])
def test_an_output_that_cannot_be_written_is_told(command: str, files: Path) -> None:
    given = [files / "old.nq"] if command == "canonical" else [files / "old.nq", files / "new.ttl"]
    done = run_here("rdf", command, *given, "-o", files / "missing" / "x.nq.gz")
    assert (done.returncode, done.stdout) == (6, b"")
    assert b"the output cannot be written: No such file or directory" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "closed", "status", "told"),
    [
        (("canonical", "old.nq"), ">&-", 6, b"standard output is closed"),
        (("apply", "old.nq", "-"), "<&-", 2, b"standard input is closed"),
        (("canonical", "-"), "<&-", 2, b"standard input is closed"),
        (("canonical", "old.nq", "-o", "new.nq"), "<&- >&-", 0, b""),
    ],
)
def test_a_closed_stream_is_told(
    files: Path, arguments: tuple[str, ...], closed: str, status: int, told: bytes
) -> None:
    line = shlex.join([sys.executable, "-m", "headwater", "rdf", *arguments])
    done = subprocess.run(["sh", "-c", f"{line} {closed}"], cwd=files, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (status, b"")
    assert told in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    """Nor is a device replaced, which a user with all rights could do."""
    statements = b"<urn:a> <urn:b> <urn:c> .\n"
    (tmp_path / "x.nq").write_bytes(statements)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run_here("rdf", "canonical", tmp_path / "x.nq", "-o", pipe).returncode == 0
        assert os.read(reader, 100) == statements
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["pipe", "x.nq"]


def sleeps(pid: int) -> bool:
    """Whether a process waits for something, as far as the system tells."""
    told = Path(f"/proc/{pid}/stat")
    return not told.exists() or told.read_text().rpartition(")")[2].split()[0] == "S"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_no_temporary_files(tmp_path: Path, number: signal.Signals) -> None:
    """While standard input is read; the status is that of the signal."""
    command = [sys.executable, "-m", "headwater", "rdf", "hash", "-"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        until(lambda: list(tmp_path.glob("headwater-rdf-*/read-0")), what="the temporary file")
        until(lambda: sleeps(process.pid), what="the read")  # a signal just before it is seen only after it
        process.send_signal(number)
        process.wait(DEADLINE)
    assert process.returncode == (-signal.SIGTERM if number is signal.SIGTERM else 130)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_standard_output_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.nq").write_bytes(b"<a:b> <a:c> <a:d> .\n")
    command = [sys.executable, "-m", "headwater", "rdf", "canonical", str(tmp_path / "a.nq")]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 6
    assert b"standard output cannot be written: No space left" in done.stderr


def test_no_room_for_temporary_files_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.nq").write_bytes(b"<a:b> <a:c> <a:d> .\n")

    def full(*_given: object, **_named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("headwater.rdf.canonical.write_blocks", full)
    done = run_here("rdf", "hash", tmp_path / "a.nq")
    assert done.returncode == 6
    assert b"TMPDIR" in done.stderr


def test_json_ld_that_says_nothing_or_needs_the_network(tmp_path: Path) -> None:
    """Without a context no name becomes an IRI; a context is never fetched."""
    path = tmp_path / "a.jsonld"
    path.write_text('{"name": "x"}')
    done = run_here("rdf", "check", path)
    assert (done.returncode, b"warning: [HW-DAT-04] there is no statement" in done.stdout) == (0, True)
    path.write_text('{"@context": "https://schema.org/", "name": "x"}')
    done = run_here("rdf", "hash", path)
    assert (done.returncode, b"would have to be fetched" in done.stderr) == (3, True)
