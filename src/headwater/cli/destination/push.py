"""`headwater sync --follow --push`: copies that are kept current by notifications."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.output import complain, json_line
from headwater.errors import UsageFault

if TYPE_CHECKING:
    from headwater.cli.destination.run_output import RunOutput
    from headwater.sync.run import SyncTask

_ANY_HOST = ("0.0.0.0", "::", "")  # noqa: S104  compared with, never bound to unasked


def follow_pushed(
    tasks: Sequence[SyncTask],
    seconds: tuple[float, float | None],
    output: RunOutput,
    callback_url: str | None,
    listen: str | None,
) -> int:
    """Follow until stopped; `seconds` are the interval of polls and the longest one. Returns the exit status."""
    from msgspec.structs import replace

    from headwater.cli.stop_signal import hangups_noted
    from headwater.http.follow_push import PushOptions, follow_push
    from headwater.notify.hub.requests import objection_to_url
    from headwater.source.hub_config import host_and_port
    from headwater.sync.follow import PollInterval

    if callback_url is not None and (why := objection_to_url(callback_url) or _has_query(callback_url)):
        raise UsageFault(f"--callback-url cannot be used: {why}")
    address = host_and_port(listen) if listen is not None else None
    if address is not None and address[0] in _ANY_HOST and callback_url is None:
        raise UsageFault("listening on every address needs --callback-url, the URL that hubs use")
    _refuse_overlaps([Path(task.destination) for task in tasks])

    def announce(callbacks: str, at: str) -> None:
        if output.as_json:
            json_line({"event": "listening", "callbacks": callbacks, "address": at})
            sys.stdout.flush()

    push = PushOptions(listen=address, callback_url=callback_url, on_listening=announce, on_fault=complain)
    with output.listening() as progress, hangups_noted(progress):
        heard = [replace(task, listener=progress) for task in tasks]
        return follow_push(heard, PollInterval(*seconds), output.teller(progress), push)


def _refuse_overlaps(destinations: Sequence[Path]) -> None:
    """See that no copy is, or lies in, another one, where their sources could send files of one name."""
    real = [one.resolve() for one in destinations]
    folders = Counter(real)
    for given, one in zip(destinations, real, strict=True):
        if folders[one] > 1 or any(parent in folders for parent in one.parents):
            raise UsageFault("each copy needs a folder of its own, not in that of another", where=str(given))


def also_followed(task: SyncTask, url: str, destination: Path) -> SyncTask:
    """One more copy with the same options; credentials that were given for the origin of the first stay there."""
    from msgspec.structs import replace

    from headwater.spec import uris
    from headwater.sync.connection import starting_uri

    options = task.options
    if uris.origin(starting_uri(url)) != uris.origin(starting_uri(task.url)):
        options = replace(options, authorization=None, user=None, password=None, headers=(), cert=None, key=None)
    return replace(task, url=url, destination=destination, options=options)


def _has_query(url: str) -> str | None:
    return "it has a query" if "?" in url else None
