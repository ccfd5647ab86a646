"""The status of a service that follows many sources: of each source, of each sink, of the service itself.

A state is computed from proof, and shown with the age of the proof: the last run that ended with 0, or an audit. That
nothing was heard of a source is never taken for good news. The functions are over values; `read_fleet` alone asks the
store, the clock and the disk.
"""

from __future__ import annotations

import datetime as dt
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import asdict, astuple

from headwater.aggregator.configuration import AggregatorConfig, FollowedSource, SinkConfig
from headwater.aggregator.store import (
    AggregatorStore,
    Answer,
    Run,
    RunRecord,
    SinkState,
    SourceState,
    UnknownSource,
)
from headwater.errors import Exit
from headwater.files.file_copies import Room, free_octets
from headwater.quantities import printable
from headwater.spec.records import ToDict
from headwater.sync.copy_status import is_locked
from headwater.sync.reports import gravest_status


class SourceVerdict(StrEnum):
    """What an operator has to know of a source first, the worst first.

    QUESTION: a person has to approve or refuse. STALE: its last runs were sound, and too long ago. RETIRED: retired,
    disabled, or no longer in the file. The others are those of its life.
    """

    QUESTION = "waits for you"
    DEAD = "dead"
    FAILING = "failing"
    STALE = "out of date"
    DEGRADED = "degraded"
    FIRST_COPY = "first copy"
    NEW = "new"
    PAUSED = "paused"
    FOLLOWING = "following"
    RETIRED = "not followed"


LOCK = "lock"
"""The file in `AggregatorConfig.home` that a service holds while it runs."""

PUBLISH_FAULT = "publish fault"
"""The fact of the store that says why the publication of a service does not work."""

HELD_BACK = "DST-B4"
"""The rule that holds changes back until the operator consents: no fault of the source."""

ORDER = tuple(SourceVerdict)
_STATUSES = {
    SourceVerdict.QUESTION: Exit.TRANSFERS_FAILED,
    SourceVerdict.DEAD: Exit.SOURCE,
    SourceVerdict.FAILING: Exit.SOURCE,
    SourceVerdict.STALE: Exit.FINDINGS,
    SourceVerdict.DEGRADED: Exit.TRANSFERS_FAILED,
    SourceVerdict.FIRST_COPY: Exit.UNDETERMINED,
    SourceVerdict.NEW: Exit.UNDETERMINED,
    SourceVerdict.PAUSED: Exit.FINDINGS,
    SourceVerdict.FOLLOWING: Exit.DONE,
    SourceVerdict.RETIRED: Exit.DONE,
}


class SourceStatus(SourceState, frozen=True, kw_only=True):
    """The state of one source, with what the file and its last run say; ages are seconds by our clock.

    `exit_status` is what the state means for a monitor: 0 only while the source is followed, and was proved to be in
    step lately. A proof that is older than `allowed_seconds` makes it out of date. `defects`: how often the last run
    found something wrong in the source's documents. `running` is the number of the run that is under way.
    """

    title: str
    tags: tuple[str, ...]
    contact: str | None
    verdict: SourceVerdict
    exit_status: int
    age_seconds: float | None
    allowed_seconds: float
    last_run: int | None
    last_status: int | None
    ended_at: dt.datetime | None
    reason: str
    code: str | None
    defects: int
    running: int | None
    running_kind: str | None
    running_since: dt.datetime | None
    is_overdue: bool


class SinkStatus(SinkState, frozen=True, kw_only=True):
    """How far a sink is behind the journal of events: its oldest waiting event has waited for `lag_seconds`."""

    kind: str
    lag_seconds: float
    exit_status: int


class FailureReason(ToDict, msgspec.Struct, frozen=True, kw_only=True):
    """Why runs fail: a code, how many sources it stops, and the sentence of the first."""

    code: str
    sources: int
    example: str


class HostStatus(ToDict, msgspec.Struct, frozen=True, kw_only=True):
    """What the last runs asked of a host: how many sources, requests, and answers 429 or 503."""

    host: str
    sources: int = 0
    requests: int = 0
    refused: int = 0


_SUMS = ("resources", "octets", "failed", "held_back")


class FleetStatus(ToDict, msgspec.Struct, frozen=True, kw_only=True):
    """The state of a service and of all that it follows.

    `is_alive`: whether a service runs on this state. `publish_fault`: why its publication does not work. `counts` are
    sources by verdict; `hosts` has those first that refused most, `sources` the worst.
    """

    time: dt.datetime
    config: str
    is_alive: bool
    publish_fault: str | None
    exit_status: int
    free_octets: int
    keep_free: int | None
    is_full: bool
    counts: dict[str, int]
    resources: int
    octets: int
    failed: int
    held_back: int
    running: int
    last_event: int
    reasons: tuple[FailureReason, ...]
    hosts: tuple[HostStatus, ...]
    sinks: tuple[SinkStatus, ...]
    sources: tuple[SourceStatus, ...]


def source_status(
    followed: FollowedSource | None,
    state: SourceState,
    last: RunRecord | None,
    running: Run | None,
    now: dt.datetime,
    *,
    is_alive: bool = True,
) -> SourceStatus:
    """The state of a source at `now`, of which the file may say nothing any more (`followed` is None)."""
    age = None if state.sound_at is None else max(0.0, (now - state.sound_at).total_seconds())
    allowed = _allowed_seconds(followed, state, last)
    late = 0.0 if state.next_at is None else (now - state.next_at).total_seconds()
    overdue = running is None and is_alive and late > allowed
    verdict = _verdict(followed, state, is_stale=overdue or (age is not None and age > allowed))
    if verdict is SourceVerdict.FOLLOWING and last is not None and _has_doubts(last):
        verdict = SourceVerdict.DEGRADED
    return SourceStatus(
        **asdict(state),
        title=followed.title if followed else "",
        tags=followed.tags if followed else (),
        contact=followed.contact if followed else None,
        verdict=verdict,
        exit_status=int(_STATUSES[verdict]),
        age_seconds=age,
        allowed_seconds=allowed,
        last_run=last.number if last else None,
        last_status=last.exit_status if last else None,
        ended_at=last.ended_at if last else None,
        reason=last.reason if last else "",
        code=last.code if last else None,
        defects=sum(count for _, count, _ in last.warnings) if last else 0,
        running=running.number if running else None,
        running_kind=running.kind if running else None,
        running_since=running.began_at if running else None,
        is_overdue=overdue,
    )


def _has_doubts(last: RunRecord) -> bool:
    """Whether the last run was an audit that did not find the copy in sync: it counts until a run has followed."""
    return last.kind == "audit" and last.exit_status not in (Exit.DONE, Exit.INTERRUPTED)


def _allowed_seconds(followed: FollowedSource | None, state: SourceState, last: RunRecord | None) -> float:
    """How old a proof may be: two turns and a run. A turn lasts as long as the next run was put off after the last."""
    if followed is None:
        return 0.0
    turn = 0.0 if followed.cron else followed.every * (1 + followed.jitter)
    if last is not None and state.next_at is not None:
        turn = max(turn, (state.next_at - last.ended_at).total_seconds())
    return 2 * turn + followed.deadline


def _verdict(followed: FollowedSource | None, state: SourceState, *, is_stale: bool) -> SourceVerdict:
    if followed is None or not followed.enabled or state.retirement is not None:
        return SourceVerdict.RETIRED
    if state.question is not None and state.answer is None:
        return SourceVerdict.QUESTION
    of_life = SourceVerdict(state.life)
    if of_life in (SourceVerdict.DEAD, SourceVerdict.FAILING):
        return of_life
    if state.is_paused:
        return SourceVerdict.PAUSED
    return SourceVerdict.STALE if is_stale and of_life is not SourceVerdict.DEGRADED else of_life


def sink_status(sink: SinkConfig, state: SinkState, now: dt.datetime) -> SinkStatus:
    """How far a sink is at `now`."""
    oldest = state.oldest_waiting_at
    return SinkStatus(
        **asdict(state),
        kind=sink.kind,
        lag_seconds=max(0.0, (now - oldest).total_seconds()) if oldest is not None and state.waiting else 0.0,
        exit_status=int(Exit.TRANSFERS_FAILED if state.failures or state.refused else Exit.DONE),
    )


def sink_state(store: AggregatorStore, name: str) -> SinkState:
    """How far a sink of the file is; one that the service has not seen yet has nothing waiting."""
    try:
        return store.sink(name)
    except UnknownSource:
        return SinkState(name=name, acknowledged=store.last_number(), waiting=0, oldest_waiting_at=None, dead_letters=0)


def reasons_of(sources: Sequence[SourceStatus]) -> tuple[FailureReason, ...]:
    """Why the last runs of sources failed, the commonest first."""
    examples: dict[str, str] = {}
    found: Counter[str] = Counter()
    for one in sources:
        is_of_source = one.last_status not in (None, Exit.DONE, Exit.INTERRUPTED) and one.code != HELD_BACK
        if is_of_source and one.verdict is not SourceVerdict.RETIRED:
            code = one.code or f"exit status {one.last_status}"
            found[code] += 1
            examples.setdefault(code, one.reason)
    return tuple(FailureReason(code=code, sources=count, example=examples[code]) for code, count in found.most_common())


def hosts_of(runs: Iterable[RunRecord]) -> tuple[HostStatus, ...]:
    """What these runs asked of each host."""
    found: dict[str, HostStatus] = {}
    for run in runs:
        for host, (requests, refused) in run.by_host.items():
            _, sources, others, refusals = astuple(found.get(host, HostStatus(host=host)))
            found[host] = HostStatus(
                host=host, sources=sources + 1, requests=others + requests, refused=refusals + refused
            )
    return tuple(sorted(found.values(), key=lambda one: (-one.refused, -one.requests, one.host)))


def fleet_status(
    config: AggregatorConfig,
    store: AggregatorStore,
    now: dt.datetime,
    *,
    is_alive: bool,
    free: int,
) -> FleetStatus:
    """The state of everything at `now`, of which the store is asked. `free`: bytes free where the copies lie."""
    followed = {one.name: one for one in config.sources}
    states = {one.name: one for one in store.sources()}
    for name, one in followed.items():  # what was added to the file since the service looked
        states.setdefault(name, SourceState(name=name, url=one.url))
    last, running = store.last_runs(), {one.name: one for one in store.running()}
    sources = sorted(
        (
            source_status(followed.get(name), one, last.get(name), running.get(name), now, is_alive=is_alive)
            for name, one in states.items()
        ),
        key=_badness,
    )
    sinks = tuple(sink_status(one, sink_state(store, one.name), now) for one in config.sinks)
    found = Counter(one.verdict for one in sources)
    is_full = free < (config.keep_free or 0)
    statuses = [*(one.exit_status for one in sources), *(one.exit_status for one in sinks)]
    publish_fault = store.fact(PUBLISH_FAULT) if config.publish is not None else None
    if is_full or publish_fault or not is_alive:
        statuses.append(int(Exit.STORE))
    return FleetStatus(
        time=now,
        config=str(config.path),
        is_alive=is_alive,
        publish_fault=publish_fault,
        exit_status=gravest_status(statuses) or int(Exit.FINDINGS if Exit.FINDINGS in statuses else Exit.DONE),
        free_octets=free,
        keep_free=config.keep_free,
        is_full=is_full,
        counts={str(one): found[one] for one in ORDER if found[one]},
        **{name: sum(getattr(one, name) for one in sources) for name in _SUMS},
        running=len(running),
        last_event=store.last_number(),
        reasons=reasons_of(sources),
        hosts=hosts_of(last.values()),
        sinks=sinks,
        sources=tuple(sources),
    )


def _badness(source: SourceStatus) -> tuple[int, float, str]:
    """The order in which sources are shown: the worst first, of the like the oldest proof."""
    age = float("inf") if source.age_seconds is None else source.age_seconds
    return ORDER.index(source.verdict), -age, source.name


def read_fleet(config: AggregatorConfig, store: AggregatorStore, *, is_alive: bool | None = None) -> FleetStatus:
    """The state of everything now. `is_alive`: whether a service runs, where the caller knows. Raises StoreFault."""
    alive = bool(is_locked(config.home / LOCK)) if is_alive is None else is_alive
    room = Room(os.fsencode(config.state), config.keep_free)  # what is usual, where the file does not say it
    config = msgspec.structs.replace(config, keep_free=room.keep_free)
    return fleet_status(config, store, dt.datetime.now(dt.UTC), is_alive=alive, free=free_octets(config.state))


def chosen(sources: Sequence[SourceStatus], *, verdict: str = "", tag: str = "", words: str = "") -> list[SourceStatus]:
    """The sources in this state, with this tag, and with this text in name, title, address, code or reason."""
    text = words.casefold()
    return [
        one
        for one in sources
        if (not verdict or one.verdict == verdict)
        and (not tag or tag in one.tags)
        and text in "\n".join((one.name, one.title, one.url, one.reason, one.code or "")).casefold()
    ]


# what an operator does

ACTIONS: Mapping[str, Mapping[str, object]] = {
    "approve": {"answer": Answer.APPROVED, "is_wanted_now": True},
    "refuse": {"answer": Answer.REFUSED, "is_wanted_now": True},
    "run": {"is_wanted_now": True},
    "pause": {"is_paused": True},
    "resume": {"is_paused": False, "retirement": None},
}
"""What each command of the operator changes of a source."""


def changes_by(action: str, state: SourceState) -> Mapping[str, object]:
    """What an action changes of this source: consent to what was refused has the source ask again."""
    asks_again = action == "approve" and state.question is None
    return {"refused_text": "", "is_wanted_now": True} if asks_again else ACTIONS[action]


def objection_to(
    action: str, state: SourceState | None, asked: str | None = None, *, is_in_file: bool = True
) -> str | None:
    """Why an action of the operator would do nothing; None: it does something.

    `asked` is the `question_text` that the operator has seen, where that is known: another one is not answered.
    """
    if state is None or not is_in_file:
        return "the source is not in the file: no run of it begins"
    text = state.refused_text if state.question is None and action == "approve" else state.question_text
    if "answer" in ACTIONS[action] and not text:
        return "the source asks nothing at present"
    if "answer" in ACTIONS[action] and asked is not None and _plain(asked) != _plain(text):
        return "the source asks something else by now: read it, and answer that (`asked` repeats its `question_text`)"
    if action == "run" and (state.is_paused or state.retirement is not None):
        return "the source is paused or retired: `resume` it first"
    return None


def _plain(text: str) -> str:
    """A text as it comes back from the form of a page, on which it was made printable."""
    return " ".join(printable(text).split())
