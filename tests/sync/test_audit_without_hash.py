"""The audit of a copy of a source that lists no hash: the copy's own record and the Change List decide where length and
time may not (DST-Q)."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from headwater.cli import run
from tests.support.copying import DONE, FAILED, FINDINGS, UNDETERMINED, check, go, tree
from tests.support.fake_source import Reply, Site, Source, document, url

STATED = pytest.mark.parametrize(
    "left",
    [{"hash": None}, {"hash": None, "length": None}, {"hash": "crc32:12345678"}],
    ids=["a length", "nothing", "a hash of another kind"],
)
HELD, NEW = b"body 1\n", b"BODY 1\n"


def publish(site: Site, left: dict[str, Any]) -> None:
    """Both lists, with no hash that can be computed."""
    site.publish_list([site.resource(name, **left) for name in site.files], when=10)
    site.publish_changes(10, entries=[site.change(*one, **left) for one in site.changes if one[0] > 10])


@pytest.fixture
def copied(left: dict[str, Any], source: Source, site: Site, dest: Path) -> Path:
    """A copy of before a change to other octets of the same length."""
    site.clock = 20
    publish(site, left)
    assert go(source.base, dest).status == DONE
    assert check(source.base, dest).verdict == "in sync"
    site.put("f1.txt", NEW)
    site.put("f2.txt", b"another")
    return dest


@STATED
def test_a_change_that_was_not_done_is_behind(left: dict[str, Any], source: Source, site: Site, copied: Path) -> None:
    site.publish_changes(10, entries=[site.change(*one, **left) for one in site.changes if one[0] > 10])
    found = check(source.base, copied)
    assert (found.verdict, found.sets[0].different, found.sets[0].behind) == ("in sync", 0, 2)
    assert go(source.base, copied).status == DONE
    assert tree(copied) == dict(site.files)
    assert check(source.base, copied).verdict == "in sync"


@STATED
def test_a_change_that_failed_is_a_difference(left: dict[str, Any], source: Source, site: Site, copied: Path) -> None:
    site.publish_changes(10, entries=[site.change(*one, **left) for one in site.changes if one[0] > 10])
    right = source.pages["/set/resources/f1.txt"]
    source.pages["/set/resources/f1.txt"] = Reply(b"", 404)
    assert go(source.base, copied).status == FAILED
    found = check(source.base, copied)
    assert (found.verdict, found.sets[0].different) == ("not in sync", 1)
    source.pages["/set/resources/f1.txt"] = right
    assert go(source.base, copied).status == DONE
    assert check(source.base, copied).verdict == "in sync"


@STATED
def test_a_change_to_what_is_held_is_none(left: dict[str, Any], source: Source, site: Site, copied: Path) -> None:
    """What a run has asked for and found to be what is held is done."""
    site.put("f1.txt", HELD)
    site.publish_changes(10, entries=[site.change(*one, **left) for one in site.changes if one[0] > 10])
    assert go(source.base, copied).status == DONE
    assert check(source.base, copied).verdict == "in sync"


def keep_time(file: Path, octets: bytes) -> None:
    """Damage that leaves no trace in the time of the file."""
    before = file.stat()
    file.write_bytes(octets)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


LISTED: dict[str, dict[str, Any]] = {
    "a length and a time": {"hash": None},
    "a time": {"hash": None, "length": None},
    "a length": {"hash": None, "lastmod": None},
    "nothing": {"hash": None, "length": None, "lastmod": None},
    "a hash of another kind": {"hash": "crc32:12345678"},
}


@pytest.mark.parametrize("octets", [b"BODY 1\n", b"bo"], ids=["overwritten", "cut"])
@pytest.mark.parametrize("left", LISTED.values(), ids=LISTED)
def test_damage_is_a_difference_by_our_own_record(
    octets: bytes, left: dict[str, Any], source: Source, site: Site, dest: Path
) -> None:
    """DST-Q: the time of the file is the one that we have set; the hash of what was placed tells."""
    publish(site, left)
    assert go(source.base, dest).status == DONE
    (one,) = check(source.base, dest).sets
    assert (one.verdict, one.same, one.same_by_record, one.unverifiable) == ("in sync", 5, 5, 0)
    keep_time(dest / "f1.txt", octets)
    (one,) = check(source.base, dest).sets
    assert (one.verdict, one.same_by_record, one.different) == ("not in sync", 4, 1)
    (finding,) = one.findings
    assert finding.path == "f1.txt"
    if finding.reason != "length or time differs from the list":
        assert finding.reason == "not the file that was placed"
        assert finding.expected is not None
        assert finding.found is not None
        assert finding.expected.startswith("sha-256:")
        assert finding.expected != finding.found
    assert go(source.base, dest, repair=True).status == DONE
    assert check(source.base, dest).exit_status == DONE


@pytest.mark.parametrize(
    ("listed", "counts", "status"),
    [
        ("a length and a time", {"same": 5, "same_by_time": 5}, DONE),
        ("a length", {"same": 5, "same_by_time": 5}, DONE),
        ("nothing", {"same": 0, "unverifiable": 5}, UNDETERMINED),
    ],
)
def test_a_copy_without_a_record_proves_less(
    listed: str, counts: dict[str, int], status: int, source: Source, site: Site, dest: Path
) -> None:
    """Files of another tool: length and time alone, told as such; where nothing is compared, nothing is in sync."""
    publish(site, LISTED[listed])
    assert go(source.base, dest).status == DONE
    shutil.rmtree(dest / ".headwater")
    report = check(source.base, dest)
    assert {name: getattr(report.sets[0], name) for name in counts} == counts
    assert report.exit_status == status
    keep_time(dest / "f1.txt", NEW)
    assert check(source.base, dest).exit_status == status


def test_files_that_were_adopted_have_a_record(source: Source, site: Site, dest: Path) -> None:
    publish(site, LISTED["a length and a time"])
    assert go(source.base, dest).status == DONE
    shutil.rmtree(dest / ".headwater")
    assert go(source.base, dest).one.adopted == 5
    assert check(source.base, dest).sets[0].same_by_record == 5
    keep_time(dest / "f1.txt", NEW)
    assert check(source.base, dest).exit_status == FINDINGS


def test_damage_in_a_copy_of_a_sitemap_is_found(source: Source, site: Site, dest: Path) -> None:
    body = document([url(site.uri(name)) for name in site.files], links="", capability=None)
    source.pages["/sitemap.xml"] = Reply(body)
    where = source.base + "/sitemap.xml"
    assert go(where, dest, sitemap=True).status == DONE
    assert check(where, dest).sets[0].same_by_record == 5
    (file,) = dest.rglob("f1.txt")
    keep_time(file, NEW)
    assert check(where, dest).exit_status == FINDINGS


def test_the_command_tells_what_was_compared_by_what(
    source: Source, site: Site, dest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = [site.resource(name, **({} if name == "f0.txt" else {"hash": None})) for name in site.files]
    site.publish_list(entries, when=10)
    assert go(source.base, dest).status == DONE
    assert run(["audit", source.base, str(dest)]) == DONE
    assert "  compared: 1 by the source's hash, 4 by the copy's own record\n" in capsys.readouterr().out
    (dest / "f0.txt").write_bytes(b"!")
    assert run(["audit", "--json", source.base, str(dest)]) == FINDINGS
    told = json.loads(capsys.readouterr().out)
    assert told["version"]
    assert told["time"]
    (one,) = told["sets"]
    assert (one["same_by_hash"], one["same_by_record"], one["same_by_time"], one["unverifiable"]) == (0, 4, 0, 0)
    (finding,) = one["findings"]
    assert finding["expected"].startswith("sha-256:")
    assert finding["expected"] != finding["found"]
