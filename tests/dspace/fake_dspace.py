"""A DSpace repository on a real socket, made from the public REST contract; it moves, and misbehaves, as a test says.

It answers what an anonymous reader is answered; to a token of the administrator it lists all items of the archive.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.scripted_server import Request, ScriptedServer, answer

ROOT = "/server/api"
USER, PASSWORD = "admin@repository.example", "pass+word&more"
ELSEWHERE = "http://elsewhere.example"


def new_id() -> str:
    return str(uuid.uuid4())


def now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")


@dataclass(eq=False)
class Bitstream:
    content: bytes
    name: str = "paper.pdf"
    uuid: str = field(default_factory=new_id)
    mime: str = "application/pdf"
    is_restricted: bool = False
    has_checksum: bool = True
    status: int = 0
    """A status of its content in place of what is right."""
    sent: bytes | None = None
    """What is sent in place of its content."""

    @property
    def md5(self) -> str:
        return hashlib.md5(self.content, usedforsecurity=False).hexdigest()


@dataclass(eq=False)
class Item:
    collection: str
    title: str = "A title"
    uuid: str = field(default_factory=new_id)
    bundles: dict[str, list[Bitstream]] = field(default_factory=dict)
    mapped: tuple[str, ...] = ()
    is_withdrawn: bool = False
    is_private: bool = False
    is_restricted: bool = False
    modified: str = field(default_factory=now)
    accessioned: int = 0

    @property
    def is_public(self) -> bool:
        return not (self.is_withdrawn or self.is_private or self.is_restricted)

    def metadata(self) -> dict[str, list[dict[str, Any]]]:
        if self.is_withdrawn:
            return {}
        value = {"value": self.title, "language": "en", "authority": None, "confidence": -1, "place": 0}
        return {"dc.title": [value], "dc.type": [{**value, "value": "Article"}]}


class FakeDSpace(ScriptedServer):
    """The repository; `url` is the root of its REST API."""

    def __init__(self) -> None:
        self.collections: dict[str, str] = {}
        self.items: dict[str, Item] = {}
        self.lock = threading.RLock()
        self.before: Callable[[Request], None] = lambda _request: None
        """Called before a request is answered: what it changes is seen by the answer."""
        self.instead: Callable[[Request], bytes | None] = lambda _request: None
        """What is answered in place of the right answer."""
        self.most = 100
        self.total: Callable[[int], int] = lambda total: total
        self.unindexed: set[str] = set()
        """Items that the search index does not have."""
        self.knows_modified = True
        self.is_newest_first = True
        """The order of the search index."""
        self.is_new = False
        """Whether it gives its CSRF token where DSpace 8 does."""
        self.views = 0
        self.tokens: dict[str, int] = {}
        """How many requests each token is good for still."""
        self._count = 0
        super().__init__({})

    @property
    def url(self) -> str:
        return f"{self.base}{ROOT}"

    # what curators do

    def collection(self, name: str = "A collection") -> str:
        one = new_id()
        self.collections[one] = name
        return one

    def add(self, collection: str, *files: Bitstream, **more: Any) -> Item:
        """A new item with these files in its bundle ORIGINAL."""
        with self.lock:
            self._count += 1
            item = Item(collection, bundles={"ORIGINAL": list(files)}, accessioned=self._count, **more)
            self.items[item.uuid] = item
        return item

    def edit(self, item: Item, title: str) -> None:
        item.title, item.modified = title, now()

    def delete(self, item: Item) -> None:
        del self.items[item.uuid]

    def truth(self, *bundles: str) -> dict[str, Any]:
        """What an anonymous reader can see: items by their metadata, files by their octets."""
        found: dict[str, Any] = {}
        for item in self.items.values():
            if item.is_public:
                told = self._object(item)
                found[item.uuid] = {name: told[name] for name in ("uuid", "name", "handle", "entityType", "metadata")}
                for bundle in bundles or ("ORIGINAL",):
                    found |= {one.uuid: one.content for one in item.bundles.get(bundle, ()) if not one.is_restricted}
        return found

    # answers

    def respond(self, request: Request, connection: socket.socket) -> bytes | None:
        with self.lock:
            self.before(request)
            sent = self.instead(request) or self._right(request)
        head, _, _body = sent.partition(b"\r\n\r\n")
        return head + b"\r\n\r\n" if request.method == "HEAD" else sent

    def _right(self, request: Request) -> bytes:
        parts = urlsplit(request.target)
        path = parts.path.removeprefix(ROOT)
        query = parse_qs(parts.query)
        if path == ("/security/csrf" if self.is_new else "/authn/status"):
            cookie = "DSPACE-XSRF-COOKIE=t0ken; Path=/server; HttpOnly"
            return self._json({"okay": True}, DSPACE_XSRF_TOKEN="t0ken", Set_Cookie=cookie)
        if path == "/authn/login":
            return self._login(request)
        if path == "/core/items":
            token = str(request.headers.get("authorization", ""))
            if self.tokens.get(token, 0) <= 0:
                return self._status(401)
            self.tokens[token] -= 1
            listed = [one for one in self.items.values() if not one.is_withdrawn]
            return self._list("items", [self._object(one) for one in sorted(listed, key=lambda one: one.uuid)], query)
        if path == "/core/collections":
            return self._list(
                "collections", [{"uuid": one, "name": name} for one, name in self.collections.items()], query
            )
        if path == "/discover/search/objects":
            return self._search(query)
        if found := re.fullmatch(r"/core/items/([^/]+)(/bundles)?", path):
            return self._item(found[1], query, is_list=bool(found[2]))
        if found := re.fullmatch(r"/core/bundles/([^/]+)/bitstreams", path):
            return self._bundle(found[1], query)
        if found := re.fullmatch(r"/core/bitstreams/([^/]+)/content", path):
            return self._content(found[1], request)
        return self._status(404)

    def _login(self, request: Request) -> bytes:
        doubled = request.headers.get("x-xsrf-token") == "t0ken" and "DSPACE-XSRF-COOKIE=t0ken" in str(
            request.headers.get("cookie")
        )
        said = parse_qs(request.body.decode())
        if request.method != "POST" or not doubled:
            return self._status(403)
        if said != {"user": [USER], "password": [PASSWORD]}:
            return self._status(401)
        token = f"Bearer {new_id()}"
        self.tokens[token] = 1_000
        return self._json({}, Authorization=token)

    def _search(self, query: dict[str, list[str]]) -> bytes:
        found = [one for one in self.items.values() if one.is_public and one.uuid not in self.unindexed]
        if scope := query.get("scope"):
            found = [one for one in found if scope[0] in (one.collection, *one.mapped)]
        if said := query.get("query"):
            if not self.knows_modified:
                return self._status(400)
            since = re.fullmatch(r"lastModified:\[(\S+)Z TO \*\]", said[0])
            assert since, said
            found = [one for one in found if one.modified >= since[1]]
        found.sort(key=lambda one: one.accessioned, reverse=self.is_newest_first)
        objects = [{"hitHighlights": {}, "_embedded": {"indexableObject": self._object(one)}} for one in found]
        listed = json.loads(self._list("objects", objects, query).partition(b"\r\n\r\n")[2])
        return self._json({"type": "discover", "_embedded": {"searchResult": listed, "facets": [{"name": "author"}]}})

    def _item(self, name: str, query: dict[str, list[str]], *, is_list: bool) -> bytes:
        item = self.items.get(name)
        if item is None:
            return self._status(404)
        if item.is_restricted:
            return self._status(401)
        bundles = [
            {
                "uuid": _bundle_id(item, one),
                "name": one,
                "type": "bundle",
                "_embedded": {"bitstreams": self._embed(files)},
            }
            for one, files in item.bundles.items()
        ]
        if is_list:
            return self._list("bundles", bundles, query)
        owner = {"uuid": item.collection, "name": self.collections.get(item.collection)}
        embedded = {"bundles": self._cut("bundles", bundles), "owningCollection": owner}
        return self._json({**self._object(item), "_embedded": embedded})

    def _bundle(self, name: str, query: dict[str, list[str]]) -> bytes:
        for item in self.items.values():
            for bundle, files in item.bundles.items():
                if _bundle_id(item, bundle) == name and not item.is_restricted:
                    return self._list("bitstreams", [self._file(one) for one in files], query)
        return self._status(404)

    def _content(self, name: str, request: Request) -> bytes:
        owners = [(item, one) for item in self.items.values() for files in item.bundles.values() for one in files]
        item, file = next(((item, one) for item, one in owners if one.uuid == name), (None, None))
        if item is None or file is None:
            return self._status(404)
        if file.is_restricted or item.is_restricted or item.is_withdrawn:
            return self._status(401)
        if file.status:
            return self._status(file.status)
        asked = str(request.headers.get("range", ""))
        self.views += not asked
        content = file.content if file.sent is None else file.sent
        headers = {"Content_Type": f"{file.mime};charset=UTF-8", "ETag": f'"{file.md5}"', "Accept_Ranges": "bytes"}
        if request.method == "GET" and (found := re.fullmatch(r"bytes=(\d+)-", asked)) and int(found[1]) < len(content):
            start = int(found[1])
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            return answer(content[start:], "206 Partial Content", Content_Range=span, **headers)
        return answer(content, **headers)

    # shapes

    def _object(self, item: Item) -> dict[str, Any]:
        return {
            "id": item.uuid,
            "uuid": item.uuid,
            "name": item.title,
            "handle": f"123456789/{item.accessioned}",
            "metadata": item.metadata(),
            "inArchive": not item.is_withdrawn,
            "discoverable": not item.is_private,
            "withdrawn": item.is_withdrawn,
            "lastModified": item.modified,
            "entityType": None,
            "type": "item",
            "_links": {"self": {"href": f"{ELSEWHERE}/core/items/{item.uuid}"}},
        }

    def _file(self, one: Bitstream) -> dict[str, Any]:
        return {
            "uuid": one.uuid,
            "name": one.name,
            "sizeBytes": len(one.content),
            "checkSum": {"checkSumAlgorithm": "MD5", "value": one.md5} if one.has_checksum else None,
            "type": "bitstream",
            "_links": {"content": {"href": f"{ELSEWHERE}/content"}},
            "_embedded": {"format": {"mimetype": one.mime, "type": "bitstreamformat"}},
        }

    def _embed(self, files: list[Bitstream]) -> dict[str, Any]:
        return self._cut("bitstreams", [self._file(one) for one in files])

    def _cut(self, name: str, entries: list[Any], number: int = 0, size: int = 100) -> dict[str, Any]:
        size, total = min(size, self.most), self.total(len(entries))
        paging = {"size": size, "totalElements": total, "totalPages": -(-total // size), "number": number}
        start = number * size
        listed = {name: entries[start : start + size]} if entries else {}
        return {"_embedded": listed, "page": paging, "_links": {"next": {"href": f"{ELSEWHERE}/?page=0"}}}

    def _list(self, name: str, entries: list[Any], query: dict[str, list[str]]) -> bytes:
        return self._json(self._cut(name, entries, int(query["page"][0]), int(query["size"][0])))

    def _json(self, told: object, **headers: str) -> bytes:
        date = f"{dt.datetime.now(dt.UTC):%a, %d %b %Y %H:%M:%S GMT}"
        return answer(json.dumps(told).encode(), Content_Type="application/hal+json", Date=date, **headers)

    def _status(self, status: int) -> bytes:
        return answer(json.dumps({"status": status}).encode(), f"{status} Refused", Content_Type="application/json")


def _bundle_id(item: Item, name: str) -> str:
    return str(uuid.uuid5(uuid.UUID(item.uuid), name))


@contextmanager
def fake_dspace() -> Iterator[FakeDSpace]:
    server = FakeDSpace()
    try:
        yield server
    finally:
        server.close()
