"""The contract suite of `AggregatorStore`: what the interface promises, as tests that every backend must pass.

A backend's own test module subclasses `StoreContract`, and gives it a fixture `backend`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Protocol

import msgspec
import pytest

from headwater.aggregator.store import (
    AggregatorStore,
    Answer,
    DeadLetter,
    LeaseLost,
    Life,
    NewEvent,
    Question,
    Retirement,
    Run,
    RunRecord,
    SourceState,
    UnknownSource,
)
from headwater.spec.records import Link

T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
LEASE = 60.0


def at(seconds: float) -> dt.datetime:
    return T0 + dt.timedelta(seconds=seconds)


def event(path: str = "a.xml", action: str = "created", digest: str = "sha-256:00", **fields: object) -> NewEvent:
    values = {"source": "museum", "set_name": "s", "uri": f"https://m.example.org/{path}", "path": path} | fields
    return NewEvent(action=action, hash=digest, **values)  # type: ignore[arg-type]


def record(run: Run, ended_at: dt.datetime, status: int = 0) -> RunRecord:
    return RunRecord(
        number=run.number, name=run.name, kind=run.kind, began_at=run.began_at, ended_at=ended_at, exit_status=status
    )


class StoreBackend(Protocol):
    """Makes stores of one kind. `again` opens the same store once more, as another process or machine would."""

    def fresh(self) -> AggregatorStore: ...

    def again(self) -> AggregatorStore: ...


class StoreContract:
    """Subclass it and give it a fixture `backend`."""

    @pytest.fixture
    def store(self, backend: StoreBackend) -> Iterator[AggregatorStore]:
        store = backend.fresh()
        store.enrol([("museum", "https://m.example.org/"), ("archive", "https://a.example.org/")], T0)
        yield store
        store.close()

    @pytest.fixture
    def other(self, backend: StoreBackend, store: AggregatorStore) -> Iterator[AggregatorStore]:
        """The same store, as another process has it."""
        other = backend.again()
        yield other
        other.close()

    # sources

    def test_sources_are_enrolled_once_and_told_by_name(self, store: AggregatorStore) -> None:
        store.change("museum", life=Life.FOLLOWING, url="https://moved.example.org/")
        store.enrol([("museum", "https://m.example.org/"), ("new", "https://n.example.org/")], at(1))
        assert [one.name for one in store.sources()] == ["archive", "museum", "new"]
        museum = store.source("museum")
        assert museum is not None
        assert (museum.life, museum.url) == (Life.FOLLOWING, "https://moved.example.org/")
        assert store.source("new") == SourceState(name="new", url="https://n.example.org/", life_since=at(1))
        store.enrol([("museum", "https://other.example.org/")], at(2))
        museum = store.source("museum")
        assert museum is not None
        assert (museum.life, museum.url) == (Life.FOLLOWING, "https://other.example.org/")

    def test_fields_of_a_source_are_kept(self, store: AggregatorStore, other: AggregatorStore) -> None:
        fields = {
            "question": Question.DELETIONS, "question_text": "ümlaut", "answer": Answer.REFUSED, "is_paused": True,
            "next_at": at(5.25), "hosts": ("a", "b"), "octets": 2**40, "retirement": Retirement.FREEZE,
        }  # fmt: skip
        changed = store.change("museum", **fields)
        assert other.source("museum") == changed
        assert {name: getattr(changed, name) for name in fields} == fields

    def test_an_unknown_source_is_refused(self, store: AggregatorStore) -> None:
        assert store.source("nobody") is None
        with pytest.raises(UnknownSource):
            store.change("nobody", is_paused=True)
        with pytest.raises(UnknownSource):
            store.lease("nobody", "sync", "w", T0, LEASE)

    def test_changes_of_anybody_are_seen(self, store: AggregatorStore, other: AggregatorStore) -> None:
        seen = [store.changed()]
        assert store.changed() == seen[0]
        for n, changing in enumerate((store, other)):
            run = leased(changing)
            seen.append(store.changed())
            changing.append(run, [event(str(n))], T0)
            seen.append(store.changed())
            changing.change("archive", failures=n + 1)
            seen.append(store.changed())
            changing.end(run, record(run, at(1)), state(changing))
            seen.append(store.changed())
        assert len(set(seen)) == len(seen)

    # runs

    def test_a_source_has_one_run_at_a_time(self, store: AggregatorStore, other: AggregatorStore) -> None:
        run = leased(store)
        assert other.lease("museum", "sync", "other", at(LEASE - 1), LEASE) is None
        assert other.lease("archive", "sync", "other", T0, LEASE) is not None
        assert [one.name for one in other.running()] == ["museum", "archive"]
        store.end(run, record(run, at(1)), state(store))
        again = other.lease("museum", "audit", "other", at(2), LEASE)
        assert again is not None
        assert again.number > run.number
        assert again.kind == "audit"

    def test_a_lease_that_is_over_can_be_taken(self, store: AggregatorStore, other: AggregatorStore) -> None:
        run = leased(store)
        taken = other.lease("museum", "sync", "other", at(LEASE), LEASE)
        assert taken is not None
        assert other.running() == [taken]
        (broken,) = other.runs("museum")
        assert (broken.number, broken.exit_status != 0, broken.ended_at) == (run.number, True, at(LEASE))
        lost(store, run)
        assert other.events(0) == []
        assert other.append(taken, [event()], at(LEASE)) == 1

    def test_leases_of_a_worker_that_is_no_more_are_ended(self, store: AggregatorStore, other: AggregatorStore) -> None:
        mine = leased(store)
        theirs = other.lease("archive", "sync", "other", at(10), LEASE)
        assert theirs is not None
        assert other.release("w", at(20)) == [mine]
        assert other.running() == [theirs]
        lost(store, mine)
        assert other.release("w", at(10 + LEASE)) == [theirs]
        assert other.running() == []
        assert [one.number for one in other.runs()] == [theirs.number, mine.number]
        assert all(one.exit_status and one.reason for one in other.runs())

    def test_an_ended_run_writes_nothing_more(self, store: AggregatorStore) -> None:
        run = leased(store)
        store.end(run, record(run, at(1)), state(store))
        lost(store, run)
        assert len(store.runs()) == 1

    def test_the_end_keeps_record_and_state(self, store: AggregatorStore, other: AggregatorStore) -> None:
        run = leased(store)
        ended = msgspec.structs.replace(
            record(run, at(1), 4), created=3, warnings=(("RS-1", 2, "odd"),), report={"sets": [1]}, reason="why"
        )
        after = msgspec.structs.replace(state(store), life=Life.DEGRADED, next_at=at(100), failures=1)
        store.end(run, ended, after)
        assert other.runs("museum") == [ended]
        assert other.runs() == other.runs(kind="sync") == [ended]
        assert other.runs(kind="audit") == []
        assert other.run(run.number) == ended
        assert other.run(run.number + 1) is None
        assert other.last_runs() == {"museum": msgspec.structs.replace(ended, report=None)}
        assert other.source("museum") == after
        assert other.running() == []

    def test_what_an_operator_changes_during_a_run_is_kept(
        self, store: AggregatorStore, other: AggregatorStore
    ) -> None:
        store.change("museum", answer=Answer.APPROVED, is_wanted_now=True)
        run = leased(store)
        before = state(store)
        assert (before.answer, before.is_wanted_now) == (Answer.APPROVED, False)
        other.change("museum", is_paused=True, is_wanted_now=True)
        after = msgspec.structs.replace(before, answer=None, life=Life.FOLLOWING, url="https://new.example.org/")
        store.end(run, record(run, at(1)), after)
        assert other.source("museum") == msgspec.structs.replace(after, is_paused=True, is_wanted_now=True)

    def test_old_records_go_and_newest_come_first(self, store: AggregatorStore) -> None:
        for n in range(60):
            run = store.lease("museum", "sync", "w", at(n), LEASE)
            assert run is not None
            store.end(run, record(run, at(n)), state(store))
        found = store.runs("museum")
        assert len(found) == 50
        assert [one.began_at for one in found] == [at(n) for n in range(59, 9, -1)]
        assert store.runs("museum", limit=1) == found[:1]
        assert store.runs("archive") == []
        assert store.last_runs() == {"museum": found[0]}

    # events

    def test_events_have_growing_numbers_and_all_fields(self, store: AggregatorStore, other: AggregatorStore) -> None:
        run = leased(store)
        whole = event(
            origin="https://first.example.org/a", length=5, type="text/xml", lastmod=at(0.123456), reason="why",
            links=(Link(rel="via", href="https://first.example.org/a", modified=at(3)),),
        )  # fmt: skip
        odd = event("spürli.xml")
        assert store.append(run, [whole, odd], at(1)) == 2
        assert store.append(run, [], at(2)) == 2
        assert store.append(run, [event("c.xml", "deleted")], at(3)) == 3
        found = other.events(0)
        assert [one.number for one in found] == [1, 2, 3]
        assert [one.at for one in found] == [at(1), at(1), at(3)]
        assert {one.run for one in found} == {run.number}
        first, second = ({name: getattr(one, name) for name in NewEvent.__struct_fields__} for one in found[:2])
        assert NewEvent(**first) == whole
        assert NewEvent(**second) == odd
        assert other.events(1, limit=1) == found[1:2]
        assert other.events(3) == []
        assert other.last_number() == 3

    def test_a_repeated_event_is_recognised(self, store: AggregatorStore) -> None:
        run = leased(store)
        told = [event(lastmod=at(1)), event("b.xml"), event("b.xml", "deleted")]
        store.append(run, told, T0)
        store.append(run, [event(lastmod=None), event("b.xml", "deleted"), event(lastmod=at(1))], T0)
        assert store.last_number() == 3
        news = [
            event(lastmod=at(2)), event(digest="sha-256:01", action="updated"), event("b.xml"),
            event("b.xml", "deleted"), event("b.xml", "deleted", source="archive"), event("b.xml", set_name="t"),
            event("b.xml", "moved"), event("b.xml", "moved", uri="https://m.example.org/c.xml"),
        ]  # fmt: skip
        assert store.append(run, news, T0) == 11
        assert store.append(run, news[1:2], T0) == 11

    def test_an_event_twice_in_one_call_is_one(self, store: AggregatorStore) -> None:
        assert store.append(leased(store), [event(), event()], T0) == 1

    def test_an_append_is_whole_or_nothing(self, store: AggregatorStore) -> None:
        run = leased(store)
        with pytest.raises(Exception, match=r".+"):
            store.append(run, [event(), event("b.xml", uri="\udcff")], T0)
        assert store.events(0) == []
        assert store.append(run, [event()], T0) == store.events(0)[0].number

    def test_old_events_go_once_every_sink_has_them(self, store: AggregatorStore) -> None:
        store.enrol_sinks(["one", "two"], T0)
        run = leased(store)
        store.append(run, [event("a"), event("b")], T0)
        store.append(run, [event("c"), event("d")], at(10))
        assert store.trim(at(5)) == 0
        store.acknowledge("one", 4)
        store.acknowledge("two", 1)
        assert store.trimmed_number() == 0
        assert store.trim(at(5)) == 1
        assert store.trimmed_number() == 1
        assert store.trim(at(11)) == 0
        store.acknowledge("two", 4, [DeadLetter(sink="two", number=4, at=at(12), reason="bad", tries=1)])
        assert store.trim(at(11)) == 3
        assert (store.last_number(), store.trimmed_number(), store.events(0)) == (4, 4, [])
        assert len(store.dead_letters("two")) == 1
        assert store.append(run, [event("e")], at(13)) == 5
        assert store.trim(at(13)) == 0
        assert store.dead_letters("two") == []

    def test_without_sinks_events_go_by_their_age(self, store: AggregatorStore) -> None:
        store.append(leased(store), [event("a")], T0)
        assert store.trim(at(5)) == 1

    # sinks

    def test_a_new_sink_begins_after_the_last_event(self, store: AggregatorStore, other: AggregatorStore) -> None:
        store.append(leased(store), [event("a")], T0)
        store.enrol_sinks(["index"], T0)
        store.enrol_sinks(["index", "hook"], T0)
        found = other.sink("index")
        assert (found.acknowledged, found.waiting, found.oldest_waiting_at) == (1, 0, None)
        with pytest.raises(UnknownSource):
            store.sink("nobody")

    def test_a_sink_advances_and_fails(self, store: AggregatorStore, other: AggregatorStore) -> None:
        store.enrol_sinks(["index"], T0)
        store.append(leased(store), [event(name) for name in "abc"], at(7))
        assert (other.sink("index").waiting, other.sink("index").oldest_waiting_at) == (3, at(7))
        store.refused("index", "no answer", at(8))
        store.refused("index", "still none", at(9))
        failed = other.sink("index")
        assert (failed.failures, failed.failure, failed.next_at) == (2, "still none", at(9))
        letters = [DeadLetter(sink="index", number=n, at=at(9), reason="bad", tries=2) for n in (1, 2)]
        store.acknowledge("index", 2, letters)
        found = other.sink("index")
        assert (found.acknowledged, found.waiting, found.dead_letters) == (2, 1, 2)
        assert (found.failures, found.failure, found.next_at) == (0, "", None)
        assert other.dead_letters("index") == letters[::-1]
        assert other.dead_letters("index", limit=1) == letters[1:]

    def test_a_sink_begins_again(self, store: AggregatorStore) -> None:
        store.enrol_sinks(["index"], T0)
        store.append(leased(store), [event(name) for name in "abc"], T0)
        store.acknowledge("index", 3)
        store.refused("index", "no answer", at(8))
        store.set_position("index", 1)
        found = store.sink("index")
        assert (found.acknowledged, found.waiting, found.failures) == (1, 2, 0)
        store.set_position("index", 99)
        assert store.sink("index").acknowledged == 3
        store.trim(at(10_000_000))
        store.set_position("index", 3)
        assert store.sink("index").waiting == 0, "what was removed is told to nobody"
        with pytest.raises(UnknownSource):
            store.set_position("nobody", 1)

    def test_an_acknowledgement_does_not_undo_a_replay(self, store: AggregatorStore) -> None:
        store.enrol_sinks(["index"], T0)
        store.append(leased(store), [event(name) for name in "abc"], T0)
        store.acknowledge("index", 2, after=0)
        store.set_position("index", 0)
        letter = DeadLetter(sink="index", number=3, at=T0, reason="bad", tries=1)
        store.acknowledge("index", 3, [letter], after=2)
        assert (store.sink("index").acknowledged, store.dead_letters("index")) == (0, [])
        store.acknowledge("index", 3, [letter], after=0)
        assert (store.sink("index").acknowledged, store.dead_letters("index")) == (3, [letter])
        store.append_held("index", [event("c")], T0, dead=[1, 3])
        assert store.dead_letters("index") == []

    def test_a_sink_that_is_not_named_keeps_its_place_for_a_while(self, store: AggregatorStore) -> None:
        assert store.enrol_sinks(["index", "hook"], T0) == []
        run = leased(store)
        store.append(run, [event("a"), event("b")], T0)
        store.acknowledge("index", 1, [DeadLetter(sink="index", number=1, at=at(9), reason="bad", tries=1)])
        store.acknowledge("hook", 2)
        for seconds in (5, 7):
            assert [(one.name, one.acknowledged) for one in store.enrol_sinks(["hook"], at(seconds))] == [("index", 1)]
        assert store.trim(at(5)) == 1, "what it has not taken stays, too"
        assert store.enrol_sinks(["index", "hook"], at(7)) == []
        assert (store.sink("index").waiting, store.sink("index").dead_letters) == (1, 1)
        store.enrol_sinks(["hook"], at(8))
        assert store.trim(at(9)) == 1
        with pytest.raises(UnknownSource):
            store.sink("index")
        store.enrol_sinks(["index", "hook"], at(9))
        assert (store.sink("index").acknowledged, store.sink("index").dead_letters) == (2, 0)

    def test_a_deletion_that_is_over_is_not_told_again(self, store: AggregatorStore) -> None:
        """The resource was created again since, with the same content."""
        store.enrol_sinks(["index"], T0)
        run = leased(store)
        store.append(run, [event("a", "deleted")], T0)
        store.append(run, [event("a", "created")], T0)
        store.append_held("index", [event("a", "deleted")], at(1))
        assert [one.action for one in store.events(2, sink="index")] == ["created"]

    def test_an_answer_to_another_question_is_dropped(self, store: AggregatorStore) -> None:
        """It was given while a run was under way that found something else to ask."""
        run = leased(store)
        asked = store.change("museum", question=Question.DELETIONS, question_text="3 deletions")
        store.change("museum", answer=Answer.APPROVED)
        after = msgspec.structs.replace(asked, question=Question.RESET, question_text="set back")
        store.end(run, record(run, at(1)), after)
        found = store.source("museum")
        assert found is not None
        assert (found.question, found.answer) == (Question.RESET, None)

    def test_what_is_held_is_told_to_one_sink_alone(self, store: AggregatorStore) -> None:
        store.enrol_sinks(["index", "hook"], T0)
        run = leased(store)
        gone, newer = event("gone.xml", "deleted"), event("new.xml", "updated", digest="sha-256:02", length=7)
        store.append(run, [gone, newer], T0)
        held = [event("a.xml"), event("gone.xml", digest="sha-256:01"), event("new.xml"), event("a.xml")]
        assert store.append_held("index", held, at(1)) == 5
        assert store.append_held("index", [event("gone.xml")], at(1)) == 5  # with the hash that it had
        told = store.events(2, sink="index")
        assert [(one.path, one.action, one.hash, one.run) for one in told] == [
            ("a.xml", "created", "sha-256:00", 0),
            ("new.xml", "created", "sha-256:02", 0),
            ("a.xml", "created", "sha-256:00", 0),
        ]
        assert told[1].length == 7
        assert store.events(2, sink="hook") == store.events(2) == []
        assert store.append(run, [event("a.xml")], at(2)) == 6

    # facts

    def test_a_fact_is_kept_until_another_one_is(self, store: AggregatorStore, other: AggregatorStore) -> None:
        assert store.fact("alerts") is None
        store.keep_fact("alerts", "one")
        assert other.fact("alerts") == "one"
        store.keep_fact("alerts", "two")
        assert other.fact("alerts") == "two"
        store.keep_fact("alerts", None)
        assert other.fact("alerts") is None


def leased(store: AggregatorStore) -> Run:
    run = store.lease("museum", "sync", "w", T0, LEASE)
    assert run is not None
    return run


def state(store: AggregatorStore) -> SourceState:
    found = store.source("museum")
    assert found is not None
    return found


def lost(store: AggregatorStore, run: Run) -> None:
    """Nothing can be written for the run, and nothing was."""
    before = (store.last_number(), store.source(run.name), store.runs(), store.running())
    with pytest.raises(LeaseLost):
        store.append(run, [event("lost.xml")], T0)
    with pytest.raises(LeaseLost):
        store.end(run, record(run, at(1)), msgspec.structs.replace(state(store), failures=99))
    assert (store.last_number(), store.source(run.name), store.runs(), store.running()) == before
