"""The guard over deletions (DST-B4): the consent that a note names is consent enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import StoreFault
from headwater.sync.copy.destination_folder import DestinationFolder, writable_state
from headwater.sync.copy_status import copy_status, forget
from headwater.sync.update.applier import Applier
from tests.support.copying import DONE, FAILED, check, go, tree
from tests.support.fake_source import Reply, Site, Source, url


def test_who_does_what_the_note_says_has_it_done(source: Source, site: Site, dest: Path) -> None:
    for number in range(5, 30):
        site.put(f"f{number}.txt", b"body %d\n" % number)
    site.publish()
    go(source.base, dest)
    for number in range(11):
        site.drop(f"f{number}.txt")
    site.publish_changes(0)
    ran = go(source.base, dest)
    (note,) = [notice.message for notice in ran.notices if notice.rule == "DST-B4"]
    assert (ran.status, note) == (
        FAILED,
        "11 deletions are held back until you consent (of 30 held):"
        f" headwater sync --max-delete 37% {source.base}/ {dest} (with your other options, such as --changes)",
    )
    ran = go(source.base, dest, max_delete=0.37)
    assert (ran.status, ran.one.deleted, len(tree(dest))) == (DONE, 11, 19)


def test_a_list_of_before_the_deletions_does_not_undo_that_they_wait(source: Source, site: Site, dest: Path) -> None:
    """DST-B2: a resource that fails has the Resource List read after the changes, which may be older than they are."""
    for number in range(5, 30):
        site.put(f"f{number}.txt", b"body %d\n" % number)
    site.publish()
    go(source.base, dest)
    site.put("f29.txt", b"another")
    site.publish_list()
    for number in range(11):
        site.drop(f"f{number}.txt")
    site.put("lost.txt", b"never sent")
    source.pages["/set/resources/lost.txt"] = Reply(b"", 404)
    site.publish_changes(0)
    for _ in range(2):
        ran = go(source.base, dest)
        assert (ran.status, ran.one.failed, ran.one.held_back, len(tree(dest))) == (FAILED, 1, 11, 30)
    ran = go(source.base, dest, max_delete=0.37)
    assert (ran.status, ran.one.deleted, ran.one.held_back, len(tree(dest))) == (FAILED, 11, 0, 19)


def test_one_deletion_is_one(source: Source, dest: Path) -> None:
    site = Site(source)
    site.put("only.txt", b"x")
    site.publish()
    go(source.base, dest)
    site.drop("only.txt")
    site.publish_changes(0)
    notes = [notice.message for notice in go(source.base, dest).notices if notice.rule == "DST-B4"]
    told = f"headwater sync --max-delete 100% {source.base}/ {dest}"
    assert [note.partition(" (with")[0] for note in notes] == [
        f"1 deletion is held back until you consent (of 1 held): {told}"
    ]


def test_once_nothing_waits_for_consent_other_deletions_are_done(source: Source, site: Site, dest: Path) -> None:
    for number in range(5, 30):
        site.put(f"f{number}.txt", b"body %d\n" % number)
    site.publish()
    go(source.base, dest)
    for number in range(11):
        site.drop(f"f{number}.txt")
    site.publish_changes(0)
    assert go(source.base, dest).one.held_back == 11
    with writable_state(DestinationFolder(dest)) as database, database.write() as t:
        forget(t, (), failed=False, held_back=True)
    site.drop("f11.txt")
    site.publish_changes(0)
    ran = go(source.base, dest)
    assert (ran.status, ran.one.held_back, ran.one.deleted) == (DONE, 0, 1)


def test_what_waits_for_consent_waits_while_entries_are_refused(source: Source, site: Site, dest: Path) -> None:
    """DST-B4, DST-S12: a run in which nothing may be deleted ends no wait, however many files come."""
    for number in range(5, 30):
        site.put(f"f{number}.txt", b"body %d\n" % number)
    site.publish()
    site.publish_capabilities("resourcelist")
    go(source.base, dest)
    for name in sorted(site.files)[19:]:
        site.drop(name)
    for number in range(100):
        site.put(f"new{number}.txt", b"new")
    listed = [site.resource(name) for name in site.files]
    outside = url("http://elsewhere.example/x")
    for when, entries in ((10, listed[:19]), (20, [*listed, outside]), (30, listed)):
        site.publish_list(entries, when=site.clock + when)
        ran = go(source.base, dest, baseline=True)
        assert (ran.status, ran.one.held_back, ran.one.deleted) == (FAILED, 11, 0)


def test_what_is_listed_again_waits_for_consent_no_more(source: Source, site: Site, dest: Path) -> None:
    """A list that was cut off once: whoever consents to other deletions later must not lose what is listed."""
    for number in range(5, 30):
        site.put(f"f{number}.txt", b"body %d\n" % number)
    site.publish()
    site.publish_capabilities("resourcelist")
    go(source.base, dest)
    site.publish_list([site.resource(name) for name in sorted(site.files)[:15]], when=site.clock + 10)
    ran = go(source.base, dest, baseline=True)
    assert (ran.status, ran.one.held_back, len(tree(dest))) == (FAILED, 15, 30)
    site.publish_list(when=site.clock + 20)
    ran = go(source.base, dest, baseline=True)
    assert (ran.status, ran.one.held_back, len(tree(dest))) == (DONE, 0, 30)
    ran = go(source.base, dest, max_delete=1.0)
    assert (ran.status, ran.one.deleted, len(tree(dest))) == (DONE, 0, 30)


def test_what_a_run_brought_that_was_ended_lets_nothing_go(
    source: Source, site: Site, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DST-B4: the share is of what was held when lists first told of the deletions."""
    for number in range(5, 30):
        site.put(f"f{number}.txt", b"body %d\n" % number)
    site.publish()
    go(source.base, dest)
    for number in range(11):
        site.drop(f"f{number}.txt")
    for number in range(100):
        site.put(f"new{number}.txt", b"new")
    site.publish_changes(0)
    bring = Applier.bring

    def ends(applier: Applier, table: str | None) -> None:
        bring(applier, table)
        raise StoreFault("ended", where=str(dest))

    with monkeypatch.context() as patch:
        patch.setattr(Applier, "bring", ends)
        assert go(source.base, dest).error is not None
    assert len(tree(dest)) == 130
    ran = go(source.base, dest)
    assert (ran.status, ran.one.held_back, ran.one.deleted) == (FAILED, 11, 0)


@pytest.mark.parametrize("later", [True, False], ids=["consent in a later run", "consent in the same run"])
@pytest.mark.parametrize("told_by", ["a Resource List", "a Change List"])
def test_what_is_there_again_with_other_octets_is_not_deleted(
    told_by: str, later: bool, source: Source, site: Site, dest: Path
) -> None:
    """Its deletion has waited; it is fetched, and consent to deletions does not reach it any more."""
    for number in range(5, 30):
        site.put(f"f{number}.txt", b"body %d\n" % number)
    site.publish()
    lists_only = told_by == "a Resource List"
    if lists_only:
        site.publish_capabilities("resourcelist")
    go(source.base, dest)
    lost = sorted(site.files)[15:]
    for name in lost:
        site.drop(name)
    site.publish_list() if lists_only else site.publish_changes(0)
    assert go(source.base, dest).one.held_back == 15
    for name in lost:
        site.put(name, b"another body of %s\n" % name.encode())
    site.publish_list() if lists_only else site.publish_changes(0)
    if later:
        assert go(source.base, dest).status == DONE
    ran = go(source.base, dest, max_delete=1.0)
    assert (ran.status, ran.one.deleted, ran.one.held_back, tree(dest)) == (DONE, 0, 0, dict(site.files))


@pytest.mark.parametrize("has_list", [True, False], ids=["with a Resource List", "without"])
@pytest.mark.parametrize("harm", ["missing", "edited"])
def test_a_repair_asks_for_nothing_that_is_to_be_deleted(
    harm: str, has_list: bool, source: Source, site: Site, dest: Path
) -> None:
    """DST-B4: a damaged file whose deletion waits is no failure, which would outlast the deletion."""
    if not has_list:
        site.publish_changes(0, entries=[site.change(5, "created", name, site.files[name]) for name in site.files])
        site.publish_capabilities("changelist")
    assert go(source.base, dest).status == DONE
    told = source.reply("/set/changelist.xml").body
    site.drop("f1.txt")
    gone = site.change(*site.changes[-1]).encode()
    site.serve("/set/changelist.xml", told.replace(b"</urlset>", gone + b"</urlset>"))
    assert go(source.base, dest, delete=False).one.held_back == 1
    if harm == "edited":
        (dest / "f1.txt").write_bytes(b"edited")
    else:
        (dest / "f1.txt").unlink()
    ran = go(source.base, dest, repair=True, delete=False)
    assert (ran.status, ran.one.failed, ran.one.held_back) == (DONE, 0, 1)
    assert (go(source.base, dest).status, tree(dest)) == (DONE, dict(site.files))


def test_one_share_is_told_of_the_same_whole(source: Source, site: Site, dest: Path) -> None:
    """By the run that holds deletions back, and brings files; by the status; by an audit: and it is enough."""
    for number in range(5, 30):
        site.put(f"f{number}.txt", b"body %d\n" % number)
    site.publish()
    go(source.base, dest)
    for number in range(11):
        site.drop(f"f{number}.txt")
    for number in range(25):
        site.put(f"new{number}.txt", b"new")
    site.publish_changes(0)
    ran = go(source.base, dest)
    command = f"headwater sync --max-delete 20% {source.base}/ {dest}"
    (note,) = [notice.message for notice in ran.notices if notice.rule == "DST-B4"]
    assert note.startswith(f"11 deletions are held back until you consent (of 55 held): {command} (")
    assert copy_status(dest).sets[0].consent == {"delete": command}
    assert check(source.base, dest).sets[0].consent == {"delete": command}
    ran = go(source.base, dest, max_delete=0.2)
    assert (ran.status, ran.one.deleted) == (DONE, 11)
    assert copy_status(dest).sets[0].consent == {}
