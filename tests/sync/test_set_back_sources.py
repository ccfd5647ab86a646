"""A source that was set back, or has rewritten its Change Lists: a Resource List decides, or the run ends with 5.

Headwater follows a Change List only while the list reads on from where the copy was. The list has the same `from`.
What Headwater has read before is still there, unchanged and first. Times do not fall. Anything else leads to a
baseline. Headwater compares the whole Resource List with the copy. If there is no usable Resource List, the run ends
with status 5 and says which sentence was broken. The hash decides about content, and only two documents may delete.
Headwater deletes a file if a Change List as in sentence 1 says so, or if a complete Resource List lacks it.

DST-C10, DST-F12, DST-B2. What may never be: a wrong copy with status 0.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.cli import run
from headwater.sync.lists.position import Invariant
from tests.support.copying import DONE, FAILED, UNDETERMINED, USAGE, check, go, tree
from tests.support.fake_source import Reply, Site, Source, at, document, url

BEGIN = 10.0
TURN = 12.5
"""When the first list of an index closes: one change later than the first moment to which the source is set back."""


def test_the_documentation_says_the_three_sentences() -> None:
    """In the words of the code, which are those above."""
    page = Path(__file__).parents[2] / "docs/explanation/how-a-copy-stays-true.md"
    told = " ".join(page.read_text("utf-8").replace("**", "").split())
    assert __doc__ is not None
    for sentence in Invariant:
        assert sentence.value in told
        assert sentence.value in " ".join(__doc__.split())


def source_without(site: Site, path: str) -> None:
    site.source.pages.pop(path, None)


def publish(site: Site, shape: str, begin: float = BEGIN, told: list[str] | None = None) -> None:
    """The Change List, or an index of it, or of a closed and an open one."""
    changes = [one for one in site.changes if one[0] > begin]
    told = [site.change(*one) for one in changes] if told is None else told
    if shape == "a list":
        site.publish_changes(begin, entries=told)
        return
    bounds: list[tuple[float, float | None]] = [(begin, None)]
    if shape == "two lists" and changes and changes[-1][0] > TURN:
        bounds = [(begin, TURN), (TURN, None)]
    else:
        source_without(site, "/set/c1.xml")
    early = sum(1 for one in changes if one[0] <= TURN) if len(bounds) == 2 else 0
    parts = []
    for n, (since, until) in enumerate(bounds):
        times: dict[str, Any] = {"capability": "changelist", "from": at(since), "until": until and at(until)}
        entries = told if len(bounds) == 1 else told[:early] if n == 0 else told[early:]
        site.serve(f"/set/c{n}.xml", document(entries, links=site.up(), **times))
        del times["capability"]
        parts.append(url(f"{site.root}/c{n}.xml", tag="sitemap", **times))
    head: dict[str, Any] = {"capability": "changelist", "from": at(begin)}
    site.serve("/set/changelist.xml", document(parts, "sitemapindex", site.up(), **head))


def follow(source: Source, site: Site, dest: Path, shape: str) -> dict[str, bytes]:
    """A copy that has done four changes; returned are the files as the source had them after the first."""
    publish(site, shape)
    assert go(source.base, dest).status == DONE
    site.put("f1.txt", b"one")
    before = dict(site.files)
    site.put("f1.txt", b"two")
    site.put("new.txt", b"lost")
    site.drop("f2.txt")
    publish(site, shape)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)
    return before


def restore(source: Source, site: Site, before: dict[str, bytes]) -> None:
    """The files as they were, and the changes since forgotten; time goes on."""
    clock = site.clock
    for name in set(site.files) - set(before):
        source.pages.pop(f"/set/resources/{name}")
    site.files = {}
    for name, body in before.items():
        site.put(name, body, change=False)
    site.changes = [one for one in site.changes if one[0] <= BEGIN + 1]
    site.clock = clock


def as_it_was(site: Site, shape: str) -> None:
    publish(site, shape)


def earlier(site: Site, shape: str) -> None:
    publish(site, shape, begin=5)


def later(site: Site, shape: str) -> None:
    publish(site, shape, begin=BEGIN + 1.5)


def as_many_since(site: Site, shape: str) -> None:
    for number in range(3):
        site.put(f"f{number + 2}.txt", b"since")
    publish(site, shape)


def longer(site: Site, shape: str) -> None:
    for number in range(6):
        site.put("f3.txt", b"since %d" % number)
    publish(site, shape)


def longer_and_earlier(site: Site, shape: str) -> None:
    for number in range(6):
        site.put("f3.txt", b"since %d" % number)
    publish(site, shape, begin=5)


WAYS = [as_it_was, earlier, later, as_many_since, longer, longer_and_earlier]
BEGINS: dict[Callable[[Site, str], None], float] = {earlier: 5.0, longer_and_earlier: 5.0, later: BEGIN + 1.5}
SHAPES = ["a list", "an index", "two lists"]
OPTIONS: list[dict[str, Any]] = [{"baseline": True}, {"repair": True}, {"exclude": ("none",)}]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("shape", "options"), [*((one, {}) for one in SHAPES), *(("two lists", one) for one in OPTIONS)]
)
@pytest.mark.parametrize("renewed", [False, True], ids=["old Resource List", "new Resource List"])
def test_the_resource_list_decides(
    way: Callable[[Site, str], None],
    shape: str,
    options: dict[str, Any],
    renewed: bool,
    source: Source,
    site: Site,
    dest: Path,
) -> None:
    before = follow(source, site, dest, shape)
    restore(source, site, before)
    way(site, shape)
    if renewed:
        site.publish_list()
    for number in range(2):
        ran = go(source.base, dest, max_delete=1.0, **options)
        assert min(ran.one.created, ran.one.updated, ran.one.unchanged, ran.one.deleted) >= 0
        assert ran.status in ((DONE,) if renewed else (DONE, UNDETERMINED))
        if ran.status == DONE:
            assert tree(dest) == dict(site.files)
            assert check(source.base, dest).verdict == "in sync"
        assert {"DST-C10", "DST-C4"} & ran.rules() or number == 1 or (renewed and options)
    site.put("f4.txt", b"goes on")
    publish(site, shape, begin=BEGINS.get(way, BEGIN))
    if ran.status == DONE:
        source.forget()
        again = go(source.base, dest)
        assert (again.status, tree(dest)) == (DONE, dict(site.files))
        assert [path for path in source.requests() if "/resources/" in path] == ["/set/resources/f4.txt"]
    site.publish_list()
    assert go(source.base, dest, max_delete=1.0).status == DONE
    assert tree(dest) == dict(site.files)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("way", [as_it_was, earlier, as_many_since])
@pytest.mark.parametrize("missing", ["404", "broken"])
def test_without_a_resource_list_every_run_says_so(
    missing: str, way: Callable[[Site, str], None], shape: str, source: Source, site: Site, dest: Path
) -> None:
    before = follow(source, site, dest, shape)
    restore(source, site, before)
    way(site, shape)
    held = tree(dest)
    source.pages["/set/resourcelist.xml"] = Reply(b"<", 404 if missing == "404" else 200)
    for _ in range(3):
        ran = go(source.base, dest)
        assert (ran.status, tree(dest)) == (UNDETERMINED, held)
        assert "DST-C10" in ran.rules()
    site.publish_list()
    assert go(source.base, dest, max_delete=1.0).status == DONE
    assert tree(dest) == dict(site.files)


@pytest.mark.parametrize("later", [14.0, 20.0], ids=["at once", "after a Resource List"])
def test_a_list_that_closed_before_one_without_changes(later: float, source: Source, site: Site, dest: Path) -> None:
    """Lists begin anew at midnight, whatever the source was set back to: the polled one is as empty as before."""

    def publish_two() -> None:
        parts = []
        for n, (since, until) in enumerate(((BEGIN, 14.5), (14.5, None))):
            told = [site.change(*one) for one in site.changes if since < one[0] < (until or 1e9)]
            times: dict[str, Any] = {"from": at(since), "until": until and at(until)}
            site.serve(f"/set/c{n}.xml", document(told, links=site.up(), capability="changelist", **times))
            parts.append(url(f"{site.root}/c{n}.xml", tag="sitemap", **times))
        head: dict[str, Any] = {"capability": "changelist", "from": at(BEGIN)}
        site.serve("/set/changelist.xml", document(parts, "sitemapindex", site.up(), **head))

    before = follow(source, site, dest, "a list")
    site.clock = later
    publish_two()
    assert go(source.base, dest).status == DONE
    source.forget()
    assert go(source.base, dest).one.process == "none"
    assert len(source.requests()) <= 4
    held = tree(dest)
    restore(source, site, before)
    publish_two()
    for _ in range(2):
        assert (go(source.base, dest, max_delete=1.0).status, tree(dest)) == (UNDETERMINED, held)
    site.clock += 1
    site.publish_list()
    for _ in range(2):
        assert (go(source.base, dest, max_delete=1.0).status, tree(dest)) == (DONE, dict(site.files))


def reversed_(told: list[str]) -> list[str]:
    return told[::-1]


def times_edited(told: list[str]) -> list[str]:
    return [one.replace("Z", ".5Z") for one in told]


def one_left_out(told: list[str]) -> list[str]:
    return told[:2] + told[3:]


@pytest.mark.parametrize("rewrite", [reversed_, times_edited, one_left_out])
@pytest.mark.parametrize("shape", SHAPES[:2])
def test_a_list_that_was_rewritten_costs_no_content(
    shape: str, rewrite: Callable[[list[str]], list[str]], source: Source, site: Site, dest: Path
) -> None:
    """The source is what it was: nothing is fetched again, nothing is deleted."""
    follow(source, site, dest, shape)
    publish(site, shape, told=rewrite([site.change(*one) for one in site.changes if one[0] > BEGIN]))
    source.forget()
    for _ in range(2):
        ran = go(source.base, dest)
        assert (ran.status, tree(dest)) == (UNDETERMINED, dict(site.files))
    assert {path for path in source.requests() if "/resources/" in path} == set()
    site.publish_list()
    ran = go(source.base, dest)
    assert (ran.status, tree(dest)) == (DONE, dict(site.files))
    assert {path for path in source.requests() if "/resources/" in path} == set()


def test_a_list_that_grows_at_its_front(source: Source, site: Site, dest: Path) -> None:
    """RS-CL-05, DST-C10: what was read does not come first any more: nothing of it is done until a newer list."""

    def publish_newest_first() -> None:
        publish(site, "a list", told=reversed_([site.change(*one) for one in site.changes if one[0] > BEGIN]))

    site.clock = BEGIN
    assert go(source.base, dest).status == DONE
    site.put("n1.txt", b"one")
    publish_newest_first()
    assert go(source.base, dest).status == DONE
    site.put("n2.txt", b"two")
    held = tree(dest)
    publish_newest_first()
    for _ in range(2):
        ran = go(source.base, dest)
        assert (ran.status, tree(dest)) == (UNDETERMINED, held)
        assert "DST-C10" in ran.rules()
    site.publish_list()
    for _ in range(2):
        assert (go(source.base, dest).status, tree(dest)) == (DONE, dict(site.files))


@pytest.mark.parametrize("what", ["updated", "created"])
def test_an_old_answer_of_a_cache(what: str, source: Source, site: Site, dest: Path) -> None:
    """What the source still serves is not taken back, and a list that states all again settles the doubt."""
    site.publish_changes(10)
    go(source.base, dest)
    site.put("f1.txt" if what == "updated" else "new.txt", b"one")
    site.publish_changes(10)
    assert go(source.base, dest).status == DONE
    told, site.changes = site.changes, site.changes[:-1]
    site.publish_changes(10)
    for options in ({}, *OPTIONS):
        ran = go(source.base, dest, **options)
        assert (ran.status, ran.one.created, ran.one.updated) == (UNDETERMINED, 0, 0)
        assert tree(dest) == dict(site.files)
    site.changes = told
    site.publish_changes(10)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)
    assert check(source.base, dest).verdict == "in sync"


def accept(url: str, dest: Path, *options: str) -> int:
    return run(["sync", url, str(dest), "--accept-reset", "-q", *options])


def test_consent_takes_a_source_that_was_set_back_in_place(
    source: Source, site: Site, dest: Path, tmp_path: Path
) -> None:
    """What its lists say now is what counts, although they are older; deletions need consent as ever (DST-B4)."""
    before = follow(source, site, dest, "a list")
    restore(source, site, before)
    publish(site, "a list")
    source.pages["/set/resources/new.txt"] = Reply(b"lost")  # is still served: the lists alone do not settle it
    assert go(source.base, dest).status == UNDETERMINED
    assert accept(source.base, dest, "--max-delete", "0%") == FAILED
    changes = tmp_path / "changes.jsonl"
    assert accept(source.base, dest, "--max-delete", "100%", "--changes", str(changes)) == DONE
    assert tree(dest) == dict(site.files)
    assert '"deleted"' in changes.read_text()
    assert go(source.base, dest).one.process == "none"


def test_consent_where_there_is_a_resource_list_alone(source: Source, site: Site, dest: Path) -> None:
    """DST-F12: a list that is older than that of the last baseline comes from a cache, or from a source set back."""
    site.publish_capabilities("resourcelist")
    before = dict(site.files)
    site.put("f1.txt", b"lost")
    site.put("new.txt", b"lost")
    site.publish_list()
    assert go(source.base, dest).status == DONE
    restore(source, site, before)
    site.publish_list(when=10)
    for _ in range(2):
        assert go(source.base, dest).status == UNDETERMINED
    assert accept(source.base, dest) == DONE
    assert tree(dest) == dict(site.files)
    assert go(source.base, dest).status == DONE


def test_consent_where_there_are_changes_alone(source: Source, site: Site, dest: Path) -> None:
    site.publish_capabilities("changelist")
    for number in range(5):
        site.put(f"n{number}.txt", b"one")
    before = dict(site.files)
    site.put("n1.txt", b"lost")
    publish(site, "a list")
    assert go(source.base, dest).status == DONE
    restore(source, site, before)
    site.changes = [(11.0 + n, "created", f"n{n}.txt", b"one") for n in range(5)]
    publish(site, "a list")
    for _ in range(2):
        assert go(source.base, dest).status == UNDETERMINED
    assert accept(source.base, dest) == DONE
    assert tree(dest)["n1.txt"] == b"one"
    assert go(source.base, dest).one.process == "none"


def test_consent_is_for_one_run(source: Source, site: Site, dest: Path) -> None:
    assert accept(source.base, dest, "--follow", "1") == USAGE
    assert not dest.exists()


def test_consent_is_needless_where_nothing_was_set_back(source: Source, site: Site, dest: Path) -> None:
    assert accept(source.base, dest) == DONE
    site.put("f1.txt", b"one")
    site.publish_changes(10)
    assert accept(source.base, dest) == DONE
    assert tree(dest) == dict(site.files)
