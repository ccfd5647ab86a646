"""`headwater export` and `restore`: what others read without us, and a moment of a copy from what was kept of it."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from headwater.sync.export import UNTOLD
from tests.support.copying import DONE, FINDINGS, STORE, USAGE, go, tree
from tests.support.fake_source import Site, Source
from tests.support.program import run_here

ODD = ("plain.txt", "two words", "back\\slash", "line\nend", "return\rend", "é", "deep/er/file", "per%cent", "%FF")


@pytest.fixture
def copy(source: Source, dest: Path) -> Path:
    site = Site(source)
    for number, name in enumerate(ODD):
        escaped = "".join(f"%{octet:02X}" for octet in name.encode()) if name != "deep/er/file" else name
        site.put(escaped, b"content %d" % number)
        source.pages[f"/set/resources/{escaped}"] = source.pages[f"/set/resources/{escaped}"]
    site.put("%FF%FE", b"no UTF-8")
    site.publish()
    assert go(source.base, dest).status == DONE
    return dest


def test_sha256sum_reads_the_manifest(copy: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "manifest"
    done = run_here("export", copy, "-o", manifest)
    assert done.returncode == DONE, done.stderr
    assert run_here("export", copy).stdout == manifest.read_bytes()
    checked = subprocess.run(["sha256sum", "--strict", "-c", manifest], cwd=copy, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout.count(b": OK")) == (0, len(ODD) + 1), checked.stderr
    (copy / "plain.txt").write_bytes(b"content X")
    checked = subprocess.run(["sha256sum", "-c", manifest], cwd=copy, capture_output=True, check=False)
    assert (checked.returncode, b"plain.txt: FAILED" in checked.stdout) == (1, True)


def test_what_is_not_as_recorded_is_left_out_and_named(copy: Path, tmp_path: Path) -> None:
    (copy / "plain.txt").write_bytes(b"content X")
    (copy / "é").unlink()
    done = run_here("export", copy, "-o", tmp_path / "bag", "--format", "bagit", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["files"]) == (FINDINGS, len(ODD) - 1)
    found = {one["path"]: one for one in told["findings"]}
    assert {path: one["verdict"] for path, one in found.items()} == {"plain.txt": "different", "é": "missing"}
    assert found["plain.txt"]["found"] == f"sha-256:{hashlib.sha256(b'content X').hexdigest()}"
    assert not (tmp_path / "bag" / "data" / "plain.txt").exists()
    assert b"left out: plain.txt: different" in run_here("export", copy).stderr


def read_by_rfc_8493(bag: Path) -> dict[str, bytes]:
    """The payload of a bag, by the names of its manifest, each verified (RFC 8493, 2.1 to 2.2, 3)."""
    assert (bag / "bagit.txt").read_bytes() == b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"

    def listed(name: str) -> dict[str, str]:
        lines = (bag / name).read_bytes().decode("utf-8").split("\n")
        assert lines.pop() == ""
        pairs = (line.split("  ", 1) for line in lines)
        return {path.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%"): digest for digest, path in pairs}

    payload, tags = listed("manifest-sha256.txt"), listed("tagmanifest-sha256.txt")
    for name, digest in {**payload, **tags}.items():
        assert hashlib.sha256((bag / name).read_bytes()).hexdigest() == digest
    files = {str(path.relative_to(bag)) for path in bag.rglob("*") if path.is_file()}
    assert files == {*payload, *tags, "tagmanifest-sha256.txt"}
    octets = sum((bag / name).stat().st_size for name in payload)
    assert f"Payload-Oxum: {octets}.{len(payload)}\n" in (bag / "bag-info.txt").read_text()
    return {name: (bag / name).read_bytes() for name in payload}


def test_a_bag_has_the_files_and_their_addresses(copy: Path, tmp_path: Path, source: Source) -> None:
    bag = tmp_path / "bag"
    done = run_here("export", copy, "-o", bag, "--format", "bagit")
    assert done.returncode == DONE, done.stderr
    assert b"in 5 names: `sha256sum -c`" in done.stderr
    payload = read_by_rfc_8493(bag)
    wanted = {f"data/{name}": body for name, body in tree(copy).items() if "\udcff" not in name}
    assert payload == {**wanted, "data/%FF%FE": b"no UTF-8"}
    uris = {one["path"]: one["uri"] for one in map(json.loads, (bag / "uris.jsonl").read_text().splitlines())}
    assert uris.keys() == payload.keys()
    assert uris["data/deep/er/file"] == f"{source.base}/set/resources/deep/er/file"
    assert f"External-Identifier: {source.base}" in (bag / "bag-info.txt").read_text()


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--format", "bagit"], USAGE, "the output needs a name"),
        (["--json"], USAGE, "the output needs a name"),
        (["--format", "bagit", "-o", "FULL"], USAGE, "not empty"),
        (["-o", "COPY/manifest"], USAGE, "lies in the copy"),
        (["-o", "FULL/none/manifest"], STORE, "cannot be written"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_calls_say_what_to_do(copy: Path, tmp_path: Path, words: list[str], status: int, said: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    given = [word.replace("FULL", str(tmp_path / "full")).replace("COPY", str(copy)) for word in words]
    done = run_here("export", copy, *given)
    assert (done.returncode, said in done.stderr.decode()) == (status, True), done.stderr.decode()
    assert run_here("export", tmp_path / "full").returncode == USAGE  # no copy


# a moment of a copy


def now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def test_a_moment_is_rebuilt_from_what_runs_have_kept(source: Source, dest: Path, tmp_path: Path) -> None:
    site, chance = Site(source), random.Random(34)
    kept, changes = tmp_path / "kept", tmp_path / "changes.jsonl"
    moments: list[tuple[str, dict[str, bytes]]] = []
    for number in range(40):
        site.put(f"d{number % 3}/f{number}", b"first %d" % number)
    for step in range(8):
        for name in chance.sample(sorted(site.files), 5):
            kind = chance.choice(["update", "delete", "empty"])
            if kind == "delete":
                site.drop(name)
            else:
                site.put(name, b"" if kind == "empty" else b"step %d" % step)
        site.put(f"new{step}", b"new")
        site.publish()
        done = run_here("sync", source.base, dest, "--backup-dir", kept, "--changes", changes, "--max-delete", "1")
        assert done.returncode == DONE, done.stderr
        time.sleep(0.002)
        moments.append((now(), tree(dest)))
        time.sleep(0.002)
    for number, (moment, wanted) in enumerate(moments):
        done = run_here("restore", dest, tmp_path / f"at{number}", "--at", moment, "--changes", changes)
        assert done.returncode == DONE, done.stderr
        assert tree(tmp_path / f"at{number}") == wanted
    lines = [json.loads(line) for line in changes.read_text().splitlines()]
    for one in lines:
        assert (one["kept"] is not None) == (one["action"] in ("updated", "deleted"))
        if one["kept"] is not None:
            assert one["old_hash"] == f"sha-256:{hashlib.sha256(Path(one['kept']).read_bytes()).hexdigest()}"


def test_what_was_not_kept_is_named(source: Source, site: Site, dest: Path, tmp_path: Path) -> None:
    changes = tmp_path / "changes.jsonl"
    go(source.base, dest)
    before = now()
    site.put("f0.txt", b"another")
    site.publish()
    assert run_here("sync", source.base, dest, "--changes", changes).returncode == DONE
    done = run_here("restore", dest, tmp_path / "then", "--at", before, "--changes", changes, "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, [(one["path"], one["verdict"]) for one in told["findings"]]) == (
        FINDINGS,
        [("f0.txt", "missing")],
    )
    assert sorted(tree(tmp_path / "then")) == sorted(name for name in site.files if name != "f0.txt")


def test_of_kept_files_that_were_moved_a_hint_is_given(source: Source, site: Site, dest: Path, tmp_path: Path) -> None:
    kept, changes, moved = tmp_path / "kept", tmp_path / "changes.jsonl", tmp_path / "moved"
    go(source.base, dest)
    before = now()
    site.put("f0.txt", b"another")
    site.publish()
    assert run_here("sync", source.base, dest, "--changes", changes, "--backup-dir", kept).returncode == DONE
    kept.rename(moved)
    for options, status in (([], FINDINGS), (["--backup-dir", moved], DONE)):
        to = tmp_path / f"then{status}"
        done = run_here("restore", dest, to, "--at", before, "--changes", changes, *options)
        assert (done.returncode, b"name their folder by --backup-dir DIR" in done.stderr) == (
            status,
            status == FINDINGS,
        )
    assert tree(tmp_path / f"then{DONE}")["f0.txt"] == b"body 0\n"


def test_a_line_that_leads_out_of_the_folder_writes_nothing_there(
    source: Source, site: Site, dest: Path, tmp_path: Path
) -> None:
    go(source.base, dest)
    secret, changes = tmp_path / "secret", tmp_path / "changes.jsonl"
    secret.write_text("secret")
    line = {"time": "2100-01-01T00:00:00Z", "action": "deleted", "uri": "x", "path": "../out", "kept": str(secret)}
    line["old_hash"] = f"sha-256:{hashlib.sha256(b'secret').hexdigest()}"
    changes.write_text(json.dumps(line) + "\n")
    assert run_here("restore", dest, tmp_path / "then", "--at", now(), "--changes", changes).returncode == FINDINGS
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("lines", ["time,action\n", "{}\n", '{"time": 5}\n'])
def test_changes_that_cannot_be_read_are_a_usage_fault(
    source: Source, site: Site, dest: Path, tmp_path: Path, lines: str
) -> None:
    go(source.base, dest)
    (tmp_path / "changes").write_text(lines)
    done = run_here("restore", dest, tmp_path / "then", "--at", now(), "--changes", tmp_path / "changes")
    assert (done.returncode, b"the changes cannot be read" in done.stderr) == (USAGE, True)
    assert not os.path.exists(tmp_path / "then")


# a log with gaps


class Archive:
    """A copy whose runs keep and log, except where one does not; and what the copy was at some moments."""

    def __init__(self, source: Source, site: Site, dest: Path, folder: Path) -> None:
        self.source, self.site, self.dest, self.folder = source, site, dest, folder
        self.kept, self.log = folder / "kept", folder / "changes.jsonl"

    def run(self, *more: object, logs: bool = True) -> tuple[str, dict[str, bytes]]:
        """Publish and run: a moment after it, and the files of then."""
        self.site.publish()
        options = ("--backup-dir", self.kept, "--changes", self.log) if logs else ()
        done = run_here("sync", self.source.base, self.dest, "--max-delete", "1", *options, *more)
        assert done.returncode == DONE, done.stderr
        time.sleep(0.02)
        moment = now()
        time.sleep(0.02)
        return moment, tree(self.dest)

    def restore(self, moment: str, *more: object) -> tuple[int, dict[str, bytes], dict[str, str]]:
        """The exit status, the files, and why others are left out."""
        to = self.folder / f"then{time.monotonic_ns()}"
        log = () if "--changes" in more else ("--changes", self.log)
        done = run_here("restore", self.dest, to, "--at", moment, "--json", *log, *more)
        assert done.returncode in (DONE, FINDINGS), done.stderr
        return done.returncode, tree(to), {one["path"]: one["reason"] for one in json.loads(done.stdout)["findings"]}


GAP = "the log has a gap"


@pytest.fixture
def archive(source: Source, site: Site, dest: Path, tmp_path: Path) -> Archive:
    return Archive(source, site, dest, tmp_path)


def without(files: dict[str, bytes], *names: str) -> dict[str, bytes]:
    return {name: body for name, body in files.items() if name not in names}


def test_a_run_that_was_not_logged_is_a_gap(archive: Archive) -> None:
    site = archive.site
    moment, files = archive.run()
    site.put("f0.txt", b"not logged")
    site.drop("f1.txt")
    site.put("new.txt", b"not logged")
    archive.run(logs=False)
    assert archive.restore(moment) == (
        FINDINGS,
        without(files, "f0.txt", "f1.txt") | {"new.txt": b"not logged"},
        {"f0.txt": GAP, "f1.txt": GAP, "new.txt": UNTOLD},
    )
    site.put("f0.txt", b"logged again")  # what was kept is not what the last line before says
    later, now_there = archive.run()
    assert archive.restore(moment)[2] == {"f0.txt": GAP, "f1.txt": GAP, "new.txt": UNTOLD}
    told = archive.restore(later)
    assert told == (FINDINGS, without(now_there, "new.txt") | {"new.txt": b"not logged"}, {"f1.txt": GAP})


@pytest.mark.parametrize("log", ["empty", "cut"])
def test_a_log_without_its_end_is_a_gap(archive: Archive, log: str) -> None:
    moment, files = archive.run()
    lines = archive.log.read_bytes()
    archive.site.put("f0.txt", b"after it")
    archive.site.put("new.txt", b"after it")
    archive.run()
    archive.log.write_bytes(lines if log == "cut" else b"")
    status, restored, told = archive.restore(moment)
    assert (status, told) == (FINDINGS, {"f0.txt": GAP if log == "cut" else UNTOLD, "new.txt": UNTOLD})
    assert without(restored, "f0.txt", "new.txt") == without(files, "f0.txt")
    assert ("f0.txt" in restored) == (log == "empty")


def test_a_moment_to_come_is_refused(archive: Archive) -> None:
    archive.run()
    done = run_here("restore", archive.dest, archive.folder / "to", "--at", "2999-01-01", "--changes", archive.log)
    assert (done.returncode, b"lies in the future" in done.stderr) == (USAGE, True)
    assert b"Give --at as" in done.stderr
    assert not (archive.folder / "to").exists()


def test_an_older_copy_under_a_newer_log_is_a_gap(archive: Archive) -> None:
    moment, files = archive.run()
    shutil.copytree(archive.dest, archive.folder / "yesterday", symlinks=True)
    archive.site.put("f0.txt", b"today")
    archive.site.drop("f1.txt")
    today, _ = archive.run()
    shutil.rmtree(archive.dest)
    (archive.folder / "yesterday").rename(archive.dest)
    archive.site.put("f0.txt", b"tomorrow")
    archive.run()
    assert archive.restore(moment)[:2] == (DONE, files)
    assert archive.restore(today)[2] == {"f0.txt": GAP, "f1.txt": GAP}


def test_an_older_copy_that_catches_up_with_another_log_has_no_gap(archive: Archive) -> None:
    """As the page on backups says; the log goes on after that."""
    told = [archive.run()]
    shutil.copytree(archive.dest, archive.folder / "yesterday", symlinks=True)
    archive.site.put("f0.txt", b"today")
    archive.site.drop("f1.txt")
    archive.site.put("new.txt", b"today")
    told.append(archive.run())
    shutil.rmtree(archive.dest)
    (archive.folder / "yesterday").rename(archive.dest)
    told.append(archive.run("--backup-dir", archive.kept, "--changes", archive.folder / "once", logs=False))
    archive.site.put("f0.txt", b"tomorrow")
    archive.site.drop("new.txt")
    told.append(archive.run())
    for moment, files in told:
        assert archive.restore(moment) == (DONE, files, {})


def test_a_repair_changes_no_moment_before_it(archive: Archive) -> None:
    moment, files = archive.run()
    (archive.dest / "f0.txt").write_bytes(b"damaged")
    (archive.dest / "f1.txt").unlink()
    after, _ = archive.run("--repair")
    told = [json.loads(line) for line in archive.log.read_text().splitlines()]
    assert {one["path"]: one["kept"] is None for one in told if one.get("repaired")} == {
        "f0.txt": False,
        "f1.txt": True,
    }
    assert all("repaired" not in one for one in told if one["action"] == "created")
    for at in (moment, after):
        assert archive.restore(at) == (DONE, files, {})
    (archive.dest / "f0.txt").write_bytes(b"damaged")
    archive.site.put("f0.txt", b"another")  # damaged, and replaced at the source: no repair
    archive.run("--repair")
    assert "repaired" not in json.loads(archive.log.read_text().splitlines()[-1])
    assert archive.restore(moment)[1:] == (without(files, "f0.txt"), {"f0.txt": "not the file that was placed"})


def test_kept_files_are_found_where_they_were_moved(archive: Archive) -> None:
    archive.site.put("deep/er.txt", b"first")
    moment, files = archive.run()
    archive.site.put("deep/er.txt", b"second")
    archive.site.drop("f0.txt")
    archive.run()
    moved = archive.folder / "elsewhere" / "of old"
    moved.parent.mkdir()
    archive.kept.rename(moved)
    assert archive.restore(moment)[0] == FINDINGS
    for place in (moved, moved.parent):
        assert archive.restore(moment, "--backup-dir", place)[0] == (DONE if place == moved else FINDINGS)
    assert archive.restore(moment, "--backup-dir", moved) == (DONE, files, {})
    assert archive.restore(moment, "--backup-dir", next(moved.iterdir())) == (DONE, files, {})


def test_a_copy_without_a_set_is_no_empty_copy(archive: Archive) -> None:
    archive.run()
    (name,) = json.loads(run_here("status", archive.dest, "--json").stdout)["sets"]
    done = run_here("forget", archive.dest, "--set", name["name"])
    assert (done.returncode, b"the recorded hashes go" in done.stdout) == (DONE, True)
    for words in (["audit", "--local", archive.dest], ["export", archive.dest]):
        done = run_here(*words)
        assert (done.returncode, done.stdout, b"the copy has no set any more" in done.stderr) == (USAGE, b"", True)
