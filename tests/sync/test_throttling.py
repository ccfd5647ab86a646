"""Politeness as decisions over values: waits, limits and rates (DST-F1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.retry import LONGEST_ASKED_SECONDS, Backoff, retry_after_seconds
from headwater.transport.fetch import FailureKind, Fetch, FetchFailure, TransportOptions
from headwater.transport.scheduler import (
    CLOSING_LIMIT,
    FIRST_LIMIT,
    LONGEST_BACKOFF_SECONDS,
    LONGEST_PACE_SECONDS,
    RETRIED_STATUSES,
    SLOW_SECONDS,
    FetchBatch,
    Host,
    RateLimit,
    RequestScheduler,
    ScheduledFetch,
)

NOW = 1_000_000_000.0  # Sun, 09 Sep 2001 01:46:40 GMT


def test_dst_f1_and_f2_which_answers_are_tried_again() -> None:
    assert {408, 425, 429, 500, 502, 503, 504, 599} <= RETRIED_STATUSES
    assert not {200, 301, 304, 400, 401, 403, 404, 410, 418, 600} & RETRIED_STATUSES


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_waits_are_bounded_and_never_zero(attempt: int, chance: float) -> None:
    assert 0.375 <= Backoff(0.5, LONGEST_BACKOFF_SECONDS).seconds(attempt, chance) <= 37.5


@given(st.integers(1, 1000))
def test_waits_never_get_shorter(attempt: int) -> None:
    pauses = [Backoff(0.5, 30.0).seconds(tries) for tries in (attempt, attempt + 1)]
    assert pauses == sorted(pauses)


@pytest.mark.parametrize(
    ("value", "date", "wait"),
    [
        (None, None, None),
        ("120", None, 120.0),
        (" 0 ", None, 0.0),
        ("Sun, 09 Sep 2001 01:48:40 GMT", None, 120.0),
        ("Sunday, 09-Sep-01 01:48:40 GMT", None, 120.0),
        ("Sun Sep  9 01:48:40 2001", None, 120.0),
        ("Sun, 09 Sep 2001 01:40:00 GMT", None, 0.0),
        ("Sat, 01 Jan 2000 00:01:00 GMT", "Sat, 01 Jan 2000 00:00:00 GMT", 60.0),
        ("Sun, 09 Sep 2001 01:48:40 GMT", "nonsense", 120.0),
        ("-1", None, None),
        ("1.5", None, None),
        ("soon", None, None),
        ("", None, None),
        ("\u0663", None, None),
        ("99999999999999999999", None, LONGEST_ASKED_SECONDS),
        ("9" * 4_000, None, LONGEST_ASKED_SECONDS),
        ("Fri, 31 Dec 9999 23:59:60 GMT", None, LONGEST_ASKED_SECONDS),
        ("Mon, 99 Sep 99999 99:99:99 GMT", None, None),
    ],
)
def test_retry_after(value: str | None, date: str | None, wait: float | None) -> None:
    assert retry_after_seconds(value, date, NOW) == wait


@given(st.text(), st.none() | st.text())
def test_no_retry_after_raises(value: str, date: str | None) -> None:
    wait = retry_after_seconds(value, date, NOW)
    assert wait is None or wait >= 0


def test_a_quick_host_is_asked_wider_with_each_answer() -> None:
    limit = Host(64)
    assert limit.limit == FIRST_LIMIT
    for _ in range(100):
        limit.answered(0.001)
    assert limit.limit == 64


def test_a_host_that_queues_is_not_asked_more() -> None:
    limit = Host(64)
    limit.answered(0.1)
    for _ in range(100):
        limit.answered(2.0)
    assert limit.limit < FIRST_LIMIT + 10


def test_one_overload_halves_once_and_growth_is_slow_from_then() -> None:
    limit = Host(64)
    for _ in range(3):
        limit.overloaded(sent_at=1.0, now=2.0)
    assert limit.limit == FIRST_LIMIT // 2
    for _ in range(FIRST_LIMIT // 2):
        limit.answered(0.001)
    assert FIRST_LIMIT // 2 < limit.limit <= FIRST_LIMIT // 2 + 1


def test_a_host_that_is_slow_by_itself_is_not_asked_more_than_at_first() -> None:
    """A steady 0.4 s for an answer is no reason to ask for 64 at a time."""
    limit = Host(64)
    for _ in range(200):
        limit.answered(SLOW_SECONDS + 0.15)
    assert limit.limit == FIRST_LIMIT


@pytest.mark.parametrize("seconds", [0.02, 0.1])
def test_a_latency_is_hidden_within_a_few_rounds(seconds: float) -> None:
    """Each round doubles what is in flight, as long as answers stay quick."""
    limit, rounds = Host(64), 0
    while limit.limit < 64:
        rounds += 1
        for _ in range(limit.allowed):
            limit.answered(seconds)
    assert rounds <= 3


def test_a_host_that_closes_connections_is_asked_few_at_a_time() -> None:
    limit = Host(64)
    for _ in range(100):
        limit.answered(0.001)
    limit.is_closing = True
    assert limit.allowed == CLOSING_LIMIT
    limit.is_closing = False
    assert limit.allowed == 64
    assert Host(2, is_closing=True).allowed == 2


def test_overload_that_comes_again_lowers_the_rate_and_answers_raise_it() -> None:
    """DST-F1: a host that bears so many requests a second is not asked too much in each round."""
    host = Host(64)
    host.overloaded(100.05, 100.1)
    assert host.pause == 0
    for sent_at in (100.09, 101.0, 101.05, 102.0):  # every other was sent before the last cut
        host.overloaded(sent_at, sent_at + 0.1)
    assert host.pause == 0.1
    for _ in range(70):
        host.answered(0.01)
    assert 0.045 < host.pause < 0.055
    host.least_pause = 0.5
    host.answered(0.01)
    assert host.pause == 0.5
    for sent_at in range(200, 220):
        host.overloaded(sent_at, sent_at + 0.1)
    assert host.pause == LONGEST_PACE_SECONDS


@pytest.mark.parametrize("status", [429, 503])
def test_a_wish_for_patience_uses_up_no_try(status: int) -> None:
    """DST-F1: as often as it takes, but for five times the longest wait in all."""
    queue = RequestScheduler(TransportOptions(retries=1, longest_wait_seconds=60, chance=lambda: 0.5), 64)
    job = ScheduledFetch(Fetch("http://a/1"), FetchBatch())
    queue.admit(job)
    now, asked = 0.0, 0
    while True:
        now = max(now + 1, queue.next_start(now) or 0.0)
        assert queue.next(now, room=True) is job
        queue.landed(job, status, None, now)
        asked += 1
        if not queue.repeat(job, status, None, 30.0, now):
            break
    assert asked == 12, "ten by its wish, and two as without one"


@pytest.mark.parametrize("asked", [0.0, 1.0])
def test_a_host_that_only_refuses_is_not_asked_for_each_resource(asked: float) -> None:
    """DST-F1: nothing is asked of it any more for a while, and then once."""
    queue = RequestScheduler(TransportOptions(stall_timeout_seconds=30, chance=lambda: 0.5), 64)
    for n in range(10_000):
        queue.admit(ScheduledFetch(Fetch(f"http://a/{n}"), FetchBatch()))
    now, requests, left = 0.0, 0, 10_000

    def refuse() -> None:
        nonlocal requests, left
        if (job := queue.next(now, room=True)) is not None:
            requests += 1
            queue.landed(job, 503, None, now)
            left -= not queue.repeat(job, 503, None, asked, now)

    while left:
        now = max(now + 0.01, queue.next_start(now) or 0.0)
        left -= len(queue.hopeless(now))
        refuse()
    assert requests in (200, 201)
    assert now <= 300
    for wait, more in ((50, 0), (61, 1), (1, 0)):
        now, before = now + wait, requests
        job = ScheduledFetch(Fetch("http://a/later"), FetchBatch())
        queue.admit(job)
        assert queue.hopeless(now) == [job] * (not more)
        refuse()
        assert requests - before == more
    now += 61
    queue.admit(ScheduledFetch(Fetch("http://a/well"), FetchBatch()))
    well = queue.next(now, room=True)
    assert well is not None
    queue.landed(well, 200, None, now)
    queue.admit(job)
    assert queue.hopeless(now) == []


def test_one_resource_that_asks_for_patience_alone_costs_the_others_little() -> None:
    """DST-F1: beside others that are answered it is its own wish, which uses up tries from the fourth time on."""
    queue = RequestScheduler(TransportOptions(retries=2, longest_wait_seconds=60, chance=lambda: 0.5), 64)
    refused = ScheduledFetch(Fetch("http://a/refused"), FetchBatch())
    queue.admit(refused)
    now, asked, ended = 0.0, 0, False
    while not ended:
        other = ScheduledFetch(Fetch("http://a/other"), FetchBatch())
        queue.admit(other)
        now = max(now + 1, queue.next_start(now) or 0.0)
        while (job := queue.next(now, room=True)) is not None:
            queue.landed(job, 503 if job is refused else 200, None, now)
            if job is refused:
                asked += 1
                ended = not queue.repeat(job, 503, None, 5.0, now)
    assert asked == 6, "three times by the wish of its host, and three tries as without one"


def test_the_pace_of_a_host_is_kept() -> None:
    queue, jobs = waiting(3)
    queue.keep_pace("http://a/robots.txt", 0.5)
    assert [queue.next(now, room=True) for now in (10.0, 10.4, 10.5)] == [jobs[0], None, jobs[1]]
    assert queue.next_start(10.6) == 11.0


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 100)), max_size=300), st.integers(1, 256))
def test_a_limit_stays_between_one_and_its_most(events: list[tuple[bool, float]], most: int) -> None:
    limit = Host(most)
    for number, (answered, seconds) in enumerate(events):
        if answered:
            limit.answered(seconds)
        else:
            limit.overloaded(float(number), number + 0.5)
        assert 1 <= limit.limit <= most


@given(st.floats(0.1, 1000), st.lists(st.floats(0, 5), min_size=1, max_size=100))
def test_a_limit_never_gives_more_than_its_rate(rate: float, gaps: list[float]) -> None:
    limit = RateLimit(rate)
    now, taken = 0.0, 0
    for gap in gaps:
        now += gap
        taken += limit.take(now)
    assert taken <= now * rate + max(1.0, rate / 10) + 1


def test_a_limit_says_how_long_to_wait() -> None:
    limit = RateLimit(4.0)
    assert limit.take(10.0)
    assert not limit.take(10.0)
    assert limit.ready_at == 10.25
    assert limit.take(10.25)


def lose(queue: RequestScheduler, many: int, sent_at: float, lost_at: float) -> None:
    for _ in range(many):
        job = queue.next(sent_at, room=True)
        assert job is not None
        queue.landed(job, 0, FetchFailure(FailureKind.STALLED, "", passing=True), lost_at)


def waiting(many: int, *, apart: bool = False) -> tuple[RequestScheduler, list[ScheduledFetch]]:
    queue = RequestScheduler(TransportOptions(stall_timeout_seconds=30), 64)
    jobs = [ScheduledFetch(Fetch(f"http://a/{n}"), FetchBatch(), apart=apart) for n in range(many)]
    assert [queue.admit(job) for job in jobs] == [None] * many
    return queue, jobs


def test_a_host_that_hangs_is_not_waited_for_once_for_each_resource() -> None:
    """DST-F1: after 16 losses in a row over two time-outs the rest is not asked for, and soon it is tried again."""
    queue, jobs = waiting(100)
    lose(queue, 16, 0.0, 30.0)
    assert queue.hopeless(30.0) == []
    lose(queue, 1, 30.0, 60.0)
    assert queue.hopeless(60.0) == jobs[17:]
    assert not queue.repeat(jobs[16], 0, FetchFailure(FailureKind.STALLED, "", passing=True), None, 60.0)
    assert queue.next(60.0, room=True) is None
    queue.admit(jobs[20])
    assert queue.hopeless(119.0) == [jobs[20]]
    queue.admit(jobs[21])
    assert queue.hopeless(120.0) == []
    assert queue.next(120.0, room=True) is jobs[21]


def test_a_host_that_answers_anything_is_not_silent() -> None:
    """DST-F1: one answer, be it a refusal, and everything is asked for."""
    queue, _ = waiting(100)
    lose(queue, 15, 0.0, 30.0)
    job = queue.next(30.0, room=True)
    assert job is not None
    queue.landed(job, 503, None, 40.0)
    lose(queue, 1, 40.0, 70.0)
    assert queue.hopeless(70.0) == []


def test_a_document_is_asked_for_even_of_a_silent_host() -> None:
    """DST-F1: that is how a host is found awake."""
    queue, jobs = waiting(40)
    lose(queue, 16, 0.0, 30.0)
    lose(queue, 1, 30.0, 60.0)
    document = ScheduledFetch(Fetch("http://a/list"), FetchBatch(), apart=True)
    queue.admit(document)
    assert queue.hopeless(60.0) == jobs[17:]
    assert queue.next(60.0, room=False) is document
    queue.landed(document, 200, None, 61.0)
    queue.admit(jobs[30])
    assert queue.hopeless(61.0) == []


def test_a_host_that_hangs_is_asked_once_for_each_further_document() -> None:
    """DST-F1: the first document has all its tries; the others would each wait as long, one after the other."""
    queue = RequestScheduler(TransportOptions(retries=2, stall_timeout_seconds=30), 64)
    lost, now, tries = FetchFailure(FailureKind.STALLED, "", passing=True), 0.0, []
    for name in ("a", "b", "c"):
        job = ScheduledFetch(Fetch(f"http://a/{name}"), FetchBatch(), apart=True)
        queue.admit(job)
        for count in range(1, 9):
            now = max(now + 60, queue.next_start(now) or 0.0)
            assert queue.next(now, room=False) is job
            queue.landed(job, 0, lost, now)
            if not queue.repeat(job, 0, lost, None, now):
                tries.append(count)
                break
    assert tries == [3, 1, 1]
