"""A fleet of small sources in one process: each on a loopback address of its own, each with a truth that changes.

`fleet_kinds` has the kinds: sound ones, those with the defects that aggregators meet, and hostile ones.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import random
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from email.utils import format_datetime as http_date
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from tests.support.fake_source import document, ln, sha, url
from tests.support.waiting import DEADLINE

RIGHT, SAYS_WHY, UNKNOWABLE = "right", "says why", "cannot be known"
"""What is expected of a copy: it equals the truth; or the run or the state says what is wrong; or nobody can know."""

XML = "application/xml"


class Asked(NamedTuple):
    """One request: its target and its header fields, by names in lower case."""

    target: str
    headers: dict[str, str]


class Sent(NamedTuple):
    """What is answered; with `script`, that writes to the connection itself, which is closed afterwards."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})
    script: Callable[[asyncio.StreamWriter], Awaitable[None]] | None = None


class Changed(NamedTuple):
    """One change of a source."""

    at: dt.datetime
    kind: str
    name: str
    body: bytes | None


def stamp(moment: dt.datetime) -> str:
    """A moment as documents say it."""
    return moment.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def record(name: str, number: int) -> bytes:
    """The content of a resource."""
    return f"<record><id>{name}</id><edition>{number}</edition></record>".encode() + b"\n" * (number % 40)


class FleetSource:
    """A sound source: one set, a Resource List and a Change List. Kinds override what they do otherwise."""

    expects: ClassVar[str] = RIGHT
    first: ClassVar[str] = "/.well-known/resourcesync"  # the address that a person would give
    options: ClassVar[dict[str, object]] = {}  # keys of `[[source]]` that it needs
    hash_of: ClassVar[Callable[[bytes], str] | None] = sha
    has_length: ClassVar[bool] = True
    root: ClassVar[str] = "urlset"

    def __init__(self, name: str, host: str, port: int, count: int, seed: int = 0) -> None:
        self.name, self.host, self.base = name, host, f"http://{host}:{port}"
        self.random = random.Random(f"{name}{seed}")
        self.began = self.now = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
        self.count = 0
        self.files: dict[str, bytes] = {}
        self.lastmods: dict[str, dt.datetime] = {}
        self.changes: list[Changed] = []
        self.requests = 0
        self.elsewhere = ""  # the address of the same resources on another host
        for _ in range(count):
            self._put(self._new_name(), self.began)

    # the truth

    @property
    def address(self) -> str:
        """The address that is given to a destination."""
        return self.base + self.first

    def uri(self, name: str) -> str:
        """The URI of a resource."""
        return f"{self.base}/files/{name}"

    def truth(self) -> dict[str, str]:
        """The SHA-256 of each resource, by URI, as it should be copied."""
        return {self.uri(name): hashlib.sha256(body).hexdigest() for name, body in self.files.items()}

    def change(self, updates: int = 2, deletes: int = 1, creates: int = 1) -> None:
        """One round of changes, at moments of their own."""
        for _ in range(creates):
            self._add("created", self._new_name())
        for name in self.random.sample(sorted(self.files), min(updates, len(self.files))):
            self._add("updated", name)
        for name in self.random.sample(sorted(self.files), min(deletes, max(len(self.files) - 1, 0))):
            self._add("deleted", name)

    def _new_name(self) -> str:
        self.count += 1
        return f"{self.count:04}.xml"

    def _add(self, kind: str, name: str) -> None:
        self.now = max(dt.datetime.now(dt.UTC), self.now + dt.timedelta(microseconds=1))
        if kind == "deleted":
            del self.files[name], self.lastmods[name]
        else:
            self._put(name, self.now)
        self.changes.append(Changed(self.now, kind, name, self.files.get(name)))

    def _put(self, name: str, moment: dt.datetime) -> None:
        self.files[name] = record(name, self.random.randrange(1 << 30))
        self.lastmods[name] = moment

    # what is said of it

    def stated(self, body: bytes) -> dict[str, Any]:
        """Hash and length as they are listed."""
        said: dict[str, Any] = {} if self.hash_of is None else {"hash": type(self).hash_of(body)}  # type: ignore[misc]
        return said | ({"length": len(body)} if self.has_length else {})

    def lastmod(self, moment: dt.datetime) -> str | None:
        """A `lastmod` as it is listed."""
        return stamp(moment)

    def entry(self, name: str) -> str:
        """A resource in the Resource List."""
        return url(self.uri(name), self.lastmod(self.lastmods[name]), type=XML, **self.stated(self.files[name]))

    def changed(self, one: Changed) -> str:
        """A change in the Change List."""
        said = {} if one.body is None else self.stated(one.body)
        lastmod = None if one.body is None else self.lastmod(one.at)
        return url(self.uri(one.name), lastmod, change=one.kind, datetime=stamp(one.at), type=XML, **said)

    def up(self) -> str:
        """The link to the Capability List."""
        return ln("up", f"{self.base}/capabilitylist.xml")

    def capabilities(self) -> bytes:
        """The Capability List."""
        lists = {"resourcelist": "/resourcelist.xml", "changelist": "/changelist.xml"}
        entries = [url(self.base + path, capability=name) for name, path in lists.items()]
        return document(entries, links=ln("up", f"{self.base}/.well-known/resourcesync"), capability="capabilitylist")

    def resource_list(self) -> bytes:
        """The Resource List."""
        return document(map(self.entry, self.files), links=self.up(), capability="resourcelist", at=stamp(self.now))

    def change_list(self) -> bytes:
        """The Change List."""
        entries = map(self.changed, self.changes)
        return document(entries, links=self.up(), capability="changelist", from_=stamp(self.began))

    def page(self, target: str) -> bytes | None:
        """A document."""
        if target == "/.well-known/resourcesync":
            return document(
                [url(f"{self.base}/capabilitylist.xml", capability="capabilitylist")], capability="description"
            )
        if target == "/capabilitylist.xml":
            return self.capabilities()
        if target == "/resourcelist.xml":
            return self.resource_list()
        return self.change_list() if target == "/changelist.xml" else None

    def resource(self, asked: Asked, name: str) -> Sent:
        """The answer to a request for a resource."""
        if (body := self.files.get(name)) is None:
            return Sent(b"gone", 404)
        return Sent(body, headers={"Content-Type": XML, "Last-Modified": http_date(self.lastmods[name], usegmt=True)})

    def answer(self, asked: Asked) -> Sent:
        """The answer to a request."""
        self.requests += 1
        if asked.target.startswith("/files/"):
            return self.resource(asked, asked.target.removeprefix("/files/"))
        if (body := self.page(asked.target)) is None:
            return Sent(b"nothing here", 404)
        return Sent(body, headers={"Content-Type": XML, "ETag": f'"{hashlib.md5(body).hexdigest()}"'})

    async def respond(self, asked: Asked) -> Sent:
        """The answer, in its time."""
        return self.answer(asked)


class Fleet:
    """Serves sources by one thread; each host has a socket of its own, on one port."""

    def __init__(self, kinds: Sequence[tuple[str, type[FleetSource]]], count: int = 20, net: str = "127.77") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fleet", daemon=True)
        self._thread.start()
        hosts = [_host(net, number) for number in range(len(kinds))]
        self._elsewhere = f"{net}.255.254"  # /NAME/files/… of every source, as another host
        self._server, self.port = self._call(self._listen([*hosts, self._elsewhere]))
        made = [kind(name, _host(net, n), self.port, count) for n, (name, kind) in enumerate(kinds)]
        self.sources = {one.name: one for one in made}
        self._by_host = {one.host: one for one in made}
        for one in made:
            one.elsewhere = f"http://{self._elsewhere}:{self.port}/{one.name}"

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE)

    async def _listen(self, hosts: Iterable[str]) -> tuple[list[asyncio.Server], int]:
        servers, port = [], 0
        for host in hosts:
            servers.append(await asyncio.start_server(self._serve, host, port, backlog=64))
            port = servers[0].sockets[0].getsockname()[1]
        return servers, port

    def change(self, names: Iterable[str] | None = None, **counts: int) -> None:
        """One round of changes of these sources, or of all; between two requests."""

        async def work() -> None:
            for name in self.sources if names is None else names:
                self.sources[name].change(**counts)
                await asyncio.sleep(0)

        self._call(work())

    def close(self) -> None:
        """Stop serving."""

        async def work() -> None:
            for one in self._server:
                one.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self._call(work())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE)
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host = writer.get_extra_info("sockname")[0]
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            while True:
                head = await reader.readexactly(1)
                if head == b"\x16":  # somebody begins with TLS
                    break
                head += await reader.readuntil(b"\r\n\r\n")
                line, *fields = head.decode("latin-1").split("\r\n")
                pairs = (one.partition(":") for one in fields if one)
                asked = Asked(line.split(" ")[1], {name.lower(): text.strip() for name, _, text in pairs})
                if host == self._elsewhere:
                    name, _, rest = asked.target[1:].partition("/")
                    sent = self.sources[name].resource(asked, rest.removeprefix("files/"))
                else:
                    sent = await self._by_host[host].respond(asked)
                if sent.script is not None:
                    await sent.script(writer)
                    break
                writer.write(_written(asked, sent, is_head=line.startswith("HEAD")))
                await writer.drain()
        with suppress(OSError, RuntimeError):
            writer.close()


def _host(net: str, number: int) -> str:
    return f"{net}.{number // 250}.{number % 250 + 1}"


def _written(asked: Asked, sent: Sent, *, is_head: bool) -> bytes:
    status, body, fields = sent.status, sent.body, dict(sent.headers)
    if status == 200 and fields.get("ETag", "") == asked.headers.get("if-none-match", "none"):
        status, body = 304, b""
    fields |= {"Content-Length": str(len(body)), "Date": http_date(dt.datetime.now(dt.UTC), usegmt=True)}
    lines = "".join(f"{name}: {text}\r\n" for name, text in fields.items() if status != 304 or name != "Content-Length")
    return f"HTTP/1.1 {status} as told\r\n{lines}\r\n".encode("latin-1") + (b"" if is_head else body)


@contextmanager
def fleet(kinds: Sequence[tuple[str, type[FleetSource]]], count: int = 20, net: str = "127.77") -> Iterator[Fleet]:
    """A fleet at work."""
    running = Fleet(kinds, count, net)
    try:
        yield running
    finally:
        running.close()
