"""`headwater rdf replay` and `restart`: the patches of a published dataset, executed in series, and begun anew."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwater.cli.output import counted, json_document, json_option, listening, printable
from headwater.cli.rdf.streams import scratch_folder
from headwater.errors import Exit, UsageFault

if TYPE_CHECKING:
    from headwater.datasets.rows import DatasetPatch, DatasetState

_place = click.argument("place", metavar="STATE", type=click.Path(exists=True, path_type=Path))


@click.command("replay", short_help="Prove that the patches of a published dataset lead to it.")
@_place
@click.argument("name", metavar="SET")
@json_option
def replay(place: Path, name: str, as_json: bool) -> Exit:
    """Execute all patches of the dataset SET on nothing, and compare what comes out with the dataset.

    STATE is the state folder of a source, or its configuration (.toml). The command only reads, also beside a server.

    Exit statuses: 0 the patches lead to the dataset; 1 they do not, or one is lost or damaged; 2 usage; 6 fault of our
    own store.
    """
    from headwater.datasets.dataset_folder import BrokenSeries, DatasetFolder
    from headwater.datasets.proof import replayed

    state, patches = _recorded(place, name)
    folder, problem = DatasetFolder(_state_folder(place), name), None
    try:
        with scratch_folder() as scratch:
            made = replayed(folder, patches, scratch).summary
        folder.check(folder.dataset_of(state), state.sha256, state.octets)
        if made.sha256 != state.sha256:
            problem = "the patches do not lead to the dataset"
    except BrokenSeries as fault:
        problem = f"{fault.what} ({fault.where})"
    if as_json:
        told = {"set": name, "patches": len(patches), "statements": state.quads, "sha256": state.sha256}
        json_document({**told, "problem": problem})
    elif problem is None:
        click.echo(f"{_patches(len(patches))}, {counted(state.quads, 'statement')}: in agreement, {state.sha256}")
    else:
        click.echo(f"{printable(name)}: {printable(str(problem))}")
    return Exit.DONE if problem is None else Exit.FINDINGS


@click.command("restart", short_help="Let the patches of a published dataset begin anew.")
@_place
@click.argument("name", metavar="SET")
@click.option("--dry-run", is_flag=True, help="Only show what would be dropped.")
@json_option
def restart(place: Path, name: str, dry_run: bool, as_json: bool) -> Exit:
    """Have the Change Lists of the dataset SET begin anew, with one patch that adds all of it, and drop those before.

    The server that publishes STATE, or else the next `headwater publish`, does it. Destinations find a gap, and load
    the dataset once more. It is the way out when patches are lost, and the only one by which old ones are ever dropped.

    Exit statuses: 0 done; 2 usage; 6 fault of our own store.
    """
    from headwater.datasets.dataset_folder import DatasetFolder

    _state, patches = _recorded(place, name)
    octets = sum(one.octets for one in patches)
    if not dry_run:
        DatasetFolder(_state_folder(place), name).restart_note.touch()
    if as_json:
        json_document({"set": name, "patches": len(patches), "octets": octets, "dry_run": dry_run})
    else:
        verb = "would be" if dry_run else "will be"
        click.echo(f"{_patches(len(patches))} of {octets:,} octets {verb} replaced by one of everything")
    return Exit.DONE


def _recorded(place: Path, name: str) -> tuple[DatasetState, list[DatasetPatch]]:
    """What the catalog has of a dataset. Raises UsageFault."""
    from headwater.catalog.faults import UnknownSet
    from headwater.cli.source.catalog_argument import CatalogArgument, existing
    from headwater.datasets.rows import patches_from, read_dataset

    with listening(bars=False) as listener, existing(CatalogArgument(str(place)), listener) as catalog:
        try:
            state = read_dataset(catalog, name)
            patches = list(patches_from(catalog, name))
        except UnknownSet:
            state, patches = None, []
    if state is None:
        raise UsageFault(f"no dataset named {name!r}", where=str(place), code="HW-DAT-05")
    return state, [one for one in patches if state.first <= one.seq <= state.seq]


def _patches(count: int) -> str:
    return "1 patch" if count == 1 else f"{count:,} patches"


def _state_folder(place: Path) -> Path:
    from headwater.source.config_file import read_config

    return Path(read_config(place).state) if place.is_file() else place
