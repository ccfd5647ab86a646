"""Verification: whether the octets received are as listed, by hash, length and time (DST-V, DST-5.3, AMB-16).

Pure rules over values; nothing is read here. A check is never silently weakened: the strongest digest that was listed
and can be computed decides; only where none was listed do length and time stand in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

import msgspec

from headwater.spec.records import STRONGEST, Digest, parse_hash
from headwater.sync.source_times import SECOND, http_date_micros

_USUAL = re.compile(r"(?:md5:[0-9a-f]{32} )?sha-256:([0-9a-f]{64})\Z")
"""What most lists state, as the standard writes it."""


class ListedResource(msgspec.Struct, frozen=True, gc=False):
    """What a list says of one resource. `known_at`: the moment it speaks of (a change's time, a list's `at`)."""

    hash: str | None = None
    length: int | None = None
    lastmod: int | None = None
    type: str | None = None
    encoding: str | None = None
    known_at: int | None = None


class BodyForm(Enum):
    """Which octets of an answer are stored."""

    RECEIVED = "received"
    DECODED = "decoded"


class Judgement(Enum):
    """The outcome of a verification."""

    GOOD = "good"
    NEWER = "newer"
    DIFFERENT = "different"


class Verdict(msgspec.Struct, frozen=True):
    """The judgement, which octets it is about, and the sentence that explains a refusal."""

    judgement: Judgement
    form: BodyForm = BodyForm.RECEIVED
    reason: str = ""
    verified: bool = True
    """False when the list gave nothing to verify with: the copy is what the server sent."""


GOOD = Verdict(Judgement.GOOD)
"""What most answers get."""


def digests_of(text: str | None) -> tuple[Digest, ...]:
    """The digests of a `hash` attribute that can be computed, strongest first (AMB-28)."""
    if text is None:
        return ()
    found = parse_hash(text).digests
    if len(found) == 1:
        return found if found[0].algorithm in STRONGEST else ()
    return tuple(sorted((d for d in found if d.algorithm in STRONGEST), key=lambda d: STRONGEST.index(d.algorithm)))


def strongest_of(text: str | None) -> Digest | None:
    """The strongest digest of a `hash` attribute that can be computed."""
    if text is None:
        return None
    if usual := _USUAL.match(text):
        return Digest("sha-256", usual[1])
    found = parse_hash(text).digests
    for algorithm in STRONGEST:
        for digest in found:
            if digest.algorithm == algorithm:
                return digest
    return None


def strongest_text(text: str | None) -> str | None:
    """The same as it is recorded: the algorithm, a colon, lower-case hex."""
    digest = strongest_of(text)
    return None if digest is None else str(digest)


def fits(digest: Digest, length: int | None, octets: int, found: str) -> bool:
    """Whether octets as received, with the hex digest `found`, are what is listed: then `judge` says GOOD of them."""
    return found == digest.hex and (length is None or octets == length)


def judge(
    listed: ListedResource,
    digest: Digest | None,
    forms: Mapping[BodyForm, tuple[int, str | None]],
    last_modified: str | None,
) -> Verdict:
    """Judge an answer by `digest` (the strongest listed) and length.

    `forms` gives, for the octets as received and perhaps as decoded, their number and hex digest. Either form that
    fits passes (AMB-16), the received one first.
    """
    reasons = [_objection(listed, digest, octets, found) for octets, found in forms.values()]
    for form, reason in zip(forms, reasons, strict=True):
        if not reason:
            return Verdict(Judgement.GOOD, form, verified=digest is not None or listed.length is not None)
    chosen = BodyForm.DECODED if BodyForm.DECODED in forms and not listed.encoding else BodyForm.RECEIVED
    return differing(listed, last_modified, chosen, reasons[0])


def differing(listed: ListedResource, last_modified: str | None, form: BodyForm, reason: str) -> Verdict:
    """The verdict on what is not as listed: it may be newer."""
    return Verdict(Judgement.NEWER if is_newer(listed, last_modified) else Judgement.DIFFERENT, form, reason)


def _objection(listed: ListedResource, digest: Digest | None, octets: int, found: str | None) -> str:
    if digest is not None and found != digest.hex:
        return f"{digest.algorithm} is {found}, listed is {digest.hex}"
    if listed.length is not None and octets != listed.length:
        return f"length is {octets}, listed is {listed.length}"
    return ""


def is_newer(listed: ListedResource, last_modified: str | None) -> bool:
    """Whether the answer's `Last-Modified` says that the resource changed after the list spoke of it (DST-5.3)."""
    modified = http_date_micros(last_modified)
    moments = [m for m in (listed.known_at, listed.lastmod) if m is not None]
    if modified is None or not moments:
        return False
    return modified > max(moments) // SECOND * SECOND


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
    if (sent or "").partition(";")[0].strip().lower() != "text/html":
        return None
    told = (listed or "").partition(";")[0].strip().lower()
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
    own = {d.algorithm: d.hex for text in (held.digest,) for d in digests_of(text)}
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
