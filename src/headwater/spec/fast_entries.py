"""Fast path for `url` elements of the usual shape: read by regular expressions, with the result that the parser gives.

One regular expression covers a run of whole `<url>…</url>` elements without a gap. It accepts ASCII text without
anything that XML could read otherwise: no control characters, no references but `&amp;` in `loc`, no other prefixes,
attributes at most once, values that need no forgiving. What it does not cover goes to the parser. Which attributes
come in which order differs from producer to producer, so the order is learned from the elements the parser was given.
"""

import datetime as dt
import re
from functools import lru_cache
from typing import Any, Final

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
_USUAL_ORDER: Final = ("change", "datetime", "encoding", "hash", "length", "path", "type")
_CHANGES: Final = {"": None} | {change.value: change for change in ChangeKind}
_MD = re.compile(r"<[A-Za-z_][A-Za-z0-9_.-]*:md(?=[ \t\r\n])([^<>]*)/>")
_NAME = re.compile(r"""[ \t\r\n]([A-Za-z:_.-]+)="[^"<&]*(?=")""")
_RELEARNED: Final = 16  # orders that one document may teach: a hostile one must not have us compile for ever


class Irregular(Exception):
    """A run in which something needs the slow way: a time that is none, a deletion with a hash, an attribute twice."""


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

    def __init__(self, assembly: RecordBuilder) -> None:
        self._assembly = assembly
        self._prefix = "rs"
        self._order: tuple[str, ...] = _USUAL_ORDER
        self._left_to_learn = _RELEARNED

    def bind(self, prefixes: frozenset[str]) -> None:
        """The prefixes that the root binds to the ResourceSync namespace: the first is meant; with none, no `md` is."""
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
        try:
            entries = self._entries(rows) if rows else []
        except Irregular:
            return start
        assembly = self._assembly
        if len(entries) > (room := assembly.room):
            assembly.count(room)
            assembly.entries += entries[:room]
            assembly.count(1)
        assembly.count(len(entries))
        assembly.entries += entries
        return end

    def learn(self, element: str) -> None:
        """Take the order of attributes from an element that was not covered."""
        match = _MD.search(element)
        if match is None or not self._left_to_learn:
            return
        order = _merged(self._order, [name for name in _NAME.findall(match[1]) if name in _VALUES])
        if order != self._order:
            self._left_to_learn -= 1
            self._order = order

    def _entries(self, rows: list[tuple[str, ...]]) -> list[Entry]:
        """The entries of these rows. Raises Irregular where one of them is not beyond doubt."""
        columns = list(zip(*rows, strict=True))
        links = list(map(_links, columns[-2]))
        if max(map(len, links)) > self._assembly.limits.links:
            raise Irregular
        named: dict[str, Any] = dict(zip(self._order, columns[3:], strict=False))
        locs, lastmods = _locs(columns[0]), _moments(columns[1])
        changes = [_CHANGES[text] for text in named["change"]]
        datetimes = _moments(named["datetime"])
        if ChangeKind.DELETED in changes:
            described = (named[name] for name in ("hash", "length", "type", "encoding"))
            for change, *stated in zip(changes, *described, strict=True):
                if change is ChangeKind.DELETED and any(stated):
                    raise Irregular
        lengths = [int(text) if text else None for text in named["length"]]
        assembly = self._assembly
        if any(named["datetime"]):
            assembly.saw_datetime = True
        if any(changes) and not all(lastmods):
            assembly.saw_undated_change |= any(
                change and not lastmod for change, lastmod in zip(changes, lastmods, strict=True)
            )
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
                named["hash"],
                lengths,
                named["path"],
                named["type"],
                links,
                strict=True,
            )
        ]


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


@lru_cache(maxsize=512)
def _links(text: str) -> tuple[Link, ...]:
    """The links in a text that the expression covers; many documents repeat the same few."""
    links = []
    for element in text.split("<")[1:]:
        pairs = _LINK_PAIR.findall(element)
        found: dict[str, Any] = dict(pairs)
        if len(found) < len(pairs) or "rel" not in found or "href" not in found:
            raise Irregular
        found["href"] = found["href"].replace("&amp;", "&")
        try:
            if "modified" in found:
                found["modified"] = dt.datetime.fromisoformat(found["modified"])
        except ValueError:
            raise Irregular from None
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
