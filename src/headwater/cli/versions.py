"""`headwater versions`: what the version store of a source keeps; verifies it, and removes what is no longer kept."""

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from headwater.catalog import catalog_url
from headwater.cli.catalog_argument import CatalogArgument, existing
from headwater.cli.output import counted, json_option, listening, show_result, show_some
from headwater.cli.shared_options import EXISTING, Duration, Octets, option
from headwater.errors import Exit, UsageFault
from headwater.files.folder_marks import is_state
from headwater.quantities import human_octets
from headwater.source.config import OUTPUT_STATE, read_config
from headwater.source.configured_source import CATALOG, VERSIONS, catalog_elsewhere, utc_now
from headwater.source.packing_and_version_removal import collect_versions
from headwater.versions.retention import VersionRetention, damaged
from headwater.versions.store import VersionStore

_EXAMPLES = 10
_WEEK_SECONDS = 604_800.0


@click.command(name="versions")
@click.argument("place", metavar="STATE", type=EXISTING)
@option("--verify", "Read all versions and compare them with their digests.", name="action", flag_value="verify")
@option(
    "--prune", "Remove versions that nothing needs and that are old or too many.", name="action", flag_value="prune"
)
@option("--dry-run", "With --prune: show what would be removed; change nothing.")
@option(
    "--max-age SECONDS",
    "With --prune: keep versions used within this time.  [default: versions_seconds of CONFIG, or a week]",
    Duration(),
)
@option(
    "--max-octets SIZE",
    "With --prune: keep the newest versions up to this size.  [default: versions_octets of CONFIG, or all]",
    Octets(),
)
@option("--catalog CATALOG", "With --prune: a file or a cluster's URL.  [default: that of CONFIG, or the one in STATE]")
@json_option
def command(place: Path, action: str | None, catalog: str | None, dry_run: bool, as_json: bool, **kept: Any) -> Exit:
    """Show how many versions of resources are kept, and their size; with --json, list each.

    STATE is a state folder, the output of `publish`, or a configuration (.toml). A server may run meanwhile. Headwater
    never removes versions that published documents still need, or that were used within the last hour.

    Exit statuses: 0 done; 1 --verify found damaged versions; 2 usage; 6 fault of our own store.
    """
    given = dry_run or any(value is not None for value in (catalog, *kept.values()))
    if given and action != "prune":
        raise UsageFault("--dry-run, --max-age, --max-octets and --catalog belong to --prune", advice="Add --prune.")
    place = _state_of(place)
    config = read_config(place) if place.is_file() else None
    state = place if config is None else Path(config.state)
    retention = VersionRetention(seconds=_WEEK_SECONDS) if config is None else config.version_retention
    if kept["max_age"] is not None:
        retention = replace(retention, seconds=kept["max_age"])
    if kept["max_octets"] is not None:
        retention = replace(retention, octets=kept["max_octets"])
    with closing(VersionStore(state / VERSIONS, is_read_only=action != "prune" or dry_run)) as store:
        if action == "verify":
            damage = list(damaged(store))
            count = sum(1 for _ in store.versions())
            if not as_json:
                show_some([f"damaged: {one.digest}" for one in damage], _EXAMPLES, rest=" (--json lists them)")
            words = f"{counted(count, 'version')} read, {len(damage):,} damaged"
            show_result({"count": count, "damaged": [one.digest for one in damage]}, words, as_json=as_json)
            return Exit.FINDINGS if damage else Exit.DONE
        if action == "prune":
            # Without a configuration all that a history names stays.
            histories = None if config is None else config.kept_versions
            with listening() as listener, existing(CatalogArgument(_catalog_of(place, catalog)), listener) as opened:
                found = collect_versions(opened, store, retention, utc_now, histories, dry_run=dry_run)
            verb, kept_count = "would be removed" if dry_run else "removed", found.versions - found.removed
            words = (
                f"{counted(found.removed, 'version')} {verb}, {human_octets(found.removed_octets)};"
                f" {counted(kept_count, 'version')} kept, {human_octets(found.octets - found.removed_octets)},"
                f" {found.needed:,} needed"
            )
            show_result(found, words, as_json=as_json)
            return Exit.DONE
        versions = list(store.versions())
    octets = sum(one.octets for one in versions)
    oldest = min((one.used_at for one in versions), default=None)
    since = "" if oldest is None else f", the oldest used on {oldest:%Y-%m-%d %H:%M:%S} UTC"
    words = f"{counted(len(versions), 'version')}, {human_octets(octets)}{since}"
    show_result({"count": len(versions), "octets": octets, "versions": versions}, words, as_json=as_json)
    return Exit.DONE


def _state_of(place: Path) -> Path:
    """The state folder that is meant: that of the output of `publish`, or of a configuration. Raises UsageFault."""

    def is_ours(folder: Path) -> bool:
        return any((folder / one).exists() for one in (CATALOG, VERSIONS))

    if not place.is_dir() or is_state(bytes(place)) or is_ours(place):
        return place
    if is_ours(place / OUTPUT_STATE):
        return place / OUTPUT_STATE
    raise UsageFault("this folder is not the state of a source", code="HW-CLI-01", where=str(place))


def _catalog_of(place: Path, named: str | None) -> str:
    """The catalog that says what is needed: that of the place, or the one that is named.

    Raises UsageFault where the one in the state folder would be an old one, and where that folder has another one than
    is named. An old one that was left there would have a note that the catalog is elsewhere.
    """
    elsewhere = catalog_elsewhere(place) if place.is_dir() else None
    if named is None and elsewhere is not None:
        raise UsageFault(
            f"the catalog of this state folder is elsewhere: {elsewhere}",
            where=str(place),
            advice="Nothing was removed: only that catalog knows what is needed. Name the configuration instead of"
            " the folder, or the catalog by --catalog.",
        )
    own = place / CATALOG
    if named is not None and place.is_dir() and own.exists() and elsewhere is None:
        path = os.path.realpath(named.removeprefix("sqlite:"))
        if path not in (os.path.realpath(place), os.path.realpath(own)):
            what = "the catalog of this state folder is in it, and another one is named"
            advice = "Nothing was removed, as only that catalog knows what is needed: leave --catalog out."
            raise UsageFault(what, where=catalog_url.shown(named), advice=advice)
    return str(place) if named is None else named
