"""What a run means for the life of its source: a table of ends."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest

from headwater.aggregator.configuration import FollowedSource
from headwater.aggregator.life import RunOutcome, approved_options, code_of, question_of, state_after
from headwater.aggregator.store import Answer, Life, Question, RunRecord, SourceState
from headwater.sync.copy_status import CopyStatus, HeldBackDeletion, SetStatus
from headwater.sync.options import SyncOptions
from headwater.sync.sets.polling import PollingHints

NOW = dt.datetime(2026, 12, 1, 12, tzinfo=dt.UTC)
BEFORE = NOW - dt.timedelta(minutes=1)
LONG_AGO = NOW - dt.timedelta(days=40)
SOURCE = FollowedSource(name="a", url="http://a.example.org", jitter=0.0)


def record(status: int = 0, **more: Any) -> RunRecord:
    return RunRecord(number=1, name="a", kind="sync", began_at=BEFORE, ended_at=NOW, exit_status=status, **more)


def held(life: Life = Life.FOLLOWING, **more: Any) -> SourceState:
    return SourceState(name="a", url="http://a.example.org", life=life, life_since=LONG_AGO, **more)


def after(state: SourceState, outcome: RunOutcome, **more: Any) -> SourceState:
    return state_after(state, SOURCE, outcome, **more)


@pytest.mark.parametrize(
    ("state", "run", "life", "minutes"),
    [
        (held(Life.NEW), record(), Life.FOLLOWING, 60),
        (held(Life.NEW), record(130), Life.FIRST_COPY, 0),
        (held(Life.NEW), record(3), Life.FAILING, 90),
        (held(Life.NEW), record(3, code="HW-NET-02", created=9), Life.FIRST_COPY, 0),
        (held(Life.NEW), record(3, code="HW-NET-02"), Life.FAILING, 90),
        (held(Life.FIRST_COPY), record(3, code="HW-NET-02", created=9), Life.FIRST_COPY, 0),
        (held(Life.FAILING), record(3, code="HW-NET-02", created=9), Life.FIRST_COPY, 0),
        (held(sound_at=LONG_AGO), record(3, code="HW-NET-02", created=9), Life.FAILING, 90),
        (held(), record(), Life.FOLLOWING, 60),
        (held(), record(130), Life.FOLLOWING, 0),
        (held(), record(4, failed=1), Life.DEGRADED, 60),
        (held(), record(5), Life.DEGRADED, 60),
        (held(), record(0, failed=1), Life.DEGRADED, 60),  # whatever a run ends with
        (held(), record(0, held_back=1), Life.DEGRADED, 60),
        (held(), record(3), Life.FAILING, 90),
        (held(), record(2), Life.FAILING, 90),
        (held(), record(70), Life.FAILING, 90),
        (held(), record(6), Life.FAILING, 90),
        (held(), record(6, code="HW-AGG-24"), Life.FAILING, 0),  # killed once
        (held(Life.FAILING, failures=1), record(6, code="HW-AGG-24"), Life.FAILING, 135),
        (held(Life.FAILING, failures=1, failing_since=BEFORE), record(3), Life.FAILING, 135),
        (held(Life.FAILING, failures=9, failing_since=LONG_AGO), record(3), Life.DEAD, 24 * 60),
        (held(Life.DEAD, failures=9, failing_since=LONG_AGO), record(3), Life.DEAD, 24 * 60),
        (held(Life.DEAD, failures=9, failing_since=LONG_AGO), record(), Life.FOLLOWING, 60),
        (held(Life.DEAD, failures=9, failing_since=LONG_AGO), record(4, failed=1), Life.DEGRADED, 60),
        (held(Life.DEGRADED), record(3), Life.FAILING, 90),
    ],
)
def test_lives(state: SourceState, run: RunRecord, life: Life, minutes: int) -> None:
    found = after(state, RunOutcome(record=run))
    assert found.life is life
    assert found.next_at == NOW + dt.timedelta(minutes=minutes)
    assert found.life_since == (LONG_AGO if life is state.life else NOW)
    if life in (Life.FAILING, Life.DEAD):
        assert found.failures == state.failures + 1
        assert found.failing_since == (state.failing_since or NOW)
    elif run.exit_status != 130:
        assert (found.failures, found.failing_since) == (0, None)
    assert found.sound_at == (BEFORE if life is Life.FOLLOWING and run.exit_status == 0 else state.sound_at)
    assert found.last_seconds == 60.0


def test_three_runs_of_which_nothing_comes_are_a_failure() -> None:
    state = held()
    for failures, life in ((0, Life.FOLLOWING), (0, Life.FOLLOWING), (1, Life.FAILING), (2, Life.FAILING)):
        state = after(state, RunOutcome(record=record(130)))
        assert (state.failures, state.life, state.next_at == NOW) == (failures, life, failures == 0)
    state = after(state, RunOutcome(record=record(130, updated=1)))
    assert (state.fruitless, state.failures, state.next_at) == (0, 2, NOW)
    assert after(state, RunOutcome(record=record())).failures == 0


def test_an_audit_that_finds_something_is_repaired_by_the_next_sound_run() -> None:
    audit = msgspec.structs.replace(record(1, failed=2), kind="audit")
    found = after(held(next_at=NOW + dt.timedelta(hours=1)), RunOutcome(record=audit))
    assert (found.life, found.next_at, found.is_to_repair, found.failed) == (Life.DEGRADED, NOW, True, 2)
    assert after(found, RunOutcome(record=record(4, failed=1))).is_to_repair
    assert not after(found, RunOutcome(record=record())).is_to_repair
    away = msgspec.structs.replace(audit, exit_status=3, failed=0)
    assert after(held(), RunOutcome(record=away)) == held(audited_at=NOW)


def test_what_a_source_wishes_is_minded() -> None:
    hints = PollingHints()
    hints.retry_after_seconds = 7_200
    found = after(held(), RunOutcome(record=record(), hints=hints))
    assert found.next_at == NOW + dt.timedelta(hours=2)


ASKING = RunOutcome(record=record(4, held_back=30), question=Question.DELETIONS, question_text="30: a, b")


def test_a_question_stands_until_it_is_answered_or_over() -> None:
    asked = after(held(), ASKING)
    assert (asked.question, asked.question_text, asked.life) == (Question.DELETIONS, "30: a, b", Life.DEGRADED)
    stopped = after(asked, RunOutcome(record=record(130)))
    assert (stopped.question, stopped.question_text) == (Question.DELETIONS, "30: a, b")
    over = after(asked, RunOutcome(record=record()))
    assert (over.question, over.question_text, over.life) == (None, "", Life.FOLLOWING)


def test_what_was_refused_is_not_asked_again_and_something_else_is() -> None:
    refused = after(held(answer=Answer.REFUSED, question=Question.DELETIONS, question_text="30: a, b"), ASKING)
    assert (refused.question, refused.answer, refused.life, refused.sound_at) == (None, None, Life.DEGRADED, None)
    assert after(refused, ASKING).question is None
    other = RunOutcome(record=record(4, held_back=29), question=Question.DELETIONS, question_text="29: a, b")
    assert after(refused, other).question is Question.DELETIONS
    assert after(refused, RunOutcome(record=record())).refused_text == ""


def test_what_was_refused_is_the_same_however_many_files_there_are() -> None:
    def asking(held: int) -> dict[str, Any]:
        return {"question": Question.DELETIONS, "question_text": f"30 of {held:,} files would be deleted: a, b"}

    refused = held(answer=Answer.REFUSED, **asking(998))
    assert after(refused, RunOutcome(record=record(4, held_back=30), **asking(1_001))).question is None


def test_an_answer_waits_for_a_run_that_comes_to_its_end() -> None:
    approved = held(question=Question.RESET, answer=Answer.APPROVED)
    assert after(approved, RunOutcome(record=record(130))).answer is Answer.APPROVED
    assert after(approved, RunOutcome(record=record())).answer is None


def copy(*, deletions: int = 0, updates: int = 0, files: int = 100, consent: str = "") -> CopyStatus:
    one = SetStatus(
        name="s", folder="", capability_list=None, base=None, position=None, position_age_seconds=None,
        checked_at=None, sound_at=None, sound_age_seconds=None, unsound_since=None, files=files, octets=0, failed=0,
        refused=0, newer_than_listed=0, held_back=deletions + updates, held_updates=updates, refusals=(), failures=(),
        deletions=tuple(HeldBackDeletion(uri=f"u{n}", path=f"p{n}", deleted_at=None) for n in range(deletions)),
        updates=tuple(f"q{n}" for n in range(updates)), lists_are_cut=False, last=None, exit_status=4,
        consent={"delete": f"headwater sync U D --max-delete {consent}"} if consent else {},
    )  # fmt: skip
    return CopyStatus(
        source=None, moved_to=None, destination="d", as_of=None, time=NOW, running=None, last_run=None, files=files,
        octets=0, partial_files=0, partial_octets=0, free_octets=0, is_read_only=False, failed=0, refused=0,
        held_back=deletions + updates, sets=(one,), exit_status=4,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("faults", "found", "question", "text"),
    [
        ([], None, None, ""),
        (["cannot be fetched (http://a) [HW-SYN-01, DST-F1]"], None, None, ""),
        (["the folder is a copy of http://b (agg/a) [HW-SYN-07, DST-F10]"], None, Question.MOVED, "the folder is a copy of http://b (agg/a)"),  # noqa: E501
        (["the source requires authentication (HTTP status 401) (http://a) [HW-SYN-15, DST-F2]"], None, Question.AUTHORISATION, "the source requires authentication (HTTP status 401) (http://a)"),  # noqa: E501
        (["s: x", "the list of 1 is older (http://a) [HW-SYN-11, DST-F12]"], copy(deletions=1), Question.RESET, "the list of 1 is older (http://a)"),  # noqa: E501
        (["the list changed (http://a) [HW-SYN-11, DST-F13]"], copy(), None, ""),
        ([], copy(deletions=2), Question.DELETIONS, "2 of 100 files would be deleted: p0, p1"),
        ([], copy(deletions=4, updates=1), Question.DELETIONS, "4 of 100 files would be deleted: p0, p1, p2, …"),
        ([], copy(updates=1), Question.UPDATES, "1 of 100 files would be overwritten: q0"),
    ],
)  # fmt: skip
def test_what_is_asked(faults: list[str], found: CopyStatus | None, question: Question | None, text: str) -> None:
    assert question_of(faults, found) == (question, text)


@pytest.mark.parametrize(
    ("question", "found", "given"),
    [
        (Question.MOVED, None, {"moved": True}),
        (Question.RESET, None, {"accept_reset": True}),
        (Question.AUTHORISATION, None, {}),
        (Question.DELETIONS, None, {}),
        (Question.DELETIONS, copy(deletions=30, consent="30%"), {"max_delete": 0.3}),
        (Question.UPDATES, copy(updates=30), {}),
    ],
)
def test_what_consent_gives_to_the_next_run(
    question: Question, found: CopyStatus | None, given: dict[str, Any]
) -> None:
    options = SyncOptions(rate=3.0)
    approved = held(question=question, answer=Answer.APPROVED)
    assert approved_options(options, approved, found) == SyncOptions(rate=3.0, **given)
    assert approved_options(options, held(question=question, answer=Answer.REFUSED), found) == options
    assert approved_options(options, held(question=question), found) == options


@pytest.mark.parametrize(
    ("told", "codes"),
    [
        ("it (there) [HW-SYN-01, DST-F1]", ("HW-SYN-01", "DST-F1")),
        ("it [HW-SYN-01]", ("HW-SYN-01", None)),
        ("it [HW-000]", ("HW-000", None)),
        ("http://a: HTTP status 404", (None, None)),
    ],
)
def test_the_code_of_a_line(told: str, codes: tuple[str | None, str | None]) -> None:
    assert code_of(told) == codes
