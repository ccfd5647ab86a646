"""The probe of an address: a document with its first entries, a page with links, or what went wrong (DST-A1).

`sign_in_refused` is the error for an answer 401 or 403 (DST-F2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from headwater.errors import SourceFault
from headwater.spec.faults import NotXml
from headwater.spec.reader import Reader
from headwater.spec.records import Document, Entry
from headwater.spec.uris import origin
from headwater.sync.faults import Unreachable, advice_for
from headwater.sync.source_times import strong_last_modified
from headwater.transport.access import REFUSED, Presented, challenged
from headwater.transport.transport import Fetched, StreamBroken, StreamedAnswer

PAGE_OCTETS = 1 << 20
"""How much of a page that is no ResourceSync document is kept to look for links."""

_NAMESPACE = b"www.sitemaps.org/schemas/sitemap/"

_TOKEN = "a bearer token by --token or HEADWATER_TOKEN"  # noqa: S105
_PASSWORD = "a name by --user or HEADWATER_USER, its password by HEADWATER_PASSWORD, or both in ~/.netrc"  # noqa: S105
_ONLY = "It is sent to the origin of the address and nowhere else."
_BROKEN_SETS = (
    "`headwater inspect` of this address says what is wrong with it; the operator of the source has to mend it."
)


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """What is at an address: a document (with its first entries), or a page with its links."""

    uri: str
    final: str
    status: int
    document: Document | None
    entries: tuple[Entry, ...]
    link_header: str
    body: bytes
    fault: SourceFault | None
    moved_to: str | None = None
    etag: str | None = None
    last_modified: str | None = None
    refused: Unreachable | None = None


def probe_document(uri: str, answer: StreamedAnswer | Fetched, chunks: Iterable[bytes], most: int) -> Probe:
    """What an answer is; `chunks` are its body, which is read as far as needed."""
    document: Document | None = None
    entries: list[Entry] = []
    body, fault = answer.body, None
    if answer.status == 200:
        try:
            document, entries, body, fault = _glance(answer, chunks, most)
        except StreamBroken as broken:
            fault = broken
    return Probe(
        uri=uri,
        final=answer.uri,
        status=answer.status,
        document=document,
        entries=tuple(entries),
        link_header=answer.headers.get("link", ""),
        body=body,
        fault=fault,
        moved_to=answer.moved_to,
        etag=answer.headers.get("etag"),
        last_modified=strong_last_modified(answer.headers),
        refused=sign_in_refused(uri, answer),
    )


def _glance(
    answer: StreamedAnswer | Fetched, chunks: Iterable[bytes], most: int
) -> tuple[Document | None, list[Entry], bytes, SourceFault | None]:
    """Read as a document as far as needed; if it is none, keep the beginning as a page."""
    reader: Reader | None = Reader(base_uri=answer.uri, headers=answer.headers)
    entries: list[Entry] = []
    page = bytearray()
    fault: SourceFault | None = None
    for chunk in chunks:
        if len(page) < PAGE_OCTETS:
            page += chunk[: PAGE_OCTETS - len(page)]
        elif reader is None:
            break
        if reader is None:
            continue
        try:
            entries.extend(reader.feed(chunk))
        except SourceFault as found:
            fault, reader = found, None
            continue
        if len(entries) > most and reader.document is not None:
            return reader.document, entries, b"", None
    if reader is None:
        return None, [], bytes(page), fault
    try:
        entries.extend(reader.close())
    except SourceFault as found:
        return None, [], bytes(page), found
    return reader.document, entries, b"", None


def may_pass(fault: SourceFault) -> bool:
    """Whether reading again may help: a torn or truncated document, but not a refused one."""
    return fault.passing if isinstance(fault, StreamBroken) else isinstance(fault, NotXml)


def is_torn(probe: Probe) -> bool:
    """Whether something is there that began as a document and broke off, or an answer that was cut short."""
    fault = probe.fault
    return fault is not None and may_pass(fault) and (isinstance(fault, StreamBroken) or _NAMESPACE in probe.body)


def nothing_found(
    url: str,
    faults: list[SourceFault],
    plain: str | None,
    description: Probe | None,
    unread: Sequence[tuple[str, str]] = (),
) -> SourceFault:
    """What all ways from `url` have come to; `plain` is a Sitemap, and `description` the description, that was seen.

    `unread`: Capability Lists that the description lists, and why they cannot be read.
    """
    if plain is not None:
        return SourceFault(
            "only a plain Sitemap was found, no ResourceSync", code="HW-SYN-03", where=plain, rule="DST-A3"
        )
    if description is not None and not description.entries:
        return SourceFault("the Source Description lists no set", code="HW-SYN-05", where=description.uri)
    recognised = [fault for fault in faults if fault.code != SourceFault.code]
    documents = [fault for fault in recognised if fault.code.startswith("HW-DOC") and fault.code != "HW-DOC-07"]
    for code in ("HW-SYN-05", "HW-SYN-15"):
        if found := next((fault for fault in recognised if fault.code == code), None):
            return found
    if description is not None and unread and not any(isinstance(fault, Unreachable) for fault in recognised):
        (where, why), others = unread[0], f" ({len(unread):,} sets)" if len(unread) > 1 else ""
        what = f"no set that the Source Description lists can be read{others}: {why}"
        return SourceFault(what, code="HW-SYN-02", where=where, rule="DST-A2", advice=_BROKEN_SETS)
    answered = len(recognised) < len(faults) or documents
    if recognised and not answered:
        return recognised[0]
    reasons, where = _reasons(faults)
    what, where = f"no ResourceSync document was found: {reasons}", where or url
    todo = advice_for("HW-SYN-02", what, where)
    return SourceFault(what, code="HW-SYN-02", where=where, rule="DST-A2", advice=todo)


def _reasons(faults: list[SourceFault]) -> tuple[str, str]:
    """Each cause once, with its addresses where there is more than one; else the addresses by themselves."""
    causes: dict[str, list[str]] = {}
    for fault in faults:
        causes.setdefault(fault.what, []).append(fault.where or "")
    if len(causes) == 1:
        ((what, addresses),) = causes.items()
        return what[:1000], ", ".join(dict.fromkeys(filter(None, addresses)))[:1000]
    told = (f"{what} ({', '.join(dict.fromkeys(filter(None, found)))})" for what, found in causes.items())
    return "; ".join(told)[:1000] or "nothing there", ""


def sign_in_refused(uri: str, answer: Fetched | StreamedAnswer) -> Unreachable | None:
    """The fault that an answer to `uri` is; None where it is none of this kind."""
    if answer.status not in REFUSED:
        return None
    said = f"HTTP status {answer.status}"
    schemes = challenged(answer.headers.get("www-authenticate"))
    if answer.presented is Presented.WITHHELD:
        what, advice = _withheld(uri, answer.uri)
    elif answer.presented is Presented.NOTHING:
        what = "the source requires authentication" if answer.status == 401 else "the source refuses anonymous access"
        advice = _ways_in(schemes)
    else:
        accepted = "is" if answer.presented is Presented.TOKEN else "are"
        told = "not accepted" if answer.status == 401 else "not enough to read this"
        what = f"{answer.presented} {accepted} {told}"
        others = _others(answer.presented, schemes)
        advice = f"Check the credentials: they may be of another source, or have expired. {others}"
    what = f"{what} ({said})"
    return Unreachable(what, code="HW-SYN-15", where=uri, rule="DST-F2", advice=advice.strip(), cause=what)


def _withheld(asked: str, final: str) -> tuple[str, str]:
    if origin(asked) != origin(final):
        what = f"this redirects to {final}, and credentials are sent to their own origin only"
        return what, f"If you trust it, give that address in place of yours: {final}"
    what = "no credentials are sent here, because this is not the origin of the address that was given"
    return what, "Give the address of this origin, if the source is there; a second origin cannot have credentials."


def _ways_in(schemes: tuple[str, ...]) -> str:
    ways = [text for name, text in (("basic", _PASSWORD), ("bearer", _TOKEN)) if name in schemes]
    if ways:
        return f"Give {'; or '.join(ways)}. {_ONLY}"
    if schemes:
        asked = ", ".join(name[:40] for name in schemes[:5])
        return (
            f"The source asks for {asked}, which Headwater does not support: ask its operator for a token or a"
            " password, or give the header that it wants by --header."
        )
    return f"Give {_TOKEN}; or {_PASSWORD}. {_ONLY}"


def _others(presented: Presented, schemes: tuple[str, ...]) -> str:
    own = {Presented.TOKEN: "bearer", Presented.PASSWORD: "basic"}.get(presented)
    return "" if not schemes or own in schemes else f"This server asks for another way: {_ways_in(schemes)}"
