"""The audit of a copy that holds what a Change List told after the Resource List's `at`, and what no list tells by now.

DST-Q, AMB-22.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from headwater.copy_state import SCHEMA
from headwater.errors import Exit
from headwater.storage.database import Database
from headwater.sync.audit import comparison
from headwater.sync.reports import DIFFERENT, MISSING, AuditReport
from headwater.sync.state import TEMPORARY
from tests.support.copying import DONE, check, go, tree
from tests.support.fake_source import Reply, Site, Source
from tests.support.program import run_here

UNDETERMINED = "undetermined"
TOLD = {"f1.txt": "different", "f2.txt": "missing", "new.txt": "extra"}
TIMES = pytest.mark.parametrize("times", [True, False], ids=["times", "no times"])


def publish(site: Site, last: int, *, times: bool = True) -> None:
    """The last so many changes, in a list without `from`."""
    more: dict[str, Any] = {} if times else {"datetime": None}
    told = [site.change(*one, **more) for one in site.changes if one[0] > 10]
    site.publish_changes(10, entries=told[-last:] if last else [], **{"from": None})


def change(site: Site) -> None:
    """One resource of each kind of change, and then another one."""
    site.put("f1.txt", b"updated")
    site.put("new.txt", b"created")
    site.drop("f2.txt")
    site.put("f3.txt", b"last")


@pytest.fixture
def copied(source: Source, site: Site, dest: Path) -> Path:
    """A copy that has followed all changes, of which the list then drops all but the last."""
    return copy(source, site, dest)


def copy(source: Source, site: Site, dest: Path, *, times: bool = True) -> Path:
    publish(site, 9, times=times)
    assert go(source.base, dest).status == DONE
    change(site)
    publish(site, 9, times=times)
    assert go(source.base, dest).status == DONE
    assert check(source.base, dest).verdict == "in sync"
    publish(site, 1, times=times)
    assert go(source.base, dest).status == Exit.UNDETERMINED
    assert tree(dest) == site.files
    return dest


def findings(report: AuditReport) -> dict[str, str]:
    return {one.path: one.verdict for one in report.sets[0].findings}


@TIMES
def test_what_is_told_no_more_is_undetermined(times: bool, source: Source, site: Site, dest: Path) -> None:
    copy(source, site, dest, times=times)
    found = check(source.base, dest)
    assert (found.verdict, found.sets[0].told_no_more) == (UNDETERMINED, 3)
    assert "3 told no more" in str(found.sets[0].reason)
    assert findings(found) == TOLD
    site.publish_list()
    assert check(source.base, dest).verdict == "in sync"


def test_the_audit_of_a_source_that_was_set_back_names_the_way_on(source: Source, site: Site, copied: Path) -> None:
    assert b"`headwater sync --accept-reset` follows it" in run_here("audit", source.base, copied).stdout
    said = run_here("status", copied).stdout
    assert b"the last run came to no result" in said
    assert b"no run has finished" not in said


def test_a_pair_of_lists_that_is_set_back(source: Source, site: Site, copied: Path) -> None:
    """The Resource List and the Change List of before the changes."""
    site.publish_changes(10, entries=[])
    found = check(source.base, copied)
    assert (found.verdict, found.sets[0].told_no_more) == (UNDETERMINED, 4)


def test_a_list_that_is_offered_no_more(source: Source, site: Site, copied: Path) -> None:
    site.publish_capabilities("resourcelist")
    found = check(source.base, copied)
    assert (found.verdict, found.sets[0].told_no_more) == (UNDETERMINED, 4)


@pytest.mark.parametrize("name", ["f1.txt", "new.txt", "f3.txt", "f4.txt"])
@pytest.mark.parametrize("harm", ["damaged", "of the same length", "removed"])
def test_damage_stays_a_finding(harm: str, name: str, source: Source, site: Site, copied: Path) -> None:
    """Of what no list tells any more nobody can say whether it is damage."""
    path, body = copied / name, site.files[name]
    if harm == "removed":
        path.unlink()
    else:
        path.write_bytes(b"x" * len(body) if harm == "of the same length" else b"damaged")
    found = check(source.base, copied)
    is_missing = (name, harm) == ("f1.txt", "removed")  # by any list
    is_told = name in TOLD and not is_missing
    assert found.sets[0].told_no_more == 3 - is_missing
    assert found.verdict == (UNDETERMINED if is_told else "not in sync")
    assert is_told or findings(found) == TOLD | {name: "missing" if harm == "removed" else "different"}


def test_a_file_that_comes_back_is_extra(source: Source, site: Site, copied: Path) -> None:
    """What a change had deleted is no resource of the copy, nor is what lies there of somebody's own."""
    (copied / "own.txt").write_bytes(b"own")
    found = check(source.base, copied)
    assert (found.verdict, findings(found)) == ("not in sync", TOLD | {"own.txt": "extra"})


@pytest.mark.parametrize("told", ["by a Resource List", "by a later change"])
def test_a_stale_copy_is_not_in_sync(told: str, source: Source, site: Site, copied: Path) -> None:
    """What a list tells of the resource now counts."""
    site.put("f1.txt", b"newer")
    if told == "by a Resource List":
        site.publish_list()
        publish(site, 0)
    else:
        publish(site, 1)
    found = check(source.base, copied)
    more = {} if told == "by a Resource List" else TOLD | {"f3.txt": "different"}
    assert (found.verdict, findings(found)) == ("not in sync", {"f1.txt": "different"} | more)


def test_what_was_never_received_is_not_in_sync(source: Source, site: Site, copied: Path) -> None:
    """A change was told and its content did not come: the copy is known to be older."""
    site.publish_list()
    assert go(source.base, copied).status == DONE
    site.put("f1.txt", b"refused")
    source.pages["/set/resources/f1.txt"] = Reply(b"", 403)
    publish(site, 2)
    assert go(source.base, copied).status != DONE
    site.put("f4.txt", b"next")
    publish(site, 3)
    assert go(source.base, copied).status != DONE
    site.put("f4.txt", b"next again")
    publish(site, 4)
    assert go(source.base, copied).status != DONE
    found = check(source.base, copied)
    assert found.verdict == "not in sync"
    assert findings(found)["f1.txt"] == "different"


def test_as_many_again_that_are_refused_take_no_time(tmp_path: Path) -> None:
    """Ten thousand of each took seconds of the processor, and ten times as many minutes."""
    count = 10_000
    with Database(tmp_path / "state.sqlite", SCHEMA) as made, made.write() as t:
        for tables in (TEMPORARY, comparison.TABLES):
            t.run(tables)
        t.run("INSERT INTO sets(id, name, folder, identity, offer, baseline_at) VALUES (1, 's', 's', 's', '{}', 100)")
        told = "INSERT INTO resources(set_id, uri, path, changed_at, run) VALUES (1, ?, ?, 200, 1)"
        t.many(told, ((f"http://a.example/{n}", b"%d" % n) for n in range(count)))
        t.many("INSERT INTO temp.refused(uri) VALUES (?)", ((f"http://b.example/{n}",) for n in range(count)))
        began = time.process_time()
        assert t.value(comparison._TOLD_NO_MORE, (1, 100, MISSING, DIFFERENT)) == count
        assert time.process_time() - began < 1
