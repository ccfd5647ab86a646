"""The configuration of a source: one record for the command line and the TOML file (`docs/configuration.md`).

Unknown keys are refused with their path, so that a misspelt key never passes for a default.
"""

from __future__ import annotations

import re
import tomllib
from difflib import get_close_matches
from enum import Enum, EnumType
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

from headwater.catalog.catalog_url import anchored, place_of
from headwater.errors import UsageFault
from headwater.publish.links.partners import DescribedRule
from headwater.publish.links.rules import LinkRules, UrlRule
from headwater.publish.site import DEFAULT_SET, SetSettings, Site, description_name
from headwater.quantities import kept_from, octets_from, seconds_from, spelled_out
from headwater.source.notifications.hub_config import HubConfig
from headwater.source.notifications.notify_config import NotifyConfig
from headwater.source.push_config import BadPushConfig, PushConfig
from headwater.spec.extensions import DumpLimits
from headwater.spec.writer import Profile
from headwater.typed_decoding import from_values
from headwater.versions.retention import VersionRetention

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8000
ON_DEMAND = DumpLimits(resources=50_000, octets=4 << 30, requests=8)
"""Limits of packages made on demand, unless others are configured; a manifest has 50,000 entries (RS-LIM-05)."""

_MOST_NAMED = 16  # keys of a small table; those of a large one are in the manual
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
_ENUM = re.compile(r"Invalid enum value")
_KINDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}

Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class BadConfiguration(UsageFault):
    """The configuration file cannot be read, or has an invalid value."""

    code: ClassVar[str] = "HW-CFG-01"
    advice: ClassVar[str] = "docs/configuration.md lists every key, its meaning and its default."


class KeptVersions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`versions` of a set: past states are kept for so long, and so many octets of them; as people write them."""

    keep: str | float | None = None
    octets: str | int | None = None

    def __post_init__(self) -> None:
        for key, value, found in (("keep", self.keep, self.seconds), ("octets", self.octets, self.most_octets)):
            if value is not None and (found is None or not 0 <= found < 1 << 62):
                raise BadConfiguration(
                    f"versions.{key} is no such quantity: {str(value)[:80]!r}",
                    advice='Write it like { keep = "30 days", octets = "20 GB" }.',
                )

    @property
    def seconds(self) -> float | None:
        """How long a past state is kept; None: for ever."""
        return seconds_from(self.keep) if isinstance(self.keep, str) else self.keep

    @property
    def most_octets(self) -> int | None:
        """How much is kept; None: all."""
        return octets_from(self.octets) if isinstance(self.octets, str) else self.octets


class SetConfig(PushConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[set]]`: a folder that is published as a set of resources, or a push set, whose records are announced."""

    name: str = DEFAULT_SET
    title: str | None = None
    describedby: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hidden: bool = False
    hashes: tuple[str, ...] = ("md5", "sha-256")
    canonical_hash: Literal["beside", "instead"] | None = None
    watch: bool = True
    rescan_seconds: Seconds = 300.0
    settle_seconds: Annotated[float, msgspec.Meta(ge=0)] = 2.0
    max_delete: Share = 0.2
    refresh_changes: Count = 5_000
    refresh_seconds: Seconds = 3_600.0
    renew_seconds: Seconds = 604_800.0
    segment_seconds: Seconds | None = None
    rotation_seconds: Seconds | None = None
    retention_seconds: Seconds | None = None
    resource_base: str | None = None
    on_demand: bool = True
    dump: bool = False
    dump_share: Share = 0.05
    dump_seconds: Seconds = 86_400.0
    change_dump: bool = False
    change_dump_seconds: Annotated[float, msgspec.Meta(ge=10)] = 300.0
    patch: tuple[Literal["json", "nquads"], ...] = ()
    archive: bool = False
    archive_seconds: Seconds = 86_400.0
    archive_kept_seconds: Seconds = 31_536_000.0
    archive_octets: Count = 20_000_000_000
    archive_documents: Annotated[int, msgspec.Meta(ge=1, le=20_000)] = 2_000
    versions: bool | KeptVersions | str = False
    package_entries: Annotated[int, msgspec.Meta(ge=1, le=50_000)] = 10_000
    package_octets: Count = 268_435_456
    mirrors: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    described: tuple[DescribedRule, ...] = ()
    links: tuple[UrlRule, ...] = ()
    classic: bool = False
    classic_entries: Annotated[int, msgspec.Meta(ge=2, le=50_000)] = 50_000
    sitemap: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.versions, str) and kept_from(self.versions) is None:
            raise BadConfiguration(
                f"versions says not how long: {self.versions[:80]!r}",
                advice='Write true, "30 days", "1 year, 20 GB", or { keep = "30 days", octets = "20 GB" }.',
            )
        for key, is_on in (
            ("dump", self.dump),
            ("change_dump", self.change_dump),
            ("patch", self.patch),
            ("versions", self.versions),
        ):
            if is_on and self.root is None:
                raise BadPushConfig(
                    f"{key} needs the octets of the resources", advice="Give files or resource_root, or leave it out."
                )
            if is_on and self.canonical_hash == "instead":
                raise BadPushConfig(
                    f'{key} needs the digests that canonical_hash = "instead" leaves out',
                    advice='Give canonical_hash = "beside", or leave one of them out.',
                )

    @property
    def link_rules(self) -> LinkRules:
        """The rules by which entries get links; the first of the mirrors is the best. Raises BadLinkRule."""
        mirrors = tuple(UrlRule(rel="duplicate", href=one, pri=pri) for pri, one in enumerate(self.mirrors, 1))
        return LinkRules(urls=(*mirrors, *self.links), described=self.described, variants=self.variants)

    @property
    def kept_versions(self) -> VersionRetention | None:
        """How long past states of the resources are kept; None where none are."""
        kept = kept_from(self.versions) if isinstance(self.versions, str) else self.versions
        if not kept or kept is True:
            return VersionRetention() if kept else None
        kept = KeptVersions(**kept) if isinstance(kept, dict) else kept
        return VersionRetention(seconds=kept.seconds, octets=kept.most_octets)

    def settings(self, dumps: DumpLimits | None = None) -> SetSettings:
        """What the publisher has to know of the set; with `dumps`, it offers packages on demand if it can.

        It can when this server has the octets of its resources at their URLs. Raises BadSite.
        """
        has_octets = self.root is not None and self.resource_base is None
        return SetSettings(
            name=self.name,
            title=self.title,
            describedby=self.describedby,
            resource_base=self.resource_base,
            dumps=dumps if self.on_demand and has_octets else None,
            refresh_changes=self.refresh_changes,
            refresh_seconds=self.refresh_seconds,
            renew_seconds=self.renew_seconds,
            segment_seconds=self.segment_seconds,
            rotation_seconds=self.rotation_seconds,
            retention_seconds=self.retention_seconds,
            dump=self.dump,
            dump_share=self.dump_share,
            dump_seconds=self.dump_seconds,
            change_dump=self.change_dump,
            change_dump_seconds=self.change_dump_seconds,
            patch=self.patch,
            archive=self.archive,
            archive_seconds=self.archive_seconds,
            archive_kept_seconds=self.archive_kept_seconds,
            archive_octets=self.archive_octets,
            archive_documents=self.archive_documents,
            package_entries=self.package_entries,
            package_octets=self.package_octets,
            links=self.link_rules,
            classic=self.classic,
            classic_entries=self.classic_entries,
            sitemap=self.sitemap,
            dataset=self.is_dataset,
            licence=self.licence,
        )


class SourceConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"sets": "set"}):
    """A whole source. `base_url` None: the address that the server listens on. Paths are as given, or absolute.

    `configuration` is the file that it was read from, and no key of it.
    """

    state: str
    sets: tuple[SetConfig, ...]
    catalog: str | None = None
    documents: str | None = None
    base_url: str | None = None
    host: str = DEFAULT_HOST
    port: Port = DEFAULT_PORT
    profile: Profile = Profile.V11
    metrics: bool = False
    log_format: Literal["text", "json"] = "text"
    title: str | None = None
    describedby: str | None = None
    page_entries: Annotated[int, msgspec.Meta(ge=1, le=50_000)] = 50_000
    segment_entries: Annotated[int, msgspec.Meta(ge=1, le=50_000)] = 50_000
    versions_seconds: Annotated[float, msgspec.Meta(ge=0)] = 604_800.0
    versions_octets: Annotated[int, msgspec.Meta(ge=0)] | None = None
    on_demand_resources: Annotated[int, msgspec.Meta(ge=1, le=50_000)] = ON_DEMAND.resources
    on_demand_octets: Count = ON_DEMAND.octets
    on_demand_requests: Annotated[int, msgspec.Meta(ge=1, le=64)] = ON_DEMAND.requests
    notify: NotifyConfig | None = None
    hub: HubConfig | None = None
    configuration: str | None = None

    def __post_init__(self) -> None:
        if not self.sets:
            raise BadConfiguration("no set: nothing to publish", advice='Add a [[set]] with `files = "DIR"`.')
        if self.catalog is not None:
            place_of(self.catalog)
        self.site("http://localhost")  # a wrong name or URL is told when the file is read, not when it is used

    @property
    def version_retention(self) -> VersionRetention:
        """How long versions are kept that nothing needs."""
        return VersionRetention(seconds=self.versions_seconds, octets=self.versions_octets)

    @property
    def kept_versions(self) -> dict[str, VersionRetention]:
        """How long each set that keeps past states keeps them."""
        return {one.name: kept for one in self.sets if (kept := one.kept_versions) is not None}

    @property
    def dump_limits(self) -> DumpLimits:
        """The limits of packages made on demand."""
        return DumpLimits(
            resources=self.on_demand_resources, octets=self.on_demand_octets, requests=self.on_demand_requests
        )

    def site(self, base_url: str | None = None, *, is_static: bool = False) -> Site:
        """The site at the configured base URL, or else at `base_url`. Raises BadSite.

        One that `is_static` lies as files with any web server, which makes nothing on demand.
        """
        base = self.base_url or base_url
        if base is None:
            raise BadConfiguration("no base URL: URIs of resources need one", advice="Set base_url.")
        return Site(
            base_url=base,
            sets=tuple(self._settings(one, base.rstrip("/"), is_static=is_static) for one in self.sets),
            profile=self.profile,
            title=self.title,
            describedby=self.describedby,
        )

    def _settings(self, one: SetConfig, base: str, *, is_static: bool) -> SetSettings:
        """The settings of a set at this base URL; TimeGate and TimeMap are made by this server alone (RS-REL-09)."""
        settings = one.settings(None if is_static else self.dump_limits)
        if one.is_dataset:  # its resource and its description lie beside the lists, as documents
            about = one.describedby or f"{base}/{description_name(one.name)}"
            settings = msgspec.structs.replace(settings, resource_base=f"{base}/{one.name}", describedby=about)
        if self.notify is not None and not is_static:  # nobody answers as topic of a static tree
            settings = msgspec.structs.replace(settings, hubs=self.notify.hubs)
        if one.kept_versions is None or is_static:
            return settings
        rules = tuple(
            UrlRule(rel=rel, href=f"{base}/{one.name}/{rel}/{{path}}", type=kind)
            for rel, kind in (("timegate", None), ("timemap", "application/link-format"))
        )
        return msgspec.structs.replace(
            settings,
            past_dumps=True,
            links=msgspec.structs.replace(
                settings.links, urls=(*settings.links.urls, *rules), mementos=f"{base}/{one.name}/memento"
            ),
        )


Config = TypeVar("Config", SetConfig, SourceConfig)

_LISTS = ("exclude", "hashes", "hubs", "include", "mirrors", "patch", "resource_sets", "variants")


def read_config(path: Path) -> SourceConfig:
    """Read a TOML configuration; relative paths in it are relative to its own folder. Raises BadConfiguration."""
    try:
        data = tomllib.loads(path.read_bytes().decode())
    except OSError as cause:
        raise BadConfiguration(f"cannot be read: {cause.strerror}", where=str(path)) from cause
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
        raise BadConfiguration(f"not TOML: {cause}", where=str(path)) from cause
    data = spelled_out(data, _LISTS)
    for number, table in enumerate(data["set"] if isinstance(data.get("set"), list) else [], 1):
        name = table.get("name", DEFAULT_SET) if isinstance(table, dict) else ""
        _read_set(table, f"{path}, [[set]] {number} {name!r}")
    if "configuration" in data:
        raise BadConfiguration("unknown key: configuration", where=str(path))
    config = _anchored(_read(data, SourceConfig, str(path)), path.absolute().parent)
    return msgspec.structs.replace(config, configuration=str(path.absolute()))


def _read_set(table: object, where: str) -> None:
    one = _read(table, SetConfig, where)
    try:
        Site(base_url="http://localhost", sets=(one.settings(),))
    except UsageFault as fault:
        fault.where = where
        raise


def _read(data: object, kind: type[Config], where: str) -> Config:
    """A record of this kind; whatever is wrong is said with its place. Raises UsageFault."""
    try:
        return from_values(data, kind)
    except msgspec.ValidationError as cause:
        raise BadConfiguration(refusal(str(cause), kind), where=where) from cause
    except UsageFault as fault:
        fault.where = f"{where}: {fault.where}" if fault.where else where
        raise


def refusal(words: str, kind: type[msgspec.Struct]) -> str:
    """What was wrong with a table, in the words of its writer: the key first, and the one that was probably meant."""
    what, _, place = words.partition(" - at `$.")
    place = place.rstrip("`").replace("[...]", "")
    key = re.sub(r"\[(\d+)\]", lambda index: f" {int(index[1]) + 1}", place)
    if unknown := _UNKNOWN.match(what):
        names = [one.encode_name for one in _fields(kind, re.sub(r"\[\d+\]", "", place))]
        meant = get_close_matches(unknown[1], names, 1) or [one for one in names if one.startswith(unknown[1])]
        possible = f"; possible are {', '.join(names)}" if 0 < len(names) <= _MOST_NAMED else ""
        what = f"unknown key: {unknown[1]}" + (f" (did you mean {meant[0]}?)" if meant else possible)
    elif _ENUM.match(what) and (values := _values(kind, place)):
        what = f"{what.replace('enum ', '')}, expected one of {', '.join(values)}"
    elif key == "set" and what.endswith("got `object`"):
        what = "write [[set]], in double brackets: there may be several"
    elif missing := _MISSING.match(what):
        what = f"{f'there is no [[{missing[1]}]] table' if missing[1] == 'set' else f'the key {missing[1]} is missing'}"
    what = re.sub(r"`([a-z]+(?: \| [a-z]+)*)`", lambda told: _kinds(told[1]), what)
    return f"{key}: {what[:1].lower()}{what[1:]}" if key else what


def _kinds(told: str) -> str:
    return ", or ".join(_KINDS.get(name, name) for name in told.split(" | "))


def _values(kind: type[msgspec.Struct], place: str) -> list[str]:
    """The values that the key at this place may have, where they are a closed set."""
    table, _, key = re.sub(r"\[\d+\]", "", place).rpartition(".")
    types = [one.type for one in _fields(kind, table) if one.encode_name == key]
    choices = [choice for one in types for choice in (one, *get_args(one))]
    closed = [str(one.value) for choice in choices if isinstance(choice, EnumType) for one in list[Enum](choice)]
    return closed or [text for choice in choices if get_origin(choice) is Literal for text in get_args(choice)]


def _fields(kind: type[msgspec.Struct], key: str) -> tuple[FieldInfo, ...]:
    """The keys that a table may have: this one, or the one that lies at a key of it, as `set.described`."""
    for name in filter(None, key.split(".")):
        of_name = [one for one in msgspec.structs.fields(kind) if one.encode_name == name]
        tables = [table for one in of_name for table in _tables(one.type)]
        if not tables:
            return ()
        kind = tables[0]
    return msgspec.structs.fields(kind)


def _tables(annotation: object) -> list[type[msgspec.Struct]]:
    """The tables that a type allows: itself, those of a list of them, or of a choice."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [annotation]
    return [table for one in get_args(annotation) for table in _tables(one)]


def _anchored(config: SourceConfig, folder: Path) -> SourceConfig:
    sets = tuple(msgspec.structs.replace(one, **one.anchored_paths(folder)) for one in config.sets)
    places = {
        name: str(folder / Path(path).expanduser())
        for name, path in (("state", config.state), ("documents", config.documents))
        if path is not None
    }
    if config.catalog is not None:
        places["catalog"] = anchored(config.catalog, folder)
    notify = None if config.notify is None else config.notify.anchored(folder)
    hub = None if config.hub is None else config.hub.anchored(folder)
    return msgspec.structs.replace(config, sets=sets, notify=notify, hub=hub, **places)
