"""Makes the configuration of a source from a file, from options of `serve` or `publish`, or both; checks a file."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import msgspec

from headwater.catalog.catalog_url import ClusterPlace, place_of
from headwater.cli.output import complain, counted, json_document, json_option, printable
from headwater.cli.shared_options import DESCRIBING
from headwater.errors import Exit, HeadwaterError, UsageFault
from headwater.source.config import BadConfiguration, SourceConfig, read_config
from headwater.source.hubs_and_tokens import ANY_HOST
from headwater.source.set_folders import published_names
from headwater.typed_decoding import from_values

_WHOLE = ("catalog", "host", "port", "base_url", "profile", "log_format", "log_file", "metrics")
_BESIDES = {"copy": ("files", "dataset", "rescan"), "dataset": ("files", "rescan"), "files": ()}
"""What a set is made of, and the options that do not go with it."""
_ONE_SET = ("files", "copy", "dataset", "set_name", "title", *DESCRIBING, "versions", "rescan", "resource_base")


def configured(options: dict[str, Any]) -> SourceConfig:
    """The configuration that a file, or the options, or both give. Raises UsageFault."""
    given = {name: value for name, value in options.items() if value not in (None, ())}
    path = given.pop("config", None)
    if path is not None:
        if clash := [name for name in _ONE_SET if name in given]:
            raise UsageFault(f"{_option(clash[0])} and CONFIG exclude each other", advice="Set it in the file.")
        whole = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
        return read_config(path, whole)
    if not any(kind in given for kind in _BESIDES):
        raise UsageFault("nothing to serve", advice="Give --files DIR, --copy DEST, --dataset PATH, or a CONFIG file.")
    return _described(given)


def _described(given: dict[str, Any], *, takes_what_fits: bool = False) -> SourceConfig:
    """The configuration that the options describe. Raises UsageFault, and faults of a copy's state."""
    kind = next(one for one in _BESIDES if one in given)
    if clash := [name for name in _BESIDES[kind] if name in given]:
        raise UsageFault(f"{_option(clash[0])} and --{kind} exclude each other", advice="Leave one of them out.")
    sets = sets_of(given, ("title", *DESCRIBING, "versions"), waits=True)
    if "rescan" in given:
        sets[0]["rescan_seconds"] = given["rescan"]
    whole = {name: given[name] for name in _WHOLE if name in given}
    state = given.get("state") or default_state(given[kind].absolute(), given.get("set_name") or kind)
    whole["state"] = str(Path(state).absolute())
    fitting = []
    for one in sets if takes_what_fits else ():  # what can be published at its base URL
        with suppress(HeadwaterError):
            converted({**whole, "set": [one]}).site()
            fitting.append(one)
    return converted({**whole, "set": fitting if takes_what_fits else sets})


def sets_of(given: dict[str, Any], keys: Iterable[str], *, waits: bool = False) -> list[dict[str, Any]]:
    """The sets of --copy, --dataset or --files, as a configuration has them, with these keys as far as they are given.

    With `waits`, a copy may come later than its set was named. Raises UsageFault, and faults of the copy's state.
    """
    kind = next(one for one in _BESIDES if one in given)
    place, name = given[kind].absolute(), given.get("set_name")
    told = {key: given[key] for key in keys if key in given}
    if kind != "copy":
        profile = {"profile": "rdf-dataset"} if kind == "dataset" else {}
        return [{kind: str(place), "name": name or kind, **profile, **told}]
    names: dict[str, str | None] = {**published_names(place, name)}
    if not names and waits and name is not None:
        names = {name: None}
    if not names:
        more = ", or name the set with --set: it is then waited for" if waits else ""
        advice = f"Run `headwater sync URL DEST` first{more}."
        raise UsageFault("there is no copy in this folder yet", where=str(place), advice=advice)
    return [{"name": ours, "copy": str(place), "copy_set": theirs, **told} for ours, theirs in names.items()]


def with_new_sets(options: dict[str, Any], base_url: str) -> SourceConfig:
    """The configuration with the sets that a copy has by now, but for those that cannot be published at this address.

    Raises UsageFault, and faults of the copy's state.
    """
    given = {name: value for name, value in options.items() if value not in (None, ())}
    return _described({**given, "base_url": base_url}, takes_what_fits=True)


def _option(parameter: str) -> str:
    short = {"set_name": "set", "hashes": "hash", "settle_seconds": "settle"}
    return f"--{short.get(parameter, parameter).replace('_', '-')}"


def converted(data: dict[str, Any]) -> SourceConfig:
    try:
        return from_values(data, SourceConfig, strict=False)
    except msgspec.ValidationError as cause:
        raise BadConfiguration(str(cause)) from cause


def default_state(files: Path, set_name: str) -> Path:
    """Where the state of a folder lies when nobody says: in the user's own state folder, never in what is published."""
    mark = hashlib.sha256(os.fsencode(files.resolve()) + b"\0" + set_name.encode()).hexdigest()[:12]
    return state_home() / f"{set_name}-{mark}"


def states_of(files: Path) -> list[Path]:
    """The state folders of `serve --files`, `--copy` and `--dataset` for this folder, where nobody said another."""
    if not os.access(state_home(), os.R_OK | os.X_OK):  # the home of a service's user is often closed to it
        return []
    found = sorted(state_home().glob("*-????????????"))
    return [one for one in found if one == default_state(files, one.name[: -len("-????????????")])]


def state_home() -> Path:
    """The folder of the user's own states."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "headwater"


def own_url(host: str, url: str) -> str:
    """The URL of our own address, which must be one that somebody can connect to."""
    if host in ANY_HOST:
        what = f"listening on {host or 'every address'} needs a base_url, the URL that clients use"
        raise UsageFault(what, advice="Add --base-url http://NAME:PORT; it is written into every document.")
    return url


@click.command("check-config")
@click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def check_config(config: Path, as_json: bool) -> Exit:
    """Show what `serve` and `publish` would refuse in the configuration CONFIG, and where.

    The command opens only CONFIG and files of tokens, and changes nothing. It names the first fault of each set.
    Missing folders and files are warnings: they may come later.

    Exit statuses: 0 nothing would be refused; 2 usage, or something would be refused.
    """
    problems: list[UsageFault] = []
    warnings: list[str] = []
    sets = 0
    try:
        source = read_config(config, refused=problems.append)
        sets = len(source.sets)
        _check(source, problems)
        warnings = list(_missing(source))
    except UsageFault as fault:  # where sets were told of, it is the first of these again
        problems += [] if problems else [fault]
    told = {(one.code, one.what, one.where): one for one in problems}
    if as_json:
        faults = [{"code": one.code, "what": one.what, "where": one.where, "do": one.todo} for one in told.values()]
        json_document({"config": str(config), "sets": sets, "problems": faults, "warnings": warnings})
    else:
        for warning in warnings:
            click.echo(f"warning: {printable(warning)}", err=True)
        for one in told.values():
            complain(one)
        if not told:
            click.echo(f"{printable(str(config))}: {counted(sets, 'set')}, nothing would be refused")
    return Exit.USAGE if told else Exit.DONE


def _missing(source: SourceConfig) -> Iterator[str]:
    """What is not there, and may come later."""
    for one in source.sets:
        for key in ("files", "copy", "dataset", "oxigraph", *(() if one.is_harvested else ("resource_root",))):
            if (at := getattr(one, key)) and not os.path.exists(at):
                yield f"set {one.name!r}: {key} is not there: {at}"
    folder = os.path.dirname(source.log_file or "") or "."
    if not os.path.isdir(folder):
        yield f"the folder of log_file is not there: {folder}"
    place = place_of(source.catalog or "")
    if isinstance(place, ClusterPlace):
        if place.options.ca and not os.path.exists(place.options.ca):
            yield f"catalog: ca is not there: {place.options.ca}"
        if find_spec("elastic_transport") is None:
            yield "catalog: the library elastic-transport is not installed (HW-CLU-07)"


def _check(source: SourceConfig, problems: list[UsageFault]) -> None:
    """Add what a source would refuse before it opens anything: folders, digests, tokens, credentials."""
    from headwater.source.configured_source import ConfiguredSource

    source = msgspec.structs.replace(source, base_url=source.base_url or "http://localhost")
    checks: list[Callable[[], object]] = []
    for one in source.sets:
        checks += [partial(ConfiguredSource, msgspec.structs.replace(source, sets=(one,)))]
        checks += [partial(one.authorization, os.environ), *([one.tokens] if one.feed is not None else [])]
    checks += [] if source.notify is None else [source.notify.sent_token]
    checks += [] if source.hub is None else [source.hub.tokens]
    checks.append(partial(ConfiguredSource, source))
    for check in checks:
        try:
            check()
        except UsageFault as fault:
            problems.append(fault)
