"""What a ResourceSync document says, as frozen values: the document's head, its entries, their links and digests.

Field names are the standard's attribute names (`from` is `from_`, because Python reserves it). Times are aware UTC;
a time written coarser than a second is a `Coarse` (see `times`). `hash` keeps the attribute's text; `digests`
reads it (RS-MD-05, AMB-28).
"""

import datetime as dt
import re
from enum import Enum
from typing import Any

import msgspec

from headwater.errors import UsageFault
from headwater.spec.kinds import RULES, Kind
from headwater.spec.times import Coarse

# digests as the `hash` attribute writes them: `algorithm:hex`, several to a value (RS-MD-05, AMB-28, AMB-32)


class Digest(msgspec.Struct, frozen=True, gc=False):
    """One digest: the lower-case IANA name of the algorithm, and lower-case hex."""

    algorithm: str
    hex: str

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.hex}"


class Hash(msgspec.Struct, frozen=True):
    """What a `hash` attribute holds: the digests that can be read, and the items that cannot."""

    digests: tuple[Digest, ...] = ()
    unreadable: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()
    contradictory: tuple[str, ...] = ()


STRONGEST = ("sha-512", "sha-384", "sha-256", "sha-1", "md5")
"""Algorithms that can be checked, strongest first (DST-V1)."""

HEX_LENGTH = {"sha-512": 128, "sha-384": 96, "sha-256": 64, "sha-224": 56, "sha-1": 40, "md5": 32}
HASHLIB = {"sha-512": "sha512", "sha-384": "sha384", "sha-256": "sha256", "sha-1": "sha1", "md5": "md5"}
"""Names of the same algorithms in Python's `hashlib`."""

_ALIASES = {name.replace("-", ""): name for name in HEX_LENGTH} | {name: name for name in HEX_LENGTH}
_BY_LENGTH = {32: "md5", 40: "sha-1", 64: "sha-256"}
_HEX = re.compile(r"[0-9a-fA-F]+\Z")


def parse_hash(text: str) -> Hash:
    """Read a `hash` attribute leniently: case, `sha1` for `sha-1`, `urn:sha1:…`, a bare hex digest (AMB-28).

    The first digest of an algorithm wins; a second one that differs is reported as contradictory (AMB-32).
    """
    digests: dict[str, Digest] = {}
    unreadable: list[str] = []
    guessed: list[str] = []
    contradictory: list[str] = []
    for item in text.split():
        name, _, value = item.removeprefix("urn:").rpartition(":")
        algorithm = _ALIASES.get(name.lower()) if name else _BY_LENGTH.get(len(value))
        if algorithm is None or len(value) != HEX_LENGTH[algorithm] or not _HEX.match(value):
            unreadable.append(item)
            continue
        if not name:
            guessed.append(item)
        digest = Digest(algorithm, value.lower())
        if digests.setdefault(algorithm, digest) != digest:
            contradictory.append(item)
    return Hash(tuple(digests.values()), tuple(unreadable), tuple(guessed), tuple(contradictory))


# the document, its entries, their links

Extra = tuple[tuple[str, str], ...]
"""Attributes of other namespaces, kept as (`{namespace}name`, value) pairs (RS-DOC-13, RS-MD-14)."""


def written(value: object) -> str:
    """A time that was written coarser than a second, as it was written (RS-TIME-03)."""
    if not isinstance(value, Coarse):
        raise NotImplementedError(type(value).__name__)
    span = value.until - value
    if span <= dt.timedelta(minutes=1):
        return value.isoformat(timespec="minutes")[:-6] + "Z"
    if span <= dt.timedelta(days=1):
        return f"{value.year:04d}-{value.month:02d}-{value.day:02d}"
    return f"{value.year:04d}-{value.month:02d}" if span <= dt.timedelta(days=31) else f"{value.year:04d}"


class ToDict:
    """A record that can be had as a dictionary."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The record as values that `json.dumps` takes, with the keys that the commands write with `--json`."""
        plain: dict[str, Any] = msgspec.to_builtins(self, enc_hook=written)
        if extra := getattr(self, "extra", None):
            plain["extra"] = dict(extra)
        if links := getattr(self, "links", None):
            plain["links"] = [link.to_dict() for link in links]
        return plain


class ChangeKind(Enum):
    """The kind of a change."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"


class Link(ToDict, msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One `rs:ln`: `rel` leads to `href`; the other attributes describe the related resource."""

    rel: str
    href: str
    encoding: str | None = None
    hash: str | None = None
    length: int | None = None
    modified: dt.datetime | None = None
    path: str | None = None
    pri: int | None = None
    type: str | None = None
    profile: str | None = None
    extra: Extra = ()

    @property
    def digests(self) -> tuple[Digest, ...]:
        """The readable digests of `hash`."""
        return parse_hash(self.hash).digests if self.hash else ()


class Entry(ToDict, msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One `url` or `sitemap`: `loc`, and what the document says about it.

    The fields are attributes of the standard; `extra` has those of other namespaces. `loc` is absolute when the reader
    knew the document's URI. `hash` is the text, digests with spaces between them; `digests` are the same, read. Raises
    UsageFault when `loc`, `hash` or `length` has a wrong type.
    """

    loc: str
    lastmod: dt.datetime | None = None
    changefreq: str | None = None
    capability: str | None = None
    change: ChangeKind | None = None
    datetime: dt.datetime | None = None
    at: dt.datetime | None = None
    completed: dt.datetime | None = None
    from_: dt.datetime | None = msgspec.field(default=None, name="from")
    until: dt.datetime | None = None
    encoding: str | None = None
    hash: str | None = None
    length: int | None = None
    path: str | None = None
    type: str | None = None
    links: tuple[Link, ...] = ()
    extra: Extra = ()

    def __post_init__(self) -> None:
        if (
            self.loc.__class__ is not str
            or (self.hash is not None and self.hash.__class__ is not str)
            or (self.length is not None and self.length.__class__ is not int)
        ):
            _refuse(self)

    @property
    def digests(self) -> tuple[Digest, ...]:
        """The readable digests of `hash`, in order."""
        return parse_hash(self.hash).digests if self.hash else ()

    def link(self, rel: str) -> Link | None:
        """The first link with relation `rel`."""
        return next((link for link in self.links if link.rel == rel), None)


class AbsenceReason(Enum):
    """Why a requested resource is not in a package."""

    GONE = "gone"  # there is no such resource any more
    CHANGED = "changed"  # it is in another state than the recorded one; a later list tells
    ELSEWHERE = "elsewhere"  # another server answers its address
    UNREADABLE = "unreadable"  # it cannot be read at present
    DELETED = "deleted"  # it was deleted since the moment that was asked for
    UNKNOWN = "unknown"  # the set does not hold it
    LIMIT = "limit"  # there was no room for it within the limits


class AbsentResource(msgspec.Struct, frozen=True, gc=False):
    """A requested resource that is not in the package; `reason` None: one unknown to the reader."""

    uri: str
    reason: AbsenceReason | None = None


class Document(ToDict, msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The head of a document: its kind, its root `rs:md` and `rs:ln`.

    `capability` is as written, None for a plain Sitemap; `kind` is how Headwater reads it. `absent`: what a manifest
    names as not in the package, known after the last entry.
    """

    kind: Kind
    capability: str | None = None
    at: dt.datetime | None = None
    completed: dt.datetime | None = None
    from_: dt.datetime | None = msgspec.field(default=None, name="from")
    until: dt.datetime | None = None
    links: tuple[Link, ...] = ()
    extra: Extra = ()
    absent: tuple[AbsentResource, ...] = ()

    def link(self, rel: str) -> Link | None:
        """The first root link with relation `rel`."""
        return next((link for link in self.links if link.rel == rel), None)

    @property
    def called(self) -> str:
        """The kind in words, with an article; an unknown capability as written."""
        if self.kind in (Kind.UNKNOWN, Kind.UNKNOWN_INDEX):
            return f"a document of the unknown capability {self.capability!r:.100}"
        return f"a {RULES[self.kind].title}"


def _refuse(entry: Entry) -> None:
    """Raise UsageFault for the field of an entry that is not of its type; subclasses of the types are let in."""
    for name, value, kind, said in (
        ("loc", entry.loc, str, "a URI as text"),
        ("hash", entry.hash, str | None, 'text, such as "sha-256:…" or str(digest)'),
        ("length", entry.length, int | None, "a whole number"),
    ):
        if not isinstance(value, kind) or isinstance(value, bool):
            raise UsageFault(f"{name} of an entry is {said}, not {value!r:.200}", advice="Correct the call.")


def sha256_of(hash_text: str | None) -> str:
    """The hex digits of the SHA-256 that a `hash` states; empty when it states none."""
    for one in (hash_text or "").split():
        name, _, digits = one.partition(":")
        if name == "sha-256" and len(digits) == 64:
            return digits.lower()
    return ""
