"""The rules by which the entries of a set get links when they are rendered: settings, as values.

What they lead to is found in `publish/added_links.py`.

Some rules are about resources that belong together by their names: a metadata record and what it describes (RS-REL-05,
RS-REL-06), and the representations of one generic URI (RS-REL-02, RS-REL-03).

The catalog weighs entries without such links (`catalog/page_filling.py`), so that its weights stay what they are when
the rules change. A link is counted like an entry: pages and segments of a set whose rules give n links to an entry
weigh one (1 + n)th of a document, and the links of an entry take n times its weight at most.
"""

import mimetypes
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Final

import msgspec

from headwater.catalog.interface import Change, Resource
from headwater.catalog.page_filling import FIXED_OCTETS
from headwater.errors import UsageFault
from headwater.files.patterns import BadPattern, Selection
from headwater.spec.checks import WriteRefused, why_unregistered
from headwater.spec.kinds import DOCUMENT_OCTETS, PATCH
from headwater.spec.markup import MarkupWriter
from headwater.spec.records import Link
from headwater.spec.uris import is_absolute

_bad_rule = partial(UsageFault, code="HW-CFG-05")
HEAD_OCTETS: Final = 65_536  # what the head and the end of a document take at most

ROOM: Final = DOCUMENT_OCTETS - HEAD_OCTETS

HOLE: Final = "{stem}"
MOST_CONTENTS: Final = 20  # a record leads to so many of the resources that a `*` stands for; each of them leads to it
_suffix = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,30}(?:\.[A-Za-z0-9][A-Za-z0-9_+-]{0,30})?").fullmatch
_type = re.compile(r"[a-z0-9][a-z0-9.+-]{0,80}/[a-z0-9][a-z0-9.+-]{0,80}").fullmatch
_path = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%/-]*").fullmatch


class DescribedRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The resource `record` is metadata about `content`: patterns of paths with one `{stem}`, the same in both.

    A `*` in `content`, behind `{stem}/`, stands for any characters of one name. The two are linked `describedby` and
    `describes` while both are there. `profile` says what kind of metadata it is (RS-REL-07). Raises UsageFault.
    """

    content: str
    record: str
    profile: str | None = None

    def __post_init__(self) -> None:
        for name, pattern in (("content", self.content), ("record", self.record)):
            start, hole, end = pattern.partition(HOLE)
            before, star, after = pattern.partition("*")
            if star and (name == "record" or "*" in after or "/" not in before.partition(HOLE)[2]):
                raise _bad_rule(f"{name}: a `*` stands once, in content, behind {HOLE}/: {pattern[:200]!r}")
            parts = f"{start}x{end}".split("/")
            if not hole or not _path(start) or not _path(end) or not {"", ".", ".."}.isdisjoint(parts):
                raise _bad_rule(f"{name} is no path with one {HOLE}: {pattern[:200]!r}")
        if self.content == self.record:
            raise _bad_rule(f"content and record are the same: {self.content[:200]!r}")
        if self.profile is not None:
            try:
                MarkupWriter("url").link(Link(rel="profile", href=self.profile))
            except WriteRefused as cause:
                raise _bad_rule(cause.what, rule=cause.rule) from cause
            if not is_absolute(self.profile):
                raise _bad_rule(f"profile is no absolute URI: {self.profile[:200]!r}", rule="RS-REL-07")

    def describes(self, record: str, uri: str) -> bool:
        """Whether a resource is content of a record, by their URIs."""
        return _other(self.content, self.record, uri) == record != uri


class Variant(msgspec.Struct, frozen=True):
    """The representations with this suffix and, where one is told, this media type."""

    suffix: str
    type: str | None = None


@lru_cache(maxsize=256)
def variants_of(texts: tuple[str, ...]) -> tuple[Variant, ...]:
    """The variants that a list of suffixes and media types means, in its order. Raises UsageFault."""
    found: dict[str, Variant] = {}
    for text in texts:
        if _type(text):
            suffixes = [one[1:] for one in mimetypes.MimeTypes().guess_all_extensions(text)]
            if not suffixes:
                raise _bad_rule(f"no suffix is known for the media type {text}", advice="Name the suffix instead.")
            made = [Variant(one, text) for one in sorted(suffixes)]
        elif _suffix(text):
            made = [Variant(text)]
        else:
            raise _bad_rule(f"variants has neither a suffix nor a media type: {text[:200]!r}")
        for one in made:
            found.setdefault(one.suffix, one)
    if texts and len(found) < 2:
        raise _bad_rule("variants has one suffix alone: there is nothing to choose from")
    return tuple(found.values())


def generic_of(uri: str, variants: tuple[Variant, ...]) -> tuple[str, Variant] | None:
    """The generic URI of which this is a variant, and which one; None where it is none."""
    for one in sorted(variants, key=lambda variant: -len(variant.suffix)):
        end = f".{one.suffix}"
        if uri.endswith(end) and not uri[: -len(end)].endswith("/") and len(uri) > len(end):
            return uri[: -len(end)], one
    return None


def partners(described: tuple[DescribedRule, ...], variants: tuple[Variant, ...], uri: str) -> Iterator[str]:
    """The URIs of what may be linked with the resource, whether it is there or not; whoever is, has it as partner.

    Relative URIs alone have partners: what others serve has no names that we know.
    """
    if "://" in uri:
        return
    for rule in described:
        for ours, theirs in ((rule.content, rule.record), (rule.record, rule.content)):
            if "*" not in theirs and (other := _other(ours, theirs, uri)) is not None and other != uri:
                yield other
    if variants:
        found = generic_of(uri, variants)
        if found is not None:
            yield found[0]
            yield from (f"{found[0]}.{one.suffix}" for one in variants if one != found[1])
        yield from (f"{uri}.{one.suffix}" for one in variants)


def partner_links(
    described: tuple[DescribedRule, ...],
    variants: tuple[Variant, ...],
    row: Resource | Change,
    there: Mapping[str, Resource],
    prefix: str,
    fitting: Callable[[str, Callable[[str], bool]], Sequence[str]],
) -> tuple[Link, ...]:
    """The links of a resource with those of its partners that are `there`; URIs are below `prefix`.

    `fitting` gives URIs of the set that begin with a text and of which a function says that they fit.

    A variant has `canonical` to the generic URI, where no resource of its own has it, and `alternate` to the others.
    """
    uri, links = row.uri, list[Link]()
    if "://" in uri:
        return ()
    for rule in described:
        record = _other(rule.content, rule.record, uri)
        if record in there and record != uri:
            links.append(Link(rel="describedby", href=f"{prefix}{record}"))
        content = _other(rule.record, rule.content.partition("*")[0], uri)
        if content is not None and "*" in rule.content:
            contents = fitting(content, partial(rule.describes, uri))
        else:
            contents = [content] if content is not None and content in there and content != uri else []
        links += [Link(rel="describes", href=f"{prefix}{one}") for one in contents[:MOST_CONTENTS]]
        if contents and rule.profile is not None:
            links.append(Link(rel="profile", href=rule.profile))
    found = generic_of(uri, variants)
    if found is None or not is_variant(row, found[1]) or found[0] in there:
        return tuple(links)
    generic, own = found
    links.append(Link(rel="canonical", href=prefix + generic))
    for one in variants:
        other = there.get(f"{generic}.{one.suffix}")
        if one != own and other is not None and is_variant(other, one):
            stated = other.metadata
            link = Link(
                rel="alternate",
                href=prefix + other.uri,
                hash=stated.hash,
                length=stated.length,
                modified=stated.lastmod,
                type=stated.type,
            )
            links.append(link)
    return tuple(links)


def is_variant(resource: Resource | Change, variant: Variant) -> bool:
    """Whether a resource is of the type that its variant has."""
    return variant.type is None or resource.metadata.type == variant.type


def _other(ours: str, theirs: str, uri: str) -> str | None:
    """What stands at the other pattern for a URI that fits the one; None where it does not."""
    found = _expression(ours)(uri)
    return None if found is None else theirs.replace(HOLE, found[1])


@lru_cache(maxsize=256)
def _expression(pattern: str) -> Callable[[str], re.Match[str] | None]:
    start, _hole, end = (re.escape(one) for one in pattern.partition(HOLE))
    return re.compile(f"{start}(.+){end.replace(re.escape('*'), '[^/]*')}", re.DOTALL).fullmatch


PLACEHOLDERS: Final = ("path", "uri", "name", "stem")
"""What a pattern of URLs may have between braces: the path below the set's folder, the whole URI, its last segment,
and the path without its last suffix."""

LONGEST_PATTERN: Final = 2_000
MOST_RULES: Final = 100  # rules of one kind in one set: each is looked at for each entry

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
    UsageFault.
    """

    rel: str
    href: str
    pri: int | None = None
    type: str | None = None
    match: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (odd := why_unregistered(self.rel)) is not None:
            raise _bad_rule(f"rel: {odd}", rule="RS-LN-01")
        if self.rel in _RESERVED_RELATIONS:
            raise _bad_rule(f"links of the relation {self.rel[:100]} are made by Headwater itself", rule="RS-LN-01")
        _check_pattern(self.href, self.rel)
        if self.pri is not None and not 1 <= self.pri <= 999_999:
            raise _bad_rule(f"pri is not within 1 to 999999: {self.pri}", rule="RS-LN-03")
        try:
            _markup.link(self.link("a/b.c", "http://a/b/c"))
            Selection(self.match)
        except (WriteRefused, BadPattern) as cause:
            raise _bad_rule(cause.what, rule=cause.rule) from cause

    def link(self, path: str, uri: str) -> Link:
        """The link of the resource with this path below the set's folder and this absolute URI."""
        return Link(rel=self.rel, href=filled(self.href, path, uri), pri=self.pri, type=self.type)

    @property
    def entry_count(self) -> int:
        """How many entries weigh as much as the link does at most."""
        return max(len(_HOLE.findall(self.href)), 1 + len(self.href) // FIXED_OCTETS)


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
    UsageFault.
    """

    urls: tuple[UrlRule, ...] = ()
    described: tuple[DescribedRule, ...] = ()
    variants: tuple[str, ...] = ()
    mementos: str = ""
    """The URL below which the states of the resources lie, for `memento` links of changes (RS-REL-08); empty: none."""

    def __post_init__(self) -> None:
        for count in (len(self.urls), len(self.described), len(self.variants)):
            if count > MOST_RULES:
                raise _bad_rule(f"{count} rules of one kind: a set has {MOST_RULES} at most")
        variants_of(self.variants)
        ranked = Counter((one.rel, one.pri, one.match) for one in self.urls if one.pri is not None)
        if doubled := next((one for one, count in ranked.items() if count > 1), None):
            raise _bad_rule(f"two links of the relation {doubled[0]} have pri {doubled[1]}", rule="RS-LN-03")

    def patterns(self) -> dict[str, Callable[[str], object]]:
        """The patterns by which rules choose resources, and what tells whether a relative URI fits one."""
        found: dict[str, Callable[[str], object]] = {}
        found |= {text: _expression(text) for rule in self.described for text in (rule.content, rule.record)}
        return found | {" ".join(one.match): partial(_selects, Selection(one.match)) for one in self.urls if one.match}

    @property
    def links_of_entry(self) -> int:
        """How many links they add to an entry at most, each no longer than an entry.

        A resource may be record and content by one rule, and the rule may have a profile.
        """
        described = sum(
            1 + (MOST_CONTENTS if "*" in one.content else 1) + (one.profile is not None) for one in self.described
        )
        urls = sum(one.entry_count for one in self.urls)
        return urls + described + len(variants_of(self.variants)) + bool(self.mementos)

    @property
    def document_octets(self) -> int:
        """What a document may weigh without these links such that it has room for all of them (RS-LIM-02)."""
        return ROOM // (1 + self.links_of_entry)


NO_RULES: Final = LinkRules()


def _selects(selection: Selection, uri: str) -> bool:
    return selection.takes(uri.encode())


def _check_pattern(pattern: str, rel: str) -> None:
    """Raise UsageFault when this is no pattern of absolute URLs; a mirror or origin may be any scheme with a host."""
    if len(pattern) > LONGEST_PATTERN:
        raise _bad_rule(f"href of {rel} has more than {LONGEST_PATTERN:,} characters", rule="RS-DOC-19")
    unknown = [one for one in _HOLE.findall(pattern) if one not in PLACEHOLDERS]
    if unknown or {"{", "}"} & set(_HOLE.sub("", pattern)):
        known = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
        raise _bad_rule(f"href of {rel} has other braces than {known}: {pattern[:200]!r}")
    plain = _HOLE.sub("", pattern)
    scheme = pattern.partition(":")[0].lower()
    if scheme in _LOCAL or (rel == "duplicate" and scheme not in _MIRRORS and is_absolute(plain)):
        raise _bad_rule(f"href of {rel} has the scheme {scheme}, which cannot be fetched", rule="RS-REL-01")
    is_odd = "{" in scheme or not plain.isascii() or not plain.isprintable() or " " in plain or '"' in plain
    if not is_absolute(plain) or is_odd:
        raise _bad_rule(f"href of {rel} is no absolute URL: {pattern[:200]!r}", rule="RS-LN-01")
