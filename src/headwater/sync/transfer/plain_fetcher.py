"""A process that fetches, verifies and places plain resources for a run (`request_processes`).

It imports little: a run waits until it has begun.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

from headwater.files.file_copies import Room
from headwater.sync.copy.file_tree import DestinationUnusable, FileTree, PathOccupied
from headwater.sync.source_times import mtime_ns, strong_last_modified
from headwater.transport.transport import FailureKind, Fetch, Fetched, Transport, TransportOptions

_CONTENT = 200

Request = tuple[str, str, bytes, "int | None", int, str, str]
"""A resource for a process: its temporary name, address, place, `lastmod` and length, and algorithm and hex of its
digest."""

Placement = tuple[int, int, "str | None", "str | None", str, "str | None"]
"""What has its place: size and time (ns) there, its validators, the media type and `Last-Modified` that were sent."""

Answer = tuple["list[Placement | None]", "float | None", str]
"""What came of each resource, None where it is left; None as long as the source answers with content, else for how many
seconds it asks for patience; why the copy does not take files, or nothing."""

LARGEST = 256 << 10
"""Octets of a plain resource: they are held until they are placed."""

_MOST_LEFT = 16
"""A process leaves so many resources for the run; then it leaves all."""

_MAY_BE_LEFT = frozenset({200, 203, 404, 410})
"""Statuses that say something of one resource, and nothing of the source."""

SHARED = (
    "concurrency", "per_host", "shares", "connect_timeout_seconds", "stall_timeout_seconds", "retries", "user_agent",
    "source", "named_hosts",
)  # fmt: skip
"""The options of a transport that its processes have too."""


def fetcher(settings: tuple[bytes, bytes, int, dict[str, Any]]) -> Callable[[list[Request]], Answer]:
    """What a process does: fetch, verify and place resources, as long as its owner lives. `settings`: the folders of
    the copy and of its temporary files, what is kept free, and the options of its transport."""
    root, temp, keep_free, options = settings
    tree = FileTree(Path(os.fsdecode(root)), Path(os.fsdecode(temp)), room=Room(root, keep_free))
    owner = os.getppid()
    transport = Transport(TransportOptions(**options, stopped=lambda: os.getppid() != owner))
    return _Fetcher(tree, transport).fetch


class _Fetcher:
    """Fetches plain resources, until the source answers otherwise than with content."""

    def __init__(self, tree: FileTree, transport: Transport) -> None:
        self._tree = tree
        self._transport = transport
        self._left = 0
        self._wait: float | None = None

    def fetch(self, requests: list[Request]) -> Answer:
        """Fetch, verify and place these."""
        if self._wait is not None:
            return [None] * len(requests), self._wait, ""
        placed: dict[str, Placement] = {}
        fault = ""
        try:
            with closing(self._transport.many(self._fetches(requests))) as answers:
                for fetched in answers:
                    if not self._settle(fetched, placed) or self._transport.keeps_pace(fetched.fetch.uri):
                        self._wait = max(self._wait or 0.0, fetched.retry_after_seconds or 0.0)
                        break  # what was asked for meanwhile is given up
        except DestinationUnusable as cause:
            fault = cause.what
        return [placed.get(request[0]) for request in requests], self._wait, fault

    def _fetches(self, requests: list[Request]) -> Iterator[Fetch]:
        for request in requests:
            if request[5]:  # a digest that can be computed
                most = 2 * LARGEST
                yield Fetch(request[1], algorithms=(request[5],), max_octets=most, key=request, objection=_no_redirect)

    def _settle(self, fetched: Fetched, placed: dict[str, Placement]) -> bool:
        """Place what is listed, and leave what is not; whether the source answers with content."""
        self._transport.check()
        name, _, path, lastmod, length, algorithm, hex_ = cast("Request", fetched.fetch.key)
        headers, modified = fetched.headers, fetched.headers.get("last-modified")
        is_content = fetched.failure is None and fetched.status == _CONTENT
        if is_content and "content-encoding" not in headers and fetched.digests[algorithm] == hex_:
            size, time_ns = self._tree.write(name, fetched.body, mtime_ns(lastmod, modified))
            try:
                if size == length:
                    self._tree.place(name, path)
                    told, kind = strong_last_modified(headers), headers.get("content-type", "")
                    placed[name] = size, time_ns, headers.get("etag"), told, kind, modified
                    return True
            except PathOccupied:
                pass
            self._tree.discard(name)
        self._left += 1
        is_too_long = fetched.failure is not None and fetched.failure.kind is FailureKind.TOO_LARGE
        is_of_resource = is_too_long or (fetched.failure is None and fetched.status in _MAY_BE_LEFT)
        return is_of_resource and self._left <= _MOST_LEFT


def _no_redirect(_uri: str) -> str:
    return "redirects are left to the run"
