"""Which resources of a set belong together by their names, and the links that say so while both are there.

A metadata record and what it describes (RS-REL-05, RS-REL-06), and the representations of one generic URI (RS-REL-02,
RS-REL-03). Over values: URIs and rows in, links out.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import ClassVar, Final

import msgspec

from headwater.catalog.entry_size import URI_PREFIX_OCTETS
from headwater.catalog.interface import Change, Resource
from headwater.errors import UsageFault
from headwater.publish.links.allowance import Allowance
from headwater.spec.checks import WriteRefused
from headwater.spec.markup import MarkupWriter
from headwater.spec.records import Link
from headwater.spec.uris import is_absolute

HOLE: Final = "{stem}"
_LINK_OCTETS: Final = 460
"""What a link takes besides URIs and media type, with two digests, a length and a time."""
_suffix = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,30}(?:\.[A-Za-z0-9][A-Za-z0-9_+-]{0,30})?").fullmatch
_type = re.compile(r"[a-z0-9][a-z0-9.+-]{0,80}/[a-z0-9][a-z0-9.+-]{0,80}").fullmatch
_path = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%/-]*").fullmatch


class BadLinkRule(UsageFault):
    """A rule for links is invalid."""

    code: ClassVar[str] = "HW-CFG-05"
    advice: ClassVar[str] = "docs/links.md shows each kind of rule by an example and what comes of it."


class DescribedRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The resource `record` is metadata about `content`: patterns of paths with one `{stem}`, the same in both.

    The two are linked `describedby` and `describes` while both are there. `profile` says what kind of metadata it is
    (RS-REL-07). Raises BadLinkRule.
    """

    content: str
    record: str
    profile: str | None = None

    def __post_init__(self) -> None:
        for name, pattern in (("content", self.content), ("record", self.record)):
            start, hole, end = pattern.partition(HOLE)
            parts = f"{start}x{end}".split("/")
            if not hole or not _path(start) or not _path(end) or not {"", ".", ".."}.isdisjoint(parts):
                raise BadLinkRule(f"{name} is no path with one {HOLE}: {pattern[:200]!r}")
        if self.content == self.record:
            raise BadLinkRule(f"content and record are the same: {self.content[:200]!r}")
        if self.profile is not None:
            try:
                MarkupWriter("url").link(Link(rel="profile", href=self.profile))
            except WriteRefused as cause:
                raise BadLinkRule(cause.what, rule=cause.rule) from cause
            if not is_absolute(self.profile):
                raise BadLinkRule(f"profile is no absolute URI: {self.profile[:200]!r}", rule="RS-REL-07")

    @property
    def allowance(self) -> Allowance:
        """What the rule adds to an entry at most: it may be the one and the other, and a profile."""
        octets = 2 * (_LINK_OCTETS + URI_PREFIX_OCTETS + len(self.content) + len(self.record))
        return Allowance(octets + len(self.profile or "") * 6 + 60, 2)


class Variant(msgspec.Struct, frozen=True):
    """The representations with this suffix and, where one is told, this media type."""

    suffix: str
    type: str | None = None


@lru_cache(maxsize=256)
def variants_of(texts: tuple[str, ...]) -> tuple[Variant, ...]:
    """The variants that a list of suffixes and media types means, in its order. Raises BadLinkRule."""
    found: dict[str, Variant] = {}
    for text in texts:
        if _type(text):
            suffixes = [one[1:] for one in mimetypes.MimeTypes().guess_all_extensions(text)]
            if not suffixes:
                raise BadLinkRule(f"no suffix is known of the media type {text}", advice="Name the suffix instead.")
            made = [Variant(one, text) for one in sorted(suffixes)]
        elif _suffix(text):
            made = [Variant(text)]
        else:
            raise BadLinkRule(f"variants has neither a suffix nor a media type: {text[:200]!r}")
        for one in made:
            found.setdefault(one.suffix, one)
    if texts and len(found) < 2:
        raise BadLinkRule("variants has one suffix alone: there is nothing to choose from")
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
            if (other := _other(ours, theirs, uri)) is not None and other != uri:
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
    absolute: Callable[[str], str],
) -> tuple[Link, ...]:
    """The links of a resource with those of its partners that are `there`."""
    uri, links = row.uri, list[Link]()
    if "://" in uri:
        return ()
    for rule in described:
        record, content = _other(rule.content, rule.record, uri), _other(rule.record, rule.content, uri)
        if record in there and record != uri:
            links.append(Link(rel="describedby", href=absolute(str(record))))
        if content in there and content != uri:
            links.append(Link(rel="describes", href=absolute(str(content))))
            if rule.profile is not None:
                links.append(Link(rel="profile", href=rule.profile))
    links += _variant_links(variants, row, there, absolute)
    return tuple(links)


def is_variant(resource: Resource | Change, variant: Variant) -> bool:
    """Whether a resource is of the type that its variant has."""
    return variant.type is None or resource.metadata.type == variant.type


def _variant_links(
    variants: tuple[Variant, ...],
    row: Resource | Change,
    there: Mapping[str, Resource],
    absolute: Callable[[str], str],
) -> Iterator[Link]:
    """`canonical` to the generic URI, where no resource of its own has it, and `alternate` to the others."""
    found = generic_of(row.uri, variants)
    if found is None or not is_variant(row, found[1]) or found[0] in there:
        return
    generic, own = found
    yield Link(rel="canonical", href=absolute(generic))
    for one in variants:
        other = there.get(f"{generic}.{one.suffix}")
        if one != own and other is not None and is_variant(other, one):
            stated = other.metadata
            yield Link(
                rel="alternate",
                href=absolute(other.uri),
                hash=stated.hash,
                length=stated.length,
                modified=stated.lastmod,
                type=stated.type,
            )


def variants_allowance(texts: tuple[str, ...]) -> Allowance:
    """What links between variants add to an entry at most."""
    each = _LINK_OCTETS + URI_PREFIX_OCTETS + 64 + 164
    return Allowance(each * len(variants_of(texts)), len(variants_of(texts))) if texts else Allowance()


def _other(ours: str, theirs: str, uri: str) -> str | None:
    """What stands at the other pattern for a URI that fits the one; None where it does not."""
    start, _hole, end = ours.partition(HOLE)
    if len(uri) <= len(start) + len(end) or not uri.startswith(start) or not uri.endswith(end):
        return None
    return theirs.replace(HOLE, uri[len(start) : len(uri) - len(end)])
