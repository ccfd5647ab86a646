"""Reads a DSpace repository (7 and later) by its REST API: lists in pages, items and files by their own addresses.

Addresses are made from the root and from UUIDs: no link of an answer is followed, and no other server is asked. One
request is under way at a time. An account, where there is one, is used for the list of items alone; items and files are
read as anybody reads them, so that nothing is seen that is not public.
"""

import datetime as dt
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import quote_plus, urlencode

import msgspec

from headwater.errors import SourceFault, StoreFault, UsageFault
from headwater.files.file_copies import Room
from headwater.ingest.harvested import NoAnswer, http_time
from headwater.transport.fetch import FailureKind, Fetch, Fetched, TransportOptions
from headwater.transport.scheduler import site_of
from headwater.transport.transport import Transport
from headwater.typed_decoding import from_json
from headwater.version import __version__

PAGE: Final = 100  # entries of a page: the most that DSpace gives
_MOST_PAGES: Final = 1_000_000
_MOST_ENTRIES: Final = 100_000  # of a list that is read at once
_MOST_READINGS: Final = 12
_ANSWER_OCTETS: Final = 32 << 20
_UUID: Final = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_COOKIE: Final = re.compile(r"DSPACE-XSRF-COOKIE=([^;,\s]+)")
_ALL_ITEMS: Final = "core/items"  # for administrators alone
_CLOSED: Final = (401, 403, 404, 410)  # what is not there for an anonymous reader
_MAY_HIDE: Final = re.compile("/core/(items|bundles|bitstreams)/")  # lists are there for everybody
_BUSY: Final = (429, 503)

Query = Sequence[tuple[str, str]]


class BadAnswer(SourceFault):
    """An answer is not what the REST API gives, or a file is not what it says."""

    code = "HW-DSP-02"
    status = 0
    pause_seconds = 0.0


# Answers, of which what is needed is read


class _Page(msgspec.Struct, rename="camel"):
    size: int = PAGE
    total_elements: int = 0
    total_pages: int = 0


class RestObject(msgspec.Struct, rename="camel"):
    """Any object or list of the REST API."""

    uuid: Annotated[str, msgspec.Meta(pattern=_UUID)] = ""
    name: str | None = None
    handle: str | None = None
    entity_type: str | None = None
    metadata: dict[str, list[dict[str, Any]]] = {}
    in_archive: bool | None = None
    discoverable: bool | None = None
    withdrawn: bool | None = None
    last_modified: str | None = None
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | None = None
    check_sum: dict[str, str | None] | None = None
    mimetype: str | None = None
    page: _Page | None = None
    embedded: dict[str, "RestObject | list[RestObject] | None"] = msgspec.field(default_factory=dict, name="_embedded")

    @property
    def md5(self) -> str | None:
        """The MD5 of a bitstream, where the repository says one."""
        said = self.check_sum or {}
        md5 = (said.get("value") or "").lower()
        return md5 if said.get("checkSumAlgorithm") == "MD5" and re.fullmatch(r"[0-9a-f]{32}", md5) else None

    def part(self, name: str) -> "RestObject | None":
        """The object that is embedded by this name."""
        found = self.embedded.get(name)
        return found if isinstance(found, RestObject) else None

    def entries(self, name: str) -> "list[RestObject]":
        """The entries of a list; each has a valid UUID. Raises BadAnswer."""
        found = self.embedded.get(name)
        entries = found if isinstance(found, list) else []
        if name == "objects":  # search results
            entries = [item for one in entries if (item := one.part("indexableObject")) is not None]
        if not all(one.uuid for one in entries):
            raise BadAnswer(f"an entry of {name} without a UUID")
        return entries


class ListPage(NamedTuple):
    """One page of a list: whether it says that it is the last one, and the total."""

    entries: list[RestObject]
    is_last: bool
    total: int = 0


def read_list(ask: Callable[[int], ListPage]) -> Iterator[list[RestObject]]:
    """Read a list that changes meanwhile by pages that count from its beginning: what is new on each page.

    Upwards, nothing is missed because something was added; downwards, nothing because something was removed. So both
    directions take turns until a reading brings nothing new; a list of one page is complete at once. Raises BadAnswer
    for a list without an end.
    """
    seen, last = set[str](), 0
    for reading in range(_MOST_READINGS):
        is_upwards, known, before = reading % 2 == 0, len(seen), ["none yet"]
        for number in range(_MOST_PAGES) if is_upwards else range(last, -1, -1):
            page = ask(number)
            uuids = [one.uuid for one in page.entries]
            if is_upwards and uuids and uuids == before:
                raise BadAnswer(f"a list without an end: its page {number:,} is the page before")
            yield [one for one in {one.uuid: one for one in page.entries}.values() if one.uuid not in seen]
            seen.update(uuids)
            if page.is_last and number == 0:
                return
            if is_upwards:
                last = number if uuids else last
                if page.is_last or uuids == before:  # two pages without entries
                    break
            before = uuids
        if reading and len(seen) == known:
            return


def item_octets(item: RestObject) -> bytes:
    """The metadata resource of an item: the same octets as long as its metadata are the same.

    So it has neither `lastModified`, which moves without them, nor links, which change with DSpace's version.
    """
    told: dict[str, object] = {"type": "item", "uuid": item.uuid, "name": item.name, "handle": item.handle}
    told |= {"entityType": item.entity_type, "metadata": item.metadata}
    return msgspec.json.encode(told, order="sorted") + b"\n"


def time_of(text: str | None) -> dt.datetime | None:
    """A time as DSpace writes it; None when it is none."""
    with suppress(ValueError, OverflowError):  # the latter: the year 0 of UTC
        at = dt.datetime.fromisoformat(text or "")
        return at.astimezone(dt.UTC) if at.tzinfo is not None else at.replace(tzinfo=dt.UTC)
    return None


# Requests


class Repository:
    """The repository at the root of its REST API. Methods raise NoAnswer, BadAnswer, StoreFault, Interrupted; with an
    `account` (name and password, of an administrator) also UsageFault, where it is refused."""

    def __init__(
        self,
        url: str,
        contact: str | None = None,
        account: tuple[str, str] | None = None,
        *,
        stop: Callable[[], bool] | None = None,
        longest_wait_seconds: float = 60.0,
    ) -> None:
        """Raises UsageFault for an address, or a contact, that no request can have."""
        self.url = url.rstrip("/")
        self.account = account
        self.requests = 0
        self.answered_at: dt.datetime | None = None  # by the clock of the repository
        self._site = site_of(self.url)
        self._token = ""
        if self._site is None or "?" in self.url or "#" in self.url:
            raise UsageFault("not the root of a REST API: give one like https://HOST/server/api", where=url[:200])
        agent = f"headwater/{__version__} (repository harvest{f'; {contact}' if contact else ''})"
        if not (agent.isascii() and agent.isprintable()):
            raise UsageFault("contact has characters that no header can have")
        self._transport = Transport(
            TransportOptions(
                concurrency=1,
                per_host=1,
                user_agent=agent,
                source=self.url,
                stopped=stop,
                longest_wait_seconds=longest_wait_seconds,
            )
        )

    def collections(self) -> list[str]:
        """The UUIDs of all collections, in order."""
        return sorted(one.uuid for one in self._whole("core/collections", "collections"))

    def items(self, page: int, scope: str = "", since: str = "") -> ListPage:
        """A page of the items that the search index has: of a collection (`scope`), or modified since a time."""
        query = [("dsoType", "item")]
        query += [("scope", scope)] if scope else []
        query += [("query", f"lastModified:[{since} TO *]")] if since else []
        return self.page("discover/search/objects", "objects", page, query)

    def all_items(self, page: int) -> ListPage:
        """A page of all items of the archive, as the account lists them: those that nobody else can see, too."""
        return self.page(_ALL_ITEMS, "items", page)

    def page(self, path: str, name: str, number: int = 0, query: Query = ()) -> ListPage:
        """A page of the list `name` at a path below the root."""
        read = self._read(path, [*query, ("page", str(number)), ("size", str(PAGE))])
        if read is None:
            return ListPage([], is_last=True)
        found = read.part("searchResult") or read
        if found.page is None:
            raise BadAnswer("a list without its page", where=f"{self.url}/{path}")
        entries = found.entries(name)
        is_short = len(entries) < min(PAGE, max(1, found.page.size))
        is_last = is_short and number + 1 >= found.page.total_pages
        return ListPage(entries, is_last, found.page.total_elements)

    def item(self, uuid: str, bundles: Collection[str]) -> tuple[RestObject | None, list[RestObject]]:
        """An item and the files of these bundles; None where it is not public, or not there."""
        path, files = f"core/items/{uuid}", dict[str, RestObject]()
        sizes = [("embed.size", f"bundles={PAGE}"), ("embed.size", f"bundles/bitstreams={PAGE}")]
        query = [("embed", "bundles/bitstreams/format"), *sizes, ("embed", "owningCollection")]
        if (item := self._read(path, query)) is None:
            return None, []
        states = (item.in_archive, item.discoverable, item.withdrawn)
        if item.uuid != uuid or None in states:
            raise BadAnswer("the answer is not the item", where=f"{self.url}/{path}")
        if states != (True, True, False):
            return None, []
        for own in self._embedded(item, path, "bundles", "bitstreams/format"):
            if own.name in bundles:
                for one in self._embedded(own, f"core/bundles/{own.uuid}", "bitstreams", "format"):
                    if one.size_bytes is None:
                        raise BadAnswer("a file without its size", where=f"{self.url}/core/bitstreams/{one.uuid}")
                    files.setdefault(one.uuid, one)
        return item, [*files.values()]

    def _embedded(self, owner: RestObject, path: str, name: str, embed: str) -> list[RestObject]:
        """The entries of a list that an object embeds; asked for by pages where the embedded one may be cut."""
        if (found := owner.part(name)) is not None and found.page is not None:
            entries = found.entries(name)
            if found.page.total_elements <= len(entries) < found.page.size:
                return entries
        return self._whole(f"{path}/{name}", name, [("embed", embed)])

    def _whole(self, path: str, name: str, query: Query = ()) -> list[RestObject]:
        """All entries of a list that is small enough to be read at once."""
        found = list[RestObject]()
        for new in read_list(partial(self.page, path, name, query=query)):
            found += new
            if len(found) > _MOST_ENTRIES:
                raise BadAnswer(f"a list of more than {_MOST_ENTRIES:,} entries", where=f"{self.url}/{path}")
        return found

    def fetch(self, file: RestObject, into: Path, part: Path) -> Fetched | None:
        """Put the content of a file into a new file; None where an anonymous reader does not get it.

        Length and MD5 are those that the repository says: else BadAnswer. `part` keeps what had come before a kill.
        """
        uri, sums = f"{self.url}/core/bitstreams/{file.uuid}/content", ("md5", "sha-256")
        kept = str(part) if file.md5 else None  # what is put together has to be verified
        self._transport.room = self._transport.room or Room(os.fsencode(into.parent))  # the disk is never filled
        answer = self._ask(Fetch(uri, into=str(into), keep=kept, algorithms=sums, max_octets=file.size_bytes or 0))
        if not self._is_there(answer):
            return None
        if answer.octets != file.size_bytes or file.md5 not in (None, answer.digests["md5"]):
            into.unlink(missing_ok=True)
            said = f"{file.size_bytes} octets, MD5 {file.md5}; {answer.octets} came, MD5 {answer.digests['md5']}"
            raise BadAnswer(f"a file is not what the repository says: {said}", where=uri)
        return answer

    def is_open(self, file: RestObject) -> bool:
        """Whether an anonymous reader gets the content of a file. DSpace counts no view where a range is asked for."""
        uri = f"{self.url}/core/bitstreams/{file.uuid}/content"
        answer = self._ask(Fetch(uri, (("Range", "bytes=0-0"),), "HEAD"))
        return answer.status == 416 or self._is_there(answer)  # 416: it is empty

    def _read(self, path: str, query: Query) -> RestObject | None:
        """An object; None where it is hidden."""
        uri = f"{self.url}/{path}?" + "&".join(f"{name}={quote_plus(value, safe='/:*,')}" for name, value in query)
        headers, with_account = [("Accept", "application/json")], path == _ALL_ITEMS
        for _ in range(2 if with_account else 1):
            answer = self._json(uri, [*headers, ("Authorization", self._signed_in())] if with_account else headers)
            if not with_account or answer.status not in (401, 403):
                break
            self._token = ""  # it may have expired
        else:
            raise UsageFault("the account may not list the items", code="HW-DSP-03", where=uri)
        if not self._is_there(answer):
            return None
        try:
            return from_json(answer.body, RestObject)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as cause:
            raise BadAnswer(f"not JSON of the REST API: {str(cause)[:200]}", where=uri) from cause

    def _signed_in(self) -> str:
        """The value of `Authorization`; DSpace wants its cookie doubled in a header with the password."""
        if not self._token and self.account is not None:
            token, cookie = "", None
            for path in ("authn/status", "security/csrf"):  # DSpace 8 has the token at the latter, 7 at the former
                headers = self._json(f"{self.url}/{path}").headers
                token = headers.get("dspace-xsrf-token", token)
                cookie = _COOKIE.search(headers.get("set-cookie", "")) or cookie
            double = [("X-XSRF-TOKEN", token), ("Cookie", f"DSPACE-XSRF-COOKIE={cookie[1] if cookie else token}")]
            form = urlencode({"user": self.account[0], "password": self.account[1]}).encode()
            kind = ("Content-Type", "application/x-www-form-urlencoded")
            answer = self._json(f"{self.url}/authn/login", [*double, kind], form)
            self._token = answer.headers.get("authorization", "")
            if answer.status in (401, 403) or (answer.ok and not self._token):
                raise UsageFault("the repository refuses the account", code="HW-DSP-03", where=self.url)
            self._is_there(answer)
        return self._token

    def _json(self, uri: str, headers: Query = (), body: bytes | None = None) -> Fetched:
        return self._ask(Fetch(uri, tuple(headers), "POST" if body else "GET", body, max_octets=_ANSWER_OCTETS))

    def _ask(self, fetch: Fetch) -> Fetched:
        """The answer, whatever its status. Raises NoAnswer where there is none, or the repository is too busy."""
        self.requests += 1
        answer = self._transport.one(msgspec.structs.replace(fetch, objection=self._objection))
        if answer.failure is not None and answer.failure.kind is FailureKind.STORE:
            raise StoreFault(answer.failure.text, where=fetch.uri)
        if answer.status == 0 or answer.status in _BUSY:
            what = answer.failure.text if answer.failure else f"the repository is too busy: status {answer.status}"
            fault = NoAnswer(what, code="HW-DSP-01", where=fetch.uri)
            fault.pause_seconds = answer.retry_after_seconds or 0.0
            raise fault
        self.answered_at = http_time(answer.headers.get("date")) or self.answered_at
        return answer

    def _objection(self, target: str) -> str | None:
        return None if site_of(target) == self._site else "another server than the repository"

    def _is_there(self, answer: Fetched) -> bool:
        """Whether an anonymous reader gets it. Raises BadAnswer where there is no whole 2xx, and it cannot be hidden.

        A 403 in HTML hides nothing: it is of a server in front of DSpace, which refuses robots.
        """
        is_html = "html" in answer.headers.get("content-type", "") or answer.body.lstrip().startswith(b"<")
        may_hide = _MAY_HIDE.match(answer.fetch.uri, len(self.url)) is not None
        if may_hide and answer.status in _CLOSED and not (answer.status == 403 and is_html):
            return False
        if not answer.ok:
            text = answer.failure.text if answer.failure is not None else f"status {answer.status}"
            fault = BadAnswer(text, where=answer.fetch.uri)
            fault.status = answer.status
            raise fault
        return True
