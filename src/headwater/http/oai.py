"""OAI-PMH 2.0 at `/S/oai`: the six verbs over the index of a set (`publish/oai_index.py`), asked by GET or POST.

A resumption token is the whole question and the place reached, in text: the server remembers nothing of it, and it may
be asked again at any time, of any process.

An answer has every change up to its date, since clients go on from there: while the index is behind, there is none.
"""

import base64
import datetime as dt
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from headwater.errors import HeadwaterError, bug
from headwater.http import responses
from headwater.http.requests import accepts_gzip, read_body
from headwater.http.responses import CLOSE, Response, leads_to, line
from headwater.http.routes import REVALIDATE, HttpRequest, Route
from headwater.notify.hub.policy import RequestRefusal
from headwater.publish.oai_index import IndexBehind, IndexSnapshot, ListedRecord, ListPlace, OaiIndex
from headwater.publish.oai_records import OAI, XSI, datestamp, element, is_spec
from headwater.publish.site import OAI as ADDRESS
from headwater.publish.site import SOURCE_DESCRIPTION, Site, capability_list_name
from headwater.spec.checks import NOT_XML, escape
from headwater.spec.kinds import RS
from headwater.spec.times import SECOND, to_microseconds
from headwater.storage.gzip_member import GzipCompressor
from headwater.storage.gzip_member import header as gzip_header
from headwater.typed_decoding import from_json

RECORDS, HEADERS, SETS = 500, 1_000, 1_000  # so many has a page at most …
PAGE_OCTETS: Final = 2 << 20  # … and so many octets, unless one record has more
_QUERY_OCTETS: Final = 65_536
_FOLLOW_SECONDS = 5.0
_FOREVER_US: Final = (1 << 63) - 1
Arguments = Mapping[str, str]


class OaiError(Exception):
    """An answer that is an error of the protocol, with one of its eight codes."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


_bad_argument: Final = partial(OaiError, "badArgument")


def read_arguments(query: bytes) -> dict[str, str]:
    """The arguments of a request. Raises OaiError for what the protocol does not have, or has once."""
    try:
        pairs = parse_qsl(query.decode(), keep_blank_values=True, errors="strict", max_num_fields=20)
    except ValueError:
        raise _bad_argument("the arguments are no form in UTF-8, or there are too many") from None
    verbs, arguments = [value for name, value in pairs if name == "verb"], dict(pairs)
    if len(verbs) != 1 or verbs[0] not in _VERBS:
        raise OaiError("badVerb", f"verb is once one of {', '.join(_VERBS)}")
    if len(arguments) != len(pairs) or not _VERBS[verbs[0]].allows(arguments.keys() - {"verb"}):
        raise _bad_argument(f"{verbs[0]} has, each once: {_VERBS[verbs[0]].forms or 'nothing'}")
    if any(map(NOT_XML.search, arguments.values())):
        raise _bad_argument("an argument has a character that XML does not have")
    return arguments


_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\dZ)?", re.ASCII)


def _span(text: str) -> tuple[int, int]:
    """The microseconds [start, end) of a day or a second. Raises OaiError."""
    try:
        if _TIME.fullmatch(text):
            start = to_microseconds(dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC))
            return start, start + SECOND * (1 if "T" in text else 86_400)
    except ValueError:
        pass
    raise _bad_argument("from or until is no time such as 2026-01-31 or 2026-01-31T12:00:00Z")


def window(arguments: Arguments) -> tuple[int, int]:
    """The microseconds [from, until) that `from` and `until`, both included, mean. Raises OaiError."""
    from_, until = arguments.get("from"), arguments.get("until")
    if from_ is not None and until is not None and (len(from_) != len(until) or from_ > until):
        raise _bad_argument("from and until differ in granularity, or from is later than until")
    return 0 if from_ is None else _span(from_)[0], _FOREVER_US if until is None else _span(until)[1]


class Token(ListPlace, frozen=True, array_like=True):
    """A place in the list of a `verb`, when `cursor` of its records were sent."""

    verb: str = ""
    cursor: int = 0

    @classmethod
    def read(cls, arguments: Arguments) -> "Token | None":
        """The token of a request; None: its list begins. Raises OaiError."""
        text = arguments.get("resumptionToken")
        if text is None:
            return None
        with suppress(ValueError, msgspec.DecodeError):
            token = from_json(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), cls)
            if token.verb == arguments["verb"]:
                return token
        raise OaiError("badResumptionToken", "this is no token of this list")

    def page(self, told: Sequence[bytes], **last: object) -> bytes:
        """What follows in the list, with the token to go on with behind the `last` place; without one it ends."""
        following = msgspec.structs.replace(self, cursor=self.cursor + len(told), **last)
        text = base64.urlsafe_b64encode(msgspec.json.encode(following)).decode().rstrip("=") if last else ""
        end = f'<resumptionToken cursor="{self.cursor}">{text}</resumptionToken>' if self.cursor or last else ""
        return b"".join((*told, end.encode()))


_RS_SCHEMA: Final = "http://www.openarchives.org/rs/1.1/resourcesync.xsd"
_START: Final = (
    f'<?xml version="1.0" encoding="UTF-8"?>\n<OAI-PMH xmlns="{OAI}" xmlns:xsi="{XSI}"'
    f' xsi:schemaLocation="{OAI} {OAI}OAI-PMH.xsd">'
).encode()


class OaiEndpoint:
    """Answers requests for the sets of these indexes, in threads of its own: an index may wait for slow files."""

    def __init__(
        self,
        site: Site,
        indexes: Mapping[str, OaiIndex],
        on_fault: Callable[[HeadwaterError], None] = lambda _fault: None,
    ) -> None:
        self._site, self._indexes, self._on_fault = site, indexes, on_fault
        self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="headwater-ask-oai")
        self._ends = threading.Event()
        self._follower = threading.Thread(target=self._follow, name="headwater-oai", daemon=True)
        self._follower.start()

    def close(self) -> None:
        """Give up the threads and the indexes."""
        self._ends.set()
        self._follower.join()
        self._threads.shutdown(cancel_futures=True)
        for one in self._indexes.values():
            one.close()

    def routes(self) -> Iterator[Route]:
        """The rows of the endpoint."""
        for method in ("GET", "POST"):
            yield Route(
                name="oai",
                method=method,
                pattern=f"/{{set}}/{ADDRESS}",
                handler=self.answer,
                media_type=b"text/xml; charset=utf-8",
                cache=REVALIDATE,
                when_published=True,
            )

    async def answer(self, request: HttpRequest) -> Response:
        """The answer to a request; 503 while much is missing in the index."""
        name, query = request.match.set_name or "", request.scope.get("query_string", b"")
        if name not in self._indexes:
            return responses.text(404, "the set does not answer OAI-PMH")
        if request.method == "POST":
            body = await read_body(request.scope, request.receive, _QUERY_OCTETS)
            if isinstance(body, RequestRefusal):
                return responses.text(body.status, body.text, CLOSE)
            query = b"&".join(filter(None, (query, body)))
        has_gzip = accepts_gzip(request.fields.accept_encoding)
        try:
            octets = await request.access.ask(self._octets, name, query, has_gzip, threads=self._threads)
        except IndexBehind:
            said = "the records are being prepared; try again in a moment"
            return responses.text(503, said, line(b"retry-after", b"5"))
        response = request.respond(200, octets)
        response.head += line(b"vary", b"Accept-Encoding") + (line(b"content-encoding", b"gzip") if has_gzip else b"")
        response.head += leads_to(self._site.url(capability_list_name(name)))
        return response

    def _follow(self) -> None:
        """Bring each index up to date, also while nobody asks: a batch of one after another."""
        told = set[str]()
        while not self._ends.is_set():
            is_behind = False
            for name, one in self._indexes.items():
                try:
                    is_behind = one.follow(dt.datetime.now(dt.UTC)) or is_behind
                except (HeadwaterError, OSError):
                    pass  # who asks is told
                except Exception as error:  # noqa: BLE001 - a thread's last frame: the others go on, and this one later
                    if name not in told:
                        told.add(name)
                        self._on_fault(bug(error))
            self._ends.wait(0 if is_behind else _FOLLOW_SECONDS)

    def _octets(self, name: str, query: bytes, has_gzip: bool) -> bytes:  # noqa: FBT001
        """The document that answers a query, as the set is now. Raises IndexBehind."""
        arguments: Arguments = {}
        with self._indexes[name].snapshot(dt.datetime.now(dt.UTC)) as index:
            date = element("responseDate", datestamp(to_microseconds(index.at)))
            try:
                arguments = read_arguments(query)
                verb = arguments["verb"]
                content = b"<%b>%b</%b>" % (verb.encode(), _VERBS[verb].answer(self, index, arguments), verb.encode())
            except OaiError as error:
                arguments = {} if error.code == "badArgument" else arguments
                content = f'<error code="{error.code}">{escape(str(error))}</error>'.encode()
        given = "".join(f' {name}="{escape(text)}"' for name, text in arguments.items())
        asked = f"<request{given}>{escape(self._url(index))}</request>".encode()
        octets = b"".join((_START, date, asked, content, b"</OAI-PMH>\n"))
        if not has_gzip:
            return octets
        compressor = GzipCompressor()
        return gzip_header("") + compressor.add(octets) + compressor.finish()

    def _url(self, index: IndexSnapshot) -> str:
        return self._site.url(f"{index.of.name}/{ADDRESS}")

    def _title(self, index: IndexSnapshot) -> str:
        return self._site.settings(index.of.name).title or self._site.title or index.of.name

    def identify(self, index: IndexSnapshot, _arguments: Arguments) -> bytes:
        """What `Identify` tells, and where the Source Description is."""
        opened_at = index.of.catalog.state(index.of.name).opened_at
        told = (
            ("repositoryName", self._title(index)),
            ("baseURL", self._url(index)),
            ("protocolVersion", "2.0"),
            ("adminEmail", index.of.admin),
            ("earliestDatestamp", datestamp(0 if opened_at is None else to_microseconds(opened_at))),
            ("deletedRecord", "persistent"),
            ("granularity", "YYYY-MM-DDThh:mm:ssZ"),
            ("compression", "gzip"),
        )
        about = escape(self._site.url(SOURCE_DESCRIPTION))
        described = f'<rs:ln xmlns:rs="{RS}" xsi:schemaLocation="{RS} {_RS_SCHEMA}" rel="resourcesync" href="{about}"/>'
        return _elements(told) + f"<description>{described}</description>".encode()

    def formats(self, index: IndexSnapshot, arguments: Arguments) -> bytes:
        """All formats, or those of an item."""
        found = index.formats()
        if (item := arguments.get("identifier")) is not None:
            alive = {one.prefix for one in _records(index, item) if not one.is_deleted}
            found = [one for one in found if one.prefix in alive]
        if not found:
            raise OaiError("noMetadataFormats", "the item is deleted")
        names = "metadataPrefix", "schema", "metadataNamespace"
        return b"".join(
            b"<metadataFormat>%b</metadataFormat>" % _elements(zip(names, one, strict=True)) for one in found
        )

    def sets(self, index: IndexSnapshot, arguments: Arguments) -> bytes:
        """A page of the sets: the first one is the whole, the others are collections."""
        token = Token.read(arguments) or Token("", "", 0, 0, verb="ListSets")
        found = index.collections(token.spec, SETS + 1)
        told = [] if token.cursor else [(index.of.name, self._title(index))]
        told += found[:SETS]
        body = [b"<set>%b</set>" % _elements(zip(("setSpec", "setName"), one, strict=True)) for one in told]
        return token.page(body, **({"spec": told[-1][0]} if len(found) > SETS else {}))

    def record(self, index: IndexSnapshot, arguments: Arguments) -> bytes:
        """One record."""
        for one in _records(index, arguments["identifier"]):
            if one.prefix == arguments["metadataPrefix"]:
                return one.octets
        raise OaiError("cannotDisseminateFormat", "the item does not have this format")

    def records(self, index: IndexSnapshot, arguments: Arguments) -> bytes:
        """A page of records, or of their headers."""
        code, token = "badResumptionToken", Token.read(arguments)
        if token is None:
            code, spec = "cannotDisseminateFormat", arguments.get("set", index.of.name)
            from_us, until_us = window(arguments)
            if not is_spec(spec):
                raise _bad_argument("set is no setSpec")
            token = Token(arguments["metadataPrefix"], spec, until_us, from_us, verb=arguments["verb"])
        if not index.has_format(token.prefix):
            raise OaiError(code, "no item has this format")
        limit, headers_only = (HEADERS, True) if token.verb == "ListIdentifiers" else (RECORDS, False)
        found, has_more = index.listed(token, limit, PAGE_OCTETS, headers_only=headers_only)
        if not found and not token.cursor:
            raise OaiError("noRecordsMatch", "there is no such record")
        last = {"at_us": found[-1].at_us, "item": found[-1].item} if has_more else {}
        return token.page([one.octets for one in found], **last)


def _records(index: IndexSnapshot, item: str) -> list[ListedRecord]:
    """The records of an item. Raises OaiError where there are none."""
    if found := index.records(item):
        return found
    raise OaiError("idDoesNotExist", "there is no such item")


def _elements(told: Iterable[tuple[str, str]]) -> bytes:
    return b"".join(element(*one) for one in told)


class _Verb(NamedTuple):
    """A verb: what answers it, and the forms of its arguments, with those that may be left out in brackets."""

    answer: Callable[[OaiEndpoint, IndexSnapshot, Arguments], bytes]
    forms: str = ""

    def allows(self, given: Set[str]) -> bool:
        """Whether arguments of these names are one of the forms."""
        texts = [form.split() for form in self.forms.split("|")]
        return any(
            {one for one in form if one[0] != "["} <= given <= {one.strip("[]") for one in form} for form in texts
        )


_LISTED: Final = _Verb(OaiEndpoint.records, "metadataPrefix [from] [until] [set] | resumptionToken")
_VERBS: Final = {
    "Identify": _Verb(OaiEndpoint.identify),
    "ListMetadataFormats": _Verb(OaiEndpoint.formats, "[identifier]"),
    "ListSets": _Verb(OaiEndpoint.sets, "[resumptionToken]"),
    "ListIdentifiers": _LISTED,
    "ListRecords": _LISTED,
    "GetRecord": _Verb(OaiEndpoint.record, "identifier metadataPrefix"),
}
