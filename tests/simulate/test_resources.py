"""The laws of synthetic resources: what is listed is true, and follows from seed, set, number and version alone."""

from __future__ import annotations

import datetime as dt
import hashlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.catalog.interface import Upsert
from headwater.simulate.resources import (
    STEPS,
    Filler,
    Sizes,
    SourceSettings,
    SyntheticResources,
    read_version,
    write_version,
)
from headwater.spec.records import HASHLIB, ChangeKind, parse_hash

START = dt.datetime(2026, 1, 1, 12, 30, 15, 250_000, tzinfo=dt.UTC)
PAGE = (4096, 4096)
NUMBERS = st.integers(0, 10**9)
VERSIONS = st.integers(0, 2**40)
SIZES = st.tuples(st.integers(0, 300_000), st.integers(0, 300_000)).map(lambda two: (min(two), max(two)))


def made(sizes: Sizes = PAGE, *, seed: int = 1, name: str = "s", **world: object) -> SyntheticResources:
    whole = SourceSettings(resources=10, sets=(name,), seed=seed, sizes=sizes, **world)  # type: ignore[arg-type]
    return SyntheticResources(whole, name, Filler(seed, whole.hashes))


def octets(resources: SyntheticResources, number: int, version: int) -> bytes:
    content = resources.content(number, version)
    return content.read(0, content.octets)


@given(SIZES, NUMBERS, VERSIONS)
@example((0, 0), 0, 0)
@example((0, 1), 1, 1)
@example((63, 65), 2, 1)
def test_what_is_listed_is_true(sizes: Sizes, number: int, version: int) -> None:
    resources = made(sizes, hashes=("md5", "sha-256"))
    whole = octets(resources, number, version)
    listed = resources.metadata(number, version, START)
    assert listed.length == len(whole)
    assert sizes[0] <= len(whole) <= sizes[1]
    digests = parse_hash(listed.hash or "").digests
    assert [one.algorithm for one in digests] == ["md5", "sha-256"]
    for digest in digests:
        assert hashlib.new(HASHLIB[digest.algorithm], whole).hexdigest() == digest.hex


@given(NUMBERS, VERSIONS, st.integers(0, 200_000), st.integers(0, 200_000))
def test_a_part_is_a_part_of_the_whole(number: int, version: int, start: int, end: int) -> None:
    resources = made((1, 150_000))
    content = resources.content(number, version)
    assert content.read(start, end - start) == octets(resources, number, version)[start:end]


def test_digests_of_large_resources_need_few_states() -> None:
    resources = made((1_000_000, 9_000_000))
    fillers = {resources.content(number, 0).shared for number in range(2_000)}
    assert len(fillers) <= STEPS
    lengths = {resources.content(number, 0).octets for number in range(2_000)}
    assert len(lengths) > 1_000


def test_sizes_spread_over_their_range() -> None:
    resources = made((0, 9_999))
    lengths = [resources.content(number, 0).octets for number in range(5_000)]
    assert 4_700 < sum(lengths) / len(lengths) < 5_300
    assert min(lengths) < 200
    assert max(lengths) > 9_700


@given(NUMBERS)
def test_a_path_says_the_number(number: int) -> None:
    resources = made(suffixes=("pdf", "html", "xml"))
    path = resources.path(number)
    assert resources.number(path) == number
    assert path.count("/") == 2
    kind = resources.metadata(number, 0, START).type
    assert kind in {"application/pdf", "text/html", "application/xml"}


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a",
        "000/000/000000001.html",
        "001/000/000000001.pdf",
        "000/000/00000001.pdf",
        "000/000/000000001.pdf\n",
        "000/000/0000000001.pdf",
        "000/000/00000000１.pdf",
        "http://a/000/000/000000001.pdf",
    ],
)
def test_another_path_says_nothing(path: str) -> None:
    assert made().number(path) is None


def test_paths_come_in_the_order_of_numbers() -> None:
    resources = made(suffixes=("txt", "a"))
    paths = [resources.path(number) for number in range(0, 3_000_000, 997)]
    assert paths == sorted(paths)


@given(NUMBERS, VERSIONS)
def test_all_follows_from_seed_set_number_and_version(number: int, version: int) -> None:
    first = octets(made(), number, version)
    assert octets(made(), number, version) == first
    others = [(made(seed=2), number, version), (made(name="t"), number, version)]
    others += [(made(), number + 1, version), (made(), number, version + 1)]
    for resources, other, later in others:
        assert octets(resources, other, later) != first


@given(VERSIONS)
def test_a_version_comes_back_from_its_memo(version: int) -> None:
    assert read_version(write_version(version)) == version
    assert write_version(0) == b""


def test_the_beginning_is_before_the_start_and_to_the_second() -> None:
    resources = made()
    loaded = resources.initial(range(3_000), START)
    times = [one.metadata.lastmod for one in loaded]
    assert all(moment is not None and moment <= START and moment.microsecond == 0 for moment in times)
    assert len(set(times)) > 500
    assert loaded == resources.initial(range(1_000), START) + resources.initial(range(1_000, 3_000), START)
    assert [one.memo for one in loaded[:2]] == [b"", b""]


def test_a_change_carries_its_version() -> None:
    resources = made()
    event = resources.event(ChangeKind.UPDATED, 7, 300, START)
    assert isinstance(event, Upsert)
    assert read_version(event.memo) == 300
    assert event.metadata == resources.metadata(7, 300, START.replace(microsecond=0))
    assert resources.event(ChangeKind.DELETED, 7, 301, START).uri == event.uri


def test_a_content_is_read_from_any_place() -> None:
    resources = made((70_000, 70_000))
    whole = octets(resources, 3, 4)
    content = resources.content(3, 4)
    assert content.read(0, 1 << 20) == whole
    assert content.read(69_900, 60) == whole[-100:-40]
    assert content.read(69_990, 60) == whole[-10:]
    assert content.read(70_000, 60) == content.read(80_000, 60) == b""
    assert content.read(65_530, 20) == whole[65_530:65_550]
