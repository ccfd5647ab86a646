"""Random edits of JSON, XML and binary files: a copy of any moment is the folder as it was, or says what it lacks."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.copying import DONE, FAILED, UNDETERMINED, go, tree
from tests.support.examples import MANY
from tests.support.fake_dumps import Dumps
from tests.support.fake_source import Reply, Source, at, document, url
from tests.sync.past.history import History

EDITS, MOMENTS = (2_000, 50) if MANY else (120, 4)
LISTS = 12


def edited(source: Source, chance: random.Random) -> History:
    """A set with a past; the test keeps what its folder was."""
    past = History(source)
    names = [f"{kind}/{n}.{kind}" for kind in ("json", "xml", "bin") for n in range(max(4, EDITS // 30))]
    when = 0.0
    for number in range(EDITS):
        when = round(when + chance.choice((0.000001, 0.25, 1, 7)), 6)
        name = chance.choice(names)
        there = name in past.at(when)
        if there and chance.random() < 0.2:
            past.drop(when, name)
        else:
            past.put(when, name, _octets(name, number, chance))
    return past


def _octets(name: str, number: int, chance: random.Random) -> bytes:
    if name.endswith(".json"):
        return json.dumps({"edit": number, "values": [chance.random() for _ in range(chance.randrange(9))]}).encode()
    if name.endswith(".xml"):
        return b"<edit n='%d'>%s</edit>" % (number, b"<v/>" * chance.randrange(9))
    return b"%d:" % number + chance.randbytes(chance.randrange(400))


def mementos(past: History) -> str:
    """One open Change List, and every version at its own address."""
    past.snapshot(past.clock + 1)
    past.changelist(0, None)
    past.serve_versions()
    return past.publish(archives=False)


def archives(past: History) -> str:
    """No version anywhere: archived Resource Lists and Change Lists, and the packages of Change Dumps."""
    past.link = past.no_links
    _archive(past)
    return _with_dumps(past)


def _archive(past: History) -> list[float]:
    bounds = [round(past.clock * n / LISTS, 6) for n in range(LISTS + 1)]
    bounds[-1] = past.clock + 2
    for number in range(LISTS):
        past.changelist(bounds[number], bounds[number + 1], f"/archive/c{number}.xml")
    for number in range(0, LISTS, 3):
        past.snapshot(bounds[number] + 0.0000001, f"/archive/r{number}.xml")
    past.snapshot(past.clock + 3)
    past.changelist(bounds[-1], None)
    return bounds


def _with_dumps(past: History) -> str:
    dumps, bounds = Dumps(past.site), _bounds(past)
    past.site.changes = past.changes
    dumps.publish_change_packages(*bounds)
    past.source.pages["/set/archived-changedump.xml"] = past.source.pages["/set/changedump.xml"]
    base = past.source.base
    entry = url(f"{base}/set/archived-changedump.xml", **{"from": at(bounds[0]), "until": at(bounds[-1])})
    past.site.serve(
        "/set/changedump-archive.xml", document([entry], links=past.site.up(), capability="changedump-archive")
    )
    address = past.publish()
    past.site.publish_capabilities(
        "resourcelist", "changelist", "resourcelist-archive", "changelist-archive", "changedump-archive"
    )
    return address


def _bounds(past: History) -> list[float]:
    return [0.0, past.clock / 3, 2 * past.clock / 3, past.clock + 1]


def moments(past: History, chance: random.Random) -> list[float]:
    """Random moments, and some at the very time of a change."""
    some = [chance.choice(past.changes)[0] for _ in range(MOMENTS // 2)]
    return some + [round(chance.uniform(0.000001, past.clock), 6) for _ in range(MOMENTS - len(some))]


@pytest.mark.parametrize("published", [mementos, archives])
def test_a_copy_of_any_moment_is_the_folder_as_it_was(
    source: Source, tmp_path: Path, published: Callable[[History], str]
) -> None:
    chance = random.Random(published.__name__)
    past = edited(source, chance)
    address = published(past)
    for number, when in enumerate(moments(past, chance)):
        dest = tmp_path / str(number)
        ran = go(address, dest, at=at(when))
        assert tree(dest) == past.at(when), (when, ran)
        assert ran.status == DONE, ran
        assert not ran.one.unverified


def test_with_parts_missing_what_is_there_is_right_and_the_rest_is_told(source: Source, tmp_path: Path) -> None:
    chance = random.Random(12)
    past = edited(source, chance)
    _archive(past)
    past.serve_versions()
    address = past.publish()
    pages = dict(source.pages)
    partly = 0
    for number, when in enumerate(moments(past, chance)):
        source.pages = dict(pages)
        gone = [path for path in pages if path.startswith(("/version/", "/timegate/", "/timemap/", "/archive/"))]
        for path in chance.sample(gone, len(gone) // chance.choice((2, 4, 20))):
            source.pages[path] = Reply(b"", 404)
        dest = tmp_path / str(number)
        ran = go(address, dest, at=at(when))
        right = past.at(when)
        found = tree(dest) if dest.exists() else {}
        assert found.items() <= right.items(), when
        missing = {past.site.uri(name) for name in right.keys() - found.keys()}
        if ran.report is not None and ran.status != UNDETERMINED:
            told = {failed.uri for failed in ran.one.failures}
            assert missing == told or len(told) == 100
            assert ran.status == (FAILED if missing else DONE)
        partly += bool(missing)
    assert partly
