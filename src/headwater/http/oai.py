"""OAI-PMH 2.0 at `/S/oai`: the six verbs over the index of a set (`publish/oai_index.py`), asked by GET or POST.

A resumption token is the whole question and the place reached, in text: the server remembers nothing of it, and it may
be asked again at any time, of any process.
"""

import asyncio
import base64
import datetime as dt
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from headwater.http import responses
from headwater.http.requests import accepts_gzip, read_body
from headwater.http.responses import CLOSE, Response, leads_to, line
from headwater.http.routes import REVALIDATE, HttpRequest, Route
from headwater.notify.hub.policy import RequestRefusal
from headwater.publish.oai_index import ListedRecord, ListPlace, OaiIndex
from headwater.publish.oai_records import OAI, XSI, datestamp, element, is_spec, is_text, unescaped
from headwater.publish.site import OAI as ADDRESS
from headwater.publish.site import SOURCE_DESCRIPTION, capability_list_name
from headwater.source.health import ServableSource
from headwater.spec.checks import escape
from headwater.spec.kinds import RS
from headwater.spec.times import SECOND, to_microseconds
from headwater.storage.gzip_member import GzipCompressor
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


_TIME = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\dZ)?", re.ASCII)


def _span(text: str) -> tuple[int, int]:
    """The microseconds [start, end) of a day or a second. Raises OaiError."""
    is_day = "T" not in text
    try:
        if _TIME.fullmatch(text):
            start = to_microseconds(dt.datetime.fromisoformat(f"{text}T00:00:00Z" if is_day else text))
            return max(0, start), max(0, start + SECOND * (86_400 if is_day else 1))
    except ValueError:
        pass
    raise OaiError("badArgument", "from or until is no time such as 2026-01-31 or 2026-01-31T12:00:00Z")


def window(arguments: Mapping[str, str]) -> tuple[int, int]:
    """The microseconds [from, until) that `from` and `until`, both included, mean. Raises OaiError."""
    from_, until = arguments.get("from"), arguments.get("until")
    if from_ is not None and until is not None and (len(from_) != len(until) or from_ > until):
        raise OaiError("badArgument", "from and until differ in granularity, or from is later than until")
    return 0 if from_ is None else _span(from_)[0], _FOREVER_US if until is None else _span(until)[1]


class Token(msgspec.Struct, frozen=True, array_like=True):
    """Where a list of a `verb` goes on: behind a place, when `cursor` records were sent."""

    verb: str
    at: ListPlace
    cursor: int = 0

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
        if token is None or token.verb != verb:
            raise OaiError("badResumptionToken", "this is no token of this list")
        return token

    def end(self, following: ListPlace | None, count: int) -> bytes:
        """The element by which an incomplete list goes on after so many more records, or ends."""
        if following is None and not self.cursor:
            return b""
        text = "" if following is None else Token(self.verb, following, self.cursor + count).text()
        return f'<resumptionToken cursor="{self.cursor}">{text}</resumptionToken>'.encode()


_RS_SCHEMA: Final = "http://www.openarchives.org/rs/1.1/resourcesync.xsd"
_START: Final = (
    f'<?xml version="1.0" encoding="UTF-8"?>\n<OAI-PMH xmlns="{OAI}" xmlns:xsi="{XSI}"'
    f' xsi:schemaLocation="{OAI} {OAI}OAI-PMH.xsd">'
).encode()


class OaiAnswers:
    """Answers requests for one set from its index, in a thread of its own: who waits for one set delays no other."""

    def __init__(self, source: ServableSource, index: OaiIndex, admin: str) -> None:
        self._source, self._index, self._admin = source, index, admin
        self._site, self._name = source.site, index.of.name
        self._url = self._site.url(f"{self._name}/{ADDRESS}")
        self._title = self._site.settings(self._name).title or self._site.title or self._name
        self.worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headwater-oai")
        self._verbs: dict[str, Callable[[Mapping[str, str]], bytes]] = {
            "Identify": self._identify,
            "ListMetadataFormats": self._formats,
            "ListSets": self._sets,
            "ListIdentifiers": self._records,
            "ListRecords": self._records,
            "GetRecord": self._record,
        }

    def close(self) -> None:
        """Give up the thread and the index."""
        self._index.is_wanted = False
        self.worker.shutdown(wait=True, cancel_futures=True)
        self._index.close()

    def follow(self) -> None:
        """Bring the index up to date, also while nobody asks: who does need not wait for long."""
        with self._index:
            if self._index.catch_up():
                self._index.read_again(dt.datetime.now(dt.UTC))

    def octets(self, query: bytes, *, has_gzip: bool) -> bytes | None:
        """The document that answers a query, as the set is now. None: the set is loading, or nobody waits."""
        with self._index:
            at = self._index.answer_time(dt.datetime.now(dt.UTC))
            if at is None:
                return None
            date = element("responseDate", datestamp(to_microseconds(at)))
            octets = b"".join((_START, date, self._content(query), b"</OAI-PMH>\n"))
        if not has_gzip:
            return octets
        compressor = GzipCompressor()
        return gzip_header("") + compressor.add(octets) + compressor.finish()

    def _content(self, query: bytes) -> bytes:
        """The request, as far as it was understood, and what answers it."""
        arguments: Mapping[str, str] = {}
        try:
            arguments = read_arguments(query)
            verb = arguments["verb"]
            content = b"<%b>%b</%b>" % (verb.encode(), self._verbs[verb](arguments), verb.encode())
        except OaiError as error:
            arguments = {} if error.code in ("badVerb", "badArgument") else arguments
            content = f'<error code="{error.code}">{escape(error.text)}</error>'.encode()
        given = "".join(f' {name}="{escape(text)}"' for name, text in arguments.items())
        return f"<request{given}>{escape(self._url)}</request>".encode() + content

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
        found = self._index.formats()
        if (item := arguments.get("identifier")) is not None:
            alive = {one.prefix for one in self._shown(item) if not one.is_deleted}
            found = [one for one in found if one.prefix in alive]
        if not found:
            raise OaiError("noMetadataFormats", "the item is deleted")
        body = b""
        for one in found:
            told = ("metadataPrefix", one.prefix), ("schema", one.schema), ("metadataNamespace", one.namespace)
            body += b"<metadataFormat>%b</metadataFormat>" % b"".join(element(*each) for each in told)
        return body

    def _sets(self, arguments: Mapping[str, str]) -> bytes:
        text = arguments.get("resumptionToken")
        token = Token("ListSets", ListPlace("", "", 0, 0)) if text is None else Token.read(text, "ListSets")
        found = self._index.collections(token.at.spec, SETS + 1)
        told = [(spec, unescaped(spec) or spec) for spec in found[:SETS]]
        told = [*([(self._name, self._title)] if text is None else []), *told]
        body = (b"<set>%b%b</set>" % (element("setSpec", spec), element("setName", name)) for spec, name in told)
        following = ListPlace("", found[SETS - 1], 0, 0) if len(found) > SETS else None
        return b"".join(body) + token.end(following, len(told))

    def _record(self, arguments: Mapping[str, str]) -> bytes:
        found = [one for one in self._shown(arguments["identifier"]) if one.prefix == arguments["metadataPrefix"]]
        if not found:
            raise OaiError("cannotDisseminateFormat", "the item does not have this format")
        return found[0].octets

    def _records(self, arguments: Mapping[str, str]) -> bytes:
        """The next page of records, or of their headers."""
        verb, text = arguments["verb"], arguments.get("resumptionToken")
        if text is not None:
            token = Token.read(text, verb)
        else:
            spec, (from_us, until_us) = arguments.get("set", self._name), window(arguments)
            if not is_spec(spec):
                raise OaiError("badArgument", "set is no setSpec")
            token = Token(verb, ListPlace(arguments["metadataPrefix"], spec, until_us, from_us))
        if not self._index.has_format(token.at.prefix):
            code = "cannotDisseminateFormat" if text is None else "badResumptionToken"
            raise OaiError(code, "no item has this format")
        limit, headers_only = (HEADERS, True) if verb == "ListIdentifiers" else (RECORDS, False)
        found, has_more = self._index.listed(token.at, limit, PAGE_OCTETS, self._shows, headers_only=headers_only)
        if not found and text is None:
            raise OaiError("noRecordsMatch", "there is no such record")
        following = None
        if has_more:
            following = msgspec.structs.replace(token.at, at_us=found[-1].at_us, item=found[-1].item)
        return b"".join([one.octets for one in found]) + token.end(following, len(found))

    def _shown(self, item: str) -> list[ListedRecord]:
        """The records of an item that are shown. Raises OaiError where there are none."""
        if found := [one for one in self._index.records(item) if self._shows(one)]:
            return found
        raise OaiError("idDoesNotExist", "there is no such item")

    def _shows(self, one: ListedRecord) -> bool:
        """Whether a record is a deletion, or the settings still take its files, where they may have changed since."""
        if one.is_deleted or self._name not in self._source.changing_names:
            return True
        uris = (one.source, self._index.of.uri(one.item))
        return all("://" in uri or self._source.takes(self._name, unquote_to_bytes(uri)) for uri in uris)


class OaiEndpoint:
    """Answers requests for the sets of these indexes; `admins` has the mail addresses that `Identify` names."""

    def __init__(self, source: ServableSource, indexes: Mapping[str, OaiIndex], admins: Mapping[str, str]) -> None:
        self._site = source.site
        self._answers = {name: OaiAnswers(source, one, admins[name]) for name, one in indexes.items()}
        self._ends = threading.Event()
        self._follower = threading.Thread(target=self._follow, name="headwater-oai-follow", daemon=True)
        self._follower.start()

    def close(self) -> None:
        """Give up the threads and the indexes."""
        self._ends.set()
        self._follower.join()
        for one in self._answers.values():
            one.close()

    def routes(self) -> Iterator[Route]:
        """The rows of the endpoint: two for each set."""
        for name in self._answers:
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
        answers, has_gzip = self._answers[name], accepts_gzip(request.fields.accept_encoding)
        task = answers.worker.submit(answers.octets, query, has_gzip=has_gzip)
        try:
            octets = await asyncio.wait_for(asyncio.wrap_future(task), _WAIT_SECONDS)
        except TimeoutError:
            octets = None
        if octets is None:
            said = "the records are being prepared; try again in a moment"
            return responses.text(503, said, line(b"retry-after", b"5"))
        response = request.respond(200, octets)
        response.head += line(b"vary", b"Accept-Encoding") + (line(b"content-encoding", b"gzip") if has_gzip else b"")
        response.head += leads_to(self._site.url(capability_list_name(name)))
        return response

    def _follow(self) -> None:
        """Have each thread follow its set from time to time."""
        while not self._ends.is_set():
            for one in self._answers.values():
                one.worker.submit(one.follow)
            self._ends.wait(_FOLLOW_SECONDS)
