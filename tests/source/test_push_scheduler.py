"""Many push sets in one process: a few threads for all, each set as well off as if it were alone."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from headwater.catalog.interface import Metadata, Upsert
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.errors import StoreFault
from headwater.http.app import home_page
from headwater.http.metrics import MetricsPage, RequestCounters
from headwater.ingest.dit.follower import DitFollower
from headwater.progress import Notice, Progress
from headwater.publish import plan as publish_plan
from headwater.publish import publication_state
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import decode_publication
from headwater.publish.publisher import Publisher, PublishResult
from headwater.retry import TimeShare
from headwater.source import worker as set_worker
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.configured_source import utc_now
from headwater.source.health import report
from headwater.source.leadership import make_state
from headwater.source.published_feed import HostPolls, IndexPoll, PublishedFeed
from headwater.source.scheduler import THREADS, Urgency
from headwater.source.set_folders import FolderOverlap
from headwater.source.set_health import SetHealth
from headwater.source.source import ReadOnlySource, Source
from headwater.source.worker import SetWorker
from headwater.time_windows import windows_of
from tests.support.waiting import until

pytestmark = pytest.mark.long(10)

COUNT = 40
NAMES = [f"s{number:02d}" for number in range(COUNT)]


@contextmanager
def at_work(folder: Path, heard: list[Notice | Progress] | None = None) -> Iterator[Source]:
    sets = tuple(SetConfig(name=name, feed="events", resource_base="http://f.example/") for name in NAMES)
    config = SourceConfig(state=str(folder / "state"), sets=sets, base_url="http://source.example")
    with Source(config, listener=(heard if heard is not None else []).append) as source:
        source.start()
        yield source


def begin(source: Source, *names: str) -> None:
    for name in names:
        source.push_sets.by_set[name].open()


def record(source: Source, name: str, uri: str) -> None:
    """As another process does: nobody is told."""
    other = SqliteCatalog(Path(source.config.state) / "catalog.sqlite")
    other.record(name, [Upsert(uri, Metadata(length=1))], utc_now())
    other.close()


def says(source: Source, name: str, text: str) -> bool:
    held = source.store.open(f"{name}/changelist.xml")
    if held is None:
        return False
    with held:
        return text.encode() in held.read(0, held.octets)


def all_published(source: Source) -> bool:
    """The site may be sooner: sets that are published are named while others wait for long."""
    return source.is_site_published() and all(source.is_published(name) for name in NAMES)


def health(source: Source, name: str) -> SetHealth:
    return next(one for one in source.sets_health if one.name == name)


def test_a_few_threads_serve_all_sets(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with at_work(tmp_path) as source:
        assert len(set(threading.enumerate()) - before) <= 1 + sum(THREADS.values())
        begin(source, *NAMES)
        until(lambda: all_published(source), what="the first publication of all")
        for number, name in enumerate(NAMES):
            record(source, name, f"a{number}")
        until(lambda: all(says(source, name, f"a{number}") for number, name in enumerate(NAMES)), what="all changes")
        assert {one.phase for one in source.sets_health} == {"following"}
    assert set(threading.enumerate()) <= before  # of those of tests before, some may have ended


def test_when_a_quiet_set_was_looked_at_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads the catalog sees by it that the publisher is alive, though nothing is announced."""
    monkeypatch.setattr(set_worker, "TICK_SECONDS", 0.2)
    monkeypatch.setattr(set_worker, "TICKS", TimeShare(0.5))
    monkeypatch.setattr(publication_state, "LOOK_SECONDS", 0.1)
    with at_work(tmp_path) as source:
        begin(source, "s07")

        def looked() -> dt.datetime | None:
            return decode_publication(source.catalog.state("s07").notes).looked_at

        until(lambda: looked() is not None, what="a look")
        first = looked()
        until(lambda: looked() != first, what="the next look")
        assert source.catalog.state("s07").last_seq == 0


def test_sets_that_wait_hide_no_other_and_are_shown_when_they_come(tmp_path: Path) -> None:
    with at_work(tmp_path) as source:
        begin(source, "s07")
        until(lambda: source.is_site_published() and source.is_published("s07"), what="the first set")
        assert health(source, "s08").phase.startswith("waiting")
        begin(source, "s08", "s09")
        until(lambda: source.is_published("s08") and source.is_published("s09"), what="those that come late")
        assert not source.is_published("s10")


class Index:
    """An index that answers, or does not."""

    def __init__(self) -> None:
        self.answers = True
        self.asked = 0

    def poll(self) -> int:
        self.asked += 1
        if not self.answers:
            raise StoreFault("no answer")
        return 0


def test_asking_an_index_that_did_not_answer_counts_as_long(tmp_path: Path) -> None:
    """It takes as long as it is tried for: with every thread at that, no other set would have its turn."""
    with at_work(tmp_path) as source:
        context = source._context
        index, found = Index(), []
        begin(source, "s00")
        worker = SetWorker(context, PublishedFeed(context, "s00", has_index=True))
        poll = IndexPoll(worker, utc_now, lambda: cast(DitFollower, index), 1.0)
        for index.answers in (True, False, True):
            poll.run()
            found.append(poll.urgency is Urgency.LONG)
        assert found == [False, True, False]


def test_a_repository_is_asked_within_its_window_alone(tmp_path: Path) -> None:
    """What has waited for the window begins with what is recorded: a token in its memory may have expired."""
    with at_work(tmp_path) as source:
        index, made = Index(), list[Index]()

        def make() -> DitFollower:
            made.append(index)
            return cast(DitFollower, index)

        index.answers = True
        begin(source, "s00")
        worker = SetWorker(source._context, PublishedFeed(source._context, "s00", has_index=True))
        local = dt.datetime(2026, 12, 1, 21, 0).astimezone()
        poll = IndexPoll(worker, lambda: local, make, 1.0, windows=windows_of("22:00-06:00"))
        poll.run()
        assert (index.asked, worker.health.phase) == (0, "waiting for its window")
        assert 3_590 < poll.due_at - time.monotonic() <= 3_600
        local += dt.timedelta(hours=1)
        poll.run()
        poll.run()
        assert (index.asked, len(made)) == (2, 1)
        for hours in (12, 12):
            local += dt.timedelta(hours=hours)
            poll.run()
        assert (index.asked, len(made)) == (3, 2)


def test_sets_of_one_host_take_turns() -> None:
    """Who has more to take waits for those that are due."""
    ran: list[str] = []

    class Poll:
        urgency = Urgency.LONG

        def __init__(self, name: str, due_at: float) -> None:
            self.name = name
            self.due_at = due_at

        def run(self) -> None:
            ran.append(self.name)
            self.due_at = 10.0 + len(ran)

    polls = HostPolls(cast("list[IndexPoll]", [Poll("a", 2.0), Poll("b", 1.0), Poll("c", 99.0)]))
    for _ in range(4):
        assert polls.due_at < 99.0
        polls.run()
    assert ran == ["b", "a", "b", "a"]


def test_a_set_that_waits_is_not_unready(tmp_path: Path) -> None:
    """Of many sets one without a record is the usual case: no balancer takes the whole source out for it."""
    with at_work(tmp_path) as source:
        assert report(source)[0] == 200, "nobody could announce the first record"
        source.catalog.create("s06")
        source.catalog.load("s06", [Upsert("half", Metadata())])
        begin(source, "s07")
        until(lambda: source.is_site_published() and source.is_published("s07"), what="the first set")
        status, body = report(source)
        told = {one["name"]: one for one in msgspec.json.decode(body)["sets"]}
        assert status == 200
        assert [(told[name]["ready"], told[name]["waiting"]) for name in ("s06", "s07", "s08")] == [
            (False, True),
            (True, False),
            (False, True),
        ]
        page = MetricsPage(source, RequestCounters()).page().decode()
        for name, waiting in (("s06", 1), ("s07", 0), ("s08", 1)):
            assert f'headwater_set_ready{{set="{name}"}} 1.0\n' in page
            assert ("waiting for its first records" in home_page(source).decode()) == bool(source.push_names)
            assert f'headwater_set_waiting{{set="{name}"}} {waiting}.0\n' in page


def test_no_provider_has_the_state_served_that_lies_in_his_folder(tmp_path: Path) -> None:
    sets = (
        SetConfig(name="s", feed="events", token="0123456789abcdef", resource_root=str(tmp_path)),
        SetConfig(name="elsewhere", feed="events", token="0123456789abcdef", resource_base="http://f.example/"),
    )
    config = SourceConfig(
        state=str(tmp_path / "kept"), documents=str(tmp_path / "written"), sets=sets, base_url="http://source.example"
    )
    sources: tuple[type[Source] | type[ReadOnlySource], ...] = (Source, ReadOnlySource)
    for kind in sources:
        with kind(config) as source:
            assert source.takes("s", b"a")
            assert source.takes("s", b"kept.txt")
            for path in (b"kept/catalog.sqlite", b"written/s/changelist.xml", b".headwater/lock", b"a/.headwater/lock"):
                assert not source.takes("s", path)
            assert not source.takes("elsewhere", b"a")
            make_state(tmp_path / "of/another")
            assert not source.takes("s", b"of/another/catalog.sqlite"), "that of another command neither"
            assert not source.takes("s", b"of/another/documents/x.xml")
            assert source.takes("s", b"of/a")


def test_no_fed_set_has_the_state_for_its_folder(tmp_path: Path) -> None:
    """The provider could announce the catalog's file, and have it served."""
    state, documents, other = (tmp_path / name for name in ("state", "documents", "other"))
    make_state(other)
    (tmp_path / "link").symlink_to(state)
    sources: tuple[type[Source] | type[ReadOnlySource], ...] = (Source, ReadOnlySource)
    for root in (state, documents, other, tmp_path / "link", state / ".." / "state"):
        fed = SetConfig(name="s", feed="events", token="0123456789abcdef", resource_root=str(root))
        config = SourceConfig(state=str(state), documents=str(documents), sets=(fed,), base_url="http://source.example")
        for kind in sources:
            with pytest.raises(FolderOverlap):
                kind(config)


def test_sets_without_a_token_are_told_at_the_start(tmp_path: Path) -> None:
    heard: list[Notice | Progress] = []
    sets = (
        SetConfig(name="open", feed="events", token="0123456789abcdef"),
        SetConfig(name="followed", feed="dit", index="http://127.0.0.1:9/i", resource_base="http://f.example/"),
        *(SetConfig(name=f"closed{number}", feed="events") for number in range(5)),
    )
    config = SourceConfig(state=str(tmp_path / "state"), sets=sets, base_url="http://source.example")
    with Source(config, listener=heard.append) as source:
        source.start()
    (told,) = [one for one in heard if isinstance(one, Notice) and one.rule == "HW-CFG-11"]
    assert told.message.endswith("closed0, closed1, closed2 and 2 more")


def test_a_set_that_fails_holds_up_no_other_and_is_tried_again(tmp_path: Path) -> None:
    heard: list[Notice | Progress] = []
    blocked = tmp_path / "state" / "documents" / "s03"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where a folder belongs")
    with at_work(tmp_path, heard) as source:
        begin(source, *NAMES)
        others = [name for name in NAMES if name != "s03"]
        until(lambda: all(source.is_published(name) for name in others), what="the others")
        until(lambda: health(source, "s03").failures > 1, what="another attempt")
        assert health(source, "s03").phase == "failing"
        assert len([one for one in heard if "s03" in str(one)]) == 1, "told once"
        blocked.unlink()
        until(lambda: source.is_published("s03"), what="the one that failed")
        until(lambda: health(source, "s03").error is None, what="its health")


def test_a_catalog_that_fails_is_shown_with_every_set_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Notice | Progress] = []
    with at_work(tmp_path, heard) as source:
        begin(source, *NAMES)
        until(lambda: all_published(source), what="the first publication")

        def fails() -> dict[str, int]:
            raise StoreFault("it does not answer")

        monkeypatch.setattr(source.catalog, "newest", fails)
        until(lambda: all(one.error for one in source.sets_health), what="the fault")
        assert len([one for one in heard if "does not answer" in str(one)]) == 1
        monkeypatch.undo()
        record(source, "s01", "after")
        until(lambda: says(source, "s01", "after"), what="the change after it")
        until(lambda: not any(one.error for one in source.sets_health), what="health")


def test_what_is_lost_in_the_store_comes_back_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_worker, "TICK_SECONDS", 0.2)
    monkeypatch.setattr(set_worker, "TICKS", TimeShare(0.999_999))
    with at_work(tmp_path) as source:
        begin(source, *NAMES)
        until(lambda: all_published(source), what="the first publication")
        for name in ("s05", "s30"):
            (tmp_path / "state" / "documents" / name).rename(tmp_path / f"lost-{name}")  # at once: it is written to
        until(lambda: says(source, "s05", "<urlset") and says(source, "s30", "<urlset"), what="the lost documents")


def test_pages_of_a_quiet_set_follow_as_soon_as_it_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`refresh_seconds` below the time between looks at sets without news."""
    monkeypatch.setattr(set_worker, "TICK_SECONDS", 3_600.0)
    one = SetConfig(name="s00", feed="events", resource_base="http://f.example/", refresh_seconds=1.0)
    config = SourceConfig(state=str(tmp_path / "state"), sets=(one,), base_url="http://source.example")
    with Source(config) as source:
        source.start()
        begin(source, "s00")
        until(lambda: source.is_published("s00"), what="the first publication")
        record(source, "s00", "one")
        until(lambda: listed(source, "s00", "one"), what="the Resource List")
        record(source, "s00", "two")
        until(lambda: listed(source, "s00", "two"), what="the Resource List again")


def listed(source: Source, name: str, text: str) -> bool:
    held = source.store.open(f"{name}/resourcelist.xml")
    if held is None:
        return False
    with held:
        return text.encode() in held.read(0, held.octets)


def test_news_overtake_sets_of_which_nothing_new_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_work(tmp_path) as source:
        begin(source, *NAMES)
        until(lambda: all_published(source), what="the first publication")
    done: list[tuple[str, bool]] = []
    begun, overtaken = threading.Event(), threading.Event()
    usual = Publisher.publish

    def slow(self: Publisher, name: str, at: dt.datetime, refresh: Refresh, **options: Any) -> PublishResult:
        begun.set()
        if refresh is not Refresh.CHANGES:
            overtaken.wait(3)  # a large set
        done.append((name, refresh is not Refresh.CHANGES))
        return usual(self, name, at, refresh, **options)

    monkeypatch.setattr(Publisher, "publish", slow)
    with at_work(tmp_path) as source:
        until(begun.is_set, what="the first look at all sets")
        record(source, NAMES[-1], "news")
        until(lambda: says(source, NAMES[-1], "news"), what="the news")
        assert (NAMES[-1], False) in done
        assert len({name for name, _ in done}) < COUNT, "others still wait for their turn"
        overtaken.set()
        until(lambda: len({name for name, _ in done}) == COUNT, what="the others")


def test_news_do_not_wait_for_a_catalog_that_is_slow_to_say_what_others_have_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    with at_work(tmp_path) as source:
        begin(source, *NAMES)
        until(lambda: all_published(source), what="the first publication")
        usual = source.catalog.newest

        def slow() -> dict[str, int]:
            answers.wait(60)
            return usual()

        monkeypatch.setattr(source.catalog, "newest", slow)
        record(source, "s07", "news")
        source.push_sets.targets()["s07"].news()
        until(lambda: says(source, "s07", "news"), what="what was announced to this process")
        answers.set()


def test_pages_that_are_due_wait_for_a_thread_of_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_plan, "DUTY", TimeShare(0.999_999))  # rounds are never too dear
    sets = (SetConfig(name="s", feed="events", resource_base="http://f.example/", refresh_seconds=0.0),)
    config = SourceConfig(state=str(tmp_path / "state"), sets=sets, base_url="http://source.example")
    with Source(config) as source:
        source.start()
        begin(source, "s")
        until(source.is_site_published, what="the first publication")
        record(source, "s", "news")
        until(lambda: says(source, "s", "news"), what="the change")
        until(lambda: is_listed(source, "s", "news"), what="its page, though nothing else has changed")


def is_listed(source: Source, name: str, text: str) -> bool:
    held = source.store.open(f"{name}/resourcelist.xml")
    assert held is not None
    with held:
        return text.encode() in held.read(0, held.octets)


def test_the_list_of_a_quiet_set_is_renewed_once_a_period(tmp_path: Path) -> None:
    """What a new destination replays does not grow for ever: `at` moves on though nothing changes."""
    one = SetConfig(name="s00", feed="events", resource_base="http://f.example/", renew_seconds=3.0)
    config = SourceConfig(state=str(tmp_path / "state"), sets=(one,), base_url="http://source.example")
    with Source(config) as source:
        source.start()
        begin(source, "s00")
        record(source, "s00", "one")
        until(lambda: listed(source, "s00", "one") or says(source, "s00", "one"), what="the change")

        def at() -> dt.datetime | None:
            return decode_publication(source.catalog.state("s00").notes).at

        last = source.catalog.state("s00").last_at
        until(lambda: (found := at()) is not None and last is not None and found > last, what="a later list")
        renewed = at()
        time.sleep(1.0)
        assert at() == renewed, "that is enough for a while"
