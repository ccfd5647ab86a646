"""The table of capabilities: what a set offers, with file names and cache rule of its documents.

Whoever names, lists, serves or links a document of a set reads this table: the Capability List, the names in `site`,
the server's routes and its page for people.
"""

from enum import Enum, auto

import msgspec

from headwater.datasets.rows import DATASET_FILE, DATASET_TYPE
from headwater.spec.kinds import RULES, Kind

NUMBER = "{number}"  # stands for a number of five digits or more in the name of a part
PART = "{part}"  # stands for a number of three digits or more: of the packages of one page
DIGEST = "{digest}"
"""Stands for the first 16 hex digits of a package's or patch's SHA-256 in its name: other octets have another name."""


class CacheRule(Enum):
    """How long a cache may keep a document."""

    BRIEF = auto()  # for a minute
    REVALIDATE = auto()  # it is asked for each time
    IMMUTABLE_WHEN_CLOSED = auto()  # for good once it is closed (AMB-62), as its mark says, else as REVALIDATE


class SetDocument(msgspec.Struct, frozen=True):
    """A document of a set: its name below the set's folder, and which of them may be cached how."""

    name: str
    cache: CacheRule


class Capability(msgspec.Struct, frozen=True, kw_only=True):
    """One row: a kind of document that a set offers.

    `top` is the document that every published set has, `parts` are those that an index groups (`name` with NUMBER),
    `others` further ones. Capabilities that are `listed` have an entry in the Capability List (RS-CAP-05). With a
    `setting` only sets offer it whose settings have that on, and what is `also` needed (`site.offered`).
    `is_later`: it is not offered before its first packages are made, because without them it would say that there are
    no resources. `is_classic`: it is one of the lists for old harvesters.
    """

    kind: Kind
    top: SetDocument
    parts: SetDocument | None = None
    others: tuple[SetDocument, ...] = ()
    is_listed: bool = True
    setting: str | None = None
    also: str | None = None
    is_later: bool = False
    is_classic: bool = False

    @property
    def name(self) -> str:
        """The value of `capability` (RS-CAP-05)."""
        name = RULES[self.kind].capability
        assert name is not None
        return name

    @property
    def title(self) -> str:
        """The standard's name of the kind of document."""
        return f"{RULES[self.kind].title} for old harvesters" if self.is_classic else RULES[self.kind].title

    @property
    def documents(self) -> tuple[SetDocument, ...]:
        """All of its documents."""
        return (self.top, *((self.parts,) if self.parts else ()), *self.others)


DESCRIPTION_FILE = "description.ttl"  # what describes an RDF dataset (TIM-10)
DATASET_FORMS = {
    "dataset": (
        (DATASET_FILE, DATASET_TYPE),
        ("dataset.ttl", "text/turtle"),
        ("dataset.trig", "application/trig"),
        ("dataset.jsonld", "application/ld+json"),
    ),
    "description": ((DESCRIPTION_FILE, "text/turtle"), ("description.jsonld", "application/ld+json")),
}
"""Documents of a dataset in several syntaxes, by generic names: file and media type of each, the usual one first."""
PATCH_SUFFIX = "nqud"  # of N-Quads Unified Diff, the patches of an RDF dataset (NQUD-03)

CAPABILITY_LIST = Capability(
    kind=Kind.CAPABILITY_LIST,
    top=SetDocument("capabilitylist.xml", CacheRule.BRIEF),
    others=tuple(SetDocument(name, CacheRule.REVALIDATE) for name, _kind in DATASET_FORMS["description"]),
    is_listed=False,
)
RESOURCE_LIST = Capability(
    kind=Kind.RESOURCE_LIST,
    top=SetDocument("resourcelist.xml", CacheRule.REVALIDATE),
    parts=SetDocument(f"resourcelist/{NUMBER}.xml", CacheRule.REVALIDATE),
    others=tuple(SetDocument(name, CacheRule.REVALIDATE) for name, _kind in DATASET_FORMS["dataset"]),
)
CHANGE_LIST = Capability(
    kind=Kind.CHANGE_LIST,
    top=SetDocument("changelist.xml", CacheRule.REVALIDATE),
    parts=SetDocument(f"changelist/{NUMBER}.xml", CacheRule.IMMUTABLE_WHEN_CLOSED),
    others=(
        SetDocument("changelist/open.xml", CacheRule.REVALIDATE),
        SetDocument(f"patch/{NUMBER}-{DIGEST}.json", CacheRule.IMMUTABLE_WHEN_CLOSED),
        SetDocument(f"patch/{NUMBER}-{DIGEST}.xml", CacheRule.IMMUTABLE_WHEN_CLOSED),
        SetDocument(f"patch/{NUMBER}-{DIGEST}.{PATCH_SUFFIX}", CacheRule.IMMUTABLE_WHEN_CLOSED),
    ),
)
RESOURCE_DUMP = Capability(
    kind=Kind.RESOURCE_DUMP,
    top=SetDocument("resourcedump.xml", CacheRule.REVALIDATE),
    parts=SetDocument(f"resourcedump/{NUMBER}.xml", CacheRule.REVALIDATE),
    others=(
        SetDocument(f"resourcedump/{NUMBER}-{PART}-{DIGEST}.zip", CacheRule.IMMUTABLE_WHEN_CLOSED),
        SetDocument(f"resourcedump/{NUMBER}-{PART}-{DIGEST}.xml", CacheRule.IMMUTABLE_WHEN_CLOSED),
    ),
    setting="dump",
    is_later=True,
)
CHANGE_DUMP = Capability(
    kind=Kind.CHANGE_DUMP,
    top=SetDocument("changedump.xml", CacheRule.REVALIDATE),
    parts=SetDocument(f"changedump/{NUMBER}.xml", CacheRule.REVALIDATE),
    others=(
        SetDocument(f"changedump/{NUMBER}-{DIGEST}.zip", CacheRule.IMMUTABLE_WHEN_CLOSED),
        SetDocument(f"changedump/{NUMBER}-{DIGEST}.xml", CacheRule.IMMUTABLE_WHEN_CLOSED),
    ),
    setting="change_dump",
)


def _archive(kind: Kind, folder: str, *archived: str, also: str | None = None) -> Capability:
    """An archive, and the documents that it lists, which never change (RS-ARC); an older version wrote `parts`."""
    return Capability(
        kind=kind,
        top=SetDocument(f"archive/{folder}.xml", CacheRule.REVALIDATE),
        parts=SetDocument(f"archive/{folder}/part-{NUMBER}.xml", CacheRule.REVALIDATE),
        others=tuple(SetDocument(f"archive/{folder}/{name}.xml", CacheRule.IMMUTABLE_WHEN_CLOSED) for name in archived),
        setting="archive",
        also=also,
    )


_SNAPSHOT = f"{NUMBER}-{DIGEST}"
RESOURCE_LIST_ARCHIVE = _archive(Kind.RESOURCE_LIST_ARCHIVE, "resourcelist", _SNAPSHOT, f"{_SNAPSHOT}-{PART}")
RESOURCE_DUMP_ARCHIVE = _archive(Kind.RESOURCE_DUMP_ARCHIVE, "resourcedump", _SNAPSHOT, also="dump")
CHANGE_LIST_ARCHIVE = _archive(Kind.CHANGE_LIST_ARCHIVE, "changelist", NUMBER)
CHANGE_DUMP_ARCHIVE = _archive(Kind.CHANGE_DUMP_ARCHIVE, "changedump", NUMBER, also="change_dump")
ARCHIVES = {
    Kind.RESOURCE_LIST: RESOURCE_LIST_ARCHIVE,
    Kind.RESOURCE_DUMP: RESOURCE_DUMP_ARCHIVE,
    Kind.CHANGE_LIST: CHANGE_LIST_ARCHIVE,
    Kind.CHANGE_DUMP: CHANGE_DUMP_ARCHIVE,
}
"""The archive of each kind of document."""


def _classic(kind: Kind, name: str, cache: CacheRule, parts: SetDocument | None = None) -> Capability:
    """A document of the view for old harvesters, which the set's own Capability List does not name."""
    top = SetDocument(f"classic/{name}.xml", cache)
    return Capability(kind=kind, top=top, parts=parts, is_listed=False, setting="classic", is_classic=True)


CLASSIC_CAPABILITY_LIST = _classic(Kind.CAPABILITY_LIST, "capabilitylist", CacheRule.BRIEF)
CLASSIC_RESOURCE_LIST = _classic(
    Kind.RESOURCE_LIST,
    "resourcelist",
    CacheRule.REVALIDATE,
    parts=SetDocument(f"classic/resourcelist/{NUMBER}.xml", CacheRule.REVALIDATE),
)
CLASSIC_CHANGE_LIST = _classic(Kind.CHANGE_LIST, "changelist", CacheRule.REVALIDATE)
SITEMAP = Capability(
    kind=Kind.SITEMAP,
    top=SetDocument("sitemap.xml", CacheRule.REVALIDATE),
    parts=SetDocument(f"sitemap/{NUMBER}.xml", CacheRule.REVALIDATE),
    is_listed=False,
    setting="sitemap",
)
CLASSIC = (CLASSIC_CAPABILITY_LIST, CLASSIC_RESOURCE_LIST, CLASSIC_CHANGE_LIST)
CAPABILITIES = (
    CAPABILITY_LIST,
    RESOURCE_LIST,
    RESOURCE_DUMP,
    CHANGE_LIST,
    CHANGE_DUMP,
    *ARCHIVES.values(),
    *CLASSIC,
    SITEMAP,
)
"""In the order in which the Capability List and the page for people name them."""


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    """A channel of notifications of a set: a topic at a hub.

    What is at `name` below the set's folder is no document of the store.
    """

    kind: Kind
    name: str

    @property
    def capability(self) -> str:
        """The value of `capability` in the Capability List and in the payloads (RS-CH-05)."""
        name = RULES[self.kind].capability
        assert name is not None
        return name


CHANGE_CHANNEL = Channel(kind=Kind.CHANGE_NOTIFICATION, name="changenotification.xml")
FRAMEWORK_CHANNEL = Channel(kind=Kind.FRAMEWORK_NOTIFICATION, name="frameworknotification.xml")
CHANNELS = (CHANGE_CHANNEL, FRAMEWORK_CHANNEL)  # those of a set whose source has hubs (RS-CH-01, RS-CH-02)


def part_name(capability: Capability, number: int) -> str:
    """The name of one numbered document below the set's folder."""
    assert capability.parts is not None
    return filled_name(capability.parts.name, number)


def filled_name(pattern: str, number: int, digest: str = "", part: int = 0) -> str:
    """The name of a pattern with a number and the begin of a digest, of a package of a page with its part."""
    return pattern.replace(NUMBER, f"{number:05d}").replace(PART, f"{part:03d}").replace(DIGEST, digest[:16])
