"""Options: what a caller asks of a destination, and which resources it chooses, which is remembered."""

import re
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from headwater.errors import UsageFault
from headwater.files.patterns import Selection
from headwater.patches import essence_of
from headwater.sync.connection import hosts_of, is_named, origin_of
from headwater.sync.source_times import moment_of
from headwater.typed_decoding import from_values, in_plain_words

_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]+/(?:\*|[a-z0-9!#$&^_.+-]+)\Z")
_hosts_of = lru_cache(maxsize=32)(hosts_of)
_fields = lru_cache(msgspec.structs.fields)  # they are found by evaluating annotations, which takes a millisecond


DIALECT = 2
"""Of patterns: 1 were globs whose `*` crossed `/`."""


class Stated(NamedTuple):
    """What is stated of a resource, as far as a choice goes by it: `lastmod` in microseconds, `links` as kept."""

    type: str | None = None
    length: int | None = None
    lastmod: int | None = None
    links: str | None = None


def fits(wanted: str, given: str | None) -> bool:
    """Whether a media type is the one that is wanted, as in `application/pdf` or `image/*`."""
    said = essence_of(given or "")
    return said == wanted or (wanted.endswith("/*") and said.startswith(wanted[:-1]))


class Choice(msgspec.Struct, frozen=True, array_like=True):
    """What is chosen of the resources of a set, as it is remembered, too (`signature`).

    `include` and `exclude` are patterns of relative paths, or of addresses (`patterns`). Without includes everything is
    chosen; an exclude always wins. The last five fields are about what is stated of a resource (`Stated`): each that is
    given has to hold. `linked_resources` decides what `--only-described` and `--with-metadata` make of it.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    allow_hosts: tuple[str, ...] = ()
    any_host: bool = False
    skip_hosts: tuple[str, ...] = ()
    dialect: int = 1
    """What patterns meant."""

    prefer_types: tuple[str, ...] = ()
    only_described: bool = False
    with_metadata: bool = False
    include_types: tuple[str, ...] = ()
    exclude_types: tuple[str, ...] = ()
    include_links: tuple[str, ...] = ()
    max_length: int | None = None
    since: int | None = None

    @property
    def takes_all(self) -> bool:
        """Whether nothing is left out."""
        return not (self.include or self.exclude or self.skip_hosts or self.only_described or self.by_statements)

    @property
    def by_statements(self) -> bool:
        """Whether it matters what is stated of a resource."""
        is_by_names = self.include_types or self.exclude_types or self.include_links
        return bool(is_by_names) or self.max_length is not None or self.since is not None

    @property
    def is_by_metadata(self) -> bool:
        """Whether it matters what describes what."""
        return self.only_described or self.with_metadata

    @property
    def by_links(self) -> bool:
        """Whether it matters what is linked (`linked_resources`)."""
        return self.is_by_metadata or bool(self.prefer_types)

    @property
    def signature(self) -> str:
        """The choice as it is remembered, as far as it says something.

        A copy that was made when patterns meant something else is compared anew.
        """
        said = 6 if self.include or self.exclude else 5 if self.skip_hosts else 4
        said = 9 if self.is_by_metadata else 7 if self.prefer_types else said
        said = 14 if self.by_statements else said
        return msgspec.json.encode(msgspec.structs.astuple(self)[:said]).decode()

    def skips(self, uri: str) -> bool:
        """Whether the resource is on a host that is left out."""
        if not self.skip_hosts or (origin := origin_of(uri)) is None:
            return False
        return is_named(origin, _hosts_of(self.skip_hosts))

    def takes(self, uri: str, path: bytes, stated: Stated | None = None) -> bool:
        """Whether hosts, patterns and what is stated let the resource in; None: that does not count, as of what the
        source has deleted. Raises BadPattern."""
        if self.skips(uri) or not selection(self.include, self.exclude).takes(path, uri):
            return False
        return stated is None or not self.by_statements or self._takes_stated(stated)

    def _takes_stated(self, stated: Stated) -> bool:
        """Whether a resource is let in by what is stated. What has no length is not too long, what has no time not too
        old; what has no type, or no link, is not of those that are included."""
        kind, length, lastmod, links = stated
        if self.include_types and not any(fits(one, kind) for one in self.include_types):
            return False
        if any(fits(one, kind) for one in self.exclude_types):
            return False
        if self.include_links and not any(f'"rel":"{one}"' in (links or "") for one in self.include_links):
            return False
        if length is not None and self.max_length is not None and length > self.max_length:
            return False
        return lastmod is None or self.since is None or lastmod >= self.since


@lru_cache(maxsize=32)
def selection(include: tuple[str, ...], exclude: tuple[str, ...]) -> Selection:
    """The patterns, read once. Raises BadPattern."""
    return Selection(include, exclude, of_addresses=True)


class SyncOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to synchronise. The defaults are what the command does without options.

    Raises UsageFault for a value that the command would refuse.
    """

    sets: tuple[str, ...] = ()
    """Names or Capability List URIs of the sets wanted; empty: all."""

    delete: bool = True
    max_delete: Annotated[float, Meta(ge=0, le=1)] | None = None
    """The share of the copy (0 to 1) that may be deleted; None: the limit of DST-B4."""

    max_update: Annotated[float, Meta(ge=0, le=1)] | None = None
    """The share of the copy (0 to 1) that may be overwritten; None: so much may become empty as may be deleted."""

    dry_run: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    include_types: tuple[str, ...] = ()
    exclude_types: tuple[str, ...] = ()
    """Only, or not, what is listed with one of these media types (`application/pdf`, `image/*`)."""

    include_links: tuple[str, ...] = ()
    """Only what is listed with a link of one of these relations."""

    max_length: Annotated[int, Meta(ge=0)] | None = None
    """Leave out what is listed with more octets."""

    since: str | None = None
    """Leave out what is listed as last modified before this time, a W3C Datetime: of a day its begin, in UTC."""

    concurrency: Annotated[int, Meta(ge=1, le=256)] = 64
    rate: Annotated[float, Meta(gt=0)] | None = None
    bwlimit: Annotated[int, Meta(gt=0)] | None = None
    """Limit of octets a second, over all transfers together."""

    base: str | None = None
    allow_hosts: tuple[str, ...] = ()
    any_host: bool = False
    skip_hosts: tuple[str, ...] = ()
    """Hosts to leave out: a choice, not a refusal (DST-S12)."""

    sitemap: bool = False
    at: str | None = None
    """Copy the source as it was at this time, a W3C Datetime: of a day its end, in UTC."""

    baseline: bool = False
    """Do a baseline even if an increment would suffice."""

    accept_reset: bool = False
    """The source was set back: let its Resource List decide, whatever its `at`, over all that changes did (DST-C10)."""

    moved: bool = False
    """The source of the copy has moved to this address (DST-F10)."""

    repair: bool = False
    """Hash every file of the copy first, and fetch again what is missing or different."""

    backup_dir: str | None = None
    """Keep what is replaced or deleted in this folder, in one subfolder for each run that does so."""

    largest: Annotated[int, Meta(ge=1)] = 16 << 30
    """Maximum octets of a resource whose list states no length."""

    keep_free: Annotated[int, Meta(ge=0)] | None = None
    """Octets that stay free on the disk of the copy; None: 1 GiB, on a small disk a twentieth of it."""

    max_total: Annotated[int, Meta(ge=1)] | None = None
    """Maximum octets of all files of the copy together."""

    stall_seconds: Annotated[int, Meta(ge=1)] = 30
    """Time-out: seconds without data after which a request fails."""

    deadline_seconds: Annotated[float, Meta(gt=0)] | None = None
    """How long the run may take; then it ends with a fault (status 3), what was done holds, and the next goes on."""

    retries: Annotated[int, Meta(ge=0)] = 2
    """How often a temporary fault is retried before the resource is remembered as failed."""

    authorization: str | None = None
    """Value of an `Authorization` header for the origin of the address, and for no other; so are the next five."""

    user: str | None = None
    password: str | None = None
    """User name and password (Basic, RFC 7617), instead of `authorization`."""

    headers: tuple[tuple[str, str], ...] = ()
    """Further headers, each as name and value."""

    cert: str | None = None
    key: str | None = None
    """Files of a client certificate and its key (PEM); without `key` both are in `cert`."""

    netrc: bool = True
    """Without other credentials, use the file that `NETRC` names, or ~/.netrc."""

    ca: str | None = None
    """A file of certificate authorities (PEM) that are trusted in addition to the machine's."""

    proxy: str | None = None
    """The URI of a proxy for all requests, instead of those of the environment."""

    prefer: Literal["auto", "lists", "dumps"] = "auto"
    """How resources are fetched: the quickest way, by single requests alone, or by packages wherever there are any of
    which more than a little is wanted."""

    mirrors: Literal["on", "off"] = "on"
    """Whether the mirrors of a resource are asked, by their `pri`, before the resource itself (DST-S2)."""

    trust_mirrors: bool = False
    """Ask mirrors also for resources whose list states neither hash nor length."""

    trust_lastmod: bool = False
    """Ask nothing about a resource whose list states neither hash nor length, and the `lastmod` that it had before."""

    accept_html: bool = False
    """Take a page of HTML that comes in place of XML, JSON, RDF, PDF, an image or an archive of which neither hash nor
    length is listed; else it is a failure (AMB-94)."""

    prefer_types: tuple[str, ...] = ()
    """Media types, in order of preference, of alternates that are copied in place of the resource itself (DST-S3)."""

    patches: Literal["on", "off", "all"] = "on"
    """Whether updates are done by patches, where the source has some that are fewer octets (DST-S1); `all`: a dataset
    is made from all of them also the first time (TIM-A6)."""

    only_described: bool = False
    """Copy only resources that a metadata record describes, and these records (RS-DST-16)."""

    with_metadata: bool = False
    """Copy the metadata records of what is chosen whatever the patterns say, each before what it describes (DST-S5)."""

    store: str | None = None
    """A folder in which an embedded triplestore for each set follows its RDF dataset."""

    sparql: str | None = None
    """The address for updates of a SPARQL 1.1 endpoint that follows the RDF datasets …"""

    sparql_query: str | None = None
    """… and its address for queries, where that is another."""

    sparql_authorization: str | None = None
    """Value of an `Authorization` header for the origin of `sparql`, and for no other."""

    dataset: str | None = None
    """The URI or file name of the RDF dataset, where the source does not tell which file it is."""

    patient: bool = False
    """Retry each failure at a time of its own, as `--follow` does (DST-F6)."""

    def __post_init__(self) -> None:
        for field in _fields(type(self)):  # a list where a tuple is meant becomes one
            try:
                value = from_values(getattr(self, field.name), field.type)
            except (msgspec.ValidationError, TypeError) as fault:  # it does not say the value, which may be secret
                what = in_plain_words(str(fault).partition(" - at")[0], [])
                raise UsageFault(f"{field.name}: {what}", advice=_ADVICE) from None
            msgspec.structs.force_setattr(self, field.name, value)
        if self.include or self.exclude:
            selection(self.include, self.exclude)  # raises BadPattern here, and not in the midst of a run
        for text in (*self.prefer_types, *self.include_types, *self.exclude_types):
            if _TYPE.match(essence_of(text)) is None:
                advice = "Name one as in application/pdf or image/*."
                raise UsageFault(f"{text!r:.100} is no media type", advice=advice)
        by_metadata = self.only_described or self.with_metadata
        for one, other, told in (
            (self.prefer_types, self.at is not None, "a copy of the past has no preferred types"),
            (by_metadata, self.prefer_types, "preferred types and a choice by metadata exclude each other"),
            (by_metadata, self.at is not None, "a copy of the past and a choice by metadata exclude each other"),
            (
                self.prefer_types,
                self.choice.by_statements,
                "preferred types exclude a choice by type, link, length or time",
            ),
        ):
            if one and other:
                raise UsageFault(told, advice="Leave out one of the two options.")
        if self.sparql is None and (self.sparql_query or self.sparql_authorization):
            raise UsageFault("a SPARQL endpoint is named by its address for updates", advice="Give it by --sparql.")
        if self.at is not None:
            moment_of(self.at)

    @property
    def choice(self) -> Choice:
        """Which resources are let in."""
        hosts = (self.allow_hosts, self.any_host, self.skip_hosts)
        by_metadata = (self.only_described, self.with_metadata)
        kinds, others = (tuple(map(essence_of, one)) for one in (self.include_types, self.exclude_types))
        since = None if self.since is None else moment_of(self.since, "--since", begin=True)
        return Choice(
            self.include, self.exclude, *hosts, DIALECT, self.prefer_types, *by_metadata,
            kinds, others, self.include_links, self.max_length, since,
        )  # fmt: skip

    def __repr__(self) -> str:
        """The fields that are not as they are by themselves; nothing that is secret."""
        said = ((f.name, getattr(self, f.name), f.default) for f in _fields(type(self)))
        told = (f"{name}={'***' if name in SECRETS else repr(value)}" for name, value, usual in said if value != usual)
        return f"SyncOptions({', '.join(told)})"


SECRETS = frozenset({"authorization", "password", "headers", "proxy", "sparql_authorization"})
"""Options whose values are never shown."""

_ADVICE = "Correct the call; docs/library.md lists every option, its type and what it may be."


def given_options(options: SyncOptions | None) -> SyncOptions:
    """The options of a call, or those of the command without options. Raises UsageFault for anything else."""
    if options is not None and not isinstance(options, SyncOptions):  # not shown: it may have a password
        raise UsageFault(f"options is a SyncOptions, not of type {type(options).__name__}", advice=_ADVICE)
    return options or SyncOptions()
