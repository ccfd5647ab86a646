"""`headwater.events`: the journal of a service, for programs that iterate, with or without asyncio."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import headwater
from headwater.aggregator.sqlite_store import FILE, HOME, SqliteStore
from tests.aggregator.store_contract import T0, at, event, leased


def told(state: Path, count: int) -> SqliteStore:
    store = SqliteStore(state / HOME / FILE)
    store.enrol([("museum", "u:m")], T0)
    store.append(leased(store), [event(f"{n}") for n in range(count)], T0)
    return store


def test_events_are_told_after_a_number(tmp_path: Path) -> None:
    with told(tmp_path, 2_500) as store:
        assert [one.number for one in headwater.events(tmp_path)] == list(range(1, 2_501))
        for state in (tmp_path, str(tmp_path)):
            found = list(headwater.events(state, after=2_498))
            assert found == store.events(2_498)
            assert isinstance(found[0], headwater.Event)
            assert list(headwater.changes(state, after=2_498)) == found
        assert list(headwater.events(tmp_path, after=2_500)) == []
        store.append(store.running()[0], [event("new")], T0)
        assert [one.path for one in headwater.events(tmp_path, 2_500)] == ["new"]


def test_events_are_told_asynchronously(tmp_path: Path) -> None:
    async def read() -> list[int]:
        return [one.number async for one in headwater.events(tmp_path, after=3)]

    with told(tmp_path, 1_500):
        assert asyncio.run(read()) == list(range(4, 1_501))


def test_an_iteration_may_wait_for_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.aggregator.events._POLL_SECONDS", 0.01)

    async def read() -> list[str]:
        found = []
        async for one in headwater.events(tmp_path, follow=True):
            found.append(one.path)
            if len(found) == 2:
                threading.Timer(0.1, store.append, (run, [event("later")], T0)).start()
            if one.path == "later":
                break
        return found

    with told(tmp_path, 2) as store:
        (run,) = store.running()
        assert asyncio.run(read()) == ["0", "1", "later"]
        events = iter(headwater.events(tmp_path, 2, follow=True))
        assert next(events).path == "later"
        threading.Timer(0.1, store.append, (run, [event("last")], T0)).start()
        assert next(events).path == "last"


def test_what_is_no_longer_kept_is_not_left_out_in_silence(tmp_path: Path) -> None:
    with told(tmp_path, 3) as store:
        store.trim(at(1))
        store.append(store.running()[0], [event("new")], at(2))
        with pytest.raises(headwater.Undetermined, match="no longer kept"):
            list(headwater.events(tmp_path, after=2))
        assert [one.path for one in headwater.events(tmp_path, after=3)] == ["new"]
        assert [one.path for one in headwater.events(tmp_path)] == ["new"]


def test_a_folder_without_a_service_is_refused(tmp_path: Path) -> None:
    with pytest.raises(headwater.UsageFault, match="no service has run"):
        list(headwater.events(tmp_path))
