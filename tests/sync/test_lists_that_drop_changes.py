"""Change Lists that drop old entries between polls: with and without `from`, read in time and too late.

DST-5.1, DST-5.2, DST-C4, DST-F12, RS-TIME-08, AMB-22.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.cli import run
from tests.support.copying import DONE, FAILED, UNDETERMINED, Ran, check, go, tree
from tests.support.fake_source import Reply, Site, Source, at

LIST = "/set/changelist.xml"
TIMES = pytest.mark.parametrize("times", [True, False], ids=["times", "no times"])


def publish(site: Site, last: int, *, from_: bool = False, times: bool = True) -> None:
    """The last so many changes, under the same `from` as ever, or none."""
    told = [one for one in site.changes if one[0] > 10]
    more: dict[str, Any] = {} if times else {"datetime": None}
    entries = [site.change(*one, **more) for one in told[-last:]] if last else []
    site.publish_changes(10, entries=entries, **({} if from_ else {"from": None}))


def work(site: Site, count: int) -> None:
    for number in range(count):
        site.put(f"f{number % 3}.txt", b"at %d" % site.clock)


@TIMES
@pytest.mark.parametrize("last", [40, 6, 4])
def test_a_list_without_from_that_drops_what_was_read(
    last: int, times: bool, source: Source, site: Site, dest: Path
) -> None:
    """DST-C10: what was read does not come first any more, so the Resource List decides, and no content is fetched."""
    work(site, 30)
    publish(site, last, times=times)
    assert go(source.base, dest).status == DONE
    for count in (3, 1, 2):
        work(site, count)
        publish(site, last, times=times)
        source.forget()
        ran = go(source.base, dest)
        assert ("DST-C10" in ran.rules()) == (last < 40)
        if last < 40 and not times:  # nothing tells that what was done last is there
            assert ran.status == UNDETERMINED
            site.publish_list()
            ran = go(source.base, dest)
        assert (ran.status, tree(dest)) == (DONE, dict(site.files))
        assert not ran.rules() & {"DST-C4", "DST-F12"}
        assert len([path for path in source.requests() if "/resources/" in path]) == min(count, 3)
        assert go(source.base, dest).one.process == "none"


def latest_of_each(site: Site, order: str) -> list[str]:
    """One entry a resource, as a query of a database gives them: the latest change of each."""
    latest = {one[2]: one for one in site.changes if one[0] > 10}
    by_time = sorted(latest.values(), key=lambda one: one[0], reverse=True)
    chosen = by_time if order == "newest first" else sorted(by_time, key=lambda one: one[2])
    return [site.change(*one) for one in chosen]


@pytest.mark.parametrize("order", ["newest first", "by name"])
@pytest.mark.parametrize("is_later", [True, False], ids=["later", "in the same second"])
def test_a_list_without_from_that_tells_news_in_front_of_what_was_read(
    is_later: bool, order: str, source: Source, site: Site, dest: Path
) -> None:
    """DST-C10: it is not followed, though the list ends as it did; a new Resource List has what is new."""
    for number in range(30):
        site.put(f"{number:02d}.txt", b"one %d" % number)
    site.put("01.txt", b"last")
    site.publish_list()
    site.publish_changes(10, entries=latest_of_each(site, order), **{"from": None})
    assert go(source.base, dest).status == DONE
    news, dropped = ("25.txt", "/20.txt") if order == "newest first" else ("00.txt", "/07.txt")
    site.put(news, b"news")
    if not is_later:
        site.changes[-1] = (site.changes[-2][0], *site.changes[-1][1:])
    site.publish_changes(
        10, entries=[one for one in latest_of_each(site, order) if dropped not in one], **{"from": None}
    )
    if is_later:
        assert go(source.base, dest).status == UNDETERMINED
        site.publish_list()
    assert go(source.base, dest).status == DONE
    assert tree(dest)[news] == b"news"


def test_a_list_of_whole_days_that_tells_news_of_the_last_one_in_front(source: Source, site: Site, dest: Path) -> None:
    """DST-C10: what was read does not come first any more: the next Resource List has what is new."""

    def entries(without: str = "") -> list[str]:
        latest = {one[2]: one for one in site.changes if one[0] > 10 and one[2] != without}
        return [site.change(*latest[name], datetime=at(latest[name][0])[:10]) for name in sorted(latest)]

    for number in range(30):
        site.clock += 21_600
        site.put(f"{number:02d}.txt", b"one %d" % number)
    site.publish_list(when=site.clock + 86_400)
    site.publish_changes(10, entries=entries(), **{"from": None})
    assert go(source.base, dest).status == DONE
    site.put("00.txt", b"news")
    site.publish_changes(10, entries=entries(without="07.txt"), **{"from": None})
    assert go(source.base, dest).status == UNDETERMINED
    site.publish_list(when=site.clock + 2 * 86_400)
    assert go(source.base, dest).status == DONE
    assert tree(dest)["00.txt"] == b"news"


@pytest.mark.parametrize("a_day", [3, 200])
def test_a_list_of_whole_days_that_drops_what_was_read(a_day: int, source: Source, site: Site, dest: Path) -> None:
    """DST-C10: the Resource List decides; nothing is fetched that was, however many a day has."""

    def entries() -> list[str]:
        told = [one for one in site.changes if one[0] > 10][-40:]
        return [site.change(*one, datetime=at(one[0])[:10]) for one in told]

    def days(count: int) -> None:
        for _ in range(count):
            site.clock += 86_400 / a_day
            site.put(f"{len(site.changes):03d}.txt", b"at %d" % site.clock)

    days(40)
    site.publish_changes(10, entries=entries(), **{"from": None})
    assert go(source.base, dest).status == DONE
    for count in (2, 5):
        days(count)
        site.publish_changes(10, entries=entries(), **{"from": None})
        source.forget()
        assert go(source.base, dest).status == UNDETERMINED
        site.publish_list()
        ran = go(source.base, dest)
        assert (ran.status, tree(dest)) == (DONE, dict(site.files))
        assert len([path for path in source.requests() if "/resources/" in path]) == count


def test_a_failure_that_was_forgotten_stays_so(source: Source, site: Site, dest: Path) -> None:
    """DST-F6: a list that grows tells nothing of it again."""
    work(site, 5)
    publish(site, 6)
    assert go(source.base, dest).status == DONE
    site.put("new.txt", b"new")
    source.pages["/set/resources/new.txt"] = Reply(b"", 403)
    publish(site, 6)
    assert go(source.base, dest).status == FAILED
    forget(dest, site.uri("new.txt"))
    for last in (7, 8):
        work(site, 1)
        publish(site, last)
        assert go(source.base, dest).status == DONE
        assert "new.txt" not in tree(dest)


def forget(dest: Path, uri: str) -> None:
    assert run(["forget", str(dest), uri]) == DONE


def lose(source: Source, site: Site, dest: Path, *, from_: bool) -> Ran:
    """A poll that came too late: of what is told since the last one the first two have gone."""
    work(site, 5)
    publish(site, 5, from_=from_)
    assert go(source.base, dest).status == DONE
    site.put("f4.txt", b"never told")
    site.drop("f3.txt")
    work(site, 3)
    publish(site, 3, from_=from_)
    return go(source.base, dest)


@pytest.mark.parametrize("from_", [True, False], ids=["from stays", "no from"])
def test_changes_that_may_be_lost_are_told_until_a_newer_list(
    from_: bool, source: Source, site: Site, dest: Path
) -> None:
    """DST-C10: what was done last has left the list; no later run says that all is well."""
    ran = lose(source, site, dest, from_=from_)
    assert ran.status == UNDETERMINED
    assert "DST-C10" in ran.rules()
    assert go(source.base, dest).status == UNDETERMINED
    work(site, 1)
    publish(site, 4, from_=from_)
    assert go(source.base, dest).status == UNDETERMINED
    assert check(source.base, dest).verdict != "in sync"
    site.publish_list(when=12)
    assert go(source.base, dest).status == UNDETERMINED  # of before
    assert go(source.base, dest, baseline=True).status == UNDETERMINED  # nor do changes that are read again settle it
    assert go(source.base, dest).status == UNDETERMINED
    site.publish_list()
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)
    assert go(source.base, dest).status == DONE
    assert go(source.base, dest).one.process == "none"
    assert check(source.base, dest).verdict == "in sync"


@pytest.mark.parametrize("from_", [True, False], ids=["from stays", "no from"])
def test_a_list_that_is_whole_again(from_: bool, source: Source, site: Site, dest: Path) -> None:
    """A list that was read while it was written anew: the next one has all that it had."""
    work(site, 5)
    publish(site, 5, from_=from_)
    assert go(source.base, dest).status == DONE
    publish(site, 0, from_=from_)
    assert go(source.base, dest).status == UNDETERMINED
    site.put("f4.txt", b"later")
    publish(site, 6, from_=from_)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)
    assert go(source.base, dest).one.process == "none"


def test_a_list_that_drops_what_was_read_under_the_same_from(source: Source, site: Site, dest: Path) -> None:
    """DST-C10: it is told, and nothing can be lost as long as the last change that was read is there."""
    work(site, 30)
    publish(site, 8, from_=True)
    assert go(source.base, dest).status == DONE
    work(site, 3)
    publish(site, 8, from_=True)
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert "DST-C10" in ran.rules()
    assert tree(dest) == dict(site.files)
    assert go(source.base, dest).one.process == "none"
    assert check(source.base, dest).verdict != "not in sync"


def test_position_time(source: Source, site: Site, dest: Path) -> None:
    """The position is that of the last change that was done, until a Resource List decides what has left the list."""
    lose(source, site, dest, from_=True)
    assert go(source.base, dest).one.position == at(15)
    site.publish_list()
    assert go(source.base, dest).one.position == at(site.clock)
