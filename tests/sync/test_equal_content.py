"""Sources without hash and length, whose server sends no validators: what is fetched again may be what is held.

DST-B3, rule "else conditional GET".
"""

from __future__ import annotations

import datetime as dt
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headwater.sync.reports import Done
from headwater.transport.transport import Transport
from tests.support.copying import DONE, IMPATIENT, check, go, run_over, tree
from tests.support.fake_source import Reply, Site, Source, at


@pytest.fixture
def copied(source: Source, site: Site, dest: Path) -> Path:
    serve_without_validators(source, site)
    assert go(source.base, dest).one.created == len(site.files)
    return dest


def serve_without_validators(source: Source, site: Site) -> None:
    site.clock += 10
    site.publish_capabilities("resourcelist")
    site.publish_list([site.resource(name, hash=None, length=None) for name in site.files])
    for name, body in site.files.items():
        source.pages[f"/set/resources/{name}"] = Reply(body, etag=False)


def renewed(source: Source, site: Site, dest: Path) -> tuple[int, int, list[tuple[str, str]]]:
    """What a run that reads a newer list counts as updated and unchanged, and what it tells."""
    serve_without_validators(source, site)
    told: list[Done] = []
    with Transport(IMPATIENT) as wire:
        report = run_over(wire, source.base, dest, each=told.append)
    assert (report.exit_status, tree(dest)) == (DONE, dict(site.files))
    return report.sets[0].updated, report.sets[0].unchanged, [(one.action, one.path) for one in told]


def test_what_is_held_already_is_no_update(source: Source, site: Site, copied: Path) -> None:
    """Else `--exec` and `--changes` tell of all files at each run."""
    assert renewed(source, site, copied) == (0, len(site.files), [])


def test_what_is_new_is_one(source: Source, site: Site, copied: Path) -> None:
    site.put("f1.txt", b"BODY 1\n")
    assert renewed(source, site, copied) == (1, len(site.files) - 1, [("updated", "f1.txt")])


@pytest.mark.parametrize("harm", ["edited", "missing"])
def test_what_was_damaged_here_is_one(harm: str, source: Source, site: Site, copied: Path) -> None:
    if harm == "edited":
        (copied / "f1.txt").write_bytes(b"edited")
    else:
        (copied / "f1.txt").unlink()
    assert renewed(source, site, copied) == (1, len(site.files) - 1, [("updated", "f1.txt")])


NEWER, OLDER = "1999-01-01T00:00:00Z", "1936-05-04T00:00:00Z"
OLDEST = "1901-12-13T20:45:52Z"  # before it, some file systems keep no time


@pytest.mark.parametrize("lastmod", [NEWER, OLDER, OLDEST])
@pytest.mark.parametrize("by", ["a Change List", "a Resource List", "a repair", "a baseline of an earlier copy"])
def test_a_new_time_of_equal_content_reaches_the_file(
    by: str, lastmod: str, source: Source, site: Site, dest: Path
) -> None:
    """The modification time of a file is the listed `lastmod`, also when nothing but it is new."""
    if by != "a Change List":
        site.publish_capabilities("resourcelist")
    assert go(source.base, dest).status == DONE
    site.clock += 1
    entry = site.resource("f0.txt").replace(at(0), lastmod)
    if by == "a Change List":
        changed = site.resource("f0.txt", change="updated", datetime=at(site.clock))
        site.publish_changes(10.0, entries=[changed.replace(f"<lastmod>{at(0)}", f"<lastmod>{lastmod}")])
    else:
        site.publish_list([entry, *(site.resource(name) for name in list(site.files)[1:])])
    source.forget()
    if "earlier" in by or by == "a repair":
        with closing(sqlite3.connect(dest / ".headwater" / "state.sqlite")) as state, state:
            state.execute("UPDATE resources SET lastmod = ? WHERE uri = ?", (_micros(lastmod), site.uri("f0.txt")))
    ran = go(source.base, dest, repair=by == "a repair", baseline="baseline" in by)
    assert (ran.status, ran.one.created, ran.one.updated) == (DONE, 0, 0)
    assert (dest / "f0.txt").stat().st_mtime_ns == _micros(lastmod) * 1000
    assert not [path for path in source.requests() if "/resources/" in path]
    with closing(sqlite3.connect(dest / ".headwater" / "state.sqlite")) as state:
        row = state.execute("SELECT lastmod, mtime_ns FROM resources WHERE uri = ?", (site.uri("f0.txt"),)).fetchone()
    assert row == (_micros(lastmod), _micros(lastmod) * 1000)
    assert check(source.base, dest).verdict == "in sync"
    again = go(source.base, dest, baseline=True)
    assert (again.status, again.one.updated, again.one.created) == (DONE, 0, 0)


def test_a_dry_run_gives_no_file_another_time(source: Source, site: Site, dest: Path) -> None:
    assert go(source.base, dest).status == DONE
    before = (dest / "f0.txt").stat().st_mtime_ns
    site.clock += 1
    site.publish_list([site.resource(name).replace(at(0), NEWER) for name in site.files])
    assert go(source.base, dest, dry_run=True, baseline=True).status == DONE
    assert (dest / "f0.txt").stat().st_mtime_ns == before


def _micros(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).timestamp()) * 1_000_000
