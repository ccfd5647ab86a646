"""Requests by processes beside the run: two of them fetch, verify and place a great many plain resources.

A plain resource has a digest, is small, and is asked for at its address for the first time, without conditions. A
process says of each whether it was at once what is listed; the run records it. Whatever was not is left to `resources`,
as if nothing had been asked; so is all the rest, as soon as the source answers a request otherwise than with content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

from headwater.sync.copy.file_tree import DestinationUnusable, FileTree, PathOccupied
from headwater.sync.source_times import mtime_ns, strong_last_modified
from headwater.sync.transfer.placing_process import may_use_processes, opened_tree, placing_program
from headwater.transport.fetch import FailureKind, Fetch, Fetched, TransportOptions
from headwater.transport.transport import Transport

if TYPE_CHECKING:
    from headwater.sync.transfer.results_and_retries import PlacedFile, ResultLog
    from headwater.sync.transfer.work_queue import RunContext, Work

PROCESSES = 2
FROM = 3_000
"""For fewer resources, starting processes costs more than they save."""

_BLOCK, _AHEAD = 500, 2
"""Resources that a process is given at a time, and how many times it has so many in hand."""

_LARGEST = 256 << 10
"""Octets of a plain resource: they are held until they are placed."""

_MAY_BE_LEFT = frozenset({200, 203, 404, 410})
"""Statuses that say something of one resource, and nothing of the source."""

_SHARED = (
    "concurrency", "per_host", "shares", "connect_timeout_seconds", "stall_timeout_seconds", "retries", "user_agent",
    "source", "named_hosts",
)  # fmt: skip
"""The options of a transport that its processes have too."""

_Request = tuple[str, str, bytes, "int | None", int, str]
"""A resource for a process: its temporary name, address, place, `lastmod`, length and digest."""

_Placement = tuple[int, int, str, "str | None", "str | None", str, "str | None"]
"""What has its place: size and time (ns) there, its digest and validators, the media type and `Last-Modified` that were
sent."""

_Answer = tuple["list[_Placement | None]", "float | None", str]
"""What came of each resource, None where it is left; None as long as the source answers with content, else for how many
seconds it asks for patience; why the copy does not take files, or nothing."""


def fetch_plain(
    context: RunContext, results: ResultLog, placed: Callable[[Work, PlacedFile, str, str | None], None]
) -> None:
    """Have processes fetch, verify and place what is plain, where there is enough of it at one host; `placed` is called
    for each. Raises DestinationUnusable, and what `Transport.check` does."""
    from headwater.processes.pool import ProcessPool  # here, for the processes import this module as well
    from headwater.sync.transfer.results_and_retries import BATCH, PlacedFile
    from headwater.sync.transfer.verification import strongest_text
    from headwater.sync.transfer.work_queue import COLUMNS, ELIGIBLE

    plain = f"{ELIGIBLE} AND links IS NULL AND tries IS NULL AND hash IS NOT NULL AND length <= {_LARGEST}"
    following = f"SELECT {', '.join(COLUMNS)} FROM temp.work WHERE n > ? AND {plain} ORDER BY n LIMIT {BATCH}"  # noqa: S608
    with context.database.write() as t:
        found = t.one(f"SELECT count(*), min(loc), max(loc) FROM temp.work WHERE {plain}")  # noqa: S608
    count, address, last = found or (0, None, None)
    pays = count >= FROM and context.options.largest >= _LARGEST and may_use_processes(context)
    if not pays or address.split("/", 3)[:3] != last.split("/", 3)[:3]:
        return
    options = context.transport.share(address, PROCESSES)
    if options is None:
        return
    is_answering = True

    def stop() -> bool:
        context.transport.check()
        return False

    def request(work: Work) -> _Request:
        return work.name, work.loc, work.path, work.lastmod, work.length or 0, strongest_text(work.hash) or ""

    def blocks() -> Iterator[tuple[list[Work], list[_Request]]]:
        last = 0
        while is_answering and (works := results.take(following, last)):
            last = works[-1].n
            for some in (works[start : start + _BLOCK] for start in range(0, len(works), _BLOCK)):
                yield some, [request(work) for work in some]

    def none(requests: list[_Request]) -> _Answer:
        return [None] * len(requests), 0.0, ""

    with placing_program(context, fetcher, "requests", {name: getattr(options, name) for name in _SHARED}) as program:
        pool: ProcessPool[list[Work]] = ProcessPool(program, none, processes=PROCESSES, ahead=_AHEAD, stop=stop)
        with closing(pool.answers(blocks())) as answers:
            for works, (outcomes, wait, fault) in answers:
                stop()
                if wait is not None:
                    is_answering = False
                    context.transport.queue.rest(address, wait)
                for work, outcome in zip(works, outcomes, strict=True):
                    if outcome is None:
                        results.left(work)
                    else:
                        *file, kind, sent = outcome
                        placed(work, PlacedFile(work.path, *file), kind, sent)
                if fault:
                    raise DestinationUnusable(fault, where=context.destination)


def fetcher(settings: tuple[tuple[bytes, bytes, int], dict[str, Any]]) -> Callable[[list[_Request]], _Answer]:
    """What a process does: fetch, verify and place resources, as long as its run lives. `settings`: the copy, and the
    options of its transport."""
    tree, is_alone = opened_tree(settings[0])
    return _Fetcher(tree, Transport(TransportOptions(**settings[1], stopped=is_alone))).fetch


class _Fetcher:
    """Fetches plain resources, until the source answers otherwise than with content."""

    def __init__(self, tree: FileTree, transport: Transport) -> None:
        self._tree = tree
        self._transport = transport
        self._wait: float | None = None

    def fetch(self, requests: list[_Request]) -> _Answer:
        """Fetch, verify and place these."""
        if self._wait is not None:
            return [None] * len(requests), self._wait, ""
        placed: dict[str, _Placement] = {}
        fault = ""
        fetches = (
            Fetch(
                request[1], algorithms=(request[5].partition(":")[0],), max_octets=2 * _LARGEST, key=request,
                objection=lambda _uri: "redirects are left to the run",
            )
            for request in requests
            if request[5]  # a digest that can be computed
        )  # fmt: skip
        try:
            with closing(self._transport.many(fetches)) as answers:
                for fetched in answers:
                    if not self._settle(fetched, placed) or self._transport.queue.keeps_pace(fetched.fetch.uri):
                        self._wait = max(self._wait or 0.0, fetched.retry_after_seconds or 0.0)
                        break  # what was asked for meanwhile is given up
        except DestinationUnusable as cause:
            fault = cause.what
        return [placed.get(request[0]) for request in requests], self._wait, fault

    def _settle(self, fetched: Fetched, placed: dict[str, _Placement]) -> bool:
        """Place what is listed, and leave what is not; whether the source answers with content."""
        self._transport.check()
        name, _, path, lastmod, length, digest = cast("_Request", fetched.fetch.key)
        headers, failure = fetched.headers, fetched.failure
        modified = headers.get("last-modified")
        is_content = failure is None and fetched.status == 200 and "content-encoding" not in headers
        if is_content and fetched.digests == dict([digest.split(":")]):
            size, time_ns = self._tree.write(name, fetched.body, mtime_ns(lastmod, modified))
            try:
                if size == length:
                    self._tree.place(name, path)
                    told, kind = strong_last_modified(headers), headers.get("content-type", "")
                    placed[name] = size, time_ns, digest, headers.get("etag"), told, kind, modified
                    return True
            except PathOccupied:
                pass
            self._tree.discard(name)
        return fetched.status in _MAY_BE_LEFT if failure is None else failure.kind is FailureKind.TOO_LARGE
