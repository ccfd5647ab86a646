"""A bad proxy: it loses requests and answers, delays requests, and passes them on twice, the second time late."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Self

from tests.support.streams import stream_server

_SECONDS = 30.0
_LONGEST_DELAY = 1.5
_FAULTS = ("lost before", "lost after", "delayed", "doubled", "doubled late")

Upstream = tuple[str, int]


class BadProxy:
    """Passes requests on to where `route` says for a path; with `chance`, each fault as often as that. Enter it."""

    def __init__(self, route: Callable[[str], Upstream | None], seed: int) -> None:
        self._route = route
        self._random = random.Random(seed)
        self.chance = 0.0
        self.counts: Counter[str] = Counter()
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(_SECONDS)

    def faults(self) -> int:
        """How many requests went wrong."""
        return self.counts.total() - self.counts["passed"]

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        async with stream_server(self._connected) as port:
            self.url = f"http://127.0.0.1:{port}/"
            self._ready.set()
            await self._ended.wait()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_length(head))
                answer = await self._passed(head, body)
                if answer is not None:
                    writer.write(answer)
                    await writer.drain()

    async def _passed(self, head: bytes, body: bytes) -> bytes | None:
        """Pass a request on, or not; the answer, or none."""
        found = self._route(head.split(b" ", 2)[1].decode())
        if found is None:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        is_bad = self._random.random() < self.chance * len(_FAULTS)
        fault = self._random.choice(_FAULTS) if is_bad else "passed"
        self.counts[fault] += 1
        if fault == "lost before":
            return None
        if fault == "delayed":
            await asyncio.sleep(self._random.random() * _LONGEST_DELAY)
        if fault == "doubled":
            await _exchange(found, head, body)
        answer = await _exchange(found, head, body)
        if fault == "doubled late":
            task = asyncio.ensure_future(self._late(found, head, body))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return None if fault == "lost after" else answer

    async def _late(self, found: Upstream, head: bytes, body: bytes) -> None:
        await asyncio.sleep(self._random.random() * 2 * _LONGEST_DELAY)
        await _exchange(found, head, body)


def _length(head: bytes) -> int:
    fields = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    return next((int(value) for name, _, value in fields if name.strip().lower() == b"content-length"), 0)


async def _exchange(upstream: Upstream, head: bytes, body: bytes) -> bytes | None:
    """One request on a connection of its own; everything that comes, none where nobody answers."""
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection(*upstream)
        try:
            first, _, rest = head.partition(b"\r\n")
            writer.write(first + b"\r\nConnection: close\r\n" + rest + body)
            return await reader.read(-1) or None
        finally:
            writer.close()
    return None
