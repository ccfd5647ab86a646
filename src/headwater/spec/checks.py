"""Strict checks before anything is written: texts that XML can hold, single values, and whole documents by their kind.

Of a document, `check_head` judges the head once, and `ElementOrder` each entry in turn.
"""

import datetime as dt
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final

import msgspec

from headwater.errors import UsageFault
from headwater.spec import fast_columns
from headwater.spec.kinds import CAPABILITIES, CHANGE_FREQUENCIES, INDEX, PATCH, RS, RULES, SITEMAP, UP, Kind, Need
from headwater.spec.records import ChangeKind, Document, Entry
from headwater.spec.text_values import HASH, URI_CHARACTERS
from headwater.spec.uris import is_absolute, to_ascii
from headwater.typed_decoding import from_values

NOT_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""A character that XML cannot hold."""
_PLAIN = re.compile('[^&<>"\t\n\r\x00-\x1f\ud800-\udfff\ufffe\uffff]*').fullmatch
_REFERENCES: Final = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    '"': "&quot;",
    "\t": "&#9;",  # a parser would make spaces of these three
    "\n": "&#10;",
    "\r": "&#13;",
}
_TABLE: Final = str.maketrans(_REFERENCES)


class WriteRefused(UsageFault):
    """The document would break a rule of the standard."""

    code = "HW-WRT-01"


def escape(text: str) -> str:
    """The text as element content or attribute value. Raises WriteRefused for characters that XML cannot hold."""
    if _PLAIN(text):
        return text
    if NOT_XML.search(text):
        raise WriteRefused(f"a character that XML cannot hold in {text[:100]!a}", rule="RS-DOC-19")
    return text.translate(_TABLE)


LONGEST_URI: Final = 8_192
"""Longer URIs are refused: no server and no client takes them."""

LONG_URI: Final = 2_047
"""Longer URIs break RS-DOC-19, a fact of sitemaps.org; they are written and counted, for a lost resource is worse."""

_PLAIN_URI = re.compile(f"https?://[0-9A-Za-z][{URI_CHARACTERS}]{{0,2000}}").fullmatch
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_RELATION = re.compile(r"[a-z][a-z0-9.\-]*").fullmatch
_HASH = re.compile(HASH.replace("a-fA-F", "a-f")).fullmatch
_HASH_ITEM = re.compile(r"([a-z0-9][a-z0-9.\-]*):([0-9a-f]+)").fullmatch
_MEDIA_TYPE = re.compile(r"[0-9a-z!#$&^_.+\-]+/[0-9a-z!#$&^_.+\-]+").fullmatch
_TOKEN = re.compile(r"[0-9A-Za-z!#$%&'*+.^_`|~\-]+").fullmatch
_EXTRA_NAME = re.compile(r"\{([^{}\s]+)\}([A-Za-z_][A-Za-z0-9_.\-]*)").fullmatch


def uri(text: str, what: str = "loc") -> str:
    """An absolute URI, escaped; what may not stand in a URI is percent-encoded (AMB-07, AMB-08)."""
    if _PLAIN_URI(text):
        return text
    if not is_absolute(text):
        raise WriteRefused(f"{what} is not an absolute URI: {text[:200]!r}", rule="AMB-07")
    if _CONTROL.search(text):
        raise WriteRefused(f"a control character in {what}: {text[:200]!a}", rule="AMB-08")
    if not text.isascii() or not text.isprintable():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise WriteRefused(f"a character that XML cannot hold in {what}: {text[:200]!a}", rule="AMB-08") from None
    encoded = to_ascii(text)
    if len(encoded) > LONGEST_URI:
        raise WriteRefused(f"{what} is longer than {LONGEST_URI:,} characters: {text[:80]!r}", rule="RS-DOC-19")
    return escape(encoded)


def uris(texts: Sequence[str]) -> Sequence[str]:
    """Many `loc` at once."""
    return texts if fast_columns.are_plain_uris(texts) else [uri(text) for text in texts]


def relation(text: str) -> str:
    """One registered relation in lower case, or an absolute URI (RS-LN-01, AMB-42)."""
    if _RELATION(text):
        return text
    if ":" not in text:
        raise WriteRefused(
            f"rel is neither a registered relation in lower case nor a URI: {text[:200]!r}", rule="RS-LN-01"
        )
    return uri(text, "rel")


_REGISTRY: Final = """
about acl alternate amphtml api-catalog appendix apple-touch-icon apple-touch-startup-image archives author blocked-by
bookmark c2pa-manifest canonical chapter cite-as collection compression-dictionary contents copyright create-form
current deprecation describedby describes disclosure dns-prefetch duplicate edit edit-form edit-media enclosure
external first geofeed glossary help hosts hub ice-server icon index item last latest-version license linkset lrdd
manifest mask-icon me media-feed memento micropub modulepreload monitor monitor-group next next-archive nofollow
noopener noreferrer opener original payment pingback preconnect predecessor-version prefetch preload prerender prev
prev-archive preview previous privacy-policy profile publication rdap-active rdap-bottom rdap-down rdap-top rdap-up
related replies restconf ruleinput search section self service service-desc service-doc service-meta
sip-trunking-capability sponsored start status stylesheet subsection successor-version sunset tag terms-of-service
timegate timemap type ugc up version-history via webmention working-copy working-copy-of
"""
RELATIONS: Final = frozenset(_REGISTRY.split())
"""IANA's registry of link relations, as far as their names can stand in a document (AMB-42)."""


def why_unregistered(rel: str) -> str | None:
    """Why nobody may know a relation (RS-LN-01), with the one that was probably meant; None: registered, or a URI."""
    if rel in RELATIONS or ":" in rel:
        return None
    meant = get_close_matches(rel[:40].lower(), RELATIONS, 1)
    return f"{rel[:40]!a} is no registered relation and no URI{f'; did you mean {meant[0]}?' if meant else ''}"


def digests(text: str) -> str:
    """`algorithm:hex` items, each algorithm once, lower case (RS-MD-05, AMB-28, AMB-32)."""
    if _HASH(text):
        return text
    seen = set()
    for item in text.split(" "):
        match = _HASH_ITEM(item)
        if match is None:
            raise WriteRefused(f"not algorithm:hexdigest in hash: {item[:200]!r}", rule="RS-MD-05")
        if match[1] in seen:
            raise WriteRefused(f"{match[1]} occurs twice in one hash", rule="AMB-32")
        seen.add(match[1])
    return text


def check_digests(texts: Iterable[str | None]) -> None:
    """Many `hash` at once; None is none."""
    stated = [text for text in texts if text is not None]
    if not fast_columns.are_right_digests(stated):
        for text in stated:
            digests(text)


def media_type(text: str) -> str:
    """The essence of a media type, lower case; parameters are left out (RS-MD-11, AMB-09)."""
    essence = text.partition(";")[0].strip().lower()
    if not _MEDIA_TYPE(essence):
        raise WriteRefused(f"not a media type: {text[:200]!r}", rule="RS-MD-11")
    return escape(essence)


def path(text: str) -> str:
    """A location in a package: leading slash, no slash at the end, no way out of the package (RS-MD-10, DST-P3)."""
    if not text.startswith("/") or text.endswith("/") or "\\" in text or ".." in text.split("/"):
        raise WriteRefused(f"path must lead from / to a file: {text[:200]!r}", rule="RS-MD-10")
    return escape(text)


def frequency(text: str) -> str:
    """One of the seven values (RS-DOC-15)."""
    if text not in CHANGE_FREQUENCIES:
        raise WriteRefused(f"changefreq is none of the seven values: {text[:200]!r}", rule="RS-DOC-15")
    return text


def token(text: str) -> str:
    """A single content coding (AMB-39)."""
    if not _TOKEN(text):
        raise WriteRefused(f"encoding is not one content coding: {text[:200]!r}", rule="AMB-39")
    return escape(text)


def length(number: int) -> int:
    """Octets, never negative (RS-MD-09)."""
    if number < 0:
        raise WriteRefused(f"length is negative: {number}", rule="RS-MD-09")
    return number


def priority(number: int) -> int:
    """A rank of mirrors (RS-LN-03)."""
    if not 1 <= number <= 999_999:
        raise WriteRefused(f"pri is not within 1 to 999999: {number}", rule="RS-LN-03")
    return number


def added_name(name: str) -> tuple[str, str]:
    """Namespace and local name of an attribute that a community added (RS-DOC-12, RS-DOC-13)."""
    match = _EXTRA_NAME(name)
    if match is None or match[1] in (RS, SITEMAP):
        raise WriteRefused(f"an added attribute needs a namespace of its own: {name[:200]!r}", rule="RS-DOC-13")
    return match[1], match[2]


_MANIFESTS: Final = frozenset({Kind.RESOURCE_DUMP_MANIFEST, Kind.CHANGE_DUMP_MANIFEST})
_CHANGES: Final = frozenset({Kind.CHANGE_LIST, Kind.CHANGE_DUMP_MANIFEST, Kind.CHANGE_NOTIFICATION})
_NOT_WRITTEN: Final = frozenset({Kind.SITEMAP, Kind.SITEMAP_INDEX, Kind.UNKNOWN, Kind.UNKNOWN_INDEX})

_PLACED: Final = ("capability", "at", "completed", "from_", "until")
"""What may stand only in some documents, or is looked at one by one."""

_ANNOUNCED: Final = {
    "resourcelist": (ChangeKind.CREATED, ChangeKind.UPDATED),
    "resourcedump": (ChangeKind.CREATED,),
    "changelist": (ChangeKind.CREATED, ChangeKind.UPDATED),
    "changedump": (ChangeKind.CREATED, ChangeKind.UPDATED),
}
"""Which changes of which kind a Framework Notification may announce (RS-FN-08); others: any."""


def check_types(record: Document | Entry) -> None:
    """Raise WriteRefused when a field holds something of another type than its own."""
    if not isinstance(record, msgspec.Struct):
        raise WriteRefused(f"this is not an entry: {record!r:.200}")
    for field in msgspec.structs.fields(record):
        value = getattr(record, field.name)
        try:
            is_wrong = isinstance(from_values(value, field.type), Enum) and not isinstance(value, Enum)
        except msgspec.ValidationError:
            is_wrong = True
        if is_wrong:
            raise WriteRefused(f"{field.name} of {type(record).__name__} is of another type: {value!r:.200}")


def head_lapses(document: Document) -> Iterator[tuple[str, str]]:
    """What a head lacks although it must have it, and what contradicts itself: each lapse with its rule.

    A writer refuses for them (RS-DOC-04, Appendix A, RS-NAV-01), a reader warns of them.
    """
    rules = RULES[document.kind]
    for name in ("at", "from_", "until"):
        if getattr(rules, name) is Need.MUST and getattr(document, name) is None:
            yield rules.times_rule, f"a {rules.title} must have {name.rstrip('_')}"
    yield from interval_lapses(document)
    ups, indexes = (sum(link.rel == relation for link in document.links) for relation in (UP, INDEX))
    if rules.up is Need.MUST and not ups:
        yield rules.up_rule, f"a {rules.title} must have a link up"
    if indexes and rules.index is Need.NEVER:
        yield "AMB-44", f"a link index means nothing on a {rules.title}"
    if max(ups, indexes) > 1:
        yield "AMB-43", "one link up, and one link index, is enough"


def interval_lapses(record: Document | Entry) -> Iterator[tuple[str, str]]:
    """`at` ≤ `completed` and `from` ≤ `until` (RS-TIME-07, RS-TIME-10)."""
    if record.at is not None and record.completed is not None and record.completed < record.at:
        yield "RS-TIME-07", "completed is earlier than at"
    if record.from_ is not None and record.until is not None and record.until < record.from_:
        yield "RS-TIME-10", "until is earlier than from"


def _refuse(lapses: Iterator[tuple[str, str]]) -> None:
    """Raise WriteRefused for the first lapse."""
    try:
        for rule, what in lapses:
            raise WriteRefused(what, rule=rule)
    except TypeError:
        raise WriteRefused("a time without a zone cannot be written", rule="RS-TIME-01") from None


def check_head(document: Document) -> None:
    """Raise WriteRefused when the head breaks a MUST of its kind."""
    rules = RULES[document.kind]
    if document.kind in _NOT_WRITTEN:
        raise WriteRefused(f"{rules.title} is no kind of ResourceSync document", rule="AMB-12")
    if document.capability not in (None, rules.capability):
        raise WriteRefused(f"a {rules.title} has the capability {rules.capability}", rule="RS-DOC-04")
    for name, need in (("at", rules.at), ("completed", rules.at), ("from", rules.from_), ("until", rules.until)):
        if need is Need.NEVER and getattr(document, "from_" if name == "from" else name) is not None:
            rule = "RS-RL-03" if name in ("from", "until") else "RS-CL-02"
            raise WriteRefused(f"a {rules.title} never has {name}", rule=rule)
    _refuse(head_lapses(document))
    if rules.up is Need.NEVER and document.link(UP) is not None:
        raise WriteRefused(f"a {rules.title} is the top: it has no link up", rule="RS-SD-10")
    if any(link.path is not None for link in document.links):
        raise WriteRefused("path stands only in a manifest's entries", rule="RS-MD-10")
    if document.absent and document.kind not in _MANIFESTS:
        raise WriteRefused("only a manifest names what is absent from a package", rule="RS-DOC-18")


class ElementOrder:
    """The entries of one document so far: what the next one may be."""

    def __init__(self, document: Document) -> None:
        self._kind = document.kind
        self._rules = RULES[document.kind]
        self._from = document.from_
        self._until = document.until
        self._last: dt.datetime | None = None
        self._capabilities: set[str] = set()
        self._dated = document.kind in _CHANGES

    def check(self, entries: Sequence[Entry], columns: dict[str, tuple[Any, ...]]) -> None:
        """Raise WriteRefused when one of the entries breaks a MUST in its place."""
        if self._nothing_special(columns):
            return
        for entry in entries:
            self._check(entry)

    def _nothing_special(self, columns: dict[str, tuple[Any, ...]]) -> bool:
        """Whether a look at whole columns shows that nothing can be wrong: the case of resources and changes."""
        rules, count = self._rules, len(columns["loc"])
        if any(columns["links"]) or any(columns[name].count(None) < count for name in _PLACED):
            return False
        if rules.entry_capability is Need.MUST:
            return False
        if columns["path"].count(None) != (0 if rules.entry_path is Need.MUST else count):
            return False
        if rules.entry_change is Need.NEVER:
            return columns["change"].count(None) == count == columns["datetime"].count(None)
        moments = columns["datetime"]
        if not self._dated or not all(columns["change"]) or not all(moments):
            return False
        try:
            in_order = self._from is not None and (self._last or self._from) <= moments[0] and self._from <= moments[0]
            in_order = in_order and all(map(operator.le, moments, moments[1:]))
            in_order = in_order and (self._until is None or moments[-1] <= self._until)
        except TypeError:
            return False
        if in_order:
            self._last = moments[-1]
        return in_order

    def _check(self, entry: Entry) -> None:
        rules = self._rules
        if rules.entry_change is Need.NEVER:
            if entry.change is not None or entry.datetime is not None:
                raise WriteRefused(f"change and datetime never stand in a {rules.title}", rule="RS-MD-02")
        else:
            self._check_change(entry)
        if entry.capability is not None or rules.entry_capability is Need.MUST:
            self._check_capability(entry)
        is_manifest = self._kind in _MANIFESTS
        if entry.path is not None and not is_manifest:
            raise WriteRefused("path stands only in manifests", rule="RS-MD-10")
        if entry.path is None and rules.entry_path is Need.MUST and entry.change is not ChangeKind.DELETED:
            rule = "RS-RDM-05" if self._kind is Kind.RESOURCE_DUMP_MANIFEST else "RS-CDM-06"
            raise WriteRefused("every bitstream of a manifest must have path", rule=rule)
        if entry.at is not None or entry.completed is not None:
            self._check_times(entry, rules.entry_at, "at and completed")
        if entry.from_ is not None or entry.until is not None:
            self._check_times(entry, rules.entry_from, "from and until")
            if rules.ordered is Need.MUST and entry.from_ is not None:
                self._follow(entry.from_, "RS-ARC-17" if rules.source == "RS-ARC" else "RS-CLI-02")
        for link in entry.links:
            if link.rel == PATCH and self._kind not in _CHANGES:
                raise WriteRefused("a patch stands only where changes are listed", rule="RS-REL-04")
            if link.rel == PATCH and link.type is None:
                raise WriteRefused("a patch must have type", rule="RS-REL-04")
            if link.rel == PATCH and link.path is None and self._kind is Kind.CHANGE_DUMP_MANIFEST:
                raise WriteRefused("a patch in a manifest must have path", rule="RS-CDM-11")
            if link.path is not None and not is_manifest:
                raise WriteRefused("path stands only in manifests", rule="RS-MD-10")

    def _check_change(self, entry: Entry) -> None:
        rules = self._rules
        if entry.change is None:
            raise WriteRefused(f"every entry of a {rules.title} must have change", rule="RS-CL-07")
        if not self._dated:
            allowed = _ANNOUNCED.get(entry.capability or "", tuple(ChangeKind))
            if entry.change not in allowed:
                raise WriteRefused(f"{entry.change.value} is never announced of {entry.capability}", rule="RS-FN-08")
            return
        moment = entry.datetime
        if moment is None:
            raise WriteRefused("a change is written with its datetime", rule="AMB-17")
        try:
            if (self._from is not None and moment < self._from) or (self._until is not None and moment > self._until):
                raise WriteRefused("datetime lies outside the document's from and until", rule="RS-TIME-11")
        except TypeError:
            raise WriteRefused("a time without a zone cannot be written", rule="RS-TIME-01") from None
        self._follow(moment, "RS-CL-05")

    def _follow(self, moment: dt.datetime, rule: str) -> None:
        if self._last is not None and moment < self._last:
            raise WriteRefused("entries must be in chronological order, oldest first", rule=rule)
        self._last = moment

    def _check_capability(self, entry: Entry) -> None:
        rules, capability = self._rules, entry.capability
        if rules.entry_capability is Need.NEVER:
            raise WriteRefused(f"capability never stands in an entry of a {rules.title}", rule="RS-MD-01")
        if capability is None:
            rule = "RS-FN-06" if self._kind is Kind.FRAMEWORK_NOTIFICATION else "RS-CAP-06"
            raise WriteRefused(f"every entry of a {rules.title} must have capability", rule=rule)
        if capability not in CAPABILITIES:
            raise WriteRefused(f"an unknown capability: {capability[:200]!r}", rule="AMB-12")
        if self._kind is Kind.CAPABILITY_LIST:
            if capability in self._capabilities:
                raise WriteRefused(f"a Capability List names {capability} once", rule="RS-CAP-05")
            self._capabilities.add(capability)
        elif rules.capability == "description" and capability not in ("capabilitylist", "description"):
            raise WriteRefused("a Source Description leads to Capability Lists", rule="RS-SD-06")

    def _check_times(self, entry: Entry, need: Need, names: str) -> None:
        if need is Need.NEVER:
            raise WriteRefused(f"{names} never stand in an entry of a {self._rules.title}", rule="AMB-58")
        _refuse(interval_lapses(entry))
