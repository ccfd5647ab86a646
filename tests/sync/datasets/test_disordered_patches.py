"""Change Lists of a dataset whose entries are swapped, doubled, missing or in wrong lists: nothing fails for ever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.copying import DONE, UNDETERMINED, check, go
from tests.support.fake_source import Source, at, document, url
from tests.sync.datasets.test_existing_exporter import STATES, Dataset, run, text_of

Order = Callable[[list[str]], list[str]]

ORDERS: list[tuple[str, Order, bool]] = [
    ("as it should be", lambda e: e, True),
    ("the last two swapped", lambda e: [*e[:-2], e[-1], e[-2]], False),
    ("the one before moved ahead", lambda e: [e[0], e[2], e[1], e[3]], False),
    ("doubled", lambda e: [*e, e[-1]], True),
    ("all doubled", lambda e: e + e, False),
    ("an older one again", lambda e: [*e, e[1]], False),
    ("one missing", lambda e: [e[0], *e[2:]], False),
    ("one missing, the others swapped", lambda e: [e[0], e[3], e[2]], False),
]


@pytest.mark.parametrize("late", [False, True], ids=["Last-Modified of its time", "Last-Modified later"])
@pytest.mark.parametrize(("order", "patches"), [o[1:] for o in ORDERS], ids=[o[0] for o in ORDERS])
def test_changes_of_a_dataset_in_any_order(source: Source, dest: Path, order: Order, patches: bool, late: bool) -> None:
    """DST-C10, NQUD-05: the patches lead to the last hash; a gap in them, or times that fall, to the dataset."""
    dataset = Dataset(source).to(STATES[0]).publish()
    run(dataset, dest)
    dataset.to(STATES[1]).to(STATES[2]).to(STATES[3])
    if late:
        page = source.reply("/set/resources/dataset.nq")
        page.headers["Last-Modified"] = "Fri, 01 Jan 2027 00:00:00 GMT"
    dataset.entries = order(dataset.entries)
    dataset.publish()
    dataset.fetched()
    run(dataset, dest)
    assert ("dataset.nq" not in dataset.fetched()) == patches
    assert run(dataset, dest).one.failed == 0
    assert check(source.base, dest).verdict == "in sync"
    run(dataset.to(STATES[0]).publish(), dest)


@pytest.mark.parametrize("stale", [False, True], ids=["a new Resource List", "the Resource List of before"])
def test_an_older_change_that_comes_late_takes_no_newer_state_away(source: Source, dest: Path, stale: bool) -> None:
    """What is held was told with a later time, and is what the source has: that is asked for, and settles it."""
    dataset = Dataset(source).to(STATES[0]).publish()
    run(dataset, dest)
    dataset.to(STATES[1]).to(STATES[2])
    late = dataset.entries.pop(1)
    run(dataset.publish(), dest)
    before = source.pages["/set/resourcelist.xml"]
    dataset.entries.append(late)
    dataset.publish()
    if stale:
        source.pages["/set/resourcelist.xml"] = before
    run(dataset, dest)
    assert run(dataset, dest).one.failed == 0
    run(dataset.to(STATES[3]).publish(), dest)


def test_a_state_that_the_source_has_not_is_never_taken_for_it(source: Source, dest: Path) -> None:
    """No hash that is listed fits what comes: the copy stays, and the run says so until the source has mended it."""
    dataset = Dataset(source).to(STATES[0]).publish()
    run(dataset, dest)
    before = source.pages["/set/resourcelist.xml"]
    wrong = text_of(STATES[0] | STATES[3])
    dataset.to(STATES[1]).to(STATES[2], patch=b"", result=wrong)
    dataset.entries = [dataset.entries[0], dataset.entries[2], dataset.entries[1]]
    dataset.publish()
    source.pages["/set/resourcelist.xml"] = before
    for _ in range(2):
        assert go(source.base, dest).status == UNDETERMINED
        assert (dest / "dataset.nq").read_bytes() == text_of(STATES[0])
    dataset.entries = []
    dataset.publish()  # a Resource List of now
    assert go(source.base, dest).status == DONE
    assert (dest / "dataset.nq").read_bytes() == text_of(STATES[2])


@pytest.mark.parametrize("first", [[0, 3], [0, 1, 3]], ids=["three in wrong lists", "two in wrong lists"])
def test_changes_in_wrong_lists(source: Source, dest: Path, first: list[int]) -> None:
    """A closed list and an open one in an index, with changes of each other's time."""
    dataset = Dataset(source).to(STATES[0]).publish()
    run(dataset, dest)
    dataset.to(STATES[1]).to(STATES[2]).to(STATES[3]).publish()
    site, entries = dataset.site, dataset.entries
    second = [n for n in range(4) if n not in first]
    lists = ((0, 35, first), (35, None, second))
    for number, (since, until, chosen) in enumerate(lists):
        interval = {"from": at(since)} | ({"until": at(until)} if until else {})
        body = document([entries[n] for n in chosen], links=site.up(), capability="changelist", **interval)
        site.serve(f"/set/changes-{number}.xml", body)
    index = [
        url(f"{site.root}/changes-{n}.xml", tag="sitemap", **{"from": at(a)} | ({"until": at(b)} if b else {}))
        for n, (a, b, _) in enumerate(lists)
    ]
    body = document(index, root="sitemapindex", links=site.up(), capability="changelist", **{"from": at(0)})
    site.serve("/set/changelist.xml", body)
    run(dataset, dest)
    assert run(dataset, dest).one.failed == 0
