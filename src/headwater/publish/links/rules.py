"""The rules by which the entries of a set get links when they are rendered: settings, as values.

They travel as JSON to the processes that render (`publish/rendering/pool.py`). What they lead to is found in
`publish/links/link_sources.py`, a source of links for each kind of rule.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

import msgspec

from headwater.catalog.entry_size import URI_PREFIX_OCTETS
from headwater.files.patterns import BadPattern, Selection
from headwater.publish.links.allowance import NOTHING, ROOM, Allowance
from headwater.publish.links.partners import BadLinkRule, DescribedRule, variants_allowance, variants_of
from headwater.spec.checks import WriteRefused, escape
from headwater.spec.kinds import PATCH
from headwater.spec.markup import MarkupWriter
from headwater.spec.records import Link
from headwater.spec.uris import is_absolute

PLACEHOLDERS: Final = ("path", "uri", "name", "stem")
"""What a pattern of URLs may have between braces: the path below the set's folder, the whole URI, its last segment,
and the path without its last suffix."""

LONGEST_PATTERN: Final = 2_000
MEMENTO_OCTETS: Final = 600
"""What a `memento` link takes at most, beside its URL: time, SHA-256, length, and a media type of 100 octets."""
MOST_RULES: Final = 100
"""Rules of one kind in one set: each is looked at for each entry."""

_HOLE = re.compile(r"\{([^{}]*)\}")
_RESERVED_RELATIONS: Final = frozenset({"up", "index", "contents", "archives", "resourcesync", PATCH})
"""Relations whose links the documents or other settings make."""
_MIRRORS: Final = frozenset({"http", "https", "ftp", "ftps"})
_LOCAL: Final = frozenset({"javascript", "data", "file", "blob", "about"})
_markup = MarkupWriter("url")


class UrlRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A link of relation `rel` from each resource to the URL that `href` gives for it (RS-REL-01, RS-REL-14).

    `href` is an absolute URL in which `{path}`, `{uri}`, `{name}` and `{stem}` stand for what they mean of the
    resource, as it is written in its URI. `match` are patterns of paths: only these resources get the link. Raises
    BadLinkRule.
    """

    rel: str
    href: str
    pri: int | None = None
    type: str | None = None
    match: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rel in _RESERVED_RELATIONS:
            raise BadLinkRule(f"links of the relation {self.rel[:100]} are made by Headwater itself", rule="RS-LN-01")
        _check_pattern(self.href, self.rel)
        if self.pri is not None and not 1 <= self.pri <= 999_999:
            raise BadLinkRule(f"pri is not within 1 to 999999: {self.pri}", rule="RS-LN-03")
        try:
            _markup.link(self.link("a/b.c", "http://a/b/c"))
            Selection(self.match)
        except (WriteRefused, BadPattern) as cause:
            raise BadLinkRule(cause.what, rule=cause.rule) from cause

    def link(self, path: str, uri: str) -> Link:
        """The link of the resource with this path below the set's folder and this absolute URI."""
        return Link(rel=self.rel, href=filled(self.href, path, uri), pri=self.pri, type=self.type)

    @property
    def allowance(self) -> Allowance:
        """What the link adds to an entry at most."""
        holes = _HOLE.findall(self.href)
        bare = Link(rel=self.rel, href=_HOLE.sub("", self.href), pri=self.pri, type=self.type)
        octets = len(_markup.link(bare).encode()) + holes.count("uri") * URI_PREFIX_OCTETS
        return Allowance(octets, len(holes))


def filled(pattern: str, path: str, uri: str) -> str:
    """The URL that a pattern gives for a resource."""
    first = stem(path) if "{stem}" in pattern else ""
    return pattern.format(path=path, uri=uri, name=path.rpartition("/")[2], stem=first)


def stem(path: str) -> str:
    """The path without the suffix of its last segment; a segment that only begins with a dot has none."""
    folder, slash, name = path.rpartition("/")
    start, dot, _suffix = name.rpartition(".")
    return f"{folder}{slash}{start}" if dot and start else path


class LinkRules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All rules of one set, by kind; a kind that a set has none of costs nothing.

    `variants` are suffixes or media types: `report.html` and `report.pdf` are representations of `report`. Raises
    BadLinkRule.
    """

    urls: tuple[UrlRule, ...] = ()
    described: tuple[DescribedRule, ...] = ()
    variants: tuple[str, ...] = ()
    mementos: str = ""
    """The URL below which the states of the resources lie, for `memento` links of changes (RS-REL-08); empty: none."""

    def __post_init__(self) -> None:
        for count in (len(self.urls), len(self.described), len(self.variants)):
            if count > MOST_RULES:
                raise BadLinkRule(f"{count} rules of one kind: a set has {MOST_RULES} at most")
        variants_of(self.variants)
        ranked = Counter((one.rel, one.pri, one.match) for one in self.urls if one.pri is not None)
        if doubled := next((one for one, count in ranked.items() if count > 1), None):
            raise BadLinkRule(f"two links of the relation {doubled[0]} have pri {doubled[1]}", rule="RS-LN-03")

    @property
    def allowance(self) -> Allowance:
        """What all of them add to an entry at most."""
        total = NOTHING
        for rule in self.urls:
            total = total.plus(rule.allowance)
        for one in self.described:
            total = total.plus(one.allowance)
        if self.mementos:
            total = total.plus(Allowance(len(self.mementos) + MEMENTO_OCTETS, 1))
        return total.plus(variants_allowance(self.variants))

    @property
    def document_octets(self) -> int:
        """What a document may weigh without these links such that it has room for all of them."""
        return ROOM if self == NO_RULES else self.allowance.document_octets()


NO_RULES: Final = LinkRules()


def _check_pattern(pattern: str, rel: str) -> None:
    """Raise BadLinkRule when this is no pattern of absolute URLs; a mirror or origin may be any scheme with a host."""
    if len(pattern) > LONGEST_PATTERN:
        raise BadLinkRule(f"href of {rel} has more than {LONGEST_PATTERN:,} characters", rule="RS-DOC-19")
    unknown = [one for one in _HOLE.findall(pattern) if one not in PLACEHOLDERS]
    if unknown or {"{", "}"} & set(_HOLE.sub("", pattern)):
        known = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
        raise BadLinkRule(f"href of {rel} has other braces than {known}: {pattern[:200]!r}")
    plain = _HOLE.sub("", pattern)
    scheme = pattern.partition(":")[0].lower()
    if scheme in _LOCAL or (rel == "duplicate" and scheme not in _MIRRORS and is_absolute(plain)):
        raise BadLinkRule(f"href of {rel} has the scheme {scheme}, which nobody can fetch", rule="RS-REL-01")
    if not is_absolute(plain) or "{" in scheme or not plain.isascii() or not plain.isprintable() or " " in plain:
        raise BadLinkRule(f"href of {rel} is no absolute URL: {pattern[:200]!r}", rule="RS-LN-01")
    if escape(plain) != plain and '"' in plain:
        raise BadLinkRule(f"href of {rel} is no absolute URL: {pattern[:200]!r}", rule="RS-LN-01")
