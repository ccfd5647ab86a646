"""The client of a SPARQL 1.1 endpoint: updates and queries by POST, over one connection, within bounds.

An update is sent again where no answer came: whoever calls sends only such as do no harm when they are done twice.
No redirect is followed, so that credentials go to the endpoint alone. Rows of answers come as TSV, with every term as
N-Triples has it.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from headwater.errors import StoreFault, UsageFault
from headwater.retry import LONGEST_WAIT_SECONDS, retry_after_seconds

Row = tuple[str | None, ...]
"""A term for each variable; None where it is unbound."""

_XSD: Final = "http://www.w3.org/2001/XMLSchema#"
_LITERAL = re.compile(r'"[^"\\\n\r]*+(?:\\.[^"\\\n\r]*+)*+"(?:@[A-Za-z0-9-]+|\^\^<[^<>"{}|^`\\\x00-\x20]+>)?')
_IRI = re.compile(r'<[^<>"{}|^`\x00-\x20]*>')
_BLANK = re.compile(r"_:\S+")
_ABBREVIATED = (
    (re.compile(r"[+-]?[0-9]+"), "integer"),
    (re.compile(r"[+-]?[0-9]*\.[0-9]+"), "decimal"),
    (re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?[0-9]+"), "double"),
    (re.compile(r"true|false"), "boolean"),
)


class EndpointUnreachable(StoreFault):
    """The SPARQL endpoint does not answer, or breaks off."""

    code = "HW-SPQ-02"


class EndpointRefused(StoreFault):
    """The SPARQL endpoint refuses: it is read-only, wants other credentials, or does not take what it is asked."""

    code = "HW-SPQ-03"


class UpdateTooLarge(EndpointRefused):
    """The SPARQL endpoint, or a proxy before it, takes no request of this size."""

    code = "HW-SPQ-06"


class BadRow(ValueError):
    """A line is no row of the TSV format."""


def rows(lines: Iterable[bytes]) -> Iterator[Row]:
    """The rows after the line of variables. Raises BadRow where the lines are something else."""
    count = None
    for line in lines:
        try:
            text = line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as cause:
            raise BadRow("the answer is not UTF-8") from cause
        fields = text.split("\t")
        if count is None:
            if not all(name[:1] in ("?", "$") for name in fields):
                raise BadRow(f"the answer begins with {text[:100]!r}, not with variables")
            count = len(fields)
            continue
        if len(fields) != count:
            raise BadRow(f"a row has {len(fields)} terms, not {count}: {text[:100]!r}")
        yield tuple(map(_term, fields))
    if count is None:
        raise BadRow("the answer is empty")


def _term(text: str) -> str | None:
    """A term as N-Triples has it: numbers and booleans may be abbreviated in TSV, as in Turtle."""
    if not text:
        return None
    for pattern in (_IRI, _LITERAL, _BLANK):
        if pattern.fullmatch(text):
            return text
    for pattern, name in _ABBREVIATED:
        if pattern.fullmatch(text):
            return f'"{text}"^^<{_XSD}{name}>'
    raise BadRow(f"{text[:100]!r} is no term")


ANSWER_SECONDS: Final = 300.0
"""How long an answer is waited for, and each part of it."""
LONGEST_LINE: Final = 16 << 20
"""Octets of one row of an answer."""
_LONGEST_SMALL: Final = 1 << 20
_TSV: Final = "text/tab-separated-values"
_PAUSES: Final = (0.5, 2.0, 5.0)
_NO_TLS: Final = "Begin the address with http://, or name the port at which the server speaks TLS."
_TOO_LARGE: Final = 413
_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class EndpointAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where an endpoint takes updates and queries. `authorization` is told to the origin of `update` alone."""

    update: str
    query: str | None = None
    """None: as `update`."""

    authorization: str | None = None
    tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"EndpointAddress(update={self.update!r}, query={self.query!r})"


class SparqlEndpoint:
    """A SPARQL endpoint. Raises StoreFault (`faults.py`) where it does not do what it is asked."""

    def __init__(self, address: EndpointAddress, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._update = _parts(address.update)
        self._query = _parts(address.query or address.update)
        self._address = address
        self._sleep = sleep
        self._connections: dict[tuple[str, str], HTTPConnection] = {}

    def close(self) -> None:
        """Give up the connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def update(self, text: str) -> None:
        """Carry out an update; it may be carried out twice."""
        answer = self._persist(self._update, "application/sparql-update", text, "*/*")
        body = answer.read(_LONGEST_SMALL)
        if answer.read(1):
            self.close()
        if b"<html" in body[:1000].lower():
            raise StoreFault("a page is answered to an update", code="HW-SPQ-04", where=self._address.update)

    def rows(self, query: str) -> Iterator[Row]:
        """The rows of a SELECT query, as they come; each term as in N-Triples, but perhaps in another form."""
        answer = self._persist(self._query, "application/sparql-query", query, _TSV)
        where = self._query.geturl()
        kind = (answer.getheader("content-type") or "").partition(";")[0].strip().lower()
        if kind != _TSV:
            self.close()
            raise StoreFault(
                f"the answer is of the type {kind[:80] or 'nothing'!r}, asked for is {_TSV}",
                code="HW-SPQ-04",
                where=where,
            )
        try:
            yield from rows(_lines(answer))
        except BadRow as cause:
            raise StoreFault(str(cause), code="HW-SPQ-04", where=where) from cause
        except (OSError, HTTPException) as cause:
            raise EndpointUnreachable(f"an answer broke off: {_reason(cause)}", where=where) from cause
        finally:
            if not answer.isclosed():
                self.close()

    def value(self, query: str) -> str | None:
        """The first term of the first row; None where there is no row."""
        with closing(self.rows(query)) as found:  # type: ignore[type-var]  # a generator
            first = next(found, None)
        return first[0] if first else None

    def _persist(self, target: SplitResult, media_type: str, text: str, accept: str) -> HTTPResponse:
        """The answer to one request, tried again as long as that may help. Raises StoreFault."""
        where, said = target.geturl(), ""
        for pause in (*_PAUSES, None):
            asked = 0.0
            try:
                answer = self._once(target, media_type, text, accept)
            except ssl.SSLCertVerificationError as cause:
                self.close()
                what = f"the certificate of the endpoint is not believed: {cause.verify_message}"
                raise EndpointUnreachable(what, where=where) from cause
            except (OSError, HTTPException) as cause:
                self.close()
                if getattr(cause, "reason", None) == "WRONG_VERSION_NUMBER":
                    what = "what answers there does not speak TLS"
                    raise EndpointUnreachable(what, where=where, advice=_NO_TLS) from cause
                said = f"no answer: {_reason(cause)}"
            else:
                if 200 <= answer.status < 300:
                    return answer
                with suppress(OSError, HTTPException):
                    said = f"HTTP status {answer.status}: {_words(answer.read(2000))}"
                self.close()
                if answer.status == _TOO_LARGE:
                    raise UpdateTooLarge(f"the endpoint refuses: {said}", where=where)
                if answer.status not in _AGAIN:
                    raise EndpointRefused(f"the endpoint refuses: {said}", where=where)
                field, date = answer.getheader("retry-after"), answer.getheader("date")
                asked = retry_after_seconds(field, date, time.time()) or 0.0
                if asked > LONGEST_WAIT_SECONDS:
                    said += f" (it asks to be left alone for {asked:,.0f} s)"
                    break
            if pause is not None:
                self._sleep(max(pause, asked))
        raise EndpointUnreachable(said, where=where)

    def _once(self, target: SplitResult, media_type: str, text: str, accept: str) -> HTTPResponse:
        connection = self._connections.get((target.scheme, target.netloc))
        if connection is None:
            connection = self._connections[target.scheme, target.netloc] = self._connected(target)
        headers = {"content-type": f"{media_type}; charset=utf-8", "accept": accept}
        own = (target.scheme, target.netloc) == (self._update.scheme, self._update.netloc)
        if self._address.authorization is not None and own:
            headers["authorization"] = self._address.authorization
        path = (target.path or "/") + (f"?{target.query}" if target.query else "")
        connection.request("POST", path, text.encode(), headers)
        return connection.getresponse()

    def _connected(self, target: SplitResult) -> HTTPConnection:
        host = target.hostname or ""
        if target.scheme == "http":
            return HTTPConnection(host, target.port, timeout=ANSWER_SECONDS)
        return HTTPSConnection(host, target.port, timeout=ANSWER_SECONDS, context=self._address.tls)


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as cause:
        raise UsageFault("not the address of a SPARQL endpoint", code="HW-SPQ-01", where=url[:200]) from cause
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.fragment:
        raise UsageFault("not the address of a SPARQL endpoint", code="HW-SPQ-01", where=url[:200])
    return parts


def _lines(answer: HTTPResponse) -> Iterator[bytes]:
    while line := answer.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise BadRow(f"a row is longer than {LONGEST_LINE:,} octets")
        yield line
    if answer.length:
        raise BadRow("the answer ends too early")


def _reason(cause: Exception) -> str:
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__


def _words(body: bytes) -> str:
    """What the endpoint says, in a line."""
    text = " ".join(body.decode("utf-8", "replace").split())
    return "".join(c if c.isprintable() else "?" for c in text)[:300] or "nothing said"
