"""The lists for old harvesters, and the plain Sitemap: what they hold, what they cost, what their readers come to."""

from __future__ import annotations

import json
import re
from io import BytesIO
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from headwater.catalog.interface import Delete, Event, Metadata, Upsert
from headwater.progress import Notice
from headwater.publish import whole_lists
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import decode_publication
from headwater.publish.publisher import Publisher
from headwater.publish.resource_lists import PageRound, RenderedPage, page
from headwater.publish.site import SITEMAPS, SetSettings
from headwater.publish.store_writer import PublicationJob
from headwater.spec.kinds import RULES, Kind
from headwater.spec.markup import md5_alone, plain_entries
from headwater.spec.records import ChangeKind
from tests.publish.classic_reader import ClassicReader, read, truth
from tests.publish.test_publisher import Killed, Mortal
from tests.spec.test_schemas import errors
from tests.support.documents import read_bytes
from tests.support.examples import examples
from tests.support.published import BASE, PublishedCatalog, put

pytestmark = pytest.mark.long(15)

CLASSIC = SetSettings(classic=True, classic_entries=8, sitemap=True)
CHANGE_LIST, RESOURCE_LIST = "files/classic/changelist.xml", "files/classic/resourcelist.xml"


def world_of(folder: Path, one: SetSettings = CLASSIC, *, page_entries: int = 50) -> PublishedCatalog:
    return PublishedCatalog(folder, sets=(one,), page_entries=page_entries)


def test_what_the_lists_are(tmp_path: Path) -> None:
    """Two capabilities, no index, MD5 alone, `lastmod` the time of each change, nothing of ours (RS-CAP-02…05)."""
    world = world_of(tmp_path)
    world.begin(3)
    sha, md5 = "sha-256:" + "0" * 64, "md5:" + "1" * 32
    world.record(Upsert("n&1", Metadata(hash=f"{sha} {md5}", type="text/plain")), Delete("r0"), put("r1", 1))
    world.publish()
    capabilities, offered = read(world.fetch, "files/classic/capabilitylist.xml")
    assert [(one.capability, one.loc) for one in offered] == [
        ("resourcelist", f"{BASE}/{RESOURCE_LIST}"),
        ("changelist", f"{BASE}/{CHANGE_LIST}"),
    ]
    assert str(capabilities.links[-1].href) == f"{BASE}/.well-known/resourcesync"
    for name in (RESOURCE_LIST, CHANGE_LIST):
        document, entries = read(world.fetch, name)
        assert [(one.rel, one.href) for one in document.links] == [("up", f"{BASE}/files/classic/capabilitylist.xml")]
        assert md5 in [one.hash for one in entries], "some readers take two digests for one, and fetch without end"
        data = world.fetch(f"{BASE}/{name}") or b""
        assert b"urn:uuid" not in data
        assert errors(data, RULES[document.kind].root) == []
    changes = read(world.fetch, CHANGE_LIST)[1]
    assert [one.change for one in changes] == [ChangeKind.CREATED, ChangeKind.DELETED, ChangeKind.UPDATED]
    assert all(one.lastmod == one.datetime is not None for one in changes), "AMB-19"


@pytest.mark.parametrize("is_first", [True, False])
def test_a_change_that_comes_while_they_are_written_is_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    """RS-CL-14: for the first time, or anew; the set's own Change List has it, so that nothing is due after that."""
    world = world_of(tmp_path)
    world.begin(3)
    refresh = Refresh.DUE
    if not is_first:
        world.publish()
        refresh = Refresh.ALL

    def render_late(job: PublicationJob, round_: PageRound, number: int, *, indexed: bool) -> RenderedPage:
        rendered = page(job, round_, number, indexed=indexed)
        world.record(put("r1", 1), put("late", 1))
        return rendered

    monkeypatch.setattr("headwater.publish.resource_lists.page", render_late)
    published = world.publisher.publish("files", world.catalog.mark("files", world.now()), refresh)
    assert published.seq == world.catalog.state("files").last_seq
    changes = [one.loc.rpartition("/")[2] for one in read(world.fetch, CHANGE_LIST)[1]]
    assert changes == ["r1", "late"]
    reader = ClassicReader(world.fetch)
    reader.look()
    assert reader.state == truth(world)


def test_they_are_named_beside_the_set(tmp_path: Path) -> None:
    """In the Source Description, with the set's own Capability List as the canonical one; the Sitemap in robots.txt."""
    world = world_of(tmp_path)
    world.begin(1)
    world.publish()
    _, sets = read(world.fetch, ".well-known/resourcesync")
    assert [(one.loc, [(link.rel, link.href) for link in one.links]) for one in sets] == [
        (f"{BASE}/files/capabilitylist.xml", []),
        (f"{BASE}/files/classic/capabilitylist.xml", [("canonical", f"{BASE}/files/capabilitylist.xml")]),
    ]
    robots = (world.fetch(f"{BASE}/robots.txt") or b"").decode()
    assert re.findall("Sitemap: (.*)", robots) == [f"{BASE}/files/resourcelist.xml", f"{BASE}/files/sitemap.xml"]


def test_nothing_is_done_for_what_did_not_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(tmp_path, page_entries=4)
    world.begin(9)
    world.publish()
    assert world.publish(force=True).written == ()
    world.record(put("r1", 1))
    assert set(world.publish().written) == {"files/changelist.xml", "files/changelist/open.xml", CHANGE_LIST}
    monkeypatch.setattr(whole_lists, "DOCUMENT_ENTRIES", 8)
    written = set(world.publish(force=True).written)
    parts = {f"files/{view}/0000{number}.xml" for view in ("classic/resourcelist", "sitemap") for number in range(2)}
    assert (
        written
        == {"files/resourcelist/00000.xml", "files/resourcelist.xml", RESOURCE_LIST, "files/sitemap.xml"} | parts
    )
    world.record(put("r5", 1))
    written = set(world.publish(force=True).written)
    assert {name for name in written if name in parts} == {
        "files/classic/resourcelist/00000.xml",
        "files/classic/resourcelist/00001.xml",
        "files/sitemap/00000.xml",
    }, "of several Sitemaps those whose resources have changed; Resource Lists state their time"


def test_lists_that_were_made_of_pages_are_written_anew(tmp_path: Path) -> None:
    """What an earlier version has noted of them: a document for each page, and that they wait for pages."""
    world = world_of(tmp_path)
    world.begin(3)
    world.publish()
    notes = json.loads(world.catalog.state("files").notes)
    at = notes["classic"]["resources"]["at"]
    parts = [[number, "etag", 1, 0, at, at] for number in range(3)]
    for view in (notes["classic"]["resources"], notes["sitemap"]):
        view |= {"parts": parts, "is_indexed": True}
    notes["classic"] |= {"form": 1, "waits_for_pages": True}
    old = [f"files/{view}/0000{n}.xml" for view in ("classic/resourcelist", "sitemap") for n in range(3)]
    for name in old:
        world.store.put(name, [b"<urlset/>"])
    world.catalog.note("files", json.dumps(notes).encode())
    world.record(put("r1", 1))
    world.publish(force=True)
    assert read(world.fetch, RESOURCE_LIST)[0].kind is Kind.RESOURCE_LIST
    world.clock.sleep(7_200)
    world.publish()
    assert not {*old} & {*world.store.names("files/")}


def test_beyond_one_document_there_is_an_index_and_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_lists, "DOCUMENT_ENTRIES", 8)
    world = world_of(tmp_path, page_entries=4)
    told: list[object] = []
    world.publisher = Publisher(world.catalog, world.store, world.site, world.now, told.append)
    world.begin(8)
    world.publish()
    assert read(world.fetch, RESOURCE_LIST)[0].kind is Kind.RESOURCE_LIST
    world.record(put("n", 1))
    world.publish(force=True)
    index, parts = read(world.fetch, RESOURCE_LIST)
    assert index.kind is Kind.RESOURCE_LIST_INDEX
    for part in parts:
        leaf, _ = read(world.fetch, part.loc.removeprefix(f"{BASE}/"))
        assert (leaf.at, leaf.completed) == (part.at, part.completed), "RS-TIME-14"
        assert [link.href.removeprefix(f"{BASE}/files/classic/") for link in leaf.links] == [
            "capabilitylist.xml",
            "resourcelist.xml",
        ]
    assert [one.rule for one in told if isinstance(one, Notice)] == ["HW-PUB-16"]
    assert read_bytes(world.fetch(f"{BASE}/files/sitemap.xml") or b"")[0].kind is Kind.SITEMAP_INDEX
    world.record(Delete("n"))
    world.publish(force=True)
    assert read(world.fetch, RESOURCE_LIST)[0].kind is Kind.RESOURCE_LIST
    world.clock.sleep(7_200)
    world.publish()
    assert not [name for name in world.store.names("files/") if re.search("(classic/resourcelist|sitemap)/", name)]


def test_a_sitemap_has_nothing_of_resourcesync(tmp_path: Path) -> None:
    """AMB-64; a URI that is too long for a Sitemap is left out (RS-DOC-19)."""
    world = world_of(tmp_path)
    world.begin(2)
    world.record(put("x" * 2_100, 0), put("a&b", 0))
    world.publish(force=True)
    data = world.fetch(f"{BASE}/files/sitemap.xml") or b""
    document, entries, _ = read_bytes(data)
    assert document.kind is Kind.SITEMAP
    assert [one.loc.rpartition("/")[2] for one in entries] == ["a&b", "r0", "r1"]
    assert all(one.lastmod for one in entries)
    assert {str(element.tag).partition("}")[0] for element in etree.parse(BytesIO(data)).iter()} == {
        "{http://www.sitemaps.org/schemas/sitemap/0.9"
    }


def test_one_index_names_the_sitemaps_of_all_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To hand in to a search engine, which takes no index in an index."""
    monkeypatch.setattr(whole_lists, "DOCUMENT_ENTRIES", 8)

    def settings_of(names: str) -> tuple[SetSettings, ...]:
        return tuple(SetSettings(name=name, sitemap=name in names) for name in "abc")

    def named() -> tuple[list[str], list[str]]:
        """The Sitemaps in robots.txt, and what the index names."""
        robots, index = (world.fetch(f"{BASE}/{name}") for name in ("robots.txt", SITEMAPS))
        listed = [] if index is None else [one.loc.removeprefix(f"{BASE}/") for one in read_bytes(index)[1]]
        for name in listed:
            assert read_bytes(world.fetch(f"{BASE}/{name}") or b"")[0].kind is Kind.SITEMAP
        return re.findall(rf"Sitemap: {BASE}/(.*sitemap.*)", (robots or b"").decode()), listed

    def another_process(names: str) -> None:
        world.site = msgspec.structs.replace(world.site, sets=settings_of(names))
        world.publisher = Publisher(world.catalog, world.store, world.site, world.now)

    world = PublishedCatalog(tmp_path, sets=settings_of("ab"), page_entries=50)
    for name in "abc":
        world.begin(3, name)
        world.publish(name=name)
    assert named() == ([SITEMAPS], ["a/sitemap.xml", "b/sitemap.xml"])
    world.record(*(put(f"n{number}", 0) for number in range(9)), name="b")
    world.publish(force=True, name="b")
    parts = ["a/sitemap.xml", "b/sitemap/00000.xml", "b/sitemap/00001.xml"]
    assert named() == ([SITEMAPS], parts)
    world.store.delete(SITEMAPS)
    another_process("ab")
    world.publish(name="c")
    assert named() == ([SITEMAPS], parts), "as after a kill, and after an older version"
    another_process("b")
    for name in "abc":
        world.publish(name=name)
    assert named() == (["b/sitemap.xml"], [])


def test_what_is_switched_off_is_no_longer_named_and_goes_after_an_hour(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.begin(2)
    world.publish()
    (tmp_path / "plain").mkdir()
    plain = Publisher(world.catalog, world.store, PublishedCatalog(tmp_path / "plain").site, world.now)
    plain.publish("files", world.now())
    assert len(read(world.fetch, ".well-known/resourcesync")[1]) == 1
    assert world.fetch(f"{BASE}/{CHANGE_LIST}") is not None
    world.clock.sleep(7_200)
    plain.publish("files", world.now())
    assert not [name for name in world.store.names("files/") if "classic" in name or "sitemap" in name]


def events_of(kinds: list[int], version: int) -> list[Event]:
    return [Delete(f"r{kind}") if (kind + version) % 3 == 0 else put(f"r{kind}", version) for kind in kinds]


@given(
    steps=st.lists(
        st.tuples(
            st.lists(st.integers(0, 9), max_size=14),
            st.sampled_from([Refresh.CHANGES, Refresh.DUE, Refresh.STALE, Refresh.ALL]),
            st.booleans(),
            st.integers(0, 3),
        ),
        max_size=8,
    ),
    retention=st.sampled_from([None, 2_000.0]),
    page_entries=st.sampled_from([3, 50]),
)
@settings(max_examples=examples(25), deadline=None)
def test_whoever_looks_seldom_or_often_has_the_state_that_is_published(
    tmp_path_factory: pytest.TempPathFactory, steps, retention: float | None, page_entries: int
) -> None:
    """AMB-23, DST-C2: a reader that was away finds all changes, or sees the gap; and after a baseline there is none."""
    one = SetSettings(classic=True, classic_entries=8, retention_seconds=retention, segment_seconds=500.0)
    world = world_of(tmp_path_factory.mktemp("world"), one, page_entries=page_entries)
    world.begin(4)
    world.publish()
    often, seldom = ClassicReader(world.fetch), ClassicReader(world.fetch)
    for number, (kinds, refresh, looks, hours) in enumerate(steps):
        if kinds:
            world.record(*events_of(kinds, number))
        done = world.publisher.publish("files", world.catalog.mark("files", world.now()), refresh)
        if done.pages_left:  # too many at once for changes alone: the next publication is one with pages
            world.publish()
        often.look()
        assert often.state == truth(world)
        if looks:
            seldom.look()
            assert seldom.state == truth(world)
        ClassicReader(world.fetch).look()
        world.clock.sleep(hours * 1_000.0)
    world.catalog.close()


def test_a_reader_finds_the_gap_when_the_list_has_begun_anew(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.begin(2)
    world.publish()
    near, far = ClassicReader(world.fetch), ClassicReader(world.fetch)
    near.look()
    far.look()
    for number in range(10):
        world.record(put("r0", number + 1))
        world.publish()
        if number > 4:
            near.look()
    far.look()
    assert (near.baselines, far.baselines) == (1, 2)
    assert near.state == far.state == truth(world)


def test_too_many_octets_begin_it_anew_too(tmp_path: Path) -> None:
    world = world_of(tmp_path, SetSettings(classic=True, classic_entries=1_000))
    world.catalog.limits = type(world.catalog.limits)(segment_octets=4_000)
    world.begin(2)
    world.publish()
    reader = ClassicReader(world.fetch)
    for number in range(40):
        world.record(put("r0", number + 1))
        if world.publish().pages_left:
            world.publish()
        reader.look()
        assert reader.state == truth(world)
        assert len(world.fetch(f"{BASE}/{CHANGE_LIST}") or b"") < 5_000
    assert reader.baselines == 1


def test_killed_anywhere_no_reader_loses_a_change(tmp_path: Path) -> None:
    """A publication dies at its every step in turn, with a list that grows and one that begins anew."""
    for step in range(160):
        folder = tmp_path / str(step)
        folder.mkdir()
        world = world_of(folder, page_entries=4)
        world.begin(6)
        world.publish()
        reader = ClassicReader(world.fetch)
        reader.look()
        world.record(*(put(f"n{n}", n) for n in range(5 if step % 2 else 9)), Delete("r1"))
        store = Mortal(folder / "documents", durable=False)
        store.left = step // 2
        is_done = True
        try:
            dying = Publisher(world.catalog, store, world.site, world.now)
            dying.publish("files", world.catalog.mark("files", world.now()))
        except Killed:
            is_done = False
        reader.look()
        ClassicReader(world.fetch).look()
        world.publish(force=True)
        reader.look()
        late = ClassicReader(world.fetch)
        late.look()
        assert reader.state == late.state == truth(world)
        assert world.publish(force=True).written == ()
        world.catalog.close()
        if is_done and step % 2:
            return
    raise AssertionError("the publication never came to its end")


def test_when_change_lists_begin_anew_these_readers_see_it_too(tmp_path: Path) -> None:
    """An older catalog is brought back: what was published since is forgotten, and a gap says so."""
    world = world_of(tmp_path)
    world.begin(2)
    world.publish()
    reader = ClassicReader(world.fetch)
    reader.look()
    before = decode_publication(world.catalog.state("files").notes)
    assert before.classic is not None
    (tmp_path / "catalog.sqlite").rename(tmp_path / "gone.sqlite")
    other = world_of(tmp_path)
    other.begin(1)
    other.publish()
    reader.look()
    assert reader.baselines == 2
    assert reader.state == truth(other)


@pytest.mark.parametrize(
    ("given", "alone"),
    [
        (b'<rs:md hash="sha-256:00 md5:11"/>', b'<rs:md hash="md5:11"/>'),
        (b'<rs:md hash="sha-1:0 md5:11 sha-256:00"/>', b'<rs:md hash="md5:11"/>'),
        (b'<rs:md hash="md5:11 sha-256:00" length="1"/>', b'<rs:md hash="md5:11" length="1"/>'),
        (b'<rs:md hash="md5:11"/>', b'<rs:md hash="md5:11"/>'),
        (b'<rs:md hash="sha-256:00"/>', b'<rs:md hash="sha-256:00"/>'),
        (
            b'<loc>http://a/?hash=sha-256:0 md5:1</loc><rs:md x="0"/>',
            b'<loc>http://a/?hash=sha-256:0 md5:1</loc><rs:md x="0"/>',
        ),
    ],
)
def test_md5_is_the_only_digest(given: bytes, alone: bytes) -> None:
    assert md5_alone(given) == alone


def test_only_the_elements_of_resourcesync_go() -> None:
    entry = b"<url><loc>http://a/?rs:md/&gt;</loc>%s<changefreq>daily</changefreq>%s</url>\n"
    assert plain_entries(entry % (b"", b'<rs:md hash="md5:1"/><rs:ln rel="x" href="http://a/&lt;"/>')) == entry % (
        b"",
        b"",
    )
