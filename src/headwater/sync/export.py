"""Files of a copy for others, without its source: a manifest, a bag (BagIt 1.0, RFC 8493), or the copy of a moment.

Every file is read once: it is compared with the digest that is recorded of it, hashed by SHA-256, and copied. What is
missing, or not as recorded, is told and left out.
"""

import datetime as dt
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from headwater.errors import Exit, StoreFault, UsageFault
from headwater.files import hashing
from headwater.files.file_copies import COPY
from headwater.files.folder_marks import leads_inside
from headwater.files.hash_pool import HashPool
from headwater.files.hashing import HashRequest
from headwater.progress import Listener, Progress, silent
from headwater.spec.records import ToDict
from headwater.spec.times import from_microseconds
from headwater.storage.database import Database
from headwater.sync.audit.comparison import found_file
from headwater.sync.audit.verdicts import ExpectedFile, difference, judge_file
from headwater.sync.copy.destination_folder import DestinationFolder, no_set, readable_state
from headwater.sync.copy.file_tree import flush, printable_path
from headwater.sync.reports import SAME, UNVERIFIABLE, Finding
from headwater.sync.source_times import check_past
from headwater.sync.state import fact, sets
from headwater.sync.transfer.verification import digests_of
from headwater.typed_decoding import json_decoder
from headwater.version import __version__

_ALGORITHM = "sha-256"
_CHUNK = 5_000
_HELD = f"SELECT uri, path, size, mtime_ns, digest FROM resources WHERE path > ? ORDER BY path LIMIT {_CHUNK}"  # noqa: S608
_BAGIT = "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"


UNTOLD = "restored, though no line of the log says since when it is there"


class ExportReport(ToDict, msgspec.Struct, kw_only=True):
    """What was exported or restored; `findings` are files left out, because they are not as recorded."""

    time: dt.datetime | None = None
    version: str = __version__
    source: str | None = None
    destination: str
    files: int = 0
    octets: int = 0
    escaped: int = 0  # names that the manifest of a bag has with `%` escapes
    findings: list[Finding] = []
    exit_status: int = Exit.DONE


class _File(ExpectedFile, frozen=True, gc=False):
    where: bytes = b""  # where it lies; `path` is its name in the copy


def export_manifest(
    destination: Path | str, write: Callable[[bytes], object], *, listener: Listener = silent
) -> ExportReport:
    """Write a line for each file of the copy in `destination`, as `sha256sum -c` reads them there.

    Raises UsageFault where there is no copy, and StoreFault where it cannot be read.
    """
    report = ExportReport(destination=os.path.abspath(destination))
    with _held(report) as held:
        for one, sha256 in _read(report, held, None, listener):
            escaped = one.path.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
            write((b"\\" if escaped != one.path else b"") + sha256.encode() + b"  " + escaped + b"\n")
    return report


def export_bag(destination: Path | str, bag: Path | str, *, listener: Listener = silent) -> ExportReport:
    """Copy the files of the copy in `destination` into a bag, a new or empty folder; `bagit.txt` comes last.

    Raises UsageFault (no copy, or a folder that is not empty) and StoreFault.
    """
    report = ExportReport(destination=os.path.abspath(destination))
    with _held(report) as held, _new_folder(bag) as root:
        (root / "data").mkdir()
        with (root / "manifest-sha256.txt").open("wb") as manifest, (root / "uris.jsonl").open("wb") as uris:
            for one, sha256 in _read(report, held, lambda path: root / "data" / _portable(path), listener):
                name = "data/" + _portable(one.path)
                listed = re.sub(r"[%\r\n]", lambda found: f"%{ord(found[0]):02X}", name)  # RFC 8493, 2.1.3
                manifest.write(f"{sha256}  {listed}\n".encode())
                report.escaped += listed != name
                uris.write(msgspec.json.encode({"path": name, "uri": one.uri}) + b"\n")
        info = (
            f"External-Identifier: {report.source or report.destination}\nBagging-Date: {report.time:%Y-%m-%d}\n"
            f"Payload-Oxum: {report.octets}.{report.files}\nBag-Software-Agent: headwater {__version__}\n"
        )
        (root / "bag-info.txt").write_text(info, "utf-8")
        tags = [(hashlib.sha256(_BAGIT.encode()).hexdigest(), "bagit.txt")]
        for name in ("bag-info.txt", "manifest-sha256.txt", "uris.jsonl"):
            with (root / name).open("rb") as file:
                tags.append((hashlib.file_digest(file, "sha256").hexdigest(), name))
        (root / "tagmanifest-sha256.txt").write_text("".join(f"{digest}  {name}\n" for digest, name in tags), "utf-8")
        (root / "bagit.txt").write_text(_BAGIT, "utf-8")
    return report


class _Told(msgspec.Struct, frozen=True):
    """What a line of `--changes` says of a file."""

    time: dt.datetime
    action: str
    uri: str
    path: str
    kept: str | None = None
    old_hash: str | None = None
    hash: str | None = None
    repaired: bool = False


def restore(
    destination: Path | str,
    to: Path | str,
    at: str,
    changes: Path | str,
    *,
    backup: Path | str | None = None,
    listener: Listener = silent,
) -> ExportReport:
    """Copy the files that the copy in `destination` had at a time into a new or empty folder.

    `at` is a time of this machine. `changes` is the file of `--changes` (JSON lines) of all runs, which kept old files
    with `backup_dir`; `backup` is where these lie now. Of each file, its last line up to then and its first one after,
    or else the record of the copy, must agree. Raises UsageFault and StoreFault.
    """
    report = ExportReport(destination=os.path.abspath(destination))
    latest, before, after = check_past(at, time.time_ns() // 1_000), dict[str, _Told](), dict[str, _Told]()
    told_paths = set[str]()
    moment = from_microseconds(latest)
    try:
        with open(changes, "rb") as file:
            for told in map(json_decoder(_Told), file):
                told_paths.add(told.path)
                is_same = told.repaired or (told.action == "updated" and told.hash and told.old_hash == told.hash)
                if is_same or told.action not in ("created", "adopted", "updated", "deleted"):
                    continue
                if told.time <= moment:
                    before[told.path] = told
                elif told.path not in after or after[told.path].action == "adopted":
                    after[told.path] = told
    except (OSError, msgspec.MsgspecError) as cause:
        advice = "Name a file that `headwater sync --changes FILE` has written, whose name does not end in .csv."
        raise UsageFault("the changes cannot be read", where=os.fspath(changes), advice=advice) from cause

    def agrees(last: _Told | None, uri: str, path: str, *, there: bool, digest: str | None = None) -> bool:
        stated = {one.algorithm: one.hex for one in digests_of(last.hash if last else None)}
        is_same = all(stated.get(one.algorithm, one.hex) == one.hex for one in digests_of(digest))
        if last is None or ((last.action != "deleted") == there and (is_same or not there)):
            return True
        report.findings.append(Finding(UNVERIFIABLE, uri, path, "the log has a gap", last.hash, digest))
        report.exit_status = Exit.FINDINGS
        return False

    def then(held: Iterator[_File]) -> Iterator[_File]:
        for one in held:
            path = printable_path(one.path)
            if path in after and after[path].action != "adopted":
                continue
            last = before.pop(path, None)
            after.pop(path, None)
            is_untold = path not in told_paths and os.path.lexists(one.where)
            if is_untold and os.lstat(one.where).st_ctime_ns > latest * 1_000:  # it may have come since, or was moved
                report.findings.append(Finding(UNVERIFIABLE, one.uri, path, UNTOLD, None, one.digest))
                report.exit_status = Exit.FINDINGS
            if agrees(last, one.uri, path, there=True, digest=one.digest):
                yield one
        for path, told in after.items():
            last, there = before.pop(path, None), told.action in ("updated", "deleted")
            digest = told.old_hash or (told.hash if told.action == "deleted" else last.hash if last else None)
            if agrees(last, told.uri, path, there=there, digest=digest) and there:
                where = _kept_at(told.kept, backup) if leads_inside(os.fsencode(path)) else b""
                yield _File(told.uri, os.fsencode(path), mtime_ns=0, digest=digest, where=where)
        for path, last in before.items():
            agrees(last, last.uri, path, there=False)

    with _held(report) as held, _new_folder(to) as root:
        for _ in _read(report, then(held), lambda path: root / os.fsdecode(path), listener):
            pass
    return report


def _kept_at(kept: str | None, backup: Path | str | None) -> bytes:
    """Where a kept file lies: there, or below `backup` by the longest tail of its path; empty where nowhere."""
    if kept is not None and backup is not None:
        tails = [os.path.join(*Path(kept).parts[first:]) for first in range(1, len(Path(kept).parts))]
        moved = (os.path.join(backup, tail) for tail in tails if leads_inside(os.fsencode(tail)))
        kept = next(filter(os.path.lexists, moved), None)
    folder, name = os.path.split(kept or "")
    return os.fsencode(os.path.join(os.path.realpath(folder), name)) if name else b""


@contextmanager
def _new_folder(path: Path | str) -> Iterator[Path]:
    """A folder that is new or empty; what is written there is on the disk at the end. Raises UsageFault, StoreFault."""
    root = Path(os.path.realpath(path))
    try:
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()):
            raise UsageFault("the folder is not empty", where=str(path), advice="Name a new folder.")
        yield root
        flush(os.fsencode(root))
    except OSError as cause:
        raise StoreFault(f"cannot be written: {cause.strerror}", where=str(cause.filename or root)) from cause


@contextmanager
def _held(report: ExportReport) -> Iterator[Iterator[_File]]:
    """The files that the copy holds, by their names, while no run changes it."""
    home = DestinationFolder(Path(report.destination))
    root = os.path.realpath(os.fsencode(home.root)) + b"/"

    def files(database: Database) -> Iterator[_File]:
        last = b""
        while True:
            with database.read() as t:
                rows = t.fetch(_HELD, (last,))
            if not rows:
                return
            last = rows[-1][1]
            for uri, path, size, mtime_ns, digest in rows:
                where = root + path if leads_inside(path) else b""
                yield _File(uri, path, size, mtime_ns=mtime_ns, digest=digest, where=where)

    with home.at_rest(), readable_state(home) as database:
        with database.read() as t:
            report.time, report.source = dt.datetime.now(dt.UTC), fact(t, "url")
            if not sets(t):
                raise no_set(report.destination)
        yield files(database)


def _read(
    report: ExportReport, files: Iterable[_File], place: Callable[[bytes], Path] | None, listener: Listener
) -> Iterator[tuple[_File, str]]:
    """The files that are as recorded, with the SHA-256 of their octets; each is copied to its `place`."""
    done = 0

    def request(one: _File) -> HashRequest:
        algorithms = dict.fromkeys((_ALGORITHM, *(digest.algorithm for digest in digests_of(one.digest))))
        return one.where, tuple(algorithms), None if place is None else bytes(place(one.path))

    pool = HashPool(None if place is None else COPY)
    for block, results in pool.read(files, request):
        for one, result in zip(block, results, strict=True):
            if result[0] == hashing.UNPLACED:
                raise OSError(result[1], os.strerror(result[1]), os.fsdecode(one.path))
            found = found_file(result)
            verdict = judge_file(one, found)
            if verdict == SAME and found is not None and one.digest is not None:
                report.files += 1
                report.octets += found.size
                yield one, next(digest.hex for digest in digests_of(found.digests) if digest.algorithm == _ALGORITHM)
                continue
            verdict = UNVERIFIABLE if verdict == SAME else verdict
            told = difference(verdict, one, found)
            report.findings.append(Finding(verdict, one.uri, printable_path(one.path), *told))
            report.exit_status = Exit.FINDINGS
            if place is not None and result[0] == hashing.READ:
                place(one.path).unlink()
        done += len(block)
        listener(Progress("hashing", done))


def _portable(path: bytes) -> str:
    """The name of a file in a bag, which is UTF-8: other octets are percent-encoded."""
    text = path.decode("utf-8", "surrogateescape")
    return re.sub(r"[\udc80-\udcff]", lambda octet: f"%{ord(octet[0]) & 0xFF:02X}", text)
