"""A response as it comes in: headers, then a body that is counted, bounded, hashed, written, and continued by ranges.

The transport lends its methods to libcurl as callbacks. They run once for each request at the least, so the way of a
small body is kept short: one list append when it comes, one hash and one write when it is complete.

Of a body that broke off the rest is asked for by a range (RFC 9110, 13.1.5 and 14). Only octets without a content
coding are kept, and only by a validator that is strong: a strong entity tag, or a `Last-Modified` that the own `Date`
of the answer makes one (8.8.2.2). What is put together is hashed from its first octet on, like any other body."""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from headwater.files.file_copies import Room, write_all, write_sparse
from headwater.files.hashing import HASHERS
from headwater.retry import http_second
from headwater.spec.decoding import codec_of
from headwater.spec.times import SECOND
from headwater.transport.fetch import FailureKind, Fetch, FetchFailure

if TYPE_CHECKING:
    from hashlib import _Hash


LEAST_PROGRESS_OCTETS = 64 * 1024
MOST_ROUNDS = 1000
"""A body comes in so many parts at most: each has this share of it, and so many octets, at the least. Less is no
progress, and counts as a failed try."""

_STRONG_AFTER_MICROS = 60 * 1_000_000  # a Last-Modified so long before Date is a strong validator
_BLOCK = 1 << 20
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})\Z", re.IGNORECASE)
MISFIT = FetchFailure(FailureKind.PROTOCOL, "the server sent another part than requested", passing=True)
"""What came of a request for the rest of a body: another try asks for all of it."""

_STRONG_TAG = re.compile(r'"[\x21\x23-\x7e\x80-\xff]*"\Z')


class PartialBody:
    """The beginning of a body and the digests of it, on its way from one try, or one run, to the next.

    Of one that is `lasting` the file `path` outlives the fetch: whatever is put together is verified by whoever asks,
    so that any host may send the rest. Of any other only the host `site` may, by the `validator`.
    """

    __slots__ = ("brought", "gained", "hashers", "lasting", "octets", "path", "site", "total", "validator")

    def __init__(self, path: str, total: int | None, validator: str | None = None, site: str = "") -> None:
        self.path = path
        self.total = total
        self.validator = validator
        self.site = site  # an entity tag tells states of one resource apart, not of two
        self.lasting = validator is None
        self.octets = 0
        self.brought = 0  # octets that an earlier run had received
        self.hashers: list[tuple[str, _Hash]] | None = None
        self.gained = 0  # octets of the last try

    def headers(self) -> list[tuple[str, str]]:
        """How the rest is asked for."""
        condition = [("If-Range", self.validator)] if self.validator is not None else []
        return [("Range", f"bytes={self.octets}-"), *condition]

    def open(self) -> int:
        """The file, to go on with it. Raises OSError when it is not what was left."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = os.fstat(descriptor)
            if (found.st_mode & 0o170000) != 0o100000 or found.st_nlink != 1 or found.st_size < self.octets:
                raise FileNotFoundError(f"the partial file was changed: {self.path}")
            os.ftruncate(descriptor, self.octets)
            os.lseek(descriptor, self.octets, os.SEEK_SET)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def remove(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def drop(self) -> None:
        """The fetch is over without a whole body: leave what another run can go on with."""
        if not self.lasting:
            self.remove()


def kept_part(fetch: Fetch) -> PartialBody | None:
    """What an earlier run has left of a body, digested anew; None: nothing of use."""
    path = fetch.keep or ""
    part, hashers = PartialBody(path, None), [(name, HASHERS[name]()) for name in fetch.algorithms]
    try:
        part.octets = part.brought = os.lstat(path).st_size
        with os.fdopen(part.open(), "rb", buffering=0) as file:
            file.seek(0)
            while block := file.read(_BLOCK):
                for _, hasher in hashers:
                    hasher.update(block)
    except OSError:
        return None
    part.hashers = hashers
    return part if part.octets else None


def http_date_micros(value: str | None) -> int | None:
    """An HTTP date as a number, or None when it is absent, no date, or before the year 100."""
    second = http_second(value)
    return None if second is None else second * SECOND


def has_ranges(headers: Mapping[str, str]) -> bool:
    """Whether parts of this answer could be asked for."""
    is_coded = headers.get("content-encoding", "identity").strip().lower() != "identity"
    return not is_coded and headers.get("accept-ranges", "").strip().lower() != "none"


def strong_validator(headers: Mapping[str, str]) -> str | None:
    """What `If-Range` may say of this answer; None: there is nothing by which its rest could be asked for."""
    if not has_ranges(headers):
        return None
    tag = headers.get("etag", "")
    if tag:
        return tag if _STRONG_TAG.match(tag) else None
    modified = headers.get("last-modified", "")
    at, answered = http_date_micros(modified), http_date_micros(headers.get("date"))
    if at is None or answered is None or answered - at < _STRONG_AFTER_MICROS or not modified.isprintable():
        return None
    return modified


def range_of(part: PartialBody, headers: Mapping[str, str], site: str) -> tuple[int, int] | None:
    """How many octets there are with a 206 from `site`, and how many in all; None: it is not the rest of `part`, nor
    the beginning of the rest.

    A server that does not know `If-Range` sends the rest of whatever it has by now: the answer has to repeat the
    validator, where there is one.
    """
    found = _RANGE.match(headers.get("content-range", "").strip())
    in_several = headers.get("content-type", "").lower().startswith("multipart/byteranges")
    if found is None or in_several or part.site not in ("", site) or not has_ranges(headers):
        return None
    first, last, total = map(int, found.groups())
    if first != part.octets or not first <= last < total or (part.total is not None and total != part.total):
        return None
    if part.validator not in (None, headers.get("etag"), headers.get("last-modified")):
        return None
    return last + 1, total


MAX_HEAD_LINES = 512
"""Header lines of one answer; real ones have under 50."""

MAX_HEAD_OCTETS = 256 * 1024
"""Octets of all header lines of one answer (libcurl's own limit is 300 KiB)."""

SMALL_OCTETS = 64 * 1024
"""A body up to this size is held until it is complete; a longer one goes to its file as it comes."""

_SHORT_LINE = 160
"""Octets of a header line that is worth remembering; a bound on what a server can make us keep."""

LASTING_OCTETS = 1 << 20
"""A body from this size on is kept over runs when it breaks off; a shorter one is sooner fetched than remembered."""

ERROR_BODY_OCTETS = 64 * 1024
"""More of a body that is no content (an error page, a redirect's text) is not listened to."""


_NO_CODINGS = frozenset(
    {"", "identity", "x-identity", "none", "null", "undefined", "false", "no", "off", "default", "plain", "text", "raw"}
    | {"7bit", "8bit", "binary", "base64", "quoted-printable", "chunked", "aws-chunked", "unicode", "utf-16", "utf16"}
    | {"zip", "pdf", "xml", "json", "html", "csv", "tar", "jpeg", "jpg", "png", "octet-stream"}
)
"""What storage services send as a content coding and is none, beside character encodings and media types (AMB-98): what
was once given to them."""

_NO_FIELD = frozenset(b"H \t\r\n")
"""Octets with which a header line may begin that is no field, or not only one."""


def parse_head(lines: deque[bytes]) -> tuple[int, dict[str, str]]:
    """Status and headers of the final answer's header block in `lines`; status 0 when there is none.

    Interim answers before it and trailers after it are left out.
    """
    status, inside, last = 0, False, ""
    headers: dict[str, str] = {}
    for line in lines:
        if not inside or line[0] in _NO_FIELD:
            if line.startswith(b"HTTP/"):
                number = line.split(None, 2)[1:2]
                status = int(number[0]) if number and len(number[0]) == 3 and number[0].isdigit() else 0
                status, headers, inside, last = status if status >= 200 else 0, {}, True, ""
                continue
            if not inside:
                continue
            if line in (b"\r\n", b"\n"):
                inside = False
                continue
            if line[0] in b" \t":  # obsolete line folding (RFC 9112, 5.2)
                headers[last] = f"{headers.get(last, '')} {line.strip().decode('latin-1')}"
                continue
        last, value = _known_field(line) if len(line) <= _SHORT_LINE else _field(line)
        headers[last] = f"{headers[last]}, {value}" if last in headers else value
    return status, headers


def _field(line: bytes) -> tuple[str, str]:
    if line[:1] in b" \t\r\n" or line.startswith(b"HTTP/"):
        return "", ""  # a line that goes on, an end, a beginning: no field
    name, _, text = line.partition(b":")
    return name.decode("latin-1").strip().lower(), text.strip().decode("latin-1")


_known_field = lru_cache(maxsize=1024)(_field)
"""Most lines of one server's answers are the same every time."""


class ResponseReceiver:
    """Receives one answer after another: `begin`, the callbacks `line` and `body`, then `complete` or `discard`."""

    delivering = False  # part of the body has been handed on already, so that the fetch cannot be repeated unseen

    def __init__(self) -> None:
        self.lines: deque[bytes] = deque(maxlen=MAX_HEAD_LINES)
        self.line = self.lines.append  # a builtin: libcurl's header callback costs next to nothing
        self.raised: BaseException | None = None
        self.room: Room | None = None
        self._descriptor = -1
        self._unfinished: str | None = None
        self._part: PartialBody | None = None

    def begin(self, fetch: Fetch, part: PartialBody | None = None, site: str = "") -> None:
        """Be ready for the answer of `site` to `fetch`, of which the rest after `part` is asked for."""
        self.fetch = fetch
        self.lines.clear()
        self.chunks: list[bytes] = []
        self.octets = 0
        self.cut = False
        self.held = False
        self.failure: FetchFailure | None = None
        self.status = 0
        self.headers: dict[str, str] = {}
        self._bound = min(SMALL_OCTETS, fetch.max_octets)
        self.hashers: list[tuple[str, _Hash]] | None = None
        self.resumed_at = 0
        self._asked = part
        self._site = site
        self._part = None
        self._end = 0

    def body(self, chunk: bytes) -> int | None:
        """libcurl's write callback: None takes the chunk, any other length than its own ends the transfer."""
        try:
            if self._asked is not None:
                self.read_head()
                if 200 <= self.status < 300 and not self._take_up():
                    return 0
            self.octets += len(chunk)
            if self.octets > self._bound and not self.goes_on():
                return 0
            self.chunks.append(chunk)
            if self.hashers is not None:  # from now on every chunk is hashed and written, if there is room
                data = self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)
                self.chunks.clear()
                for _, hasher in self.hashers:
                    hasher.update(data)
                if self.room is not None:
                    self.room.check(len(data), self.octets - self.fetch.replaces)
                write_sparse(self._descriptor, data)
        except OSError as error:
            self.failure = _store_failure(error)
            return 0
        except BaseException as error:  # noqa: BLE001  libcurl would print and forget it; the transport raises it again
            self.raised = error
            return 0
        return None

    def goes_on(self) -> bool:
        """Decide on a body that has outgrown its bound: an error page is cut, content is bounded by `max_octets`."""
        self.read_head()
        if not 200 <= self.status < 300:
            self.cut = True
            return self.octets <= ERROR_BODY_OCTETS
        if self._end and self.octets > self._end:
            self.failure = MISFIT
            return False
        declared = self.headers.get("content-length", "")
        most = self.fetch.max_octets
        if self.octets > most or (declared.isdecimal() and len(declared) < 20 and int(declared) > most):
            said = f"{declared} octets declared" if declared else f"more than {most} octets received"
            self.failure = FetchFailure(FailureKind.TOO_LARGE, f"{said}, {most} allowed")
            return False
        if self.fetch.into is not None and self.hashers is None:
            if self.room is not None:
                total = int(declared) if declared.isdecimal() else self.octets
                self.room.check(total, total - self.fetch.replaces)
            self._begin_file(self.fetch.into)
            self.hashers = [(name, HASHERS[name]()) for name in self.fetch.algorithms]
        self._bound = self._end or most
        return True

    def _begin_file(self, into: str) -> None:
        """Make the file of a long body: one that outlives this fetch, where the rest could be asked for later."""
        declared, keep = self.headers.get("content-length", ""), self.fetch.keep
        total = int(declared) if declared.isdecimal() else None
        is_whole = self.status == 200 and has_ranges(self.headers)
        if keep is not None and is_whole and total is not None and total >= LASTING_OCTETS:
            with contextlib.suppress(OSError):
                os.unlink(keep)
            self._create(keep)
            self._part = PartialBody(keep, total)
            return
        self._create(into)
        if is_whole and (validator := strong_validator(self.headers)) is not None:
            self._part = PartialBody(into, total, validator, self._site)

    def _take_up(self) -> bool:
        """A 2xx answers the request for the rest: go on with the part, or begin anew; False when it is not usable."""
        part, self._asked = self._asked, None
        assert part is not None
        if self.status != 206:
            part.remove()
            return True
        self._end, part.total = range_of(part, self.headers, self._site) or (0, None)
        if part.total is not None and part.total > self.fetch.max_octets:
            said = f"{part.total} octets declared, {self.fetch.max_octets} allowed"
            self.failure = FetchFailure(FailureKind.TOO_LARGE, said)
        elif self._end:
            with contextlib.suppress(OSError):
                self._descriptor = part.open()
        if self._descriptor < 0:
            if self.failure is None:
                self.failure = MISFIT
            part.remove()
            return False
        self._part, self._unfinished, self.hashers = part, part.path, part.hashers
        self.octets = self.resumed_at = part.octets
        self._bound = self._end
        self.status = 200
        return True

    def read_head(self) -> None:
        """Set `status` and `headers` from the lines received; too many of them are a failure."""
        if self.status or self.failure:
            return
        self.status, self.headers = parse_head(self.lines)
        if (header := self.headers.get("content-encoding")) is not None:
            named = (name.strip(" \t\"'") for name in header.lower().split(","))
            real = [name for name in named if name not in _NO_CODINGS and "/" not in name and codec_of(name) is None]
            self.headers["content-encoding"] = ", ".join(real) or "identity"
        if len(self.lines) == MAX_HEAD_LINES or sum(map(len, self.lines)) > MAX_HEAD_OCTETS:
            said = f"headers of more than {MAX_HEAD_OCTETS} octets or {MAX_HEAD_LINES} lines"
            self.failure = FetchFailure(FailureKind.TOO_LARGE, said)
            self.status, self.headers = 0, {}

    @property
    def is_closing(self) -> bool:
        """Whether the connection ends with the answer (RFC 9112, 9.3)."""
        said = self.headers.get("connection", "").lower()
        if "close" in said or "keep-alive" in said:
            return "close" in said
        begins = (line for line in reversed(self.lines) if line.startswith(b"HTTP/"))
        return next(begins, b"").startswith(b"HTTP/1.0")  # the last one: others are of a proxy, or of interim answers

    def complete(self) -> tuple[bytes, dict[str, str]]:
        """The answer has ended well: write what is to be written; the body (if it is not in a file) and its digests.

        Sets `failure` when the store refuses. Only a 2xx is content: nothing else is hashed or written.
        """
        if not 200 <= self.status < 300:
            return b"".join(self.chunks), {}
        try:
            if self._asked is not None and not self._take_up():
                return b"", {}
            if self._part is not None and self.octets < (self._part.total or 0):
                said = f"the part ends at {self.octets} of {self._part.total} octets"
                self.failure = FetchFailure(FailureKind.TRUNCATED, said, passing=True)
                return b"", {}
            if self.hashers is not None:
                self._finish()
                return b"", {name: hasher.hexdigest() for name, hasher in self.hashers}
            data = self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)
            self.held = self.fetch.into is None or self.fetch.holds_small
            if self.fetch.into is not None and not self.held:
                self._create(self.fetch.into)
                if data:
                    if self.room is not None:
                        self.room.check(len(data), self.octets - self.fetch.replaces)
                    write_all(self._descriptor, data)
                self._finish()
        except OSError as error:
            self.failure = _store_failure(error)
            self.discard()
            return b"", {}
        digests = {name: HASHERS[name](data).hexdigest() for name in self.fetch.algorithms}
        return (data if self.held else b""), digests

    def what_is_left(self, failure: FetchFailure | None) -> PartialBody | None:
        """Of an answer that is over: the part with which another try may go on. The file is closed then."""
        if self._asked is not None:
            self._asked.gained = 0
            return self._asked
        part = self._part
        if part is None or failure is None or not failure.passing or self.hashers is None or self._descriptor < 0:
            return None
        part.octets, part.hashers = self.octets, self.hashers
        part.gained = self.octets - self.resumed_at if self.resumed_at else 0
        self._close()
        self._unfinished = self._part = None
        return part

    def discard(self, *, lasting: bool = False) -> None:
        """Leave no half file behind; `lasting`: none but what is kept over runs."""
        if self._unfinished is None:
            return
        self._close()
        if not lasting or self._part is None or not self._part.lasting:
            with contextlib.suppress(OSError):
                os.unlink(self._unfinished)
        self._unfinished = None

    def _close(self) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1

    def _create(self, path: str) -> None:
        """Make the file; `discard` knows of it before it exists, as an interrupt may come as soon as it does."""
        self._unfinished = path
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError:
            self._unfinished = None  # what is there is not ours
            raise

    def _finish(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1
        if self._part is not None and self._part.lasting and self.fetch.into is not None:
            os.rename(self._part.path, self.fetch.into)
        self._unfinished = None


def _store_failure(error: OSError) -> FetchFailure:
    return FetchFailure(FailureKind.STORE, f"{error.strerror or error}: {error.filename or 'temporary file'}")
