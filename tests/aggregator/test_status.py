"""What is told of sources: a state by proof with its age, the worst first; 0 only when all is well."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.aggregator.configuration import FollowedSource, PublishRule
from headwater.aggregator.metrics import metrics_page
from headwater.aggregator.status import (
    ORDER,
    PUBLISH_FAULT,
    FleetStatus,
    SourceVerdict,
    chosen,
    fleet_status,
    source_status,
)
from headwater.aggregator.store import Answer, DeadLetter, Life, Question, Retirement, Run, RunRecord, SourceState
from headwater.errors import Exit
from tests.aggregator.fleet import NOW, ago, configuration, ended, fill, put, store_at

FOLLOWED = FollowedSource(name="museum", url="https://museum.example.org/", every=3_600, jitter=0, deadline=600)
GOOD: dict[str, Any] = {"life": Life.FOLLOWING, "sound_at": ago(minutes=10), "next_at": NOW + dt.timedelta(minutes=50)}


def verdict_of(followed: FollowedSource | None = FOLLOWED, **fields: Any) -> tuple[SourceVerdict, int]:
    state = SourceState(name="museum", url="https://museum.example.org/", **fields)
    found = source_status(followed, state, None, None, NOW)
    return found.verdict, found.exit_status


@pytest.mark.parametrize(
    ("fields", "verdict", "status"),
    [
        ({}, SourceVerdict.NEW, Exit.UNDETERMINED),
        ({"life": Life.FIRST_COPY}, SourceVerdict.FIRST_COPY, Exit.UNDETERMINED),
        (GOOD, SourceVerdict.FOLLOWING, Exit.DONE),
        (GOOD | {"sound_at": ago(hours=3)}, SourceVerdict.STALE, Exit.FINDINGS),
        (GOOD | {"sound_at": ago(hours=2)}, SourceVerdict.FOLLOWING, Exit.DONE),
        (GOOD | {"next_at": ago(hours=3)}, SourceVerdict.STALE, Exit.FINDINGS),
        (GOOD | {"life": Life.DEGRADED, "sound_at": ago(days=3)}, SourceVerdict.DEGRADED, Exit.TRANSFERS_FAILED),
        (GOOD | {"life": Life.FAILING}, SourceVerdict.FAILING, Exit.SOURCE),
        (GOOD | {"life": Life.DEAD, "is_paused": True}, SourceVerdict.DEAD, Exit.SOURCE),
        (GOOD | {"is_paused": True}, SourceVerdict.PAUSED, Exit.FINDINGS),
        (GOOD | {"life": Life.FAILING, "question": Question.MOVED}, SourceVerdict.QUESTION, Exit.TRANSFERS_FAILED),
        (GOOD | {"question": Question.MOVED, "answer": Answer.APPROVED}, SourceVerdict.FOLLOWING, Exit.DONE),
        (GOOD | {"life": Life.DEAD, "retirement": Retirement.KEEP}, SourceVerdict.RETIRED, Exit.DONE),
    ],
)
def test_the_state_of_a_source(fields: dict[str, Any], verdict: SourceVerdict, status: Exit) -> None:
    assert verdict_of(**fields) == (verdict, status)


def test_what_nobody_follows_says_nothing() -> None:
    assert verdict_of(None, **GOOD)[0] is SourceVerdict.RETIRED
    assert verdict_of(msgspec.structs.replace(FOLLOWED, enabled=False), **GOOD)[0] is SourceVerdict.RETIRED


def test_a_source_that_runs_seldom_is_not_out_of_date_in_between() -> None:
    weekly = msgspec.structs.replace(FOLLOWED, cron="0 3 * * 1")
    last = RunRecord(number=1, name="museum", kind="sync", began_at=ago(days=5), ended_at=ago(days=5), exit_status=0)
    state = SourceState(
        name="museum", url="", life=Life.FOLLOWING, sound_at=ago(days=5), next_at=NOW + dt.timedelta(days=2)
    )
    assert source_status(weekly, state, last, None, NOW).verdict is SourceVerdict.FOLLOWING
    assert source_status(weekly, state, last, None, NOW + dt.timedelta(days=10)).verdict is SourceVerdict.STALE


def test_an_audit_that_does_not_find_the_copy_in_sync_counts_until_the_next_run() -> None:
    state = SourceState(name="museum", url="", **GOOD)
    audit = RunRecord(number=2, name="museum", kind="audit", began_at=NOW, ended_at=NOW, exit_status=1)
    found = source_status(FOLLOWED, state, audit, None, NOW)
    assert (found.verdict, found.exit_status) == (SourceVerdict.DEGRADED, Exit.TRANSFERS_FAILED)
    for kind, status in (("audit", 0), ("audit", 130), ("sync", 0)):
        last = msgspec.structs.replace(audit, kind=kind, exit_status=status)
        assert source_status(FOLLOWED, state, last, None, NOW).verdict is SourceVerdict.FOLLOWING


def test_nothing_is_overdue_that_runs_or_whose_service_is_down() -> None:
    state = SourceState(name="museum", url="", **GOOD | {"next_at": ago(hours=5)})
    run = Run(number=1, name="museum", worker="w", began_at=ago(minutes=1), lease_until=NOW)
    assert source_status(FOLLOWED, state, None, None, NOW).is_overdue
    assert not source_status(FOLLOWED, state, None, run, NOW).is_overdue
    assert not source_status(FOLLOWED, state, None, None, NOW, is_alive=False).is_overdue


def fleet_of(folder: Path, *states: dict[str, Any], is_alive: bool = True, free: int = 10) -> FleetStatus:
    store = store_at(folder)
    store.enrol_sinks(["index", "hook"], NOW)
    followed = [msgspec.structs.replace(FOLLOWED, name=f"s{number}") for number in range(len(states))]
    for one, fields in zip(followed, states, strict=True):
        put(store, one.name, one.url, **fields)
    return fleet_status(configuration(folder, followed), store, NOW, is_alive=is_alive, free=free)


def test_all_is_well_only_when_all_is_well(tmp_path: Path) -> None:
    assert fleet_of(tmp_path / "a", GOOD, GOOD).exit_status == Exit.DONE
    assert fleet_of(tmp_path / "b", GOOD, GOOD | {"is_paused": True}).exit_status == Exit.FINDINGS
    assert fleet_of(tmp_path / "c", GOOD, GOOD | {"life": Life.DEGRADED}, {}).exit_status == Exit.UNDETERMINED
    assert fleet_of(tmp_path / "d", GOOD, {}, GOOD | {"life": Life.FAILING}).exit_status == Exit.SOURCE
    assert fleet_of(tmp_path / "e", GOOD, is_alive=False).exit_status == Exit.STORE
    full = fleet_of(tmp_path / "f", GOOD, free=0)
    assert (full.is_full, full.exit_status) == (True, Exit.STORE)


def test_a_sink_that_fails_is_not_well(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    store.enrol_sinks(["index", "hook"], NOW)
    config = configuration(tmp_path)
    assert fleet_status(config, store, NOW, is_alive=True, free=9).exit_status == Exit.DONE
    store.refused("hook", "500", NOW)
    assert fleet_status(config, store, NOW, is_alive=True, free=9).exit_status == Exit.TRANSFERS_FAILED


def test_a_publication_that_does_not_work_is_not_well(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    store.enrol_sinks(["index", "hook"], NOW)
    config = configuration(tmp_path)
    store.keep_fact(PUBLISH_FAULT, "the process that publishes ended with status 1")
    assert fleet_status(config, store, NOW, is_alive=True, free=9).exit_status == Exit.DONE, "nothing is published"
    config = msgspec.structs.replace(config, publish=PublishRule())
    found = fleet_status(config, store, NOW, is_alive=True, free=9)
    assert (found.exit_status, found.publish_fault) == (Exit.STORE, "the process that publishes ended with status 1")


@pytest.mark.parametrize(("tries", "status"), [(0, Exit.DONE), (3, Exit.TRANSFERS_FAILED)])
def test_what_a_sink_has_refused_is_not_well(tmp_path: Path, tries: int, status: Exit) -> None:
    """What a rule holds back (no tries) is as the operator wants it."""
    store = store_at(tmp_path)
    store.enrol_sinks(["index", "hook"], NOW)
    store.acknowledge("hook", 0, [DeadLetter(sink="hook", number=1, at=NOW, reason="410", tries=tries)])
    assert fleet_status(configuration(tmp_path), store, NOW, is_alive=True, free=9).exit_status == status


def test_what_the_service_has_not_seen_yet_is_new(tmp_path: Path) -> None:
    config = configuration(tmp_path, [FOLLOWED])
    found = fleet_status(config, store_at(tmp_path), NOW, is_alive=True, free=9)
    assert [(one.name, one.verdict) for one in found.sources] == [("museum", SourceVerdict.NEW)]
    assert [(one.name, one.waiting) for one in found.sinks] == [("index", 0), ("hook", 0)]


def test_the_worst_comes_first_and_reasons_are_counted(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    followed = fill(store, 60)
    found = fleet_status(configuration(tmp_path, followed), store, NOW, is_alive=True, free=9)
    places = [ORDER.index(one.verdict) for one in found.sources]
    assert places == sorted(places)
    assert sum(found.counts.values()) == len(found.sources) == 60
    assert set(found.counts) == {str(one) for one in ORDER}
    assert {one.code: one.sources for one in found.reasons} == {
        "HW-NET-03": 3,
        "HW-SRC-01": 3,
        "exit status 4": 6,
        "exit status 5": 1,
    }
    assert msgspec.structs.astuple(found.hosts[0])[1:] == (1, 7, 2)
    shared = next(one for one in found.hosts if one.host == "shared.example.org")
    assert (shared.sources, shared.requests, shared.refused) == (56, 112, 0)
    assert found.resources == sum(one.resources for one in found.sources)
    assert [one.waiting for one in found.sinks] == [300, 290]
    names = [one.name for one in chosen(found.sources, verdict="dead", tag="de", words="MUSEUM")]
    assert names == ["source-0023", "source-0043"]


def test_the_manual_names_what_is_told(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "outputs.md").read_text("utf-8")
    store = store_at(tmp_path)
    found = fleet_status(configuration(tmp_path, fill(store, 20)), store, NOW, is_alive=True, free=9)
    part = page.partition("## Status of a service\n")[2].partition("\n## ")[0]
    parts = (found.sources, found.sinks, found.reasons, found.hosts)
    told = [found.__struct_fields__, *(one[0].__struct_fields__ for one in parts)]
    assert {name for names in told for name in names} == set(re.findall(r"\w+", part.split("```")[1])) - {"text"}
    figures = set(re.findall(r"^# HELP (\w+)", metrics_page(found, of_service=True).decode(), re.MULTILINE))
    assert figures <= set(re.findall(r"\w+", page))


def test_a_run_under_way_is_told_with_its_begin(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    put(store, "museum", FOLLOWED.url, **GOOD)
    state = SourceState(name="museum", url=FOLLOWED.url, last_seconds=90.0, **GOOD)
    ended(store, "museum", ago(hours=1), state, seconds=90.0)
    run = store.lease("museum", "audit", "w", ago(minutes=3), 3_600)
    assert run is not None
    (found,) = fleet_status(configuration(tmp_path, [FOLLOWED]), store, NOW, is_alive=True, free=9).sources
    assert (found.running, found.running_kind, found.running_since) == (run.number, "audit", ago(minutes=3))
    assert (found.last_seconds, found.last_status) == (90.0, 0)


def test_figures_have_the_age_of_proof_first(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    followed = fill(store, 60)
    config = configuration(tmp_path, followed)
    page = metrics_page(fleet_status(config, store, NOW, is_alive=True, free=9), of_service=False).decode()
    assert page.startswith("# HELP headwater_source_last_sound_timestamp_seconds ")
    lines = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    sound = float(lines['headwater_source_last_sound_timestamp_seconds{source="source-0010"}'])
    assert sound == ago(minutes=20).timestamp()
    assert float(lines['headwater_source_last_sound_timestamp_seconds{source="source-0001"}']) == 0
    assert float(lines['headwater_sources{state="dead"}']) == 3
    assert float(lines['headwater_sink_waiting_events{sink="hook"}']) == 290
    assert float(lines['headwater_source_question{source="source-0005"}']) == 1
    assert float(lines["headwater_free_bytes"]) == 9
    assert 'headwater_source_exit_status{source="source-0049"}' not in lines, "disabled"
    put(store, "never", FOLLOWED.url)
    config = msgspec.structs.replace(config, sources=(*config.sources, msgspec.structs.replace(FOLLOWED, name="never")))
    page = metrics_page(fleet_status(config, store, NOW, is_alive=True, free=9), of_service=False).decode()
    assert 'headwater_source_failures{source="never"} 0' in page
    assert not re.search(r'source_last_run_\w+{source="never"}', page)
