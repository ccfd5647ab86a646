"""Killed at every step of a transfer by packages: the next run comes to the same end, by whatever way (DST-F7)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.copying import DONE, check, go, is_clean, tree
from tests.support.fake_dumps import Dumps
from tests.support.fake_source import Site, Source
from tests.sync.test_crash_at_any_step import BIG, Film, left_over

pytestmark = pytest.mark.long


def filled(source: Source) -> Dumps:
    site = Site(source)
    for number in range(6):
        site.put(f"d{number % 2}/f{number}", b"%d" % number * (BIG if number == 0 else 40))
    site.clock = 10
    site.publish(since=10)
    return Dumps(site)


def while_it_arrives(source: Source) -> Dumps:
    dumps = filled(source)
    names = list(dumps.site.files)
    dumps.publish_packages(dumps.package(names[:3]), dumps.package(names[3:]))
    dumps.publish("resourcedump")
    return dumps


def from_a_file(source: Source) -> Dumps:
    dumps = filled(source)
    dumps.publish_packages(dumps.on_demand([dumps.site.uri(name) for name in dumps.site.files]))
    dumps.publish("resourcedump")
    return dumps


def on_demand(source: Source) -> Dumps:
    dumps = filled(source)
    links = dumps.offer_demand(resources=4)
    dumps.site.publish_capabilities("resourcelist", "changelist", links=links)
    return dumps


@pytest.mark.parametrize("scene", [while_it_arrives, from_a_file, on_demand])
def test_killed_at_every_step_of_packages(
    scene: Callable[[Source], Dumps],
    source: Source,
    dest: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is placed that is not verified, nothing stays behind, and the next run brings the rest either way."""
    monkeypatch.setattr("headwater.packages.zip_reader.WHOLE_OCTETS", 1_000)
    dumps = scene(source)
    site = dumps.site
    assert go(source.base, dest, prefer="dumps", include=("d1/f1",)).status == DONE
    site.put("d1/f1", b"one, newer")
    site.put("d1/f5", b"x" * BIG)
    site.clock = 20
    site.publish_list()
    site.publish_changes(20)
    dumps = scene_again(scene, dumps)
    film = Film(dest, tmp_path)
    with film.of(monkeypatch):
        assert go(source.base, dest, prefer="dumps").status == DONE
    assert tree(dest) == dict(site.files)
    between = 0
    for picture in film.pictures:
        placed = tree(picture)
        between += 1 < len(placed) < len(site.files)
        assert all(body in (site.files[name], b"1" * 40) for name, body in placed.items()), picture.name
        prefer = "dumps" if int(picture.name) % 2 else "lists"
        assert go(source.base, picture, prefer=prefer).status == DONE, picture.name
        assert tree(picture) == dict(site.files), picture.name
        assert is_clean(picture), picture.name
        assert left_over(picture) == (0, 0), picture.name
        if int(picture.name) % 9 == 0:
            assert check(source.base, picture).verdict == "in sync", picture.name
    assert between
    assert len(film.pictures) > 10


def scene_again(scene: Callable[[Source], Dumps], dumps: Dumps) -> Dumps:
    """The packages of the site as it is by now."""
    names = list(dumps.site.files)
    if scene is while_it_arrives:
        dumps.publish_packages(dumps.package(names[:3]), dumps.package(names[3:]))
    elif scene is from_a_file:
        dumps.publish_packages(dumps.on_demand([dumps.site.uri(name) for name in names]))
    return dumps
