"""What was passed over is caught up with, what is newer than a list is kept, and what moves is not believed.

DST-5.2, DST-B2, DST-C9, DST-F6, DST-F12, DST-F13.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.copying import DONE, FAILED, SOURCE, UNDETERMINED, check, go, tree
from tests.support.fake_source import Handler, Reply, Site, Source, at, document, url

ALL = {f"f{n}.txt": b"body %d\n" % n for n in range(5)}


# another choice


def narrowed(source: Source, site: Site, dest: Path) -> dict[str, bytes]:
    """A copy that saw changes of f1, f2 and g pass by under another choice."""
    assert go(source.base, dest).status == DONE
    site.put("f1.txt", b"one, new")
    site.drop("f2.txt")
    site.put("g.txt", b"created")
    site.put("f3.txt", b"three, new")
    site.publish_changes(10)
    assert go(source.base, dest, exclude=("f[12].txt", "g.txt")).status == DONE
    assert tree(dest) == ALL | {"f3.txt": b"three, new"}
    return dict(site.files)


def test_a_wider_choice_brings_what_was_passed_over(source: Source, site: Site, dest: Path) -> None:
    """DST-F6, DST-5.2: updates, creations and deletions that a filter left out are not lost."""
    expected = narrowed(source, site, dest)
    source.forget()
    assert go(source.base, dest).status == DONE
    assert tree(dest) == expected
    assert "/set/resources/f3.txt" not in source.requests()
    assert check(source.base, dest).verdict == "in sync"


def test_a_wider_choice_over_lists_that_are_gone_is_told(source: Source, site: Site, dest: Path) -> None:
    """DST-5.1: the changes that were passed over are on offer no more: never in silence."""
    narrowed(source, site, dest)
    site.publish_changes(14)
    assert go(source.base, dest).status == UNDETERMINED
    site.publish_list()
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


def test_a_wider_choice_of_changes_only(source: Source, site: Site, dest: Path) -> None:
    site.publish_capabilities("changelist")
    site.put("a", b"a")
    site.put("b", b"b")
    site.publish_changes(10)
    assert go(source.base, dest, exclude=("*a",)).status == DONE
    assert go(source.base, dest, exclude=("*a",)).status == DONE
    assert list(tree(dest)) == ["b"]
    assert go(source.base, dest).status == DONE
    assert tree(dest) == {"a": b"a", "b": b"b"}
    source.forget()
    assert go(source.base, dest).status == DONE
    assert not [path for path in source.requests() if "resources/" in path]


@pytest.mark.parametrize("cure", ["baseline", "repair"])
def test_a_cure_does_the_changes_again(cure: str, source: Source, site: Site, dest: Path) -> None:
    """DST-F6, DST-B2: asked for a baseline or a repair, the changes since the Resource List are done again."""
    assert go(source.base, dest).status == DONE
    site.put("f1.txt", b"one, new")
    site.publish_changes(10, entries=[])
    assert go(source.base, dest).status == DONE
    site.put("f3.txt", b"three, new")
    site.publish_changes(10, entries=[site.change(*site.changes[-1])])
    assert go(source.base, dest).status == DONE
    site.publish_changes(10)
    wanted: dict[str, Any] = {cure: True}
    ran = go(source.base, dest, **wanted)
    assert ran.status == DONE
    assert tree(dest) == dict(site.files)
    assert ran.one.position == at(12)


@pytest.mark.parametrize("cure", ["baseline", "repair"])
def test_a_cure_does_not_need_changes_that_were_done(cure: str, source: Source, site: Site, dest: Path) -> None:
    """DST-5.1: what is on offer no more had been done, so that it is no gap."""
    assert go(source.base, dest).status == DONE
    site.put("f1.txt", b"one, new")
    site.publish_changes(10)
    assert go(source.base, dest).status == DONE
    site.publish_changes(10.5)
    wanted: dict[str, Any] = {cure: True}
    ran = go(source.base, dest, **wanted)
    assert ran.status == DONE
    assert tree(dest) == dict(site.files)
    assert ran.one.position == at(11)


def test_a_repair_mends_without_a_list(source: Source, site: Site, dest: Path) -> None:
    assert go(source.base, dest).status == DONE
    (dest / "f1.txt").unlink()
    del source.pages["/set/resourcelist.xml"]
    assert go(source.base, dest, repair=True).status == SOURCE
    assert tree(dest) == ALL


# lists that are older than what is held


@pytest.mark.parametrize("timed", [True, False])
def test_an_old_list_forgets_no_failure(timed: bool, source: Source, site: Site, dest: Path) -> None:
    """DST-F6, DST-B2: what was created after the list was made and failed is tried again."""
    assert go(source.base, dest).status == DONE
    site.put("g.txt", b"created")
    site.put("f1.txt", b"one, new")
    served = source.pages.pop("/set/resources/g.txt")
    more: dict[str, Any] = {} if timed else {"datetime": None}
    site.publish_changes(10, entries=[site.change(*change, **more) for change in site.changes[-2:]])
    assert go(source.base, dest).status == FAILED
    assert go(source.base, dest, baseline=True).status == FAILED
    source.pages["/set/resources/g.txt"] = served
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


def test_a_newer_list_forgets_a_failure(source: Source, site: Site, dest: Path) -> None:
    """DST-4.4: what a newer list does not name is gone, and so is its failure."""
    site.publish_capabilities("resourcelist")
    served = source.pages.pop("/set/resources/f1.txt")
    assert go(source.base, dest).status == FAILED
    assert served is not None
    del site.files["f1.txt"]
    site.publish_list(when=20)
    assert go(source.base, dest).status == DONE


@pytest.mark.parametrize("capabilities", [("resourcelist",), ("resourcelist", "changelist")])
@pytest.mark.parametrize("asked", [False, True])
def test_a_stale_list_does_nothing(
    asked: bool, capabilities: tuple[str, ...], source: Source, site: Site, dest: Path
) -> None:
    """DST-F12, DST-B2: a list older than that of the last baseline removes, changes and brings back nothing."""
    site.publish_capabilities(*capabilities)
    assert go(source.base, dest).status == DONE
    old = {"f0.txt": b"older", "f9.txt": b"long gone"}
    for name, body in old.items():
        source.pages[f"/set/resources/{name}"] = Reply(body)
    held, site.files = site.files, old
    site.publish_list(when=5)
    site.files = held
    ran = go(source.base, dest, baseline=asked)
    assert tree(dest) == ALL
    is_compared = asked or "changelist" not in capabilities
    assert ran.status == (UNDETERMINED if is_compared else DONE)
    assert ("DST-F12" in ran.rules()) == is_compared
    site.put("f1.txt", b"one, new")
    site.publish()
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


def test_a_newer_list_beside_changes_that_say_nothing(source: Source, site: Site, dest: Path) -> None:
    """RS-DST-09, DST-Q: a run goes by the Change List; an audit and a baseline by the newer Resource List."""
    assert go(source.base, dest).status == DONE
    site.put("f1.txt", b"one, new", change=False)
    site.put("new.txt", b"new", change=False)
    site.publish_list()
    assert go(source.base, dest).one.process == "none"
    found = check(source.base, dest)
    assert found.verdict == "not in sync"
    assert go(source.base, dest, baseline=True).status == DONE
    assert tree(dest) == dict(site.files)
    assert check(source.base, dest).verdict == "in sync"
    site.publish_list(when=site.clock + 1)
    (dest / "f2.txt").write_bytes(b"by another hand")
    assert (check(source.base, dest).verdict, check(source.base, dest).sets[0].reason) == ("not in sync", None)


def test_an_at_in_the_future_makes_no_list_stale(source: Source, site: Site, dest: Path) -> None:
    """AMB-27: a moment that cannot be meant is no measure for the lists that follow."""
    site.publish_capabilities("resourcelist")
    site.publish_list(at="2999-01-01T00:00:00Z")
    assert go(source.base, dest).status == DONE
    site.put("f1.txt", b"one, new")
    site.publish_list(when=20)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


# components that change while they are read


def parts(site: Site, split: int) -> tuple[bytes, bytes]:
    """Two components, without times of their own in the index."""
    names = list(site.files)
    return (
        document([site.resource(n) for n in names[:split]], links=site.up(), capability="resourcelist", at=at(20)),
        document([site.resource(n) for n in names[split:]], links=site.up(), capability="resourcelist", at=at(20)),
    )


def indexed(site: Site) -> None:
    entries = [url(f"{site.root}/{name}.xml", tag="sitemap") for name in ("one", "two")]
    body = document(entries, "sitemapindex", links=site.up(), capability="resourcelist", at=at(20))
    site.serve("/set/resourcelist.xml", body)


def shifting(source: Source, site: Site, times: int, *, etag: bool) -> Callable[[Handler], Reply]:
    """The second component, whose first resources move to the first one as it is read, so many times."""
    left = [times]
    first, second = parts(site, 2)
    first_after, second_after = parts(site, 4)

    def answer(_handler: Handler) -> Reply:
        left[0] -= 1
        if left[0] >= 0:
            source.pages["/set/one.xml"] = Reply(first_after, etag=etag)
            return Reply(second_after, etag=etag)
        source.pages["/set/one.xml"] = Reply(first, etag=etag)
        return Reply(second, etag=etag)

    source.pages["/set/one.xml"] = Reply(first, etag=etag)
    return answer


@pytest.mark.parametrize("etag", [True, False])
@pytest.mark.parametrize("capabilities", [("resourcelist",), ("resourcelist", "changelist")])
def test_components_that_change_are_read_again(
    capabilities: tuple[str, ...], etag: bool, source: Source, site: Site, dest: Path
) -> None:
    """DST-F13: nothing that is listed is deleted because it moved from one page to another."""
    site.publish_capabilities(*capabilities)
    assert go(source.base, dest).status == DONE
    indexed(site)
    source.pages["/set/two.xml"] = shifting(source, site, 1, etag=etag)
    ran = go(source.base, dest, baseline=True)
    assert ran.status == DONE
    assert "DST-F13" in ran.rules()
    assert tree(dest) == ALL
    assert ran.one.deleted == 0


def test_components_that_never_come_to_rest(source: Source, site: Site, dest: Path) -> None:
    """DST-F13: read a bounded number of times, nothing removed, undetermined where no Change List closes it."""
    site.publish_capabilities("resourcelist")
    assert go(source.base, dest).status == DONE
    indexed(site)
    count = [0]

    def moving(_handler: Handler) -> Reply:
        count[0] += 1
        source.pages["/set/one.xml"] = Reply(parts(site, 2 + count[0] % 2)[0])
        return Reply(parts(site, 4)[1])

    source.pages["/set/one.xml"] = Reply(parts(site, 2)[0])
    source.pages["/set/two.xml"] = moving
    ran = go(source.base, dest, baseline=True)
    assert ran.status == UNDETERMINED
    assert tree(dest) == ALL
    assert count[0] == 3


def test_quiet_components_cost_one_small_question(source: Source, site: Site, dest: Path) -> None:
    """DST-F13: all but the last are asked for again, with If-None-Match where they have an ETag."""
    indexed(site)
    one, two = parts(site, 2)
    source.pages |= {"/set/one.xml": Reply(one), "/set/two.xml": Reply(two)}
    assert go(source.base, dest).status == DONE
    with source.lock:
        asked = [headers.get("If-None-Match") for path, headers in source.log if path == "/set/one.xml"]
    assert asked[0] is None
    assert asked[1] is not None
    assert (len(asked), len(source.requests("/set/two.xml"))) == (2, 1)
    source.pages |= {"/set/one.xml": Reply(one, etag=False), "/set/two.xml": Reply(two, etag=False)}
    source.forget()
    assert go(source.base, dest, baseline=True).status == DONE
    assert (len(source.requests("/set/one.xml")), len(source.requests("/set/two.xml"))) == (2, 1)


def test_an_index_without_components(source: Source, site: Site, dest: Path) -> None:
    """DST-B2: such an index says nothing of the set, least of all that it is empty."""
    body = document([], "sitemapindex", links=site.up(), capability="resourcelist", at=at(20))
    site.serve("/set/resourcelist.xml", body)
    assert go(source.base, dest).status == SOURCE


# lists that overlap


def overlapping(site: Site, first: list[str], second: list[str], until: float = 30, since: float = 11) -> None:
    for name, entries, bounds in (
        ("first", first, {"from": at(10), "until": at(until)}),
        ("second", second, {"from": at(since)}),
    ):
        site.serve(f"/set/{name}.xml", document(entries, links=site.up(), capability="changelist", **bounds))
    index = [
        url(f"{site.root}/first.xml", tag="sitemap", **{"from": at(10), "until": at(until)}),
        url(f"{site.root}/second.xml", tag="sitemap", **{"from": at(since)}),
    ]
    body = document(index, "sitemapindex", links=site.up(), capability="changelist", **{"from": at(10)})
    site.serve("/set/changelist.xml", body)


def test_overlapping_lists_lose_nothing(source: Source, site: Site, dest: Path) -> None:
    """DST-5.2: what only the second list tells is done, though it is earlier than the first one's `until`."""
    go(source.base, dest)
    site.put("f1.txt", b"one, new")
    site.put("g.txt", b"created")
    one, created = (site.change(*change) for change in site.changes[-2:])
    overlapping(site, [one], [one, created])
    source.forget()
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert tree(dest) == dict(site.files)
    assert ran.one.position == at(30)
    assert len(source.requests("/set/resources/f1.txt")) == 1


def test_the_later_change_counts_whichever_list_tells_it(source: Source, site: Site, dest: Path) -> None:
    """DST-5.3: the last change of a URI, also where an earlier one stands in a later list."""
    go(source.base, dest)
    site.put("g.txt", b"created")
    site.drop("g.txt")
    created, deleted = (site.change(*change) for change in site.changes[-2:])
    overlapping(site, [deleted], [created])
    assert go(source.base, dest).status == DONE
    assert tree(dest) == ALL


def test_a_list_that_cannot_be_read_holds_the_position(source: Source, site: Site, dest: Path) -> None:
    """DST-5.2: the position stays where it was, however far the lists before the unread one reach."""
    go(source.base, dest)
    site.put("f1.txt", b"one, new")
    site.put("g.txt", b"created")
    one, created = (site.change(*change) for change in site.changes[-2:])
    overlapping(site, [one], [created])
    page = source.pages["/set/second.xml"]
    source.pages["/set/second.xml"] = Reply(b"", 500)
    ran = go(source.base, dest)
    assert ran.status == SOURCE
    assert ran.one.position == at(10)
    assert tree(dest) == ALL | {"f1.txt": b"one, new"}
    source.pages["/set/second.xml"] = page
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)
