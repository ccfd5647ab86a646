"""What a publication writes, what it leaves alone, and what a reader finds before, between and after."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.catalog.interface import Delete, Event, Rendered
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import decode_publication
from headwater.publish.publisher import Publisher, PublishResult
from headwater.publish.resource_lists import PageRound, RenderedPage, page
from headwater.publish.site import SetSettings, Site
from headwater.publish.store_writer import PublicationJob
from headwater.spec.kinds import Kind
from headwater.spec.records import ChangeKind
from headwater.spec.writer import Profile
from headwater.storage.folder_store import FolderStore
from headwater.storage.object_store import XML, Mark, ObjectKind, PutResult
from tests.support.documents import read_bytes
from tests.support.examples import examples
from tests.support.failing import failing
from tests.support.published import BASE, PublishedCatalog, digest, put

pytestmark = pytest.mark.long(15)


@pytest.fixture
def world(tmp_path: Path) -> PublishedCatalog:
    return PublishedCatalog(tmp_path)


def test_set_of_one_page_is_a_list_of_its_own(world: PublishedCatalog) -> None:
    world.begin(3)
    world.publish()
    document, entries, _ = read_bytes(world.fetch(f"{BASE}/files/resourcelist.xml") or b"")
    assert document.kind is Kind.RESOURCE_LIST
    assert [entry.loc for entry in entries] == [f"{BASE}/files/resources/r{n}" for n in range(3)]
    assert entries[0].length == 0
    assert entries[0].type == "text/plain"
    assert str(entries[0].hash).startswith("md5:"), "interop profile 2: md5 first"
    assert world.look().state == world.truth()


def test_set_of_several_pages_is_an_index(world: PublishedCatalog) -> None:
    world.begin(9)
    world.publish()
    document, entries, _ = read_bytes(world.fetch(f"{BASE}/files/resourcelist.xml") or b"")
    assert document.kind is Kind.RESOURCE_LIST_INDEX
    assert [entry.loc for entry in entries] == [f"{BASE}/files/resourcelist/0000{n}.xml" for n in range(3)]
    assert document.at == min(entry.at for entry in entries if entry.at), "AMB-24"
    assert document.completed == max(entry.completed for entry in entries if entry.completed), "AMB-24"
    assert world.look().state == world.truth()


@pytest.mark.parametrize("count", [1, 3, 9])
def test_a_list_is_completed_after_the_changes_that_it_shows_also_when_the_clock_was_set_back(
    world: PublishedCatalog, count: int
) -> None:
    """RS-TIME-06: changes have times after those before them (AMB-20), later than the clock tells then."""
    world.begin(count)
    world.publish()
    world.clock.set(-3_600)
    world.record(*(put(f"r{number}", 1) for number in range(1, count)), Delete("r0"))
    world.publish(force=True)
    document, _, _ = read_bytes(world.fetch(f"{BASE}/files/resourcelist.xml") or b"")
    newest = world.catalog.state("files").last_at
    assert document.completed is not None
    assert newest is not None
    assert document.completed >= newest


def test_set_without_resources_has_an_empty_list_with_its_time(world: PublishedCatalog) -> None:
    world.begin(0)
    world.publish()
    document, entries, _ = read_bytes(world.fetch(f"{BASE}/files/resourcelist.xml") or b"")
    assert document.at is not None
    assert entries == []
    assert world.look().state == {}


def test_set_that_is_loading_is_not_published(world: PublishedCatalog) -> None:
    world.catalog.create("files")
    with failing("HW-PUB-01"):
        world.publisher.publish("files", world.now())
    assert list(world.store.names()) == []


def test_changes_are_in_the_open_list_and_pages_wait(world: PublishedCatalog) -> None:
    world.begin(9)
    world.publish()
    before = world.files()
    world.record(put("r1", 1), Delete("r2"))
    published = world.publish()
    assert set(published.written) == {"files/changelist.xml", "files/changelist/open.xml"}
    assert published.pages_stale == 1
    after = world.files()
    untouched = set(before) - set(published.written)
    assert {name: before[name] for name in untouched} == {name: after[name] for name in untouched}
    assert world.look().state == world.truth()


def test_nothing_changed_writes_nothing(world: PublishedCatalog) -> None:
    world.begin(9)
    world.publish()
    world.record(put("r1", 1))
    world.publish(force=True)
    before = world.files()
    published = world.publish(force=True)
    assert published.written == ()
    assert published.kept == len([name for name in before if name.startswith("files/")])
    assert world.files() == before


def test_only_touched_pages_are_rendered(world: PublishedCatalog) -> None:
    world.begin(12)
    world.publish()
    before = world.files()
    world.record(put("r5", 1))
    published = world.publish(force=True)
    assert set(published.written) == {
        "files/changelist.xml",
        "files/changelist/open.xml",
        "files/resourcelist/00001.xml",
        "files/resourcelist.xml",
    }
    assert world.files()["files/resourcelist/00000.xml"] == before["files/resourcelist/00000.xml"]


def test_stale_page_keeps_its_at_and_a_rendered_one_gets_the_new(world: PublishedCatalog) -> None:
    world.begin(9)
    first = world.publish()
    world.record(put("r0", 1))
    second = world.publish(force=True)
    assert second.at > first.at
    _, entries, _ = read_bytes(world.fetch(f"{BASE}/files/resourcelist.xml") or b"")
    assert [entry.at for entry in entries] == [second.at, first.at, first.at]


def test_list_becomes_an_index_when_it_needs_a_second_page(world: PublishedCatalog) -> None:
    world.begin(4)
    world.publish()
    world.record(put("new", 1))
    world.publish()
    assert world.look().listed.keys() != world.truth().keys()
    assert world.look().state == world.truth()
    published = world.publish(force=True)
    assert {"files/resourcelist/00000.xml", "files/resourcelist/00001.xml"} <= set(published.written)
    assert world.look().listed == world.truth()


def test_emptied_page_leaves_the_index_and_stays_for_readers_of_the_old_one(world: PublishedCatalog) -> None:
    world.begin(12)
    world.publish()
    world.record(*(Delete(f"r{n}") for n in range(4, 8)))
    world.publish(force=True)
    _, entries, _ = read_bytes(world.fetch(f"{BASE}/files/resourcelist.xml") or b"")
    assert [entry.loc[-9:] for entry in entries] == ["00000.xml", "00002.xml"]
    assert world.fetch(f"{BASE}/files/resourcelist/00001.xml") is not None
    world.clock.sleep(3601)
    assert world.publish().removed == ("files/resourcelist/00001.xml",)
    assert world.fetch(f"{BASE}/files/resourcelist/00001.xml") is None
    assert world.look().state == world.truth()


def test_index_becomes_a_list_again(world: PublishedCatalog) -> None:
    world.begin(5)
    world.publish()
    world.record(*(Delete(f"r{n}") for n in range(4)))
    world.publish(force=True)
    document, _, _ = read_bytes(world.fetch(f"{BASE}/files/resourcelist.xml") or b"")
    assert document.kind is Kind.RESOURCE_LIST
    assert world.look().listed == world.truth()


def test_everything_deleted_and_created_again(world: PublishedCatalog) -> None:
    world.begin(5)
    world.publish()
    world.record(*(Delete(f"r{n}") for n in range(5)))
    world.publish(force=True)
    assert world.look().listed == {}
    world.record(put("r1", 7))
    world.publish()
    assert world.look().state == world.truth() != {}
    world.publish(force=True)
    assert world.look().listed == world.truth()


def test_segments_close_by_count_and_never_change_again(world: PublishedCatalog) -> None:
    world.begin(2)
    world.publish()
    closed: dict[str, tuple[int, int, bytes]] = {}
    for number in range(40):
        world.record(put(f"n{number}", number), *([Delete(f"n{number - 1}")] if number % 3 == 2 else []))
        world.publish()
        files = world.files()
        for name, held in closed.items():
            assert files[name] == held, "a closed Change List has the same octets, inode and time for ever"
        for name, held in files.items():
            if name.startswith("files/changelist/0") and read_bytes(held[2])[0].until is not None:
                closed.setdefault(name, held)
        assert world.look().state == world.truth()
    assert len(closed) == (40 + 13 - 1) // 5
    changes = world.look().changes
    assert [entry.datetime for entry in changes] == [row.at for row in world.catalog.changes("files")]


def test_one_batch_may_fill_several_segments(world: PublishedCatalog) -> None:
    world.begin(1)
    world.publish()
    world.record(*(put(f"n{n}", n) for n in range(23)))
    world.publish()
    assert len(world.catalog.segments("files")) == 5
    assert len(world.look().changes) == 23


def test_segment_closes_after_its_period_and_an_empty_one_does_not(tmp_path: Path) -> None:
    world = PublishedCatalog(tmp_path, sets=(SetSettings(segment_seconds=60),))
    world.begin(1)
    world.clock.sleep(61)
    world.publish()
    assert len(world.catalog.segments("files")) == 1
    world.record(put("a", 1))
    world.publish()
    assert len(world.catalog.segments("files")) == 2
    assert world.look().state == world.truth()


def test_open_list_is_always_at_its_own_address(world: PublishedCatalog) -> None:
    world.begin(1)
    world.publish()
    for number in range(12):
        world.record(put(f"n{number}", number))
        world.publish()
        last = world.catalog.segments("files")[-1]
        document, entries, _ = read_bytes(world.fetch(f"{BASE}/files/changelist/open.xml") or b"")
        assert document.until is None
        assert document.from_ == last.from_
        assert len(entries) == last.last - last.first + 1


def test_open_list_grows_without_rendering_what_it_says_already(tmp_path: Path) -> None:
    world = PublishedCatalog(tmp_path, segment_entries=1000)
    world.begin(1)
    asked: list[tuple[int, int]] = []
    changes = world.catalog.changes

    def spy(name: str, after: int = 0, limit: int = 10_000) -> list[object]:
        asked.append((after, limit))
        return changes(name, after, limit)  # type: ignore[return-value]

    world.catalog.changes = spy  # type: ignore[method-assign,assignment]
    for number in range(5):
        world.record(*(put(f"n{number}-{one}", number) for one in range(10)))
        world.publish()
    assert asked == [(10 * number, 10) for number in range(5)]


def test_stored_list_that_is_not_ours_is_not_taken_over(world: PublishedCatalog) -> None:
    world.begin(1)
    world.record(put("a", 1))
    world.publish()
    (world.folder / "documents/files/changelist.xml").write_bytes(b"<nonsense/>")
    world.record(put("b", 2))
    world.publish()
    assert len(world.look().changes) == 2


def test_missing_documents_are_restored_when_pages_are_forced(world: PublishedCatalog) -> None:
    world.begin(9)
    world.publish()
    before = set(world.store.names())
    for name in ("files/resourcelist/00001.xml", "files/capabilitylist.xml", "files/changelist.xml"):
        for suffix in ("", ".gz"):
            (world.folder / "documents" / (name + suffix)).unlink()
    world.publish(force=True)
    assert set(world.store.names()) == before
    assert world.look().state == world.truth()


@pytest.mark.parametrize("harm", ["junk", "no gzip form", "gone"])
def test_lost_and_damaged_documents_are_restored_by_a_new_process_or_a_check(
    world: PublishedCatalog, harm: str
) -> None:
    world.begin(10)
    world.record(*(put(f"r{number}", 1) for number in range(7)))
    world.publish(force=True)
    before = set(world.store.names())
    publisher = world.publisher
    for fresh in (True, False):
        for name in before:
            if name == "robots.txt":
                continue
            path = world.store.root / name
            if harm == "junk":
                path.write_text("junk")
            else:
                path.with_name(path.name + ".gz").unlink()
                if harm == "gone":
                    path.unlink()
        if fresh:
            publisher = Publisher(world.catalog, world.store, world.site, world.now)
            # Who lost only compressed forms has all there is to show; else 503 meanwhile, not 404.
            assert publisher.site_documents.is_published("files") is (harm == "no gzip form")
            publisher.publish("files", world.now())
        else:
            publisher.publish("files", world.now(), Refresh.REPAIR)
        assert publisher.site_documents.is_published("files")
        assert publisher.site_documents.is_site_published()
        for name in before:
            assert world.store.noted_etag(name), name
            assert (world.store.root / name).stat().st_size > len("junk")
        assert set(world.store.names()) == before
        assert world.look().state == world.truth()


@pytest.mark.parametrize("again", [False, True], ids=["at once", "after a turn of somebody else's"])
def test_what_another_process_had_in_hand_is_replaced_by_the_next_check(world: PublishedCatalog, again: bool) -> None:
    """RS-CL-14, RS-TIME-09: overtaken between its last question and the rename, it puts an older document there."""
    world.begin(10)
    world.publish()
    world.record(*(put(f"r{number}", 1) for number in range(2)))
    world.publish()
    early = {name: (world.store.root / name).read_bytes() for name in world.store.names("files/")}
    world.record(*(put(f"r{number}", 2) for number in range(9)))
    world.publish(force=True)
    late = {name: (world.store.root / name).read_bytes() for name in early}
    if again:
        world.publisher.begin()
        world.publish()
    changed = [name for name in early if early[name] != late[name]]
    assert len(changed) > 3
    for name in changed:
        FolderStore(world.store.root).put(name, [early[name]])
        world.publisher.publish("files", world.now(), Refresh.REPAIR)
        if "changelist" in name:  # a page says the same of a later moment
            assert (world.store.root / name).read_bytes() == late[name]
        assert world.look().state == world.truth()
        assert world.publisher.publish("files", world.now(), Refresh.REPAIR).written == ()


def test_new_base_url_or_profile_writes_every_document_again(world: PublishedCatalog) -> None:
    world.begin(9)
    world.publish()
    world.record(*(put(f"n{n}", n) for n in range(7)))
    world.publish()
    closed = world.files()["files/changelist/00000.xml"]
    site = Site(base_url="https://elsewhere.example", profile=Profile.BOTH)
    moved = Publisher(world.catalog, world.store, site, world.now)
    assert not moved.site_documents.is_published("files")
    assert not moved.site_documents.is_site_published()
    published = moved.publish("files", world.now())
    assert published.kept == 0
    files = world.files()
    for name in files.keys() - {"files/changelist/00000.xml"}:
        assert BASE.encode() not in files[name][2]
    left = files.keys() - set(published.written)
    assert {name for name in left if name.startswith("files/")} == {"files/changelist/00000.xml"}
    assert files["files/changelist/00000.xml"] == closed, "RS-TIME-09: nothing names it any more, and it never changes"
    assert moved.site_documents.is_site_published()


def test_another_profile_leaves_closed_change_lists_as_they_are(world: PublishedCatalog) -> None:
    """RS-TIME-09: caches were told to keep them."""
    world.begin(3)
    world.publish()
    world.record(*(put(f"n{n}", n) for n in range(7)))
    world.publish()
    closed = world.files()["files/changelist/00000.xml"]
    site = Site(base_url=BASE, profile=Profile.BOTH)
    assert len(Publisher(world.catalog, world.store, site, world.now).publish("files", world.now()).written) > 2
    assert world.files()["files/changelist/00000.xml"] == closed
    assert world.look().state == world.truth()


@pytest.mark.parametrize("profile", list(Profile))
def test_lastmod_of_changes(tmp_path: Path, profile: Profile) -> None:
    world = PublishedCatalog(tmp_path, profile=profile)
    world.begin(2)
    world.record(put("r0", 5), Delete("r1"))
    world.publish()
    updated, deleted = world.look().changes
    assert (updated.change, deleted.change) == (ChangeKind.UPDATED, ChangeKind.DELETED)
    assert (deleted.hash, deleted.length, deleted.type) == (None, None, None), "AMB-34"
    if profile is Profile.BOTH:
        assert updated.lastmod == updated.datetime, "AMB-19"
        assert deleted.lastmod == deleted.datetime, "AMB-19"
    else:
        assert updated.lastmod == put("r0", 5).metadata.lastmod, "RS-TIME-12"
        assert deleted.lastmod is None


def test_absolute_uris_of_the_catalog_are_left_alone(world: PublishedCatalog) -> None:
    world.begin(0)
    world.record(put("http://other.example/a%20b", 1), put("with%3A//colon", 1))
    world.publish(force=True)
    prefix = f"{BASE}/files/resources/"
    assert set(world.look().state) == {"http://other.example/a%20b", f"{prefix}with%3A//colon"}


def test_at_never_passes_what_the_catalog_has_timed(world: PublishedCatalog) -> None:
    world.begin(1)
    future = world.now() + dt.timedelta(days=1)
    published = world.publisher.publish("files", future)
    state = world.catalog.state("files")
    assert state.opened_at is not None
    assert published.at <= max(moment for moment in (state.opened_at, state.last_at) if moment)
    early = world.publisher.publish("files", state.opened_at - dt.timedelta(days=1), Refresh.STALE)
    assert early.at == published.at


def test_each_set_is_named_when_it_is_published(tmp_path: Path) -> None:
    world = PublishedCatalog(
        tmp_path, sets=(SetSettings(name="a"), SetSettings(name="b", describedby="http://x.example/b"))
    )
    world.begin(1, "a")
    world.publish(name="a")
    _, entries, _ = read_bytes(world.fetch(f"{BASE}/.well-known/resourcesync") or b"")
    assert [entry.loc for entry in entries] == [f"{BASE}/a/capabilitylist.xml"]
    world.begin(2, "b")
    world.publish(name="b")
    _, entries, _ = read_bytes(world.fetch(f"{BASE}/.well-known/resourcesync") or b"")
    assert [entry.loc for entry in entries] == [f"{BASE}/{name}/capabilitylist.xml" for name in "ab"]
    assert entries[1].links[0].rel == "describedby", "RS-SD-07"
    robots = (world.fetch(f"{BASE}/robots.txt") or b"").decode()
    assert [line for line in robots.splitlines() if line.startswith("Sitemap:")] == [
        f"Sitemap: {BASE}/{name}/resourcelist.xml" for name in "ab"
    ], "RS-DISC-05"
    assert world.look("b").state == world.truth("b")


class Killed(BaseException):
    """The process is gone."""


class Mortal(FolderStore):
    """A store in a process that dies after so many writes."""

    left = 10**9

    def put(self, name: str, chunks: Iterable[bytes], kind: ObjectKind = XML, mark: Mark | None = None) -> PutResult:
        stored = super().put(name, self._chunks(chunks), kind, mark)
        self._step()
        return stored

    def _chunks(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._step()
            yield chunk

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed


@pytest.mark.parametrize("bookkeeping", ["documents", "rendered", "note"])
def test_killed_anywhere_the_tree_is_consistent_and_the_next_run_mends_it(tmp_path: Path, bookkeeping: str) -> None:
    """A publication dies at its every step in turn; readers find a consistent tree, and the next run ends the work."""
    for step in range(60):
        folder = tmp_path / str(step)
        folder.mkdir()
        world = PublishedCatalog(folder)
        world.begin(6)
        world.publish()
        world.record(*(put(f"n{n}", n) for n in range(9)), *(Delete(f"r{n}") for n in range(4)), put("r5", 9))
        done = _die(world, step, bookkeeping)
        look = world.look()
        assert look.state in (
            world.truth(),
            {f"{BASE}/files/resources/r{n}": put(f"r{n}", 0).metadata.hash for n in range(6)},
        )
        world.publish(force=True)
        assert world.look().state == world.look().listed == world.truth()
        assert world.publish(force=True).written == ()
        world.catalog.close()
        if done:
            return
    raise AssertionError("the publication never came to its end")


def _die(
    world: PublishedCatalog,
    step: int,
    bookkeeping: str,
    stated: dict[str, dt.datetime] | None = None,
    *,
    force: bool = True,
) -> bool:
    """Publish in a process that dies after `step` steps; whether it got through."""
    store = Timed(world.folder / "documents", durable=False)
    store.stated = {} if stated is None else stated
    publisher = Publisher(world.catalog, store, world.site, world.now)
    rendered, note = world.catalog.rendered, world.catalog.note
    calls = 0

    def fail(*_arguments: object) -> None:
        nonlocal calls
        calls += 1
        if calls > step:
            raise Killed

    def failing_rendered(name: str, pages: list[Rendered]) -> None:
        fail()
        rendered(name, pages)

    def failing_note(name: str, notes: bytes) -> None:
        fail()
        note(name, notes)

    if bookkeeping == "documents":
        store.left = step
    elif bookkeeping == "rendered":
        world.catalog.rendered = failing_rendered  # type: ignore[method-assign,assignment]
    else:
        world.catalog.note = failing_note  # type: ignore[method-assign]
    try:
        publisher.publish("files", world.catalog.mark("files", world.now()), Refresh.STALE if force else Refresh.DUE)
    except Killed:
        return False
    finally:
        world.catalog.rendered, world.catalog.note = rendered, note  # type: ignore[method-assign]
    return True


class Timed(Mortal):
    """A store that holds every Resource List, and every part that an index names, to the times that it stated before.

    `stated` outlives the process.
    """

    stated: dict[str, dt.datetime]

    def put(self, name: str, chunks: Iterable[bytes], kind: ObjectKind = XML, mark: Mark | None = None) -> PutResult:
        octets: list[bytes] = []
        stored = FolderStore.put(self, name, self._chunks(_kept(chunks, octets)), kind, mark)
        if "/resourcelist" in name:
            document, entries, _ = read_bytes(b"".join(octets))
            times = {name: document.at} | {f"{name} {entry.loc}": entry.at for entry in entries if entry.at}
            for what, at in times.items():
                assert at is not None
                assert at >= self.stated.get(what, at), f"{what} goes back, RS-TIME-05"
                self.stated[what] = at
        self._step()
        return stored


def _kept(chunks: Iterable[bytes], octets: list[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        octets.append(chunk)
        yield chunk


@pytest.mark.parametrize("bookkeeping", ["documents", "rendered", "note"])
@pytest.mark.parametrize("again", [None, 3], ids=["once", "twice"])
def test_killed_anywhere_the_at_of_a_list_never_goes_back(tmp_path: Path, bookkeeping: str, again: int | None) -> None:
    """RS-TIME-05: the next process knows of no scan yet, and renders pages none of which is due."""
    for step in range(80):
        folder = tmp_path / str(step)
        folder.mkdir()
        world = PublishedCatalog(folder)
        world.begin(7)
        world.publish()
        stated: dict[str, dt.datetime] = {}
        world.clock.sleep(10)
        world.record(*(put(f"n{n}", n) for n in range(3)), put("r0", 9), put("r5", 9))
        done = _die(world, step, bookkeeping, stated)
        if again is not None:
            _die(world, again, bookkeeping, stated, force=False)
        store = Timed(world.folder / "documents", durable=False)
        store.stated = stated
        publisher = Publisher(world.catalog, store, world.site, world.now)
        opened_at = world.catalog.state("files").opened_at
        assert opened_at is not None
        for number in range(6):
            world.clock.sleep(1 if number < 3 else 4000)
            publisher.publish("files", opened_at, Refresh.DUE if number else Refresh.REPAIR)
            assert world.look().state == world.truth()
        assert decode_publication(world.catalog.state("files").notes).pending == ()
        world.catalog.close()
        if done:
            return
    raise AssertionError("the publication never came to its end")


names = st.integers(0, 14).map("k{}".format)
events = st.one_of(st.builds(put, names, st.integers(0, 99)), st.builds(Delete, names))
steps = st.lists(
    st.tuples(st.lists(events, max_size=12), st.booleans(), st.sampled_from([0.0, 30.0, 4000.0])),
    min_size=1,
    max_size=8,
)


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(count=st.integers(0, 13), steps=steps)
def test_whatever_happens_documents_replay_to_the_catalog(
    tmp_path_factory: pytest.TempPathFactory, count: int, steps: list[tuple[list[Event], bool, float]]
) -> None:
    world = PublishedCatalog(
        tmp_path_factory.mktemp("world"), sets=(SetSettings(refresh_changes=3, segment_seconds=3600),)
    )
    world.begin(count)
    published: PublishResult = world.publish()
    for batch, force, pause in steps:
        world.record(*batch)
        world.clock.sleep(pause)
        published = world.publish(force=force)
        look = world.look()
        assert look.state == world.truth()
        assert len(look.changes) == published.seq
        if force:
            assert look.listed == look.state
            assert published.pages_stale == 0
    world.catalog.close()


def test_what_is_created_again_while_pages_are_rendered_is_listed_once(
    world: PublishedCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RS-RL-08, AMB-89: each page is read from a snapshot of its own, and pages that are not stale stay as they are."""
    world.begin(10)
    world.publish()
    world.record(put("r9", 1))
    place = "headwater.publish.resource_lists.page"

    def render_late(job: PublicationJob, round_: PageRound, number: int, *, indexed: bool) -> RenderedPage:
        world.record(Delete("r0"), put("r0", 2), put("r9", 2), put("new", 1))
        return page(job, round_, number, indexed=indexed)

    monkeypatch.setattr(place, render_late)
    world.publish(force=True)
    seen = world.look()  # holds that no resource is listed twice
    assert seen.state == world.truth()
    assert seen.listed[f"{world.site.resource_prefix('files')}r9"] == digest("r9/2"), "an update is shown"
    monkeypatch.setattr(place, page)
    world.publish(force=True)
    assert world.look().listed == world.truth()


def test_a_check_without_a_change_moves_the_time_of_the_catalog_and_no_document(world: PublishedCatalog) -> None:
    """RS-TIME-09: the home page says until when everything is known; lists, their tags and times stay (AMB-62)."""
    world.begin(10)
    world.record(put("r0", 1))
    world.publish(force=True)
    before, known = world.files(), world.catalog.state("files").last_at
    world.clock.sleep(30.0)
    world.publisher.publish("files", world.catalog.mark("files", world.now()), Refresh.REPAIR)
    assert world.catalog.state("files").last_at > known  # type: ignore[operator]
    assert world.files() == before
    assert b"until=" not in before["files/changelist/open.xml"][2]
