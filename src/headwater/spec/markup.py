"""Serialises records as XML: entries, links, heads, in the order of the schemas (RS-DOC-18, AMB-04).

`MarkupWriter` checks each value by itself; `checks` decides what may stand in which kind of document. Plain Sitemaps
(sitemaps.org) are made of this markup for search engines, which may refuse `rs:` (AMB-64): of blocks of whole entries,
in which a `<` or `>` that belongs to a value is escaped.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final

import msgspec

from headwater.spec import checks as grammar
from headwater.spec import fast_columns
from headwater.spec.checks import WriteRefused, escape
from headwater.spec.kinds import HEADWATER, RS, SITEMAP, XML
from headwater.spec.records import AbsentResource, ChangeKind, Document, Entry, Extra, Link

_UTC = dt.UTC
_relation = lru_cache(maxsize=256)(grammar.relation)  # links of one kind have the same, and there are many
_media_type = lru_cache(maxsize=256)(grammar.media_type)
_CHANGE: Final = {change: f' change="{change.value}"' for change in ChangeKind}


def moment(time: dt.datetime) -> str:
    """A time in complete UTC form with `Z` (RS-TIME-02, AMB-06)."""
    if time.tzinfo is not _UTC:
        if time.tzinfo is None:
            raise WriteRefused(f"a time without a zone cannot be written: {time.isoformat()}", rule="RS-TIME-01")
        time = time.astimezone(_UTC)
    return time.isoformat()[:-6] + "Z"


def moments(times: Sequence[dt.datetime | None]) -> list[str | None]:
    """Many times at once; None stays None."""
    stated = [time for time in times if time is not None]
    texts = fast_columns.written_moments(stated)
    if texts is None:
        texts = [moment(time) for time in stated]
    if len(texts) == len(times):
        return list(texts)
    remaining = iter(texts)
    return [None if time is None else next(remaining) for time in times]


_LINK_ATTRIBUTES: Final[dict[str, Callable[[Any], object]]] = {
    "encoding": grammar.token,
    "hash": grammar.digests,
    "length": grammar.length,
    "modified": moment,
    "path": grammar.path,
    "pri": grammar.priority,
    "profile": lambda text: grammar.uri(text, "profile"),
    "type": _media_type,
}


_Columns = dict[str, tuple[Any, ...]]


def columns_of(entries: Sequence[Entry]) -> _Columns:
    """The entries' fields, each as one column: a column at a time is how many entries are checked and written fast."""
    return dict(zip(Entry.__struct_fields__, zip(*map(msgspec.structs.astuple, entries), strict=True), strict=True))


class MarkupWriter:
    """Writes entries and links of one document."""

    def __init__(self, entry_element: str) -> None:
        self._start = f"<{entry_element}><loc>"
        self._end = f"</{entry_element}>\n"
        self.long_uri_count = 0

    def entries(self, columns: _Columns) -> str:
        """Entries: loc, lastmod, changefreq, then `rs:md` and `rs:ln` (RS-DOC-18)."""
        locs = grammar.uris(columns["loc"])
        if max(map(len, locs)) > grammar.LONG_URI:
            self.long_uri_count += sum(len(loc) > grammar.LONG_URI for loc in locs)
        dated = [f"<lastmod>{text}</lastmod>" if text else "" for text in moments(columns["lastmod"])]
        described = self._described(columns)
        start, end = self._start, self._end
        if any(columns["changefreq"]) or any(columns["links"]):
            frequencies = [
                "" if text is None else f"<changefreq>{grammar.frequency(text)}</changefreq>"
                for text in columns["changefreq"]
            ]
            linked = ["".join(map(self.link, links)) for links in columns["links"]]
            return "".join(
                f"{start}{loc}</loc>{date}{frequency}{description}{links}{end}"
                for loc, date, frequency, description, links in zip(
                    locs, dated, frequencies, described, linked, strict=True
                )
            )
        return "".join(
            f"{start}{loc}</loc>{date}{description}{end}"
            for loc, date, description in zip(locs, dated, described, strict=True)
        )

    def _described(self, columns: _Columns) -> list[str]:
        """The `rs:md` of each entry, empty where it would say nothing."""
        parts = []
        for name, write in self._attributes.items():
            column = columns[name]
            if column.count(() if name == "extra" else None) < len(column):
                parts.append(write(self, column))
        if not parts:
            return [""] * len(columns["loc"])
        return [f"<rs:md{text}/>" if text else "" for text in map("".join, zip(*parts, strict=True))]

    def _times(self, name: str, column: Sequence[dt.datetime | None]) -> list[str]:
        return ["" if text is None else f' {name}="{text}"' for text in moments(column)]

    def _digests(self, column: Sequence[str | None]) -> list[str]:
        grammar.check_digests(column)
        return ["" if text is None else f' hash="{text}"' for text in column]

    def _lengths(self, column: Sequence[int | None]) -> list[str]:
        for number in column:
            if number is not None and number < 0:
                grammar.length(number)
        return ["" if number is None else f' length="{number}"' for number in column]

    _attributes: ClassVar[dict[str, Callable[[MarkupWriter, Sequence[Any]], list[str]]]] = {
        "capability": lambda _, column: _texts("capability", escape, column),
        "change": lambda _, column: ["" if change is None else _CHANGE[change] for change in column],
        "datetime": lambda self, column: self._times("datetime", column),
        "at": lambda self, column: self._times("at", column),
        "completed": lambda self, column: self._times("completed", column),
        "from_": lambda self, column: self._times("from", column),
        "until": lambda self, column: self._times("until", column),
        "encoding": lambda _, column: _texts("encoding", grammar.token, column),
        "hash": _digests,
        "length": _lengths,
        "path": lambda _, column: _texts("path", grammar.path, column),
        "type": lambda _, column: _texts("type", _media_type, column),
        "extra": lambda _, column: [added(extra) for extra in column],
    }

    def link(self, link: Link) -> str:
        """One `rs:ln` (RS-DOC-06, RS-LN-01…03)."""
        text = f'<rs:ln rel="{_relation(link.rel)}" href="{grammar.uri(link.href, "href")}"'
        for name, write in _LINK_ATTRIBUTES.items():
            if (value := getattr(link, name)) is not None:
                text += f' {name}="{write(value)}"'
        return text + (added(link.extra) if link.extra else "") + "/>"

    def head(self, document: Document, root: str, capability: str) -> str:
        """XML declaration, root, its links and its `rs:md`, in the order of the standard's examples (AMB-04)."""
        links = "".join(f"{self.link(link)}\n" for link in document.links)
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f'<{root} xmlns="{SITEMAP}" xmlns:rs="{RS}">\n{links}'
            f'<rs:md capability="{capability}"{times(document)}{added(document.extra)}/>\n{_absent(document.absent)}'
        )


def _absent(resources: Sequence[AbsentResource]) -> str:
    """What a package made on demand lacks, in elements of our namespace (docs/reference/addresses-and-additions.md)."""
    texts = []
    for one in resources:
        if one.reason is None:
            raise WriteRefused(f"an absent resource has a reason: {one.uri[:200]!r}")
        uri = grammar.uri(one.uri, "uri")
        texts.append(f'<hw:absent xmlns:hw="{HEADWATER}" uri="{uri}" reason="{one.reason.value}"/>\n')
    return "".join(texts)


def _texts(name: str, write: Callable[[str], str], column: Sequence[str | None]) -> list[str]:
    return ["" if text is None else f' {name}="{write(text)}"' for text in column]


def times(record: Document | Entry) -> str:
    """The four time attributes of a document or of what an entry points at."""
    stated = (("at", record.at), ("completed", record.completed), ("from", record.from_), ("until", record.until))
    return "".join(f' {name}="{moment(time)}"' for name, time in stated if time is not None)


def added(extra: Extra) -> str:
    """Attributes of other namespaces, each namespace bound where it is used (RS-DOC-13)."""
    text = ""
    prefixes = {XML: "xml"}
    names = set()
    for name, value in extra:
        namespace, local = grammar.added_name(name)
        if (namespace, local) in names:
            raise WriteRefused(f"an added attribute occurs twice: {name[:200]!r}", rule="RS-DOC-13")
        names.add((namespace, local))
        if namespace not in prefixes:
            prefixes[namespace] = "hw" if namespace == HEADWATER else f"x{len(prefixes)}"
            text += f' xmlns:{prefixes[namespace]}="{escape(namespace)}"'
        text += f' {prefixes[namespace]}:{local}="{escape(value)}"'
    return text


_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<{root} xmlns="' + SITEMAP + '">\n'
_RESOURCESYNC: Final = re.compile(rb"<rs:[^<>]*/>")
_LONG: Final = re.compile(rb"<url><loc>[^<]{%d,}</loc>(?:(?!</url>).)*</url>\n" % (grammar.LONG_URI + 1), re.DOTALL)
_WITH_MD5: Final = re.compile(rb' hash="(?:[^"]* )?(md5:[0-9A-Fa-f]+)(?: [^"]*)?"')

SITEMAP_HEAD: Final = _HEAD.format(root="urlset").encode()
SITEMAP_TAIL: Final = b"</urlset>\n"


def plain_entries(block: bytes) -> bytes:
    """The entries without what ResourceSync has added; those are left out whose `loc` is too long for a Sitemap."""
    return _LONG.sub(b"", _RESOURCESYNC.sub(b"", block))


def md5_alone(block: bytes) -> bytes:
    """The entries with MD5 as the only digest wherever there is one.

    Some readers know no other; some take all that follows the first colon for the value of one digest, and fetch the
    resource again and again.
    """
    return _WITH_MD5.sub(rb' hash="\1"', block)


def sitemap_index(parts: Iterable[tuple[str, dt.datetime | None]]) -> bytes:
    """An index of Sitemaps: each with its address and, where that is known, the time of its last modification."""
    entries = (
        f"<sitemap><loc>{grammar.uri(address)}</loc>"
        + (f"<lastmod>{moment(modified)}</lastmod></sitemap>\n" if modified else "</sitemap>\n")
        for address, modified in parts
    )
    return (_HEAD.format(root="sitemapindex") + "".join(entries) + "</sitemapindex>\n").encode()
