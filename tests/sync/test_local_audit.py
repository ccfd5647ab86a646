"""An audit without a source, by the copy's own digests; what an audit leaves that can be filed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import headwater
from headwater.version import __version__
from tests.support.copying import DONE, FINDINGS, SOURCE, UNDETERMINED, USAGE, go
from tests.support.fake_source import Site, Source, sha
from tests.support.program import run_here


def flip(path: Path) -> None:
    """One octet becomes another below the file system: size and times stay."""
    found = os.stat(path)
    octets = bytearray(path.read_bytes())
    octets[0] ^= 1
    path.write_bytes(octets)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


@pytest.fixture
def orphan(site: Site, dest: Path) -> Path:
    """A copy whose source has ended."""
    with Source() as source:
        site = Site(source)
        for number in range(4):
            site.put(f"f{number}.txt", b"body %d\n" % number)
        site.put("deep/empty", b"")
        site.publish()
        assert go(source.base, dest).status == DONE
    return dest


def test_a_copy_is_proved_by_its_own_digests_without_its_source(orphan: Path) -> None:
    assert run_here("audit", "http://127.0.0.1:1/", orphan).returncode == 3
    done = run_here("audit", "--local", orphan, "--json")
    told = json.loads(done.stdout)
    (one,) = told["sets"]
    assert (done.returncode, told["verdict"], told["local"], told["requests"]) == (DONE, "in sync", True, 0)
    assert (one["same"], one["same_by_record"], one["same_by_hash"], one["algorithms"]) == (5, 5, 0, {"sha-256": 5})
    assert told["version"] == __version__
    assert told["time"].startswith("20")
    assert told["source"].startswith("http://127.0.0.1")
    assert b"in sync with its own record: no source was asked" in run_here("audit", "--local", orphan).stdout


def test_another_time_of_a_file_is_no_damage(orphan: Path) -> None:
    os.utime(orphan / "f0.txt", (1, 1))
    assert headwater.audit_folder(None, orphan).verdict == "in sync"


def test_damage_is_told_with_the_hashes_without_a_source(orphan: Path) -> None:
    flip(orphan / "f0.txt")
    (orphan / "f1.txt").unlink()
    (orphan / "strange").write_text("nobody knows it")
    done = run_here("audit", "--local", orphan, "--json")
    told = json.loads(done.stdout)
    found = {one["path"]: one for one in told["sets"][0]["findings"]}
    assert (done.returncode, told["verdict"]) == (FINDINGS, "not in sync")
    assert {path: one["verdict"] for path, one in found.items()} == {
        "f0.txt": "different",
        "f1.txt": "missing",
        "strange": "extra",
    }
    assert found["f0.txt"]["expected"] == sha(b"body 0\n")
    assert found["f0.txt"]["found"] == sha(b"cody 0\n".replace(b"c", bytes([ord("b") ^ 1]), 1))
    assert found["f1.txt"]["expected"] == sha(b"body 1\n")
    assert b"restore" not in done.stderr


def test_of_a_file_without_a_digest_length_and_time_are_compared(orphan: Path) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(orphan / ".headwater" / "state.sqlite")) as state, state:
        state.create_function("randomblob", 1, os.urandom)
        state.execute("UPDATE resources SET digest = NULL WHERE path IN (?, ?)", (b"f0.txt", b"f1.txt"))
    os.utime(orphan / "f1.txt", (1, 1))
    (one,) = headwater.audit_folder(None, orphan).sets
    assert (one.same_by_time, one.same_by_record, one.different) == (1, 3, 1)


def test_what_was_verified_is_in_a_file_of_evidence(orphan: Path, tmp_path: Path) -> None:
    (orphan / "f1.txt").unlink()
    file = tmp_path / "evidence.jsonl"
    assert run_here("audit", "--local", orphan, "--evidence", file, "-q").returncode == FINDINGS
    *lines, report = map(json.loads, file.read_text().splitlines())
    assert {one["path"]: (one["verdict"], one["proof"]) for one in lines} == {
        "f0.txt": ("same", "same_by_record"),
        "f2.txt": ("same", "same_by_record"),
        "f3.txt": ("same", "same_by_record"),
        "deep/empty": ("same", "same_by_record"),
        "f1.txt": ("missing", None),
    }
    first = next(one for one in lines if one["path"] == "f0.txt")
    assert (first["expected"], first["found"]) == (sha(b"body 0\n"), sha(b"body 0\n"))
    assert next(one for one in lines if one["path"] == "f1.txt")["expected"] == sha(b"body 1\n")
    assert (report["verdict"], report["version"], report["sets"][0]["same"]) == ("not in sync", __version__, 4)


def test_an_audit_of_a_source_leaves_evidence_too(source: Source, site: Site, dest: Path, tmp_path: Path) -> None:
    site.publish_list(
        [site.resource(name, hash=None) if name == "f2.txt" else site.resource(name) for name in site.files]
    )
    go(source.base, dest)
    file = tmp_path / "evidence.jsonl"
    assert run_here("audit", source.base, dest, "--evidence", file).returncode == DONE
    *lines, report = map(json.loads, file.read_text().splitlines())
    assert {(one["verdict"], one["proof"]) for one in lines} == {("same", "same_by_hash"), ("same", "same_by_record")}
    assert {one["path"]: one["expected"] for one in lines} == {name: sha(body) for name, body in site.files.items()}
    assert (len(lines), report["local"]) == (len(site.files), False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--local", "COPY", "http://127.0.0.1:1/", "COPY"], "URL and DEST, or by --local DEST alone"),
        (["http://127.0.0.1:1/"], "URL and DEST, or by --local DEST alone"),
        ([], "URL and DEST, or by --local DEST alone"),
        (["--local", "NONE"], "there is no such folder"),
        (["--local", "EMPTY"], "this folder is not a copy"),
        (["--local", "COPY", "--at", "2020-01-01"], "its own record is of the present"),
        (["--local", "COPY", "--evidence", "COPY/evidence"], "lies in the copy"),
        (["--local", "COPY", "--set", "other"], "no set other"),
        (["--local", "--evidence", "file", "COPY"], "'--evidence' is an option, and no folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_calls_say_what_to_do(orphan: Path, tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "empty").mkdir()
    places = {"COPY": str(orphan), "NONE": str(tmp_path / "none"), "EMPTY": str(tmp_path / "empty")}
    given = [places.get(word.partition("/")[0], word) if "COPY" in word or word in places else word for word in words]
    given = [f"{orphan}/evidence" if word == "COPY/evidence" else one for one, word in zip(given, words, strict=True)]
    done = run_here("audit", *given)
    assert (done.returncode, said in done.stderr.decode()) == (USAGE, True), done.stderr.decode()


def test_where_nothing_can_be_compared_nothing_is_proved(orphan: Path) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(orphan / ".headwater" / "state.sqlite")) as state, state:
        state.create_function("randomblob", 1, os.urandom)
        state.execute("UPDATE resources SET digest = NULL, size = -1, mtime_ns = -1")
    report = headwater.audit_folder(None, orphan)
    assert report.exit_status in (FINDINGS, UNDETERMINED)


def test_the_audit_of_a_source_that_is_gone_names_the_local_one(orphan: Path) -> None:
    done = run_here("audit", "http://127.0.0.1:9/", orphan)
    assert (done.returncode, f"headwater audit --local {orphan}".encode() in done.stderr) == (SOURCE, True)
