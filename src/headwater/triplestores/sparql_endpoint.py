"""The client of a SPARQL 1.1 endpoint: updates and queries by POST, within bounds.

An update is sent again where no answer came: whoever calls sends only such as do no harm when they are done twice.
No redirect is followed, so that credentials go to the endpoint alone. Rows of answers come as TSV, or as JSON where an
endpoint has no TSV, of at most 16 MiB a row, with every term as N-Triples has it.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from typing import IO, Final, cast
from urllib.parse import urlsplit

import msgspec
from pyoxigraph import QueryResultsFormat, QuerySolutions, parse_query_results

from headwater.errors import StoreFault, UsageFault
from headwater.rdf.statements import OctetStream
from headwater.retry import LONGEST_WAIT_SECONDS
from headwater.transport.access import SignInCredentials
from headwater.transport.fetch import FailureKind, Fetch, Fetched, TransportOptions
from headwater.transport.scheduler import RETRIED_STATUSES
from headwater.transport.transport import StreamBroken, Transport

Row = tuple[str | None, ...]
"""A term for each variable; None where it is unbound."""


_LONGEST_HEAD: Final = 16 << 20
"""Octets up to the names of variables: rows that come before them in JSON are kept in memory."""


class UpdateTooLarge(StoreFault):
    """The SPARQL endpoint, or a proxy before it, takes no request of this size."""

    code = "HW-SPQ-06"


def rows(chunks: Iterable[bytes], form: QueryResultsFormat = QueryResultsFormat.TSV) -> Iterator[Row]:
    """The rows of an answer in this format. Raises SyntaxError, ValueError or MemoryError where it is none."""
    left: float = _LONGEST_HEAD

    def pieces() -> Iterator[bytes]:
        nonlocal left
        for piece in chunks:
            yield piece
            left -= len(piece)
            if left < 0:
                raise MemoryError("rows come before the variables")

    found = parse_query_results(cast("IO[bytes]", OctetStream(pieces())), form)
    if not isinstance(found, QuerySolutions) or not found.variables:
        raise ValueError("there are no variables")
    left = math.inf
    try:
        for row in found:
            yield tuple(None if term is None else str(term) for term in row)
    finally:
        del found  # it is dropped in this thread, wherever a fault is kept


ANSWER_SECONDS: Final = 300
"""How long an answer is waited for, and each part of it."""
_PATIENT: Final = TransportOptions(stall_timeout_seconds=ANSWER_SECONDS)
_FORMS: Final = {form.media_type.partition(";")[0]: form for form in (QueryResultsFormat.TSV, QueryResultsFormat.JSON)}
_ACCEPT: Final = f"{', '.join(_FORMS)};q=0.5"
_NO_TLS: Final = "Begin the address with http://, or name the port at which the server speaks TLS."


class EndpointAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where an endpoint takes updates and queries. `authorization` is told to the origin of `update` alone."""

    update: str
    query: str | None = None  # None: as `update`
    authorization: str | None = None
    authorities: str | None = None  # a file of certificate authorities that are believed beside those of the machine

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"EndpointAddress(update={self.update!r}, query={self.query!r})"


class SparqlEndpoint:
    """A SPARQL endpoint. Raises StoreFault where it does not do what it is asked."""

    def __init__(self, address: EndpointAddress, transport: TransportOptions | None = None) -> None:
        self._update = address.update
        self._query = address.query or address.update
        for url in (self._update, self._query):
            is_usable = False
            with suppress(ValueError):
                parts = urlsplit(url)
                _ = parts.port
                has_host = parts.scheme in ("http", "https") and bool(parts.hostname)
                is_usable = has_host and not (parts.username or parts.fragment)
            if not is_usable:
                raise UsageFault("not the address of a SPARQL endpoint", code="HW-SPQ-01", where=url[:200])
        own = address.authorization
        credentials = None if own is None else SignInCredentials(address.update, own)
        self._transport = Transport(
            msgspec.structs.replace(
                transport or _PATIENT,
                credentials=credentials,
                authorities=address.authorities,
                proxy="",  # none, not even that of the environment
            )
        )

    def close(self) -> None:
        """Give up the connections."""
        self._transport.close()

    def update(self, text: str) -> None:
        """Carry out an update; it may be carried out twice."""
        answer = self._transport.one(_post(self._update, "application/sparql-update", text, "*/*"))
        _check(answer)
        if b"<html" in answer.body[:1000].lower():
            raise StoreFault("the answer to an update is a web page", code="HW-SPQ-04", where=self._update)

    def rows(self, query: str) -> Iterator[Row]:
        """The rows of a SELECT query, as they come; each term as in N-Triples, but perhaps in another form."""
        fetch = _post(self._query, "application/sparql-query", query, _ACCEPT)
        with self._transport.stream(fetch) as (answer, chunks):
            _check(answer)
            yield from self._rows(answer, chunks)

    def _rows(self, answer: Fetched, chunks: Iterable[bytes]) -> Iterator[Row]:
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in _FORMS:
            said = f"the endpoint cannot answer SELECT in TSV or JSON: it answers {kind[:80] or 'no type'!r}"
            raise StoreFault(said, code="HW-SPQ-04", where=self._query)
        try:
            yield from rows(chunks, _FORMS[kind])
        except (SyntaxError, ValueError, MemoryError) as cause:
            said = f"the answer is no rows: {str(cause)[:300]}"
            raise StoreFault(said, code="HW-SPQ-04", where=self._query) from cause
        except StreamBroken as cause:
            raise StoreFault(f"an answer broke off: {cause.what}", code="HW-SPQ-02", where=self._query) from cause

    def value(self, query: str) -> str | None:
        """The first term of the first row; None where there is no row."""
        with closing(self.rows(query)) as found:  # type: ignore[type-var]  # a generator
            first = next(found, None)
        return first[0] if first else None


def _post(url: str, media_type: str, text: str, accept: str) -> Fetch:
    """A request that follows no redirect, so that credentials go to the endpoint alone."""
    headers = (("Content-Type", f"{media_type}; charset=utf-8"), ("Accept", accept))
    no_redirect: Callable[[str], str] = lambda _target: "Headwater follows no redirect of an endpoint"  # noqa: E731
    return Fetch(url, headers, "POST", text.encode(), max_octets=1 << 62, objection=no_redirect)


def _check(answer: Fetched) -> None:
    """Raise StoreFault where the answer is no 2xx, and trying again has not helped."""
    failure, where = answer.failure, answer.uri
    if failure is None and 200 <= answer.status < 300:
        return
    words = " ".join(answer.body[:2000].decode("utf-8", "replace").split())
    words = "".join(c if c.isprintable() else "?" for c in words)[:300] or "nothing said"
    said = failure.text if failure else f"HTTP status {answer.status}: {words}"
    if answer.status == 413:
        raise UpdateTooLarge(f"the endpoint refuses: {said}", where=where)
    if failure.kind is FailureKind.REDIRECT_REFUSED if failure else answer.status not in RETRIED_STATUSES:
        raise StoreFault(f"the endpoint refuses: {said}", code="HW-SPQ-03", where=where)
    if (asked := answer.retry_after_seconds or 0.0) > LONGEST_WAIT_SECONDS:
        said += f" (it asks to be left alone for {asked:,.0f} s)"
    advice = _NO_TLS if "does not speak TLS" in said else None
    raise StoreFault(f"no answer: {said}" if failure else said, code="HW-SPQ-02", where=where, advice=advice)
