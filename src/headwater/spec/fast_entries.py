"""Fast path for `url` elements of the usual shape: read by regular expressions, with the result that the parser gives.

One regular expression covers a run of whole `<url>…</url>` elements without a gap. It accepts ASCII text without
anything that XML could read otherwise: no control characters, no references but `&amp;` in `loc`, no other prefixes,
attributes at most once, values that need no forgiving. What it does not cover goes to the parser. Which attributes
come in which order differs from producer to producer, so the order is learned from the elements the parser was given.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple

from headwater.spec.kinds import CHANGE_FREQUENCIES, ReadLimits
from headwater.spec.record_builder import RecordBuilder
from headwater.spec.records import ChangeKind, Entry, Link
from headwater.spec.text_values import HASH, TIME, URI_CHARACTERS
from headwater.spec.times import parse_datetime

IS_ON = True
"""Whether it is used: tests and measurements do without."""

BLOCK: Final = 1 << 16
"""Octets that are matched at a time: memory stays flat and no match runs long."""

HELD: Final = 1 << 14
"""Octets of an incomplete element that are kept back; a longer one goes to the parser."""

_S = "[ \t\r\n]"
_DATED = r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:Z|[+-][0-9]{2}:[0-9]{2}))?"
"""The forms of a time in which there is nothing to forgive, but for the two that hardly occur."""

_VALUES: Final = {
    "change": "created|updated|deleted",
    "datetime": _DATED,
    "encoding": "[0-9A-Za-z._+-]{1,64}",
    "hash": HASH,
    "length": "[0-9]{1,18}",
    "path": r"(?:/[ !#$%'()*+,\-.0-9:;=?@A-Z\[\]_a-z~]+)+",
    "type": r"[0-9A-Za-z.+_-]+/[0-9A-Za-z.+_-]+(?:; ?charset=[0-9A-Za-z._-]+)?",
}
_URI = f"https?://[0-9A-Za-z][{URI_CHARACTERS}]{{0,8192}}(?:&amp;[{URI_CHARACTERS}]*)*"
_LINK_VALUES: Final = {name: _VALUES[name] for name in ("encoding", "hash", "length", "path", "type")} | {
    "rel": r"[a-z][a-z0-9.\-]{0,64}",
    "href": _URI,
    "modified": TIME,
    "pri": "[1-9][0-9]{0,5}",
}
_LINK_ATTRIBUTE = "|".join(f'{name}="(?:{value})"' for name, value in _LINK_VALUES.items())
_LINK_PAIR = re.compile(r'([a-z]+)="([^"]*)"')
_LINKS_KNOWN: Final = 1_000  # texts of links remembered: many documents repeat the same few
_USUAL_ORDER: Final = ("change", "datetime", "encoding", "hash", "length", "path", "type")
_CHANGES: Final = {"": None} | {change.value: change for change in ChangeKind}
_MD = re.compile(r"<[A-Za-z_][A-Za-z0-9_.-]*:md(?=[ \t\r\n])([^<>]*)/>")
_PREFIX = re.compile(r"<([A-Za-z_][A-Za-z0-9_.-]*):(?:md|ln)(?=[ \t\r\n/>])")
_NAME = re.compile(r"""[ \t\r\n]([A-Za-z:_.-]+)="[^"<&]*(?=")""")
_RELEARNED: Final = 16  # orders that one document may teach: a hostile one must not have us compile for ever


class EntryColumns(NamedTuple):
    """What entries without links state of their resources, a column for each attribute.

    Texts of the usual form, empty where an entry does not state it; those of `locs` without references.
    """

    locs: tuple[str, ...]
    hashes: tuple[str, ...]
    lengths: tuple[str, ...]
    paths: tuple[str, ...]

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> EntryColumns | None:
        """The columns of entries; None where one of them has a link. That they are changes is in no column."""
        if any(entry.links for entry in entries):
            return None
        rows = [(e.loc, e.hash or "", "" if e.length is None else str(e.length), e.path or "") for e in entries]
        return cls(*zip(*rows, strict=True)) if rows else None


TakeColumns = Callable[[EntryColumns], bool]
"""Takes a run of entries by its columns; False: it does not, and they are made entries of."""


class Irregular(Exception):
    """A run in which something needs the slow way: a time that is none, a deletion with a hash."""


class Unreadable(Exception):
    """The links of the entry at `index` are for the parser to judge: an attribute twice, a time that is none."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


@lru_cache(maxsize=64)
def _expression(prefix: str, order: tuple[str, ...]) -> re.Pattern[str]:
    """Groups: loc, lastmod, changefreq, the attributes in their order, all links; last, whatever is not covered."""
    attributes = "".join(f'(?:{_S}+{name}="({_VALUES[name]})")?' for name in order)
    name = re.escape(prefix)
    return re.compile(
        f"{_S}*<url>"
        f"{_S}*<loc>({_URI})</loc>"
        f"{_S}*(?:<lastmod>({_DATED})</lastmod>{_S}*)?"
        f"(?:<changefreq>({'|'.join(sorted(CHANGE_FREQUENCIES))})</changefreq>{_S}*)?"
        f"(?:<priority>[0-9.]{{0,16}}</priority>{_S}*)?"
        f"(?:<{name}:md{attributes}{_S}*/>{_S}*)?"
        f"((?:<{name}:ln(?:{_S}+(?:{_LINK_ATTRIBUTE}))+{_S}*/>{_S}*)*)</url>"
        r"|([\s\S]+)",
        re.ASCII,
    )


def applicable(limits: ReadLimits) -> bool:
    """Whether no bound could be crossed inside an element that the expression covers."""
    widest = BLOCK + HELD
    return (
        limits.text_length >= widest
        and limits.attribute_length >= widest
        and limits.attributes >= 8
        and (limits.depth >= 3 and limits.token_octets >= widest)
    )


class FastEntries:
    """The usual shape of one document, as far as it is known, and the way from matches to entries."""

    def __init__(self, assembly: RecordBuilder, take_columns: TakeColumns | None = None) -> None:
        self._assembly = assembly
        self._take_columns = take_columns
        self._prefixes: frozenset[str] = frozenset()
        self._prefix = "rs"
        self._order: tuple[str, ...] = _USUAL_ORDER
        self._left_to_learn = _RELEARNED
        self._links: dict[str, tuple[Link, ...]] = {"": ()}

    def bind(self, prefixes: frozenset[str]) -> None:
        """The prefixes that the root binds to the ResourceSync namespace; with none, only Sitemap elements match."""
        self._prefixes = prefixes
        self._prefix = min(prefixes, default="\0")  # NUL stands in no document

    def take(self, text: str, start: int) -> int:
        """Make entries of the run of usual elements at `start`; return where it ends.

        Raises what `RecordBuilder` raises; entries before the fault are in it.
        """
        expression = _expression(self._prefix, self._order)
        rows = expression.findall(text, start)
        end = len(text)
        if rows and (rest := rows[-1][-1]):
            end -= len(rest)
            rows.pop()
        if rows:
            try:
                self._add(rows)
            except Unreadable as found:
                if found.index:
                    self._add(rows[: found.index])
                return next(islice(expression.finditer(text, start), found.index, None)).start()
        return end

    def learn(self, element: str) -> None:
        """Take the order of attributes, and the prefix, from an element that was not covered."""
        found, match = _PREFIX.search(element), _MD.search(element)
        if found is None or not self._left_to_learn:
            return
        order = self._order
        if match is not None:
            order = _merged(order, [name for name in _NAME.findall(match[1]) if name in _VALUES])
        prefix = found[1] if found[1] in self._prefixes else self._prefix
        if (prefix, order) != (self._prefix, self._order):
            self._left_to_learn -= 1
            self._prefix, self._order = prefix, order

    def _add(self, rows: list[tuple[str, ...]]) -> None:
        assembly = self._assembly
        if self._take_columns is not None and self._is_taken(rows, self._take_columns):
            return
        links = self._links_of(rows)
        try:
            entries = self._entries(rows, links)
        except Irregular:
            for row, linked in zip(rows, links, strict=True):  # as the texts that the parser would have given
                texts = {"loc": row[0].replace("&amp;", "&"), "lastmod": row[1], "changefreq": row[2]}
                stated = zip(self._order, row[3:], strict=False)
                md = [part for name, value in stated if value for part in (name, value)]
                assembly.add({name: text for name, text in texts.items() if text}, md, linked)
            return
        if len(entries) > (room := assembly.room):
            assembly.count(room)
            assembly.entries += entries[:room]
            assembly.count(1)
        assembly.count(len(entries))
        assembly.entries += entries

    def _is_taken(self, rows: list[tuple[str, ...]], take: TakeColumns) -> bool:
        """Give the rows away as columns, where that leaves nothing out; entries before them must be taken first."""
        assembly = self._assembly
        columns = list(zip(*rows, strict=True))
        named: dict[str, Any] = dict(zip(self._order, columns[3:], strict=False))
        if (
            assembly.entries
            or len(rows) > assembly.room
            or any(map(any, (columns[-2], named["change"], named["datetime"])))
        ):
            return False
        try:
            _moments(columns[1])
        except Irregular:
            return False  # a time that is none is told of where an entry is made
        found = EntryColumns(tuple(_locs(columns[0])), named["hash"], named["length"], named["path"])
        if not take(found):
            return False
        assembly.count(len(rows))
        return True

    def _entries(self, rows: list[tuple[str, ...]], links: list[tuple[Link, ...]]) -> list[Entry]:
        columns = list(zip(*rows, strict=True))
        named: dict[str, Any] = dict(zip(self._order, columns[3:], strict=False))
        locs, lastmods = _locs(columns[0]), _moments(columns[1])
        changes = [_CHANGES[text] for text in named["change"]]
        datetimes = _moments(named["datetime"])
        if ChangeKind.DELETED in changes:
            described = (named[name] for name in ("hash", "length", "type", "encoding"))
            for change, *stated in zip(changes, *described, strict=True):
                if change is ChangeKind.DELETED and any(stated):
                    raise Irregular
        hashes, types, lengths = named["hash"], named["type"], [int(text) if text else None for text in named["length"]]
        assembly = self._assembly
        if any(named["datetime"]):
            assembly.saw_datetime = True
        if any(changes) and not all(lastmods):
            assembly.saw_undated_change |= any(
                change and not lastmod for change, lastmod in zip(changes, lastmods, strict=True)
            )
        if not (
            any(links)
            or any(changes)
            or any(named["datetime"])
            or any(columns[2])
            or any(named["path"])
            or any(named["encoding"])
        ):
            return [
                Entry(loc=loc, lastmod=lastmod, hash=digest or None, length=length, type=kind or None)
                for loc, lastmod, digest, length, kind in zip(locs, lastmods, hashes, lengths, types, strict=True)
            ]
        return [
            Entry(
                loc=loc,
                lastmod=lastmod,
                changefreq=frequency or None,
                change=change,
                datetime=moment,
                encoding=encoding or None,
                hash=digest or None,
                length=length,
                path=path or None,
                type=kind or None,
                links=linked,
            )
            for loc, lastmod, frequency, change, moment, encoding, digest, length, path, kind, linked in zip(
                locs,
                lastmods,
                columns[2],
                changes,
                datetimes,
                named["encoding"],
                hashes,
                lengths,
                named["path"],
                types,
                links,
                strict=True,
            )
        ]

    def _links_of(self, rows: list[tuple[str, ...]]) -> list[tuple[Link, ...]]:
        """The links of each row. Raises Unreadable at the first row whose links are not beyond doubt."""
        texts = [row[-2] for row in rows]
        if not any(texts):
            return [()] * len(rows)
        known = self._links
        linked = []
        for index, text in enumerate(texts):
            links = known.get(text)
            if links is None:
                links = _links(text)
                if links is None or len(links) > self._assembly.limits.links:
                    raise Unreadable(index)
                if len(known) > _LINKS_KNOWN:
                    known.clear()
                known[text] = links
            linked.append(links)
        return linked


def _locs(column: tuple[str, ...]) -> list[str] | tuple[str, ...]:
    if any("&" in text for text in column):
        return [text.replace("&amp;", "&") for text in column]
    return column


def _moments(column: tuple[str, ...]) -> list[dt.datetime | None]:
    if not any(column):
        return [None] * len(column)
    read, utc = dt.datetime.fromisoformat, dt.UTC
    try:
        moments = [read(text) if text else None for text in column]
        if all(moment is None or moment.tzinfo is utc for moment in moments):
            return moments
        return [_moment(text) if text else None for text in column]
    except ValueError:
        raise Irregular from None


@lru_cache(maxsize=4_096)
def _moment(text: str) -> dt.datetime:
    """A day, or a time in another zone; days repeat."""
    return parse_datetime(text)[0]


def _links(text: str) -> tuple[Link, ...] | None:
    """The links in a text that the expression covers; None when one is not well-formed, or not complete."""
    links = []
    for element in text.split("<")[1:]:
        pairs = _LINK_PAIR.findall(element)
        found: dict[str, Any] = dict(pairs)
        if len(found) < len(pairs) or "rel" not in found or "href" not in found:
            return None
        found["href"] = found["href"].replace("&amp;", "&")
        try:
            if "modified" in found:
                found["modified"] = dt.datetime.fromisoformat(found["modified"])
        except ValueError:
            return None
        for name in ("length", "pri"):
            if name in found:
                found[name] = int(found[name])
        links.append(Link(**found))
    return tuple(links)


def _merged(order: tuple[str, ...], names: list[str]) -> tuple[str, ...]:
    """All attributes, those of `names` in their order, each of the others after the one it followed before."""
    if len(set(names)) < len(names) or [name for name in order if name in names] == names:
        return order
    merged = list(names)
    for index, name in enumerate(order):
        if name not in merged:
            at = merged.index(order[index - 1]) + 1 if index else 0
            merged.insert(at, name)
    return tuple(merged)
