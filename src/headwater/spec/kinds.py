"""What the standard fixes: kinds of documents (Appendix A: root, times, links, entries), namespaces, and sizes."""

from enum import Enum
from typing import Any, Final

import msgspec

DOCUMENT_ENTRIES = 50_000
"""Entries that one document may have at publication (RS-LIM-01, RS-LIM-02)."""

DOCUMENT_OCTETS = 52_428_800
"""Octets that one document may have at publication, uncompressed (RS-LIM-02)."""


class ReadLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one reading.

    `ratio`: growth by decompression, once `ratio_octets` have come out. `token_octets`: one tag or comment.
    `attribute_length`: characters of all attributes of an element. `barren_octets`: how much may pass without an entry.
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
"""The namespace of what Headwater adds to ResourceSync (docs/reference/addresses-and-additions.md): only a name."""

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
    """How strongly something is asked for: Appendix A's M, its R and O, and its cross."""

    MUST = "must"
    MAY = "may"
    NEVER = "never"


class Kind(Enum):
    """Every kind of document that Headwater knows."""

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


class Rules(msgspec.Struct, frozen=True):
    """What the standard asks of one kind of document; `times_rule` asks for its times, `up_rule` for its link `up`."""

    title: str
    capability: str | None
    source: str
    times_rule: str = ""
    up_rule: str = ""
    root: Root = Root.URLSET
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


_MUST, _MAY, _NEVER = Need.MUST, Need.MAY, Need.NEVER
_INDEX: dict[str, Any] = {"root": Root.SITEMAPINDEX}
_SNAPSHOT: dict[str, Any] = {"at": _MUST}
_HISTORY: dict[str, Any] = {"from_": _MUST, "until": _MAY}
_PERIODS: dict[str, Any] = {**_HISTORY, "entry_from": _MAY}
_CHANGES: dict[str, Any] = {"entry_change": _MUST, "ordered": _MUST}
_OF_SNAPSHOTS: dict[str, Any] = {"entry_at": _MAY, "index": _MAY}
_OF_HISTORIES: dict[str, Any] = {"entry_from": _MAY, "index": _MAY, "ordered": _MUST}
_NOTIFIED: dict[str, Any] = {"from_": _MAY, "until": _MAY, "up": _MAY}
_NO_UP: dict[str, Any] = {"up": _NEVER}
_OTHER: dict[str, Any] = {"up": _NEVER, "index": _MAY}

RULES: dict[Kind, Rules] = {
    Kind.SOURCE_DESCRIPTION: Rules(
        "Source Description", "description", "RS-SD", **_NO_UP, index=_MAY, entry_capability=_MAY
    ),
    Kind.SOURCE_DESCRIPTION_INDEX: Rules(
        "Source Description Index", "description", "RS-SD-09", **_INDEX, **_NO_UP, entry_capability=_MAY
    ),
    Kind.CAPABILITY_LIST: Rules("Capability List", "capabilitylist", "RS-CAP", "", "RS-CAP-02", entry_capability=_MUST),
    Kind.CAPABILITY_LIST_INDEX: Rules(
        "Capability List Index", "capabilitylist", "RS-CAP-09", "", "RS-CAP-02", **_INDEX
    ),
    Kind.RESOURCE_LIST: Rules(
        "Resource List", "resourcelist", "RS-RL", "RS-RL-01", "RS-RL-04", **_SNAPSHOT, index=_MAY
    ),
    Kind.RESOURCE_LIST_INDEX: Rules(
        "Resource List Index", "resourcelist", "RS-RLI", "RS-RLI-01", "RS-RLI-02", **_INDEX, **_SNAPSHOT, entry_at=_MAY
    ),
    Kind.RESOURCE_DUMP: Rules(
        "Resource Dump", "resourcedump", "RS-RD", "RS-RD-01", "RS-RD-02", **_SNAPSHOT, **_OF_SNAPSHOTS
    ),
    Kind.RESOURCE_DUMP_INDEX: Rules(
        "Resource Dump Index", "resourcedump", "RS-RDI", "RS-RDI-01", "RS-RDI-01", **_INDEX, **_SNAPSHOT, entry_at=_MAY
    ),
    Kind.RESOURCE_DUMP_MANIFEST: Rules(
        "Resource Dump Manifest",
        "resourcedump-manifest",
        "RS-RDM",
        "RS-RDM-02",
        "RS-RDM-03",
        at=_MUST,
        entry_path=_MUST,
    ),
    Kind.CHANGE_LIST: Rules(
        "Change List", "changelist", "RS-CL", "RS-CL-01", "RS-CL-03", **_HISTORY, **_CHANGES, index=_MAY
    ),
    Kind.CHANGE_LIST_INDEX: Rules(
        "Change List Index", "changelist", "RS-CLI", "RS-CLI-01", "RS-CLI-01", **_INDEX, **_PERIODS, ordered=_MUST
    ),
    Kind.CHANGE_DUMP: Rules(
        "Change Dump", "changedump", "RS-CD", "RS-CD-01", "RS-CD-01", **_PERIODS, index=_MAY, ordered=_MAY
    ),
    Kind.CHANGE_DUMP_INDEX: Rules(
        "Change Dump Index", "changedump", "RS-CDI", "RS-CDI-01", "RS-CDI-01", **_INDEX, **_PERIODS, ordered=_MUST
    ),
    Kind.CHANGE_DUMP_MANIFEST: Rules(
        *("Change Dump Manifest", "changedump-manifest", "RS-CDM", "RS-CDM-02", "RS-CDM-02"),
        **(_HISTORY | _CHANGES),
        entry_path=_MUST,
    ),
}
for _of, _entries in (
    *(("Resource List", _OF_SNAPSHOTS), ("Resource Dump", _OF_SNAPSHOTS)),
    *(("Change List", _OF_HISTORIES), ("Change Dump", _OF_HISTORIES)),
):
    _kind, _capability = f"{_of} archive".lower().replace(" ", "-"), f"{_of.lower().replace(' ', '')}-archive"
    RULES[Kind(_kind)] = Rules(f"{_of} Archive", _capability, "RS-ARC", "", "RS-ARC-11", **_entries)
    RULES[Kind(f"{_kind}-index")] = Rules(f"{_of} Archive Index", _capability, "RS-ARC-21", "", "RS-ARC-21", **_INDEX)
RULES |= {
    Kind.CHANGE_NOTIFICATION: Rules(
        *("Change Notification", "change-notification", "RS-CN", "RS-CN-04"),
        **(_CHANGES | _NOTIFIED | {"from_": _MUST, "until": _MUST}),
    ),
    Kind.FRAMEWORK_NOTIFICATION: Rules(
        *("Framework Notification", "framework-notification", "RS-FN"),
        **(_NOTIFIED | {"entry_change": _MUST, "entry_capability": _MUST}),
    ),
    Kind.SITEMAP: Rules("Sitemap", None, "AMB-02", **_OTHER),
    Kind.SITEMAP_INDEX: Rules("Sitemap index", None, "AMB-02", **_INDEX, **_OTHER),
    Kind.UNKNOWN: Rules("Unknown document", None, "AMB-12", **_OTHER),
    Kind.UNKNOWN_INDEX: Rules("Unknown index", None, "AMB-12", **_INDEX, **_OTHER),
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
