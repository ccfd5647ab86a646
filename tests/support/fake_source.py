"""A small source that does exactly as told, also when told to misbehave: the other side of the destination's tests."""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterable
from email.utils import format_datetime as http_date
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from tests.support.scripted_server import Fields, Request, ScriptedServer, answer
from tests.support.waiting import START


def at(seconds: float) -> str:
    """A source time: so many seconds after the start."""
    moment = START + dt.timedelta(seconds=seconds)
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds" if moment.microsecond else "seconds") + "Z"


class Reply:
    """One answer. `script` takes over the raw connection instead."""

    def __init__(
        self,
        body: bytes = b"",
        status: int = 200,
        headers: dict[str, str] | None = None,
        *,
        etag: bool = True,
        modified: dt.datetime | None = None,
        script: Callable[[Handler], object] | None = None,
    ) -> None:
        self.body = body
        self.status = status
        self.headers = headers or {}
        self.script = script
        if status == 200 and etag:
            self.headers.setdefault("ETag", f'"{hashlib.md5(body).hexdigest()}"')
        if modified is not None:
            self.headers.setdefault("Last-Modified", http_date(modified, usegmt=True))


class Handler:
    """One request, for a page that is a function, and the connection, for a script."""

    def __init__(self, request: Request, connection: socket.socket) -> None:
        self.path = request.target
        self.body = request.body
        self.headers = request.headers
        self.connection = connection
        self.send = connection.sendall


Page = Reply | Callable[[Handler], Reply | None]


class Source(ScriptedServer):
    """Pages by path; each a Reply or a function that makes one. Set `pages` freely while it runs."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__({}, host=host)
        self.pages: dict[str, Page] = {}
        self.posts: dict[str, Page] = {}
        """What is answered to a POST."""

        self.date: Callable[[], dt.datetime | None] = lambda: dt.datetime.now(dt.UTC)
        """What is sent as `Date`; None: nothing is."""

        self.log: list[tuple[str, Fields]] = []
        self.lock = threading.Lock()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def respond(self, request: Request, connection: socket.socket) -> bytes | None:
        if request.method not in ("GET", "HEAD", "POST"):
            return answer(b"", "501 Not Implemented")
        with self.lock:
            self.log.append((request.target, request.headers))
            page = (self.posts if request.method == "POST" else self.pages).get(request.target)
        handler = Handler(request, connection)
        reply = (page(handler) if callable(page) else page) or Reply(b"nothing here", 404)
        if reply.script is not None:
            reply.script(handler)
            return None
        tag = reply.headers.get("ETag")
        if tag and request.headers.get("If-None-Match") == tag and reply.status == 200:
            kept = {name: reply.headers[name] for name in reply.headers.keys() & {"ETag", "Cache-Control"}}
            return self._head(304, kept)
        fields = dict(reply.headers)
        if not fields.keys() & {"Content-Length", "Transfer-Encoding"}:
            fields["Content-Length"] = str(len(reply.body))
        return self._head(reply.status, fields) + (b"" if request.method == "HEAD" else reply.body)

    def _head(self, status: int, fields: dict[str, str]) -> bytes:
        date = self.date()
        lines = [f"HTTP/1.1 {status} as told"]
        lines += [] if date is None else [f"Date: {http_date(date, usegmt=True)}"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        return "".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1")

    def reply(self, path: str) -> Reply:
        """The page at `path`, which must be no function."""
        page = self.pages[path]
        assert isinstance(page, Reply)
        return page

    def requests(self, path: str | None = None) -> list[str]:
        """Paths asked for so far (or how often `path` was)."""
        with self.lock:
            return [asked for asked, _ in self.log if path in (None, asked)]

    def forget(self) -> None:
        with self.lock:
            self.log.clear()


# documents, written by hand so that they can be wrong


def md(**attributes: object) -> str:
    pairs = {name.rstrip("_"): value for name, value in attributes.items() if value is not None}
    text = "".join(f" {name}={quoteattr(str(value))}" for name, value in pairs.items())
    return f"<rs:md{text}/>" if pairs else ""


def ln(rel: str, href: str, **attributes: object) -> str:
    text = "".join(f" {name}={quoteattr(str(value))}" for name, value in attributes.items())
    return f"<rs:ln rel={quoteattr(rel)} href={quoteattr(href)}{text}/>"


def url(loc: str | None, lastmod: str | None = None, links: str = "", tag: str = "url", **attributes: object) -> str:
    where = "" if loc is None else f"<loc>{escape(loc)}</loc>"
    when = f"<lastmod>{lastmod}</lastmod>" if lastmod else ""
    return f"<{tag}>{where}{when}{md(**attributes)}{links}</{tag}>"


def document(entries: Iterable[str], root: str = "urlset", links: str = "", **attributes: object) -> bytes:
    head = (
        '<?xml version="1.0" encoding="UTF-8"?>'
        f'<{root} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">'
    )
    return f"{head}{links}{md(**attributes)}{''.join(entries)}</{root}>".encode()


def sha(body: bytes) -> str:
    return f"sha-256:{hashlib.sha256(body).hexdigest()}"


class Site:
    """A well-behaved source over `Source`: one set, from files to documents; tests then spoil what they want."""

    def __init__(self, source: Source, name: str = "set") -> None:
        self.source = source
        self.name = name
        self.files: dict[str, bytes] = {}
        self.changes: list[tuple[float, str, str, bytes | None]] = []
        self.clock = 0.0

    @property
    def root(self) -> str:
        return f"{self.source.base}/{self.name}"

    def uri(self, name: str) -> str:
        return f"{self.root}/resources/{name}"

    def put(self, name: str, body: bytes, *, change: bool = True) -> None:
        kind = "updated" if name in self.files else "created"
        self.files[name] = body
        self.clock += 1
        if change:
            self.changes.append((self.clock, kind, name, body))
        self.source.pages[f"/{self.name}/resources/{name}"] = Reply(body, modified=self.now())

    def drop(self, name: str) -> None:
        del self.files[name]
        self.clock += 1
        self.changes.append((self.clock, "deleted", name, None))
        self.source.pages.pop(f"/{self.name}/resources/{name}", None)

    def now(self) -> dt.datetime:
        return START + dt.timedelta(seconds=self.clock)

    def resource(self, name: str, **more: object) -> str:
        body = self.files[name]
        attributes: dict[str, Any] = {"lastmod": at(0), "hash": sha(body), "length": len(body)} | more
        return url(self.uri(name), **attributes)

    def change(self, when: float, kind: str, name: str, body: bytes | None = None, **more: object) -> str:
        known = {} if body is None or kind == "deleted" else {"hash": sha(body), "length": len(body)}
        attributes: dict[str, Any] = {"change": kind, "datetime": at(when)} | known | more
        return url(self.uri(name), **attributes)

    def up(self) -> str:
        return ln("up", f"{self.root}/capabilitylist.xml")

    def serve(self, path: str, body: bytes, **headers: str) -> None:
        self.source.pages[path] = Reply(body, headers={"Content-Type": "application/xml"} | headers)

    def publish_description(self, *names: str) -> None:
        entries = [
            url(f"{self.source.base}/{name}/capabilitylist.xml", capability="capabilitylist")
            for name in names or (self.name,)
        ]
        self.serve("/.well-known/resourcesync", document(entries, capability="description"))

    def publish_capabilities(self, *capabilities: str, links: str = "") -> None:
        entries = [url(f"{self.root}/{name}.xml", capability=name) for name in capabilities]
        links += ln("up", f"{self.source.base}/.well-known/resourcesync")
        self.serve(f"/{self.name}/capabilitylist.xml", document(entries, links=links, capability="capabilitylist"))

    def publish_list(self, entries: Iterable[str] | None = None, when: float | None = None, **more: object) -> None:
        if entries is None:
            entries = [self.resource(name) for name in self.files]
        attributes: dict[str, Any] = {
            "capability": "resourcelist",
            "at": at(self.clock if when is None else when),
        } | more
        self.serve(f"/{self.name}/resourcelist.xml", document(entries, links=self.up(), **attributes))

    def publish_changes(
        self, since: float = 0.0, until: float | None = None, entries: Iterable[str] | None = None, **more: object
    ) -> None:
        if entries is None:
            entries = [self.change(*change) for change in self.changes if change[0] >= since]
        attributes: dict[str, Any] = {
            "capability": "changelist",
            "from": at(since),
            "until": None if until is None else at(until),
        } | {name.rstrip("_"): value for name, value in more.items()}
        self.serve(f"/{self.name}/changelist.xml", document(entries, links=self.up(), **attributes))

    def publish(self, *, since: float = 0.0) -> Site:
        """Everything, consistent, as of now."""
        self.publish_list()
        self.publish_changes(since)
        self.publish_capabilities("resourcelist", "changelist")
        self.publish_description()
        return self


# misbehaviour


def truncated(body: bytes, missing: int = 10) -> Reply:
    """Declares the whole length and stops early."""

    def script(handler: Handler) -> None:
        handler.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:-missing])

    return Reply(script=script)


def reset() -> Reply:
    """Closes the connection without a word."""

    def script(handler: Handler) -> None:
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    return Reply(script=script)


def endless(chunk: bytes = b"x" * 65536) -> Reply:
    """Sends without end."""

    def script(handler: Handler) -> None:
        handler.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while True:
            handler.send(chunk)

    return Reply(script=script)


def drip(body: bytes, pause: float) -> Reply:
    """Sends one octet at a time."""

    def script(handler: Handler) -> None:
        handler.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        for octet in body:
            handler.send(bytes([octet]))
            time.sleep(pause)

    return Reply(script=script)


def sometimes(times: int, first: Reply, then: Reply) -> Callable[[Handler], Reply]:
    """`first` for so many requests, `then` ever after."""
    left = [times]

    def choose(_handler: Handler) -> Reply:
        left[0] -= 1
        return first if left[0] >= 0 else then

    return choose


def redirect(to: str, status: int = 302) -> Reply:
    return Reply(b"", status, {"Location": to})


def coded(body: bytes, **headers: str) -> Reply:
    """gzip that nobody asked for."""
    return Reply(gzip.compress(body, mtime=0), headers={"Content-Encoding": "gzip"} | headers)
