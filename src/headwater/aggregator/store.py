"""What the service remembers: sources, runs with their leases, the journal of events, positions of sinks.

`AggregatorStore` is the interface; `sqlite_store` is its first backend. Workers on several machines may share a store,
so nothing of a run is kept in a process alone: a run belongs to whoever holds its lease, and only for as long as the
lease says. Numbers of events are given in the order of commits.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, ClassVar, Final, Protocol

import msgspec

from headwater.errors import Exit, StoreFault, UsageFault
from headwater.spec.records import Link, ToDict


class Life(StrEnum):
    """How a source does."""

    NEW = "new"  # no run has ended yet
    FIRST_COPY = "first copy"  # runs have begun the copy; none has completed it
    FOLLOWING = "following"  # the last run ended with 0
    DEGRADED = "degraded"  # the last run ended with 4 or 5: some resources failed, or the lists are broken
    FAILING = "failing"  # the last run ended with 3, 6, a deadline or a crash
    DEAD = "dead"  # failing for longer than `dead_after`


class Question(StrEnum):
    """What a person has to decide before a source goes on as before."""

    MOVED = "moved"  # the address leads to another source: approve takes it as the new address
    RESET = "reset"  # the source was set back: approve follows it again
    DELETIONS = "deletions held back"  # approve deletes, refuse keeps the files
    UPDATES = "updates held back"
    AUTHORISATION = "authorisation expired"  # 401 or 403: approve tries again


class Answer(StrEnum):
    """What the operator has decided of a question."""

    APPROVED = "approved"
    REFUSED = "refused"


class Retirement(StrEnum):
    """What became of the copy of a source that is no longer followed."""

    KEEP = "keep"  # the copy stays, and stays published
    FREEZE = "freeze"  # the copy stays as it is, and is marked
    DELETE = "delete"  # the copy is removed; sinks get a deletion for each resource


class SourceState(ToDict, msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a source, between runs."""

    name: str
    url: str
    life: Life = Life.NEW
    life_since: dt.datetime | None = None
    question: Question | None = None
    question_text: str = ""  # what is asked, with a sample, in plain words
    answer: Answer | None = None  # the operator's answer, until the next run has acted on it
    refused_text: str = ""  # the question that the operator has refused last: the same is not asked again
    is_paused: bool = False
    is_wanted_now: bool = False  # whether the operator wants a run at once
    retirement: Retirement | None = None
    next_at: dt.datetime | None = None  # when the next run is due; None: as soon as there is room
    planned_at: dt.datetime | None = None  # when that was reckoned
    failures: int = 0  # runs in a row that failed as a whole: of a source that is failing or dead
    fruitless: int = 0  # runs in a row that were stopped before anything came of them
    failing_since: dt.datetime | None = None
    sound_at: dt.datetime | None = None  # when the last run began that proved the copy to be in step (status 0)
    audited_at: dt.datetime | None = None
    is_to_repair: bool = False  # the last audit has found files to differ, and no sound run has followed
    last_seconds: float | None = None  # how long the last run took: long runs have places of their own
    hosts: tuple[str, ...] = ()  # hosts that the last runs sent requests to, redirects included
    resources: int = 0
    octets: int = 0
    failed: int = 0
    held_back: int = 0


class Run(ToDict, msgspec.Struct, frozen=True, kw_only=True):
    """A run of a source under a lease. `number` grows over all sources and is never used twice."""

    number: int
    name: str
    worker: str
    began_at: dt.datetime
    lease_until: dt.datetime
    kind: str = "sync"  # sync, audit, retire

    def ended(self, at: dt.datetime, exit_status: int, **more: Any) -> RunRecord:
        """The record of this run, which has ended at `at`; `more` are other fields of the record."""
        return RunRecord(
            number=self.number,
            name=self.name,
            kind=self.kind,
            began_at=self.began_at,
            ended_at=at,
            exit_status=exit_status,
            **more,
        )


class RunRecord(ToDict, msgspec.Struct, frozen=True, kw_only=True):
    """A run that has ended, as the journal of runs keeps it."""

    number: int
    name: str
    kind: str
    began_at: dt.datetime
    ended_at: dt.datetime
    exit_status: int
    reason: str = ""  # why the status is not 0, in one sentence
    code: str | None = None  # the code or the rule of the reason
    created: int = 0
    updated: int = 0
    deleted: int = 0
    failed: int = 0
    held_back: int = 0
    requests: int = 0
    by_host: dict[str, tuple[int, int]] = {}  # requests by host, and how many of them were answered with 429 or 503
    octets: int = 0
    warnings: tuple[tuple[str, int, str], ...] = ()  # defects: rule or code, how often, sentence of the first
    report: dict[str, Any] | None = None  # the JSON of the run's report, without lists of resources


class NewEvent(ToDict, msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a resource of a copy, before it has a number."""

    source: str
    set_name: str = msgspec.field(name="set")
    action: str  # created, updated, deleted, moved
    uri: str
    origin: str = ""  # the address of the resource at the first source, where a source republishes (`via`)
    path: str = ""  # relative to the copy
    hash: str | None = None
    length: int | None = None
    type: str | None = None
    lastmod: dt.datetime | None = None
    links: tuple[Link, ...] = ()
    reason: str = ""


class Event(NewEvent, frozen=True, kw_only=True):
    """What happened to a resource of a service's copies: created, updated, deleted or moved, at the time `at`.

    `path` is relative to the copy, `origin` the address at the first source where a source republishes, `reason` why.
    """

    number: int  # grows with each event, and is never given twice
    run: int  # the number of the run; 0: a replay
    at: dt.datetime

    def to_dict(self) -> dict[str, Any]:
        """The event as sinks get it, as values that `json.dumps` takes; each field is always there."""
        return super().to_dict() | {"origin": self.origin or None, "reason": self.reason or None}


class DeadLetter(ToDict, msgspec.Struct, frozen=True, kw_only=True):
    """An event that a sink has refused for good, or that a quarantine rule has held back from it."""

    sink: str
    number: int
    at: dt.datetime
    reason: str
    tries: int


class SinkState(ToDict, msgspec.Struct, frozen=True, kw_only=True):
    """How far a sink is; `acknowledged`: the last number that it has taken, or that has become a dead letter.

    `waiting` counts events after it, also those that its filters leave out; `refused` those of the dead letters that
    the sink has refused: what a rule holds back is as the operator wants it.
    """

    name: str
    acknowledged: int
    waiting: int
    oldest_waiting_at: dt.datetime | None
    dead_letters: int
    refused: int = 0
    failures: int = 0
    failure: str = ""
    next_at: dt.datetime | None = None


class LeaseLost(StoreFault):
    """The run no longer belongs to this worker: its lease has ended, or somebody has taken the source over."""

    code: ClassVar[str] = "HW-AGG-01"

    def __init__(self, run: Run) -> None:
        super().__init__(f"run {run.number} no longer has the lease of its source", where=run.name)


class UnknownSource(UsageFault):
    """The service follows no source, and has no sink, of this name."""

    code: ClassVar[str] = "HW-AGG-02"


BROKEN_OFF: Final = "HW-AGG-24"


def broken_off(run: Run, now: dt.datetime) -> RunRecord:
    """The record of a run whose worker is no more."""
    reason = "the run was broken off: its process ended before it did"
    return run.ended(now, Exit.STORE, reason=reason, code=BROKEN_OFF)


def is_repeated(last: NewEvent, event: NewEvent) -> bool:
    """Whether an event says what the last one of its resource has said: a run that was killed tells twice.

    What it tells of again has no time where the list that named it was not read again.
    """
    same = (last.action, last.uri, last.hash) == (event.action, event.uri, event.hash)
    return same and event.lastmod in (None, last.lastmod)


class AggregatorStore(Protocol):
    """The store of a service. Each method is one transaction, durable when it returns. Raises StoreFault.

    All moments are given by the caller, in UTC.
    """

    def enrol(self, sources: Sequence[tuple[str, str]], now: dt.datetime) -> None:
        """Remember sources (name, url) that are new, due at once; a changed url is noted. Others stay as they are."""

    def sources(self) -> list[SourceState]:
        """All sources that were ever enrolled, by name."""

    def source(self, name: str) -> SourceState | None:
        """One source."""

    def change(self, name: str, **fields: Any) -> SourceState:
        """Set fields of a source, such as `is_paused` or `answer`. Raises UnknownSource."""

    def changed(self) -> int:
        """A number that is another one after anybody, in any process, has changed sources, runs or events."""

    # runs

    def lease(self, name: str, kind: str, worker: str, now: dt.datetime, seconds: float) -> Run | None:
        """Begin a run of a source; None: another run of it has a lease that has not ended.

        A lease that is over is ended as by `release`. The run is what an operator wanted: `is_wanted_now` is no more.
        """

    def end(self, run: Run, record: RunRecord, state: SourceState) -> None:
        """Keep the record of a run, and the state of its source after it; the lease ends. Raises LeaseLost.

        What an operator has changed of the source since the run began (`url`, `is_paused`, `is_wanted_now`, `answer`,
        `retirement`) is kept. At least the last 50 records of each source are kept.
        """

    def release(self, worker: str, now: dt.datetime) -> list[Run]:
        """End the leases of a worker that is no more, and all that are over; returns these runs.

        Each gets a record as one that was `broken_off`, and its worker can write nothing any more (LeaseLost).
        """

    def running(self) -> list[Run]:
        """Runs that have a lease."""

    def runs(self, name: str | None = None, limit: int = 50, kind: str | None = None) -> list[RunRecord]:
        """Runs that have ended, newest first: those of a source, or of a kind, where one is given."""

    def run(self, number: int) -> RunRecord | None:
        """A run that has ended."""

    def last_runs(self) -> dict[str, RunRecord]:
        """The newest run of each source that has ended, by name, without its `report`."""

    # the journal of events

    def append(self, run: Run, events: Sequence[NewEvent], now: dt.datetime) -> int:
        """Add events in one transaction; returns the last number of the journal. Raises LeaseLost.

        An event that the journal already has as the last one of its resource (source, set, path) is not added again
        (`is_repeated`).
        """

    def append_held(self, sink: str, events: Sequence[NewEvent], now: dt.datetime, dead: Sequence[int] = ()) -> int:
        """Add events for one sink alone (replay); returns the last number of the journal. `dead` are dead letters of it
        that are forgotten with that.

        Where the journal has a later state of a resource, that is added in its place; nothing, where it is deleted.
        """

    def events(self, after: int, limit: int = 1000, sink: str | None = None) -> list[Event]:
        """Events with numbers above `after`, in their order; with those for this sink alone."""

    def last_event(self, event: NewEvent) -> Event | None:
        """The last event of the resource that this one is about (source, set, path)."""

    def last_number(self) -> int:
        """The number of the last event that there ever was; 0: there was none."""

    def trimmed_number(self) -> int:
        """The number of the last event that was removed because of its age; 0: none was."""

    def trim(self, before: dt.datetime) -> int:
        """Remove older events that every sink has acknowledged; returns how many. Older dead letters are removed, and
        sinks that were not named any more before.
        """

    # sinks

    def enrol_sinks(self, names: Sequence[str], now: dt.datetime) -> list[SinkState]:
        """Remember sinks; a new one begins after the last event. Returns those that are remembered and not named: they
        keep their place, should they be named again, until `trim` removes them.
        """

    def sink(self, name: str) -> SinkState:
        """How far a sink is. Raises UnknownSource."""

    def acknowledge(self, name: str, number: int, dead: Sequence[DeadLetter] = (), *, after: int | None = None) -> None:
        """The sink has taken all up to `number` but those in `dead`, which are kept as dead letters.

        Nothing is changed where the sink is no longer at `after`: somebody lets it begin again, meanwhile.
        """

    def refused(self, name: str, reason: str, next_at: dt.datetime) -> None:
        """A delivery has failed: it is tried again at `next_at`."""

    def set_position(self, name: str, number: int) -> None:
        """Let the sink begin again after `number` (replay). Raises UnknownSource."""

    def dead_letters(self, name: str, limit: int = 100) -> list[DeadLetter]:
        """Dead letters of a sink, newest first."""

    # what else the service remembers

    def fact(self, name: str) -> str | None:
        """A text that was kept by a name, such as which alerts were given."""

    def keep_fact(self, name: str, text: str | None) -> None:
        """Keep a text by a name, in place of an earlier one; None: none any more."""

    def close(self) -> None:
        """Close the store."""
