"""The push set that `headwater ingest` fills: the options that name it, its locked state, its first load."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headwater.cli.output import json_option, some_of
from headwater.cli.shared_options import catalog_option
from headwater.errors import UsageFault

if TYPE_CHECKING:
    from headwater.catalog.interface import Catalog
    from headwater.ingest.push.feed import Feed
    from headwater.progress import Listener
    from headwater.source.config import SetConfig
    from headwater.source.leadership import StateLock

Command = TypeVar("Command", bound=Callable[..., Any])


def push_target_options(function: Command) -> Command:
    """Options by which a set is found."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Show what would be refused; record nothing."),
        click.option("--keep-loading", is_flag=True, help="With --load: do not open the set yet."),
        click.option(
            "--load",
            is_flag=True,
            help="Fill a new set: nothing is logged as a change, and the set is opened at the end.",
        ),
        click.option("--resource-root", metavar="DIR", help="The folder that contains the absolute paths in records."),
        click.option("--url-prefix", metavar="URL", help="The URL that contains the paths in records."),
        catalog_option,
        click.option(
            "--state",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help="The state folder with the catalog; it is locked meanwhile.",
        ),
        click.option(
            "--config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE",
            help="The source's configuration, instead of the options --state to --resource-root.",
        ),
        click.option("--set", "set_name", metavar="NAME", help="The push set; needed unless --to names it."),
    ):
        function = option(function)
    return json_option(function)


@contextmanager
def push_target(options: dict[str, Any], listener: Listener) -> Iterator[Feed]:
    """The set's feed, with the state folder for us alone. Raises UsageFault, Locked, the catalog's errors."""
    import datetime as dt
    from tempfile import TemporaryDirectory

    from headwater.ingest.push.feed import Feed
    from headwater.ingest.push.ingest_state import refuse_old_memory
    from headwater.ingest.push.resource_locations import Locations
    from headwater.ingest.set_problems import DeletionGuard
    from headwater.source.configured_source import VERSIONS
    from headwater.source.push_sets import FeedPlace, keep_versions
    from headwater.versions.store import VersionStore

    name = options["set_name"]
    if name is None:
        raise UsageFault("no set is named", advice="Give --set NAME, or the URL of a set at a server by --to URL.")
    state, prefix, push_set = _place(options, name)
    root = options["resource_root"] or (push_set.resource_root if push_set is not None else None)
    options["names"] = push_set.resource_sets if push_set is not None else ()
    with ExitStack() as stack:
        if options["dry_run"] and not state.exists():  # of which nothing stays either
            state = Path(stack.enter_context(TemporaryDirectory(prefix="headwater-"))) / "state"
        stack.callback(_locked(state).release)
        catalog = _catalog(options, state, listener)
        stack.callback(catalog.close)
        refuse_old_memory(catalog, state)
        locations = Locations(options["url_prefix"] or prefix, root)
        feed = Feed(catalog, name, locations, lambda: dt.datetime.now(dt.UTC))
        if push_set is not None:
            feed.guard = DeletionGuard(catalog, name, push_set.max_delete, feed.clock)
        if not options["dry_run"]:
            keep_versions(feed, push_set, FeedPlace(VersionStore(state / VERSIONS), root), listener)
            _begin(feed, options)
        yield feed
        if not options["dry_run"]:
            feed.sweep()  # of few batches, of which none would do it


def _locked(state: Path) -> StateLock:
    from headwater.source.leadership import Locked, StateLock

    try:
        return StateLock(state)
    except Locked as fault:
        todo = "Announce to the running server: the same command with --to URL --token TOKEN; or end it."
        raise Locked(fault.what, where=fault.where, advice=todo) from fault


def _place(options: dict[str, Any], name: str) -> tuple[Path, str | None, SetConfig | None]:
    """The state folder, the URL prefix and the configuration of the set, as far as they are known."""
    from headwater.source.config_file import read_config

    if options["config"] is None:
        if options["state"] is None:
            raise UsageFault("no state folder is named", advice="Give --config FILE, or --state DIR.")
        return options["state"], None, None
    config = read_config(options["config"])
    push_set = next((entry for entry in config.sets if entry.name == name), None)
    if push_set is None or push_set.feed is None:
        push_sets = some_of([one.name for one in config.sets if one.feed is not None]) or "none"
        what = f"the configuration has no push set {name!r}"
        raise UsageFault(what, where=str(options["config"]), advice=f"Its push sets: {push_sets}.")
    host = config.host if ":" not in config.host else f"[{config.host}]"
    site = config.site(f"http://{host}:{config.port}")
    return options["state"] or Path(config.state), site.resource_prefix(name), push_set


def _catalog(options: dict[str, Any], state: Path, listener: Listener) -> Catalog:
    import msgspec

    from headwater.cli.source.catalog_argument import CatalogArgument
    from headwater.source.config_file import read_config
    from headwater.source.configured_source import open_catalog

    if options["config"] is not None and options["catalog"] is None:
        return open_catalog(msgspec.structs.replace(read_config(options["config"]), state=str(state)), listener)
    return CatalogArgument(str(options["catalog"] or state)).open(listener)


def _begin(feed: Feed, options: dict[str, Any]) -> None:
    """What is not a load is logged as changes, so it begins with an open set; an index is loaded by itself."""
    from headwater.catalog.faults import WrongPhase

    if options["load"] and feed.is_open:
        raise WrongPhase("the set is open: its first load is over", where=feed.name)
    if not options["load"] and not options.get("snapshot") and not feed.is_open:
        feed.open()


def end_load(feed: Feed, options: dict[str, Any]) -> None:
    if options["load"] and not options["keep_loading"] and not options["dry_run"]:
        feed.open()
