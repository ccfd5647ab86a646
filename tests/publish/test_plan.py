"""Which documents are due: every rule of the plan over all bookkeeping that can be."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.catalog.interface import Page, Segment
from headwater.publish.plan import (
    DUTY,
    Refresh,
    affordable_pages,
    is_over,
    is_period_over,
    is_stale,
    plan_pages,
    with_retired,
)
from headwater.publish.publication_state import (
    OpenList,
    PublicationState,
    decode_publication,
    encode_publication,
)
from headwater.publish.site import SetSettings

NOW = dt.datetime(2026, 5, 5, tzinfo=dt.UTC)
SETTINGS = SetSettings(refresh_changes=10, refresh_seconds=100, renew_seconds=1000)


def ago(seconds: float) -> dt.datetime:
    return NOW - dt.timedelta(seconds=seconds)


def page(number: int, *, count: int = 3, events: int = 0, stale: float = 0.0, at: float | None = 50.0) -> Page:
    moment = None if at is None else ago(at)
    return Page(
        number=number,
        count=count,
        weight=0,
        touched=5 + events,
        rendered=5,
        at=moment,
        completed=moment,
        stale_at=ago(stale) if events else None,
    )


def shown(*numbers: int, **more: object) -> PublicationState:
    return PublicationState(fingerprint="f", listed=numbers, indexed=len(numbers) > 1, **more)  # type: ignore[arg-type]


CASES = [
    ("nothing is stale", [page(0), page(1)], shown(0, 1), Refresh.DUE, ()),
    ("stale for a while only", [page(0, events=1, stale=99), page(1)], shown(0, 1), Refresh.DUE, ()),
    ("stale for long enough", [page(0, events=1, stale=100), page(1)], shown(0, 1), Refresh.DUE, (0,)),
    (
        "stale, and rendered last, by a clock that was set back since",
        [page(0, events=1, stale=-100), page(1)],
        shown(0, 1, page_seconds=0.01, refreshed_at=ago(-100)),
        Refresh.DUE,
        (0,),
    ),
    ("many events", [page(0, events=10, stale=1), page(1)], shown(0, 1), Refresh.DUE, (0,)),
    ("forced", [page(0, events=1, stale=1), page(1)], shown(0, 1), Refresh.STALE, (0,)),
    ("grown old", [page(0, at=1000), page(1)], shown(0, 1), Refresh.DUE, (0,)),
    ("new page alone waits", [page(0), page(1), page(2, at=None, events=3)], shown(0, 1), Refresh.DUE, ()),
    (
        "new page comes with any other",
        [page(0, events=10), page(1), page(2, at=None, events=3)],
        shown(0, 1),
        Refresh.DUE,
        (0, 2),
    ),
    ("a list becomes an index", [page(0), page(1, at=None, events=10)], shown(0), Refresh.DUE, (0, 1)),
    ("a page that was empty is new", [page(0), page(1), page(2, at=10, events=10)], shown(0, 1), Refresh.DUE, (2,)),
    ("what a crash left is rendered", [page(0), page(1)], shown(0, 1, pending=(1,)), Refresh.DUE, (1,)),
    (
        "what a crash left and holds nothing any more holds nothing up",
        [page(0, events=10), page(1), page(2, count=0, at=None, events=20)],
        shown(0, 1, pending=(2, 7)),
        Refresh.DUE,
        (0,),
    ),
    (
        "an empty page that nobody lists",
        [page(0), page(1), page(2, count=0, events=20)],
        shown(0, 1),
        Refresh.STALE,
        (),
    ),
]


@pytest.mark.parametrize(
    ("pages", "publication", "refresh", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_pages_due(
    pages: list[Page], publication: PublicationState, refresh: Refresh, expected: tuple[int, ...]
) -> None:
    assert plan_pages(pages, publication, SETTINGS, NOW, refresh).render == expected


def test_emptied_page_is_dropped_and_the_rest_becomes_a_list() -> None:
    plan = plan_pages([page(0), page(1, count=0, events=3)], shown(0, 1), SETTINGS, NOW, Refresh.STALE)
    assert (plan.render, plan.drop, plan.listed, plan.indexed) == ((0,), (1,), (0,), False)


def test_a_round_takes_all_stale_pages_when_one_is_due() -> None:
    pages = [page(0, events=1, stale=1), page(1), page(2, events=10, stale=1)]
    assert plan_pages(pages, shown(0, 1, 2), SETTINGS, NOW).render == (0, 2)


def test_the_cost_of_a_round_stays_within_its_share() -> None:
    pages = [page(number, events=20, stale=number) for number in range(10)]
    publication = shown(*range(10), page_seconds=0.01, refreshed_at=ago(DUTY.pause_after(10 * 0.0101)))
    assert affordable_pages(publication, NOW) == 10
    assert len(plan_pages(pages, publication, SETTINGS, NOW).render) == 10
    early = shown(*range(10), page_seconds=0.01, refreshed_at=ago(DUTY.pause_after(9 * 0.0101)))
    assert not plan_pages(pages, early, SETTINGS, NOW).rewrite
    assert len(plan_pages(pages, early, SETTINGS, NOW, Refresh.STALE).render) == 10


any_page = st.builds(
    page,
    st.just(0),
    count=st.integers(0, 3),
    events=st.sampled_from([0, 1, 10]),
    stale=st.floats(0, 200),
    at=st.one_of(st.none(), st.floats(0, 2000)),
)


@given(
    made=st.lists(any_page, max_size=6),
    listed=st.sets(st.integers(0, 5)),
    pending=st.sets(st.integers(0, 5)),
    refresh=st.sampled_from(Refresh),
    seconds=st.sampled_from([0.0, 0.1, 100.0]),
)
def test_laws_of_pages(made: list[Page], listed: set[int], pending: set[int], refresh: Refresh, seconds: float) -> None:
    pages = [Page(**{**{f: getattr(p, f) for f in p.__struct_fields__}, "number": n}) for n, p in enumerate(made)]
    known = tuple(sorted(listed & set(range(len(pages)))))
    publication = shown(*known, pending=tuple(pending), page_seconds=seconds, refreshed_at=ago(10))
    plan = plan_pages(pages, publication, SETTINGS, NOW, refresh)
    filled = {one.number for one in pages if one.count}
    assert set(plan.render) <= filled & set(plan.listed), "only pages that have resources are rendered, and are listed"
    assert set(plan.drop) == set(known) - set(plan.listed)
    assert plan.indexed == (len(plan.listed) > 1)
    if plan.rewrite:
        older = set(plan.listed) - set(plan.render) - set(plan.drop)
        assert filled <= set(plan.listed) or older, "a list names every resource whose creation its at may pass"
        assert set(plan.listed) - set(known) <= set(plan.render), "a page is in the list once it has a document"
        if plan.indexed != publication.indexed or not plan.indexed:
            assert set(plan.listed) == set(plan.render), "names and index links change"
    else:
        assert (plan.listed, plan.render, plan.drop) == (known, (), ())
    if refresh in (Refresh.STALE, Refresh.ALL):
        left = [one for one in pages if is_stale(one) and one.number in plan.listed]
        assert {one.number for one in left} <= set(plan.render)
    if refresh is Refresh.ALL:
        assert set(plan.listed) == set(plan.render) == filled


def segment(number: int, first: int, last: int, *, closed: bool) -> Segment:
    return Segment(
        number=number,
        first=first,
        last=last,
        from_=ago(100 - number),
        until=ago(99 - number) if closed else None,
        weight=0,
    )


@pytest.mark.parametrize(
    ("last", "seconds", "closes"), [(0, 10.0, False), (3, 10.0, True), (3, 101.0, False), (3, None, False)]
)
def test_period_of_a_segment(last: int, seconds: float | None, closes: bool) -> None:
    assert is_period_over(segment(0, 1, last, closed=False), seconds, NOW) is closes


def test_grace_of_retired_documents() -> None:
    assert [is_over(ago(seconds), NOW) for seconds in (3599, 3600)] == [False, True]
    assert with_retired(shown(), {"a"}, set(), NOW) == (("a", NOW),)


def test_note_survives_writing_and_what_is_no_note_is_none() -> None:
    publication = PublicationState(
        fingerprint="x", open=OpenList(number=3, name="n", seq=7), at=NOW, retired=(("a", NOW),)
    )
    assert decode_publication(encode_publication(publication)) == publication
    for junk in (b"", b"{", b"\xff\x00", b'{"listed": "x"}', b"[]"):
        assert decode_publication(junk).is_first
