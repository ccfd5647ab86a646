"""The configuration of a source: one record for the command line and the TOML file, and the reading of that file.

A set is a folder, is filled by push, is a copy, or is an RDF dataset. Headwater refuses keys of another kind, and
unknown keys with their path, so that a misspelt key is never taken for a default. `keys.txt` says what each key means.
"""

from __future__ import annotations

import os
import re
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

import msgspec

from headwater.catalog.catalog_url import anchored, is_cluster, place_of
from headwater.errors import UsageFault
from headwater.ingest.push.resource_locations import Locations
from headwater.publish.link_rules import DescribedRule, LinkRules, UrlRule
from headwater.publish.site import DEFAULT_SET, Count, Seconds, SetOptions, SetSettings, Share, Site, description_name
from headwater.quantities import kept_from, octets_from, seconds_from
from headwater.source.hubs_and_tokens import AccessTokens, BadToken, HubConfig, NotifyConfig, TokenOptions
from headwater.spec.extensions import DumpLimits
from headwater.spec.writer import Profile
from headwater.time_windows import windows_of
from headwater.toml_files import read_toml, record_from
from headwater.versions.retention import VersionRetention

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8000
ON_DEMAND = DumpLimits(resources=50_000, octets=4 << 30, requests=8)
"""Limits of packages made on demand, unless others are configured; a manifest has 50,000 entries (RS-LIM-05)."""

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]

_FOLDER_KEYS: Final = (
    "include exclude exclude_file exclude_folders_with hidden types types_file hashes canonical_hash watch"
    " rescan_seconds settle_seconds"
)
_PUSH_KEYS: Final = "pair_seconds poll_seconds resource_root resource_sets token token_env token_file"
_DATASET_KEYS: Final = (
    "dataset sparql sparql_authorization_env oxigraph syntax base_iri blank_nodes genid dataset_seconds may_be_empty"
    " lenient description creator publisher identifier licence endpoint language"
)
_HARVEST_KEYS: Final = "url window compare_seconds"
_OAI_KEYS: Final = "prefixes sets record content"
_DSPACE_KEYS: Final = "contact bundles user password_env"
"""Keys of one kind of set that mean nothing to the others."""
_UNFIT_KEYS: Final = (
    "resource_base retention_seconds dump change_dump patch archive versions mirrors variants described links classic"
)
"""Keys that would break what a dataset promises: one link an entry, every change for ever, one Capability List."""
_BASE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:[^\x00-\x20<>\"{}|\\^`#]+")
_MAIL: Final = re.compile(r"[!-?A-~]{1,64}@(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z0-9-]{1,63}")
OUTPUT_STATE: Final = ".headwater"  # the state folder inside a static tree, unless another is named
HARVESTED: Final = "harvested"  # folder below the state for the octets of harvested records
_INDEX_SECONDS: Final = 1.0
_HARVEST_SECONDS: Final = 3_600.0
_FILE_SECONDS: Final = 1.0
_STORE_SECONDS: Final = 60.0
_ENDPOINT_SECONDS: Final = 300.0


class BadDatasetConfig(UsageFault):
    """A set with profile = "rdf-dataset" lacks what it is made of, or has a setting that does not go with it."""

    code: ClassVar[str] = "HW-CFG-08"


class BadPushConfig(UsageFault):
    """A set has none of `files`, `feed`, `copy` and `profile`, or several, or a setting of another kind."""

    code: ClassVar[str] = "HW-CFG-03"


class BadConfiguration(UsageFault):
    """The configuration file cannot be read, or has an invalid value."""

    code: ClassVar[str] = "HW-CFG-01"


class SetConfig(SetOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[set]]`: what fills it, how that is read, and the options of its publication."""

    files: str = ""
    feed: Literal["events", "dit", "oai", "dspace"] | None = None
    copy: str | None = None
    copy_set: str | None = None
    resource_root: str | None = None
    token: str | None = None
    token_file: str | None = None
    token_env: str | None = None
    resource_sets: tuple[str, ...] = ()
    index: str | None = None
    poll_seconds: Seconds | None = None
    pair_seconds: Seconds = 5.0
    url: str | None = None
    window: str | None = None
    compare_seconds: Seconds = 604_800.0
    prefixes: tuple[str, ...] = ("oai_dc",)
    sets: tuple[str, ...] = ()
    record: Literal["record", "metadata"] = "record"
    content: tuple[Literal["identifier", "mets", "ore", "signposting"], ...] = ()
    contact: str | None = None
    bundles: tuple[str, ...] = ("ORIGINAL",)
    user: str | None = None
    password_env: str | None = None
    oai: bool = False
    oai_admin: str | None = None
    profile: Literal["rdf-dataset"] | None = None
    dataset: str | None = None
    sparql: str | None = None
    sparql_authorization_env: str | None = None
    oxigraph: str | None = None
    syntax: Literal["nquads", "ntriples", "turtle", "trig", "rdfxml", "jsonld"] | None = None
    base_iri: str | None = None
    blank_nodes: Literal["iris", "refuse"] = "iris"
    genid: str | None = None
    dataset_seconds: Seconds | None = None
    may_be_empty: bool = False
    lenient: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    exclude_file: str | None = None
    exclude_folders_with: tuple[str, ...] = ()
    hidden: bool = False
    types: dict[str, str] | None = None
    types_file: str | None = None
    hashes: tuple[str, ...] = ("md5", "sha-256")
    canonical_hash: Literal["beside", "instead"] | None = None
    watch: bool = True
    rescan_seconds: Seconds = 300.0
    settle_seconds: Annotated[float, msgspec.Meta(ge=0, le=3e9)] = 2.0
    max_delete: Share = 0.2
    on_demand: bool = True
    versions: bool | str = False
    mirrors: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    described: tuple[DescribedRule, ...] = ()
    links: tuple[UrlRule, ...] = ()

    def __post_init__(self) -> None:
        self._refuse_other_kinds()
        if self.window is not None:
            windows_of(self.window)
        if isinstance(self.versions, str):
            kept = self.kept_versions
            if kept is None or max(kept.seconds or 0, kept.octets or 0) >= 1 << 62:
                raise BadConfiguration(f"versions gives no time: {self.versions[:80]!r} (as in '1 year, 20 GB')")
        for key in (one for one in ("dump", "change_dump", "patch", "versions") if getattr(self, one)):
            if self.root is None:
                raise BadPushConfig(f"{key} needs the resources' files: set files or resource_root")
            if self.canonical_hash == "instead":
                raise BadPushConfig(f'{key} needs the digests that canonical_hash = "instead" leaves out')

    @property
    def link_rules(self) -> LinkRules:
        """The rules by which entries get links; the first of the mirrors is the best. Raises UsageFault."""
        mirrors = tuple(UrlRule(rel="duplicate", href=one, pri=pri) for pri, one in enumerate(self.mirrors, 1))
        return LinkRules(urls=(*mirrors, *self.links), described=self.described, variants=self.variants)

    @property
    def kept_versions(self) -> VersionRetention | None:
        """How long past states of the resources are kept; None where none are."""
        kept = kept_from(self.versions) if isinstance(self.versions, str) else self.versions
        if not isinstance(kept, dict):
            return VersionRetention() if kept else None
        return VersionRetention(seconds=seconds_from(kept.get("keep", "")), octets=octets_from(kept.get("octets", "")))

    def settings(self, base: str = "", server: SourceConfig | None = None) -> SetSettings:
        """What the publisher has to know of the set at this base URL. Raises BadSite.

        What a `server` makes and does is known by its configuration: notifications; and but for a static tree packages
        on demand, where it has the octets of the resources at their URLs; TimeGate and TimeMap (RS-REL-09).
        """
        options = {name: getattr(self, name) for name in SetOptions.__struct_fields__}
        if self.is_dataset:  # its resource and its description lie beside the lists, as documents
            about = self.describedby or f"{base}/{description_name(self.name)}"
            options |= {"resource_base": f"{base}/{self.name}", "describedby": about}
        links, has_octets = self.link_rules, self.root is not None and self.resource_base is None
        hubs = () if server is None or server.notify is None else server.notify.hubs
        if server is None or server.to is not None:
            return SetSettings(**options, links=links, hubs=hubs, dataset=self.is_dataset)
        if has_past := self.kept_versions is not None:
            rules = tuple(
                UrlRule(rel=rel, href=f"{base}/{self.name}/{rel}/{{path}}", type=kind)
                for rel, kind in (("timegate", None), ("timemap", "application/link-format"))
            )
            mementos = f"{base}/{self.name}/memento"
            links = msgspec.structs.replace(links, urls=(*links.urls, *rules), mementos=mementos)
        limits = DumpLimits(
            resources=server.on_demand_resources, octets=server.on_demand_octets, requests=server.on_demand_requests
        )
        return SetSettings(
            **options,
            dumps=limits if self.on_demand and has_octets else None,
            past_dumps=has_past,
            links=links,
            hubs=hubs,
            dataset=self.is_dataset,
            oai=self.oai,
        )

    def _refuse_other_kinds(self) -> None:
        made_of = sum(map(bool, (self.dataset, self.sparql, self.oxigraph)))
        if self.is_dataset and made_of != 1:
            raise BadDatasetConfig("a dataset is made of one of dataset, sparql and oxigraph")
        if bool(self.files) + (self.feed is not None) + (self.copy is not None) + self.is_dataset != 1:
            if made_of:
                raise BadDatasetConfig(
                    'a set with a dataset has profile = "rdf-dataset", and neither files, feed nor copy'
                )
            raise BadPushConfig("a set has either files or a feed, or a copy, or is a dataset")
        for is_its, keys, fault, why in (
            (self.feed, _PUSH_KEYS, BadPushConfig, "belongs to a push set"),
            (self.files, _FOLDER_KEYS, BadPushConfig, "belongs to a set with a folder"),
            (self.files or self.feed, "max_delete", BadPushConfig, "belongs to a set with a folder, or a push set"),
            (self.copy is not None, "copy_set", BadPushConfig, "belongs to a set with a copy"),
            (self.is_dataset, _DATASET_KEYS, BadPushConfig, 'belongs to a set with profile = "rdf-dataset"'),
            (not self.is_dataset, _UNFIT_KEYS, BadDatasetConfig, "does not go with a dataset"),
            (self.feed == "dit", "index", BadPushConfig, 'belongs to a set with feed = "dit"'),
            (self.is_harvested, _HARVEST_KEYS, BadPushConfig, 'belongs to a set with feed = "oai" or "dspace"'),
            (self.feed == "oai", _OAI_KEYS, BadPushConfig, 'belongs to a set with feed = "oai"'),
            (self.feed == "dspace", _DSPACE_KEYS, BadPushConfig, 'belongs to a set with feed = "dspace"'),
            (self.dataset, "syntax base_iri", BadDatasetConfig, "belongs to dataset"),
            (self.sparql, "sparql_authorization_env", BadDatasetConfig, "belongs to sparql"),
        ):
            wrong = () if is_its else [one for one in keys.split() if getattr(self, one) != _DEFAULTS[one]]
            if wrong:
                raise fault(f"{wrong[0]} {why}")
        if self.lenient and self.dataset:
            from headwater.rdf.syntaxes import NAMES, syntax_of  # takes the RDF library along

            if (syntax := NAMES.get(self.syntax or "") or syntax_of(None, self.dataset)) and not syntax.is_lines:
                raise BadDatasetConfig(f"lenient goes with N-Quads and N-Triples only, not with {syntax.title}")
        if self.base_iri is not None and not _BASE.fullmatch(self.base_iri):
            what = "base_iri is an absolute IRI without a fragment, such as https://example.org/people/"
            raise BadDatasetConfig(what)
        if self.is_harvested and self.url is None:
            raise BadPushConfig(f'feed = "{self.feed}" needs the url of the repository')
        if self.oai and not _MAIL.fullmatch(self.oai_admin or ""):
            raise BadConfiguration("oai needs oai_admin, a mail address such as repository@example.org")

    @property
    def is_harvested(self) -> bool:
        """Whether Headwater reads the records of a repository, and keeps their octets in `resource_root`."""
        return self.feed in ("oai", "dspace")

    @property
    def poll_pause(self) -> float:
        """Seconds between two polls of the index or the repository."""
        return self.poll_seconds or (_HARVEST_SECONDS if self.is_harvested else _INDEX_SECONDS)

    @property
    def root(self) -> str | None:
        """The folder whose files this server serves; None when they lie elsewhere."""
        return self.files or self.copy or self.resource_root

    @property
    def shown(self) -> str:
        """What people are told that is published."""
        made_of = self.files or self.copy or self.dataset or self.sparql or self.oxigraph
        return made_of or f"the push set {self.name}"

    def locations(self, prefix: str) -> Locations:
        """How the set's locations are resolved, below its URL prefix."""
        return Locations(prefix, self.resource_root)

    def tokens(self, environment: Mapping[str, str] = os.environ) -> AccessTokens:
        """Who may announce to the set. Raises BadToken."""
        options = TokenOptions(token=self.token, token_file=self.token_file, token_env=self.token_env)
        return AccessTokens(options.token_texts(environment))

    @property
    def is_dataset(self) -> bool:
        """Whether the set is an RDF dataset."""
        return self.profile is not None

    @property
    def dataset_pause(self) -> float:
        """Between two looks at what the dataset is made of."""
        if self.dataset_seconds is not None:
            return self.dataset_seconds
        if self.sparql is not None:
            return _ENDPOINT_SECONDS
        return _FILE_SECONDS if self.dataset is not None else _STORE_SECONDS

    def authorization(self, environment: Mapping[str, str]) -> str | None:
        """What the endpoint is told in `Authorization`. Raises BadToken."""
        name = self.sparql_authorization_env
        if name is None:
            return None
        value = environment.get(name, "").strip()
        if not value or not value.isprintable() or not value.isascii():
            raise BadToken("the environment variable holds no valid Authorization header", where=name)
        return value


_DEFAULTS: Final = {one.name: one.default for one in msgspec.structs.fields(SetConfig)}


class SourceConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"sets": "set"}):
    """A whole source; what each key means is in `keys.txt`. Paths are as given, or absolute.

    `base_url` None is the address that the server listens on. `configuration` is the file itself, and no key of it.
    """

    state: str
    sets: tuple[SetConfig, ...]
    catalog: str | None = None
    documents: str | None = None
    to: str | None = None
    resources: Literal["link", "copy", "none"] | None = None
    base_url: str | None = None
    host: str = DEFAULT_HOST
    port: Port = DEFAULT_PORT
    profile: Profile = Profile.V11
    metrics: bool = False
    log_format: Literal["text", "json"] = "text"
    log_file: str | None = None
    title: str | None = None
    describedby: str | None = None
    robots: Literal["all", "sitemaps"] = "all"
    page_entries: Annotated[int, msgspec.Meta(ge=1, le=50_000)] = 50_000
    segment_entries: Annotated[int, msgspec.Meta(ge=1, le=50_000)] = 50_000
    versions_seconds: Annotated[float, msgspec.Meta(ge=0, le=3e9)] = 604_800.0
    versions_octets: Annotated[int, msgspec.Meta(ge=0)] | None = None
    on_demand_resources: Annotated[int, msgspec.Meta(ge=1, le=50_000)] = ON_DEMAND.resources
    on_demand_octets: Count = ON_DEMAND.octets
    on_demand_requests: Annotated[int, msgspec.Meta(ge=1, le=64)] = ON_DEMAND.requests
    notify: NotifyConfig | None = None
    hub: HubConfig | None = None
    groups: dict[str, tuple[str, ...]] = {}
    configuration: str | None = None

    def __post_init__(self) -> None:
        if not self.sets:
            raise BadConfiguration("no set: nothing to publish", advice='Add a [[set]] with `files = "DIR"`.')
        if self.catalog is not None:
            place_of(self.catalog)
        self._refuse_in_tree()
        self.site("http://localhost")  # a wrong name or URL is told when the file is read, not when it is used

    def _refuse_in_tree(self) -> None:
        """See that nothing in a static tree needs a server of ours, or elsewhere a tree. Raises BadConfiguration."""
        if self.to is None:
            if self.resources is not None:
                raise BadConfiguration("resources says how files are placed in a static tree, and there is no `to`")
            return
        unfit: list[tuple[str, str, object, str]] = [
            ("", "documents", self.documents, "`to` is where documents go"),
            ("", "[hub]", self.hub, "run `headwater hub`, and name it in [notify]"),
        ]
        for one in self.sets:
            variants = self.place_of(one) and one.variants
            root = not one.is_harvested and not one.resource_base and one.resource_root
            unfit += [
                (one.name, "versions", one.versions, "past states need a server"),
                (one.name, "variants", variants, "choosing by `Accept` needs a server"),
                (one.name, "oai", one.oai, "OAI-PMH needs a server"),
                (one.name, "resource_root", root, "it cannot hold files of a set filled by records"),
            ]
        for name, key, value, why in unfit:
            if value:
                advice = f"Leave out {key}, or leave out `to` and run `headwater serve`."
                where = f"set {name!r}" if name else None
                raise BadConfiguration(f"{key} does not go with a static tree: {why}", where=where, advice=advice)

    def place_of(self, one: SetConfig) -> bytes | None:
        """The real path of the folder in the static tree where the files of a set are placed; None where none are."""
        if self.to is None or self.resources == "none" or one.resource_base is not None or one.is_dataset:
            return None
        return os.path.realpath(os.path.join(os.fsencode(self.to), os.fsencode(one.name), b"resources"))

    @property
    def version_retention(self) -> VersionRetention:
        """How long versions are kept that nothing needs."""
        return VersionRetention(seconds=self.versions_seconds, octets=self.versions_octets)

    @property
    def kept_versions(self) -> dict[str, VersionRetention]:
        """How long each set that keeps past states keeps them."""
        return {one.name: kept for one in self.sets if (kept := one.kept_versions) is not None}

    def site(self, base_url: str | None = None) -> Site:
        """The site at the configured base URL, or else at `base_url`. Raises BadSite."""
        base = self.base_url or base_url
        if base is None:
            raise BadConfiguration("no base URL: URIs of resources need it", advice="Set base_url.")
        return Site(
            base_url=base,
            sets=tuple(one.settings(base.rstrip("/"), self) for one in self.sets),
            profile=self.profile,
            title=self.title,
            describedby=self.describedby,
            robots=self.robots,
        )


# The file

_PERCENTAGE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*\Z")
_TABLES: Final[dict[str, type[msgspec.Struct]]] = {
    "set": SetConfig,
    "notify": NotifyConfig,
    "hub": HubConfig,
    "described": DescribedRule,
    "links": UrlRule,
}

Config = TypeVar("Config", SetConfig, SourceConfig)

_PATHS = ("authorities", "copy", "dataset", "documents", "files", "oxigraph", "resource_root", "state", "to")
_LISTS = (
    "bundles content creator exclude exclude_folders_with hashes hubs include mirrors patch prefixes resource_sets sets"
    " variants"
)


def read_config(
    path: Path,
    given: Mapping[str, Any] = types.MappingProxyType({}),
    refused: Callable[[UsageFault], None] | None = None,
) -> SourceConfig:
    """Read a TOML configuration; relative paths in it are relative to its own folder. What is `given` goes before it.

    Raises UsageFault: the first fault; where all are asked for, each set's is `refused` before.
    """
    return config_of(read_toml(path, BadConfiguration), path, given, refused)


def config_of(
    data: dict[str, Any],
    path: Path,
    given: Mapping[str, Any] = types.MappingProxyType({}),
    refused: Callable[[UsageFault], None] | None = None,
) -> SourceConfig:
    """The same of what such a file has, which lies at `path`. Raises UsageFault."""
    if "configuration" in data:
        raise BadConfiguration("unknown key: configuration", where=str(path))
    data = _spelled_out(data, path.absolute().parent) | given
    if isinstance(to := data.get("to"), str):
        data.setdefault("state", os.path.join(to, OUTPUT_STATE))
    for number, table in enumerate(data["set"] if isinstance(data.get("set"), list) else [], 1):
        name = table.get("name", DEFAULT_SET) if isinstance(table, dict) else ""
        if isinstance(table, dict) and table.get("feed") in ("oai", "dspace") and isinstance(data.get("state"), str):
            folders = (to, name, "resources") if isinstance(to, str) else (data["state"], HARVESTED, name)
            table.setdefault("resource_root", os.path.join(*map(str, folders)))
        where = f"{path}, [[set]] {number} {name!r}"
        try:
            one = _read(table, SetConfig, where)
            try:
                Site(base_url="http://localhost", sets=(one.settings("http://localhost"),))
            except UsageFault as fault:
                fault.where = where
                raise
        except UsageFault as fault:
            if refused is None:
                raise
            refused(fault)
    return msgspec.structs.replace(_read(data, SourceConfig, str(path)), configuration=str(path.absolute()))


def _read(data: object, kind: type[Config], where: str) -> Config:
    try:
        return record_from(data, kind, BadConfiguration, tables=_TABLES)
    except UsageFault as fault:
        fault.where = f"{where}: {fault.where}" if fault.where else where
        raise


def _spelled_out(value: Any, folder: Path, key: str = "") -> Any:
    """A table of a configuration, and those in it, without short forms. What is none is left for others to refuse.

    A text stands for a list with it alone at the keys of lists, and for a number where the key says its unit, or it is
    a percentage (`50%`). A table for `versions` is its text. Paths, also those in addresses of clusters, are counted
    from `folder`.
    """
    if isinstance(value, dict) and key == "versions" and value.keys() <= {"keep", "octets"}:
        return f"{value.get('keep', '')}, {value.get('octets', '')}" if value else True
    if key == "described":  # its `content` is no list
        return value
    if isinstance(value, dict) and key != "types":  # its keys are patterns
        return {name: _spelled_out(one, folder, name) for name, one in value.items()}
    if isinstance(value, list):
        return [_spelled_out(one, folder) for one in value]
    if not isinstance(value, str):
        return value
    if "\0" in value:
        raise BadConfiguration(f"a text has a NUL character{key and ': '}{key}", where=str(folder))
    if key in _LISTS.split():
        return [value]
    if value and (key in _PATHS or key.endswith("_file")):
        return str(folder / os.path.expanduser(value))
    if key == "catalog" or (key == "index" and is_cluster(value)):
        return anchored(value, folder)
    if share := _PERCENTAGE.match(value):
        return float(share[1]) / 100
    read = seconds_from if key.endswith("_seconds") else octets_from if key.endswith("_octets") else None
    number = None if read is None else read(value)
    return value if number is None else number
