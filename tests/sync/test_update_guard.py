"""The guard over updates: a source that empties or overwrites most of its files is held back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.sync.copy_status import copy_status
from tests.support.copying import DONE, FAILED, go, tree
from tests.support.fake_source import Site, Source
from tests.support.program import run_here


@pytest.fixture
def many(source: Source, dest: Path) -> Site:
    """A source of 40 files, and a copy of it."""
    site = Site(source)
    for number in range(40):
        site.put(f"f{number}.txt", b"body %d\n" % number)
    site.publish()
    assert go(source.base, dest).status == DONE
    return site


def overwrite(site: Site, count: int, body: bytes, first: int = 0) -> None:
    for number in range(first, first + count):
        site.put(f"f{number}.txt", body)
    site.publish()


def test_a_source_that_empties_its_files_is_held_back(source: Source, many: Site, dest: Path) -> None:
    before = tree(dest)
    overwrite(many, 40, b"")
    for _ in range(2):
        ran = go(source.base, dest)
        (note,) = [one.message for one in ran.notices if one.rule == "DST-B4"]
        assert note.startswith("40 updates are held back, 100% of what is held would become empty: --max-update 100%")
        assert (ran.status, ran.one.held_back, ran.one.updated, ran.one.failed) == (FAILED, 40, 0, 0)
        assert tree(dest) == before
    status = copy_status(dest)
    assert (status.held_back, status.failed, status.exit_status) == (40, 0, FAILED)
    said = run_here("status", dest).stdout.decode()
    command = f"headwater sync --max-update 100% {source.base}/ {dest}"
    assert f"40 updates held back: the files stay until you consent, by `{command}` (with" in said
    assert "\n    f0.txt\n" in said
    assert set(status.sets[0].updates) == set(before)
    told = run_here("audit", source.base, dest).stdout.decode()
    assert f"held back until you consent to update these files, by `{command}` (with" in told
    assert "--max-delete" not in said + told
    assert "deletion" not in said
    ran = go(source.base, dest, max_update=1)
    assert (ran.status, ran.one.held_back, ran.one.updated) == (DONE, 0, 40)
    assert set(tree(dest).values()) == {b""}
    assert copy_status(dest).exit_status == DONE


@pytest.mark.parametrize("by", ["changes", "list"])
def test_few_that_become_empty_are_updated(source: Source, many: Site, dest: Path, by: str) -> None:
    overwrite(many, 10, b"")
    ran = go(source.base, dest, baseline=by == "list")
    assert (ran.status, ran.one.updated, ran.one.held_back) == (DONE, 10, 0)


def test_others_are_updated_while_some_wait(source: Source, many: Site, dest: Path) -> None:
    overwrite(many, 20, b"")
    many.put("new.txt", b"new")
    many.put("f30.txt", b"another")
    many.publish()
    ran = go(source.base, dest)
    assert (ran.status, ran.one.created, ran.one.updated, ran.one.held_back) == (FAILED, 1, 1, 20)
    overwrite(many, 1, b"", first=35)  # one more: it waits with the others
    for number in range(60):  # and files that come since let none of them go
        many.put(f"later{number}.txt", b"later")
    many.publish()
    ran = go(source.base, dest)
    assert (ran.status, ran.one.created, ran.one.held_back) == (FAILED, 60, 21)


def test_what_is_put_right_at_the_source_waits_no_more(source: Source, many: Site, dest: Path) -> None:
    before = tree(dest)
    overwrite(many, 40, b"")
    assert go(source.base, dest).one.held_back == 40
    for name, body in before.items():
        many.put(name, body)
    many.publish()
    ran = go(source.base, dest)
    assert (ran.status, ran.one.held_back, ran.one.updated, tree(dest)) == (DONE, 0, 0, before)


def test_what_is_deleted_at_the_source_waits_as_a_deletion(source: Source, many: Site, dest: Path) -> None:
    overwrite(many, 40, b"")
    assert go(source.base, dest).one.held_back == 40
    for number in range(40):
        many.drop(f"f{number}.txt")
    many.publish()
    assert go(source.base, dest).one.held_back == 40
    ran = go(source.base, dest, max_delete=1)
    assert (ran.status, ran.one.deleted, ran.one.held_back) == (DONE, 40, 0)


def test_without_a_length_the_hash_of_nothing_tells(source: Source, many: Site, dest: Path) -> None:
    overwrite(many, 40, b"")
    many.publish_list([many.resource(name, length=None) for name in many.files])
    entries = [many.change(*one, length=None) for one in many.changes]
    many.publish_changes(entries=entries)
    assert go(source.base, dest).one.held_back == 40


def test_all_updates_count_where_the_user_names_a_share(source: Source, many: Site, dest: Path) -> None:
    overwrite(many, 30, b"encrypted")
    ran = go(source.base, dest, max_update=0.5)
    (note,) = [one.message for one in ran.notices if one.rule == "DST-B4"]
    assert note.startswith("30 updates are held back, 75% of what is held would be overwritten: --max-update 75%")
    assert (ran.status, ran.one.held_back, ran.one.updated) == (FAILED, 30, 0)
    ran = go(source.base, dest, max_update=0.75)
    assert (ran.status, ran.one.held_back, ran.one.updated) == (DONE, 0, 30)


def test_repair_of_all_files_is_no_update(source: Source, many: Site, dest: Path) -> None:
    for number in range(40):
        (dest / f"f{number}.txt").write_bytes(b"damaged")
    ran = go(source.base, dest, repair=True, max_update=0.1)
    assert (ran.status, ran.one.held_back) == (DONE, 0)
    assert tree(dest)["f7.txt"] == b"body 7\n"


def test_a_dry_run_shows_what_would_be_held_back(source: Source, many: Site, dest: Path) -> None:
    overwrite(many, 40, b"")
    done = run_here("sync", "--dry-run", source.base, dest, "--json")
    (one,) = json.loads(done.stdout)["sets"]
    assert (done.returncode, one["held_back"], one["updated"]) == (FAILED, 40, 0)
    assert {(line["action"], line["path"]) for line in one["plan"]} == {("hold back", name) for name in tree(dest)}


def test_why_tells_that_an_update_waits(source: Source, many: Site, dest: Path) -> None:
    overwrite(many, 40, b"")
    assert go(source.base, dest).one.held_back == 40
    (one,) = json.loads(run_here("why", dest, many.uri("f0.txt"), "--json").stdout)["sets"]
    assert (one["found"], [reason["rule"] for reason in one["reasons"]]) == (True, ["held back"])


def test_what_waits_can_be_forgotten(source: Source, many: Site, dest: Path) -> None:
    before = tree(dest)
    overwrite(many, 40, b"")
    assert go(source.base, dest).one.held_back == 40
    tried = run_here("forget", dest, "--held-back", "--dry-run").stdout
    assert tried == b"would forget 0 failures, 40 updates held back, 0 deletions held back\n"
    assert run_here("forget", dest, "--held-back").returncode == DONE
    assert (copy_status(dest).held_back, tree(dest)) == (0, before)


@pytest.mark.parametrize("share", [0.5, 0.05])
def test_what_waits_goes_on_waiting_until_a_share_is_named(
    source: Source, many: Site, dest: Path, share: float
) -> None:
    count = 30 if share == 0.5 else 3
    overwrite(many, count, b"encrypted")
    assert go(source.base, dest, max_update=share).one.held_back == count
    many.put("new.txt", b"new")
    many.put("f35.txt", b"edited")
    many.publish()
    for baseline in (False, True, False):
        ran = go(source.base, dest, baseline=baseline)
        (note,) = [one.message for one in ran.notices if one.rule == "DST-B4"]
        assert "would be overwritten" in note
        assert (ran.status, ran.one.held_back) == (FAILED, count)
    assert (tree(dest)["f0.txt"], tree(dest)["f35.txt"], tree(dest)["new.txt"]) == (b"body 0\n", b"edited", b"new")
    ran = go(source.base, dest, max_update=1)
    assert (ran.status, ran.one.held_back, ran.one.updated) == (DONE, 0, count)
    overwrite(many, 1, b"again")  # and afterwards nothing waits
    assert (go(source.base, dest).status, tree(dest)["f0.txt"]) == (DONE, b"again")


def test_files_that_do_not_change_count_for_nothing(source: Source, many: Site, dest: Path) -> None:
    before = tree(dest)
    overwrite(many, 30, b"encrypted")
    for number in range(30):
        many.put(f"f{number}.txt", before[f"f{number}.txt"])
    many.put("f30.txt", b"edited")
    many.publish()
    ran = go(source.base, dest, max_update=0.2)
    assert (ran.status, ran.one.held_back, ran.one.updated) == (DONE, 0, 1)


def test_a_share_near_the_limit_is_told_exactly(source: Source, many: Site, dest: Path) -> None:
    """By what is enough, too: 5 of 41 are 12.2%, over a limit of 12%."""
    many.put("f40.txt", b"body 40\n")
    many.publish()
    assert go(source.base, dest).status == DONE
    overwrite(many, 5, b"encrypted")
    ran = go(source.base, dest, max_update=0.12)
    (note,) = [one.message for one in ran.notices if one.rule == "DST-B4"]
    assert note.startswith("5 updates are held back, 12.2% of what is held would be overwritten: --max-update 13%")
    assert copy_status(dest).sets[0].consent["update"].startswith("headwater sync --max-update 13% ")
    assert go(source.base, dest, max_update=0.13).status == DONE
