"""Publications that lose the right to write, are killed, or overlap with others: nothing newer is ever replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path

import pytest

from headwater.catalog.content import NoContent, OpenContent, RecordedResource
from headwater.catalog.interface import Segment
from headwater.publish.plan import GRACE_SECONDS
from headwater.publish.publication_state import decode_publication
from headwater.publish.publisher import Publisher, PublisherOptions
from headwater.publish.site import SetSettings
from headwater.storage.folder_store import FolderStore
from headwater.storage.object_store import XML, Mark, ObjectKind, PutResult
from tests.publish.packed_catalog import PackedCatalog, read_resource_dump
from tests.support.published import PublishedCatalog, put

DAY = 86_400.0


class Lost(Exception):
    """Another process has the right to publish."""


class Lease:
    """The right to publish, which is lost after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self) -> None:
        self.left -= 1

    def check(self) -> None:
        if self.left <= 0:
            raise Lost


class WatchedStore(FolderStore):
    """A store in which a step passes after each block and each document; notes what is put there without the right."""

    def __init__(self, folder: Path, lease: Lease, wrong: list[str]) -> None:
        super().__init__(folder, durable=False)
        self._lease, self._wrong = lease, wrong

    def put(self, name: str, blocks: Iterable[bytes], kind: ObjectKind = XML, mark: Mark | None = None) -> PutResult:
        done = super().put(name, self._stepping(blocks), kind, mark)
        if self._lease.left <= 0:
            self._wrong.append(name)
        self._lease.step()
        return done

    def _stepping(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        for block in blocks:
            yield block
            self._lease.step()


def test_who_loses_the_right_to_publish_at_any_step_writes_nothing_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the document that is being made, no note, no row of a page: they are those of another process by now."""
    for steps in count(1):
        folder, lease, wrong = tmp_path / str(steps), Lease(steps), list[str]()
        folder.mkdir()
        world = PublishedCatalog(folder, sets=(SetSettings(classic=True, sitemap=True),))
        world.begin(9)
        world.publish()
        world.record(put("r1", 1), put("new", 1))
        with monkeypatch.context() as context:
            for method in ("note", "rendered"):
                context.setattr(world.catalog, method, _watched(lease, wrong, getattr(world.catalog, method)))
            store = WatchedStore(folder / "documents", lease, wrong)
            options = PublisherOptions(may_write=lease.check)
            world.publisher = Publisher(world.catalog, store, world.site, world.now, options=options)
            try:
                world.publish(force=True)
            except Lost:
                is_over = False
            else:
                is_over = True
        assert not wrong, steps
        world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
        world.publish(force=True)
        assert world.look().state == world.truth()
        if is_over:
            break
    assert steps > 20


def _watched(lease: Lease, wrong: list[str], method: Callable[..., None]) -> Callable[..., None]:
    def watched(*arguments: object) -> None:
        if lease.left <= 0:
            wrong.append(method.__name__)
        method(*arguments)

    return watched


def test_a_rotation_that_is_killed_at_any_step_is_followed_by_a_new_resource_list(tmp_path: Path) -> None:
    """A closed Change List whose `until` no Resource List has would leave that as old as it is for another period."""
    for steps in count(1):
        folder = tmp_path / str(steps)
        folder.mkdir()
        world = PublishedCatalog(folder, segment_entries=1_000, sets=(SetSettings(rotation_seconds=DAY),))
        world.begin(9)
        world.publish()
        world.record(put("a", 1))
        world.clock.sleep(DAY)
        world.publish()
        lease = Lease(steps)
        with pytest.MonkeyPatch.context() as context:
            for method in ("note", "close_segment"):
                context.setattr(world.catalog, method, _cut(lease, getattr(world.catalog, method)))
            try:
                world.publisher.rotate("files")
            except Lost:
                is_over = False
            else:
                is_over = True
        world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
        world.publish()
        closed = [one.until for one in world.catalog.segments("files") if one.until is not None]
        assert not closed or world.look().at >= closed[-1]
        assert world.look().state == world.truth()
        if is_over:
            assert closed
            break


def _cut(lease: Lease, method: Callable[..., Segment | None]) -> Callable[..., Segment | None]:
    def cut(*arguments: object) -> Segment | None:
        lease.step()
        lease.check()
        return method(*arguments)

    return cut


def test_packages_are_not_named_over_those_of_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dump that has changed while a page was packed is the newer one, and stays (AMB-63)."""
    world = PackedCatalog(tmp_path)
    contents = {f"r{number}": b"text %d" % number for number in range(8)}
    world.load(contents)
    world.publish()
    ours = world.publisher
    world.configure()
    theirs = world.publisher
    is_overtaken = False
    open_content = world.contents.open

    def overtaken(set_name: str, resource: RecordedResource) -> OpenContent | NoContent:
        nonlocal is_overtaken
        if not is_overtaken:
            is_overtaken = True
            while theirs.pack_resources("files").is_done:
                pass
        return open_content(set_name, resource)

    monkeypatch.setattr(world.contents, "open", overtaken)
    ours.pack_resources("files")
    assert is_overtaken
    state = decode_publication(world.catalog.state("files").notes).resource_dump
    assert state is not None
    assert (len(state.pages), state.is_offered) == (2, True)
    world.publish()
    world.clock.sleep(GRACE_SECONDS + 1)
    world.publish()
    found = read_resource_dump(world.fetch)
    assert found is not None
    prefix = world.site.resource_prefix("files")
    assert found.resources == {prefix + uri: content for uri, content in contents.items()}
