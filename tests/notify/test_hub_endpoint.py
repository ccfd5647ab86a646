"""What a hub takes at a time from senders whom it does not know, and the folder that it works in."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headwater.http import hub as endpoint
from headwater.http.hub import HubEndpoint
from headwater.notify.hub.hub import Hub
from headwater.notify.hub.policy import AddressPolicy, HubOptions
from headwater.source.hubs_and_tokens import AccessTokens
from headwater.source.leadership import StateLock
from tests.support.failing import failing

HEAD = [(b"content-type", b"application/xml"), (b"link", b'<http://10.0.0.1/t>; rel="self"')]
SCOPE = {"client": ("192.0.2.1", 1), "headers": HEAD}


def part(octets: int, *, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": b"x" * octets, "more_body": more}


def test_payloads_of_strangers_have_room_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_BODY_OCTETS", 10)

    async def statuses() -> list[int]:
        hub = Hub(tmp_path, HubOptions(url="http://hub.example/"), AddressPolicy())
        hub.start()
        takes = HubEndpoint(hub, AccessTokens([]))
        rest: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        rest.put_nowait(part(8, more=True))
        slow = asyncio.ensure_future(takes.answer(SCOPE, rest.get))
        await asyncio.sleep(0.01)
        found = []
        for _ in range(2):
            came: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
            came.put_nowait(part(8, more=False))
            found.append((await takes.answer(SCOPE, came.get)).status)
            rest.put_nowait({"type": "http.disconnect"})
            found.append((await slow).status)
        await hub.close()
        return found

    assert asyncio.run(statuses()) == [503, 400, 403, 400]


def test_a_source_that_works_there_is_not_called_a_hub(tmp_path: Path) -> None:
    lock = StateLock(tmp_path / "state")
    try:
        with failing("HW-HUB-02", match="a hub or a source"):
            Hub(tmp_path / "state", HubOptions(url="http://hub.example/"), AddressPolicy())
    finally:
        lock.release()
