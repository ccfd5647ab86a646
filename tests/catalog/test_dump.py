"""The portable dump: what it carries, and what becomes of one that is cut off, damaged, forged, newer or foreign."""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import io
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.catalog import dump as dump_file
from headwater.catalog.dump import DumpInput, DumpReader, DumpWriter, written
from headwater.catalog.interface import Catalog, Event, Metadata, SetState, StateRow, StateUpdate, Unacceptable
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.catalog.verify import verify
from headwater.errors import HeadwaterError, StoreFault
from headwater.publish.document_names import CHANGE_CHANNEL, FRAMEWORK_CHANNEL
from headwater.spec.records import Link
from headwater.storage.database import Durability
from tests.contract.catalog.cases import SMALL, opened, up
from tests.contract.catalog.model import EVENTS, MOMENTS
from tests.contract.catalog.moving import STORIES, moved, told
from tests.support.examples import examples
from tests.support.failing import failing

NOW = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)


def catalog_in(folder: Path, name: str = "catalog.db") -> SqliteCatalog:
    return SqliteCatalog(folder / name, SMALL, durability=Durability.NORMAL)


def dumped(catalog: Catalog, *names: str) -> bytes:
    out = io.BytesIO()
    writer = DumpWriter(out, names, NOW, "test")
    for _ in names:
        writer.add(catalog)
    writer.finish()
    return out.getvalue()


def loaded(octets: bytes, catalog: Catalog, *names: str) -> list[str]:
    """The sets that have come."""
    reader = DumpReader(DumpInput(io.BufferedReader(io.BytesIO(octets))))
    return [one.name for one in reader.load(catalog, names or reader.header.sets)]


def open_sets(catalog: Catalog) -> list[str]:
    return [state.name for state in catalog.sets() if state.opened_at is not None]


def sealed(lines: list[bytes]) -> bytes:
    """The lines with the digests that a careful forger would give them."""
    digest, out = hashlib.sha256(), b""
    for line in lines:
        said = re.sub(rb'"sha256":"[^"]*"', b'"sha256":"' + digest.hexdigest().encode() + b'"', line)
        digest.update(said)
        out += said
    return out


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteCatalog]:
    """Nothing writes to it."""
    catalog = told(catalog_in(tmp_path_factory.mktemp("origin")))
    opened(catalog, [up("a"), up("b")], "t")
    assert isinstance(catalog, SqliteCatalog)
    yield catalog
    catalog.close()


@pytest.fixture
def target(tmp_path: Path) -> Iterator[SqliteCatalog]:
    catalog = catalog_in(tmp_path, "target.db")
    yield catalog
    catalog.close()


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("story", [case[1] for case in STORIES], ids=[case[0] for case in STORIES])
def test_a_set_comes_back_as_it_went(tmp_path: Path, target: SqliteCatalog, story, packed: bool) -> None:
    origin = story(catalog_in(tmp_path, "origin.db"))
    octets = dumped(origin, "s")
    assert loaded(gzip.compress(octets) if packed else octets, target) == ["s"]
    assert moved(target, "s") == moved(origin, "s")
    assert verify(target, "s") == []
    assert target.changes("s") == []
    origin.close()


def test_what_comes_after_a_move_is_later_than_all_before(origin: SqliteCatalog, target: SqliteCatalog) -> None:
    loaded(dumped(origin, "s"), target)
    before, after = origin.state("s"), target.state("s")
    assert (after.opened_at, after.last_at, after.notes) == (NOW, NOW, b"")
    assert before.last_at is not None
    assert before.last_at < NOW
    assert target.record("s", [up("r1")], NOW).first == before.last_seq + 1
    assert target.changes("s")[0].at > NOW


def test_a_clock_that_was_ahead_ends_no_change_early(target: SqliteCatalog, tmp_path: Path) -> None:
    ahead = catalog_in(tmp_path, "ahead.db")
    opened(ahead)
    ahead.record("s", [up("a")], NOW + dt.timedelta(days=9))
    loaded(dumped(ahead, "s"), target)
    assert target.state("s").opened_at == ahead.state("s").last_at == NOW + dt.timedelta(days=9)
    ahead.close()


def test_a_set_that_is_open_is_never_written_over(origin: SqliteCatalog, target: SqliteCatalog) -> None:
    opened(target, [up("a")])
    before = moved(target, "s")
    with failing("HW-CAT-05"):
        loaded(dumped(origin, "s"), target)
    assert moved(target, "s") == before
    target.create("t")
    target.load("t", [up("another")])
    with failing("HW-DMP-03", match="3 resources"):
        loaded(dumped(origin, "t"), target)
    assert open_sets(target) == ["s"]


def test_a_set_that_changes_meanwhile_is_not_dumped(tmp_path: Path) -> None:
    catalog = told(catalog_in(tmp_path))
    before = iter([catalog.state("s")])

    class Changing:
        """Says once what the set was before."""

        def state(self, name: str) -> SetState:
            return next(before, None) or catalog.state(name)

        def __getattr__(self, name: str) -> Any:
            return getattr(catalog, name)

    catalog.record("s", [up("r1")], NOW)
    with failing("HW-CAT-07"):
        DumpWriter(io.BytesIO(), ["s"], NOW, "test").add(cast(Catalog, Changing()))
    catalog.close()


def test_how_far_hubs_were_told_stays(tmp_path: Path, target: SqliteCatalog) -> None:
    catalog = opened(catalog_in(tmp_path), [up("a")])
    kinds = ["kept", CHANGE_CHANNEL.capability, FRAMEWORK_CHANNEL.capability]
    catalog.record("s", [], NOW, state=StateUpdate([StateRow(kind, "http://hub.example/") for kind in kinds]))
    loaded(dumped(catalog, "s"), target)
    assert set(target.row_counts("s")) == {"kept"}
    catalog.close()


@settings(max_examples=examples(40), deadline=None)
@given(EVENTS, st.lists(st.tuples(EVENTS, MOMENTS, st.booleans()), max_size=4), EVENTS)
def test_whatever_was_done_to_a_set_it_moves(
    first: list[Event], past: list[tuple[list[Event], dt.datetime, bool]], following: list[Event]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        origin, copy = catalog_in(Path(folder)), catalog_in(Path(folder), "copy.db")
        opened(origin, first)
        for events, now, closes in past:
            origin.record("s", events, now)
            if closes:
                origin.close_segment("s", now)
        loaded(dumped(origin, "s"), copy)
        for catalog in (origin, copy):
            catalog.record("s", following, NOW + dt.timedelta(days=1))
        found = [dict(moved(catalog, "s"), order=None) for catalog in (origin, copy)]
        assert found[0] == found[1]
        assert verify(copy, "s") == []
        origin.close()
        copy.close()


def test_every_line_says_what_it_is(origin: SqliteCatalog) -> None:
    lines = [json.loads(line) for line in dumped(origin, "s", "t").splitlines()]
    kinds = [line["kind"] for line in lines]
    assert (lines[0]["kind"], lines[0]["version"], lines[0]["sets"]) == ("headwater-catalog", 4, ["s", "t"])
    assert re.fullmatch(
        r"headwater-catalog set( resource)+ end set( resource){2} end done",
        " ".join(kinds),
    )
    assert [line["set"] for line in lines if line["kind"] == "end"] == ["s", "t"]


def test_what_is_not_taken_is_checked_all_the_same(origin: SqliteCatalog, target: SqliteCatalog) -> None:
    lines = dumped(origin, "s", "t").splitlines(keepends=True)
    lines[4] = lines[4].replace(b'"uri":"', b'"uri":"x')
    with failing("HW-DMP-03"):
        loaded(b"".join(lines), target, "t")
    assert target.sets() == []


Lines = list[bytes]


def _move(lines: Lines, taken: int, to: int) -> Lines:
    lines.insert(to, lines.pop(taken))
    return lines


DAMAGES: list[tuple[str, Callable[[Lines], bytes | Lines]]] = [
    ("cut off after the header", lambda x: x[:1]),
    ("cut off before the first resource", lambda x: x[:2]),
    ("cut off among resources", lambda x: x[:5]),
    ("cut off before the end of the set", lambda x: x[:-2]),
    ("cut off in the middle of a line", lambda x: b"".join(x)[:2_000]),
    ("no digit of a digest left", lambda x: b"".join(x[:-2]) + x[-2][:-20]),
    ("a line lost", lambda x: x[:5] + x[6:]),
    ("a line twice", lambda x: x[:5] + x[4:]),
    ("two resources swapped", lambda x: _move(x, 5, 4)),
    ("the end before a resource", lambda x: _move(x, -2, 7)),
    ("the beginning among the resources", lambda x: _move(x, 1, 5)),
    ("another time", lambda x: b"".join(x).replace(b"00:00.000001Z", b"00:00.000002Z", 1)),
    ("another set's name", lambda x: b"".join(x).replace(b'"name":"s"', b'"name":"r"')),
    ("an empty line", lambda x: [*x[:5], b"\n", *x[5:]]),
    ("no JSON", lambda x: [*x[:5], b"nonsense\n", *x[6:]]),
    ("no UTF-8", lambda x: b"".join(x).replace(b'"uri":"new"', b'"uri":"\xff"')),
    ("an array", lambda x: [*x[:5], b"[1]\n", *x[6:]]),
    ("an unknown kind", lambda x: [*x[:5], b'{"kind":"page2"}\n', *x[6:]]),
    ("a key that this version does not have", lambda x: b"".join(x).replace(b'"uri":', b'"colour":1,"uri":', 1)),
    ("a second header", lambda x: [x[0], *x]),
    ("a number that is none", lambda x: b"".join(x).replace(b'"count":8', b'"count":"8"', 1)),
    ("carriage returns", lambda x: b"".join(x).replace(b"\n", b"\r\n")),
    ("octets base64 cannot be", lambda x: b"".join(x).replace(b'"memo":"', b'"memo":"*', 1)),
]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("damage", [case[1] for case in DAMAGES], ids=[case[0] for case in DAMAGES])
def test_a_damaged_dump_leaves_nothing(origin: SqliteCatalog, target: SqliteCatalog, damage, packed: bool) -> None:
    whole = dumped(origin, "s")
    found = damage(whole.splitlines(keepends=True))
    octets = found if isinstance(found, bytes) else b"".join(found)
    assert octets != whole
    with failing("HW-DMP-03"):
        loaded(gzip.compress(octets) if packed else octets, target)
    assert open_sets(target) == []
    loaded(whole, target)
    assert moved(target, "s") == moved(origin, "s")


FORGED: list[tuple[str, Callable[[Lines], Lines], type[HeadwaterError]]] = [
    ("a resource less", lambda x: x[:4] + x[5:], StoreFault),
    ("counts that agree with less", lambda x: [y.replace(b'"resources":8', b'"resources":7') for y in x], StoreFault),
    ("a beginning that says less", lambda x: [y.replace(b'"count":8', b'"count":7') for y in x], StoreFault),
    ("a resource twice", lambda x: [*x[:4], x[3], *x[5:]], StoreFault),
    ("the end of another set", lambda x: [y.replace(b'"set":"s"', b'"set":"t"') for y in x], StoreFault),
    ("a set twice", lambda x: [y.replace(b'"sets":["s"]', b'"sets":["s","s"]') for y in x], StoreFault),
    ("a time without a zone", lambda x: [y.replace(b'00Z","last_seq"', b'00","last_seq"') for y in x], StoreFault),
    ("an endless number", lambda x: [y.replace(b'"last_seq":12', b'"last_seq":1' + b"2" * 40) for y in x], StoreFault),
    ("a hash of nothing", lambda x: [y.replace(b'"uri":"new"', b'"uri":"new","hash":"0"') for y in x], Unacceptable),
    ("no URI", lambda x: [y.replace(b'"uri":"new"', b'"uri":""') for y in x], Unacceptable),
]


@pytest.mark.parametrize(("forge", "fault"), [case[1:] for case in FORGED], ids=[case[0] for case in FORGED])
def test_a_forged_dump_with_right_digests_is_no_set(
    origin: SqliteCatalog, target: SqliteCatalog, forge, fault: type[HeadwaterError]
) -> None:
    whole = dumped(origin, "s").splitlines(keepends=True)
    assert sealed(whole) == b"".join(whole)
    octets = sealed(forge(list(whole)))
    with pytest.raises(fault):
        loaded(octets, target)
    assert open_sets(target) == []


@pytest.mark.parametrize(
    ("more", "there"),
    [
        (lambda octets: octets.rpartition(b'{"kind":"done"')[0], ["s"]),
        (lambda octets: octets + b"\n", ["s"]),
        (lambda octets: octets + octets, ["s"]),
        (lambda octets: octets.replace(b'"sets":1,', b'"sets":2,'), ["s"]),
        (lambda octets: sealed(octets.replace(b'["s"]', b'["s","t"]').splitlines(keepends=True)), ["s"]),
    ],
    ids=["no last line", "an empty line more", "a whole dump more", "sets miscounted", "a set missing"],
)
def test_what_follows_a_whole_set_is_said_and_the_set_stays(
    origin: SqliteCatalog, target: SqliteCatalog, more, there: list[str]
) -> None:
    with failing("HW-DMP-03"):
        loaded(more(dumped(origin, "s")), target)
    assert open_sets(target) == there
    assert moved(target, "s") == moved(origin, "s")


def test_of_two_sets_the_whole_one_is_there_and_the_cut_one_is_not(
    origin: SqliteCatalog, target: SqliteCatalog
) -> None:
    with failing("HW-DMP-03", match="cut off"):
        loaded(dumped(origin, "s", "t")[:-300], target)
    assert open_sets(target) == ["s"]
    assert moved(target, "s") == moved(origin, "s")


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"\n",
        b"<?xml version='1.0'?><urlset/>\n",
        b"[]\n",
        b'{"kind":"other","version":1}\n',
        b'{"version":1}\n',
        b'{"kind":"headwater-catalog"}\n',
        b'{"kind":"headwater-catalog","version":"1"}\n',
        b"\x1f\x8b",
        b"SQLite format 3\0" + bytes(4096),
        gzip.compress(b"", mtime=0),
        gzip.compress(b"text\n", mtime=0),
    ],
)
def test_what_is_no_dump_is_said(octets: bytes) -> None:
    with failing("HW-DMP-01"):
        DumpReader(DumpInput(io.BufferedReader(io.BytesIO(octets))))


@pytest.mark.parametrize("version", [5, 3, 0, -1])
def test_another_format_is_refused_though_nothing_else_of_it_is_understood(version: int) -> None:
    with failing("HW-DMP-02") as refused:
        DumpReader(io.BytesIO(b'{"kind":"headwater-catalog","version":%d,"everything":"else"}\n' % version))
    assert "Upgrade" in refused.value.todo


@pytest.mark.parametrize("cut", [1, 8, 40])
def test_gzip_that_is_cut_off_or_damaged_is_a_damaged_dump(
    origin: SqliteCatalog, target: SqliteCatalog, cut: int
) -> None:
    octets = gzip.compress(dumped(origin, "s"))
    broken = bytearray(octets)
    broken[-9 - cut] ^= 0x55
    for wrong in (octets[:-cut], bytes(broken)):
        with failing("HW-DMP-03"):
            loaded(wrong, target)


def test_a_line_without_end_is_not_collected(
    monkeypatch: pytest.MonkeyPatch, origin: SqliteCatalog, target: SqliteCatalog
) -> None:
    monkeypatch.setattr(dump_file, "LONGEST_LINE", 5_000)
    octets = dumped(origin, "s").splitlines(keepends=True)[0] + b"x" * 9_000 + b"\n"
    with failing("HW-DMP-03", match="without end"):
        loaded(octets, target)


def test_what_json_makes_difficult_is_kept(tmp_path: Path, target: SqliteCatalog) -> None:
    origin = catalog_in(tmp_path, "odd.db")
    links = (Link(rel="up", href='http://e.org/?a="&b=\\', modified=NOW, extra=(("{urn:x}y", "\u2028\U0001f600"),)),)
    odd = Metadata(lastmod=dt.datetime(1, 1, 1, tzinfo=dt.UTC), length=(1 << 63) - 1, links=links)
    opened(origin, [up('quo"te\\', odd), up("\U0001f600\u2028", Metadata(type='a/b; c="ü"'))])
    loaded(dumped(origin, "s"), target)
    assert moved(target, "s") == moved(origin, "s")
    origin.close()


@pytest.fixture(scope="module")
def whole(origin: SqliteCatalog) -> bytes:
    return dumped(origin, "s")


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_whatever_octet_is_another_nothing_is_loaded(whole: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, whole.rindex(b'{"kind":"done"') - 1))
    octet = data.draw(st.integers(0, 255).filter(lambda value: value != whole[place]))
    with tempfile.TemporaryDirectory() as folder:
        target = catalog_in(Path(folder))
        with pytest.raises(HeadwaterError):
            loaded(whole[:place] + bytes([octet]) + whole[place + 1 :], target)
        assert open_sets(target) == []
        target.close()


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "dump.ndjson"
    path.write_bytes(b"before")

    def fail_halfway() -> None:
        with written(path) as out:
            out.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert [one.name for one in tmp_path.iterdir()] == ["dump.ndjson"]
    assert path.read_bytes() == b"before"
    with written(path) as out:
        out.write(b"whole")
    assert path.read_bytes() == b"whole"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_full_disk_is_said() -> None:
    with pytest.raises(OSError, match="No space left"), written(Path("/dev/full")) as out:
        out.write(b"x" * 1_000_000)


def test_a_name_in_gz_is_gzip(tmp_path: Path) -> None:
    with written(tmp_path / "dump.gz") as out:
        out.write(b"line\n" * 100_000)
    assert gzip.decompress((tmp_path / "dump.gz").read_bytes()) == b"line\n" * 100_000
    assert out.octets == (tmp_path / "dump.gz").stat().st_size
