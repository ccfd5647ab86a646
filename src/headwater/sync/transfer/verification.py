"""Verification: whether octets are as listed, by hash, length and time, and how far they may inflate (DST-V, AMB-16).

A check is never silently weakened: the strongest digest that was listed and can be computed decides; only where none
was listed do length and time stand in. The rules are over values; what reads a file stands at the end: content codings
are taken off, and RDF documents whose octets vary are compared by the canonical hash that is listed.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from headwater.files.file_copies import Room
from headwater.files.hashing import HASHERS
from headwater.patches import essence_of
from headwater.spec.extensions import EMPTY_DATASET
from headwater.spec.records import STRONGEST, Digest, parse_hash
from headwater.sync.source_times import SECOND, http_date_micros

if TYPE_CHECKING:
    from headwater.rdf.canonical import CanonicalHasher
    from headwater.sync.transfer.work_queue import Work


class ListedResource(msgspec.Struct, frozen=True, gc=False):
    """What a list says of one resource. `known_at`: the moment it speaks of (a change's time, a list's `at`)."""

    hash: str | None = None
    length: int | None = None
    lastmod: int | None = None
    known_at: int | None = None


class Judgement(Enum):
    """The outcome of a verification."""

    GOOD = "good"
    NEWER = "newer"
    DIFFERENT = "different"
    UNKNOWN = "unknown"  # of what a document says: it costs too much to find out


class Verdict(msgspec.Struct, frozen=True):
    """The judgement, and the sentence that explains a refusal."""

    judgement: Judgement
    reason: str = ""
    verified: bool = True
    """False where nothing proves it: nothing to verify with is listed, or a document says nothing, as is listed, and as
    do an error as JSON and a beginning that is cut off."""


_USUAL_HASH = re.compile(r"(?:md5:([0-9a-f]{32}) )?sha-256:([0-9a-f]{64})(?: md5:([0-9a-f]{32}))?\Z").match


def digests_of(text: str | None) -> tuple[Digest, ...]:
    """The digests of a `hash` attribute that can be computed, strongest first (AMB-28)."""
    if text is not None and (usual := _USUAL_HASH(text)) is not None:
        strongest = Digest("sha-256", usual[2])
        other = usual[1] or usual[3]
        return (strongest,) if other is None else (strongest, Digest("md5", other))
    found = () if text is None else parse_hash(text).digests
    return tuple(sorted((d for d in found if d.algorithm in STRONGEST), key=lambda d: STRONGEST.index(d.algorithm)))


def strongest_of(text: str | None) -> Digest | None:
    """The strongest digest of a `hash` attribute that can be computed."""
    found = digests_of(text)
    return found[0] if found else None


def strongest_text(text: str | None) -> str | None:
    """The same as it is recorded: the algorithm, a colon, lower-case hex."""
    digest = strongest_of(text)
    return None if digest is None else str(digest)


def judge(
    listed: ListedResource | Work, digest: Digest | None, octets: int, found: str | None, last_modified: str | None
) -> Verdict:
    """Judge so many octets, with this hex digest, by `digest` (the strongest listed) and length."""
    if digest is not None and found != digest.hex:
        return differing(listed, last_modified, f"{digest.algorithm} is {found}, listed is {digest.hex}")
    if listed.length is not None and octets != listed.length:
        return differing(listed, last_modified, f"length is {octets}, listed is {listed.length}")
    return Verdict(Judgement.GOOD, verified=digest is not None or listed.length is not None)


def differing(listed: ListedResource | Work, last_modified: str | None, reason: str) -> Verdict:
    """The verdict on what is not as listed: it is newer where the answer's `Last-Modified` says that the resource has
    changed after the list spoke of it (DST-5.3)."""
    modified = http_date_micros(last_modified)
    moments = [m for m in (listed.known_at, listed.lastmod) if m is not None]
    is_newer = modified is not None and bool(moments) and modified > max(moments) // SECOND * SECOND
    return Verdict(Judgement.NEWER if is_newer else Judgement.DIFFERENT, reason)


_NO_PAGE_TYPE = re.compile(
    r"(?:image|audio|video)/.+|[a-z]+/(?:[^/]*[+.-])?(?:xml|json|ndjson|json-seq|turtle|trig|n3|n-?triples|n-?quads|pdf|zip"
    r"|gzip|g?tar|bzip2?|xz|zstd|7z-compressed|rar|rar-compressed)"
)
_NO_PAGE_NAME = re.compile(
    r"[^?#]*/[^/?#]*\.(xml|rdf|owl|json|jsonld|geojson|ndjson|ttl|nt|nq|trig|n3|pdf|png|jpe?g|gif|tiff?|webp|bmp|jp2|svgz?|zip"
    r"|gz|tgz|tar|bz2|xz|zst|7z|rar)(?:[?#]|\Z)",
    re.IGNORECASE,
)
_SAYS_NOTHING = ("", "application/octet-stream", "binary/octet-stream")


def error_page(listed: str | None, uri: str, sent: str | None) -> str | None:
    """What is wrong with an answer that nothing listed verifies: a page of HTML in place of XML, JSON, RDF, PDF, an
    image or an archive, as the listed media type says, or else the name (AMB-94); None: nothing."""
    if essence_of(sent or "") != "text/html":
        return None
    told = essence_of(listed or "")
    if told in _SAYS_NOTHING:
        named = _NO_PAGE_NAME.match(uri)
        expected = f"the name says {named[1].lower()}" if named else None
    else:
        expected = f"{told[:80]} is listed" if _NO_PAGE_TYPE.fullmatch(told) and "xhtml" not in told else None
    return None if expected is None else f"a page of HTML was sent, and {expected} (--accept-html takes it)"


class CopyState(Enum):
    """Whether a held copy is what a list describes (DST-4.3)."""

    YES = "yes"
    NO = "no"
    ASK = "ask"


class LocalCopy(msgspec.Struct, frozen=True, gc=False):
    """What we know of our own copy: the digest it was verified with or given, its length, the `lastmod` it had."""

    digest: str | None
    length: int | None
    lastmod: int | None
    listed_hash: str | None = None
    newer: bool = False


def compare(listed: ListedResource, held: LocalCopy) -> CopyState:
    """Compare without the network: any digest both have, else `lastmod` and length, else the source must be asked."""
    wanted = digests_of(listed.hash)
    own = {d.algorithm: d.hex for d in digests_of(held.digest)}
    shared = [d for d in wanted if d.algorithm in own]
    if shared:
        return CopyState.YES if all(own[d.algorithm] == d.hex for d in shared) else CopyState.NO
    if wanted or held.newer:
        return CopyState.ASK
    if listed.length is not None and held.length is not None and listed.length != held.length:
        return CopyState.NO
    if listed.hash and held.listed_hash and listed.hash != held.listed_hash:
        return CopyState.ASK  # digests that cannot be computed here, but they tell of another state
    if listed.lastmod is not None and held.lastmod is not None:
        if listed.lastmod != held.lastmod:
            return CopyState.ASK
        if listed.length is not None and held.length is not None:
            return CopyState.YES
    return CopyState.ASK


# content codings (AMB-16)

_CHUNK = 1 << 17
_MOST = 2  # codings of one answer; nobody needs a third
_RATIO = 250
_RATIO_OCTETS = 64 << 20
_MEMBERS, _MEMBER_OCTETS = 200_000, 4096
"""So many members of gzip at most where they have less on the average: of empty ones no octet comes out."""


class CannotDecode(Exception):
    """A body cannot be decoded: its content coding is unknown or damaged, or it grows beyond the bounds."""


def decode_file(
    source: str, target: str, coding: str, algorithm: str, most: int, room: Room | None = None
) -> tuple[int, str]:
    """Decode `source` into the new file `target`; returns its octets and hex digest.

    Raises CannotDecode, and OSError: among others where there is no `room`.
    """
    codings = [name.strip() for name in coding.split(",")]
    if len(codings) > _MOST or any(name not in ("gzip", "x-gzip", "deflate") for name in codings):
        raise CannotDecode("unknown")
    hasher = HASHERS[algorithm]()
    octets = 0
    with open(source, "rb") as coded, open(target, "xb") as decoded:
        pieces = plain = iter(lambda: coded.read(_CHUNK), b"")
        for name in reversed(codings):
            pieces = _decoded(filter(None, pieces), name, is_second=pieces is not plain)
        for piece in pieces:
            octets += len(piece)
            if octets > most or (octets > _RATIO_OCTETS and octets > _RATIO * coded.tell()):
                raise CannotDecode("it expands too much")
            if room is not None:
                room.check(len(piece), octets)
            hasher.update(piece)
            decoded.write(piece)
    return octets, hasher.hexdigest()


def _decoded(chunks: Iterator[bytes], coding: str, *, is_second: bool) -> Iterator[bytes]:
    wanted = 31 if coding.endswith("gzip") else 15
    inflate = zlib.decompressobj(wanted)
    begun = False
    members, content = 1, 0
    try:
        for chunk in chunks:
            if not begun and is_second and coding.endswith("gzip") and not chunk.startswith(b"\x1f\x8b"):
                yield chunk  # two servers have each written the header, and one has compressed
                yield from chunks
                return
            if not begun and coding == "deflate" and (chunk[0] & 0x0F) != 8:
                inflate = zlib.decompressobj(-15)  # many servers send raw deflate under this name
            begun = True
            data = chunk
            while data:
                if inflate.eof:
                    if coding == "deflate":
                        raise CannotDecode("there is more after its end")
                    inflate = zlib.decompressobj(wanted)
                    members += 1
                    if members > _MEMBERS and content < members * _MEMBER_OCTETS:
                        raise CannotDecode("it has too many members with next to no content")
                piece = inflate.decompress(data, _CHUNK * 8)
                content += len(piece)
                yield piece
                data = inflate.unconsumed_tail or inflate.unused_data
        yield inflate.flush()
    except zlib.error as cause:
        raise CannotDecode("it is damaged") from cause
    if not inflate.eof:
        raise CannotDecode("it ends too early")


# RDF documents whose octets vary


class CanonicalFixity(msgspec.Struct):
    """Compares what documents say with the canonical hash that is listed. Close it.

    It counts where no digest of the octets is listed that can be computed; one that is listed is never passed over for
    it (docs/decisions/062-hashes-of-canonical-n-quads.md), and that of the empty dataset verifies nothing
    (docs/decisions/073-the-empty-dataset-verifies-nothing.md).
    """

    hasher: CanonicalHasher | None = None

    def close(self) -> None:
        """End the process that parses."""
        if self.hasher is not None:
            self.hasher.close()
            self.hasher = None

    def judge(
        self, listed: str, uri: str, types: Sequence[str | None], path: Path, octets: bytes | None = None
    ) -> Verdict:
        """Judge a document, a file or octets. Its syntax is that of the first of the media types that is one of RDF,
        else that of its URI; where neither tells it, it is as listed if it is so in any. Raises OSError."""
        from headwater.rdf import BadRdf, RdfTooCostly
        from headwater.rdf.canonical import CanonicalHasher
        from headwater.rdf.syntaxes import SYNTAXES, syntax_of

        told = next(filter(None, (syntax_of(one, uri) for one in (*types, None))), None)
        judged = Verdict(Judgement.UNKNOWN)
        self.hasher = self.hasher or CanonicalHasher()
        for syntax in SYNTAXES if told is None else (told,):
            try:
                digest = self.hasher.digest(path, syntax, uri, octets)
            except BadRdf as fault:
                judgement = Judgement.UNKNOWN if isinstance(fault, RdfTooCostly) else Judgement.DIFFERENT
                judged = Verdict(judgement, f"a hash of canonical N-Quads is listed, and {fault.what}")
            else:
                if digest == listed:
                    return Verdict(Judgement.GOOD, verified=digest != EMPTY_DATASET)
                reason = f"sha-256 of canonical N-Quads is {digest}, listed is {listed}"
                judged = Verdict(Judgement.DIFFERENT, reason)
            if judged.judgement is Judgement.UNKNOWN:
                break
        return judged
