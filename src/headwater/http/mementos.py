"""Answers for past states of resources: mementos, TimeGates and TimeMaps (RFC 7089; RS-REL-08, RS-REL-09, RS-REL-10).

A moment is a second, as in `Accept-Datetime`: of several states within it, the last is meant. A moment before the first
state is answered with the first one, one at which the resource was deleted with 410. What the settings of the set do
not take is not there, whatever it was once.
"""

import datetime as dt
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from email.utils import formatdate
from urllib.parse import unquote_to_bytes

import msgspec

from headwater.catalog.content import Absence, NoContent, OpenContent, RecordedResource
from headwater.catalog.interface import Metadata, Resource
from headwater.files.file_copies import SMALL_OCTETS
from headwater.http import responses
from headwater.http.responses import Head, Representation, Response, content_lines, line, validators
from headwater.http.routes import BRIEF, IMMUTABLE, REVALIDATE, HttpRequest, Route
from headwater.publish.site import Site
from headwater.source.configured_source import ConfiguredSource
from headwater.spec.records import AbsenceReason, sha256_of
from headwater.spec.times import SECOND, from_microseconds, to_microseconds
from headwater.versions.history import History, Keeping, PastState, kept_after, kept_until, time_text

_LINK_FORMAT = "application/link-format"
PAGE_STATES = 1_000  # so many mementos one page of a TimeMap has at most


def _microseconds(text: str, form: str) -> int | None:
    """A time that is written in this form of `strptime`, as microseconds since 1970; None: it is none."""
    try:
        return to_microseconds(dt.datetime.strptime(text, form).replace(tzinfo=dt.UTC))
    except ValueError:
        return None


def _time_from(text: str) -> int | None:
    is_time = len(text) == 20 and text.isascii() and text.isdigit()
    return _microseconds(text, "%Y%m%d%H%M%S%f") if is_time else None


def http_date(at_us: int) -> str:
    """A time as HTTP writes it, to the second."""
    return formatdate(at_us // SECOND, usegmt=True)


class Addresses(msgspec.Struct, frozen=True):
    """The addresses of one resource, whose URI below the set's folder is `relative`, of its TimeGate and its TimeMap.

    Those of its states begin with `mementos`.
    """

    relative: str
    original: str
    timegate: str
    timemap: str
    mementos: str

    def memento(self, at_us: int) -> str:
        """Its state that began at this time."""
        return f"{self.mementos}/{time_text(at_us)}/{self.relative}"


def _addresses_of(site: Site, name: str, relative: str) -> Addresses:
    timegate, timemap = (site.url(f"{name}/{one}/{relative}") for one in ("timegate", "timemap"))
    return Addresses(relative, site.resource_prefix(name) + relative, timegate, timemap, site.url(f"{name}/memento"))


def _header_links(of: Addresses) -> str:
    return f'<{of.timegate}>; rel="timegate", <{of.timemap}>; rel="timemap"; type="{_LINK_FORMAT}"'


def _response_links(of: Addresses, mementos: Iterable[tuple[str, PastState]] = ()) -> bytes:
    """What a memento or a TimeGate says in `Link`: the original, TimeGate and TimeMap, and mementos by relation."""
    relations: dict[int, list[str]] = {}
    for relation, state in mementos:
        relations.setdefault(state.at_us, []).append(relation)
    links = [f'<{of.original}>; rel="original"', _header_links(of)]
    for at_us, names in relations.items():
        relation = " ".join(dict.fromkeys([*names, "memento"]))
        links.append(f'<{of.memento(at_us)}>; rel="{relation}"; datetime="{http_date(at_us)}"')
    return ", ".join(links).encode("ascii")


def timemap(
    of: Addresses, states: Sequence[PastState], first: PastState, last: PastState, following: int | None
) -> bytes:
    """One page of a TimeMap (RFC 7089 5): mementos in the order of their times; `following` begins the next page."""
    own = of.timemap if states[0].at_us == first.at_us else f"{of.timemap}?from={time_text(states[0].at_us)}"
    span = f'from="{http_date(states[0].at_us)}"; until="{http_date(states[-1].at_us)}"'
    lines = [
        f'<{of.original}>; rel="original"',
        f'<{own}>; rel="self"; type="{_LINK_FORMAT}"; {span}',
        f'<{of.timegate}>; rel="timegate"',
    ]
    if following is not None:
        href = f"{of.timemap}?from={time_text(following)}"
        lines.append(f'<{href}>; rel="timemap"; type="{_LINK_FORMAT}"; from="{http_date(following)}"')
    for state in states:
        relation = ("first " if state.at_us == first.at_us else "") + ("last " if state.at_us == last.at_us else "")
        lines.append(f'<{of.memento(state.at_us)}>; rel="{relation}memento"; datetime="{http_date(state.at_us)}"')
    return (",\n".join(lines) + "\n").encode("ascii")


class PastStates:
    """What the resources of sets with a history were; octets of past states are known by their SHA-256.

    What the settings of a set do not take is not there, whatever it was once.
    """

    def __init__(self, source: ConfiguredSource) -> None:
        self.site = source.site
        self.histories: Mapping[str, History] = source.histories
        self.takes = source.takes
        self._catalog, self._versions, self._contents = source.catalog, source.versions, source.contents

    def at(self, name: str, at_us: int, uris: Sequence[str]) -> Mapping[str, Resource | AbsenceReason]:
        """The resources of a set as they were, by their URIs as the catalog has them, or why there are none."""
        taken = [uri for uri in uris if "://" not in uri and self.takes(name, unquote_to_bytes(uri))]
        states: dict[str, Resource | AbsenceReason] = {uri: absence_of(uri) for uri in uris}
        for uri, state in self.histories[name].each_until(taken, at_us).items():
            states[uri] = past_resource(uri, state) if state.is_kept else _NO_OCTETS[state.keeping]
        return states

    def open(self, set_name: str, resource: RecordedResource) -> OpenContent | NoContent:
        """The octets of a resource in this state; `GONE` when they are no longer kept."""
        digest = sha256_of(resource.metadata.hash)
        content = self._versions.open(digest)
        if content is not None:
            if resource.metadata.length in (None, content.octets):
                return content
            content.close()
        held = self._catalog.get(set_name, [resource.uri]).get(resource.uri)
        if held is not None and sha256_of(held.metadata.hash) == digest:
            found = self._contents.open(set_name, held)
            if not isinstance(found, NoContent):
                if found.is_vouched:
                    return found
                found.close()
        return NoContent(Absence.GONE)


_NO_OCTETS = {Keeping.DELETED: AbsenceReason.DELETED, Keeping.LOST: AbsenceReason.GONE}


def absence_of(uri: str) -> AbsenceReason:
    """Why there is no resource at a URI that nothing is known of."""
    return AbsenceReason.UNKNOWN if "://" not in uri else AbsenceReason.ELSEWHERE


class HashedOctets:
    """Octets that are hashed as they are read from the beginning to the end: only then do they count as unchanged."""

    def __init__(self, content: OpenContent, digest: str) -> None:
        self.octets = content.octets
        self._content = content
        self._digest = digest
        self._hasher = hashlib.sha256()
        self._hashed = 0

    def read(self, start: int, octets: int) -> bytes:
        """Up to so many octets from `start`, which is where the last ones ended."""
        data = self._content.read(start, octets)
        if start == self._hashed:
            self._hasher.update(data)
            self._hashed += len(data)
        return data

    def is_unchanged(self) -> bool:
        """Whether all have been read, and have their SHA-256."""
        return self._hashed == self.octets and self._hasher.hexdigest() == self._digest

    def close(self) -> None:
        """Give the content back."""
        self._content.close()


def past_resource(uri: str, state: PastState) -> Resource:
    """A state as the catalog would have recorded it."""
    lastmod = None if state.lastmod_us is None else from_microseconds(state.lastmod_us)
    stated = Metadata(
        lastmod=lastmod, hash=f"sha-256:{state.digest}", length=state.length, type=state.type, encoding=state.encoding
    )
    return Resource(uri, stated, b"", 0, 0)


_ALL_US = 1 << 62
_VARY = line(b"vary", b"accept-datetime")
_GONE = {
    Keeping.DELETED: "the resource was deleted at that time",
    Keeping.LOST: "the resource had another state at that time, but its content could not be kept",
    Keeping.KEPT: "the content of this state is no longer kept",
}
_Answer = Callable[[HttpRequest, History, Addresses, str], Response]
"""Answers for the states of one resource; of a memento, with the 20 digits of its time."""


class VersionEndpoint(msgspec.Struct, frozen=True):
    """Answers for the sets with a history."""

    _past: PastStates

    def routes(self) -> tuple[Route, ...]:
        """The rows of the endpoint; none when no set has a history."""
        if not self._past.histories:
            return ()
        return (
            self._row("memento", self._memento),
            self._row("timegate", self._timegate),
            self._row("timemap", self._timemap, media_type=_LINK_FORMAT.encode("ascii"), cache=REVALIDATE),
        )

    def links(self, set_name: str, relative: str) -> Head:
        """The `Link` header by which a resource leads to its past; empty where it has none (RFC 7089 2.2)."""
        if set_name not in self._past.histories or "://" in relative:
            return b""
        return line(b"link", _header_links(_addresses_of(self._past.site, set_name, relative)).encode("ascii"))

    def _row(self, name: str, answer: _Answer, *, media_type: bytes = b"", cache: bytes = b"") -> Route:
        async def handler(request: HttpRequest) -> Response:
            match = request.match
            set_name, uri, path, time = match.set_name, match.name, match.path, ""
            assert set_name is not None
            if name == "memento":
                time, _, uri = uri.partition("/")
                path = path.partition(b"/")[2]
            history = self._past.histories.get(set_name)
            if history is None or not uri or not self._past.takes(set_name, path):
                return _unknown()
            of = _addresses_of(self._past.site, set_name, uri)
            return await request.access.ask(answer, request, history, of, time)

        pattern = f"/{{set}}/{name}/{{path}}"
        return Route(
            name=name, pattern=pattern, handler=handler, media_type=media_type, cache=cache, when_published=True
        )

    def _timegate(self, request: HttpRequest, history: History, of: Addresses, _time: str) -> Response:
        asked, uri = request.fields.accept_datetime, of.relative
        if asked is None:
            found = kept_until(history, uri, _ALL_US)
        else:
            second = _microseconds(asked[:64].decode("latin-1").strip(), "%a, %d %b %Y %H:%M:%S GMT")
            if second is None:
                said = "Accept-Datetime is not an HTTP date; right is: Tue, 20 Mar 2001 20:35:00 GMT"
                return responses.text(400, said, _VARY)
            until_us = second + SECOND - 1  # the last microsecond of that second (RFC 7089 2.1.1.1)
            current = history.until(uri, until_us)
            if current and not current[0].is_kept:
                return self._gone(history, of, current[0], _VARY)
            found = current[0] if current else kept_after(history, uri, until_us)
        if found is None:
            return self._missing(history, of)
        head = line(b"location", of.memento(found.at_us).encode("ascii")) + _VARY
        head += line(b"link", _response_links(of)) + line(b"cache-control", BRIEF)
        return responses.text(302, "the state of that time", head)

    def _timemap(self, request: HttpRequest, history: History, of: Addresses, _time: str) -> Response:
        query, uri = bytes(request.scope.get("query_string", b"")), of.relative
        from_us: int | None = -_ALL_US
        if query:
            from_us = _time_from(query.removeprefix(b"from=").decode("latin-1")) if query.startswith(b"from=") else None
            if from_us is None:
                return responses.text(400, "a page of a TimeMap needs ?from= and 20 digits")
        assert from_us is not None
        first, last = kept_after(history, uri, -_ALL_US), kept_until(history, uri, _ALL_US)
        if first is None or last is None:
            return self._missing(history, of)
        begin = kept_after(history, uri, from_us - 1)
        if begin is None:
            links = line(b"link", _response_links(of))
            return responses.text(404, "the TimeMap has no page that begins so late", links)
        found = history.after(uri, begin.at_us - 1, PAGE_STATES + 1)
        states = [one for one in found[:PAGE_STATES] if one.is_kept]
        following = kept_after(history, uri, found[PAGE_STATES - 1].at_us) if len(found) > PAGE_STATES else None
        return request.respond(200, timemap(of, states, first, last, following.at_us if following else None))

    def _memento(self, request: HttpRequest, history: History, of: Addresses, time: str) -> Response:
        uri, at_us = of.relative, _time_from(time)
        if at_us is None:
            return _unknown()
        found = history.until(uri, at_us)
        if not found or found[0].at_us != at_us:
            floor = history.floor_us()
            if floor is not None and at_us < floor and (found or history.after(uri, at_us)):
                return responses.text(410, _GONE[Keeping.KEPT], line(b"link", _response_links(of)))
            return _unknown()
        state = found[0]
        set_name = request.match.set_name
        assert set_name is not None
        content = self._past.open(set_name, past_resource(uri, state)) if state.is_kept else None
        if content is None or isinstance(content, NoContent):
            return self._gone(history, of, state)
        response = None
        try:
            response = _content(state, content, of, _neighbours(history, uri, at_us), request)
            if response is None:
                return self._gone(history, of, state)
            return response
        finally:
            if response is None or response.file is None:
                content.close()

    def _missing(self, history: History, of: Addresses) -> Response:
        if history.until(of.relative, _ALL_US):
            return responses.text(410, "no state of this resource is kept", line(b"link", _response_links(of)) + _VARY)
        return _unknown(_VARY)

    def _gone(self, history: History, of: Addresses, state: PastState, head: Head = b"") -> Response:
        links = line(b"link", _response_links(of, _neighbours(history, of.relative, state.at_us)))
        return responses.text(410, _GONE[state.keeping], links + head)


def _unknown(head: Head = b"") -> Response:
    return responses.text(404, "no state of such a resource is known", head)


def _neighbours(history: History, uri: str, at_us: int) -> list[tuple[str, PastState]]:
    found = {
        "first": kept_after(history, uri, -_ALL_US),
        "prev": kept_until(history, uri, at_us - 1),
        "memento": next((one for one in history.until(uri, at_us) if one.at_us == at_us and one.is_kept), None),
        "next": kept_after(history, uri, at_us),
        "last": kept_until(history, uri, _ALL_US),
    }
    return [(relation, state) for relation, state in found.items() if state is not None]


def _content(
    state: PastState, content: OpenContent, of: Addresses, beside: list[tuple[str, PastState]], request: HttpRequest
) -> Response | None:
    """The memento (RFC 7089 2.1.1.2), whole or in part; None when a small one does not have its digest any more.

    Of a larger one that has not, the last octets are not sent: nobody takes it for whole.
    """
    etag = b'"%s"' % state.digest.encode("ascii")
    second = (state.lastmod_us if state.lastmod_us is not None else state.at_us) // SECOND
    form = Representation(
        etag=etag,
        modified_second=second,
        stated_second=second,
        octets=content.octets,
        content=content_lines(state.type, state.encoding) + line(b"x-content-type-options", b"nosniff"),
        unchanged=validators(etag, second)
        + line(b"memento-datetime", http_date(state.at_us).encode("ascii"))
        + line(b"link", _response_links(of, beside))
        + line(b"cache-control", IMMUTABLE),
    )
    response = form.answer(request.fields)
    if response.status in (304, 412):
        return response
    octets: bytes | None = None
    if content.octets <= SMALL_OCTETS:
        octets = content.read(0, content.octets)
        if hashlib.sha256(octets).hexdigest() != state.digest:
            return None
    if request.is_head or not response.wants_octets:
        return response
    if octets is None:
        is_whole = response.status == 200
        response.file = HashedOctets(content, state.digest) if is_whole else content
        response.is_promised = is_whole
    else:
        response.body = octets
    return response
