"""Lists that contradict themselves or each other: swapped changes, an `at` that is too late; nothing is lost.

DST-4.5, DST-5.2, DST-C4, DST-C9, RS-CL-05, AMB-27, AMB-35.
"""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.copying import DONE, SOURCE, UNDETERMINED, check, go, tree
from tests.support.fake_source import Reply, Site, Source, at, document, ln, url


def swapped(site: Site, **more: Any) -> list[str]:
    """All changes after the first list, the last two the other way round."""
    entries = [site.change(*one, **more) for one in site.changes if one[0] >= 10]
    return [*entries[:-2], entries[-1], entries[-2]]


LATE = pytest.mark.parametrize("late", [0, 20], ids=["at as it is", "at too late"])
"""The `at` of the Resource List: what it should be, or later than changes to come."""


@pytest.mark.parametrize("first", [True, False], ids=["first run", "later run"])
@pytest.mark.parametrize("listed", [True, False], ids=["a new Resource List", "the old one"])
@LATE
def test_two_states_of_one_resource_swapped(
    late: int, listed: bool, first: bool, source: Source, site: Site, dest: Path
) -> None:
    """DST-C9, DST-C10: a list whose times fall is not followed; what a later Resource List has is done."""
    if not first:
        assert go(source.base, dest).status == DONE
    site.put("f3.txt", b"then")
    site.put("new.txt", b"then")
    site.put("new.txt", b"now")
    site.put("f3.txt", b"now")
    entries = [site.change(*site.changes[n]) for n in (-1, -4, -2, -3)]
    if listed:
        site.publish_list(when=site.clock + late)
    site.publish_changes(10, entries=entries)
    for _ in range(2):
        assert go(source.base, dest).status == (DONE if listed else UNDETERMINED)
        assert (tree(dest) == dict(site.files)) == listed
        assert check(source.base, dest).verdict == ("in sync" if listed else "undetermined")
    site.put("f4.txt", b"and on")
    site.publish_list()
    site.publish_changes(10)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


@pytest.mark.parametrize("first", [True, False], ids=["first run", "later run"])
@pytest.mark.parametrize("listed", [True, False], ids=["a new Resource List", "the old one"])
@pytest.mark.parametrize("hashes", [True, False], ids=["hashes", "no hashes"])
@LATE
def test_a_deletion_and_what_was_before_it_swapped(
    late: int, hashes: bool, listed: bool, first: bool, source: Source, site: Site, dest: Path
) -> None:
    """DST-C9, DST-C10: what a later Resource List has not is deleted; on the word of such a list nothing is."""
    more: dict[str, Any] = {} if hashes else {"hash": None, "length": None}
    if not first:
        assert go(source.base, dest).status == DONE
    site.put("f3.txt", b"then")
    site.drop("f3.txt")
    if listed:
        site.publish_list(when=site.clock + late)
    site.publish_changes(10, entries=swapped(site, **more))
    for _ in range(2):
        assert go(source.base, dest).status == (DONE if listed else UNDETERMINED)
        assert ("f3.txt" not in tree(dest)) == (listed or first)  # which is not there to be copied


@pytest.mark.parametrize("hashes", [True, False], ids=["hashes", "no hashes"])
@LATE
def test_a_creation_and_the_deletion_before_it_swapped(
    late: int, hashes: bool, source: Source, site: Site, dest: Path
) -> None:
    """AMB-35: a deletion too many would be a loss; what the Resource List says is there stays."""
    more: dict[str, Any] = {} if hashes else {"hash": None, "length": None}
    assert go(source.base, dest).status == DONE
    held = tree(dest)
    site.drop("f3.txt")
    site.put("f3.txt", b"again")
    site.publish_changes(10, entries=swapped(site, **more))
    assert go(source.base, dest).status == UNDETERMINED
    assert tree(dest) == held
    site.publish_list(when=site.clock + late)
    site.publish_changes(11.5, entries=swapped(site, **more))
    for _ in range(2):
        assert go(source.base, dest).status == DONE
        assert tree(dest) == dict(site.files)


@pytest.mark.parametrize("start", [10, 11], ids=["the same from", "another from"])
@pytest.mark.parametrize("order", ["as it is", "swapped", "inserted"])
@LATE
def test_changes_that_are_told_after_a_list_that_is_later(
    late: int, order: str, start: int, source: Source, site: Site, dest: Path
) -> None:
    """DST-4.5, DST-5.2: what the Change List did not tell when the Resource List was read is new, whatever its `at`."""
    site.put("f1.txt", b"first")
    site.publish_list(when=site.clock + late)
    site.publish_changes(10)
    assert go(source.base, dest).status == DONE
    site.put("f2.txt", b"second")
    site.drop("f3.txt")
    site.put("f5.txt", b"third")
    site.put("f6.txt", b"fourth")
    entries = swapped(site) if order == "swapped" else [site.change(*one) for one in site.changes if one[0] >= start]
    if order == "inserted":
        site.publish_changes(start, entries=entries[-1:])
        assert go(source.base, dest).status in (DONE, UNDETERMINED)
    site.publish_changes(start, entries=entries)
    ran = go(source.base, dest)
    if order == "swapped":
        assert ran.status == UNDETERMINED
    if order != "as it is":  # among what was done, or out of order: only a Resource List tells what they brought
        site.publish_list(when=site.clock + 40)
        ran = go(source.base, dest)
    assert ran.status == DONE
    assert tree(dest) == dict(site.files)


def test_an_at_of_the_next_hour_hides_no_change(source: Source, site: Site, dest: Path) -> None:
    """AMB-27, DST-C8: local time that is called UTC; no list tells of what has not happened yet."""
    now = dt.datetime.now(dt.UTC)

    def moment(seconds: float) -> str:
        return (now + dt.timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")

    site.publish_list(at=moment(3600))
    site.publish_changes(entries=[], from_=moment(-10))
    assert go(source.base, dest).status == DONE
    site.put("f1.txt", b"one, new")
    site.publish_changes(entries=[site.change(*site.changes[-1], datetime=moment(5))], from_=moment(-5))
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


@pytest.mark.parametrize(("late", "status"), [(1, DONE), (3600, UNDETERMINED)])
def test_a_list_of_the_next_hour_proves_no_past(late: int, status: int, source: Source, site: Site, dest: Path) -> None:
    """AMB-27: of which moment it is nobody knows; a clock that runs a second ahead is no such case."""
    now = dt.datetime.now(dt.UTC)

    def moment(seconds: float) -> str:
        return (now + dt.timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")

    site.publish_list(at=moment(late - 60))
    if late > 60:
        site.publish_list(at=moment(late))
    site.publish_changes(entries=[], from_=moment(-100))
    assert go(source.base, dest, at=moment(-30)).status == status


def test_the_source_still_has_what_an_old_deletion_names(source: Source, site: Site, dest: Path) -> None:
    """AMB-35: told late, of a time before the Resource List that lists it: asked for, and kept."""
    site.publish_list(when=30)
    site.publish_changes(10, entries=[])
    assert go(source.base, dest).status == DONE
    late = site.change(20, "deleted", "f3.txt")
    site.publish_changes(10, entries=[late])
    assert go(source.base, dest).status == DONE
    assert "f3.txt" in tree(dest)


def test_a_deletion_out_of_order_and_before_the_list(source: Source, site: Site, dest: Path) -> None:
    """AMB-35, DST-C10: by its time it is older than the Resource List, by its place it is not: it is not followed."""
    site.publish_list(when=30)
    site.publish_changes(10, entries=[])
    assert go(source.base, dest).status == DONE
    site.drop("f3.txt")
    site.put("f4.txt", b"four, new")
    held = tree(dest)
    site.publish_changes(10, entries=swapped(site))
    assert go(source.base, dest).status == UNDETERMINED
    assert tree(dest) == held
    site.publish_list(when=31)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


def test_what_an_old_deletion_names_is_gone(source: Source, site: Site, dest: Path) -> None:
    """DST-4.5: the `at` of the Resource List was too late: asked for, and deleted."""
    site.publish_list(when=30)
    site.publish_changes(10, entries=[])
    assert go(source.base, dest).status == DONE
    source.pages["/set/resources/f3.txt"] = Reply(b"gone", 410)
    site.publish_changes(10, entries=[site.change(20, "deleted", "f3.txt")])
    for _ in range(2):
        assert go(source.base, dest).status == DONE
        assert "f3.txt" not in tree(dest)


@pytest.mark.parametrize("hashes", [True, False], ids=["hashes", "no hashes"])
def test_a_list_without_the_changes_before_its_at(hashes: bool, source: Source, site: Site, dest: Path) -> None:
    """DST-4.5, AMB-25: what the Change List says of before `at`, and the Resource List does not have, is asked for."""
    more: dict[str, Any] = {} if hashes else {"hash": None, "length": None}
    site.put("f4.txt", b"four, before all")
    early = dict(site.files)
    site.put("f1.txt", b"one, and then")
    site.put("new.txt", b"new")
    site.drop("f3.txt")
    site.put("gone.txt", b"gone")
    site.drop("gone.txt")
    now, site.files = site.files, early
    site.publish_list(when=site.clock + 100, entries=[site.resource(name, **more) for name in early])
    site.files = now
    site.publish_changes(10, entries=[site.change(*one, **more) for one in site.changes if one[0] > 10])
    ran = go(source.base, dest)
    assert tree(dest) == now
    assert ("AMB-25" in ran.rules(), ran.status) == (True, DONE)
    found = check(source.base, dest)
    assert (found.verdict, found.sets[0].contradicted) == ("undetermined", 3 if hashes else 2)
    (dest / "f4.txt").write_bytes(b"four, by another hand")
    if hashes:
        assert check(source.base, dest).verdict == "not in sync"
    go(source.base, dest, repair=True)
    site.publish_list(when=site.clock + 200)
    ran = go(source.base, dest, baseline=True)
    assert (ran.status, "AMB-25" in ran.rules()) == (DONE, False)
    assert tree(dest) == now
    assert check(source.base, dest).verdict == "in sync"


def test_an_audit_by_a_list_without_the_changes_before_its_at(source: Source, site: Site, dest: Path) -> None:
    """DST-Q: a copy that was made by such a list alone is not called in sync."""
    early = dict(site.files)
    site.publish_capabilities("resourcelist")
    site.publish_list(when=50)
    assert go(source.base, dest).status == DONE
    site.put("f1.txt", b"one, and then")
    site.publish_changes(10)
    site.publish_capabilities("resourcelist", "changelist")
    assert tree(dest) == early
    assert check(source.base, dest).verdict == "undetermined"


def test_what_is_left_out_makes_no_audit_undetermined(source: Source, site: Site, dest: Path) -> None:
    """AMB-25, DST-S12: a change of before `at` that the Resource List does not have, of what the user leaves out."""
    site.put("new.txt", b"new")
    del site.files["new.txt"]
    site.clock += 100
    site.publish()
    assert go(source.base, dest, exclude=("new*",)).status == DONE
    assert tree(dest) == dict(site.files)
    assert check(source.base, dest, exclude=("new*",)).verdict == "in sync"


@pytest.mark.parametrize("renewed", [False, True], ids=["the old Resource List", "a new one"])
def test_changes_put_at_their_place_among_others(renewed: bool, source: Source, site: Site, dest: Path) -> None:
    """DST-C10: each list leaves out one change, which the next one has; a whole one is as long as the one before."""
    assert go(source.base, dest).status == DONE
    for number in range(4):
        site.put("f1.txt", b"one, %d" % number)
        site.put("f2.txt", b"two, %d" % number)
        if number < 3:
            site.put(f"new{number}", b"new")
        else:
            site.drop("new0")
        site.put("f3.txt", b"three, %d" % number)
        if renewed and number == 1:
            site.publish_list(when=site.clock - 3.5)
        told = [one for one in site.changes if one[0] > 10]
        site.publish_changes(10, entries=[site.change(*one) for one in (*told[:-2], told[-1])])
        ran = go(source.base, dest)
        assert ran.status == DONE
        if number:
            assert "DST-C10" in ran.rules()
            assert f"new{number - 1}" in tree(dest)
    site.publish_changes(10)
    source.forget()
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)
    assert [path for path in source.requests() if "/resources/" in path] == []
    assert check(source.base, dest).verdict == "in sync"


def test_an_index_of_indexes_that_stays_as_it_is(source: Source, site: Site, dest: Path) -> None:
    """AMB-65, DST-C2: that it is unchanged says nothing of the index in it, which has got the next list."""
    outer = [url(f"{site.root}/inner.xml", tag="sitemap", **{"from": at(10)})]
    head: dict[str, Any] = {"capability": "changelist", "from": at(10)}
    site.serve("/set/changelist.xml", document(outer, "sitemapindex", links=site.up(), **head))
    bounds: list[float] = [10]
    for number in range(4):
        spans = [*pairwise(bounds), (bounds[-1], None)]
        parts: list[str] = []
        for n, (begin, until) in enumerate(spans):
            told = [site.change(*one) for one in site.changes if begin <= one[0] < (until or 1e9) and one[0] > 10]
            times: dict[str, Any] = {"from": at(begin), "until": None if until is None else at(until)}
            links = site.up() + ln("index", f"{site.root}/changelist.xml")
            site.serve(f"/set/c{n}.xml", document(told, links=links, capability="changelist", **times))
            parts.append(url(f"{site.root}/c{n}.xml", tag="sitemap", **times))
        site.serve("/set/inner.xml", document(parts, "sitemapindex", links=site.up(), **head))
        assert go(source.base, dest).status == DONE
        assert tree(dest) == dict(site.files)
        site.put("f1.txt", b"one, %d" % number)
        bounds.append(site.clock + 0.5)


def test_a_list_that_is_gone_and_still_in_its_index(source: Source, site: Site, dest: Path) -> None:
    """DST-C5, DST-5.1: the list that was polled has got its last changes unseen, and cannot be read: none is passed."""

    def publish(*bounds: float) -> None:
        parts: list[str] = []
        for n, (begin, until) in enumerate([*pairwise(bounds), (bounds[-1], None)]):
            told = [site.change(*one) for one in site.changes if begin < one[0] < (until or 1e9)]
            times: dict[str, Any] = {"from": at(begin), "until": None if until is None else at(until)}
            site.serve(f"/set/c{n}.xml", document(told, links=site.up(), capability="changelist", **times))
            parts.append(url(f"{site.root}/c{n}.xml", tag="sitemap", **times))
        head: dict[str, Any] = {"capability": "changelist", "from": at(10)}
        site.serve("/set/changelist.xml", document(parts, "sitemapindex", links=site.up(), **head))

    publish(10)
    assert go(source.base, dest).status == DONE
    site.put("f1.txt", b"one, and then")
    first = site.clock + 0.5
    site.put("f2.txt", b"two, and then")
    publish(10, first)
    kept = source.pages.pop("/set/c0.xml")
    for _ in range(2):
        assert go(source.base, dest).status == SOURCE
    source.pages["/set/c0.xml"] = kept
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


@pytest.mark.parametrize("options", [{"delete": False}, {"max_delete": 0.0}, {"exclude": ("*f2*",)}], ids=str)
def test_what_was_not_done_on_purpose_is_not_missed(
    options: dict[str, Any], source: Source, site: Site, dest: Path
) -> None:
    """DST-C4: nothing was put among changes that are done by a list that goes on after one that is not to be done."""
    assert go(source.base, dest, **options).status == DONE
    site.put("f2.txt", b"two, and then") if "exclude" in options else site.drop("f2.txt")
    for number in range(2):
        site.publish_changes(10)
        assert "DST-C4" not in go(source.base, dest, **options).rules()
        site.put("f1.txt", b"one, %d" % number)
    site.publish_changes(10, entries=[site.change(*one) for one in site.changes if one[0] > 10])
    assert "DST-C4" not in go(source.base, dest, **options).rules()


def test_a_list_that_follows_in_the_index_and_is_missing(source: Source, site: Site, dest: Path) -> None:
    """DST-C5: the polled list has closed, and the next one in the index cannot be read: it is not passed over."""

    def publish(*bounds: float) -> None:
        parts: list[str] = []
        for n, (begin, until) in enumerate([*pairwise(bounds), (bounds[-1], None)]):
            told = [site.change(*one) for one in site.changes if begin < one[0] < (until or 1e9)]
            times: dict[str, Any] = {"from": at(begin), "until": None if until is None else at(until)}
            links = site.up() + ln("index", f"{site.root}/changelist.xml")
            site.serve(f"/set/c{n}.xml", document(told, links=links, capability="changelist", **times))
            parts.append(url(f"{site.root}/c{n}.xml", tag="sitemap", **times))
        head: dict[str, Any] = {"capability": "changelist", "from": at(10)}
        site.serve("/set/changelist.xml", document(parts, "sitemapindex", links=site.up(), **head))

    publish(10)
    assert go(source.base, dest).status == DONE
    site.put("f1.txt", b"one, and then")
    first = site.clock + 0.5
    site.put("f2.txt", b"two, and then")
    publish(10, first)
    kept = source.pages.pop("/set/c1.xml")
    for _ in range(2):
        assert go(source.base, dest).status == SOURCE
    source.pages["/set/c1.xml"] = kept
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


@pytest.mark.parametrize("what", ["two states", "created late", "deleted and created", "created and deleted"])
@pytest.mark.parametrize("hashes", [True, False], ids=["hashes", "no hashes"])
@pytest.mark.parametrize("place", [0, -1], ids=["the newest first", "an old one last"])
def test_one_change_that_stands_elsewhere(
    place: int, hashes: bool, what: str, source: Source, site: Site, dest: Path
) -> None:
    """DST-C9, DST-C10, DST-Q: nothing is done of such a list, and no audit says that all is well, until a newer one."""
    more: dict[str, Any] = {} if hashes else {"hash": None, "length": None}
    for name in ("f1.txt", "f2.txt"):
        site.put(name, b"then")
    if what == "created and deleted":
        site.put("n1", b"then")
    if what == "deleted and created":
        site.drop("f2.txt")
    site.publish_changes(10, entries=[site.change(*one, **more) for one in site.changes if one[0] > 10])
    assert go(source.base, dest).status == DONE
    held = tree(dest)
    site.put("f3.txt", b"now")
    if what == "created and deleted":
        site.drop("n1")
    else:
        site.put("n1" if what == "created late" else "f2.txt", b"now")
    told = [site.change(*one, **more) for one in site.changes if one[0] > 10]
    if place:
        told.append(told.pop(1))
    else:
        told.insert(0, told.pop())
    site.publish_changes(10, entries=told)
    for _ in range(2):
        assert check(source.base, dest).verdict == "undetermined"
        assert go(source.base, dest).status == UNDETERMINED
        assert tree(dest) == held
    site.clock += 10
    site.publish()
    assert go(source.base, dest).status == DONE
    assert check(source.base, dest).verdict == "in sync"
