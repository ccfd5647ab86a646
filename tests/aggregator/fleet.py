"""A service's configuration and store, filled with sources in all states, for what operators see of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import msgspec

from headwater.aggregator.configuration import AggregatorConfig, AlertRule, FollowedSource, SinkConfig
from headwater.aggregator.sqlite_store import FILE, SqliteStore
from headwater.aggregator.store import DeadLetter, Life, NewEvent, Question, RunRecord, SourceState

NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)
TOKEN = "operator's token: ünlikely"
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[31m'
WARNINGS = (
    ("AMB-06", 52, "a time that cannot be read was ignored (2025-02-30)"),
    ("RS-DOC-18", 240, "an unknown element was skipped (image:image)"),
    ("RS-DOC-99", 1, "what no table has"),
)


def ago(**span: float) -> dt.datetime:
    """A moment before the present one."""
    return NOW - dt.timedelta(**span)


def configuration(
    folder: Path, sources: Sequence[FollowedSource] = (), *, token: str | None = TOKEN, alerts: Sequence[AlertRule] = ()
) -> AggregatorConfig:
    """A configuration with two sinks, whose pages get a port that is free."""
    return AggregatorConfig(
        path=folder / "aggregate.toml",
        state=folder,
        sources=tuple(sources),
        listen="127.0.0.1:0",
        operator_token=token,
        keep_free=1,
        sinks=(SinkConfig(name="index", kind="opensearch"), SinkConfig(name="hook", kind="webhook")),
        alerts=tuple(alerts),
    )


def store_at(folder: Path) -> SqliteStore:
    """The store of a service in a folder."""
    return SqliteStore(folder / ".aggregator" / FILE)


def ended(store: SqliteStore, name: str, began: dt.datetime, state: SourceState, **fields: object) -> RunRecord:
    """A run of a source that has ended, after which the source is in this state."""
    run = store.lease(name, str(fields.get("kind", "sync")), "w", began, 60)
    assert run is not None
    seconds = fields.pop("seconds", 1.5)
    assert isinstance(seconds, float)
    record = msgspec.structs.replace(
        RunRecord(
            number=run.number,
            name=name,
            kind="sync",
            began_at=began,
            ended_at=began + dt.timedelta(seconds=seconds),
            exit_status=0,
            requests=7,
        ),
        **fields,
    )
    store.end(run, record, state)
    return record


def put(store: SqliteStore, name: str, url: str, **fields: object) -> SourceState:
    """A source in a state."""
    store.enrol([(name, url)], NOW)
    return store.change(name, **fields)


AUDIT = {
    "verdict": "not in sync",
    "sets": [
        {
            "name": "files",
            "verdict": "not in sync",
            "reason": None,
            "same_by_hash": 90,
            "same_by_record": 7,
            "same_by_time": 2,
            "unverifiable": 1,
            "unreadable": 0,
            "different": 1,
            "missing": 3,
            "extra": 0,
        }
    ],
}


def fill(store: SqliteStore, count: int = 1_000, runs: int = 3) -> list[FollowedSource]:
    """Sources in all states, with runs, events and dead letters; the first of them have hostile names and texts."""
    names = [f"source-{number:04}" for number in range(count)]
    followed = [
        FollowedSource(
            name=name,
            url=f"https://{name}.example.org/",
            title=f"Museum {number}" if number % 3 else "",
            tags=("de", "museum") if number % 2 else ("fr",),
            contact="mailto:operator@example.org",
            enabled=number % 50 != 49,
        )
        for number, name in enumerate(names)
    ]
    store.enrol_sinks(["index", "hook"], NOW)
    for number, name in enumerate(names):
        kind = number % 20
        reason, code, status = "", None, 0
        state = put(store, name, f"https://{name}.example.org/")
        base = {"resources": 1_000 + number, "octets": number << 20, "hosts": (f"{name}.example.org",)}
        good = base | {"life": Life.FOLLOWING, "life_since": ago(days=20), "sound_at": ago(minutes=20)}
        fields: dict[str, object] = good | {"next_at": NOW + dt.timedelta(minutes=40)}
        if kind == 0:
            fields = {"life": Life.NEW}
        elif kind == 1:
            fields = base | {"life": Life.FIRST_COPY, "life_since": ago(hours=3)}
        elif kind == 2:
            reason, code, status = "the host does not answer: connection refused", "HW-NET-03", 3
            fields = good | {"life": Life.FAILING, "failures": 7, "failing_since": ago(days=2), "sound_at": ago(days=2)}
        elif kind == 3:
            reason, code, status = "404 for the Capability List", "HW-SRC-01", 3
            fields = good | {
                "life": Life.DEAD,
                "failures": 700,
                "failing_since": ago(days=90),
                "sound_at": ago(days=90),
            }
        elif kind == 4:
            reason, status = "3 resources failed", 4
            fields = good | {"life": Life.DEGRADED, "failed": 3, "failures": 2, "failing_since": ago(hours=5)}
        elif kind == 5:
            reason, status = "deletions are held back", 4
            asked = {
                "question": Question.DELETIONS,
                "question_text": "880 of 1,000 files would be deleted: a.xml, b.xml",
            }
            fields = good | {"life": Life.DEGRADED, "held_back": 880} | asked
        elif kind == 6:
            fields = good | {"is_paused": True}
        elif kind == 7:
            fields = good | {"sound_at": ago(days=9), "next_at": ago(days=8)}
        if number in (2, 5):
            reason = HOSTILE
        for back in range(runs if kind else 0):
            ended(
                store,
                name,
                ago(hours=runs - back),
                msgspec.structs.replace(state, **fields),
                exit_status=status,
                reason=reason,
                code=code,
                created=number % 7,
                updated=back,
                deleted=number % 3,
                warnings=WARNINGS if kind in (4, 8) else (),
                seconds=1.0 + number % 11,
                by_host={f"{name}.example.org": (7, number % 3), "shared.example.org": (2, 0)},
                report={"sets": [{"name": "files"}]},
            )
        store.change(name, **fields)
    if count > 8:
        record = store.source(names[8])
        assert record is not None
        ended(store, names[8], ago(minutes=5), record, kind="audit", exit_status=5, report=AUDIT)
        run = store.lease(names[9], "sync", "w", NOW, 3_600)
        assert run is not None
        events = [
            NewEvent(
                source=names[9],
                set_name="files",
                action="created",
                uri=f"https://{names[9]}.example.org/{each}.xml" if each else f"javascript:alert(1)//{HOSTILE}",
                path=f"{each}.xml",
                type="application/xml",
                length=1_000 * each,
            )
            for each in range(300)
        ]
        store.append(run, events, NOW)
        store.acknowledge("hook", 10, [DeadLetter(sink="hook", number=7, at=NOW, reason=HOSTILE, tries=10)])
        store.refused("hook", "the address answers 500", NOW)
    return followed
