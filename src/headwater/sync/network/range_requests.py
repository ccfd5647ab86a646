"""Range requests: the rest of a body that broke off, and whether an answer continues it.

Decisions over values, and the file of a part (RFC 9110, 13.1.5 and 14). Only octets without a content coding are kept,
and only by a validator that is strong: a strong entity tag, or a `Last-Modified` that the answer's own `Date` makes one
(8.8.2.2). What is put together is hashed from its first octet on, like any other body.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from headwater.sync.source_times import http_date_micros

if TYPE_CHECKING:
    from hashlib import _Hash

    from headwater.sync.network.fetch import Fetch

LEAST_PROGRESS_OCTETS = 64 * 1024
MOST_ROUNDS = 1000
"""A body may come in so many parts, each of this share of it and of so many octets at the least; less is no progress,
and counts as a failed try."""

_STRONG_AFTER_MICROS = 60 * 1_000_000  # a Last-Modified so long before Date is a strong validator
_HASHED_AT_ONCE = 16 << 20
_BLOCK = 1 << 20
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})\Z", re.IGNORECASE)
_STRONG_TAG = re.compile(r'"[\x21\x23-\x7e\x80-\xff]*"\Z')


class StoredPart(msgspec.Struct, frozen=True):
    """The beginning of a body, as an earlier run has left it in the file `path`.

    `site` is the only one that may send the rest; empty: any may, because what comes of it can be verified.
    """

    path: str
    octets: int
    validator: str
    total: int
    site: str = ""


class PartStore(Protocol):
    """A store of partial bodies that outlasts a run; what it does not take is kept for one fetch only."""

    def kept(self, fetch: Fetch) -> StoredPart | None:
        """What there is of this body."""
        ...

    def begun(self, fetch: Fetch, validator: str, total: int, site: str) -> str | None:
        """A body of `total` octets begins to come from `site`: the file that is to keep it, or None."""
        ...


class PartialBody:
    """The beginning of a body and the digests of it, on its way from one try to the next."""

    __slots__ = ("gained", "hashers", "lasting", "octets", "path", "rounds", "site", "total", "validator")

    def __init__(
        self, path: str, octets: int, validator: str, total: int | None, *, lasting: bool, site: str = ""
    ) -> None:
        self.path = path
        self.octets = octets
        self.validator = validator
        self.total = total
        self.lasting = lasting  # the file outlives the fetch
        self.site = site  # an entity tag tells states of one resource apart, not of two
        self.hashers: list[tuple[str, _Hash]] | None = None
        self.gained = 0  # octets of the last try
        self.rounds = 0

    def headers(self) -> list[tuple[str, str]]:
        """How the rest is asked for."""
        return [("Range", f"bytes={self.octets}-"), ("If-Range", self.validator)]

    def open(self) -> int:
        """The file, to go on with it. Raises OSError when it is not what was left."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = os.fstat(descriptor)
            if (found.st_mode & 0o170000) != 0o100000 or found.st_nlink != 1 or found.st_size < self.octets:
                raise FileNotFoundError(f"not the file that was left: {self.path}")
            os.ftruncate(descriptor, self.octets)
            os.lseek(descriptor, self.octets, os.SEEK_SET)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def hash_again(self, hashers: list[tuple[str, _Hash]]) -> Generator[None]:
        """Digest what an earlier run has left, a piece at each step. Raises OSError."""
        descriptor = self.open()
        try:
            os.lseek(descriptor, 0, os.SEEK_SET)
            left = self.octets
            while left:
                for _ in range(_HASHED_AT_ONCE // _BLOCK):
                    block = os.read(descriptor, min(_BLOCK, left))
                    if not block and left:
                        raise FileNotFoundError(f"not the file that was left: {self.path}")
                    left -= len(block)
                    for _, hasher in hashers:
                        hasher.update(block)
                    if not left:
                        break
                yield
        finally:
            os.close(descriptor)
        self.hashers = hashers

    def remove(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def drop(self) -> None:
        """The fetch is over without a whole body: leave what an other run can go on with."""
        if not self.lasting:
            self.remove()

    def has_grown(self) -> bool:
        """Whether the last try brought so much that the next one counts as the first; asked once after each."""
        if self.gained < max(LEAST_PROGRESS_OCTETS, (self.total or 0) // MOST_ROUNDS):
            return False
        self.rounds += 1
        return self.rounds <= MOST_ROUNDS


def strong_validator(headers: Mapping[str, str]) -> str | None:
    """What `If-Range` may say of this answer; None: there is nothing by which its rest could be asked for."""
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        return None
    if headers.get("accept-ranges", "").strip().lower() == "none":
        return None
    tag = headers.get("etag", "")
    if tag:
        return tag if _STRONG_TAG.match(tag) else None
    modified = headers.get("last-modified", "")
    at, answered = http_date_micros(modified), http_date_micros(headers.get("date"))
    if at is None or answered is None or answered - at < _STRONG_AFTER_MICROS or not modified.isprintable():
        return None
    return modified


def misfit(part: PartialBody, headers: Mapping[str, str], site: str) -> str | None:
    """Why a 206 from `site` is not the rest of `part`; None when it is, or the beginning of the rest.

    A server that does not know `If-Range` sends the rest of whatever it has by now. Where that cannot be verified the
    answer has to repeat the validator.
    """
    if part.site not in ("", site):
        return "a part from another origin"
    if headers.get("content-type", "").lower().startswith("multipart/byteranges"):
        return "a part in several ranges"
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        return "a part with a content coding"
    found = _RANGE.match(headers.get("content-range", "").strip())
    if found is None:
        return f"a part without a usable Content-Range: {headers.get('content-range', '')[:100]!r}"
    first, last, total = map(int, found.groups())
    if first != part.octets or not first <= last < total or (part.total is not None and total != part.total):
        return f"another part than requested: {found[0][:100]!r}, not from {part.octets} of {part.total}"
    sent = headers.get("etag") if part.validator.startswith('"') else headers.get("last-modified")
    if sent is None and part.site:
        return "a part that does not say of which state it is"
    if sent is not None and sent != part.validator:
        return "a part of another state"
    return None


def end_of(headers: Mapping[str, str]) -> tuple[int, int]:
    """Of a 206 that fits: how many octets there are with it, and how many there are in all."""
    found = _RANGE.match(headers["content-range"].strip())
    assert found is not None
    return int(found[2]) + 1, int(found[3])
