"""The configuration of a service that follows many sources: `aggregate.toml`. `keys.toml` says what each key means.

Durations are seconds, sizes are bytes, shares are 0 to 1, once the file is read; the file may say "1h", "20GB", "20%".
"""

from __future__ import annotations

import csv
import math
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar, get_origin

import msgspec
from msgspec import Meta

from headwater.aggregator.schedule import check_cron
from headwater.errors import HeadwaterError, UsageFault
from headwater.notify.hub.policy import objection_to_url
from headwater.quantities import bandwidth_from, counted, octets_from, seconds_from, share_from
from headwater.spec.uris import comparable_host
from headwater.sync.connection import basic, checked_proxy, credentials_of, starting_uri
from headwater.sync.options import SyncOptions
from headwater.time_windows import windows_of
from headwater.toml_files import read_toml, record_from, secret_texts

FIRST_CONCURRENCY: Final = 8
"""Requests at a time to a source that says nothing of it: many sources are followed, and most are strangers."""

Positive = Annotated[float, Meta(gt=0, le=3e9)]
"""Seconds, at most a century: moments that are reckoned with it must exist."""

_Count = Annotated[int, Meta(ge=1, le=10_000)]


class BadAggregation(UsageFault):
    """The configuration of a service cannot be read, or has a value that is none."""

    code: ClassVar[str] = "HW-AGG-20"


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of `listen`: `127.0.0.1:8600`, `[::1]:8600`, `8600` (loopback alone). Raises UsageFault."""
    host, _, port = text.strip().rpartition(":") if ":" in text else ("127.0.0.1", "", text.strip())
    if not (port.isascii() and port.isdecimal() and len(port) < 6 and int(port) < 65_536):
        advice = "Write it as in 127.0.0.1:8600."
        raise UsageFault(f"not an address to listen on: {text!r:.100}", where="listen", advice=advice)
    return host.strip("[]") or "127.0.0.1", int(port)


class HostLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[host."…"]`: limits that all sources on a host share, whatever address led there."""

    concurrency: Annotated[int, Meta(ge=1, le=256)] | None = None
    rate: Positive | None = None
    window: str | None = None

    def __post_init__(self) -> None:
        """Raises UsageFault."""
        windows_of(self.window)


class FollowedSource(msgspec.Struct, frozen=True, kw_only=True):
    """`[[source]]`, with the `[defaults]` put in."""

    name: str
    url: str
    title: str = ""
    tags: tuple[str, ...] = ()
    enabled: bool = True
    push: bool = True
    contact: str | None = None
    every: Positive = 3_600.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1
    cron: str | None = None
    window: str | None = None
    deadline: Positive = 7_200.0
    audit: Positive | None = None
    dead_after: Positive = 2_592_000.0
    options: SyncOptions = SyncOptions()
    """All other keys: the options of `headwater sync`, deadline, time-out, quota and free space included."""


class SinkConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[sink]]`: who gets the events of the journal."""

    name: str
    kind: str
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
    tries: _Count = 10
    batch: _Count = 500
    options: dict[str, str] = {}


_WITH_AMOUNT = frozenset({"stale", "defects", "sink", "dead_letters"})
ALERTS = _WITH_AMOUNT | {"failing", "dead", "degraded", "question", "held_back", "disk", "recovered"}
"""What `on` of an alert may say; some with a duration or a number behind a colon."""


class AlertRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[alert]]`: who is told of what."""

    name: str
    kind: Literal["command", "webhook", "mail"]
    on: tuple[str, ...]
    command: str | None = None
    url: str | None = None
    secret: str | None = None
    mail: str | None = None
    sender: str | None = None
    smtp: str | None = None
    tags: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    summary: str | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a rule that could never tell anything."""
        if not {"command": self.command, "webhook": self.url, "mail": self.mail}[self.kind]:
            key = "url" if self.kind == "webhook" else self.kind
            raise ValueError(f"an alert by {self.kind} needs the key `{key}`")
        if self.command is not None and not shlex.split(self.command):
            raise ValueError("command has no words")
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
    tags: tuple[str, ...] = ()
    title: str = ""
    set: dict[str, Any] = {}

    def __post_init__(self) -> None:
        """Raises UsageFault."""
        from headwater.source.config import config_of  # takes the rooms of a source along

        listen_address(self.listen)
        config_of(self.source(Path("state"), "http://localhost", [{"copy": "copy"}]), Path("source"))

    def source(self, state: Path, base_url: str, sets: list[dict[str, str]]) -> dict[str, Any]:
        """The configuration of the source that publishes these sets."""
        whole = {"state": str(state), "base_url": self.base_url or base_url, "title": self.title or None}
        return {key: value for key, value in whole.items() if value} | {"set": [self.set | one for one in sets]}


class ServiceKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys above all tables. Copies lie in `state`/NAME."""

    state: Path
    listen: str | None = None
    base_url: str | None = None
    push: str | None = None
    operator_token: Annotated[str, Meta(min_length=16)] | None = None
    keep_free: Annotated[int, Meta(ge=0)] | None = None
    parallel: Annotated[int, Meta(ge=1, le=256)] = 4
    keep_events: Positive = 7_776_000.0

    def __post_init__(self) -> None:
        """Raises UsageFault."""
        if self.listen is not None:
            listen_address(self.listen)
        if self.push is not None and (why := objection_to_url(self.push)):
            raise UsageFault(f"push cannot be used: {why}")


class AggregatorConfig(ServiceKeys, frozen=True, kw_only=True):
    """All that `aggregate.toml` says."""

    path: Path
    sources: tuple[FollowedSource, ...]
    hosts: dict[str, HostLimits] = {}
    sinks: tuple[SinkConfig, ...] = ()
    alerts: tuple[AlertRule, ...] = ()
    publish: PublishRule | None = None

    @property
    def home(self) -> Path:
        """The folder of what the service remembers."""
        return self.state / ".aggregator"

    @property
    def addresses(self) -> tuple[str | None, ...]:
        """What a service goes by from its start to its end: where it listens, and where it publishes."""
        publish = self.publish
        return (self.listen, *(() if publish is None else (publish.listen, publish.base_url)))

    def source(self, name: str) -> FollowedSource | None:
        """The source of this name."""
        return next((one for one in self.sources if one.name == name), None)


class _Tables(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of the file, as they stand in it, and the names of files with more."""

    sources: tuple[str, ...] = ()
    defaults: dict[str, Any] = {}
    source: tuple[dict[str, Any], ...] = ()
    host: dict[str, dict[str, Any]] = {}
    sink: tuple[dict[str, Any], ...] = ()
    alert: tuple[dict[str, Any], ...] = ()
    publish: dict[str, Any] | None = None


class _FileOfSources(msgspec.Struct, forbid_unknown_fields=True):
    source: tuple[dict[str, Any], ...]


# the keys of a source

_OWN: Final = frozenset(FollowedSource.__struct_fields__) - {"options"}
_OTHER_NAMES: Final = {"largest": "max_size", "stall_seconds": "timeout"}
_NOT_GIVEN: Final = frozenset({
    "accept_reset", "at", "authorization", "baseline", "deadline_seconds", "dry_run", "moved", "password", "patient",
    "repair", "sparql_authorization", "user",
})  # fmt: skip
"""Options that are for one run, that the service decides, or that have keys of another form."""

OPTION_KEYS: Final = {
    _OTHER_NAMES.get(one.name) or (one.name.removesuffix("s") if isinstance(one.default, tuple) else one.name): one.name
    for one in msgspec.structs.fields(SyncOptions)
    if one.name not in _NOT_GIVEN
} | {"quota": "max_total"}
"""Options of `headwater sync` by their names there, `-` as `_`, with the field of `SyncOptions` that each fills."""

_SIGN_IN: Final = ("password", "sparql_user", "token", "user")
_FIELDS: Final = {one.name: one.type for one in msgspec.structs.fields(SyncOptions)}
_TYPES: Final[dict[str, Any]] = (
    {key: _FIELDS[field] for key, field in OPTION_KEYS.items()}
    | {one.name: one.type for one in msgspec.structs.fields(FollowedSource) if one.name in _OWN}
    | dict.fromkeys(_SIGN_IN, str)
    | {"bwlimit": Annotated[int, Meta(ge=0)], "header": tuple[str, ...], "timeout": Positive}
)
SourceKeys: Final = msgspec.defstruct(
    "SourceKeys",
    [("name", str), ("url", str), *((key, kind, None) for key, kind in _TYPES.items() if key not in ("name", "url"))],
    kw_only=True,
    forbid_unknown_fields=True,
)
"""All keys that a `[[source]]` may have, once its units, paths and secrets are in their usual forms."""

SECRET_KEYS: Final = ("operator_token", "password", "secret", "token")
"""Keys that may also be given as KEY_file or KEY_env."""

_OFTEN: Final = {"hourly": 3_600.0, "daily": 86_400.0, "weekly": 604_800.0, "monthly": 2_592_000.0}
UNITS: Final[dict[str, tuple[str, Callable[[str], float | None]]]] = {
    **dict.fromkeys(("jitter", "max_delete", "max_update"), ("share: write it as 20% or 0.2", share_from)),
    **dict.fromkeys(
        ("keep_free", "max_length", "max_size", "max_total", "quota"),
        ("number of bytes: write it as 20GB or 1.5GiB", octets_from),
    ),
    **dict.fromkeys(
        ("audit", "dead_after", "deadline", "every", "keep_events", "timeout"),
        ("duration: write it as 90min, 24h or 7d", lambda text: _OFTEN.get(text) or seconds_from(text)),
    ),
    "bwlimit": ("rate: write it as 2M, 500k or off", bandwidth_from),
}
"""Keys whose values may be texts with a unit, as on the command line."""

_LISTS: Final = frozenset(
    one.name
    for kind in (SourceKeys, SinkConfig, AlertRule, PublishRule, _Tables)
    for one in msgspec.structs.fields(kind)
    if get_origin(one.type) is tuple
)
_PATHS: Final = frozenset({"backup_dir", "ca", "cert", "key", "path", "state", "store"})
_FOLDERS: Final = frozenset({"backup_dir", "store"})  # several sources may not share one
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

T = TypeVar("T")
Named = TypeVar("Named", FollowedSource, SinkConfig, AlertRule)
Refused = Callable[[UsageFault], None]


def read_aggregation(path: Path, refused: Refused | None = None) -> AggregatorConfig:
    """Read the configuration of a service; relative paths in it are relative to the file that has them.

    Raises BadAggregation: the first fault. Where all are asked for, `refused` gets each, and their number is raised.
    """
    path = path.absolute()
    data = read_toml(path, BadAggregation)
    faults = _Faults(refused)
    top, tables = ServiceKeys(state=path.parent), _Tables()
    names = _Tables.__struct_fields__
    with faults.at(str(path)):
        tables = _record(_Tables, {key: value for key, value in data.items() if key in names}, path)
    with faults.at(str(path)):
        top = _record(ServiceKeys, {key: value for key, value in data.items() if key not in names}, path, names)
    sources = _sources(path, tables, top.keep_free, faults)
    hosts = {}
    for name, table in tables.host.items():
        with faults.at(f'{path}, [host."{name}"]'):
            hosts[comparable_host(name.lower())] = _record(HostLimits, table, path)
    sinks = _named(_numbered("sink", tables.sink, path), partial(_record, SinkConfig), faults)
    alerts = _named(_numbered("alert", tables.alert, path), partial(_record, AlertRule), faults)
    publish = None
    if tables.publish is not None:
        with faults.at(f"{path}, [publish]"):
            publish = _record(PublishRule, tables.publish, path)
    if faults.count:
        raise BadAggregation(f"the file has {counted(faults.count, 'fault')}", where=str(path))
    told = msgspec.structs.asdict(top)
    return AggregatorConfig(
        path=path, sources=sources, hosts=hosts, sinks=sinks, alerts=alerts, publish=publish, **told
    )


@contextmanager
def faults_in(path: Path) -> Iterator[None]:
    """A context whose faults name this file before their place in it."""
    try:
        yield
    except HeadwaterError as fault:
        fault.where = f"{path}: {fault.where}" if fault.where else str(path)
        raise


class _Faults:
    """Faults of a configuration: the first is raised, unless each is told to somebody."""

    def __init__(self, refused: Refused | None) -> None:
        self._refused, self.count = refused, 0

    @contextmanager
    def at(self, where: str) -> Iterator[None]:
        """A context whose faults are of this place."""
        try:
            yield
        except UsageFault as fault:
            told = fault
            if not isinstance(fault, BadAggregation):
                todo = None if type(fault) is UsageFault else fault.todo
                told = BadAggregation(fault.what, where=fault.where, advice=todo)
            told.where = f"{where}: {fault.where}" if fault.where else where
            if self._refused is None:
                raise told from fault
            self.count += 1
            self._refused(told)


_Table = tuple[str, dict[str, Any], Path]
"""A table, with its place in words and the file that has it."""


def _numbered(key: str, tables: Iterable[dict[str, Any]], file: Path) -> list[_Table]:
    return [(f"{file}, [[{key}]] {number}", table, file) for number, table in enumerate(tables, 1)]


def _named(
    tables: Iterable[_Table], made: Callable[[Mapping[str, Any], Path], Named], faults: _Faults
) -> tuple[Named, ...]:
    """What is made of each of these tables, if each has a name of its own."""
    found: dict[str, Named] = {}
    for where, table, file in tables:
        with faults.at(f"{where} {table['name']!r:.60}" if "name" in table else where):
            one = made(table, file)
            if not _NAME.fullmatch(one.name):
                what = "a name has letters, digits, dots, hyphens and underscores, and begins with a letter or a digit"
                raise BadAggregation(f"name: {what}")
            if one.name.casefold() in found:  # they are folders, of which many disks do not tell case
                raise BadAggregation(f"two have the name {one.name}")
            found[one.name.casefold()] = one
    return tuple(found.values())


# values as people write them


def _record(kind: type[T], table: Mapping[str, Any], path: Path, others: Iterable[str] = ()) -> T:
    return record_from(_values(table, path), kind, BadAggregation, strict=False, others=others)


def _values(table: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """A table with its units, paths and secrets put in their usual forms. Raises BadAggregation."""
    found = {key: _value(key, value, path.parent) for key, value in table.items()}
    for key in SECRET_KEYS:
        given = [name for name in (key, f"{key}_file", f"{key}_env") if name in found]
        if len(given) > 1:
            raise BadAggregation(f"{given[0]} and {given[1]} exclude each other")
        for name in given:
            text = found.pop(name)
            if not isinstance(text, str) or not text:
                raise BadAggregation(f"{name} is empty, or no text")
            file, variable = (text if name == f"{key}_{place}" else None for place in ("file", "env"))
            texts = secret_texts(file, variable, BadAggregation) or [text]
            if len(texts) > 1:
                raise BadAggregation(f"{name} has several lines")
            found[key] = texts[0]
    return found


def _value(key: str, value: Any, folder: Path) -> Any:
    if not isinstance(value, str):
        return value
    if "\0" in value:
        raise BadAggregation(f"{key}: a text has no NUL characters")
    if key in _PATHS or key.endswith("_file"):
        place = folder / os.path.expanduser(value)
        return place if key == "state" else str(place)
    if key in _LISTS:
        return [value]
    if key == "audit" and value == "never":
        return None
    if key in UNITS:
        unit, read = UNITS[key]
        if (number := read(value.strip())) is None:
            raise BadAggregation(f"{key}: {value!r:.60} is no {unit}")
        return number
    return value


# sources


def _sources(path: Path, tables: _Tables, keep_free: int | None, faults: _Faults) -> tuple[FollowedSource, ...]:
    """All sources: those of the file, then those of the files that it names."""
    base: dict[str, Any] = {"concurrency": FIRST_CONCURRENCY, "keep_free": keep_free}
    with faults.at(f"{path}, [defaults]"):
        if wrong := tables.defaults.keys() & {"name", "url", "title"}:
            raise BadAggregation(f"{min(wrong)} is for one source")
        defaults = _values(tables.defaults, path)
        record_from({"name": "", "url": "", **defaults}, SourceKeys, BadAggregation, strict=False)
        base |= defaults
    given = _numbered("source", tables.source, path)
    for pattern in tables.sources:
        files: list[Path] = []
        with faults.at(f"{path}, sources"):
            files += _files(path.parent, pattern)
        for file in files:
            with faults.at(str(file)):
                given += _tables_of(file)
    return _named(given, partial(_source, base), faults)


def _files(folder: Path, pattern: str) -> list[Path]:
    place = Path(os.path.expanduser(pattern))
    root, inner = (Path(place.anchor), place.relative_to(place.anchor)) if place.is_absolute() else (folder, place)
    try:
        found = sorted(one for one in root.glob(str(inner)) if one.is_file() and not one.name.startswith("."))
    except (OSError, ValueError, IndexError) as cause:  # "", ".", "**.toml", a name that is too long
        raise BadAggregation("this is no pattern of files", where=pattern) from cause
    if not found and not any(sign in pattern for sign in "*?["):
        raise BadAggregation("there is no such file", where=pattern)
    return found


def _tables_of(file: Path) -> list[_Table]:
    """Each table of a source in a file."""
    if file.suffix == ".csv":
        return _rows(file)
    data = read_toml(file, BadAggregation)
    if "source" not in data:  # the file is one source
        return [(str(file), data, file)]
    return _numbered("source", record_from(data, _FileOfSources, BadAggregation).source, file)


def _rows(file: Path) -> list[_Table]:
    """Lines of a CSV: columns have the names of keys; `;` divides several values of one; what is empty says nothing."""
    found: list[_Table] = []
    try:
        with open(file, encoding="utf-8-sig", newline="") as text:
            for row in (reader := csv.DictReader(text, strict=True)):
                if None in row or None in row.values():
                    raise BadAggregation(f"line {reader.line_num} has another number of values than the first line")
                said = {key.strip(): value.strip() for key, value in row.items() if value.strip()}
                table = {key: _parts(value) if key in _LISTS else value for key, value in said.items()}
                found.append((f"{file}, line {reader.line_num}", table, file))
    except OSError as cause:
        raise BadAggregation(f"cannot be read: {cause.strerror}") from cause
    except (UnicodeDecodeError, csv.Error) as cause:
        raise BadAggregation(f"not CSV: {cause}") from cause
    return found


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(";") if part.strip()]


def _source(base: Mapping[str, Any], table: Mapping[str, Any], file: Path) -> FollowedSource:
    """One source, of what its table says before what holds of all. Raises UsageFault."""
    said = _values(table, file)
    if any(key in said for key in _SIGN_IN):  # credentials of its own leave nothing of those of all
        base = {key: value for key, value in base.items() if key not in _SIGN_IN}
    given = record_from({**base, **said}, SourceKeys, BadAggregation, strict=False)
    values = {key: getattr(given, key) for key in (*base, *said)}
    made = FollowedSource(**{key: value for key, value in values.items() if key in _OWN})
    if made.contact is not None and not (made.contact.isascii() and made.contact.isprintable()):
        raise BadAggregation("contact has a character that cannot be sent")
    check_cron(made.cron)
    windows_of(made.window)
    starting_uri(made.url)
    options = _options(values, made)
    credentials_of(made.url, options)
    checked_proxy(options.proxy)
    return msgspec.structs.replace(made, options=options)


def _options(values: Mapping[str, Any], of: FollowedSource) -> SyncOptions:
    given = {field: values[key] for key, field in OPTION_KEYS.items() if key in values}
    given |= {"deadline_seconds": of.deadline, "headers": tuple(_header(text) for text in values.get("header", ()))}
    if "timeout" in values:
        given["stall_seconds"] = math.ceil(values["timeout"])
    if values.get("bwlimit") == 0:
        del given["bwlimit"]
    for key in _FOLDERS & given.keys():
        given[key] = os.path.join(given[key], of.name)
    if "token" in values:
        given["authorization"] = f"Bearer {values['token']}"
    if "user" in values:
        given["user"], colon, password = values["user"].partition(":")
        if not colon and "password" not in values:
            raise BadAggregation("user is without a password: give password_file or password_env")
        given["password"] = values.get("password", password)
    if "sparql_user" in values:
        name, _, password = values["sparql_user"].partition(":")
        given["sparql_authorization"] = basic(name, password)
    return SyncOptions(**given)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise BadAggregation("header is 'NAME: VALUE'")
    return name.strip(), value.strip()
