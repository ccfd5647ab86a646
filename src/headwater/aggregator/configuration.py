"""The configuration of a service that follows many sources: `aggregate.toml`.

Durations are seconds, sizes are bytes, shares are 0 to 1, once the file is read; the file may say "1h", "20GB", "20%".
"""

from __future__ import annotations

import csv
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from headwater.aggregator.schedule import check_cron, windows_of
from headwater.errors import UsageFault
from headwater.quantities import bandwidth_from, octets_from, seconds_from, share_from
from headwater.spec.uris import comparable_host
from headwater.sync.connection import basic, checked_proxy, credentials_of, starting_uri
from headwater.sync.options import SyncOptions
from headwater.typed_decoding import from_values, in_plain_words

FIRST_CONCURRENCY: Final = 8
"""Requests at a time to a source that says nothing of it: many sources are followed, and most are strangers."""

Positive = Annotated[float, Meta(gt=0, le=3e9)]
"""Seconds, at most a century: moments that are reckoned with it must exist."""


class BadAggregation(UsageFault):
    """The configuration of a service cannot be read, or has a value that is none."""

    code: ClassVar[str] = "HW-AGG-20"


class HostLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[host."…"]`: limits that all sources on a host share, whatever address led there."""

    concurrency: Annotated[int, Meta(ge=1, le=256)] | None = None
    rate: Positive | None = None
    """Requests a second."""

    window: str | None = None
    """Local time of day in which the host may be asked, as in 22:00-06:00."""


class FollowedSource(msgspec.Struct, frozen=True, kw_only=True):
    """`[[source]]`, with the `[defaults]` put in."""

    name: str
    url: str
    title: str = ""
    tags: tuple[str, ...] = ()
    enabled: bool = True
    contact: str | None = None
    every: Positive = 3_600.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """Share of `every` by which a run may begin later, at random."""

    cron: str | None = None
    """Times of runs in place of `every` (five fields, local time)."""

    window: str | None = None
    """Local times of day in which runs may begin, as in 22:00-06:00; what still runs at their end goes on next time."""

    deadline: Positive = 7_200.0
    audit: Positive | None = None
    """How often the copy is audited; None: never."""

    quota: Annotated[int, Meta(ge=1)] | None = None
    """Most bytes of the copy: the source alone stops."""

    dead_after: Positive = 2_592_000.0
    options: SyncOptions = SyncOptions()
    """All other keys: the options of `headwater sync`, deadline, time-out, quota and free space included."""

    def __repr__(self) -> str:
        """Its name and address: options may be secret, and tell of themselves."""
        return f"FollowedSource(name={self.name!r}, url={self.url!r}, options={self.options!r})"


class SinkConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[sink]]`: who gets the events of the journal."""

    name: str
    kind: str
    """command, webhook, file, opensearch, sql, or the name of an entry point (`headwater.sinks`)."""

    command: str | None = None
    url: str | None = None
    secret: str | None = None
    path: str | None = None
    table: str | None = None
    index: str | None = None
    sources: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    quarantine: tuple[str, ...] = ()
    """Rules: type (mismatch), well-formed, html, empty, larger than a size (max:10MB)."""

    tries: int = 10
    batch: int = 500
    options: dict[str, str] = {}


ALERTS = frozenset(
    {"failing", "dead", "degraded", "question", "stale", "held_back", "defects", "disk", "sink", "recovered"}
)
_WITH_AMOUNT = frozenset({"stale", "defects", "sink"})
"""What `on` of an alert may say; some with a duration or a number behind a colon."""


class AlertRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[alert]]`: who is told of what."""

    name: str
    kind: Literal["command", "webhook", "mail"]
    on: tuple[str, ...]
    """failing, dead, degraded, question, stale:2d, held_back, defects:100, disk, sink:1h, recovered."""

    command: str | None = None
    url: str | None = None
    secret: str | None = None
    mail: str | None = None
    sender: str | None = None
    smtp: str | None = None
    tags: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    summary: str | None = None
    """Local time of a daily summary, as in 07:00."""

    def __post_init__(self) -> None:
        """Raises ValueError for a rule that could never tell anything."""
        if not {"command": self.command, "webhook": self.url, "mail": self.mail}[self.kind]:
            key = "url" if self.kind == "webhook" else self.kind
            raise ValueError(f"an alert by {self.kind} needs the key `{key}`")
        for word in self.on:
            name, colon, amount = word.partition(":")
            if name not in ALERTS or (colon and (name not in _WITH_AMOUNT or seconds_from(amount) is None)):
                raise ValueError(f"{word!r:.50} is none of {', '.join(sorted(ALERTS))}")
        if self.summary is not None and re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", self.summary) is None:
            raise ValueError(f"{self.summary!r:.50} is no time of day, as in 07:00")


class PublishRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[publish]`: the copies are published again, each set of each copy as a set."""

    listen: str = "127.0.0.1:8000"
    base_url: str | None = None
    """URL at which clients reach it; None: the address it listens on."""

    tags: tuple[str, ...] = ()
    """Only sources with one of these tags; empty: all."""

    title: str = ""
    set: dict[str, Any] = {}
    """Keys that each `[[set]]` of the source gets, such as `sitemap`."""


class AggregatorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All that `aggregate.toml` says."""

    path: Path
    state: Path
    """Copies lie in STATE/NAME; what the service remembers in STATE/.aggregator."""

    sources: tuple[FollowedSource, ...]
    listen: str | None = None
    operator_token: str | None = None
    keep_free: Annotated[int, Meta(ge=0)] | None = None
    parallel: Annotated[int, Meta(ge=1, le=256)] = 4
    keep_events: Positive = 7_776_000.0
    hosts: dict[str, HostLimits] = {}
    sinks: tuple[SinkConfig, ...] = ()
    alerts: tuple[AlertRule, ...] = ()
    publish: PublishRule | None = None

    @property
    def home(self) -> Path:
        """The folder of what the service remembers."""
        return self.state / ".aggregator"

    def source(self, name: str) -> FollowedSource | None:
        """The source of this name."""
        return next((one for one in self.sources if one.name == name), None)


# the keys of a source

_OWN: Final = frozenset(FollowedSource.__struct_fields__) - {"options"}
_OTHER_NAMES: Final = {"largest": "max_size", "stall_seconds": "timeout"}
_NOT_GIVEN: Final = frozenset({
    "accept_reset", "at", "authorization", "baseline", "deadline_seconds", "dry_run", "moved", "password", "patient",
    "repair", "sparql_authorization", "user",
})  # fmt: skip
"""Options that are for one run, that the service decides, or that have keys of another form."""

OPTION_KEYS: Final = {
    _OTHER_NAMES.get(name) or (name.removesuffix("s") if isinstance(default, tuple) else name): name
    for name, default in ((one.name, one.default) for one in msgspec.structs.fields(SyncOptions))
    if name not in _NOT_GIVEN
}
"""Options of `headwater sync` by their names there, `-` as `_`, with the field of `SyncOptions` that each fills."""

SECRET_KEYS: Final = ("operator_token", "password", "secret", "token")
"""Keys that may also be given as KEY_file or KEY_env."""

_SIGN_IN: Final = frozenset(
    {"user", "sparql_user", *(f"{one}{end}" for one in ("password", "token") for end in ("", "_file", "_env"))}
)
SOURCE_KEYS: Final = _OWN | OPTION_KEYS.keys() | _SIGN_IN

SHARES: Final = frozenset({"jitter", "max_delete", "max_update"})
OCTETS: Final = frozenset({"keep_free", "max_length", "max_size", "max_total", "quota"})
DURATIONS: Final = frozenset({"audit", "dead_after", "deadline", "every", "keep_events", "timeout"})
BANDWIDTHS: Final = frozenset({"bwlimit"})
"""Keys whose values may be texts with a unit, as on the command line."""

_PATHS: Final = frozenset({"backup_dir", "ca", "cert", "key", "path", "state", "store"})
_FOLDERS: Final = frozenset({"backup_dir", "store"})  # several sources may not share one
_OFTEN: Final = {"hourly": 3_600.0, "daily": 86_400.0, "weekly": 604_800.0, "monthly": 2_592_000.0}
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MOST_SECRET: Final = 4_096
_TOP: Final = frozenset({
    "state", "listen", "operator_token", "operator_token_file", "operator_token_env", "keep_free", "parallel",
    "keep_events", "sources",
})  # fmt: skip
_TOP_KINDS: Final = {one.name: one.type for one in msgspec.structs.fields(AggregatorConfig)}
_TABLES: Final = frozenset({"defaults", "source", "host", "sink", "alert", "publish"})

T = TypeVar("T", bound=msgspec.Struct)
Refused = Callable[[UsageFault], None]


def read_aggregation(path: Path, refused: Refused | None = None) -> AggregatorConfig:
    """Read the configuration of a service; relative paths in it are relative to the file that has them.

    Raises BadAggregation: the first fault. Where all are asked for, `refused` gets each, and their number is raised.
    """
    path = path.absolute()
    data = _toml(path)
    faults = _Faults(refused)
    sources = _sources(path, data, faults)
    with faults.at(str(path)):
        unknown = data.keys() - _TOP - _TABLES
        if unknown:
            raise BadAggregation(_unknown(min(unknown), _TOP | _TABLES))
    hosts: dict[str, HostLimits] = {}
    for name, table in _table(data, "host", path, faults).items():
        with faults.at(f'{path}, [host."{name}"]'):
            hosts[comparable_host(str(name).lower())] = limits = _made(_values(table, path), HostLimits)
            windows_of(limits.window)
    sinks = _several(data, "sink", SinkConfig, path, faults)
    alerts = _several(data, "alert", AlertRule, path, faults)
    publish = None
    if "publish" in data:
        with faults.at(f"{path}, [publish]"):
            publish = _made(_values(_table(data, "publish", path, faults), path), PublishRule)
    top: dict[str, Any] = {}
    with faults.at(str(path)):
        top = _values({key: value for key, value in data.items() if key in _TOP - {"sources"}}, path)
        if "state" not in top:
            raise BadAggregation("state is missing", advice='Say where copies lie: state = "FOLDER".')
        for key, value in top.items():
            try:
                top[key] = Path(from_values(value, str)) if key == "state" else from_values(value, _TOP_KINDS[key])
            except msgspec.ValidationError as cause:
                raise BadAggregation(f"{key}: {in_plain_words(str(cause), [])}") from cause
    faults.conclude(path)
    return AggregatorConfig(path=path, sources=sources, hosts=hosts, sinks=sinks, alerts=alerts, publish=publish, **top)


class _Faults:
    """Faults of a configuration: the first is raised, unless each is told to somebody."""

    def __init__(self, refused: Refused | None) -> None:
        self._refused, self._where, self._count = refused, "", 0

    def at(self, where: str) -> _Faults:
        """A context of this place."""
        self._where = where
        return self

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, fault: BaseException | None, _trace: object) -> bool:
        if not isinstance(fault, UsageFault):
            return False
        told = fault
        if not isinstance(fault, BadAggregation):
            todo = None if type(fault) is UsageFault else fault.todo
            told = BadAggregation(fault.what, where=fault.where, advice=todo)
        told.where = f"{self._where}: {fault.where}" if fault.where else self._where
        if self._refused is None:
            raise told from fault
        self._count += 1
        self._refused(told)
        return True

    def conclude(self, path: Path) -> None:
        """Raise BadAggregation where there were any."""
        if self._count:
            raise BadAggregation(f"the file has {self._count} faults", where=str(path))


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as cause:
        raise BadAggregation(f"cannot be read: {cause.strerror}", where=str(path)) from cause
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
        raise BadAggregation(f"not TOML: {cause}", where=str(path)) from cause


def _table(data: Mapping[str, Any], name: str, path: Path, faults: _Faults) -> dict[str, Any]:
    """The table of this name, which may be missing."""
    found = data.get(name, {})
    if isinstance(found, dict):
        return found
    with faults.at(str(path)):
        raise BadAggregation(f"{name} is a table, [{name}]")
    return {}


def _tables(data: Mapping[str, Any], name: str, path: Path, faults: _Faults) -> list[dict[str, Any]]:
    """The tables of this name, of which there may be several."""
    found = data.get(name, [])
    if isinstance(found, list) and all(isinstance(one, dict) for one in found):
        return found
    with faults.at(str(path)):
        raise BadAggregation(f"{name} is a table of several, [[{name}]]")
    return []


def _several(
    data: Mapping[str, Any], name: str, kind: type[SinkConfig] | type[AlertRule], path: Path, faults: _Faults
) -> tuple[Any, ...]:
    found: dict[str, Any] = {}
    for number, table in enumerate(_tables(data, name, path, faults), 1):
        with faults.at(f"{path}, [[{name}]] {number} {table.get('name', '')!r}"):
            one = _made(_values(table, path), kind)
            _check_name(one.name, found)
            found[one.name.casefold()] = one
    return tuple(found.values())


def _made(values: Mapping[str, Any], kind: type[T]) -> T:
    """A record of these values. Raises BadAggregation, which names the key and shows no value."""
    fields = [one.encode_name for one in msgspec.structs.fields(kind)]
    if unknown := values.keys() - set(fields):
        raise BadAggregation(_unknown(min(unknown), fields))
    try:
        return from_values(values, kind, strict=False)
    except msgspec.ValidationError as cause:
        what, _, place = str(cause).partition(" - at `$.")
        key = place.rstrip("`").replace("[...]", "")
        plain = in_plain_words(what, fields, "key").replace("an object", "a table")
        raise BadAggregation(f"{key}: {plain}" if key else plain) from cause


def _unknown(key: str, known: Any) -> str:
    meant = get_close_matches(key, list(known), 1)
    return f"unknown key: {key}" + (f" (did you mean {meant[0]}?)" if meant else "")


def _check_name(name: str, known: Mapping[str, Any]) -> None:
    if not _NAME.fullmatch(name):
        what = "a name has letters, digits, dots, hyphens and underscores, and begins with a letter or a digit"
        raise BadAggregation(f"name: {what}")
    if name.casefold() in known:  # they are folders, of which many disks do not tell case
        raise BadAggregation(f"two have the name {name}")


# values as people write them


def _values(table: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """A table with its units, paths and secrets put in their usual forms. Raises BadAggregation."""
    found = {key: _value(key, value, path.parent) for key, value in table.items()}
    for secret in SECRET_KEYS:
        if (text := _secret(found, secret)) is not None:
            found[secret] = text
    return found


def _value(key: str, value: Any, folder: Path) -> Any:
    if not isinstance(value, str):
        return value
    if key in _PATHS or key.endswith("_file"):
        return str(folder / Path(value).expanduser())
    if key == "audit" and value == "never":
        return None
    for keys, read, fault in (
        (SHARES, share_from, "no share: write it as 20% or 0.2"),
        (OCTETS, octets_from, "no number of bytes: write it as 20GB or 1.5GiB"),
        (DURATIONS, lambda text: _OFTEN.get(text) or seconds_from(text), "no duration: write it as 90min, 24h or 7d"),
        (BANDWIDTHS, bandwidth_from, "no rate: write it as 2M, 500k or off"),
    ):
        if key in keys:
            if (number := read(value.strip())) is None:
                raise BadAggregation(f"{key}: {value!r:.60} is {fault}")
            return number
    return value


def _secret(values: dict[str, Any], key: str) -> str | None:
    """What a secret is, which its own key, that of a file or that of an environment variable says; the keys go."""
    given = [name for name in (key, f"{key}_file", f"{key}_env") if name in values]
    if not given:
        return None
    texts = [values.pop(name) for name in given]
    if len(given) > 1:
        raise BadAggregation(f"{given[0]} and {given[1]} exclude each other")
    if not isinstance(text := texts[0], str):
        raise BadAggregation(f"{given[0]} is text")
    if given[0].endswith("_file"):
        try:
            with open(text, encoding="utf-8") as file:
                found = file.read(_MOST_SECRET).strip()
        except (OSError, UnicodeDecodeError) as cause:
            reason = cause.strerror if isinstance(cause, OSError) else "it is not UTF-8"
            raise BadAggregation(f"{given[0]}: the file cannot be read: {reason}") from cause
    elif given[0].endswith("_env"):
        found = os.environ.get(text, "").strip()
    else:
        found = text
    if not found:
        raise BadAggregation(f"{given[0]} is empty")
    return found


# sources


def _sources(path: Path, data: Mapping[str, Any], faults: _Faults) -> tuple[FollowedSource, ...]:
    """All sources: those of the file, then those of the files that it names."""
    found: dict[str, FollowedSource] = {}
    base = {"concurrency": FIRST_CONCURRENCY}
    with faults.at(f"{path}, [defaults]"):
        defaults = _table(data, "defaults", path, faults)
        if wrong := defaults.keys() & {"name", "url", "title"}:
            raise BadAggregation(f"{min(wrong)} is for one source")
        base |= _values(defaults, path)
        if unknown := base.keys() - SOURCE_KEYS:
            raise BadAggregation(_unknown(min(unknown), SOURCE_KEYS))
    if "keep_free" in data:
        base.setdefault("keep_free", _value("keep_free", data["keep_free"], path.parent))
    for where, table, home in _source_tables(path, data, faults):
        with faults.at(where):
            one = _source(_values(table, home), base)
            _check_name(one.name, found)
            found[one.name.casefold()] = one
    return tuple(found.values())


def _source_tables(path: Path, data: Mapping[str, Any], faults: _Faults) -> Iterator[tuple[str, dict[str, Any], Path]]:
    """Each table of a source, with its place in words and the file that has it."""

    def named(table: Mapping[str, Any], place: str) -> str:
        return f"{place} {table['name']!r:.60}" if "name" in table else place

    for number, table in enumerate(_tables(data, "source", path, faults), 1):
        yield named(table, f"{path}, [[source]] {number}"), table, path
    listed = data.get("sources", [])
    patterns = [listed] if isinstance(listed, str) else listed
    if not isinstance(patterns, list) or not all(isinstance(one, str) for one in patterns):
        with faults.at(str(path)):
            raise BadAggregation("sources is a pattern of files, or a list of them")
        return
    for pattern in patterns:
        files: list[Path] = []
        with faults.at(f"{path}, sources"):
            files += _files(path.parent, pattern)
        for file in files:
            if file.suffix == ".csv":
                rows: list[tuple[int, dict[str, Any]]] = []
                with faults.at(str(file)):
                    rows += _rows(file)
                yield from ((named(row, f"{file}, line {line}"), row, file) for line, row in rows)
                continue
            more: dict[str, Any] = {}
            with faults.at(str(file)):
                more |= _toml(file)
                if "source" in more and (other := more.keys() - {"source"}):
                    raise BadAggregation(f"{min(other)} stands beside [[source]]")
            if "source" not in more:  # the file is one source
                yield named(more, str(file)), more, file
            for number, table in enumerate(_tables(more, "source", file, faults), 1):
                yield named(table, f"{file}, [[source]] {number}"), table, file


def _files(folder: Path, pattern: str) -> list[Path]:
    place = Path(pattern).expanduser()
    root, inner = (Path(place.anchor), place.relative_to(place.anchor)) if place.is_absolute() else (folder, place)
    found = sorted(one for one in root.glob(str(inner)) if one.is_file() and not one.name.startswith("."))
    if not found and not any(sign in pattern for sign in "*?["):
        raise BadAggregation("there is no such file", where=pattern)
    return found


def _rows(file: Path) -> list[tuple[int, dict[str, Any]]]:
    """Lines of a CSV, each with its number: columns have the names of keys, and several values of one are divided by
    `;`. What is empty is not said."""
    try:
        with open(file, encoding="utf-8-sig", newline="") as text:
            reader = csv.DictReader(text, strict=True)
            rows = [(reader.line_num, row) for row in reader]
    except OSError as cause:
        raise BadAggregation(f"cannot be read: {cause.strerror}") from cause
    except (UnicodeDecodeError, csv.Error) as cause:
        raise BadAggregation(f"not CSV: {cause}") from cause
    found: list[tuple[int, dict[str, Any]]] = []
    for line, row in rows:
        if None in row or None in row.values():
            raise BadAggregation(f"line {line} has another number of values than the first line")
        said = {key.strip(): value.strip() for key, value in row.items() if value.strip()}
        found.append((line, {key: _parts(value) if key in _LISTS else value for key, value in said.items()}))
    return found


_LISTS: Final = frozenset(
    {"tags", *(key for key, field in OPTION_KEYS.items() if isinstance(getattr(SyncOptions(), field), tuple))}
)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(";") if part.strip()]


def _source(said: Mapping[str, Any], base: Mapping[str, Any]) -> FollowedSource:
    """One source, of what its table says before what holds of all. Raises UsageFault."""
    if unknown := said.keys() - SOURCE_KEYS:
        raise BadAggregation(_unknown(min(unknown), SOURCE_KEYS))
    if missing := {"name", "url"} - said.keys():
        raise BadAggregation(f"{max(missing)} is missing")
    if said.keys() & _SIGN_IN:  # credentials of its own leave nothing of those of all
        base = {key: value for key, value in base.items() if key not in _SIGN_IN}
    values = {**base, **said}
    if "quota" in values:
        values["max_total"] = values["quota"]
    for key in _LISTS & values.keys():
        if isinstance(values[key], str):
            values[key] = [values[key]]
    own = {key: values[key] for key in _OWN & values.keys()}
    made = _made(own, FollowedSource)
    if made.contact is not None and not (made.contact.isascii() and made.contact.isprintable()):
        raise BadAggregation("contact has a character that cannot be sent")
    check_cron(made.cron)
    windows_of(made.window)
    starting_uri(made.url)
    options = _options(values, made)
    credentials_of(made.url, options)
    checked_proxy(options.proxy)
    return msgspec.structs.replace(made, options=options, quota=options.max_total)


def _options(values: Mapping[str, Any], of: FollowedSource) -> SyncOptions:
    given: dict[str, Any] = {}
    for key, field in OPTION_KEYS.items():
        if key in values:
            given[field] = values[key]
    if "stall_seconds" in given:
        given["stall_seconds"] = math.ceil(float(given["stall_seconds"]))
    for key in _FOLDERS & given.keys():
        given[key] = os.path.join(given[key], of.name)
    given["headers"] = _headers(given.get("headers", ()))
    if (token := values.get("token")) is not None:
        given["authorization"] = f"Bearer {token}"
    if (user := values.get("user")) is not None:
        given["user"], colon, password = str(user).partition(":")
        if not colon and "password" not in values:
            raise BadAggregation("user is without a password: give password_file or password_env")
        given["password"] = values.get("password", password)
    if (user := values.get("sparql_user")) is not None:
        name, _, password = str(user).partition(":")
        given["sparql_authorization"] = basic(name, password)
    given["deadline_seconds"] = of.deadline
    try:
        plain = {key: value for key, value in given.items() if key not in ("bwlimit",) or value}
        return SyncOptions(**_numbers(plain))
    except UsageFault as fault:
        field, colon, told = fault.what.partition(": ")
        names = [key for key, one in OPTION_KEYS.items() if one == field] if colon else []
        raise BadAggregation(f"{names[0]}: {told}" if names else fault.what) from fault


_KINDS: Final = {one.name: one.type for one in msgspec.structs.fields(SyncOptions)}


def _numbers(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same, with numbers and truth values for texts: a CSV has nothing else."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        try:
            found[name] = from_values(value, _KINDS[name], strict=False) if isinstance(value, str) else value
        except msgspec.ValidationError:
            found[name] = value  # refused as any other value that does not fit
    return found


def _headers(given: Any) -> tuple[tuple[str, str], ...]:
    texts = [given] if isinstance(given, str) else given
    found = []
    for text in texts:
        name, colon, value = text.partition(":") if isinstance(text, str) else ("", "", "")
        if not colon or not name.strip():
            raise BadAggregation("header is 'NAME: VALUE'")
        found.append((name.strip(), value.strip()))
    return tuple(found)
