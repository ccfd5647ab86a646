"""The copies of a service, published again: which sets, under which names, what of a source that fails, and to whom."""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from headwater.aggregator.configuration import AggregatorConfig, FollowedSource, PublishRule
from headwater.aggregator.republishing import (
    RepublishedSet,
    Republisher,
    groups_of,
    is_published,
    named_sets,
    source_configuration,
    title_of,
)
from headwater.aggregator.sqlite_store import SqliteStore
from headwater.aggregator.status import PUBLISH_FAULT
from headwater.aggregator.store import Life, Retirement, SourceState
from headwater.errors import Exit, UsageFault
from headwater.progress import Notice
from headwater.source.config import read_config
from headwater.sync.audit.auditor import audit_through
from headwater.sync.copy_status import copy_records
from headwater.sync.options import SyncOptions
from headwater.sync.run import sync
from tests.support.fleet import Fleet, fleet
from tests.support.fleet_kinds import DEFECTIVE
from tests.support.serving import request
from tests.support.waiting import until

NOW = dt.datetime(2026, 12, 1, 12, tzinfo=dt.UTC)
DESCRIBED = {"content": "{stem}.pdf", "record": "{stem}.xml"}
ALL = SyncOptions(max_delete=1.0)


def state(name: str = "museum", **fields: object) -> SourceState:
    return SourceState(name=name, url="http://museum.example/", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "title"),
    [
        ({"life": Life.FOLLOWING}, "museum"),
        ({"life": Life.DEGRADED, "sound_at": NOW}, "museum"),
        ({"life": Life.FAILING, "sound_at": NOW}, "museum (the source fails; as of 2026-12-01)"),
        ({"life": Life.DEAD}, "museum (the source fails; never proved)"),
        (
            {"retirement": Retirement.FREEZE, "sound_at": NOW},
            "museum (no longer followed; as of 2026-12-01)",
        ),
        ({"retirement": Retirement.KEEP, "sound_at": NOW}, "museum"),
    ],
)
def test_what_fails_says_of_which_day_it_is(fields: dict[str, object], title: str) -> None:
    assert title_of(state(**fields), None) == title  # type: ignore[arg-type]


def test_only_what_is_deleted_or_has_no_wanted_tag_is_not_published() -> None:
    source = FollowedSource(name="museum", url="http://museum.example/", tags=("de",))
    every, german, french = PublishRule(), PublishRule(tags=("de",)), PublishRule(tags=("fr",))
    assert is_published(state(life=Life.DEAD), None, every)
    assert is_published(state(is_paused=True), source, german)
    assert is_published(state(retirement=Retirement.FREEZE), source, german)
    assert not is_published(state(), source, french)
    assert not is_published(state(), None, german)
    assert not is_published(state(retirement=Retirement.DELETE), source, every)


def test_a_set_keeps_its_name_whatever_comes_besides() -> None:
    titles = {"museum": "A Museum", "Health": "Health", "b": "B"}
    known: dict[tuple[str, str], str] = {}
    first = named_sets({"museum": ["files"], "Health": ["x"]}, titles, known)
    assert [one.name for one in first] == ["health-2", "museum"]  # /health is something else
    later = named_sets({"museum": ["aaa", "files"], "Health": ["x"], "b": ["b", "b"]}, titles, known)
    assert {one.name for one in later} == {"health-2", "museum-aaa", "museum", "b"}
    assert next(one.title for one in later if one.name == "museum-aaa") == "A Museum: aaa"


def test_the_configuration_is_one_of_a_source(tmp_path: Path) -> None:
    rule = PublishRule(title='A "title" \x7f\\', set={"sitemap": True, "described": [DESCRIBED]})
    source = FollowedSource(name="museum", url="http://museum.example/", tags=("de", "Old Maps"))
    config = AggregatorConfig(path=tmp_path / "a.toml", state=tmp_path, sources=(source,), publish=rule)
    sets = [RepublishedSet("museum", "museum", "files", "Muse\u00fcm")]
    assert groups_of(sets, config.sources) == {"de": ["museum"], "old-maps": ["museum"]}
    text = source_configuration(config, rule, "http://agg.example", sets)
    assert tomllib.loads(text)["title"] == rule.title
    (tmp_path / "source.toml").write_text(text)
    read = read_config(tmp_path / "source.toml")
    (one,) = read.sets
    assert (one.copy, one.sitemap, one.described[0].record) == (str(tmp_path / "museum"), True, "{stem}.xml")
    assert read.groups == {"de": ("museum",), "old-maps": ("museum",)}


@contextmanager
def republished(root: Path, running: Fleet, *held: str, **rule: object) -> Iterator[Republisher]:
    """The copies of a fleet, those that are `held` made before, and their publication at work."""
    tags = {name: ("odd",) if name == "md5only" else () for name in running.sources}
    sources = tuple(
        FollowedSource(name=name, url=one.address, tags=tags[name]) for name, one in running.sources.items()
    )
    publish = PublishRule(listen="127.0.0.1:0", **rule)  # type: ignore[arg-type]
    config = AggregatorConfig(path=root / "a.toml", state=root / "agg", sources=sources, publish=publish)
    for name in held:
        sync(running.sources[name].address, config.state / name, ALL)
    store = SqliteStore(config.home / "service.sqlite")
    store.enrol([(one.name, one.url) for one in sources], NOW)
    told: list[object] = []
    one = Republisher(config, store, told.append)
    one.start()
    try:
        yield one
    finally:
        one.stop()
        store.close()
    assert all(isinstance(event, Notice) and event.rule == "HW-AGG-70" for event in told), told


def names(url: str) -> set[str]:
    """The sets that the Source Description at this address names."""
    with suppress(OSError):
        base, _, path = url.removeprefix("http://").partition("/")
        told = request(f"http://{base}", f"/{path or '.well-known/resourcesync'}").body.decode()
        return {one.split("/")[-2] for one in told.split("</loc>") if one.endswith("/capabilitylist.xml")}
    return set()


def test_copies_are_published_with_via_followed_and_audited_to_the_origin(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("headwater.aggregator.republishing.PAUSE_SECONDS", 0.1)
    monkeypatch.setattr("headwater.aggregator.republishing.LOOK_SECONDS", 0.2)
    with (
        fleet([(name, DEFECTIVE[name]) for name in ("good", "md5only")], 5, "127.78") as running,
        republished(tmp_path, running, "good") as one,
    ):
        until(lambda: names(one.url) == {"good"})
        good, odd = running.sources.values()
        sync(odd.address, tmp_path / "agg/md5only", ALL)  # a new copy: no restart of anything
        until(lambda: names(one.url) == {"good", "md5only"})
        until(lambda: names(f"{one.url}/sourcedescription/groups/odd.xml") == {"md5only"})
        group = tmp_path / "group"
        assert sync(f"{one.url}/sourcedescription/groups/odd.xml", group, ALL).exit_status == 0
        assert {record.set_name for record in copy_records(group)} == {"md5only"}
        second = tmp_path / "second"
        assert sync(one.url, second, ALL).exit_status == 0
        running.change()
        for name, source in running.sources.items():
            assert sync(source.address, tmp_path / "agg" / name, ALL).exit_status == 0
            assert audit_through(source.address, second).exit_status == Exit.FINDINGS
        gone = next(change.name for change in good.changes if change.kind == "deleted")
        via = f'href="{good.uri(gone)}"'.encode()

        def told() -> bool:
            entries = request(one.url, "/good/changelist.xml").body.split(b"<url>")
            return any(b'change="deleted"' in entry and via in entry for entry in entries)

        until(told, what="the deletion with its origin")
        until(
            lambda: sync(one.url, second, ALL).exit_status == 0 and audit_through(odd.address, second).exit_status == 0
        )
        report = audit_through(good.address, second)
        assert (report.verdict, report.sets[0].same_by_hash) == ("in sync", len(good.files))
        assert one._process is not None
        one._process.kill()
        until(lambda: "ended with status -9" in (one._store.fact(PUBLISH_FAULT) or ""), what="what `status` tells")
        until(lambda: names(one.url) == {"good", "md5only"}, what="another process")
        until(lambda: one._store.fact(PUBLISH_FAULT) is None, what="that all is well again")


def test_a_copy_of_no_copy_has_no_origin(tmp_path: Path) -> None:
    with fleet([("good", DEFECTIVE["good"])], 3, "127.79") as running:
        address = running.sources["good"].address
        sync(address, tmp_path / "copy", ALL)
        with pytest.raises(UsageFault, match="`via`"):
            audit_through(address, tmp_path / "copy")


def test_an_altered_file_differs_from_the_origin(tmp_path: Path) -> None:
    with (
        fleet([("good", DEFECTIVE["good"])], 3, "127.79") as running,
        republished(tmp_path, running, "good") as one,
    ):
        until(lambda: names(one.url) == {"good"})
        second = tmp_path / "second"
        sync(one.url, second, ALL)
        records = list(copy_records(second))
        (second / records[0].path).write_bytes(b"altered")
        (second / records[1].path).unlink()
        good = running.sources["good"]
        name = records[2].uri.rpartition("/")[2]
        del good.files[name], good.lastmods[name]  # the origin has it no more, and says so in its list alone
        report = audit_through(good.address, second)
        found = {finding.verdict for finding in report.sets[0].findings}
        assert (report.verdict, found) == ("not in sync", {"different", "missing", "extra"})
        assert msgspec.json.encode(report.to_dict())
