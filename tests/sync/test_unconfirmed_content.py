"""What is newer than listed: placed when it comes twice, and never over a verified copy (DST-5.3)."""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
from pathlib import Path

import pytest

from headwater.cli import run
from headwater.errors import Exit
from tests.support.copying import DONE, FAILED, check, go, is_clean, tree
from tests.support.fake_source import Handler, Reply, Site, Source, at, coded, redirect, sha, sometimes, url
from tests.support.waiting import START

PATH = "/set/resources/f2.txt"
OLD, NEW, NEWEST = b"body 2\n", b"changed since", b"changed once more"
SIZES = pytest.mark.parametrize("new", [NEW, NEW * 10_000], ids=["small", "large"])


def late(seconds: float) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


def tell(site: Site, *changes: tuple[float, bytes]) -> None:
    """A Change List that tells these states of the resource."""
    site.publish_changes(10, entries=[site.change(when, "updated", "f2.txt", body) for when, body in changes])


@SIZES
def test_it_never_replaces_a_verified_copy(new: bytes, source: Source, site: Site, dest: Path) -> None:
    """A later `Last-Modified` proves nothing: what is held stays, and the run does not end as done."""
    assert go(source.base, dest).status == DONE
    site.publish_list([*(site.resource(n) for n in site.files if n != "f2.txt"), wrong(site)], when=12)
    source.pages[PATH] = Reply(new, modified=late(500))
    for _ in range(2):
        source.forget()
        ran = go(source.base, dest, baseline=True)
        assert (ran.status, ran.one.failed, ran.one.newer_than_listed) == (FAILED, 1, 0)
        assert tree(dest)["f2.txt"] == OLD
        assert is_clean(dest)
    assert source.requests(PATH) == [PATH, PATH]


def wrong(site: Site) -> str:
    """An entry that lists another hash than anything has."""
    return url(site.uri("f2.txt"), at(0), hash=sha(b"never sent"))


@SIZES
def test_a_new_resource_may_stand_unconfirmed(
    new: bytes, source: Source, site: Site, dest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Equal twice, the second time past all caches, and nothing is lost by it: placed, marked, and not done."""
    source.pages[PATH] = Reply(new, modified=late(500))
    ran = go(source.base, dest)
    assert (ran.status, ran.one.failed, ran.one.newer_than_listed) == (FAILED, 0, 1)
    assert tree(dest)["f2.txt"] == new
    assert run(["status", str(dest)]) == FAILED
    assert (
        "  1 file newer than the source's lists; the next run checks again" in capsys.readouterr().out
    )  # the status has a reason
    asked = [headers.get("Cache-Control") for path, headers in source.log if path == PATH]
    assert asked == [None, "no-cache"]
    assert check(source.base, dest).verdict == "not in sync"
    ran = go(source.base, dest)
    assert (ran.status, ran.one.newer_than_listed) == (FAILED, 1)
    tell(site, (500, new))
    source.forget()
    ran = go(source.base, dest)
    assert (ran.status, ran.one.newer_than_listed, source.requests(PATH)) == (DONE, 0, [])
    assert check(source.base, dest).verdict == "in sync"
    assert is_clean(dest)


def test_each_comes_twice_as_itself(source: Source, site: Site, dest: Path) -> None:
    """None is taken for another among the temporary files."""
    new = {f"f{n}.txt": b"changed since %d" % n * (1 + n * 3_000) for n in range(4)}
    for name, body in new.items():
        source.pages[f"/set/resources/{name}"] = Reply(body, modified=late(500))
    ran = go(source.base, dest)
    assert (ran.status, ran.one.failed, ran.one.newer_than_listed) == (FAILED, 0, len(new))
    assert {name: tree(dest)[name] for name in new} == new
    assert is_clean(dest)


@pytest.mark.parametrize("bodies", [(NEW, NEWEST), (NEW, OLD[::-1])], ids=["two states", "one wrong"])
def test_what_differs_each_time_does_not_stand(
    bodies: tuple[bytes, bytes], source: Source, site: Site, dest: Path
) -> None:
    first, second = (Reply(body, modified=late(500)) for body in bodies)
    source.pages[PATH] = sometimes(1, first, second)
    ran = go(source.base, dest)
    assert (ran.status, ran.one.failed, ran.one.newer_than_listed) == (FAILED, 1, 0)
    assert "f2.txt" not in tree(dest)
    assert is_clean(dest)


def test_other_times_are_other_states(source: Source, site: Site, dest: Path) -> None:
    """The same octets with another `Last-Modified` are no confirmation."""
    source.pages[PATH] = sometimes(1, Reply(NEW, modified=late(500)), Reply(NEW, modified=late(600)))
    ran = go(source.base, dest)
    assert (ran.status, ran.one.newer_than_listed, "f2.txt" in tree(dest)) == (FAILED, 0, False)


@SIZES
@pytest.mark.parametrize("held", [True, False], ids=["held", "new"])
def test_the_changes_of_the_same_run_confirm_it(held: bool, new: bytes, source: Source, site: Site, dest: Path) -> None:
    """What came by the Resource List is what the Change List tells: where it has its place, no more is asked for."""
    if held:
        assert go(source.base, dest).status == DONE
    site.publish_list([*(site.resource(n) for n in site.files if n != "f2.txt"), wrong(site)], when=12)
    source.pages[PATH] = Reply(new, modified=late(20))
    tell(site, (20, new))
    source.forget()
    ran = go(source.base, dest, baseline=True)
    assert (ran.status, ran.one.failed, ran.one.newer_than_listed) == (DONE, 0, 0)
    later = f"Last-Modified is later than the lastmod listed, of {len(site.files) - 1} resources"
    assert [one.message for one in ran.notices if one.rule == "DST-V4"] == ([] if held else [later])  # the others alone
    assert (tree(dest)["f2.txt"], source.requests(PATH)) == (new, [PATH] * (3 if held else 2))
    assert is_clean(dest)
    assert check(source.base, dest).verdict == "in sync"


def test_changes_that_come_meanwhile_confirm_it(source: Source, site: Site, dest: Path) -> None:
    """The Change List is read again, once, where it does not tell of it yet."""
    assert go(source.base, dest).status == DONE
    tell(site, (20, NEW))
    before = source.reply("/set/changelist.xml")
    tell(site, (20, NEW), (30, NEWEST))
    source.pages["/set/changelist.xml"] = sometimes(1, before, source.reply("/set/changelist.xml"))
    source.pages[PATH] = Reply(NEWEST, modified=late(30))
    source.forget()
    ran = go(source.base, dest)
    assert (ran.status, ran.one.failed, tree(dest)["f2.txt"]) == (DONE, 0, NEWEST)
    assert source.requests(PATH) == [PATH] * 3


def test_a_change_of_the_same_second_is_no_failure(source: Source, site: Site, dest: Path) -> None:
    """`Last-Modified` cannot tell it from the one before; the Change List that is read again can."""
    assert go(source.base, dest).status == DONE
    tell(site, (20, NEW))
    before = source.reply("/set/changelist.xml")
    tell(site, (20, NEW), (20.5, NEWEST))
    source.pages["/set/changelist.xml"] = sometimes(1, before, source.reply("/set/changelist.xml"))
    source.pages[PATH] = Reply(NEWEST, modified=late(20))
    ran = go(source.base, dest)
    assert (ran.status, ran.one.failed, tree(dest)["f2.txt"]) == (DONE, 0, NEWEST)


def test_what_is_deleted_meanwhile_is_no_failure(source: Source, site: Site, dest: Path) -> None:
    """404 of what was listed a moment ago: a later entry that says so is looked for, once."""
    assert go(source.base, dest).status == DONE
    tell(site, (20, NEW))
    before = source.reply("/set/changelist.xml")
    gone = [site.change(20, "updated", "f2.txt", NEW), site.change(21, "deleted", "f2.txt")]
    site.publish_changes(10, entries=gone)
    source.pages["/set/changelist.xml"] = sometimes(1, before, source.reply("/set/changelist.xml"))
    source.pages[PATH] = Reply(b"", 404)
    source.forget()
    ran = go(source.base, dest)
    assert (ran.status, ran.one.failed, ran.one.deleted, "f2.txt" in tree(dest)) == (DONE, 0, 1, False)
    assert source.requests("/set/changelist.xml") == ["/set/changelist.xml"] * 2


def test_another_hash_is_fetched_again(source: Source, site: Site, dest: Path) -> None:
    """What the Change List tells is another state than the one that came."""
    tell(site, (20, NEW), (30, NEWEST))
    source.pages[PATH] = sometimes(1, Reply(NEW, modified=late(20)), Reply(NEWEST, modified=late(30)))
    source.forget()
    ran = go(source.base, dest)
    assert (ran.status, ran.one.failed, tree(dest)["f2.txt"]) == (DONE, 0, NEWEST)
    assert source.requests(PATH) == [PATH] * 3
    assert is_clean(dest)


def test_another_algorithm_confirms_it(source: Source, site: Site, dest: Path) -> None:
    """The list has md5, the change sha-256: what is held is hashed anew."""
    md5 = f"md5:{hashlib.md5(OLD).hexdigest()}"
    site.publish_list([*(site.resource(n) for n in site.files if n != "f2.txt"), url(site.uri("f2.txt"), hash=md5)])
    source.pages[PATH] = Reply(NEW, modified=late(20))
    tell(site, (20, NEW))
    source.forget()
    assert go(source.base, dest).status == DONE
    assert (tree(dest)["f2.txt"], source.requests(PATH)) == (NEW, [PATH, PATH])
    assert check(source.base, dest).verdict == "in sync"


def test_a_deletion_settles_it(source: Source, site: Site, dest: Path) -> None:
    """What is newer than listed, and gone by now, is neither held nor failed."""
    source.pages[PATH] = Reply(NEW, modified=late(20))
    site.publish_changes(10, entries=[site.change(30, "deleted", "f2.txt")])
    ran = go(source.base, dest)
    assert (ran.one.failed, ran.one.newer_than_listed, "f2.txt" in tree(dest)) == (0, 0, False)
    assert ran.status == DONE
    assert is_clean(dest)


def test_a_coded_answer_is_kept_as_it_will_lie(source: Source, site: Site, dest: Path) -> None:
    """AMB-16: gzip that nobody asked for is taken off, of what is newer than listed as well."""
    answer = coded(NEW)
    source.pages[PATH] = Reply(answer.body, headers=dict(answer.headers), modified=late(20))
    tell(site, (20, NEW))
    source.forget()
    assert go(source.base, dest).status == DONE
    assert (tree(dest)["f2.txt"], source.requests(PATH)) == (NEW, [PATH, PATH])
    assert gzip.decompress(answer.body) == NEW


def test_an_unconfirmed_copy_gives_way_to_a_later_one(source: Source, site: Site, dest: Path) -> None:
    source.pages[PATH] = Reply(NEW, modified=late(500))
    assert go(source.base, dest).one.newer_than_listed == 1
    source.pages[PATH] = Reply(NEWEST, modified=late(600))
    ran = go(source.base, dest, baseline=True)
    assert (ran.status, ran.one.newer_than_listed, tree(dest)["f2.txt"]) == (FAILED, 1, NEWEST)


def test_a_newer_list_confirms_it_without_a_change(source: Source, site: Site, dest: Path) -> None:
    """A source of lists alone: the next one settles what is unconfirmed."""
    site.publish_capabilities("resourcelist")
    source.pages[PATH] = Reply(NEW, modified=late(500))
    assert go(source.base, dest).status == FAILED
    site.files["f2.txt"] = NEW
    site.publish_list(when=600)
    source.forget()
    ran = go(source.base, dest)
    assert (ran.status, ran.one.newer_than_listed, source.requests(PATH)) == (DONE, 0, [])


def test_what_fails_the_second_time_is_a_failure(source: Source, site: Site, dest: Path) -> None:
    """And it is tried again by the next run."""
    source.pages[PATH] = sometimes(1, Reply(NEW, modified=late(500)), Reply(b"", 404))
    ran = go(source.base, dest)
    assert (ran.status, ran.one.failed, ran.one.failures[0].tries) == (FAILED, 1, 1)
    assert is_clean(dest)
    source.pages[PATH] = Reply(OLD)
    assert go(source.base, dest).status == DONE


def test_what_comes_as_listed_the_second_time_is_verified(source: Source, site: Site, dest: Path) -> None:
    """A cache that answered with other octets and a time of its own is gone past."""

    def cache(handler: Handler) -> Reply:
        fresh = handler.headers.get("Cache-Control") == "no-cache"
        return Reply(OLD if fresh else b"of a cache", modified=late(0 if fresh else 500))

    source.pages[PATH] = cache
    ran = go(source.base, dest)
    assert (ran.status, ran.one.failed, ran.one.newer_than_listed, tree(dest)["f2.txt"]) == (DONE, 0, 0, OLD)


def test_a_redirect_to_another_origin_is_not_kept(source: Source, site: Site, dest: Path) -> None:
    """What another host sends is only right or wrong."""
    with Source() as other:
        other.pages["/x"] = Reply(NEW, modified=late(20))
        source.pages[PATH] = redirect(f"{other.base}/x")
        tell(site, (20, NEWEST))
        ran = go(source.base, dest, any_host=True)
        assert (ran.status, ran.one.failed, "f2.txt" in tree(dest)) == (FAILED, 1, False)


def test_a_damaged_copy_gives_way(source: Source, site: Site, dest: Path) -> None:
    """What is not there any more, or was changed, is no verified copy."""
    assert go(source.base, dest).status == DONE
    source.pages[PATH] = Reply(NEW, modified=late(500))
    (dest / "f2.txt").unlink()
    ran = go(source.base, dest, repair=True)
    assert (ran.status, ran.one.newer_than_listed, tree(dest)["f2.txt"]) == (FAILED, 1, NEW)


def test_a_run_that_breaks_off_leaves_it_unconfirmed(source: Source, site: Site, dest: Path) -> None:
    """The changes that the next run reads confirm it."""
    source.pages[PATH] = Reply(NEW, modified=late(20))
    tell(site, (20, NEW))
    changes = source.pages.pop("/set/changelist.xml")
    source.pages["/set/changelist.xml"] = Reply(b"<urlset", 200)
    ran = go(source.base, dest)
    assert (ran.status, ran.one.failed, ran.one.newer_than_listed) == (Exit.SOURCE, 0, 1)
    assert is_clean(dest)
    source.pages["/set/changelist.xml"] = changes
    ran = go(source.base, dest)
    assert (ran.status, ran.one.failed, tree(dest)["f2.txt"]) == (DONE, 0, NEW)


@pytest.mark.parametrize("option", ["repair", "baseline"])
def test_a_repair_fetches_what_is_unconfirmed_again(option: str, source: Source, site: Site, dest: Path) -> None:
    """Where the octets were wrong after all, and the source has what it lists by now."""
    source.pages[PATH] = Reply(NEW, modified=late(500))
    assert go(source.base, dest).one.newer_than_listed == 1
    source.pages[PATH] = Reply(OLD, modified=late(0))
    ran = go(source.base, dest, repair=option == "repair", baseline=option == "baseline")
    assert (ran.status, ran.one.newer_than_listed, tree(dest)["f2.txt"]) == (DONE, 0, OLD)
    assert check(source.base, dest).verdict == "in sync"


def test_a_list_without_hashes_confirms_it(source: Source, site: Site, dest: Path) -> None:
    """A later list of its length confirms what was placed unconfirmed, by a 304 too; one of another length does not."""
    site.publish_capabilities("resourcelist")

    def publish(when: float, length: int) -> None:
        body = {name: length if name == "f2.txt" else len(site.files[name]) for name in site.files}
        entries = [url(site.uri(n), at(when if n == "f2.txt" else 0), length=body[n]) for n in body]
        site.publish_list(entries, when=when)

    publish(10, len(OLD))
    source.pages[PATH] = Reply(NEW, modified=late(500))
    ran = go(source.base, dest)
    assert (ran.status, ran.one.newer_than_listed) == (FAILED, 1)
    publish(400, len(OLD))
    ran = go(source.base, dest)
    assert (ran.status, ran.one.newer_than_listed) == (FAILED, 1)
    publish(600, len(NEW))
    ran = go(source.base, dest)
    assert (ran.status, ran.one.newer_than_listed, tree(dest)["f2.txt"]) == (DONE, 0, NEW)
    assert go(source.base, dest).status == DONE
