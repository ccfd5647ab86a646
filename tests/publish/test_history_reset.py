"""Where a story cannot go on: no destination that comes back may take the new one for its continuation."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.catalog.interface import Delete, Limits
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.publish.publication_state import PublicationState
from headwater.publish.publisher import Publisher, PublisherOptions
from headwater.publish.site import SetSettings, Site, change_list_name, resource_list_name
from headwater.publish.store_writer import DocumentMark, decode_mark
from headwater.spec.records import Document, Entry
from headwater.storage.folder_store import FolderStore
from headwater.storage.object_store import MARK_OCTETS
from tests.support.documents import read_bytes
from tests.support.published import BASE, PublishedCatalog, put
from tests.support.waiting import START

LIMITS = Limits(page_entries=4, segment_entries=5)


def _read(world: PublishedCatalog, name: str) -> tuple[Document, list[Entry]]:
    data = (world.store.root / name).read_bytes()
    head, entries = read_bytes(data)[:2]
    return head, list(entries)


def _position(world: PublishedCatalog) -> dt.datetime:
    """How far a destination has come that has read everything."""
    return max(change.datetime for change in world.look().changes if change.datetime is not None)


def _is_gap(world: PublishedCatalog, position: dt.datetime) -> bool:
    """Whether the Change Lists begin after a position (AMB-23); then the Resource List must not begin before them."""
    since = _read(world, change_list_name("files"))[0].from_
    at = _read(world, resource_list_name("files"))[0].at
    assert since is not None
    assert at is not None
    assert at >= since, "who makes a baseline now must not find a gap again"
    return since > position


def _last_stated(world: PublishedCatalog) -> dt.datetime:
    """The latest time in any document: a destination may stand there, and nowhere later."""
    times: list[dt.datetime | None] = []
    for name in world.store.names("files/"):
        head, entries = _read(world, name)
        times += [head.at, head.from_, head.until, *(one.datetime for one in entries)]
    return max(one for one in times if one is not None)


def _numbers(world: PublishedCatalog) -> set[int]:
    return {int(name[-9:-4]) for name in world.store.names("files/changelist/0")}


def _closed(world: PublishedCatalog) -> dict[str, bytes]:
    return {
        name: data
        for name, (_inode, _time, data) in world.files().items()
        if "/changelist/0" in name and read_bytes(data)[0].until is not None
    }


def _open(world: PublishedCatalog) -> set[str]:
    return set(world.store.names("files/changelist/0")) - set(_closed(world))


def _open_named(world: PublishedCatalog) -> set[str]:
    return {one.loc.removeprefix(f"{BASE}/") for one in _read(world, change_list_name("files"))[1] if not one.until}


@pytest.fixture
def world(tmp_path: Path) -> PublishedCatalog:
    """A set with two closed Change Lists and an open one."""
    made = PublishedCatalog(tmp_path)
    made.begin(9)
    made.publish()
    made.record(*(put(f"n{number}", number) for number in range(12)))
    made.publish()
    made.record(put("late", 1), Delete("r0"))
    made.publish()
    return made


@pytest.mark.parametrize(
    "site",
    [
        Site(base_url="https://elsewhere.example"),
        Site(base_url=BASE, sets=(SetSettings(resource_base="https://files.example/x"),)),
    ],
    ids=["base URL", "resource base"],
)
def test_other_uris_are_a_gap(world: PublishedCatalog, site: Site) -> None:
    """Else nothing would tell a destination that what it holds has other URIs now."""
    position, closed = _position(world), _closed(world)
    moved = Publisher(world.catalog, world.store, site, world.now)
    world.clock.sleep(5)
    moved.publish("files", START)
    assert _is_gap(world, position)
    assert closed.items() <= _closed(world).items(), "RS-TIME-09: closed lists never change"
    assert _open(world) == {"files/changelist/00003.xml"}, (
        "RS-DST-09: who polls the list that was open goes to the index"
    )
    assert [one.loc.split("/")[-1] for one in _read(world, change_list_name("files"))[1]] == ["00003.xml"]
    written = moved.publish("files", START)
    assert written.written == (), "once is enough"
    assert Publisher(world.catalog, world.store, site, world.now).publish("files", START).written == ()


def test_other_words_are_no_gap(world: PublishedCatalog) -> None:
    position = _position(world)
    settings = SetSettings(describedby="https://example.org/about", title="Files")
    Publisher(world.catalog, world.store, Site(base_url=BASE, sets=(settings,)), world.now).publish("files", START)
    since = _read(world, change_list_name("files"))[0].from_
    assert since is not None
    assert since <= position


@pytest.mark.parametrize("gone", [1, 9])
@pytest.mark.parametrize("is_closed", [False, True], ids=["told by the open list", "told by a closed list"])
def test_an_older_catalog_is_a_gap(world: PublishedCatalog, gone: int, is_closed: bool) -> None:
    """What was told after the copy was made is forgotten: `gone` was created and deleted meanwhile."""
    world.catalog.close()
    older = world.folder / "older.sqlite"
    shutil.copy(world.folder / "catalog.sqlite", older)
    world.catalog = SqliteCatalog(world.folder / "catalog.sqlite", limits=LIMITS)
    world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
    world.clock.sleep(60)
    world.record(*(put(f"gone{number}", 1) for number in range(gone)))
    if is_closed:
        world.catalog.close_segment("files", world.now())
    world.publish()
    position, closed = _last_stated(world), _closed(world)
    assert position >= _position(world)
    numbers = _numbers(world)
    world.catalog = SqliteCatalog(older, limits=LIMITS)
    world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
    assert world.publisher.history.is_older_than_documents("files")
    world.publisher.reset_history("files")  # before anything is looked at: no later time is known to the catalog yet
    world.look()  # AMB-63: what the index names is there until it names other lists
    world.clock.sleep(60)
    world.publish()
    assert _is_gap(world, position)
    assert closed.items() <= _closed(world).items(), "RS-TIME-09: their numbers are not given again"
    named = {int(one.loc[-9:-4]) for one in _read(world, change_list_name("files"))[1]}
    assert min(named) > max(numbers), "nor is that of the list that was open, which a cache may keep once it is closed"
    assert _open(world) == _open_named(world), "RS-DST-09: who polls the list that was open is sent to the index"
    assert world.look().state == world.truth()
    assert not world.publisher.history.is_older_than_documents("files")
    world.record(put("after", 1))
    world.publish()
    assert world.look().state == world.truth()


def test_a_new_catalog_over_old_documents_is_a_gap_even_when_the_clock_went_back(world: PublishedCatalog) -> None:
    position, closed = _position(world), _closed(world)
    world.clock.now -= dt.timedelta(days=1)
    world.catalog = SqliteCatalog(world.folder / "new.sqlite", limits=LIMITS)
    world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
    world.begin(3)
    world.publish()
    assert _is_gap(world, position)
    assert closed.items() <= _closed(world).items()
    assert world.look().state == world.truth()


def test_a_first_publication_that_was_cut_off_is_no_story(tmp_path: Path) -> None:
    world = PublishedCatalog(tmp_path)
    world.begin(9)
    world.record(*(put(f"n{number}", number) for number in range(7)))

    class Killed(BaseException):
        """The end of the process."""

    left = 4

    def may_write() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed

    cut = Publisher(world.catalog, world.store, world.site, world.now, options=PublisherOptions(may_write=may_write))
    with pytest.raises(Killed):
        cut.publish("files", world.now())
    assert list(world.store.names("files/changelist/"))
    world.publish()
    assert len(_read(world, change_list_name("files"))[1]) == 2, "both Change Lists are named"
    assert world.look().state == world.truth()


@pytest.mark.parametrize("steps", range(1, 12))
def test_a_break_that_is_cut_off_is_made_all_the_same(world: PublishedCatalog, steps: int) -> None:
    position = _position(world)
    site = Site(base_url="https://elsewhere.example")
    left = steps

    class Killed(BaseException):
        """The end of the process."""

    def may_write() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed

    cut = Publisher(world.catalog, world.store, site, world.now, options=PublisherOptions(may_write=may_write))
    with pytest.raises(Killed):
        cut.publish("files", START)
    assert not cut.site_documents.is_published("files"), "nothing is shown of what is in two shapes"
    Publisher(world.catalog, world.store, site, world.now).publish("files", START)
    assert _is_gap(world, position)


def _without_marks(world: PublishedCatalog) -> None:
    """Leave the documents as a version that knew no marks has written them."""
    for name in list(world.store.names("files/")):
        data = (world.store.root / name).read_bytes()
        world.store.delete(name)
        world.store.put(name, [data])
        assert world.store.mark(name) is None


def _lose_compressed_forms(world: PublishedCatalog) -> None:
    for name in list(world.store.names("files/")):
        (world.store.root / f"{name}.gz").unlink()


def _since(world: PublishedCatalog) -> dt.datetime:
    since = _read(world, change_list_name("files"))[0].from_
    assert since is not None
    return since


@pytest.mark.parametrize("harm", [_without_marks, _lose_compressed_forms])
def test_documents_without_marks_that_are_the_noted_ones_go_on(
    world: PublishedCatalog, harm: Callable[[PublishedCatalog], None]
) -> None:
    since = _since(world)
    harm(world)
    world.store = FolderStore(world.store.root, durable=False)
    world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
    world.publish()
    world.record(put("after", 1))
    world.publish()
    assert _since(world) == since
    assert world.look().state == world.truth()


@pytest.mark.parametrize("is_lost", [False, True], ids=["an older catalog", "a new catalog"])
def test_documents_without_marks_that_the_catalog_does_not_know_are_a_gap(
    world: PublishedCatalog, is_lost: bool
) -> None:
    """Of an older version: nothing proves that the catalog continues what they tell."""
    older = world.folder / "older.sqlite"
    world.catalog.close()
    shutil.copy(world.folder / "catalog.sqlite", older)
    world.catalog = SqliteCatalog(world.folder / "catalog.sqlite", limits=LIMITS)
    world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
    world.record(put("forgotten", 1))
    world.publish()
    position, closed = _last_stated(world), _closed(world)
    _without_marks(world)
    world.catalog = SqliteCatalog(world.folder / "new.sqlite" if is_lost else older, limits=LIMITS)
    world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
    if is_lost:
        world.begin(3)
    world.publish()
    assert _is_gap(world, position)
    assert closed.items() <= _closed(world).items()
    assert _open(world) == _open_named(world), "who polls the list that was open is sent to the index"
    assert world.look().state == world.truth()


def test_a_reset_that_is_cut_off_removes_no_closed_list(
    world: PublishedCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RS-TIME-09, though no mark says that it is closed."""
    closed = _closed(world)
    _without_marks(world)
    world.catalog = SqliteCatalog(world.folder / "new.sqlite", limits=LIMITS)
    world.begin(3)
    for _run in range(2):
        world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
        with monkeypatch.context() as patch:
            patch.setattr(world.catalog, "note", _killed)
            with pytest.raises(InterruptedError):
                world.publisher.reset_history("files")
    world.publish()
    assert closed.items() <= _closed(world).items()
    assert _open(world) == _open_named(world)
    assert world.look().state == world.truth()


def _killed(*_anything: object) -> None:
    raise InterruptedError


def test_another_catalog_that_was_opened_at_the_same_time_is_a_gap(world: PublishedCatalog) -> None:
    """Only the generation tells it from the one that was lost."""
    position = _position(world)
    opened = world.catalog.state("files").opened_at
    assert opened is not None
    world.catalog = SqliteCatalog(world.folder / "new.sqlite", limits=LIMITS)
    world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
    world.catalog.create("files")
    world.catalog.load("files", [put("r0", 1)])
    world.catalog.open("files", opened)
    assert world.catalog.state("files").opened_at == opened
    world.publish()
    assert _is_gap(world, position)
    assert world.look().state == world.truth()


def test_a_catalog_of_the_first_publication_is_a_gap(tmp_path: Path) -> None:
    """The copy was made while the set was published first: its generation is the one of all that came after."""
    world = PublishedCatalog(tmp_path)
    world.begin(3)
    world.publisher.history.with_generation("files", PublicationState())
    world.catalog.close()
    older = world.folder / "older.sqlite"
    shutil.copy(world.folder / "catalog.sqlite", older)
    world.catalog = SqliteCatalog(world.folder / "catalog.sqlite", limits=LIMITS)
    world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
    world.record(put("forgotten", 1))
    world.publish()
    position = _last_stated(world)
    world.catalog = SqliteCatalog(older, limits=LIMITS)
    world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
    world.publish()
    assert _is_gap(world, position)
    assert world.look().state == world.truth()


def test_an_older_catalog_that_has_as_many_changes_again_is_a_gap(world: PublishedCatalog) -> None:
    """The last published number is there, and stands for another change."""
    world.catalog.close()
    older = world.folder / "older.sqlite"
    shutil.copy(world.folder / "catalog.sqlite", older)
    world.catalog = SqliteCatalog(world.folder / "catalog.sqlite", limits=LIMITS)
    world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
    world.record(put("forgotten", 1))
    world.publish()
    position = _last_stated(world)
    world.catalog = SqliteCatalog(older, limits=LIMITS)
    world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
    world.clock.sleep(5)
    world.record(put("instead", 1), put("more", 1))
    world.publish()
    assert _is_gap(world, position)
    assert world.look().state == world.truth()


def test_a_mark_survives_writing_and_what_is_no_mark_is_none() -> None:
    mark = DocumentMark(generation="0123456789abcdef", latest=START, number=7, from_=START, seq=9, is_closed=True)
    widest = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
    wide = DocumentMark(generation="f" * 16, latest=widest, number=10**9, from_=widest, seq=10**15, changed=widest)
    for one in (mark, wide):
        assert decode_mark(one.encode()) == one
        assert len(one.encode()) <= MARK_OCTETS
    for junk in (None, "", "x", "a b c d e f g h", mark.encode() + " 1"):
        assert decode_mark(junk) is None
