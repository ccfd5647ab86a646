"""`headwater retry`, `forget` and `allow-deletions`: act on failed transfers and on deletions that are held back."""

from pathlib import Path

import click

from headwater.cli.catalog_argument import CatalogArgument, existing
from headwater.cli.output import counted, json_option, listening, printable, show_result, show_some
from headwater.cli.shared_options import COPY, option
from headwater.cli.status import state_of
from headwater.errors import Exit, UsageFault
from headwater.ingest.deletion_guard import DeletionGuard, set_problems
from headwater.source.configured_source import utc_now
from headwater.sync import copy_status as remembered
from headwater.sync.copied_resource import copied_resource
from headwater.sync.copy.destination_folder import DestinationFolder, writable_state
from headwater.sync.copy_status import make_due
from headwater.sync.sets.selection import pick
from headwater.sync.state import SetRow, fact, sets


@click.command(name="retry")
@click.argument("copy", type=COPY)
@click.argument("uris", metavar="[PATH|URI]...", nargs=-1)
@json_option
def retry(copy: Path, uris: tuple[str, ...], as_json: bool) -> Exit:
    """Let the next run over COPY retry failed resources: those of these paths or URIs, or all.

    Every run retries what failed, but waits where the source asked for it (Retry-After); `sync --follow` waits longer
    after each failure. This command ends these waits. It transfers nothing itself.
    """
    wanted = _uris(copy, uris)
    with writable_state(DestinationFolder(copy.absolute())) as database, database.write() as t:
        due = make_due(t, wanted)
        source = fact(t, "url")
    run = f"`headwater sync {printable(source or 'URL')} {printable(str(copy))}`, with the options that you always give"
    words = f"{counted(due, 'failure')} due: {run}, tries again"
    show_result({"due": due}, words if due else "nothing failed: there is nothing to try again", as_json=as_json)
    return Exit.DONE


def _uris(copy: Path, asked: tuple[str, ...]) -> list[str]:
    """The URIs that are meant: a path means what failed, or is held back, there."""
    found: list[str] = []
    for one in asked:
        known = [] if "://" in one else copied_resource(copy, one)
        found += [of.uri for of in known if {"failed", "held back"} & {why.rule for why in of.reasons}] or [one]
    return found


_SHOWN = 20


class _DryRun(Exception):
    """Rolls back what was only tried."""


@click.command(name="forget")
@click.argument("copy", type=COPY)
@click.argument("uris", metavar="[PATH|URI]...", nargs=-1)
@option("--failed", "Forget all failed transfers.")
@option("--held-back", "Forget all deletions that are held back.")
@option("--set NAME", "Forget this whole set (repeatable).", name="names", multiple=True)
@option("--dry-run", "Show what would be forgotten; change nothing.")
@json_option
def forget(
    copy: Path,
    uris: tuple[str, ...],
    failed: bool,
    held_back: bool,
    names: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> Exit:
    """Let COPY forget failures and deletions held back, by path or URI, or whole sets. It removes no file.

    Headwater fetches a forgotten failure again when the source next lists or changes it, or at once with `sync
    --baseline`. It no longer updates or deletes a file whose deletion was held back, nor the files of a forgotten set.
    If the source lists such a file again, Headwater adopts it without a transfer. With a set go the recorded hashes of
    its files, by which `audit --local`, `export` and `restore` work.
    """
    if bool(names) == bool(uris or failed or held_back):
        raise click.UsageError("name paths or URIs, or --failed, or --held-back, or else --set NAME")
    done, wanted = remembered.Forgotten(), _uris(copy, uris)
    home, gone = DestinationFolder(copy.absolute()), list[SetRow]()
    with writable_state(home) as database:
        try:
            with database.write() as t:
                if names:
                    gone = pick(sets(t), names, str(copy))
                    done = remembered.forget_sets(t, gone)
                else:
                    done = remembered.forget(t, wanted, failed=failed, held_back=held_back)
                if dry_run:
                    raise _DryRun
                for row in gone:
                    home.discard_parts(row.id)
        except _DryRun:
            pass
    told = [counted(done.failures, "failure")]
    told += [f"{counted(n, kind)} held back" for n, kind in ((done.updates, "update"), (done.deletions, "deletion"))]
    told += [f"set {printable(name)}" for name in done.sets]
    words = f"{'would forget' if dry_run else 'forgot'} {', '.join(told)}"
    if done.files:
        stay = "would stay" if dry_run else "stays" if done.files == 1 else "stay"
        lost = "; the recorded hashes go" if done.sets else ""
        words += f"\n{counted(done.files, 'file')} {stay}, no longer part of the copy{lost}:"
    show_result({"dry_run": dry_run, "forgotten": done}, words, as_json=as_json)
    if not as_json:
        show_some(done.released, _SHOWN, count=done.files, indent="  ")
    return Exit.DONE


@click.command(name="allow-deletions")
@click.argument("place", metavar="PLACE")
@click.argument("sets", metavar="[SET]...", nargs=-1)
@json_option
def allow_deletions(place: str, sets: tuple[str, ...], as_json: bool) -> Exit:
    """Let the source at PLACE delete what it holds back, once: in these SETs, or in all.

    PLACE is as for `status`. A running source acts within seconds, `publish` at its next run. For a set without a
    folder, the announcer must send the deletions again. The consent ends with the scan that records the deletions, or
    after an hour.
    """
    with listening() as listener, existing(CatalogArgument(state_of(place)), listener) as catalog:
        opened = {state.name for state in catalog.sets() if state.opened_at is not None}
        if unknown := set(sets) - opened:
            known = ", ".join(sorted(opened)) or "none"
            raise UsageFault(f"no set {min(unknown)!r} is published here", where=place, advice=f"Its sets: {known}.")
        reasons = {one.set: one.reason for one in set_problems(catalog).held_back}
        names = list(dict.fromkeys(sets)) or sorted(reasons)
        for name in names:
            DeletionGuard(catalog, name, 0, utc_now).allow()
    needless = ", but consent does not help while it is so: "
    lines = [
        f"{printable(name)}: deletions are allowed once, within an hour"
        + ("" if "allow-deletions" in (why := reasons.get(name, "allow-deletions")) else f"{needless}{why}")
        for name in names
    ]
    allowed = [{"set": name, "held_back": reasons.get(name)} for name in names]
    show_result({"allowed": allowed}, "\n".join(lines) or "no deletions are held back", as_json=as_json)
    return Exit.DONE
