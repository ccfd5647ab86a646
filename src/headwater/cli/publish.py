"""`headwater publish`: a folder becomes static files that any web server can serve as a ResourceSync source."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater import notices
from headwater.cli.face import counted, human_octets, human_seconds, json_document, json_option, listening
from headwater.cli.share import DESCRIBING, describes_a_set, profile_option
from headwater.errors import Exit, UsageFault

if TYPE_CHECKING:
    from headwater.server.config import SourceConfig
    from headwater.server.set_source import Tree, Worked

STATE = ".headwater"
"""The state folder inside the output, unless another is named."""


_MEASURABLE = 1.0
"""Below so many seconds a rate says more of the start of the program than of the files."""


@click.command(name="publish")
@click.option("--files", required=True, type=click.Path(path_type=Path), metavar="DIR", help="The folder to publish.")
@click.option(
    "--to",
    "out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="The folder that a web server serves.",
)
@click.option("--base-url", required=True, metavar="URL", help="The URL at which the web server serves that folder.")
@click.option(
    "--set",
    "set_name",
    default="files",
    metavar="NAME",
    help="The name of the set of resources; sets that are in OUT already stay.  [default: files]",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where the catalog is kept.  [default: OUT/.headwater]",
)
@describes_a_set
@click.option(
    "--resources",
    type=click.Choice(["link", "copy", "none"]),
    default="link",
    show_default=True,
    help="Place the files as hard links (copies across file systems), as copies, or not at all.",
)
@click.option("--resource-base", metavar="URL", help="Where another server serves the files (with --resources none).")
@profile_option
@click.option("--dry-run", is_flag=True, help="Show what would change; write nothing.")
@json_option
def command(
    files: Path,
    out: Path,
    base_url: str,
    set_name: str,
    state: Path | None,
    resources: str,
    resource_base: str | None,
    profile: str | None,
    dry_run: bool,
    as_json: bool,
    **described: Any,
) -> Exit:
    """Publish a folder as static files, with the documents by which others keep copies of it.

    Run it again after changes: only what changed is read and written. The state folder must not be served; most web
    servers leave out names that begin with a dot, but make sure.

    Exit statuses: 0 done; 2 usage; 4 done, but deletions were held back or files could not be read; 6 fault of our
    own store.
    """
    if resource_base is not None and resources != "none":
        raise UsageFault(
            "--resource-base says that another server has the files, and --resources that this output has them",
            advice="Add --resources none, or leave out --resource-base.",
        )
    from headwater.server.config import SetConfig, SourceConfig
    from headwater.server.set_source import Tree
    from headwater.spec.writer import Profile

    given = {name: described[name] for name in DESCRIBING if described[name] not in (None, ())}
    config = SourceConfig(
        state=str(state or out / STATE),
        base_url=base_url,
        profile=Profile(profile or "1.1"),
        sets=(SetConfig(files=str(files), name=set_name, resource_base=resource_base, **given),),
    )
    tree = Tree(out, None if resources == "none" else resources)
    if dry_run:
        return _dry_run(config, tree, as_json)
    return _publish(config, tree, as_json)


def _publish(config: SourceConfig, tree: Tree, as_json: bool) -> Exit:
    from headwater.server.source import Source

    began = time.monotonic()
    gc.freeze()  # what is imported stays; records by the hundred thousand make no cycles worth looking for
    gc.set_threshold(100_000, 50, 50)
    with listening() as listener, Source(config, tree=tree, listener=listener) as source:
        worked = source.run_once()[0]
        count = source.catalog.state(worked.name).count
        where = source.site.url(".well-known/resourcesync")
    summary = _summary(worked, count, where, time.monotonic() - began)
    if as_json:
        json_document(summary)
    else:
        click.echo(_told(worked, count, where, time.monotonic() - began))
    scanned = worked.scanned
    incomplete = scanned.held_back or scanned.unsettled or scanned.remarks.get(notices.UNREADABLE)
    return Exit.TRANSFERS_FAILED if incomplete else Exit.DONE


def _summary(worked: Worked, count: int, where: str, seconds: float) -> dict[str, object]:
    scanned, published = worked.scanned, worked.published
    return {
        "set": worked.name,
        "source_description": where,
        "resources": count,
        "created": scanned.created,
        "updated": scanned.updated,
        "deleted": scanned.deleted,
        "unchanged": scanned.unchanged,
        "kept": scanned.kept,
        "files_read": scanned.read,
        "octets_read": scanned.octets,
        "held_back": str(scanned.held_back) if scanned.held_back else None,
        "changed_while_read": len(scanned.unsettled),
        "notices": scanned.remarks,
        "documents_written": list(published.written) if published else [],
        "documents_removed": list(published.removed) if published else [],
        "documents_kept": published.kept if published else 0,
        "at": published.at if published else None,
        "seconds": round(seconds, 3),
    }


def _told(worked: Worked, count: int, where: str, seconds: float) -> str:
    scanned, published = worked.scanned, worked.published
    looked = scanned.created + scanned.updated + scanned.unchanged
    written, kept = (len(published.written), published.kept) if published else (0, 0)
    lines = [
        f"{counted(count, 'resource')} in set {worked.name}: {where}",
        f"  created {scanned.created:,}, updated {scanned.updated:,}, deleted {scanned.deleted:,},"
        f" unchanged {scanned.unchanged:,}" + (f", kept as they were {scanned.kept:,}" if scanned.kept else ""),
        f"  read {counted(scanned.read, 'file')}, {human_octets(scanned.octets)};"
        f" documents: {written:,} written, {kept:,} kept",
        f"  {human_seconds(seconds)}" + (f", {looked / seconds:,.0f} files/s" if seconds >= _MEASURABLE else ""),
    ]
    if scanned.held_back:
        lines.append(
            f"  deletions held back: {scanned.held_back}\n  do: look at the folder; consent with --max-delete 1"
        )
    return "\n".join(lines)


def _dry_run(config: SourceConfig, tree: Tree, as_json: bool) -> Exit:
    import msgspec

    from headwater.ingest.survey import survey
    from headwater.server.set_source import folder_of
    from headwater.server.source import CATALOG, Source

    with listening() as listener:
        if (Path(config.state) / CATALOG).exists():
            with Source(config, tree=tree, listener=listener) as source:
                found = source.survey(config.sets[0].name)
        else:
            found = survey(folder_of(config.sets[0], config.site(), Path(config.state), tree), (), 0, listener)
    if as_json:
        held_back = str(found.held_back) if found.held_back else None
        json_document(msgspec.to_builtins(found) | {"held_back": held_back})
    else:
        click.echo(
            f"would read {counted(found.new + found.changed, 'file')}, {human_octets(found.octets)}:"
            f" {found.new:,} new, {found.changed:,} perhaps changed; delete {found.vanished:,};"
            f" leave {found.unchanged + found.kept:,}"
        )
        if found.held_back:
            click.echo(f"would hold deletions back: {found.held_back}")
    return Exit.TRANSFERS_FAILED if found.held_back else Exit.DONE
