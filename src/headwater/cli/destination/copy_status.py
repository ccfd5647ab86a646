"""`headwater status` of a copy: its state as lines for a person, as JSON for a program."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwater.cli.output import counted, printable, show_some
from headwater.quantities import human_octets, human_seconds

if TYPE_CHECKING:
    from headwater.notify.subscriber.status import PushStatus, SubscriptionStatus
    from headwater.sync.copy_status import CopyStatus, FailedResource, SetStatus

_EXAMPLES = 3
_MOST_SUBSCRIPTIONS = 20
_MOST_SETS = 100  # of more sets those with something to tell are shown, up to so many, and the others as one line


def copy_at(place: str) -> Path | None:
    """The folder of the copy that PLACE is, or whose `.headwater` it is; None when it is no copy."""
    path = Path(place)
    if path.name == ".headwater" and (path / "state.sqlite").is_file():
        return path.absolute().parent
    if (path / "catalog.sqlite").is_file() or not (path / ".headwater" / "state.sqlite").is_file():
        return None
    return path


def show(status: CopyStatus, push: PushStatus | None = None) -> None:
    """Tell a person how the copy stands, and how far notifications have led it."""
    from headwater.sync.copy_status import LITTLE_ROOM_OCTETS

    running = ", a run is in progress" if status.running else ""
    as_of = f" as of {_exactly(status.as_of)}" if status.as_of is not None else ""
    what = printable(status.source or "nothing yet")
    click.echo(f"copy of {what}{as_of} in {printable(status.destination)}{running}")
    click.echo(f"last run: {_last_run(status)}")
    telling = list(status.sets)
    if len(telling) > _MOST_SETS:
        telling = [told for told in telling if told.exit_status or told.failed or told.held_back][:_MOST_SETS]
    for set_status in telling:
        _show_set(set_status, status.time, push)
    if rest := len(status.sets) - len(telling):
        told = set(map(id, telling))
        files = sum(set_status.files for set_status in status.sets if id(set_status) not in told)
        click.echo(f"{rest:,} {'more sets' if telling else 'sets'}: {counted(files, 'file')}")
    if status.partial_files:
        what = "in progress" if status.running else "to resume"
        click.echo(f"{counted(status.partial_files, 'partial file')} {what}, {human_octets(status.partial_octets)}")
    if status.is_read_only:
        click.echo("read-only: the disk of the copy cannot be written, so nothing more can be placed")
    elif status.free_octets < LITTLE_ROOM_OCTETS:
        click.echo(
            f"no room: {human_octets(status.free_octets)} left where the copy lies, so nothing more can be placed"
        )
    click.echo(f"{counted(status.files, 'file')}, {human_octets(status.octets)}: {_VERDICTS[status.exit_status]}")


_VERDICTS = {
    0: "nothing failed, nothing is held back",
    1: "too old",
    3: "the source could not be read",
    4: "something failed, is refused, held back or not confirmed",
    5: "no run has come to its end",
    6: "the copy, or a store that follows it, could not be written",
}


def _last_run(status: CopyStatus) -> str:
    run = status.last_run
    if run is None:
        return "none has come to its end"
    told = f"{_at(run.ended_at)} ({_age(status.time - run.ended_at)} ago), exit status {run.exit_status}"
    if run.fault is None:
        return told
    often = f"; so since {_at(run.fault_since)}, {run.fault_count:,} times" if run.fault_count > 1 else ""
    return f"{told}: {printable(run.fault)}{often}"


def _position(set_status: SetStatus, push: PushStatus | None) -> str | None:
    """Which state of the source a set is in: that of its lists, or of the notifications that were applied since."""
    listed, reached = set_status.position, None
    if push is not None and set_status.capability_list is not None:
        reached = push.reached(set_status.capability_list)
    if listed is None or reached is None or reached <= listed:
        return None if listed is None else f"as the source was at {_at(listed)}"
    return f"as the source was at {_at(reached)} by its notifications (its lists were read up to {_at(listed)})"


def _show_set(set_status: SetStatus, now: dt.datetime, push: PushStatus | None) -> None:
    told = [f"{counted(set_status.files, 'file')}, {human_octets(set_status.octets)}"]
    if position := _position(set_status, push):
        told.append(position)
    if set_status.sound_at is not None:
        told.append(f"last run without fault {_age(now - set_status.sound_at)} ago")
    elif set_status.checked_at is not None:
        told.append("no run without fault yet")
    click.echo(f"{printable(set_status.name)}: {'; '.join(told)}")
    if set_status.last is not None and set_status.last.fault:
        since = f" (no run without fault since {_at(set_status.unsound_since)})" if set_status.unsound_since else ""
        click.echo(f"  incomplete: {printable(set_status.last.fault)}{since}")
    for refusal in set_status.refusals:
        click.echo(f"  {printable(refusal)}")
    if set_status.failed:
        click.echo(f"  {set_status.failed:,} failed; `headwater retry` makes them due, `headwater forget` drops them")
    failures = [f"{failure.uri}: {_failure(failure, now)}" for failure in set_status.failures[:_EXAMPLES]]
    _show_examples(failures, set_status.failed)
    if set_status.newer_than_listed:
        what = counted(set_status.newer_than_listed, "file")
        click.echo(f"  {what} newer than listed, which no list of the source confirms so far; the next run looks again")
    if set_status.held_back:
        what = counted(set_status.held_back, "deletion")
        click.echo(f"  {what} held back; `headwater sync --max-delete SHARE` consents")
    _show_examples([kept.path for kept in set_status.deletions[:_EXAMPLES]], set_status.held_back)


def show_push(push: PushStatus, now: dt.datetime) -> None:
    """Tell a person how the subscriptions of a copy stand."""
    told = ["by push" if push.mode == "push" else "by polls"]
    if push.last_delivery is not None:
        told.append(f"last notification {_age(now - push.last_delivery)} ago")
    if push.waiting:
        told.append(f"{counted(push.waiting, 'notification')} to be applied")
    followed = "not followed at present; it was followed" if push.is_followed is False else "followed"
    click.echo(f"{followed} {'; '.join(told)}")
    lines = [
        f"{one.channel} at {one.hub}: {_subscription(one, now)}: {printable(one.topic)}" for one in push.subscriptions
    ]
    show_some(lines, _MOST_SUBSCRIPTIONS, indent="  ", rest=" (--json lists them)")


def _subscription(one: SubscriptionStatus, now: dt.datetime) -> str:
    ends = one.lease_ends
    told = one.state if ends is None else f"{one.state}, lease until {_at(ends)}"
    if ends is not None and ends <= now:
        told = f"the lease ended {_at(ends)}"
    return f"{told}; {one.fault}" if one.fault else told


def _show_examples(lines: Sequence[str], count: int) -> None:
    show_some(lines, _EXAMPLES, count=count, indent="    ", rest=" (--json lists them)")


def _failure(failure: FailedResource, now: dt.datetime) -> str:
    tries = f"{failure.tries:,} {'try' if failure.tries == 1 else 'tries'} since {_at(failure.since)}"
    waits = failure.waits_until
    again = f"not again before {_at(waits)}, as asked" if waits is not None and waits > now else "tried by the next run"
    return f"{failure.reason} ({tries}; {again})"


def _at(moment: dt.datetime | None) -> str:
    return "never" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _exactly(moment: dt.datetime) -> str:
    from headwater.spec.times import format_datetime

    return format_datetime(moment)


def _age(span: dt.timedelta) -> str:
    return human_seconds(max(0.0, span.total_seconds()))
