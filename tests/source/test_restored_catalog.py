"""A source whose catalog is an older copy, or lost: what it publishes then is true, and a gap for who knows more."""

import shutil
from pathlib import Path

import pytest

from headwater.progress import Notice
from headwater.source.source import Source
from tests.source.test_source import WatchedSource
from tests.support.waiting import until


def _catalog(world: WatchedSource) -> list[Path]:
    return sorted(world.state.glob("catalog.sqlite*"))


def test_another_base_url_is_told(tmp_path: Path) -> None:
    world = WatchedSource(tmp_path)
    world.put("a")
    for base_url, count in (("http://one.example", 0), ("http://two.example", 1), ("http://two.example", 0)):
        world.events.clear()
        with Source(world.config(base_url), listener=world.events.append) as source:
            source.run_once()
        told = [one.message for one in world.events if isinstance(one, Notice) and one.rule == "HW-PUB-17"]
        assert len(told) == count
        assert all("the base URL of the source, or of its resources, has changed" in one for one in told)


@pytest.mark.parametrize("is_older", [True, False], ids=["an older copy", "none"])
@pytest.mark.parametrize("follows", [True, False], ids=["served", "published once"])
def test_who_was_told_more_than_the_catalog_knows_finds_a_gap(tmp_path: Path, is_older: bool, follows: bool) -> None:
    """AMB-23: `forgotten` was announced after the copy was made, and is gone: no change will ever say so."""
    world = WatchedSource(tmp_path)
    world.put("kept")
    with Source(world.config()) as source:
        source.run_once()
    world.put("first")
    with Source(world.config()) as source:
        source.run_once()
    aside = tmp_path / "aside"
    aside.mkdir()
    for path in _catalog(world):
        shutil.copy(path, aside)
    world.put("forgotten")
    with Source(world.config()) as source:
        source.run_once()
    position = max(one.datetime for one in world.tree.changes() if one.datetime is not None)
    (world.folder / "forgotten").unlink()
    world.put("found", b"while nobody looked")
    for path in _catalog(world):
        path.unlink()
    if is_older:
        for path in aside.iterdir():
            shutil.copy(path, world.state)
    if follows:
        with world.running():
            until(lambda: world.tree.read("files/changelist.xml")[0].from_ > position and world.is_current())  # type: ignore[operator]
    else:
        with Source(world.config(), listener=world.events.append) as source:
            source.run_once()
    (told,) = [one for one in world.events if isinstance(one, Notice) and one.rule == "HW-PUB-17"]
    assert ("an older copy of it restored?" if is_older else "was it lost?") in told.message
    since = world.tree.read("files/changelist.xml")[0].from_
    at = world.tree.read("files/resourcelist.xml")[0].at
    assert since is not None
    assert at is not None
    assert position < since <= at
    assert world.is_current()
    world.put("later")
    world.events.clear()
    with Source(world.config(), listener=world.events.append) as source:
        source.run_once()
    assert not [one for one in world.events if isinstance(one, Notice) and one.rule == "HW-PUB-17"]
    assert world.tree.read("files/changelist.xml")[0].from_ == since, "once is enough"
    assert world.is_current()
