"""Parameters that several commands share, so that all say and take the same."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headwater.quantities import kept_from, octets_from, seconds_from

if TYPE_CHECKING:
    pass


Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--sparql-query", metavar="URL", help="The address for queries, if it is another."),
    click.option(
        "--sparql-user",
        envvar="HEADWATER_SPARQL_USER",
        metavar="NAME:PASSWORD",
        help="User name and password (Basic), sent to the endpoint's origin only; better by the variable or ~/.netrc.",
    ),
    click.option(
        "--dataset",
        metavar="URI",
        help="Which file is the RDF dataset (URI or file name), if the source does not tell.",
    ),
)


def store_options(command: Command) -> Command:
    """Give a command the options of triplestores that it keeps current."""
    return _with_stores(
        command,
        "Keep the RDF dataset of each set in an embedded triplestore of its own below DIR.",
        "Keep RDF datasets in graphs of the SPARQL endpoint with this update address.",
    )


def compared_store_options(command: Command) -> Command:
    """Give a command the options of triplestores that it looks into."""
    return _with_stores(
        command,
        "Compare the embedded triplestores below DIR, too, that `sync --store` keeps.",
        "Compare the graphs of the SPARQL endpoint with this update address, too, that `sync --sparql` keeps.",
    )


def _with_stores(command: Command, of_store: str, of_endpoint: str) -> Command:
    stores = click.option("--store", type=click.Path(file_okay=False), metavar="DIR", help=of_store)
    endpoint = click.option("--sparql", metavar="URL", help=of_endpoint)
    for option in reversed((stores, endpoint, *_OPTIONS)):
        command = option(command)
    return command


def with_sparql_user(given: dict[str, Any]) -> dict[str, Any]:
    """Fields of `SyncOptions`, with what the user of the endpoint comes to."""
    user = given.pop("sparql_user", None)
    if user and given.get("sparql"):
        from headwater.sync.connection import basic

        name, _, password = user.partition(":")
        given["sparql_authorization"] = basic(name, password)
    return given


class Share(click.ParamType[float]):
    """A share of what is held: `0.5`, `50%`; `1` and `100%` are all."""

    name = "share"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            self.fail(f"{text!r} is no share: give 0 to 1, or 0% to 100%", param, ctx)
        return share


class Duration(click.ParamType[float]):
    """So many seconds, as a number or as people say it: `3600`, `90 min`, `24h`, `1 d`; not less than `least`."""

    name = "duration"

    def __init__(self, least: float = 0.0) -> None:
        self.least = least

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = seconds_from(str(value))
        if seconds is None:
            self.fail(f"{str(value)!r} is no duration: give seconds, or 90min, 24h, 7d", param, ctx)
        if seconds < self.least:
            self.fail(f"{str(value)!r} is less than {self.least:g} seconds", param, ctx)
        return seconds


class WholeSeconds(Duration):
    """A duration in whole seconds, rounded up."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return math.ceil(super().convert(value, param, ctx))


class Octets(click.ParamType[int]):
    """So many octets, as a number or as people say it: `4096`, `20 GB`, `1.5 GiB`; not less than `least`."""

    name = "octets"

    def __init__(self, least: int = 0) -> None:
        self.least = least

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        octets = octets_from(str(value))
        if octets is None:
            self.fail(f"{str(value)!r} is no number of octets: give one, or 20GB, 1.5GiB", param, ctx)
        if octets < self.least:
            self.fail(f"{str(value)!r} is less than {self.least}", param, ctx)
        return octets


class HowLongKept(click.ParamType["bool | dict[str, str]"]):
    """How long past states are kept, and how many octets of them, as `versions` of a set has it: `30 days`, `all`."""

    name = "kept states"
    usual = "30 days"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> bool | dict[str, str]:
        if isinstance(value, bool | dict):
            return value
        given = kept_from(str(value))
        if given is None:
            self.fail(f'{str(value)!r} says not how long: give "30 days", "1 year, 20 GB" or "all"', param, ctx)
        return given


class Destination(click.Path):
    """The folder of a copy, never an address: then the two arguments stand the wrong way round."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if "://" in os.fsdecode(value):
            self.fail(f"{os.fsdecode(value)!r} is an address, and no folder: first comes URL, then DEST", param, ctx)
        return super().convert(value, param, ctx)


class SourceAddress(click.ParamType[str]):
    """The address of a source, never the path of a folder: what is here is published, and not copied by its path.

    `or_copy`: the path of a copy may stand in its place.
    """

    name = "url"

    def __init__(self, *, or_copy: bool = False) -> None:
        self._may_be_copy = or_copy

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = os.fsdecode(value)
        first = text.partition("/")[0]
        is_path = first in ("", ".", "..", "~") and text != ""
        looks_like_host = "." in first or ":" in first or first == "localhost"
        if self._may_be_copy:
            return text
        if is_path or (not looks_like_host and "://" not in text and os.path.exists(text)):
            has_dest = ctx is not None and any(one.name == "dest" for one in ctx.command.params)
            order = ": first comes URL, then DEST" if has_dest else ""
            self.fail(f"{text!r} is a path on this machine, and no address{order}", param, ctx)
        return text


class ConfigFile(click.Path):
    """The file of a configuration, never the folder to be published."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if os.path.isdir(value):
            told = os.fsdecode(value)
            self.fail(f"{told!r} is a folder, and a file is needed: publish it with --files {told}", param, ctx)
        return super().convert(value, param, ctx)


url_argument = click.argument("url", type=SourceAddress())
config_argument = click.argument("config", required=False, type=ConfigFile(exists=True, dir_okay=False, path_type=Path))
dest_argument = click.argument("dest", type=Destination(path_type=Path))
profile_option = click.option(
    "--profile",
    type=click.Choice(["1.1", "both"]),
    help="Write ResourceSync 1.1, or both: changes that clients of 1.0 understand too.  [default: 1.1]",
)
catalog_option = click.option(
    "--catalog",
    metavar="PLACE",
    help="The catalog: a file, or a cluster as opensearch://HOST:9200/PREFIX.  [default: in the state folder]",
)

_DESCRIBING = (
    click.option("--describedby", metavar="URL", help="URL of a document about the set."),
    click.option("--include", multiple=True, metavar="PATTERN", help="Publish only what matches (may be repeated)."),
    click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out what matches (may be repeated)."),
    click.option(
        "--hidden",
        is_flag=True,
        default=None,
        help="Publish files and folders with names that begin with a dot, too, which are left out otherwise.",
    ),
    click.option(
        "--settle",
        "settle_seconds",
        type=Duration(),
        metavar="SECONDS",
        help="A file that is open for writing counts as finished when it has been at rest for so long.  [default: 2]",
    ),
    click.option(
        "--max-delete",
        type=Share(),
        metavar="SHARE",
        help="Hold deletions back when more than this share of what is held has vanished, where that is more than ten"
        " files, or when everything has; 1 (or 100%) consents to all.  [default: 20%]",
    ),
    click.option(
        "--hash",
        "hashes",
        multiple=True,
        metavar="NAME",
        help="A digest to state (may be repeated).  [default: md5, sha-256]",
    ),
    click.option(
        "--dump",
        is_flag=True,
        default=None,
        help="Also offer packages with the octets of all resources (Resource Dump); they lie with the documents.",
    ),
    click.option(
        "--change-dump",
        is_flag=True,
        default=None,
        help="Also offer packages with the octets of all changes (Change Dump); they are kept in the state folder.",
    ),
    click.option(
        "--patch",
        multiple=True,
        type=click.Choice(["json", "nquads"]),
        help="Also publish patches of updated JSON or N-Quads files (may be repeated); versions are kept for it.",
    ),
    click.option(
        "--archive",
        is_flag=True,
        default=None,
        help="Also keep past documents, and archives that list them: the Resource List once a day, if it has changed.",
    ),
)
_CHOOSING = ("describedby", "include", "exclude", "hidden", "settle_seconds", "max_delete", "hashes")
DESCRIBING = (*_CHOOSING, "dump", "change_dump", "patch", "archive")
"""What the options of `describes_a_set` are called, here and in a `SetConfig`."""


def describes_a_set(command: Command) -> Command:
    """Give a command the options that say what one set of resources is."""
    for option in reversed(_DESCRIBING):
        command = option(command)
    return command


class SectionedCommand(click.Command):
    """A command whose options are shown in sections: `headings`, by the name of the option with which each begins."""

    def __init__(self, *args: Any, headings: Mapping[str, str], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._headings = headings

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        sections: list[tuple[str, list[tuple[str, str]]]] = [("Options", [])]
        for parameter in self.get_params(ctx):
            if parameter.name in self._headings:
                sections.append((self._headings[parameter.name], []))
            elif "--help" in parameter.opts:
                sections.append(("Help", []))
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                sections[-1][1].append(record)
        for heading, records in sections:
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)
