"""What a run means for the life of its source: how it does now, what a person has to decide, when it runs again.

Decisions over values. A source is as its last run has left it: `following` only where nothing failed, nothing is held
back and nobody is asked anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headwater.aggregator.schedule import next_run
from headwater.aggregator.store import BROKEN_OFF, Answer, Life, Question, RunRecord, SourceState
from headwater.errors import Exit
from headwater.sync.sets.polling import PollingHints
from headwater.time_windows import Windows, opens_at

if TYPE_CHECKING:
    from headwater.aggregator.configuration import FollowedSource
    from headwater.sync.copy_status import CopyStatus
    from headwater.sync.options import SyncOptions

ANOTHER_SOURCE: Final = "HW-SYN-07"
NO_ACCESS: Final = "HW-SYN-15"
SET_BACK: Final = "DST-F12"
DEADLINE: Final = "HW-NET-02"

DEGRADED: Final = frozenset({int(Exit.TRANSFERS_FAILED), int(Exit.UNDETERMINED)})
MOST_FRUITLESS: Final = 3
"""So many runs in a row that were stopped before anything came of them are a failure."""

_SAMPLE: Final = 3
_CODE: Final = re.compile(r"\[(HW-[A-Z]+-\d+|HW-000)(?:, ([\w. -]+))?\]\Z")
_OF_ALL: Final = re.compile(r"(?<=\d) of [\d,]+(?= files would be )")
_SHARE: Final = re.compile(r"--max-(?:delete|update) (\d+)%")


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run, as far as its source's life goes by it."""

    record: RunRecord
    question: Question | None = None
    question_text: str = ""
    copy: CopyStatus | None = None
    """The copy after the run; None where it cannot be read."""

    hints: PollingHints = msgspec.field(default_factory=PollingHints)


# what is asked


def code_of(told: str) -> tuple[str | None, str | None]:
    """The code and the rule at the end of an error's line."""
    found = _CODE.search(told)
    return (None, None) if found is None else (found[1], found[2])


def question_of(faults: Iterable[str], copy: CopyStatus | None) -> tuple[Question | None, str]:
    """What a person has to decide after a run that ended with these faults: the gravest question, and its text.

    `faults` are lines of errors with their codes. The text names what is at stake.
    """
    told = [(*code_of(fault), _CODE.sub("", fault).strip()) for fault in faults]
    for question, codes in (
        (Question.AUTHORISATION, {NO_ACCESS}),
        (Question.MOVED, {ANOTHER_SOURCE}),
        (Question.RESET, {SET_BACK}),
    ):
        for code, rule, text in told:
            if {code, rule} & codes:
                return question, text
    if copy is None:
        return None, ""
    deletions = [one.path for each in copy.sets for one in each.deletions]
    updates = [path for each in copy.sets for path in each.updates]
    files = sum(one.files for one in copy.sets if one.held_back)
    for question, what, count, paths in (
        (Question.DELETIONS, "deleted", sum(one.held_back - one.held_updates for one in copy.sets), deletions),
        (Question.UPDATES, "overwritten", sum(one.held_updates for one in copy.sets), updates),
    ):
        if count:
            more = ", …" if count > _SAMPLE else ""
            return question, f"{count:,} of {files:,} files would be {what}: {', '.join(paths[:_SAMPLE])}{more}"
    return None, ""


def _at_stake(text: str) -> str:
    """The text of a question, which is the same as long as what is at stake: not the number of all files."""
    return _OF_ALL.sub("", text, count=1)


def approved_options(options: SyncOptions, state: SourceState, copy: CopyStatus | None) -> SyncOptions:
    """The options of the run that follows the operator's answer to the question of a source.

    Consent to deletions or updates is to the share that was held back when it was given, not to more.
    """
    if state.answer is not Answer.APPROVED:
        return options
    given: dict[str, Any] = {}
    match state.question:
        case Question.MOVED:
            given["moved"] = True
        case Question.RESET:
            given["accept_reset"] = True
        case Question.DELETIONS:
            given["max_delete"] = _consent(copy, "delete", options.max_delete)
        case Question.UPDATES:
            given["max_update"] = _consent(copy, "update", options.max_update)
    return msgspec.structs.replace(options, **given)


def _consent(copy: CopyStatus | None, what: str, usual: float | None) -> float | None:
    """The share of a set that may go, as the commands say that consent to what is held back; of several sets the
    smallest, so that no set loses more than was shown. `usual`: where nothing is held back any more.
    """
    commands = [one.consent.get(what, "") for one in copy.sets] if copy is not None else []
    shares = [int(found[1]) / 100 for text in commands if (found := _SHARE.search(text))]
    return min(shares, default=usual)


# what comes of it


def life_after(state: SourceState, followed: FollowedSource, outcome: RunOutcome) -> Life:
    """How a source does after a run that tells of it."""
    record = outcome.record
    if record.exit_status == Exit.DONE and not record.failed and not record.held_back and outcome.question is None:
        return Life.FOLLOWING
    if record.exit_status in {*DEGRADED, int(Exit.DONE)}:
        return Life.DEGRADED
    is_first = state.sound_at is None and state.life in (Life.NEW, Life.FIRST_COPY, Life.FAILING)
    if is_first and record.code == DEADLINE and record.created > 0:  # it takes more than one run
        return Life.FIRST_COPY
    since = state.failing_since or record.ended_at
    has_died = (record.ended_at - since).total_seconds() >= followed.dead_after
    return Life.DEAD if has_died else Life.FAILING


def state_after(
    state: SourceState,
    followed: FollowedSource,
    outcome: RunOutcome,
    *,
    windows: Iterable[Windows] = (),
    chance: float = 0.0,
) -> SourceState:
    """The state of a source after a run; `windows` are those of the source and of its hosts.

    A run that was stopped tells nothing of the source, and goes on as soon as it may; but the third in a row of which
    nothing has come is a failure. An audit changes nothing, unless it finds something.
    """
    record, copy = outcome.record, outcome.copy
    if record.kind == "audit":
        return _after_audit(state, record)
    is_over = record.exit_status != Exit.INTERRUPTED
    fruitless = 0 if is_over or record.created or record.updated or record.deleted else state.fruitless + 1
    failures, failing_since, life = state.failures, state.failing_since, state.life
    if is_over or fruitless >= MOST_FRUITLESS:
        life = life_after(state, followed, outcome)
        is_failing = life in (Life.FAILING, Life.DEAD)
        failures, failing_since = (failures + 1, failing_since or record.ended_at) if is_failing else (0, None)
        goes_on = life is Life.FIRST_COPY or (record.code == BROKEN_OFF and failures == 1)
    else:
        life, goes_on = Life.FIRST_COPY if life is Life.NEW else life, True
    if goes_on:
        due = opens_at(record.ended_at, windows)
    else:
        due = next_run(
            followed,
            record.ended_at,
            failures=failures,
            is_dead=life is Life.DEAD,
            hints=outcome.hints,
            windows=windows,
            chance=chance,
        )
    after = msgspec.structs.replace(
        state,
        life=life,
        life_since=state.life_since if life is state.life and state.life_since else record.ended_at,
        next_at=due,
        planned_at=record.ended_at,
        failures=failures,
        fruitless=fruitless,
        failing_since=failing_since,
        last_seconds=(record.ended_at - record.began_at).total_seconds(),
        hosts=tuple(record.by_host) or state.hosts,
        resources=state.resources if copy is None else copy.files,
        octets=state.octets if copy is None else copy.octets,
    )
    if not is_over:
        return after
    refused = state.question_text if state.answer is Answer.REFUSED else state.refused_text
    is_asked = outcome.question is not None and _at_stake(outcome.question_text) != _at_stake(refused)
    return msgspec.structs.replace(
        after,
        question=outcome.question if is_asked else None,
        question_text=outcome.question_text if is_asked else "",
        answer=None,
        refused_text="" if life is Life.FOLLOWING else refused,
        sound_at=record.began_at if life is Life.FOLLOWING else state.sound_at,
        is_to_repair=state.is_to_repair and record.exit_status != Exit.DONE,
        failed=record.failed,
        held_back=record.held_back,
    )


def _after_audit(state: SourceState, record: RunRecord) -> SourceState:
    """An audit that has found something: the source is degraded, and runs again at once to repair its copy."""
    ended = record.ended_at
    if record.exit_status == Exit.INTERRUPTED:
        return state
    if record.exit_status != Exit.FINDINGS:
        return msgspec.structs.replace(state, audited_at=ended)
    return msgspec.structs.replace(
        state, audited_at=ended, is_to_repair=True, life=Life.DEGRADED, life_since=ended, failed=record.failed,
        next_at=ended,
    )  # fmt: skip
