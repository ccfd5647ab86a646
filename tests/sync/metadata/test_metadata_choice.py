"""Resources chosen by metadata records, and records before their contents (RS-DST-16, DST-S5, RS-REL-05, RS-REL-06)."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import Exit, UsageFault
from headwater.sync.options import SyncOptions
from tests.support.copying import check, go, tree
from tests.support.fake_source import Handler, Reply, Site, Source, at, ln, sha, url

DESCRIBED: dict[str, Any] = {"only_described": True}
PDF: dict[str, Any] = {"include": ("*.pdf",), "with_metadata": True}


class Library:
    """A set in which some resources have records; `paper.pdf` and `paper.xml`, say."""

    def __init__(self, source: Source) -> None:
        self.site = Site(source)
        self.entries: dict[str, str] = {}
        self.log: list[str] = []
        self.clock = 10.0
        self.site.publish_capabilities("resourcelist", "changelist")
        self.site.publish_description()

    def by(self, *names: str) -> str:
        return "".join(ln("describedby", self.site.uri(name)) for name in names)

    def of(self, *names: str) -> str:
        return "".join(ln("describes", self.site.uri(name)) for name in names)

    def put(self, name: str, body: bytes, links: str = "", *, kind: str = "created", logged: bool = True) -> None:
        self.site.source.pages[f"/set/resources/{name}"] = Reply(body)
        stated: dict[str, Any] = {"hash": sha(body), "length": len(body)}
        self.entries[name] = url(self.site.uri(name), links=links, **stated)
        if logged:
            self.clock += 1
            self.log.append(url(self.site.uri(name), links=links, change=kind, datetime=at(self.clock), **stated))

    def drop(self, name: str) -> None:
        del self.entries[name]
        self.clock += 1
        self.log.append(url(self.site.uri(name), change="deleted", datetime=at(self.clock)))

    def publish(self, *, baseline: bool) -> None:
        if baseline:
            self.site.publish_list(self.entries.values(), when=self.clock)
        self.site.publish_changes(10.0, entries=self.log)

    def run(self, dest: Path, **options: Any) -> Any:
        return go(self.site.source.base, dest, **({"max_delete": 1.0} | options))


@pytest.fixture
def library(source: Source) -> Library:
    """A paper with a record that both state, a paper that has none, and a record of nothing that is here."""
    made = Library(source)
    made.put("a.pdf", b"a", made.by("a.xml"))
    made.put("a.xml", b"<a/>", made.of("a.pdf"))
    made.put("b.pdf", b"b")
    made.put("stray.xml", b"<stray/>", made.of("nothing.pdf"))
    made.publish(baseline=True)
    made.clock = 20.0
    return made


A = {"a.pdf": b"a", "a.xml": b"<a/>"}


def agreed(library: Library, dest: Path, want: dict[str, bytes], **options: Any) -> None:
    """A run ends with this tree, and so says an audit; so does one whose Resource List is read again."""
    ran = library.run(dest, **options)
    assert (ran.status, tree(dest)) == (Exit.DONE, want), ran.one.failures
    report = check(library.site.source.base, dest)
    assert report.verdict == "in sync", report.sets[0].findings


@pytest.mark.parametrize(
    ("options", "want"),
    [
        (DESCRIBED, A),
        (DESCRIBED | {"include": ("*.pdf",)}, {"a.pdf": b"a"}),
        (DESCRIBED | PDF, A),
        (DESCRIBED | {"include": ("*.xml",)}, {}),
        (PDF, A | {"b.pdf": b"b"}),
        ({"exclude": ("*.xml",), "with_metadata": True}, A | {"b.pdf": b"b"}),
        ({"include": ("b.*",), "with_metadata": True}, {"b.pdf": b"b"}),
        ({"with_metadata": True}, A | {"b.pdf": b"b", "stray.xml": b"<stray/>"}),
    ],
)
def test_which_resources_are_copied(library: Library, dest: Path, options: Any, want: dict[str, bytes]) -> None:
    """RS-DST-16: by baseline and by changes alike; a dry run says the same and does nothing."""
    shown = library.run(dest, dry_run=True, **options)
    assert sorted(action.path for action in shown.one.plan) == sorted(want)
    assert tree(dest) == {}
    agreed(library, dest, want, **options)
    assert library.run(dest, **options).one.process in ("none", "increment")


@pytest.mark.parametrize("side", ["by content", "by record"])
def test_one_side_that_states_it_is_enough(library: Library, dest: Path, side: str) -> None:
    """RS-REL-05, RS-REL-06."""
    library.put("c.pdf", b"c", library.by("c.xml") if side == "by content" else "")
    library.put("c.xml", b"<c/>", library.of("c.pdf") if side == "by record" else "")
    library.publish(baseline=True)
    agreed(library, dest, A | {"c.pdf": b"c", "c.xml": b"<c/>"}, **DESCRIBED)


@pytest.mark.parametrize("baseline", [True, False])
def test_a_record_that_comes_later_brings_its_content(library: Library, dest: Path, baseline: bool) -> None:
    """The content is verified by what the list has said of it, though no change names it."""
    agreed(library, dest, A, **DESCRIBED)
    library.put("b.xml", b"<b/>", library.of("b.pdf"))
    library.publish(baseline=baseline)
    agreed(library, dest, A | {"b.pdf": b"b", "b.xml": b"<b/>"}, **DESCRIBED)
    assert library.site.source.requests("/set/resources/b.pdf") == ["/set/resources/b.pdf"]


@pytest.mark.parametrize("baseline", [True, False])
def test_a_link_that_comes_later_brings_a_record_that_was_left_out(
    library: Library, dest: Path, baseline: bool
) -> None:
    library.put("b.txt", b"about b")
    library.publish(baseline=True)
    agreed(library, dest, A | {"b.pdf": b"b"}, **PDF)
    library.put("b.txt", b"about b, again", kind="updated")
    library.publish(baseline=baseline)
    agreed(library, dest, A | {"b.pdf": b"b"}, **PDF)
    library.put("b.pdf", b"b2", library.by("b.txt"), kind="updated")
    library.publish(baseline=baseline)
    agreed(library, dest, A | {"b.pdf": b"b2", "b.txt": b"about b, again"}, **PDF)


@pytest.mark.parametrize("baseline", [True, False])
def test_what_is_described_no_more_stays_as_it_is(library: Library, dest: Path, baseline: bool) -> None:
    """DST-S12: left out by a choice is not deleted; when the source deletes it, what the choice has brought goes."""
    agreed(library, dest, A, **DESCRIBED)
    library.put("a.xml", b"<a/>", kind="updated")
    library.put("a.pdf", b"a2", kind="updated")
    library.publish(baseline=baseline)
    agreed(library, dest, A, **DESCRIBED)
    library.put("c.pdf", b"c", library.by("c.xml"))
    library.put("c.xml", b"<c/>")
    library.drop("a.pdf")
    library.publish(baseline=baseline)
    agreed(library, dest, {"a.xml": b"<a/>", "c.pdf": b"c", "c.xml": b"<c/>"}, **DESCRIBED)


@pytest.mark.parametrize("baseline", [True, False])
def test_records_and_contents_that_are_deleted(library: Library, dest: Path, baseline: bool) -> None:
    """In one run, or one after the other: the choice before the deletion counts."""
    library.put("c.pdf", b"c", library.by("c.xml"))
    library.put("c.xml", b"<c/>", library.of("c.pdf"))
    library.publish(baseline=True)
    agreed(library, dest, A | {"b.pdf": b"b", "c.pdf": b"c", "c.xml": b"<c/>"}, **PDF)
    library.drop("a.pdf")
    library.drop("a.xml")
    library.drop("c.pdf")
    library.publish(baseline=baseline)
    agreed(library, dest, {"b.pdf": b"b", "c.xml": b"<c/>"}, **PDF)
    library.drop("c.xml")
    library.publish(baseline=baseline)
    agreed(library, dest, {"b.pdf": b"b"}, **PDF)


def test_another_choice_means_a_baseline_that_deletes_nothing(library: Library, dest: Path) -> None:
    agreed(library, dest, A | {"b.pdf": b"b", "stray.xml": b"<stray/>"})
    everything = tree(dest)
    agreed(library, dest, everything, **DESCRIBED)
    library.put("b.pdf", b"b2", kind="updated")
    library.put("a.pdf", b"a2", library.by("a.xml"), kind="updated")
    library.publish(baseline=False)
    agreed(library, dest, everything | {"a.pdf": b"a2"}, **DESCRIBED)
    agreed(library, dest, everything | {"a.pdf": b"a2", "b.pdf": b"b2"})


def test_a_deletion_at_the_first_run_with_a_choice(library: Library, dest: Path) -> None:
    """What the source deletes goes, described or not, as far as patterns do not leave it out."""
    library.run(dest)
    library.drop("a.pdf")
    library.drop("b.pdf")
    library.publish(baseline=True)
    assert library.run(dest, **DESCRIBED).status == Exit.DONE
    assert sorted(tree(dest)) == ["a.xml", "stray.xml"]


def test_a_source_with_changes_alone(library: Library, dest: Path) -> None:
    library.site.publish_capabilities("changelist")
    ran = library.run(dest, **DESCRIBED)
    assert (ran.status, tree(dest)) == (Exit.DONE, A)
    library.put("b.xml", b"<b/>", library.of("b.pdf"))
    library.publish(baseline=False)
    library.run(dest, **DESCRIBED)
    assert tree(dest) == A | {"b.pdf": b"b", "b.xml": b"<b/>"}


def test_a_record_outside_the_scope_is_refused_only_where_it_is_wanted(library: Library, dest: Path) -> None:
    """DST-S12: it is an entry like any other; one that the choice does not ask for is none of its business."""
    elsewhere = "http://elsewhere.example/b.xml"
    library.put("b.pdf", b"b", ln("describedby", elsewhere), kind="updated")
    library.entries["elsewhere"] = url(elsewhere, hash=sha(b"x"), length=1)
    library.publish(baseline=True)
    ran = library.run(dest, **PDF)
    assert (ran.status, ran.one.refused, tree(dest)) == (Exit.TRANSFERS_FAILED, 1, A | {"b.pdf": b"b"})
    ran = library.run(dest, **PDF, skip_hosts=("elsewhere.example",))
    assert (ran.status, ran.one.refused) == (Exit.DONE, 0)
    ran = library.run(dest, include=("*.pdf",))
    assert (ran.status, ran.one.refused) == (Exit.DONE, 0)


def test_a_link_to_what_is_in_no_list_fetches_nothing(library: Library, dest: Path) -> None:
    library.put("c.pdf", b"c", library.by("unlisted.xml") + ln("describedby", "http://[bad/") + library.by("c.pdf"))
    library.site.source.pages["/set/resources/unlisted.xml"] = Reply(b"not asked for")
    library.publish(baseline=True)
    agreed(library, dest, A | {"c.pdf": b"c"}, **DESCRIBED, with_metadata=True)
    assert library.site.source.requests("/set/resources/unlisted.xml") == []


class Order:
    """Notes when each resource is asked for, and when it is sent."""

    def __init__(self, library: Library, *slow: str) -> None:
        self.events: list[str] = []
        self._lock = threading.Lock()
        for name in library.entries:
            path = f"/set/resources/{name}"
            page = library.site.source.pages[path]
            assert isinstance(page, Reply)
            library.site.source.pages[path] = self._noted(name, page.body, 0.05 if name in slow else 0.0)

    def _noted(self, name: str, body: bytes, seconds: float) -> Any:
        def page(_handler: Handler) -> Reply:
            self.note(f"ask {name}")
            time.sleep(seconds)
            self.note(f"send {name}")
            return Reply(body)

        return page

    def note(self, event: str) -> None:
        with self._lock:
            self.events.append(event)

    def is_before(self, record: str, content: str) -> bool:
        return self.events.index(f"send {record}") < self.events.index(f"ask {content}")


def test_a_record_is_fetched_before_its_content(library: Library, dest: Path) -> None:
    """DST-S5: also a shared one, and one that is slow; records of records are fetched with the records."""
    library.put("a.xml", b"<a/>", library.by("a.rdf"), kind="updated")
    library.put("a.rdf", b"rdf")
    for number in range(30):
        library.put(f"part{number}", b"part", library.by("a.xml"))
    library.put("x", b"x", library.by("y"))
    library.put("y", b"y", library.by("x"))
    library.put("z", b"z", library.by("y"))
    library.publish(baseline=True)
    order = Order(library, "a.xml", "a.rdf", "y")
    ran = library.run(dest, with_metadata=True)
    assert (ran.status, ran.one.created) == (Exit.DONE, len(library.entries))
    pairs = [("a.rdf", "a.pdf"), ("a.xml", "a.pdf"), ("y", "z"), *(("a.xml", f"part{n}") for n in range(30))]
    assert [pair for pair in pairs if not order.is_before(*pair)] == []


def test_a_record_that_cannot_be_had_keeps_nothing_back(library: Library, dest: Path) -> None:
    library.site.source.pages["/set/resources/a.xml"] = Reply(b"no", 404)
    ran = library.run(dest, **PDF)
    assert (ran.status, ran.one.failed, tree(dest)) == (Exit.TRANSFERS_FAILED, 1, {"a.pdf": b"a", "b.pdf": b"b"})
    library.site.source.pages["/set/resources/a.xml"] = Reply(b"<a/>")
    agreed(library, dest, A | {"b.pdf": b"b"}, **PDF)


def test_a_long_chain_of_records_ends(library: Library, dest: Path) -> None:
    for number in range(40):
        library.put(f"n{number}", b"n", library.by(f"n{number + 1}"), logged=False)
    library.publish(baseline=True)
    order = Order(library)
    assert library.run(dest, with_metadata=True).status == Exit.DONE
    assert [n for n in range(1, 40) if not order.is_before(f"n{n}", "n0")] == []


@pytest.mark.parametrize("other", [{"prefer_types": ("text/html",)}, {"at": "2026-01-01"}])
def test_what_does_not_go_together(other: Any) -> None:
    with pytest.raises(UsageFault):
        SyncOptions(**other, only_described=True)
    with pytest.raises(UsageFault):
        SyncOptions(**other, with_metadata=True)
