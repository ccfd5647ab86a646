"""The site: a source's base URL, its sets in parts of the Source Description, and the name and URL of every document.

A *name* is the place of a document below the base URL, and its name in the store: `files/resourcelist.xml` lies at
`<base>/files/resourcelist.xml`. Whoever writes, serves or lists a document asks here for its name.
"""

import re
from collections import Counter
from functools import cached_property, partial
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from headwater.catalog.page_filling import URI_PREFIX_OCTETS
from headwater.datasets.rows import DATASET_FILE
from headwater.errors import UsageFault
from headwater.publish.document_names import (
    CAPABILITIES,
    CAPABILITY_LIST,
    CHANGE_DUMP,
    CHANGE_LIST,
    CLASSIC_CAPABILITY_LIST,
    DESCRIPTION_FILE,
    DIGEST,
    NUMBER,
    PART,
    PATCH_SUFFIX,
    RESOURCE_DUMP,
    RESOURCE_LIST,
    SITEMAP,
    Capability,
    Channel,
    filled_name,
    part_name,
)
from headwater.publish.link_rules import NO_RULES, ROOM, LinkRules
from headwater.spec.checks import escape
from headwater.spec.extensions import DumpLimits, DumpOffer
from headwater.spec.records import Link
from headwater.spec.writer import Profile

SOURCE_DESCRIPTION = ".well-known/resourcesync"
ROBOTS = "robots.txt"
SITEMAPS = "resourcesync-sitemap.xml"  # an index of plain Sitemaps, by a name that no other program gives a file
DESCRIPTION_PARTS = "sourcedescription/"
DEFAULT_SET = "files"
DUMP = "dump"  # below a set: where packages are made on demand
OAI = "oai"  # below a set: where it answers OAI-PMH

RESERVED = frozenset(
    {"api", "admin", "dashboard", "events", "favicon.ico", "health", "hub", "index.html", "ingest", "metrics", "notify"}
    | {"robots.txt", SITEMAPS, "sitemap.xml", "sourcedescription", "static", "subscribe", "ui"}
)
"""First path segments that are, or will be, something else than a set."""

DESCRIPTION_ENTRIES = 20_000
"""So many sets fit into one Source Description: within 50 MB even when each has the longest URLs (RS-LIM-01)."""

_SET_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
_PLACEHOLDERS = {NUMBER: "[0-9]{5,}", PART: "[0-9]{3,}", DIGEST: "[0-9a-f]{16}"}


Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=3e9)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


_NAMES = "|".join(re.escape(one.name) for row in CAPABILITIES for one in row.documents if "{" in one.name)
for _placeholder, _expression in _PLACEHOLDERS.items():
    _NAMES = _NAMES.replace(re.escape(_placeholder), _expression)
_PART = re.compile(rf"(?:{_NAMES})\Z")
_LANGUAGE = re.compile(r"[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8})*\Z")
_URL_TEXT = re.compile(r"[!-~]+\Z")
_UNFIT_IN_URL = re.compile(r"[\"<>\\^`{|}]|%(?![0-9A-Fa-f]{2})")


class BadSite(UsageFault):
    """The base URL or the set name is invalid."""

    code = "HW-SITE-01"


class SetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How one set is published, and how soon its documents follow the catalog: keys of its configuration.

    What each key means is in `source/keys.txt`; None stands for never. `rotation_seconds` renders all pages and closes
    the open Change List at their `at` (DIT-28, DIT-A1). Those from `description` on describe an RDF dataset.
    """

    name: str = DEFAULT_SET
    title: str | None = None
    describedby: str | None = None
    resource_base: str | None = None
    refresh_changes: Count = 5_000
    refresh_seconds: Seconds = 3_600.0
    renew_seconds: Seconds = 604_800.0
    segment_seconds: Seconds | None = None
    rotation_seconds: Seconds | None = None
    retention_seconds: Seconds | None = None
    dump: bool = False
    dump_share: Share = 0.05
    dump_seconds: Seconds = 86_400.0
    change_dump: bool = False
    change_dump_seconds: Annotated[float, msgspec.Meta(ge=10, le=3e9)] = 300.0
    patch: tuple[Literal["json", "nquads"], ...] = ()
    archive: bool = False
    archive_seconds: Seconds = 86_400.0
    archive_kept_seconds: Seconds = 31_536_000.0
    archive_octets: Count = 20_000_000_000
    archive_documents: Annotated[int, msgspec.Meta(ge=1, le=20_000)] = 2_000
    package_entries: Annotated[int, msgspec.Meta(ge=1, le=50_000)] = 10_000
    package_octets: Count = 268_435_456
    classic: bool = False
    classic_entries: Annotated[int, msgspec.Meta(ge=2, le=50_000)] = 50_000
    sitemap: bool = False
    description: str | None = None
    creator: tuple[str, ...] = ()
    publisher: str | None = None
    identifier: str | None = None
    licence: str | None = None
    endpoint: str | None = None
    language: str | None = None


class SetSettings(SetOptions, frozen=True, kw_only=True):
    """The options of a set, and what follows for it from the whole configuration.

    `dumps` are the limits of packages made on demand, where the server of the set makes them; with `past_dumps` also of
    resources as they were.
    `hubs` are those that notifications of the set are sent to: its Capability List names its channels.
    `links` are the rules by which entries get links, beside those of their records, when they are rendered.
    A set that is a `dataset` has one resource, an RDF dataset, whose changes lead to patches. With `oai`, the server
    answers OAI-PMH requests for it.
    """

    dumps: DumpLimits | None = None
    past_dumps: bool = False
    links: LinkRules = NO_RULES
    hubs: tuple[str, ...] = ()
    dataset: bool = False
    oai: bool = False

    def __post_init__(self) -> None:
        if not _SET_NAME.match(self.name):
            raise BadSite(f"not a set name: {self.name[:80]!r}", advice="Use a-z, 0-9, '.', '_' and '-', at most 64.")
        if self.name in RESERVED:
            raise BadSite(f"the set name {self.name!r} is reserved", advice="Choose another name for the set.")
        for url in (self.describedby, self.resource_base, self.licence, self.endpoint):
            if url is not None:
                check_url(url)
        for agent in (*self.creator, self.publisher):
            if agent is not None and is_url(agent):
                check_url(agent)
        if self.language is not None and not _LANGUAGE.match(self.language):
            raise BadSite(f"not a language tag: {self.language[:80]!r}", advice="Give one such as en or de-AT.")

    @property
    def segment_octets(self) -> int:
        """What a Change List may weigh without added links such that it has room for all of them (RS-LIM-02)."""
        has_patches = bool(self.patch) or self.dataset
        return ROOM // (1 + self.links.links_of_entry + has_patches)


class Site(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One source: where it is, what its sets are, in which profile its documents are written.

    `robots`: whether robots.txt names the plain Sitemaps alone, or Resource Lists as well.
    """

    base_url: str
    sets: tuple[SetSettings, ...] = (SetSettings(),)
    profile: Profile = Profile.V11
    title: str | None = None
    describedby: str | None = None
    robots: Literal["all", "sitemaps"] = "all"
    description_entries: int = DESCRIPTION_ENTRIES

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "base_url", check_base_url(self.base_url))
        if self.describedby is not None:
            check_url(self.describedby)
        names = [settings.name for settings in self.sets]
        if doubled := next((name for name, count in Counter(names).items() if count > 1), None):
            raise BadSite(f"two sets are named {doubled!r}", advice="Give each set a different name.")
        for name in names:
            if len(escape(self.resource_prefix(name))) > URI_PREFIX_OCTETS:
                what = f"the URL of the resources of {name!r} has more than {URI_PREFIX_OCTETS} characters"
                advice = "Choose a shorter base URL: it is part of every URI, and documents have a size limit."
                raise BadSite(what, advice=advice)
        if (segment := self.base_path.strip("/").partition("/")[0]) in names:
            what = f"the set {segment!r} has the name of the base URL's first path segment"
            raise BadSite(what, advice="Rename the set: a server behind a proxy could not tell the two apart.")

    @property
    def base_path(self) -> str:
        """The path of the base URL: empty, or beginning and not ending with a slash."""
        return urlsplit(self.base_url).path

    def settings(self, name: str) -> SetSettings:
        """The settings of the set `name`. Raises BadSite when the site has no such set."""
        return self.sets[self.position(name)]

    def position(self, name: str) -> int:
        """Where the set stands among the sets. Raises BadSite when the site has no such set."""
        found = self._positions.get(name)
        if found is None:
            raise BadSite(f"the site has no set {name!r}", advice="Name a set of the configuration.")
        return found

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {settings.name: number for number, settings in enumerate(self.sets)}

    @cached_property
    def sets_per_description(self) -> int:
        """So many sets are named by one Source Description; those with lists for old harvesters have two entries."""
        return self.description_entries // (2 if any(one.classic for one in self.sets) else 1)

    def url(self, name: str) -> str:
        """The URL of the document `name`."""
        return f"{self.base_url}/{name}"

    def resource_prefix(self, set_name: str) -> str:
        """What precedes a relative URI of the set, with its last slash."""
        elsewhere = self.settings(set_name).resource_base
        return elsewhere.rstrip("/") + "/" if elsewhere else f"{self.base_url}/{set_name}/resources/"


def source_description_name(site: Site, set_name: str) -> str:
    """The Source Description that lists the set: the well-known one, or one part of many (RS-SD-09, AMB-53).

    The part depends on the set's place among the configured sets, so that sets are best added at the end.
    """
    if len(site.sets) <= site.sets_per_description:
        return SOURCE_DESCRIPTION
    return f"{DESCRIPTION_PARTS}{site.position(set_name) // site.sets_per_description:05d}.xml"


def _top_name(row: Capability, set_name: str) -> str:
    return f"{set_name}/{row.top.name}"


def _numbered_name(row: Capability, set_name: str, number: int) -> str:
    return f"{set_name}/{part_name(row, number)}"


capability_list_name = partial(_top_name, CAPABILITY_LIST)
"""The name of the Capability List of a set; so of the other documents."""
resource_list_name = partial(_top_name, RESOURCE_LIST)  # the Resource List, or the index of its pages
resource_page_name = partial(_numbered_name, RESOURCE_LIST)  # one page, where there are several
change_list_name = partial(_top_name, CHANGE_LIST)  # the Change List, or the index of its segments
change_segment_name = partial(_numbered_name, CHANGE_LIST)
"""One segment, where there are several; it keeps this name when it is closed."""
resource_dump_name = partial(_top_name, RESOURCE_DUMP)
change_dump_name = partial(_top_name, CHANGE_DUMP)
classic_capability_list_name = partial(_top_name, CLASSIC_CAPABILITY_LIST)
sitemap_name = partial(_top_name, SITEMAP)


def dump_offer_of(site: Site, settings: SetSettings) -> DumpOffer | None:
    """Where packages of the set are made on demand; None where they are not."""
    if settings.dumps is None:
        return None
    return DumpOffer(href=site.url(f"{settings.name}/{DUMP}"), limits=settings.dumps, past=settings.past_dumps)


def oai_link(site: Site, settings: SetSettings) -> Link:
    """The link to the OAI-PMH address of a set that has one."""
    return Link(rel="related", href=f"{site.url(f'{settings.name}/{OAI}')}?verb=Identify", type="text/xml")


def topic_url(site: Site, set_name: str, channel: Channel) -> str:
    """The topic of a channel of the set (RS-CH-01, RS-CH-07)."""
    return site.url(f"{set_name}/{channel.name}")


def open_change_list_name(set_name: str) -> str:
    """The copy of the open segment that is always at the same place."""
    return f"{set_name}/{CHANGE_LIST.others[0].name}"


def resource_package_names(set_name: str, page: int, part: int, sha256: str) -> tuple[str, str]:
    """A package of resources of a page, and the copy of its manifest, by the SHA-256 of the package."""
    package, manifest = (filled_name(one.name, page, sha256, part) for one in RESOURCE_DUMP.others)
    return f"{set_name}/{package}", f"{set_name}/{manifest}"


def change_package_names(set_name: str, segment: int, sha256: str) -> tuple[str, str]:
    """A package of changes of a segment, and the copy of its manifest, by the SHA-256 of the package."""
    package, manifest = (filled_name(one.name, segment, sha256) for one in CHANGE_DUMP.others)
    return f"{set_name}/{package}", f"{set_name}/{manifest}"


def offered(settings: SetSettings, *, with_later: bool = True) -> tuple[Capability, ...]:
    """The rows of the table of capabilities that a set with these settings has.

    Not `with_later`: as long as what takes a while to be made is not there.
    """
    rows = (
        row
        for row in CAPABILITIES
        if all(setting is None or getattr(settings, setting) for setting in (row.setting, row.also))
    )
    return tuple(row for row in rows if with_later or not row.is_later)


def top_names(settings: SetSettings) -> tuple[str, ...]:
    """The documents that a published set with these settings always has."""
    return tuple(f"{settings.name}/{row.top.name}" for row in offered(settings, with_later=False))


def is_part_name(set_name: str, name: str) -> bool:
    """Whether `name` is that of a page, a numbered segment or a package of the set: what may be a stray."""
    return name.startswith(f"{set_name}/") and bool(_PART.match(name.removeprefix(f"{set_name}/")))


def is_url(text: str) -> bool:
    """Whether a text that names somebody is meant as a URL."""
    return text.startswith(("http://", "https://"))


def check_url(text: str) -> str:
    """Return `text` when it is an absolute http(s) URL without credentials and fragment. Raises BadSite."""
    try:
        parts = urlsplit(text)
        port_fits = parts.port is None or parts.port > 0
    except ValueError as cause:
        raise BadSite(f"not a URL: {text[:200]!r}") from cause
    if not _URL_TEXT.match(text) or _UNFIT_IN_URL.search(text) or not port_fits:
        raise BadSite(f"not a URL: {text[:200]!r}", advice="Percent-encode characters that are not plain ASCII.")
    if parts.scheme not in {"http", "https"}:
        advice = "Start the URL with http:// or https://."
        raise BadSite(f"not an http(s) URL: {text[:200]!r}", advice=advice)
    if not parts.hostname or parts.fragment or "@" in parts.netloc:
        raise BadSite(f"a URL has a host, but no user name and no fragment: {text[:200]!r}")
    return text


def check_base_url(text: str) -> str:
    """The base URL without its last slash. Raises BadSite when it has a query or a path that could be rewritten."""
    parts = urlsplit(check_url(text))
    segments = parts.path.split("/")
    if "?" in text or "." in segments or ".." in segments or "//" in parts.path:
        raise BadSite(f"not a base URL: {text[:200]!r}")
    return text.rstrip("/")


def dataset_name(set_name: str) -> str:
    """The RDF dataset of a set that is one (TIM-07)."""
    return f"{set_name}/{DATASET_FILE}"


def description_name(set_name: str) -> str:
    """What describes the RDF dataset (TIM-10)."""
    return f"{set_name}/{DESCRIPTION_FILE}"


def dataset_patch_name(set_name: str, seq: int, sha256: str) -> str:
    """The patch of a change of the RDF dataset, by its SHA-256 (TIM-A1)."""
    return f"{set_name}/patch/{seq:05d}-{sha256[:16]}.{PATCH_SUFFIX}"
