"""Options and arguments that several commands share: how values and units are read, sets, triplestores, access."""

import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from headwater.errors import UsageFault
from headwater.quantities import bandwidth_from, kept_from, octets_from, seconds_from, share_from

Command = TypeVar("Command", bound=Callable[..., Any])
FOLDER = click.Path(file_okay=False, path_type=Path)
EXISTING = click.Path(exists=True, path_type=Path)
FILE = click.Path(exists=True, dir_okay=False)


def option(
    declared: str, text: str, kind: Any = None, *, name: str | None = None, **more: Any
) -> Callable[[Command], Command]:
    """An option as `--help` shows it, `-o, --output FILE`, with the word for its value, and what `text` says of it.

    Without a word and a `kind` of value it is a flag. `name` is that of the parameter, if it is another one; `more` is
    what `click.option` takes besides.
    """
    *others, last = declared.split(", ")
    flag, _, metavar = last.partition(" ")
    if not metavar and kind is None:
        more.setdefault("is_flag", True)
    names = [*others, flag, *([] if name is None else [name])]
    return click.option(*names, type=kind, metavar=metavar or None, help=text, **more)


def options(*given: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Several options at once, in this order."""

    def give(command: Command) -> Command:
        for one in reversed(given):
            command = one(command)
        return command

    return give


_STORES = (
    option("--sparql-query URL", "The query URL of the endpoint, if it differs."),
    option(
        "--sparql-user NAME:PASSWORD",
        "Basic credentials for the endpoint; better: HEADWATER_SPARQL_USER or ~/.netrc.",
        envvar="HEADWATER_SPARQL_USER",
    ),
    option("--dataset URI", "The file that is the RDF dataset (URI or file name), if the source does not say."),
)


def _store_options(store: str, sparql: str) -> Callable[[Command], Command]:
    in_folder = option("--store DIR", store, click.Path(file_okay=False))
    return options(in_folder, option("--sparql URL", sparql), *_STORES)


store_options = _store_options(
    "Keep each set's RDF dataset in an embedded triplestore in DIR.",
    "Keep RDF datasets in graphs of the SPARQL endpoint with this update address.",
)
"""Triplestores that a command keeps current."""
compared_store_options = _store_options(
    "Also compare the embedded triplestores of `sync --store` in DIR.",
    "Also compare the graphs of `sync --sparql` at this update address.",
)
"""Triplestores that a command looks into."""


def with_sparql_user(given: dict[str, Any]) -> dict[str, Any]:
    """Fields of `SyncOptions`, with what the user of the endpoint comes to."""
    user = given.pop("sparql_user", None)
    if user and given.get("sparql"):
        from headwater.sync.connection import basic

        name, _, password = user.partition(":")
        given["sparql_authorization"] = basic(name, password)
    return given


class Quantity(click.ParamType[Any]):
    """A value as people write it: `read` makes it of a text, or gives None where `fault` holds; at least `least`."""

    def __init__(
        self,
        name: str,
        read: Callable[[str], Any],
        fault: str,
        least: float = 0,
        *,
        unit: str = "",
        made: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        self.name, self._read, self._fault, self.least, self._unit, self._made = name, read, fault, least, unit, made

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        found = self._read(value.strip())
        if found is None:
            self.fail(f"{value!r} {self._fault}", param, ctx)
        if self.least and found < self.least:
            self.fail(f"{value!r} is less than {self.least:g}{self._unit}", param, ctx)
        return self._made(found)


Share = partial(Quantity, "share", share_from, "is no share: write it as 20% or 0.2")
"""A share of what is held: `0.5`, `50%`; `1` and `100%` are all."""
Duration = partial(
    Quantity, "duration", seconds_from, "is no duration: give seconds, or 90min, 24h, 7d", unit=" seconds"
)
"""So many seconds, as a number or as people say it: `3600`, `90 min`, `24h`, `1 d`."""
WholeSeconds = partial(Duration, made=math.ceil)
"""A duration in whole seconds, rounded up."""
Octets = partial(Quantity, "octets", octets_from, "is no number of octets: give one, or 20GB, 1.5GiB")
"""So many octets, as a number or as people say it: `4096`, `20 GB`, `1.5 GiB`."""
HowLongKept = partial(
    Quantity, "kept states", kept_from, 'says not how long: give "30 days", "1 year, 20 GB" or "all"',
    made=lambda kept: kept is True or f"{kept.get('keep', '')}, {kept.get('octets', '')}",
)  # fmt: skip
"""How long past states are kept, and how many octets of them, as `versions` of a set has it: `30 days`, `all`."""
_RATE_FAULT = "is no rate: give 2M, 500k or 1.5G, which is octets a second, or off"
Bandwidth = partial(Quantity, "rate", bandwidth_from, _RATE_FAULT, made=lambda rate: rate or None)
"""A bandwidth in octets a second, as in rclone and rsync: units of 1,024, a number alone is KiB; `off`: none."""


class _Place(click.Path):
    """A path that is not what may stand there by mistake: `wrong` says of a text why it is none, or None."""

    def __init__(self, wrong: Callable[[str], str | None], **path: Any) -> None:
        super().__init__(path_type=Path, **path)
        self._wrong = wrong

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if (fault := self._wrong(text := os.fsdecode(value))) is not None:
            self.fail(f"{text!r} {fault}", param, ctx)
        return super().convert(value, param, ctx)


COPY = _Place(
    lambda text: (
        f"is an option, and no folder: name the folder first (./{text}, if it is one)"
        if text.startswith("-")
        else ("is an address, and no folder: first comes URL, then DEST" if "://" in text else None)
    )
)
"""The folder of a copy, never an address: then the two arguments stand the wrong way round. Nor the next option."""
_CONFIG = _Place(
    lambda text: f"is a folder, and a file is needed: publish it with --files {text}" if os.path.isdir(text) else None,
    exists=True,
    dir_okay=False,
)


class SourceAddress(click.ParamType[str]):
    """The address of a source, never the path of a folder: what is here is published, and not copied by its path."""

    name = "url"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        first = value.partition("/")[0]
        is_path = first in ("", ".", "..", "~") and value != ""
        looks_like_host = "." in first or ":" in first or first == "localhost"
        if is_path or (not looks_like_host and "://" not in value and os.path.exists(value)):
            has_dest = ctx is not None and any(one.name == "dest" for one in ctx.command.params)
            order = ": first comes URL, then DEST" if has_dest else ""
            self.fail(f"{value!r} is a path on this machine, and no address{order}", param, ctx)
        return value


url_argument = click.argument("url", type=SourceAddress())
config_argument = click.argument("config", required=False, type=_CONFIG)
dest_argument = click.argument("dest", type=COPY)
profile_option = option(
    "--profile",
    "Write ResourceSync 1.1, or both: then clients of 1.0 also understand changes.  [default: 1.1]",
    click.Choice(["1.1", "both"]),
)
catalog_option = option(
    "--catalog PLACE", "Catalog: a file, or a cluster (opensearch://HOST:9200/PREFIX).  [default: in the state folder]"
)

log_format_option = option(
    "--log-format", "Format of the log on standard error.  [default: text]", click.Choice(["text", "json"])
)
json_when_listening_option = option(
    "--json", "Write a line of JSON to standard output when it listens.", name="as_json"
)

describes_a_set = options(
    option("--describedby URL", "The URL of a document about the set."),
    option("--include PATTERN", "Publish only files that match (repeatable).", multiple=True),
    option("--exclude PATTERN", "Leave out files that match (repeatable).", multiple=True),
    option("--hidden", "Also publish files and folders whose names begin with a dot.", default=None),
    option(
        "--settle SECONDS",
        "Publish a file when it has not changed for this time.  [default: 2]",
        Duration(),
        name="settle_seconds",
    ),
    option(
        "--max-delete SHARE",
        "Hold back deletions of more than this share and ten files, or of everything; 1: never.  [default: 20%]",
        Share(),
    ),
    option("--hash NAME", "List this digest (repeatable).  [default: md5, sha-256]", name="hashes", multiple=True),
    option("--dump", "Also offer packages of all resources (Resource Dump).", default=None),
    option(
        "--change-dump",
        "Also offer packages of all changes (Change Dump); takes space in the state folder.",
        default=None,
    ),
    option(
        "--patch",
        "Also publish patches of JSON or N-Quads files (repeatable); takes space in the state folder.",
        click.Choice(["json", "nquads"]),
        multiple=True,
    ),
    option(
        "--archive",
        "Also keep past documents in archives: Change Lists, and the Resource List once a day.",
        default=None,
    ),
    option("--lenient", "With --dataset: leave out bad lines of N-Quads and N-Triples, and count them.", default=None),
)
"""What one set of resources is."""

DESCRIBING = (
    *("describedby", "include", "exclude", "hidden", "settle_seconds", "max_delete", "hashes"),
    *("dump", "change_dump", "patch", "archive", "lenient"),
)
"""What the options of `describes_a_set` are called, here and in a `SetConfig`."""


class SectionedCommand(click.Command):
    """A command whose options are shown in sections: `headings`, by the name of the option with which each begins."""

    def __init__(self, *args: Any, headings: Mapping[str, str], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.headings = headings

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        sections: list[tuple[str, list[tuple[str, str]]]] = [("Options", [])]
        for parameter in self.get_params(ctx):
            if parameter.name in self.headings:
                sections.append((self.headings[parameter.name], []))
            elif "--help" in parameter.opts:
                sections.append(("Help", []))
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                sections[-1][1].append(record)
        for heading, records in sections:
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


# access to a source: credentials, CA certificates, proxy, concurrency, rate, timeout

PASSWORD = "HEADWATER_PASSWORD"  # noqa: S105  the name of a variable
_MOST_HEADER_OCTETS = 1 << 16

ca_option = option("--ca FILE", "Also trust these CA certificates (PEM).", FILE)
proxy_option = option(
    "--proxy URL", "Send all requests through this proxy.  [default: HTTPS_PROXY, http_proxy, NO_PROXY]"
)
_ASKING = (
    option(
        "--token TOKEN",
        "Bearer token for URL's origin only; better: HEADWATER_TOKEN, which `ps` does not show.",
        envvar="HEADWATER_TOKEN",
    ),
    option(
        "--user NAME[:PASSWORD]",
        "Basic credentials for URL's origin only; better: HEADWATER_PASSWORD or ~/.netrc.",
        envvar="HEADWATER_USER",
    ),
    option(
        "--header 'NAME: VALUE'",
        "Header for URL's origin only, or @FILE with one a line (repeatable).",
        name="headers",
        multiple=True,
    ),
    option("--cert FILE", "Client certificate (PEM) for URL's origin only.", FILE),
    option("--key FILE", "Key of the certificate, if another file has it.", FILE),
    ca_option,
    proxy_option,
)
_PACE = (
    option(
        "--concurrency N",
        "Maximum number of requests at a time.",
        click.IntRange(1, 256),
        default=64,
        show_default=True,
    ),
    option("--rate N", "Maximum number of requests a second.", click.FloatRange(min=0, min_open=True)),
    option("--bwlimit RATE", "Maximum bytes a second of all transfers: 2M, 500k; a plain number is KiB.", Bandwidth()),
    option(
        "--timeout SECONDS",
        "Fail a request after this time without data.",
        WholeSeconds(1),
        name="stall_seconds",
        default=30,
        show_default=True,
    ),
    option(
        "--deadline SECONDS",
        "Stop after this time (2h, 90min) with status 3; the next run continues.",
        Duration(0.1),
        name="deadline_seconds",
    ),
)

ACCESS_HEADINGS: Final = {"concurrency": "Requests", "token": "Access to the source"}
"""Where the sections of these options begin in the help of a command."""


source_options = options(*_PACE, *_ASKING)
"""Access to a source; `given_options` picks those that were given."""


def given_options(wanted: dict[str, Any]) -> dict[str, Any]:
    """Fields of `Options` for what a command was given: all of it, but for what was left away."""
    given = {name: value for name, value in wanted.items() if value is not None}
    token, user = given.pop("token", None), given.pop("user", None)
    if token and user:  # what stands in the command counts before what stands in the environment
        source = click.get_current_context().get_parameter_source
        spoken = [name for name in ("token", "user") if source(name) is ParameterSource.COMMANDLINE]
        if len(spoken) != 1:
            raise click.UsageError("--token (HEADWATER_TOKEN) and --user (HEADWATER_USER) exclude each other")
        token, user = (token, None) if spoken == ["token"] else (None, user)
    if token:
        given["authorization"] = f"Bearer {token}"
    if user:
        name, colon, password = user.partition(":")
        kept = password if colon else os.environ.get(PASSWORD)
        if kept is None and not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise click.UsageError(f"--user is without a password: {PASSWORD} may have it, or ~/.netrc both")
        if kept is None:
            kept = click.prompt(f"Password of {name}", hide_input=True, err=True)
        given["user"], given["password"] = name, kept
    given["headers"] = tuple(_headers(given.get("headers", ())))
    return given


def _headers(given: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The headers of options, each `NAME: VALUE`, or `@FILE` with one on each line."""
    for text in given:
        lines = [text]
        if text.startswith("@"):
            try:
                with open(text[1:], encoding="latin-1") as file:
                    lines = [line for line in file.read(_MOST_HEADER_OCTETS).splitlines() if line.strip()]
            except OSError as cause:
                raise UsageFault(f"the file of headers cannot be read: {cause.strerror}", where=text[1:]) from cause
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name.strip():
                raise click.UsageError("--header is 'NAME: VALUE', or @FILE with one on each line")
            yield name.strip(), value.strip()
