"""OAI-PMH 2.0 at `/S/oai`: the six verbs over the index of a set (`publish/oai_index.py`), asked by GET or POST.

A resumption token is the whole question and the place reached, in text: the server remembers nothing of it, and it may
be asked again at any time, of any process.
"""

import asyncio
import base64
import datetime as dt
import re
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from headwater.deflate import FAST_LEVEL, crc32, deflate_whole
from headwater.errors import HeadwaterError, StoreFault
from headwater.http import responses
from headwater.http.requests import accepts_gzip, read_body
from headwater.http.responses import CLOSE, Response, leads_to, line
from headwater.http.routes import REVALIDATE, HttpRequest, Route
from headwater.notify.hub.policy import RequestRefusal
from headwater.publish.oai_index import ListedRecord, ListPlace, OaiIndex, Wanted
from headwater.publish.oai_records import OAI, XSI, Format, datestamp, element, is_spec, is_text
from headwater.publish.site import OAI as ADDRESS
from headwater.publish.site import SOURCE_DESCRIPTION, capability_list_name
from headwater.source.health import ServableSource
from headwater.spec.checks import escape
from headwater.spec.kinds import RS
from headwater.spec.times import SECOND, to_microseconds
from headwater.storage.gzip_member import header as gzip_header
from headwater.typed_decoding import from_json

RECORDS, HEADERS, SETS = 500, 1_000, 1_000  # so many has a page at most …
PAGE_OCTETS: Final = 2 << 20  # … and so many octets, unless one record has more
_QUERY_OCTETS: Final = 65_536
_WAIT_SECONDS, _FOLLOW_SECONDS = 5.0, 10.0
_FOREVER_US: Final = (1 << 63) - 1
_VERBS: Final = {
    "Identify": ("", ""),
    "ListMetadataFormats": ("", "identifier"),
    "ListSets": ("", "resumptionToken"),
    "ListIdentifiers": ("metadataPrefix", "from until set resumptionToken"),
    "ListRecords": ("metadataPrefix", "from until set resumptionToken"),
    "GetRecord": ("identifier metadataPrefix", ""),
}
"""The arguments that each verb needs, and those that it may have."""


class OaiError(Exception):
    """An answer that is an error of the protocol, with one of its eight codes."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


def read_arguments(query: bytes) -> dict[str, str]:
    """The arguments of a request. Raises OaiError for what the protocol does not have, or has once."""
    try:
        pairs = parse_qsl(query.decode(), keep_blank_values=True, errors="strict", max_num_fields=20)
    except ValueError:
        raise OaiError("badArgument", "the arguments are no form in UTF-8, or there are too many") from None
    verbs = [value for name, value in pairs if name == "verb"]
    if len(verbs) != 1 or verbs[0] not in _VERBS:
        raise OaiError("badVerb", f"verb is once one of {', '.join(_VERBS)}")
    arguments, (needed, optional) = dict(pairs), (set(one.split()) for one in _VERBS[verbs[0]])
    if len(arguments) != len(pairs):
        raise OaiError("badArgument", "an argument is given twice")
    given = arguments.keys() - {"verb"}
    if unknown := given - needed - optional:
        raise OaiError("badArgument", f"{verbs[0]} has no argument {min(unknown)[:80]!a}")
    if not all(map(is_text, arguments.values())):
        raise OaiError("badArgument", "an argument has a character that XML does not have")
    if "resumptionToken" in given and len(given) > 1:
        raise OaiError("badArgument", "resumptionToken stands alone beside verb")
    if "resumptionToken" not in given and (missing := needed - given):
        raise OaiError("badArgument", f"{verbs[0]} needs {' and '.join(sorted(missing))}")
    return arguments


_TIME = re.compile(r"(\d{4}-\d\d-\d\d)(T\d\d:\d\d:\d\dZ)?", re.ASCII)


def window(arguments: Mapping[str, str]) -> tuple[int, int]:
    """The microseconds [from, until) that `from` and `until`, both included, mean. Raises OaiError."""
    spans = {"from": (0, 0), "until": (0, _FOREVER_US)}
    given = {name: arguments[name] for name in spans if name in arguments}
    for name, text in given.items():
        match = _TIME.fullmatch(text)
        try:
            start = None if match is None else dt.datetime.fromisoformat(f"{match[1]}{match[2] or 'T00:00:00Z'}")
        except ValueError:
            start = None
        if match is None or start is None:
            raise OaiError("badArgument", f"{name} is no time such as 2026-01-31 or 2026-01-31T12:00:00Z")
        at_us = to_microseconds(start)
        spans[name] = max(0, at_us), max(0, at_us + SECOND * (1 if match[2] else 86_400))
    if len({len(text) for text in given.values()}) > 1 or (len(given) > 1 and given["from"] > given["until"]):
        raise OaiError("badArgument", "from and until differ in granularity, or from is later than until")
    return spans["from"][0], spans["until"][1]


class Token(msgspec.Struct, frozen=True, array_like=True):
    """Where a list goes on: behind the record of `item` at `at_us`; `cursor` records were sent, of `size` (0: unknown).

    Of ListSets, `at_us` is the number of the last set.
    """

    verb: str
    prefix: str = ""
    set: str = ""
    from_us: int = 0
    until_us: int = 0
    at_us: int = 0
    item: str = ""
    cursor: int = 0
    size: int = 0

    def after(self, place: ListPlace, count: int) -> "Token":
        """The token behind a place, when so many more records were sent."""
        return msgspec.structs.replace(self, at_us=place.at_us, item=place.item, cursor=self.cursor + count)

    def text(self) -> str:
        """The token as it is sent."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def read(cls, text: str, verb: str) -> "Token":
        """The token of a request. Raises OaiError."""
        try:
            token = from_json(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), cls)
        except (ValueError, msgspec.DecodeError):
            token = None
        numbers = () if token is None else (token.from_us, token.until_us, token.at_us, token.cursor, token.size)
        if token is None or token.verb != verb or not all(0 <= one <= _FOREVER_US for one in numbers):
            raise OaiError("badResumptionToken", "this is no token of this list")
        return token


_RS_SCHEMA: Final = "http://www.openarchives.org/rs/1.1/resourcesync.xsd"
_START: Final = (
    f'<?xml version="1.0" encoding="UTF-8"?>\n<OAI-PMH xmlns="{OAI}" xmlns:xsi="{XSI}"'
    f' xsi:schemaLocation="{OAI} {OAI}OAI-PMH.xsd">'
).encode()


def _gzipped(octets: bytes) -> bytes:
    end = struct.pack("<II", crc32(octets), len(octets) & 0xFFFFFFFF)
    return gzip_header("") + deflate_whole(octets, FAST_LEVEL) + end


class _Answer:
    """What one request is answered with, from the index as it is: `index` is up to date by now."""

    def __init__(self, source: ServableSource, index: OaiIndex, admin: str) -> None:
        self._source, self._index, self._admin = source, index, admin
        self._site, self._name = source.site, index.of.name
        self._url = self._site.url(f"{self._name}/{ADDRESS}")
        self._title = self._site.settings(self._name).title or self._site.title or self._name
        self._verbs: dict[str, Callable[[Mapping[str, str]], bytes]] = {
            "Identify": self._identify,
            "ListMetadataFormats": self._formats,
            "ListSets": self._sets,
            "ListIdentifiers": self._records,
            "ListRecords": self._records,
            "GetRecord": self._record,
        }

    def octets(self, query: bytes, at: dt.datetime, has_gzip: bool) -> bytes:  # noqa: FBT001 (of a thread's task)
        """The document that answers a query, as the set was at a time."""
        arguments: Mapping[str, str] = {}
        try:
            arguments = read_arguments(query)
            verb = arguments["verb"]
            content = b"<%b>%b</%b>" % (verb.encode(), self._verbs[verb](arguments), verb.encode())
        except OaiError as error:
            arguments = {} if error.code in ("badVerb", "badArgument") else arguments
            content = f'<error code="{error.code}">{escape(error.text)}</error>'.encode()
        except StoreFault as fault:
            self._index.renew(fault)
            raise
        given = "".join(f' {name}="{escape(text)}"' for name, text in arguments.items())
        request = f"<request{given}>{escape(self._url)}</request>".encode()
        date = element("responseDate", datestamp(to_microseconds(at)))
        octets = b"".join((_START, date, request, content, b"</OAI-PMH>\n"))
        return _gzipped(octets) if has_gzip else octets

    def _identify(self, _arguments: Mapping[str, str]) -> bytes:
        opened_at = self._index.of.catalog.state(self._name).opened_at
        told = (
            ("repositoryName", self._title),
            ("baseURL", self._url),
            ("protocolVersion", "2.0"),
            ("adminEmail", self._admin),
            ("earliestDatestamp", datestamp(0 if opened_at is None else to_microseconds(opened_at))),
            ("deletedRecord", "persistent"),
            ("granularity", "YYYY-MM-DDThh:mm:ssZ"),
            ("compression", "gzip"),
        )
        about = escape(self._site.url(SOURCE_DESCRIPTION))
        described = f'<rs:ln xmlns:rs="{RS}" xsi:schemaLocation="{RS} {_RS_SCHEMA}" rel="resourcesync" href="{about}"/>'
        return b"".join(element(*one) for one in told) + f"<description>{described}</description>".encode()

    def _formats(self, arguments: Mapping[str, str]) -> bytes:
        item = arguments.get("identifier")
        found = [(one, False) for one in self._index.formats()] if item is None else self._formats_of(item)
        if not found:
            raise OaiError("idDoesNotExist", "there is no such item")
        body = b""
        for one, is_deleted in found:
            if not is_deleted:
                told = ("metadataPrefix", one.prefix), ("schema", one.schema), ("metadataNamespace", one.namespace)
                body += b"<metadataFormat>%b</metadataFormat>" % b"".join(element(*each) for each in told)
        if not body:
            raise OaiError("noMetadataFormats", "the item is deleted")
        return body

    def _formats_of(self, item: str) -> list[tuple[Format, bool]]:
        """The formats in which an item is shown, and whether its record is deleted."""
        found = self._index.formats_of(item)
        return [(one, is_deleted) for one, source, is_deleted in found if is_deleted or self._takes(source, item)]

    def _sets(self, arguments: Mapping[str, str]) -> bytes:
        text, told = arguments.get("resumptionToken"), list[tuple[str, str]]()
        if text is None:
            token, told = Token("ListSets"), [(self._name, self._title)]
        else:
            token = Token.read(text, "ListSets")
        found = self._index.collections(token.at_us, SETS + 1)
        told += [(row[1], row[2]) for row in found[:SETS]]
        body = (b"<set>%b%b</set>" % (element("setSpec", spec), element("setName", name)) for spec, name in told)
        following = token.after(ListPlace(found[SETS - 1][0], ""), len(told)) if len(found) > SETS else None
        return b"".join(body) + _resumption(token, following, is_first=text is None)

    def _record(self, arguments: Mapping[str, str]) -> bytes:
        item, number = arguments["identifier"], self._index.number("format.prefix", arguments["metadataPrefix"])
        found = None if number is None else self._index.record(item, number)
        if found is not None and self._shows(found):
            return found.octets
        if found is None and self._formats_of(item):
            raise OaiError("cannotDisseminateFormat", "the item does not have this format")
        raise OaiError("idDoesNotExist", "there is no such item")

    def _records(self, arguments: Mapping[str, str]) -> bytes:
        """The next page of records, or of their headers."""
        index, verb = self._index, arguments["verb"]
        if (text := arguments.get("resumptionToken")) is not None:
            token = Token.read(text, verb)
        else:
            spec = arguments.get("set", self._name)
            if not is_spec(spec):
                raise OaiError("badArgument", "set is no setSpec")
            token = Token(verb, arguments["metadataPrefix"], spec, *window(arguments))
        number = index.number("format.prefix", token.prefix)
        if number is None:
            code = "cannotDisseminateFormat" if text is None else "badResumptionToken"
            raise OaiError(code, "no item has this format")
        collection = 0 if token.set == self._name else index.number("collection.spec", token.set)
        wanted = Wanted(number, -1 if collection is None else collection, token.from_us, token.until_us)
        if text is None:
            token = msgspec.structs.replace(token, size=index.count(wanted))
        limit, headers_only = (HEADERS, True) if verb == "ListIdentifiers" else (RECORDS, False)
        after, shown, has_more = ListPlace(token.at_us, token.item) if token.at_us else None, list[ListedRecord](), True
        while has_more and not shown:
            found, has_more = index.listed(wanted, after, limit, PAGE_OCTETS, headers_only=headers_only)
            after, shown = found[-1].place if found else after, [one for one in found if self._shows(one)]
        if not shown:
            raise OaiError("noRecordsMatch", "there is no such record")
        following = token.after(after, len(shown)) if has_more and after is not None else None
        return b"".join([one.octets for one in shown]) + _resumption(token, following, is_first=text is None)

    def _shows(self, one: ListedRecord) -> bool:
        """Whether a record is a deletion, or the settings still take what it has."""
        return one.is_deleted or self._takes(one.source, one.place.item)

    def _takes(self, source: str, item: str) -> bool:
        """Whether the settings still take the resource and the item, where they may have changed since."""
        return self._name not in self._source.changing_names or self._index.of.shows_record(source, item)


def _resumption(token: Token, following: Token | None, *, is_first: bool) -> bytes:
    """The element by which an incomplete list goes on, or ends."""
    if is_first and following is None:
        return b""
    size = f' completeListSize="{max(token.size, token.cursor)}"' if token.size else ""
    text = "" if following is None else following.text()
    return f'<resumptionToken cursor="{token.cursor}"{size}>{text}</resumptionToken>'.encode()


class OaiEndpoint:
    """Answers requests for the sets of these indexes; `admins` has the mail addresses that `Identify` names."""

    def __init__(self, source: ServableSource, indexes: Mapping[str, OaiIndex], admins: Mapping[str, str]) -> None:
        self._source, self._indexes = source, indexes
        self._answers = {name: _Answer(source, one, admins[name]) for name, one in indexes.items()}
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="headwater-oai")
        self._working = dict[str, Future[dt.datetime | None]]()
        self._ends = threading.Event()
        self._follower = threading.Thread(target=self._follow, name="headwater-oai-follow", daemon=True)
        self._follower.start()

    def close(self) -> None:
        """Give up the threads and the indexes."""
        self._ends.set()
        for one in self._indexes.values():
            one.is_wanted = False
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._follower.join()
        for one in self._indexes.values():
            one.close()

    def routes(self) -> Iterator[Route]:
        """The rows of the endpoint: two for each set."""
        for name in self._indexes:
            for method in ("GET", "POST"):
                yield Route(
                    name="oai",
                    method=method,
                    pattern=f"/{name}/{ADDRESS}",
                    handler=partial(self.answer, name),
                    media_type=b"text/xml; charset=utf-8",
                    cache=REVALIDATE,
                )

    async def answer(self, name: str, request: HttpRequest) -> Response:
        """The answer to a request; 503 while the set or its index is being made."""
        query = request.scope.get("query_string", b"")
        if request.method == "POST":
            body = await read_body(request.scope, request.receive, _QUERY_OCTETS)
            if isinstance(body, RequestRefusal):
                return responses.text(body.status, body.text, CLOSE)
            query = b"&".join(filter(None, (query, body)))
        if not await request.access.is_published(name):
            return responses.not_published(name)
        try:
            at = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._catch_up(name))), _WAIT_SECONDS)
        except TimeoutError:
            at = None
        if at is None:
            said = "the records are being prepared; try again in a moment"
            return responses.text(503, said, line(b"retry-after", b"5"))
        has_gzip = accepts_gzip(request.fields.accept_encoding)
        octets = await request.access.read(self._answers[name].octets, query, at, has_gzip)
        response = request.respond(200, octets)
        response.head += line(b"vary", b"Accept-Encoding") + (line(b"content-encoding", b"gzip") if has_gzip else b"")
        response.head += leads_to(self._source.site.url(capability_list_name(name)))
        return response

    def _follow(self) -> None:
        """Keep the indexes near the catalog, also while nobody asks: who does need not wait for long."""
        while not self._ends.is_set():
            for one in self._indexes.values():
                with suppress(HeadwaterError):  # who asks is told
                    one.catch_up()
            self._ends.wait(_FOLLOW_SECONDS)

    def _catch_up(self, name: str) -> Future[dt.datetime | None]:
        """The work that brings an index up to date: one at a time, which is begun after this is called."""
        working = self._working.get(name)
        if working is None or working.done() or working.running():
            self._working[name] = working = self._pool.submit(
                lambda: self._indexes[name].answer_time(dt.datetime.now(dt.UTC))
            )
        return working
