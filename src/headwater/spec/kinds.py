"""What the standard fixes: kinds of documents (Appendix A: root, times, links, entries), namespaces, and sizes."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

DOCUMENT_ENTRIES = 50_000
"""Entries that one document may have at publication (RS-LIM-01, RS-LIM-02)."""

DOCUMENT_OCTETS = 52_428_800
"""Octets that one document may have at publication, uncompressed (RS-LIM-02)."""


class ReadLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one reading. Far wider than RS-LIM-01 where real sources break it, narrow where only attacks go.

    `ratio` binds the growth by decompression once `ratio_octets` have come out: real lists shrink 5 to 60 times.
    `token_octets` bounds one tag, comment or other piece of markup; `attribute_length` the attributes of one element
    together, in characters. `barren_octets`: how much may pass without an entry, so that what never ends ends soon.
    """

    octets: int = 2 << 30
    compressed_octets: int = 1 << 30
    ratio: int = 120
    ratio_octets: int = 8 << 20
    gzip_members: int = 200_000
    entries: int = 10_000_000
    barren_octets: int = 32 << 20
    depth: int = 32
    attributes: int = 200
    attribute_length: int = 1 << 17
    text_length: int = 1 << 17
    token_octets: int = 1 << 20
    links: int = 1_000


SITEMAP: Final = "http://www.sitemaps.org/schemas/sitemap/0.9"
RS: Final = "http://www.openarchives.org/rs/terms/"
XML: Final = "http://www.w3.org/XML/1998/namespace"
HEADWATER: Final = "urn:uuid:5409b1f3-7628-44aa-9add-d44fd627bfb7"
"""What Headwater adds to ResourceSync documents (docs/extensions.md). A name only: nothing is to be fetched there."""

DUMP: Final = f"{HEADWATER}#dump"
"""The relation of the address that makes packages on demand: an absolute URI, as RS-LN-01 asks of one of our own."""

PATCH: Final = "http://www.openarchives.org/rs/terms/patch"
"""The relation of a change description (RS-REL-04); the only one of the standard that is a URI."""

UP: Final = "up"
INDEX: Final = "index"

CHANGE_FREQUENCIES: Final = frozenset({"always", "hourly", "daily", "weekly", "monthly", "yearly", "never"})
"""The values of `changefreq` (RS-DOC-15)."""

_SPELLINGS: Final = {"sitemaps.org/schemas/sitemap/0.9": SITEMAP, "openarchives.org/rs/terms": RS}


def usual_name(name: str) -> str:
    """A `namespace name` with our namespace where it is written in another way: https, capitals, a slash (AMB-97)."""
    space, _, local = name.rpartition(" ")
    plain = space.lower().removeprefix("https://").removeprefix("http://").removeprefix("www.").rstrip("/")
    known = _SPELLINGS.get(plain)
    return name if known is None else f"{known} {local}"


class Root(Enum):
    """The two root elements (RS-DOC-01); only they tell an index from a leaf (RS-DOC-17)."""

    URLSET = "urlset"
    SITEMAPINDEX = "sitemapindex"


class Need(Enum):
    """How strongly something is asked for: Appendix A's M, R, O and cross."""

    MUST = "must"
    SHOULD = "should"
    MAY = "may"
    NEVER = "never"


class Kind(Enum):
    """Every kind of document that Headwater knows, core, archives and notifications."""

    SOURCE_DESCRIPTION = "source-description"
    SOURCE_DESCRIPTION_INDEX = "source-description-index"
    CAPABILITY_LIST = "capability-list"
    CAPABILITY_LIST_INDEX = "capability-list-index"
    RESOURCE_LIST = "resource-list"
    RESOURCE_LIST_INDEX = "resource-list-index"
    RESOURCE_DUMP = "resource-dump"
    RESOURCE_DUMP_INDEX = "resource-dump-index"
    RESOURCE_DUMP_MANIFEST = "resource-dump-manifest"
    CHANGE_LIST = "change-list"
    CHANGE_LIST_INDEX = "change-list-index"
    CHANGE_DUMP = "change-dump"
    CHANGE_DUMP_INDEX = "change-dump-index"
    CHANGE_DUMP_MANIFEST = "change-dump-manifest"
    RESOURCE_LIST_ARCHIVE = "resource-list-archive"
    RESOURCE_LIST_ARCHIVE_INDEX = "resource-list-archive-index"
    RESOURCE_DUMP_ARCHIVE = "resource-dump-archive"
    RESOURCE_DUMP_ARCHIVE_INDEX = "resource-dump-archive-index"
    CHANGE_LIST_ARCHIVE = "change-list-archive"
    CHANGE_LIST_ARCHIVE_INDEX = "change-list-archive-index"
    CHANGE_DUMP_ARCHIVE = "change-dump-archive"
    CHANGE_DUMP_ARCHIVE_INDEX = "change-dump-archive-index"
    CHANGE_NOTIFICATION = "change-notification"
    FRAMEWORK_NOTIFICATION = "framework-notification"
    SITEMAP = "sitemap"
    SITEMAP_INDEX = "sitemap-index"
    UNKNOWN = "unknown"
    UNKNOWN_INDEX = "unknown-index"


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What the standard asks of one kind of document."""

    title: str
    root: Root
    capability: str | None
    at: Need = Need.NEVER
    from_: Need = Need.NEVER
    until: Need = Need.NEVER
    entry_at: Need = Need.NEVER
    entry_from: Need = Need.NEVER
    entry_capability: Need = Need.NEVER
    entry_change: Need = Need.NEVER
    entry_path: Need = Need.NEVER
    up: Need = Need.MUST
    index: Need = Need.NEVER
    ordered: Need = Need.NEVER
    source: str


def _snapshot(title: str, capability: str, source: str, **more: object) -> Rules:
    return Rules(title=title, root=Root.URLSET, capability=capability, at=Need.MUST, source=source, **more)  # type: ignore[arg-type]


def _history(title: str, capability: str, source: str, **more: object) -> Rules:
    return Rules(
        title=title,
        root=Root.URLSET,
        capability=capability,
        from_=Need.MUST,
        until=Need.MAY,
        source=source,
        **more,  # type: ignore[arg-type]
    )


def _index(title: str, capability: str, source: str, **more: object) -> Rules:
    return Rules(title=title, root=Root.SITEMAPINDEX, capability=capability, source=source, **more)  # type: ignore[arg-type]


_CHANGES = {"entry_change": Need.MUST, "ordered": Need.MUST}

RULES: dict[Kind, Rules] = {
    Kind.SOURCE_DESCRIPTION: Rules(
        title="Source Description",
        root=Root.URLSET,
        capability="description",
        up=Need.NEVER,
        index=Need.SHOULD,
        entry_capability=Need.SHOULD,
        source="RS-SD",
    ),
    Kind.SOURCE_DESCRIPTION_INDEX: _index(
        "Source Description Index", "description", "RS-SD-09", up=Need.NEVER, entry_capability=Need.MAY
    ),
    Kind.CAPABILITY_LIST: Rules(
        title="Capability List",
        root=Root.URLSET,
        capability="capabilitylist",
        entry_capability=Need.MUST,
        source="RS-CAP",
    ),
    Kind.CAPABILITY_LIST_INDEX: _index("Capability List Index", "capabilitylist", "RS-CAP-09"),
    Kind.RESOURCE_LIST: _snapshot("Resource List", "resourcelist", "RS-RL", index=Need.SHOULD),
    Kind.RESOURCE_LIST_INDEX: _index("Resource List Index", "resourcelist", "RS-RLI", at=Need.MUST, entry_at=Need.MAY),
    Kind.RESOURCE_DUMP: _snapshot("Resource Dump", "resourcedump", "RS-RD", index=Need.SHOULD, entry_at=Need.MAY),
    Kind.RESOURCE_DUMP_INDEX: _index("Resource Dump Index", "resourcedump", "RS-RDI", at=Need.MUST, entry_at=Need.MAY),
    Kind.RESOURCE_DUMP_MANIFEST: _snapshot(
        "Resource Dump Manifest", "resourcedump-manifest", "RS-RDM", entry_path=Need.MUST
    ),
    Kind.CHANGE_LIST: _history("Change List", "changelist", "RS-CL", index=Need.SHOULD, **_CHANGES),
    Kind.CHANGE_LIST_INDEX: _index(
        "Change List Index",
        "changelist",
        "RS-CLI",
        from_=Need.MUST,
        until=Need.MAY,
        entry_from=Need.SHOULD,
        ordered=Need.MUST,
    ),
    Kind.CHANGE_DUMP: _history(
        "Change Dump", "changedump", "RS-CD", index=Need.SHOULD, entry_from=Need.SHOULD, ordered=Need.SHOULD
    ),
    Kind.CHANGE_DUMP_INDEX: _index(
        "Change Dump Index",
        "changedump",
        "RS-CDI",
        from_=Need.MUST,
        until=Need.MAY,
        entry_from=Need.SHOULD,
        ordered=Need.MUST,
    ),
    Kind.CHANGE_DUMP_MANIFEST: _history(
        "Change Dump Manifest", "changedump-manifest", "RS-CDM", entry_path=Need.MUST, **_CHANGES
    ),
    Kind.RESOURCE_LIST_ARCHIVE: Rules(
        title="Resource List Archive",
        root=Root.URLSET,
        capability="resourcelist-archive",
        entry_at=Need.MAY,
        index=Need.SHOULD,
        source="RS-ARC",
    ),
    Kind.RESOURCE_LIST_ARCHIVE_INDEX: _index("Resource List Archive Index", "resourcelist-archive", "RS-ARC-21"),
    Kind.RESOURCE_DUMP_ARCHIVE: Rules(
        title="Resource Dump Archive",
        root=Root.URLSET,
        capability="resourcedump-archive",
        entry_at=Need.MAY,
        index=Need.SHOULD,
        source="RS-ARC",
    ),
    Kind.RESOURCE_DUMP_ARCHIVE_INDEX: _index("Resource Dump Archive Index", "resourcedump-archive", "RS-ARC-21"),
    Kind.CHANGE_LIST_ARCHIVE: Rules(
        title="Change List Archive",
        root=Root.URLSET,
        capability="changelist-archive",
        entry_from=Need.MAY,
        index=Need.SHOULD,
        ordered=Need.MUST,
        source="RS-ARC",
    ),
    Kind.CHANGE_LIST_ARCHIVE_INDEX: _index("Change List Archive Index", "changelist-archive", "RS-ARC-21"),
    Kind.CHANGE_DUMP_ARCHIVE: Rules(
        title="Change Dump Archive",
        root=Root.URLSET,
        capability="changedump-archive",
        entry_from=Need.MAY,
        index=Need.SHOULD,
        ordered=Need.MUST,
        source="RS-ARC",
    ),
    Kind.CHANGE_DUMP_ARCHIVE_INDEX: _index("Change Dump Archive Index", "changedump-archive", "RS-ARC-21"),
    Kind.CHANGE_NOTIFICATION: Rules(
        title="Change Notification",
        root=Root.URLSET,
        capability="change-notification",
        from_=Need.MUST,
        until=Need.MUST,
        up=Need.MAY,
        source="RS-CN",
        **_CHANGES,
    ),
    Kind.FRAMEWORK_NOTIFICATION: Rules(
        title="Framework Notification",
        root=Root.URLSET,
        capability="framework-notification",
        from_=Need.MAY,
        until=Need.MAY,
        up=Need.MAY,
        entry_change=Need.MUST,
        entry_capability=Need.MUST,
        source="RS-FN",
    ),
    Kind.SITEMAP: Rules(title="Sitemap", root=Root.URLSET, capability=None, up=Need.NEVER, source="AMB-02"),
    Kind.SITEMAP_INDEX: Rules(
        title="Sitemap index", root=Root.SITEMAPINDEX, capability=None, up=Need.NEVER, source="AMB-02"
    ),
    Kind.UNKNOWN: Rules(title="Unknown document", root=Root.URLSET, capability=None, up=Need.NEVER, source="AMB-12"),
    Kind.UNKNOWN_INDEX: Rules(
        title="Unknown index", root=Root.SITEMAPINDEX, capability=None, up=Need.NEVER, source="AMB-12"
    ),
}

_BY_ROOT = {(rules.root, rules.capability): kind for kind, rules in RULES.items() if rules.source != "AMB-12"}

RENAMED = {
    "resourcesync": "description",
    "changelistindex": "changelist",
    "changelist-notification": "change-notification",
}
"""Capability names that drafts and libraries used, and the right ones (AMB-50, AMB-68)."""


def kind_of(root: Root, capability: str | None) -> Kind:
    """The kind of a document with this root element and root `capability`; unknown ones are kept as such (AMB-12)."""
    if capability is not None:
        capability = RENAMED.get(capability, capability)
    unknown = Kind.UNKNOWN if root is Root.URLSET else Kind.UNKNOWN_INDEX
    return _BY_ROOT.get((root, capability), unknown)


CAPABILITIES = frozenset(rules.capability for rules in RULES.values() if rules.capability is not None)
"""Every value of `capability` that Headwater knows (RS-DOC-04, RS-ARC-01, RS-CN-03, RS-FN-02)."""
