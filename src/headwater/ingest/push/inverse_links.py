"""Metadata and content of one publication are linked both ways (DIT-24, RS-REL): decided over values.

When one resource of a set says `describedby` of another, the other says `describes` of it, and the reverse, whether or
not its own record does. What each resource says itself is kept as its *statements*; a link that only follows from
another's statement goes when that statement goes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from headwater.catalog.interface import Metadata, Resource
from headwater.spec.records import Link

INVERSE: Final = {"describedby": "describes", "describes": "describedby"}
MOST_LINKS: Final = 500
"""Links that an entry gets in this way at most: readers bound what they take of one entry."""

Statement = tuple[str, str]
"""What a resource says of another one: the relation, and the catalog's URI of the other (DIT-24)."""

Address = Callable[[str], str]
"""The address of what the catalog knows by a URI."""


class Draft(msgspec.Struct, kw_only=True):
    """One event before it is recorded: `metadata` None is a deletion. `statements` None: as they are.

    `at` is when it happened, None for now.
    """

    uri: str
    metadata: Metadata | None
    memo: bytes = b""
    statements: tuple[Statement, ...] | None = None
    at: dt.datetime | None = None


Said = tuple[str, str, str]
"""Who, the relation, of whom."""


def statements_of(links: Iterable[Link], name: Callable[[str], str]) -> tuple[Statement, ...]:
    """What links say of other resources of the set; `name` gives the catalog's URI of an address."""
    return tuple(dict.fromkeys((link.rel, name(link.href)) for link in links if link.rel in INVERSE))


def implied_by(about: Iterable[Statement], address: Address) -> tuple[Link, ...]:
    """The links that follow for a resource from what others say of it."""
    return tuple(Link(rel=INVERSE[rel], href=address(other)) for rel, other in about)


def with_links(metadata: Metadata, implied: Iterable[Link]) -> Metadata:
    """The metadata with these links as well."""
    links = metadata.links
    for link in implied:
        links = _added(links, link.rel, link.href)
    return metadata if links is metadata.links else msgspec.structs.replace(metadata, links=links)


def differences(
    drafts: Iterable[Draft], before: Mapping[str, tuple[Statement, ...]]
) -> tuple[dict[str, tuple[Statement, ...]], list[Said], list[Said]]:
    """The statements that a batch changes, by who makes them, and what is said anew and no longer."""
    latest = {one.uri: one.statements for one in drafts if one.statements is not None}
    changed = {uri: made for uri, made in latest.items() if set(made) != set(before.get(uri, ()))}
    anew = [(uri, *one) for uri, made in changed.items() for one in made if one not in before.get(uri, ())]
    no_longer = [(uri, *one) for uri, made in changed.items() for one in before.get(uri, ()) if one not in made]
    return changed, anew, no_longer


def reciprocate(
    drafts: Sequence[Draft],
    anew: Iterable[Said],
    no_longer: Iterable[Said],
    held: Mapping[str, Resource],
    own: Mapping[str, tuple[Statement, ...]],
    address: Address,
) -> list[Draft]:
    """Give the other side its links, in its own draft where the batch has one; return the drafts that come in addition.

    `held` has the live resources that are spoken of, `own` their own statements, as they are after the batch.
    """
    latest = {one.uri: one for one in drafts}
    extra: dict[str, Draft] = {}

    def draft_of(uri: str) -> Draft | None:
        draft = latest.get(uri) or extra.get(uri)
        if draft is None and (resource := held.get(uri)) is not None:
            at = drafts[-1].at  # what follows from the batch happened with it
            draft = extra[uri] = Draft(uri=uri, metadata=resource.metadata, memo=resource.memo, at=at)
        return draft

    for uri, rel, other in no_longer:
        draft = draft_of(other)
        if draft is not None and draft.metadata is not None and (INVERSE[rel], uri) not in own.get(other, ()):
            gone = (INVERSE[rel], address(uri))
            links = tuple(link for link in draft.metadata.links if (link.rel, link.href) != gone)
            draft.metadata = msgspec.structs.replace(draft.metadata, links=links)
    for uri, rel, other in anew:
        draft = draft_of(other) if other != uri else None
        if draft is not None and draft.metadata is not None:
            links = _added(draft.metadata.links, INVERSE[rel], address(uri))
            draft.metadata = msgspec.structs.replace(draft.metadata, links=links)
    return [one for one in extra.values() if one.metadata != held[one.uri].metadata]


def _added(links: tuple[Link, ...], rel: str, href: str) -> tuple[Link, ...]:
    if len(links) >= MOST_LINKS or any(link.rel == rel and link.href == href for link in links):
        return links
    return (*links, Link(rel=rel, href=href))
