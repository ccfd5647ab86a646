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
    dialect: int = 1  # what patterns meant
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
    """How to synchronise: without words of its own, a field is the option of `headwater sync` of its name.

    Defaults are those of the command; sizes are bytes. Raises UsageFault for a value that the command would refuse.
    """

    sets: tuple[str, ...] = ()
    """Names or Capability List URIs of the sets to copy; empty: all."""

    delete: bool = True
    max_delete: Annotated[float, Meta(ge=0, le=1)] | None = None
    """The largest share of the copy (0 to 1) that a run may delete; None: the default limit."""

    max_update: Annotated[float, Meta(ge=0, le=1)] | None = None
    """The largest share of the copy (0 to 1) that a run may overwrite; None: only emptied files count."""

    dry_run: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    include_types: tuple[str, ...] = ()
    exclude_types: tuple[str, ...] = ()
    include_links: tuple[str, ...] = ()
    max_length: Annotated[int, Meta(ge=0)] | None = None
    since: str | None = None
    """Leave out what was last modified before this W3C Datetime; of a day, its beginning in UTC."""

    concurrency: Annotated[int, Meta(ge=1, le=256)] = 64
    rate: Annotated[float, Meta(gt=0)] | None = None
    bwlimit: Annotated[int, Meta(gt=0)] | None = None
    """Bytes a second, over all transfers together."""

    base: str | None = None
    allow_hosts: tuple[str, ...] = ()
    any_host: bool = False
    skip_hosts: tuple[str, ...] = ()
    sitemap: bool = False
    at: str | None = None
    baseline: bool = False
    accept_reset: bool = False
    moved: bool = False
    repair: bool = False
    backup_dir: str | None = None
    """Keep replaced and deleted files here, in a subfolder for each run."""

    largest: Annotated[int, Meta(ge=1)] = 16 << 30
    """Most bytes of a resource without listed length."""

    keep_free: Annotated[int, Meta(ge=0)] | None = None
    max_total: Annotated[int, Meta(ge=1)] | None = None
    stall_seconds: Annotated[int, Meta(ge=1)] = 30
    """Seconds without data after which a request fails."""

    deadline_seconds: Annotated[float, Meta(gt=0)] | None = None
    retries: Annotated[int, Meta(ge=0)] = 2
    """How often a temporary fault is retried in a run."""

    authorization: str | None = None
    """`Authorization` header for the origin of the address only, as are all credentials."""

    user: str | None = None
    password: str | None = None
    """With `user`: Basic authentication (RFC 7617)."""

    headers: tuple[tuple[str, str], ...] = ()
    """More headers, as pairs of name and value."""

    cert: str | None = None
    key: str | None = None
    netrc: bool = True
    """Without other credentials, use the file that `NETRC` names, or ~/.netrc."""

    ca: str | None = None
    proxy: str | None = None
    prefer: Literal["auto", "lists", "dumps"] = "auto"
    mirrors: Literal["on", "off"] = "on"
    trust_mirrors: bool = False
    trust_lastmod: bool = False
    accept_html: bool = False
    prefer_types: tuple[str, ...] = ()
    patches: Literal["on", "off", "all"] = "on"
    only_described: bool = False
    with_metadata: bool = False
    store: str | None = None
    sparql: str | None = None
    sparql_query: str | None = None
    sparql_authorization: str | None = None
    """`Authorization` header for the origin of `sparql` only."""

    dataset: str | None = None
    patient: bool = False
    """Retry each failure at its own time, as `--follow` does."""

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
        by_metadata, by_statements = self.only_described or self.with_metadata, self.choice.by_statements
        for one, other, told in (
            (self.prefer_types, self.at is not None, "a copy of the past has no preferred types"),
            (by_metadata, self.prefer_types, "preferred types and a choice by metadata exclude each other"),
            (by_metadata, self.at is not None, "a copy of the past and a choice by metadata exclude each other"),
            (self.prefer_types, by_statements, "preferred types exclude a choice by type, link, length or time"),
        ):
            if one and other:
                raise UsageFault(told, advice="Leave out one of the two options.")
        if self.sparql is None and (self.sparql_query or self.sparql_authorization):
            raise UsageFault("a SPARQL endpoint needs its address for updates", advice="Give it by --sparql.")
        if self.at is not None:
            moment_of(self.at)

    @property
    def choice(self) -> Choice:
        """Which resources are chosen."""
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

_ADVICE = "Correct the call; docs/reference/library.md lists every option and its type."


def given_options(options: SyncOptions | None) -> SyncOptions:
    """The options of a call, or those of the command without options. Raises UsageFault for anything else."""
    if options is not None and not isinstance(options, SyncOptions):  # not shown: it may have a password
        raise UsageFault(f"options is a SyncOptions, not of type {type(options).__name__}", advice=_ADVICE)
    return options or SyncOptions()
